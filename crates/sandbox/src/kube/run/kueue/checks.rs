//! The check that asks for nodes before work starts: a ProvisioningRequest for each piece of work.
//! Source: `pkg/controller/admissionchecks/provisioning` of Kueue 0.15.0, and what it did beside the real operator.

use serde_json::{Map, Value, json};

use super::super::super::object::{condition, is_true, key, list, name, namespace, reference_to, text, time};
use super::super::round::Run;
use super::super::scheduler::requests;
use super::assign::{self, Sets, request_key};
use super::conditions::{Conditions, GROUP, KUEUE, MANAGED};

const CONSUME: &str = "autoscaling.x-k8s.io/consume-provisioning-request";
const CLASS: &str = "autoscaling.x-k8s.io/provisioning-class-name";
/// How annotations of work begin that say something of its request.
const PARAMETER: &str = "provreq.kueue.x-k8s.io/";
/// Tries after the first one where a config does not say: Kueue's default.
const TRIES: i64 = 3;

/// The checks of a queue that work with these flavors must pass.
pub fn needed(queue: &Value, sets: &Sets) -> Vec<String> {
    let rules = list(queue, "/spec/admissionChecksStrategy/admissionChecks").iter();
    let holds = |rule: &&Value| {
        let flavors = list(rule, "/onFlavors");
        flavors.is_empty() || flavors.iter().filter_map(Value::as_str).any(|flavor| sets.has(flavor))
    };
    rules.filter(holds).map(|rule| text(rule, "/name").to_owned()).collect()
}

/// One round over the checks of a piece of work that has its quota.
pub fn step(run: &mut Run<'_>, workload: &Value) {
    let mut states = list(workload, "/status/admissionChecks").to_vec();
    let mut rejected = false;
    for state in &mut states {
        let before = text(state, "/state").to_owned();
        one(run, workload, state);
        rejected |= state["state"] == "Rejected";
        if text(state, "/state") != before {
            state["lastTransitionTime"] = json!(time(run.now));
        }
    }
    let mut conditions = Conditions::of(workload);
    if states.iter().all(|state| state["state"] == "Ready") {
        conditions.set(run, "Admitted", true, ("Admitted", "The workload is admitted"));
    }
    let mut status = conditions.status();
    status["admissionChecks"] = Value::Array(states);
    let place = key(GROUP, "workloads", workload);
    run.status(KUEUE, place.clone(), workload, status);
    if rejected {
        run.merge(KUEUE, place, json!({"spec": {"active": false}}));
    }
}

/// Work whose nodes are taken away while it runs is given up.
pub fn revoked(run: &mut Run<'_>, workload: &Value) {
    let mut states = list(workload, "/status/admissionChecks").to_vec();
    let mut lost = false;
    for state in &mut states {
        let revoked = assign::request(run, workload, &request_name(workload, state))
            .and_then(|request| condition(request, "CapacityRevoked"))
            .filter(|revoked| revoked["status"] == "True");
        if let Some(revoked) = revoked {
            lost = true;
            state["state"] = json!("Rejected");
            state["message"] = revoked["message"].clone();
            state["lastTransitionTime"] = json!(time(run.now));
        }
    }
    if lost {
        let mut status = Conditions::of(workload).status();
        status["admissionChecks"] = Value::Array(states);
        let place = key(GROUP, "workloads", workload);
        run.status(KUEUE, place.clone(), workload, status);
        run.merge(KUEUE, place, json!({"spec": {"active": false}}));
    }
}

/// Annotations of work that become parameters of its request. Source: Kueue's documentation of its ProvisioningRequest check.
pub fn parameters(of: &Value) -> Map<String, Value> {
    let annotations = of["metadata"]["annotations"].as_object().into_iter().flatten();
    let own = annotations.filter(|(name, _)| name.starts_with(PARAMETER));
    own.map(|(name, value)| (name.clone(), value.clone())).collect()
}

/// Returns the name of the request of a check.
fn request_name(workload: &Value, state: &Value) -> String {
    let tries = state["retryCount"].as_i64().unwrap_or(0);
    format!("{}-{}-{}", name(workload), text(state, "/name"), tries + 1)
}

fn one(run: &mut Run<'_>, workload: &Value, state: &mut Value) {
    if state["state"] == "Ready" || state["state"] == "Rejected" {
        return;
    }
    let check_name = text(state, "/name").to_owned();
    let Some(check) = run.get(GROUP, "admissionchecks", "", &check_name) else { return };
    let config = run.get(GROUP, "provisioningrequestconfigs", "", text(check, "/spec/parameters/name"));
    let Some(config) = config else { return };
    let managed: Vec<&str> =
        list(config, "/spec/managedResources").iter().filter_map(Value::as_str).collect();
    let sets: Vec<&Value> = list(workload, "/spec/podSets")
        .iter()
        .filter(|set| {
            let asks = requests(&set["template"]["spec"]);
            managed.is_empty() || managed.iter().any(|resource| asks.contains_key(*resource))
        })
        .collect();
    if sets.is_empty() {
        state["state"] = json!("Ready");
        state["message"] = json!("the provisioning request is not needed");
        return;
    }
    let tries = state["retryCount"].as_i64().unwrap_or(0);
    let request_name = request_name(workload, state);
    let Some(request) = assign::request(run, workload, &request_name) else {
        ask(run, workload, (config, &request_name), &sets);
        return;
    };
    let class = text(request, "/spec/provisioningClassName");
    if is_true(request, "Provisioned") {
        let updates = sets
            .iter()
            .map(|set| json!({"name": set["name"], "annotations": {CONSUME: request_name, CLASS: class}}));
        state["podSetUpdates"] = updates.collect();
        state["state"] = json!("Ready");
        state["message"] = json!("");
    } else if let Some(failed) = condition(request, "Failed").filter(|failed| failed["status"] == "True") {
        let most =
            config.pointer("/spec/retryStrategy/backoffLimitCount").and_then(Value::as_i64).unwrap_or(TRIES);
        let message = text(failed, "/message");
        if tries >= most {
            state["state"] = json!("Rejected");
            state["message"] = json!(message);
            return;
        }
        state["retryCount"] = json!(tries + 1);
        state["message"] = json!(format!("Retrying after failure: {message}"));
        run.delete(request_key(namespace(workload), &request_name));
    } else if is_true(request, "Accepted")
        && let Some(waits) = condition(request, "Provisioned")
    {
        state["message"] = waits["message"].clone();
    }
}

/// Makes the request, and the templates that it names.
fn ask(run: &mut Run<'_>, workload: &Value, (config, request): (&Value, &str), sets: &[&Value]) {
    let place = namespace(workload);
    let mut pod_sets = Vec::new();
    for set in sets {
        let template_name = format!("ppt-{request}-{}", text(set, "/name"));
        let placement = assign::placement(run, workload, text(set, "/name"));
        let mut template = set["template"].clone();
        let patch = placement.patch(&template);
        super::super::super::object::merge(&mut template, &patch);
        if run.get("", "podtemplates", place, &template_name).is_none() {
            run.create(
                KUEUE,
                json!({
                    "apiVersion": "v1", "kind": "PodTemplate",
                    "metadata": {
                        "name": template_name, "namespace": place, "labels": {MANAGED: "true"},
                        "ownerReferences": [reference_to(workload)],
                    },
                    "template": template,
                }),
            );
        }
        pod_sets.push(json!({"count": set["count"], "podTemplateRef": {"name": template_name}}));
    }
    let mut spec = json!({
        "provisioningClassName": config["spec"]["provisioningClassName"], "podSets": pod_sets,
    });
    let own = parameters(workload);
    let own = own.iter().map(|(name, value)| (name[PARAMETER.len()..].to_owned(), value.clone()));
    let configured = config["spec"]["parameters"].as_object().cloned().unwrap_or_default();
    let all: Map<String, Value> = configured.into_iter().chain(own).collect();
    if !all.is_empty() {
        spec["parameters"] = Value::Object(all);
    }
    run.create(
        KUEUE,
        json!({
            "apiVersion": "autoscaling.x-k8s.io/v1", "kind": "ProvisioningRequest",
            "metadata": {"name": request, "namespace": place, "ownerReferences": [reference_to(workload)]},
            "spec": spec,
        }),
    );
}
