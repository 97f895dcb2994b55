//! Deployments, DaemonSets, ReplicaSets and StatefulSets. Source: `pkg/apis/apps/v1/defaults.go`,
//! `pkg/apis/apps/validation/validation.go`, `pkg/printers/internalversion/printers.go`; for the types' zeros,
//! `k8s.io/api/apps/v1/types.go`. Deployments, DaemonSets and ReplicaSets are compared with kube-apiserver 1.36.

use serde_json::{Value, json};

use super::super::object::{fill, list, text};
use super::super::status::Cause;
use super::super::strategy::Cell::{Count, Of};
use super::super::strategy::{
    AGE, Column, NAME, Selectable, Strategy, column, count, labels, number, or_none, pairs, put, wide,
};
use super::pod_spec;

/// Columns that all workloads have.
pub const CONTAINERS: Column = wide("Containers", Of(|object| of_containers(object, "/name")));
pub const IMAGES: Column = wide("Images", Of(|object| of_containers(object, "/image")));
/// Which pods are meant.
pub const SELECTOR: Column = wide("Selector", Of(|object| selector(object.pointer("/spec/selector"))));

const READY: Column = column(
    "Ready",
    Of(|object| format!("{}/{}", count(object, "/status/readyReplicas"), count(object, "/spec/replicas"))),
);

pub const STRATEGIES: &[Strategy] = &[
    Strategy {
        generation: true,
        columns: &[
            NAME,
            READY,
            column("Up-to-date", Count("/status/updatedReplicas")),
            column("Available", Count("/status/availableReplicas")),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        zero: || json!({"spec": {"selector": null, "template": template(), "strategy": {}}, "status": {}}),
        defaults: |deployment| {
            pod_spec::template(deployment, "/spec/template");
            fill(
                &mut deployment["spec"],
                &json!({"replicas": 1, "revisionHistoryLimit": 10, "progressDeadlineSeconds": 600}),
            );
            rolling(deployment, "strategy", &json!({"maxSurge": "25%", "maxUnavailable": "25%"}));
        },
        prepare_for_create: |_, deployment| put(deployment, "status", json!({})),
        validate,
        immutable: &["/spec/selector"],
        condition_times: &["lastUpdateTime", "lastTransitionTime"],
        ..Strategy::of("apps", "Deployment")
    },
    Strategy {
        generation: true,
        columns: &[
            NAME,
            number("Desired", "/status/desiredNumberScheduled"),
            number("Current", "/status/currentNumberScheduled"),
            number("Ready", "/status/numberReady"),
            number("Up-to-date", "/status/updatedNumberScheduled"),
            number("Available", "/status/numberAvailable"),
            column("Node Selector", Of(|set| labels(set.pointer("/spec/template/spec/nodeSelector")))),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        zero: || json!({"spec": {"selector": null, "template": template(), "updateStrategy": {}}, "status": {}}),
        defaults: |set| {
            pod_spec::template(set, "/spec/template");
            // A field of an API that is gone, kept as an annotation. Source: `pkg/apis/apps/v1/conversion.go`.
            let kept = json!({"annotations": {"deprecated.daemonset.template.generation": "1"}});
            fill(&mut set["metadata"], &kept);
            put(&mut set["spec"], "revisionHistoryLimit", json!(10));
            rolling(set, "updateStrategy", &json!({"maxSurge": 0, "maxUnavailable": 1}));
        },
        prepare_for_create: |_, set| {
            let none = json!({"currentNumberScheduled": 0, "numberMisscheduled": 0,
                "desiredNumberScheduled": 0, "numberReady": 0});
            fill(&mut set["status"], &none);
        },
        validate,
        immutable: &["/spec/selector"],
        condition_times: &["lastTransitionTime"],
        ..Strategy::of("apps", "DaemonSet")
    },
    Strategy {
        generation: true,
        columns: &[
            NAME,
            number("Desired", "/spec/replicas"),
            number("Current", "/status/replicas"),
            number("Ready", "/status/readyReplicas"),
            AGE,
            CONTAINERS,
            IMAGES,
            SELECTOR,
        ],
        zero: || json!({"spec": {"selector": null, "template": template()}, "status": {}}),
        defaults: |set| {
            pod_spec::template(set, "/spec/template");
            put(&mut set["spec"], "replicas", json!(1));
        },
        prepare_for_create: |_, set| fill(&mut set["status"], &json!({"replicas": 0})),
        validate,
        immutable: &["/spec/selector"],
        selectable: Selectable::These(&["status.replicas"]),
        condition_times: &["lastTransitionTime"],
        ..Strategy::of("apps", "ReplicaSet")
    },
    Strategy {
        generation: true,
        columns: &[NAME, READY, AGE, CONTAINERS, IMAGES],
        zero: || json!({"spec": {"selector": null, "template": template(), "updateStrategy": {}}, "status": {}}),
        defaults: |set| {
            pod_spec::template(set, "/spec/template");
            let retain = json!({"whenDeleted": "Retain", "whenScaled": "Retain"});
            fill(
                &mut set["spec"],
                &json!({"replicas": 1, "podManagementPolicy": "OrderedReady", "revisionHistoryLimit": 10,
                    "persistentVolumeClaimRetentionPolicy": retain}),
            );
            rolling(set, "updateStrategy", &json!({"partition": 0}));
        },
        validate,
        condition_times: &["lastTransitionTime"],
        ..Strategy::of("apps", "StatefulSet")
    },
];

/// The template of a new workload as the server's own types print it.
pub fn template() -> Value {
    json!({"metadata": {}, "spec": {"containers": null}})
}

/// An update strategy: `RollingUpdate` unless said otherwise, with its numbers.
fn rolling(object: &mut Value, name: &str, numbers: &Value) {
    fill(&mut object["spec"], &json!({name: {"type": "RollingUpdate"}}));
    let strategy = &mut object["spec"][name];
    if strategy["type"] == "RollingUpdate" {
        fill(strategy, &json!({"rollingUpdate": numbers}));
    }
}

/// The template is what the selector selects, and can run.
fn validate(object: &Value, causes: &mut Vec<Cause>) {
    let labels = object.pointer("/spec/template/metadata/labels");
    let wanted = object.pointer("/spec/selector/matchLabels").and_then(Value::as_object);
    let selected = wanted
        .into_iter()
        .flatten()
        .all(|(name, value)| labels.and_then(|labels| labels.get(name)).is_some_and(|found| found == value));
    if !selected {
        let shown = labels.unwrap_or(&Value::Null);
        let why = "`selector` does not match template `labels`";
        causes.push(Cause::invalid("spec.template.metadata.labels", shown, why));
    }
    pod_spec::validate(object, "/spec/template/spec", "spec.template.spec", causes);
}

fn of_containers(object: &Value, field: &str) -> String {
    let containers = list(object, "/spec/template/spec/containers").iter();
    containers.map(|container| text(container, field)).collect::<Vec<_>>().join(",")
}

/// A label selector as one text.
fn selector(selector: Option<&Value>) -> String {
    let Some(selector) = selector else { return or_none("") };
    let expressions = list(selector, "/matchExpressions").iter().map(|expression| {
        let key = text(expression, "/key");
        let values: Vec<&str> = list(expression, "/values").iter().filter_map(Value::as_str).collect();
        match text(expression, "/operator") {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "DoesNotExist" => format!("!{key}"),
            _ => key.to_owned(),
        }
    });
    let parts: Vec<String> = pairs(selector.get("matchLabels")).into_iter().chain(expressions).collect();
    or_none(&parts.join(","))
}
