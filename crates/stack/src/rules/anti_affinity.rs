//! Pod anti-affinity between pods for which nodes are requested all at once.

use serde_json::Value;

use crate::rules::Context;
use model::address::FieldPath;
use model::diag::{Code, Diagnostic};

/// Reports anti-affinity between the pods of a provisioning request. Source: GKE's guide to the Dynamic Workload Scheduler,
/// "Limitations".
pub(crate) fn anti_affinity(context: &mut Context<'_>, spec: Option<&Value>, place: &FieldPath) {
    let apart = spec.map_or(&Value::Null, |spec| &spec["affinity"]["podAntiAffinity"]);
    if apart.is_null() {
        return;
    }
    let message = "the autoscaler does not look at anti-affinity when it makes the nodes of a request";
    let finding = Diagnostic::warning(Code::RequestAffinity, message)
        .at_value(place.key("affinity").key("podAntiAffinity"), "some of the pods may find no node");
    context.say(finding.help("take it out: pods that ask for all GPUs of a node are apart without it"));
}
