//! States of ProvisioningRequests, and the annotations of pods that name their request. Jobs, gangs and requests use them.

use serde_json::{Value, json};

use crate::json::text;
use crate::kind::{MissingQuery, Neighbor, QueryResults};
use crate::kubernetes::object::{condition, gvk};
use crate::kubernetes::pod_state::PodState;
use crate::kubernetes::template::QUEUED_TAINT;
use model::address::Address;
use model::resource::Gvk;

/// Returns the kind ProvisioningRequest.
pub fn api() -> Gvk {
    gvk("autoscaling.x-k8s.io", "v1", "ProvisioningRequest", "provisioningrequests")
}

/// The ProvisioningRequest that the pods of a job name.
pub struct RequestRef<'a> {
    /// The section of the request.
    pub address: Address,
    /// Its live name.
    pub name: &'a str,
    /// Its provisioning class, which decides which autoscaler handles it.
    pub class: &'a str,
}

/// The annotations of pods that use the nodes of a request. Source:
/// `cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1/types.go`.
pub const CONSUMES: &str = "autoscaling.x-k8s.io/consume-provisioning-request";
pub const CLASS_ANNOTATION: &str = "autoscaling.x-k8s.io/provisioning-class-name";
/// Their names on older clusters; today's autoscaler ignores them. Source: GKE's guide to the dynamic workload scheduler.
const OLD_CONSUMES: &str = "cluster-autoscaler.kubernetes.io/consume-provisioning-request";
const OLD_CLASS_ANNOTATION: &str = "cluster-autoscaler.kubernetes.io/provisioning-class-name";
/// All annotations.
pub const ANNOTATIONS: [&str; 4] = [CONSUMES, CLASS_ANNOTATION, OLD_CONSUMES, OLD_CLASS_ANNOTATION];

/// Collects the names of the requests whose nodes the pods in a value use, from both spellings of the annotation.
pub fn consumed<'v>(value: &'v Value, found: &mut Vec<&'v str>) {
    match value {
        Value::Object(fields) => {
            let annotations = fields.get("annotations").unwrap_or(&Value::Null);
            found.extend([CONSUMES, OLD_CONSUMES].iter().filter_map(|key| annotations[*key].as_str()));
            // The schema of a CustomResourceDefinition has thousands of values, and no pod.
            let fields = fields.iter().filter(|(key, _)| *key != "openAPIV3Schema");
            fields.for_each(|(_, value)| consumed(value, found));
        }
        Value::Array(items) => items.iter().for_each(|item| consumed(item, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

impl RequestRef<'_> {
    /// Adds the annotations to the `metadata` of pods, under both of their names: the cluster's version decides which of them it
    /// knows.
    pub fn add_annotations(&self, metadata: &mut Value) {
        let annotations = [
            (CONSUMES, self.name),
            (CLASS_ANNOTATION, self.class),
            (OLD_CONSUMES, self.name),
            (OLD_CLASS_ANNOTATION, self.class),
        ];
        for (annotation, value) in annotations {
            metadata["annotations"][annotation] = json!(value);
        }
    }
}

/// The live objects on which the state of a ProvisioningRequest depends.
pub(crate) struct RequestContext<'a> {
    pub pods: &'a Value,
    /// True if its pool has nodes that any pod can use.
    pub needless: bool,
    /// The resource whose pods consume its nodes, if the same section creates both.
    pub consumer: Option<&'a Value>,
}

impl<'a> RequestContext<'a> {
    const NOTHING: Self = Self { pods: &Value::Null, needless: false, consumer: None };

    pub fn of(found: &QueryResults<'a>) -> Result<Self, MissingQuery> {
        let pods = found.get(Neighbor::AllPods)?;
        let needless = found.find(Neighbor::Nodes).is_some_and(has_plain_nodes);
        let request = found.own_object();
        let consumer = found.find(Neighbor::Consumer).filter(|consumer| !is_older(consumer, request));
        Ok(Self { pods, needless, consumer })
    }
}

/// Returns true if the consumer is older than the request. It then uses the nodes of an earlier request until it is replaced.
fn is_older(consumer: &Value, request: &Value) -> bool {
    let created = |thing: &Value| thing["metadata"]["creationTimestamp"].as_str().map(str::to_owned);
    created(consumer).zip(created(request)).is_some_and(|(consumer, request)| consumer < request)
}

/// Returns true if some nodes accept any pods: GKE taints the nodes of requests.
fn has_plain_nodes(nodes: &Value) -> bool {
    let is_plain = |node: &Value| {
        let taints = node["spec"]["taints"].as_array().into_iter().flatten();
        !taints.into_iter().any(|taint| taint["key"] == QUEUED_TAINT)
    };
    nodes["items"].as_array().into_iter().flatten().any(is_plain)
}

/// The stages of a request. Source: GKE's guide to the dynamic workload scheduler; the autoscaler's
/// `apis/provisioningrequest/autoscaling.x-k8s.io/v1/types.go`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestState {
    /// No autoscaler has accepted it.
    Pending,
    /// The autoscaler waits for machines.
    Accepted,
    /// The nodes exist, and wait for pods.
    Provisioned,
    /// Pods run on the nodes, or did.
    Used,
    /// The request is not needed: its pool has nodes that any pod can use.
    Needless,
    /// It ended.
    Failed,
    BookingExpired,
    CapacityRevoked,
}

impl RequestState {
    pub fn of<'v>(request: &'v Value, around: &RequestContext<'_>) -> (Self, Option<&'v Value>) {
        let holds = |kind: &str| condition(request, kind).filter(|found| found["status"] == "True");
        let used = || {
            let name = text(&request["metadata"]["name"]);
            let consumes = |pod: &PodState<'_>| {
                let annotations = &pod.0["metadata"]["annotations"];
                [CONSUMES, OLD_CONSUMES].iter().any(|key| text(&annotations[*key]) == name)
            };
            // One that has a node may pull its image for longer than the ten minutes.
            let began = |pod: PodState<'_>| {
                let bound = !text(&pod.0["spec"]["nodeName"]).is_empty();
                bound || matches!(pod.phase(), "Running" | "Succeeded" | "Failed")
            };
            PodState::each(around.pods).filter(consumes).any(began)
                || around.consumer.is_some_and(Value::is_object)
        };
        if around.needless {
            return (Self::Needless, None);
        }
        let ends = [("Failed", Self::Failed), ("CapacityRevoked", Self::CapacityRevoked)];
        if let Some((stage, end)) = ends.into_iter().find_map(|(kind, stage)| Some((stage, holds(kind)?))) {
            return (stage, Some(end));
        }
        let (provisioned, expired) = (holds("Provisioned"), holds("BookingExpired"));
        match (provisioned, expired) {
            // The booking of every request ends, also of one whose pods have long started.
            (Some(provisioned), _) if used() => (Self::Used, Some(provisioned)),
            (_, Some(expired)) => (Self::BookingExpired, Some(expired)),
            (Some(provisioned), None) => (Self::Provisioned, Some(provisioned)),
            (None, None) => match holds("Accepted") {
                Some(accepted) => (Self::Accepted, Some(accepted)),
                None => (Self::Pending, None),
            },
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Accepted => "accepted",
            Self::Provisioned => "provisioned",
            Self::Used => "in use",
            Self::Needless => "not needed",
            Self::Failed => "failed",
            Self::BookingExpired => "booking expired",
            Self::CapacityRevoked => "capacity revoked",
        }
    }
}

/// Returns how a request ended (`Failed: …`) once it provides no more nodes. A booking that expires after provisioning does not
/// count as an end.
pub fn has_ended(request: &Value) -> Option<String> {
    // The pods that use it are not read here: a provisioned request did its work.
    let (stage, end) = RequestState::of(request, &RequestContext::NOTHING);
    let holds = |kind: &str| condition(request, kind).is_some_and(|found| found["status"] == "True");
    let is_end = match stage {
        RequestState::Failed | RequestState::CapacityRevoked => true,
        RequestState::BookingExpired => !holds("Provisioned"),
        RequestState::Pending
        | RequestState::Accepted
        | RequestState::Provisioned
        | RequestState::Used
        | RequestState::Needless => false,
    };
    Some(in_words(stage, end?)).filter(|_| is_end)
}

/// Returns how a request ended if no pod used its nodes: unlike in [`has_ended`], every expired booking is an end.
pub fn has_expired(request: &Value) -> Option<String> {
    let (stage, end) = RequestState::of(request, &RequestContext::NOTHING);
    let ended =
        matches!(stage, RequestState::Failed | RequestState::CapacityRevoked | RequestState::BookingExpired);
    Some(in_words(stage, end?)).filter(|_| ended)
}

/// Returns true if nodes may still be created for a request, or wait for its pods.
pub(crate) fn is_open(request: &Value) -> bool {
    let (stage, _) = RequestState::of(request, &RequestContext::NOTHING);
    matches!(stage, RequestState::Pending | RequestState::Accepted | RequestState::Provisioned)
}

/// Returns true if a request has its nodes.
pub fn has_nodes(request: &Value) -> bool {
    condition(request, "Provisioned").is_some_and(|found| found["status"] == "True")
}

/// Describes why a request waits for quota.
pub fn lacks_quota(request: &Value) -> Option<String> {
    let told = condition(request, "Provisioned").filter(|told| told["status"] != "True")?;
    text(&told["reason"]).contains("Quota").then(|| missing_capacity(request))
}

/// Describes the capacity that an accepted request waits for.
pub(crate) fn missing_capacity(request: &Value) -> String {
    let provisioned = condition(request, "Provisioned").filter(|found| found["status"] == "False");
    let (reason, message) =
        provisioned.map_or(("", ""), |found| (text(&found["reason"]), text(&found["message"])));
    match (reason, message) {
        ("QuotaExceeded", message) => format!("a quota of the project is too small: {message}"),
        (_, "") => "no machines yet".to_owned(),
        (_, message) => format!("no machines yet: {message}"),
    }
}

/// Describes how a request ended, and what follows.
pub(crate) fn in_words(stage: RequestState, end: &Value) -> String {
    let (reason, message) = (text(&end["reason"]), text(&end["message"]));
    let told =
        [reason, message].iter().filter(|word| !word.is_empty()).copied().collect::<Vec<_>>().join(": ");
    let about = |part: &str| reason.contains(part) || message.contains(part);
    let what = match stage {
        RequestState::BookingExpired => {
            "no pod came to its nodes within 10 minutes, and the autoscaler takes them away"
        }
        RequestState::CapacityRevoked => "its nodes were taken away",
        _ if about("Quota") || about("quota") => "a quota of the project is too small",
        _ if about("Max nodepool size") => "the pool would be larger than its maximum (`nodes`)",
        _ if about("cannot be scheduled") => "its pods fit no node of a queued pool",
        _ => "GKE cannot make its nodes",
    };
    let since = end["lastTransitionTime"].as_str().map(|time| format!(" since {time}")).unwrap_or_default();
    format!("{}{since}: {what} ({told})", stage.word())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kind::Part;

    #[test]
    fn what_was_there_before_a_request_does_not_use_it() {
        let made = |at: &str| json!({ "kind": "DaskCluster", "metadata": { "creationTimestamp": at } });
        let (before, request, after) =
            (made("2026-01-01T00:00:00Z"), made("2026-01-01T00:00:05Z"), made("2026-01-01T00:00:09Z"));
        let pods = json!({ "items": [] });
        let consumer = |consumer: &Value| {
            let found = QueryResults::of([(Part::Itself, &request)]);
            let found = found.with(Neighbor::AllPods, &pods).with(Neighbor::Consumer, consumer);
            RequestContext::of(&found).unwrap().consumer.is_some()
        };
        assert!(consumer(&after) && consumer(&request) && consumer(&Value::Null));
        assert!(!consumer(&before), "its new workers have no nodes yet, and it is not replaced without them");
    }

    #[test]
    fn pods_use_a_request_by_either_name_of_the_annotation() {
        let told = json!({ "type": "Provisioned", "status": "True" });
        let expired = json!({ "type": "BookingExpired", "status": "True" });
        let request = json!({ "metadata": { "name": "r" }, "status": { "conditions": [told, expired] } });
        for (annotation, stage) in [
            (CONSUMES, RequestState::Used),
            (OLD_CONSUMES, RequestState::Used),
            ("other", RequestState::BookingExpired),
        ] {
            let pod =
                json!({ "metadata": { "annotations": { annotation: "r" } }, "spec": { "nodeName": "n" } });
            let pods = json!({ "items": [pod] });
            let around = RequestContext { pods: &pods, ..RequestContext::NOTHING };
            assert_eq!(RequestState::of(&request, &around).0, stage, "{annotation}");
        }
    }

    #[test]
    fn nodes_that_need_no_request_are_told_by_their_taints() {
        let node = |taints: Value| json!({ "items": [{ "spec": { "taints": taints } }] });
        assert!(has_plain_nodes(&node(json!([{ "key": "nvidia.com/gpu" }]))));
        assert!(!has_plain_nodes(&node(json!([{ "key": QUEUED_TAINT }]))) && !has_plain_nodes(&Value::Null));
    }
}
