//! Specs of pods, alone or as the template of a workload.
//!
//! Source of the defaults: `SetDefaults_PodSpec`, `SetDefaults_Container`, `SetDefaults_Probe`, … in
//! `pkg/apis/core/v1/defaults.go`; of the rules: `ValidatePodSpec` in `pkg/apis/core/validation/validation.go`.

use serde_json::{Value, json};

use super::super::names::bad_label;
use super::super::object::{fill, list, text};
use super::super::status::Cause;
use super::super::strategy::{each, put};

/// Defaults of the template there.
pub fn template(object: &mut Value, pointer: &str) {
    if let Some(template) = object.pointer_mut(pointer) {
        put(template, "metadata", json!({}));
        spec(&mut template["spec"]);
    }
}

/// Defaults of a spec.
pub fn spec(spec: &mut Value) {
    fill(
        spec,
        &json!({"restartPolicy": "Always", "dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler",
            "terminationGracePeriodSeconds": 30, "securityContext": {}}),
    );
    let host_network = spec["hostNetwork"] == true;
    for list in ["containers", "initContainers"] {
        each(spec, list).for_each(|container| self::container(container, host_network));
    }
    each(spec, "volumes").for_each(volume);
    // The deprecated alias mirrors the name.
    if let Some(account) = spec.get("serviceAccountName").cloned() {
        put(spec, "serviceAccount", account);
    }
}

fn container(container: &mut Value, host_network: bool) {
    let pull = pull_policy(text(container, "/image"));
    fill(
        container,
        &json!({"imagePullPolicy": pull, "terminationMessagePath": "/dev/termination-log",
            "terminationMessagePolicy": "File", "resources": {}}),
    );
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(name).filter(|probe| probe.is_object()) {
            let times = json!({"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3});
            fill(probe, &times);
            http_get(probe);
        }
    }
    for name in ["postStart", "preStop"] {
        if let Some(hook) = container.pointer_mut(&format!("/lifecycle/{name}")) {
            http_get(hook);
        }
    }
    for variable in each(container, "env") {
        if let Some(reference) = variable.pointer_mut("/valueFrom/fieldRef") {
            put(reference, "apiVersion", json!("v1"));
        }
    }
    if host_network {
        for port in each(container, "ports") {
            let number = port["containerPort"].clone();
            put(port, "hostPort", number);
        }
    }
}

fn pull_policy(image: &str) -> &'static str {
    let tag = image.rsplit('/').next().unwrap_or_default();
    match (tag.contains('@'), tag.split_once(':')) {
        (false, None | Some((_, "latest"))) => "Always",
        _ => "IfNotPresent",
    }
}

fn http_get(handler: &mut Value) {
    if let Some(get) = handler.get_mut("httpGet") {
        fill(get, &json!({"path": "/", "scheme": "HTTP"}));
    }
}

fn volume(volume: &mut Value) {
    for source in ["configMap", "secret", "projected", "downwardAPI"] {
        if let Some(source) = volume.get_mut(source) {
            put(source, "defaultMode", json!(420));
        }
    }
    if let Some(projected) = volume.get_mut("projected") {
        for source in each(projected, "sources") {
            if let Some(token) = source.get_mut("serviceAccountToken") {
                put(token, "expirationSeconds", json!(3600));
            }
        }
    }
    if let Some(path) = volume.get_mut("hostPath") {
        put(path, "type", json!(""));
    }
    if volume.as_object().is_some_and(|fields| fields.len() == 1) {
        put(volume, "emptyDir", json!({}));
    }
}

/// Adds the errors of the pod spec at `pointer` to `causes`; `field` is its name in messages.
pub fn validate(object: &Value, pointer: &str, field: &str, causes: &mut Vec<Cause>) {
    let Some(spec) = object.pointer(pointer) else { return };
    let missing = format!("{field}.containers");
    let told = causes.iter().any(|known| known.field == missing);
    if list(spec, "/containers").is_empty() && spec.get("containers").is_some() && !told {
        causes.push(Cause::required(missing));
    }
    let mut seen: Vec<&str> = Vec::new();
    for (index, container) in list(spec, "/containers").iter().enumerate() {
        let at = format!("{field}.containers[{index}]");
        if text(container, "/image").is_empty() {
            causes.push(Cause::required(format!("{at}.image")));
        }
        let name = text(container, "/name");
        if let Some(why) = bad_label(name).filter(|_| !name.is_empty()) {
            causes.push(Cause::invalid(format!("{at}.name"), format!("\"{name}\""), why));
        }
        if !name.is_empty() && seen.contains(&name) {
            let message = format!("Duplicate value: \"{name}\"");
            causes.push(Cause::new("FieldValueDuplicate", format!("{at}.name"), message));
        }
        seen.push(name);
        requests(container, &at, causes);
    }
    mounts(spec, field, causes);
}

/// Extended resources are requested as they are limited.
fn requests(container: &Value, at: &str, causes: &mut Vec<Cause>) {
    let requests = container.pointer("/resources/requests").and_then(Value::as_object);
    for (name, request) in requests.into_iter().flatten().filter(|(name, _)| name.contains('/')) {
        let limit = container.pointer("/resources/limits").and_then(|limits| limits.get(name));
        if let Some(limit) = limit.map(plain).filter(|limit| *limit != plain(request)) {
            let (shown, why) =
                (format!("\"{}\"", plain(request)), format!("must be equal to {name} limit of {limit}"));
            causes.push(Cause::invalid(format!("{at}.resources.requests"), shown, &why));
        }
    }
}

fn plain(quantity: &Value) -> String {
    quantity.as_str().map_or_else(|| quantity.to_string(), str::to_owned)
}

/// Mounts name volumes of the spec.
fn mounts(spec: &Value, field: &str, causes: &mut Vec<Cause>) {
    let volumes: Vec<&str> = list(spec, "/volumes").iter().map(|volume| text(volume, "/name")).collect();
    for kind in ["containers", "initContainers"] {
        for (index, container) in list(spec, &format!("/{kind}")).iter().enumerate() {
            for (mount, value) in list(container, "/volumeMounts").iter().enumerate() {
                let name = text(value, "/name");
                if !volumes.contains(&name) {
                    let at = format!("{field}.{kind}[{index}].volumeMounts[{mount}].name");
                    causes.push(Cause::new("FieldValueNotFound", at, format!("Not found: \"{name}\"")));
                }
            }
        }
    }
}
