//! Reasons why a namespace is not removed, from the conditions that its controller sets. Pure. Source: kube-controller-manager
//! 1.36, `pkg/controller/namespace/deletion/status_condition_utils.go`.

use serde_json::Value;

use crate::json::text;

/// Returns the reason why a namespace that is being deleted waits, with the commands that inspect or fix it; `None` if its
/// controller names no reason.
pub fn blocked_by(namespace: &Value) -> Option<String> {
    let name = text(&namespace["metadata"]["name"]);
    let conditions = namespace["status"]["conditions"].as_array()?;
    let said = |kind: &str| {
        let found =
            conditions.iter().find(|condition| condition["type"] == kind && condition["status"] == "True");
        found.map(|condition| text(&condition["message"]))
    };
    // In the order of the controller: what it cannot list it does not delete.
    if let Some(message) = said("NamespaceDeletionDiscoveryFailure") {
        return Some(discovery(message));
    }
    if let Some(message) = said("NamespaceDeletionGroupVersionParsingFailure") {
        return Some(format!("its controller cannot read the names of API groups: {message}"));
    }
    let remains = said("NamespaceContentRemaining").map(|message| counted(message, "remaining: ", " has "));
    let kinds = remains.unwrap_or_default();
    if let Some(message) = said("NamespaceFinalizersRemaining") {
        let finalizers = counted(message, "finalizers remaining: ", " in ");
        let waits: Vec<String> = finalizers
            .iter()
            .map(|(finalizer, _)| format!("{finalizer} ({})", controller(finalizer)))
            .collect();
        let look = match kinds.first() {
            Some((kind, _)) => format!("`kubectl -n {name} get {kind} -o yaml` shows whose"),
            None => format!("`kubectl get namespace {name} -o yaml` says more"),
        };
        return Some(format!(
            "its contents have finalizers that their controllers must remove: {}; {look}",
            waits.join(", ")
        ));
    }
    if let Some(message) = said("NamespaceDeletionContentFailure") {
        return Some(format!("its contents cannot be deleted: {message}"));
    }
    if kinds.is_empty() {
        return None;
    }
    let left: Vec<String> = kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    let all: Vec<&str> = kinds.iter().map(|(kind, _)| kind.as_str()).collect();
    Some(format!(
        "it still contains {}; `kubectl -n {name} get {}` shows them",
        left.join(", "),
        all.join(",")
    ))
}

/// Returns the text for an aggregated API server that is unavailable: the contents of the namespace are then unknown.
fn discovery(message: &str) -> String {
    let groups: Vec<String> = message
        .split([' ', ',', ';'])
        .map(|word| word.trim_end_matches([':', '.']))
        .filter_map(|word| word.split_once('/'))
        .filter(|(group, version)| group.contains('.') && version.starts_with('v') && !version.contains('/'))
        .map(|(group, version)| format!("{version}.{group}"))
        .fold(Vec::new(), |mut all, service| {
            if !all.contains(&service) {
                all.push(service);
            }
            all
        });
    if groups.is_empty() {
        return format!("its controller cannot list its contents: {message}");
    }
    let named = groups.join(" ");
    format!(
        "its controller cannot list its contents because APIService {} does not respond: fix its server \
         (`kubectl get apiservice {named}`) or, if it no longer exists, `kubectl delete apiservice {named}`",
        groups.join(", ")
    )
}

/// Returns the names with their numbers of `pods. has 2 resource instances, …` and `x/y in 1 resource instances, …`.
fn counted(message: &str, head: &str, between: &str) -> Vec<(String, u32)> {
    let list = message.split_once(head).map_or("", |(_, list)| list);
    let one = |part: &str| {
        let (name, rest) = part.trim().split_once(between)?;
        let number = rest.split(' ').next()?.parse().ok()?;
        Some((name.trim_end_matches('.').to_owned(), number))
    };
    list.split(", ").filter_map(one).collect()
}

/// Names the controller that removes a finalizer, and when it does so.
fn controller(finalizer: &str) -> String {
    let known = match finalizer {
        "foregroundDeletion" | "orphan" => "the garbage collector, once its dependents are deleted",
        "kubernetes.io/pvc-protection" => "Kubernetes, once no pod uses the volume",
        "service.kubernetes.io/load-balancer-cleanup" => {
            "the cloud provider, once the load balancer is deleted"
        }
        // Source: kopf, `kopf._cogs.configs.configuration`.
        "kopf.zalando.org/KopfFinalizerMarker" => "a kopf operator such as Dask's, which must be running",
        "batch.kubernetes.io/job-tracking" => "the Job controller",
        _ => "",
    };
    match (known, finalizer.split_once('/')) {
        ("", Some((domain, _))) => format!("the controller of {domain}, which must be running"),
        ("", None) => "the controller that set it, which must be running".to_owned(),
        (known, _) => known.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_namespace_that_stays_says_why() {
        let ok = |kind: &str| json!({"type": kind, "status": "False", "reason": "x", "message": "All well"});
        let bad = |kind: &str, message: &str| json!({"type": kind, "status": "True", "reason": "x", "message": message});
        let down = "Discovery failed for some groups, 1 failing: unable to retrieve the complete list of server APIs: \
                    metrics.k8s.io/v1beta1: stale GroupVersion discovery: metrics.k8s.io/v1beta1";
        let away = "Discovery failed for some groups, 2 failing: unable to retrieve the complete list of server APIs: \
                    a.example.com/v1: the server is currently unable to handle the request, \
                    b.example.com/v1alpha1: the \
                    server is currently unable to handle the request";
        for (conditions, expect) in [
            (vec![], None),
            (vec![ok("NamespaceDeletionDiscoveryFailure"), ok("NamespaceContentRemaining")], None),
            (
                vec![bad("NamespaceDeletionDiscoveryFailure", down), bad("NamespaceContentRemaining", "x")],
                Some(vec![
                    "v1beta1.metrics.k8s.io does not respond",
                    "kubectl delete apiservice v1beta1.metrics.k8s.io`",
                ]),
            ),
            (
                vec![bad("NamespaceDeletionDiscoveryFailure", away)],
                Some(vec!["kubectl get apiservice v1.a.example.com v1alpha1.b.example.com`"]),
            ),
            (
                vec![
                    bad(
                        "NamespaceContentRemaining",
                        "Some resources are remaining: daskclusters.kubernetes.dask.org has 1 resource instances, \
                         persistentvolumeclaims. has 2 resource instances",
                    ),
                    bad(
                        "NamespaceFinalizersRemaining",
                        "Some content in the namespace has finalizers remaining: kopf.zalando.org/KopfFinalizerMarker in \
                         1 resource instances, kubernetes.io/pvc-protection in 2 resource instances",
                    ),
                ],
                Some(vec![
                    "kopf.zalando.org/KopfFinalizerMarker (a kopf operator",
                    "kubernetes.io/pvc-protection (Kubernetes, once no pod",
                    "kubectl -n team get daskclusters.kubernetes.dask.org -o yaml",
                ]),
            ),
            (
                vec![bad(
                    "NamespaceContentRemaining",
                    "Some resources are remaining: pods. has 2 resource instances",
                )],
                Some(vec!["it still contains 2 pods", "kubectl -n team get pods`"]),
            ),
            (
                vec![bad(
                    "NamespaceDeletionContentFailure",
                    "Failed to delete all resource types, 1 remaining: no",
                )],
                Some(vec!["cannot be deleted: Failed to delete all"]),
            ),
            (
                vec![bad(
                    "NamespaceFinalizersRemaining",
                    "Some content in the namespace has finalizers remaining: a.io/f in 1 resource instances",
                )],
                Some(vec![
                    "the controller of a.io, which must be running",
                    "kubectl get namespace team -o yaml",
                ]),
            ),
        ] {
            let live = json!({"metadata": {"name": "team"}, "status": {"phase": "Terminating", "conditions": conditions}});
            let said = blocked_by(&live);
            match expect {
                None => assert_eq!(said, None),
                Some(parts) => {
                    let said = said.unwrap();
                    assert!(parts.iter().all(|part| said.contains(part)), "{said}");
                }
            }
        }
    }
}
