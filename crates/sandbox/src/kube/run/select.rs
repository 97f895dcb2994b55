//! Selectors: labels, node terms, tolerations, name patterns.
//!
//! Recalled from k8s.io/component-helpers, `scheduling/corev1`, and apimachinery, `pkg/labels`.

use serde_json::Value;

use super::super::object::{list, text};

/// Returns true if every pair of `wanted` is among `labels`; an absent map asks for nothing.
pub fn exact(wanted: &Value, labels: &Value) -> bool {
    wanted.as_object().is_none_or(|wanted| wanted.iter().all(|(key, value)| labels.get(key) == Some(value)))
}

/// One `key operator values` requirement.
pub fn requirement(wanted: &Value, labels: &Value) -> bool {
    let values = list(wanted, "/values");
    let found = labels.get(text(wanted, "/key"));
    match text(wanted, "/operator") {
        "In" => found.is_some_and(|found| values.contains(found)),
        "NotIn" => found.is_none_or(|found| !values.contains(found)),
        "Exists" => found.is_some(),
        "DoesNotExist" => found.is_none(),
        "Gt" => integers(found, values).is_some_and(|(found, bound)| found > bound),
        "Lt" => integers(found, values).is_some_and(|(found, bound)| found < bound),
        _ => false,
    }
}

fn integers(found: Option<&Value>, values: &[Value]) -> Option<(i64, i64)> {
    let [bound] = values else { return None };
    Some((found?.as_str()?.parse().ok()?, bound.as_str()?.parse().ok()?))
}

/// One `NodeSelectorTerm`: all of its requirements; a term without any matches no node.
pub fn node_term(term: &Value, node: &Value) -> bool {
    let expressions = list(term, "/matchExpressions");
    let fields = list(term, "/matchFields");
    let names = serde_json::json!({"metadata.name": node.pointer("/metadata/name")});
    !(expressions.is_empty() && fields.is_empty())
        && expressions.iter().all(|wanted| requirement(wanted, &node["metadata"]["labels"]))
        && fields.iter().all(|wanted| requirement(wanted, &names))
}

/// Returns true if a pod's node selector and required node affinity allow a node.
pub fn node_allowed(pod_spec: &Value, node: &Value) -> bool {
    let terms = pod_spec
        .pointer("/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms")
        .and_then(Value::as_array);
    exact(&pod_spec["nodeSelector"], &node["metadata"]["labels"])
        && terms.is_none_or(|terms| terms.iter().any(|term| node_term(term, node)))
}

/// Returns true if one of the tolerations covers a taint.
pub fn tolerated(taint: &Value, tolerations: &[Value]) -> bool {
    tolerations.iter().any(|toleration| {
        let (key, effect) = (text(toleration, "/key"), text(toleration, "/effect"));
        let exists = text(toleration, "/operator") == "Exists";
        (effect.is_empty() || effect == text(taint, "/effect"))
            && (key == text(taint, "/key") || (key.is_empty() && exists))
            && (exists || text(toleration, "/value") == text(taint, "/value"))
    })
}

/// The first taint with one of the effects that nothing tolerates.
pub fn untolerated<'n>(node: &'n Value, tolerations: &[Value], effects: &[&str]) -> Option<&'n Value> {
    list(node, "/spec/taints")
        .iter()
        .filter(|taint| effects.contains(&text(taint, "/effect")))
        .find(|taint| !tolerated(taint, tolerations))
}

/// Returns true if a pattern with `*` for any run of characters covers the whole text.
pub fn glob(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else {
        return false;
    };
    let Some(last) = pattern.rsplit_once('*').map(|(_, last)| last) else {
        return rest.is_empty();
    };
    let middle: Vec<&str> = parts.collect();
    for part in &middle[..middle.len().saturating_sub(1)] {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn globs() {
        for (pattern, text, want) in [
            ("*vectoradd*", "nvidia/samples:vectoradd-cuda11.6.0-ubuntu18.04", true),
            ("*vectoradd*", "nvidia/samples:nbody", false),
            ("pause", "pause", true),
            ("pause", "pause:3.8", false),
            ("*/pause:*", "gke.gcr.io/pause:3.8", true),
            ("*", "", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxcyyb", false),
        ] {
            assert_eq!(glob(pattern, text), want, "{pattern} {text}");
        }
    }

    #[test]
    fn requirements_of_every_operator() {
        let labels = json!({"pool": "a100", "size": "7"});
        for (wanted, want) in [
            (json!({"key": "pool", "operator": "In", "values": ["a100", "t4"]}), true),
            (json!({"key": "pool", "operator": "NotIn", "values": ["a100"]}), false),
            (json!({"key": "none", "operator": "NotIn", "values": ["a100"]}), true),
            (json!({"key": "pool", "operator": "Exists"}), true),
            (json!({"key": "pool", "operator": "DoesNotExist"}), false),
            (json!({"key": "size", "operator": "Gt", "values": ["6"]}), true),
            (json!({"key": "size", "operator": "Lt", "values": ["7"]}), false),
            (json!({"key": "pool", "operator": "Gt", "values": ["6"]}), false),
            (json!({"key": "pool", "operator": "Like", "values": ["6"]}), false),
        ] {
            assert_eq!(requirement(&wanted, &labels), want, "{wanted}");
        }
    }

    #[test]
    fn tolerations() {
        let taint = json!({"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"});
        for (toleration, want) in [
            (json!({"operator": "Exists"}), true),
            (json!({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}), true),
            (json!({"key": "nvidia.com/gpu", "value": "present"}), true),
            (json!({"key": "nvidia.com/gpu", "operator": "Equal", "value": "absent"}), false),
            (json!({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoExecute"}), false),
            (json!({"key": "other", "operator": "Exists"}), false),
        ] {
            assert_eq!(tolerated(&taint, std::slice::from_ref(&toleration)), want, "{toleration}");
        }
    }
}
