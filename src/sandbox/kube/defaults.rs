//! What the server fills in when an object arrives: the schema's defaults, and those that Kubernetes
//! makes in code (pkg/apis/*/v1/defaults.go, the admission plugins that GKE runs).

use base64::Engine as _;
use serde_json::{Map, Value, json};

use super::kinds::{Kind, Origin};
use super::store::{Cluster, text};
use crate::schema::{Schema, Type};

/// The address of the `kubernetes` Service: the first of GKE's default Service range.
pub const KUBERNETES_SERVICE_IP: &str = "34.118.224.1";

/// Defaults of an object that any write may lack.
pub fn fill(kind: &Kind, object: &mut Value) {
    if let Some(schema) = &kind.schema {
        from_schema(schema, object);
    }
    if kind.origin == Origin::Custom {
        return;
    }
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Namespace") => {
            let name = object["metadata"]["name"].clone();
            if name.is_string() {
                put_struct(&mut object["metadata"], "labels");
                object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
            }
        }
        ("", "Pod") => {
            pod_spec(&mut object["spec"]);
            requests(&mut object["spec"]);
            put(&mut object["spec"], "enableServiceLinks", json!(true));
        }
        ("", "PodTemplate" | "ReplicationController") => template(object, "/template"),
        ("", "Service") => service(object),
        ("", "Secret") => secret(object),
        ("", "PersistentVolumeClaim") => put(&mut object["spec"], "volumeMode", json!("Filesystem")),
        ("apps", "Deployment") => {
            template(object, "/spec/template");
            deployment(&mut object["spec"]);
        }
        ("apps", "DaemonSet") => {
            template(object, "/spec/template");
            // A field of an API that is gone, kept as an annotation.
            put_struct(&mut object["metadata"], "annotations");
            let annotations = &mut object["metadata"]["annotations"];
            put(annotations, "deprecated.daemonset.template.generation", json!("1"));
            put(&mut object["spec"], "revisionHistoryLimit", json!(10));
            rolling(&mut object["spec"], "updateStrategy", &json!({"maxSurge": 0, "maxUnavailable": 1}));
        }
        ("apps", "StatefulSet") => {
            template(object, "/spec/template");
            let spec = &mut object["spec"];
            put(spec, "replicas", json!(1));
            put(spec, "podManagementPolicy", json!("OrderedReady"));
            put(spec, "revisionHistoryLimit", json!(10));
            rolling(spec, "updateStrategy", &json!({"partition": 0}));
            let retain = json!({"whenDeleted": "Retain", "whenScaled": "Retain"});
            put(spec, "persistentVolumeClaimRetentionPolicy", retain);
        }
        ("apps", "ReplicaSet") => {
            template(object, "/spec/template");
            put(&mut object["spec"], "replicas", json!(1));
        }
        ("batch", "Job") => {
            template(object, "/spec/template");
            job(&mut object["spec"]);
        }
        ("batch", "CronJob") => {
            template(object, "/spec/jobTemplate/spec/template");
            let spec = &mut object["spec"];
            put(spec, "concurrencyPolicy", json!("Allow"));
            put(spec, "suspend", json!(false));
            put(spec, "successfulJobsHistoryLimit", json!(3));
            put(spec, "failedJobsHistoryLimit", json!(1));
        }
        ("rbac.authorization.k8s.io", "ClusterRoleBinding" | "RoleBinding") => binding(object),
        ("scheduling.k8s.io", "PriorityClass") => {
            put(object, "preemptionPolicy", json!("PreemptLowerPriority"));
        }
        ("autoscaling", "HorizontalPodAutoscaler") => put(&mut object["spec"], "minReplicas", json!(1)),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => definition(object),
        _ => {}
    }
}

/// Defaults of a new object; these may need numbers from the cluster.
pub fn on_create(cluster: &mut Cluster, kind: &Kind, object: &mut Value) {
    fill(kind, object);
    if kind.origin == Origin::Custom {
        return;
    }
    match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Namespace") => {
            put(&mut object["spec"], "finalizers", json!([]));
            if let Some(list) = object["spec"]["finalizers"].as_array_mut()
                && !list.iter().any(|name| name == "kubernetes")
            {
                list.push(json!("kubernetes"));
            }
            object["status"]["phase"] = json!("Active");
        }
        ("", "Pod") => {
            pod(object);
            token(cluster, object);
        }
        ("", "Service") => addresses(cluster, object),
        ("", "PersistentVolumeClaim") => {
            put(&mut object["metadata"], "finalizers", json!(["kubernetes.io/pvc-protection"]));
            put(&mut object["status"], "phase", json!("Pending"));
        }
        ("batch", "Job") => {
            put_struct(object, "status");
            job_selector(object);
        }
        ("apps", "DaemonSet") => {
            let counters =
                ["currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady"];
            for name in counters {
                put(&mut object["status"], name, json!(0));
            }
        }
        ("apps", "ReplicaSet") => put(&mut object["status"], "replicas", json!(0)),
        ("apps", "Deployment") => put_struct(object, "status"),
        _ => {}
    }
}

/// Inserts a field that is missing.
fn put(object: &mut Value, name: &str, value: Value) {
    if !object.is_object() {
        *object = json!({});
    }
    if let Some(fields) = object.as_object_mut()
        && fields.get(name).is_none_or(Value::is_null)
    {
        fields.insert(name.to_owned(), value);
    }
}

fn put_struct(object: &mut Value, name: &str) {
    put(object, name, json!({}));
}

/// Defaults that the schema declares, wherever the object around them is there.
pub fn from_schema(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for name in schema.property_names() {
                let Some(property) = schema.property(&name) else { continue };
                if fields.get(&name).is_none_or(|value| value.is_null() && !property.nullable())
                    && let Some(default) = property.default()
                {
                    fields.insert(name.clone(), default);
                }
                // Scalars have nothing below them.
                if let Some(value @ (Value::Object(_) | Value::Array(_))) = fields.get_mut(&name) {
                    from_schema(&property, value);
                }
            }
            if let Some(values) = schema.values() {
                for value in fields.values_mut().filter(|value| value.is_object() || value.is_array()) {
                    from_schema(&values, value);
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.items() {
                for item in items {
                    from_schema(&schema, item);
                }
            }
        }
        _ => {}
    }
}

fn template(object: &mut Value, pointer: &str) {
    if let Some(template) = object.pointer_mut(pointer) {
        put_struct(template, "metadata");
        pod_spec(&mut template["spec"]);
    }
}

fn pod_spec(spec: &mut Value) {
    put(spec, "restartPolicy", json!("Always"));
    put(spec, "dnsPolicy", json!("ClusterFirst"));
    put(spec, "schedulerName", json!("default-scheduler"));
    put(spec, "terminationGracePeriodSeconds", json!(30));
    put_struct(spec, "securityContext");
    let host_network = spec["hostNetwork"] == true;
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            self::container(container, host_network);
        }
    }
    for volume in spec.get_mut("volumes").and_then(Value::as_array_mut).into_iter().flatten() {
        self::volume(volume);
    }
    // The deprecated alias mirrors the name.
    let account = spec.get("serviceAccountName").cloned();
    if let Some(account) = account {
        put(spec, "serviceAccount", account);
    }
}

fn container(container: &mut Value, host_network: bool) {
    let image = text(container, "/image");
    let tag = image.rsplit('/').next().unwrap_or_default();
    let pull = match (tag.contains('@'), tag.split_once(':')) {
        (false, None | Some((_, "latest"))) => "Always",
        _ => "IfNotPresent",
    };
    put(container, "imagePullPolicy", json!(pull));
    put(container, "terminationMessagePath", json!("/dev/termination-log"));
    put(container, "terminationMessagePolicy", json!("File"));
    put_struct(container, "resources");
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(name).filter(|probe| probe.is_object()) {
            put(probe, "timeoutSeconds", json!(1));
            put(probe, "periodSeconds", json!(10));
            put(probe, "successThreshold", json!(1));
            put(probe, "failureThreshold", json!(3));
            http_get(probe);
        }
    }
    for name in ["postStart", "preStop"] {
        if let Some(hook) = container.pointer_mut(&format!("/lifecycle/{name}")) {
            http_get(hook);
        }
    }
    for variable in container.get_mut("env").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(reference) = variable.pointer_mut("/valueFrom/fieldRef") {
            put(reference, "apiVersion", json!("v1"));
        }
    }
    if host_network {
        for port in container.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            let number = port["containerPort"].clone();
            put(port, "hostPort", number);
        }
    }
}

fn http_get(handler: &mut Value) {
    if let Some(get) = handler.get_mut("httpGet") {
        put(get, "path", json!("/"));
        put(get, "scheme", json!("HTTP"));
    }
}

fn volume(volume: &mut Value) {
    for source in ["configMap", "secret", "projected", "downwardAPI"] {
        if let Some(source) = volume.get_mut(source) {
            put(source, "defaultMode", json!(420));
        }
    }
    let sources = volume.pointer_mut("/projected/sources").and_then(Value::as_array_mut);
    for source in sources.into_iter().flatten() {
        if let Some(token) = source.get_mut("serviceAccountToken") {
            put(token, "expirationSeconds", json!(3600));
        }
    }
    if let Some(path) = volume.get_mut("hostPath") {
        put(path, "type", json!(""));
    }
    if volume.as_object().is_some_and(|fields| fields.len() == 1) {
        put_struct(volume, "emptyDir");
    }
}

fn deployment(spec: &mut Value) {
    put(spec, "replicas", json!(1));
    put(spec, "revisionHistoryLimit", json!(10));
    put(spec, "progressDeadlineSeconds", json!(600));
    rolling(spec, "strategy", &json!({"maxSurge": "25%", "maxUnavailable": "25%"}));
}

/// An update strategy: `RollingUpdate` unless said otherwise, with its numbers.
fn rolling(spec: &mut Value, name: &str, numbers: &Value) {
    put_struct(spec, name);
    let strategy = &mut spec[name];
    put(strategy, "type", json!("RollingUpdate"));
    if strategy["type"] == "RollingUpdate" {
        put_struct(strategy, "rollingUpdate");
        for (name, value) in numbers.as_object().into_iter().flatten() {
            put(&mut strategy["rollingUpdate"], name, value.clone());
        }
    }
}

fn job(spec: &mut Value) {
    if spec.get("completions").is_none() && spec.get("parallelism").is_none() {
        put(spec, "completions", json!(1));
    }
    put(spec, "parallelism", json!(1));
    put(spec, "backoffLimit", json!(6));
    put(spec, "completionMode", json!("NonIndexed"));
    put(spec, "suspend", json!(false));
    put(spec, "manualSelector", json!(false));
    let replacement = if spec.get("podFailurePolicy").is_some() { "Failed" } else { "TerminatingOrFailed" };
    put(spec, "podReplacementPolicy", json!(replacement));
}

/// The selector that the server makes for a Job from its uid.
fn job_selector(object: &mut Value) {
    if object.pointer("/spec/manualSelector").is_some_and(|manual| manual == true) {
        return;
    }
    let (uid, name) = (object["metadata"]["uid"].clone(), object["metadata"]["name"].clone());
    object["spec"]["selector"] = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}});
    let metadata = &mut object["spec"]["template"]["metadata"];
    put_struct(metadata, "labels");
    for (label, value) in [
        ("batch.kubernetes.io/controller-uid", &uid),
        ("batch.kubernetes.io/job-name", &name),
        ("controller-uid", &uid),
        ("job-name", &name),
    ] {
        metadata["labels"][label] = value.clone();
    }
    let labels = metadata["labels"].clone();
    put(&mut object["metadata"], "labels", labels);
}

/// What is limited and not requested is requested as limited.
fn requests(spec: &mut Value) {
    for list in ["initContainers", "containers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            let limits = container.pointer("/resources/limits").and_then(Value::as_object).cloned();
            for (name, amount) in limits.into_iter().flatten() {
                put_struct(&mut container["resources"], "requests");
                put(&mut container["resources"]["requests"], &name, amount);
            }
        }
    }
}

/// The volume with the account's token that admission mounts into every container.
fn token(cluster: &mut Cluster, object: &mut Value) {
    const PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
    let spec = &mut object["spec"];
    if spec.get("automountServiceAccountToken").is_some_and(|mount| mount == false) {
        return;
    }
    let name = format!("kube-api-access-{}", cluster.suffix());
    let mut mounted = false;
    for list in ["initContainers", "containers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            put(container, "volumeMounts", json!([]));
            let Some(mounts) = container["volumeMounts"].as_array_mut() else { continue };
            if !mounts.iter().any(|mount| mount["mountPath"] == PATH) {
                mounts.push(json!({"name": name, "readOnly": true, "mountPath": PATH}));
                mounted = true;
            }
        }
    }
    if !mounted {
        return;
    }
    put(spec, "volumes", json!([]));
    if let Some(volumes) = spec["volumes"].as_array_mut() {
        volumes.push(json!({"name": name, "projected": {"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [
                {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
            ]}},
        ]}}));
    }
}

/// What admission adds to a new pod: its service account, priority, tolerations, requests out of limits.
fn pod(object: &mut Value) {
    let spec = &mut object["spec"];
    put(spec, "serviceAccountName", json!("default"));
    let account = spec["serviceAccountName"].clone();
    put(spec, "serviceAccount", account);
    put(spec, "priority", json!(0));
    put(spec, "preemptionPolicy", json!("PreemptLowerPriority"));
    tolerations(spec);
    let class = quality(&object["spec"]);
    object["status"] = json!({"phase": "Pending", "qosClass": class});
}

/// The tolerations that admission adds to a pod on every write. Source: kubernetes, plugin/pkg/admission,
/// `extendedresourcetoleration` and `defaulttolerationseconds`: both handle creates and updates.
pub fn tolerations(spec: &mut Value) {
    let mut extended: Vec<String> = Vec::new();
    for list in ["initContainers", "containers"] {
        for container in spec.get(list).and_then(Value::as_array).into_iter().flatten() {
            let requests = container.pointer("/resources/requests").and_then(Value::as_object);
            let domain = |name: &&String| name.contains('/') && !name.contains("kubernetes.io/");
            extended.extend(requests.into_iter().flat_map(Map::keys).filter(domain).cloned());
        }
    }
    extended.sort();
    extended.dedup();
    for name in extended {
        tolerate(spec, &json!({"key": name, "operator": "Exists", "effect": "NoSchedule"}));
    }
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let toleration =
            json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300});
        tolerate(spec, &toleration);
    }
}

/// Adds a toleration unless one of the same key and effect (or for every taint) is there.
fn tolerate(spec: &mut Value, toleration: &Value) {
    put(spec, "tolerations", json!([]));
    let Some(list) = spec["tolerations"].as_array_mut() else { return };
    let covers = |known: &Value| {
        let (key, effect) = (text(known, "/key"), text(known, "/effect"));
        (key.is_empty() || toleration["key"] == key) && (effect.is_empty() || toleration["effect"] == effect)
    };
    if !list.iter().any(covers) {
        list.push(toleration.clone());
    }
}

/// The quality-of-service class of a pod spec.
fn quality(spec: &Value) -> &'static str {
    let (mut any, mut guaranteed) = (false, true);
    for list in ["initContainers", "containers"] {
        for container in spec.get(list).and_then(Value::as_array).into_iter().flatten() {
            for name in ["cpu", "memory"] {
                let amount = |part: &str| container.pointer(&format!("/resources/{part}/{name}"));
                let (request, limit) = (amount("requests"), amount("limits"));
                any |= request.is_some() || limit.is_some();
                guaranteed &= limit.is_some() && request == limit;
            }
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

fn secret(object: &mut Value) {
    put(object, "type", json!("Opaque"));
    let Some(fields) = object.as_object_mut() else { return };
    let Some(Value::Object(plain)) = fields.remove("stringData") else { return };
    let data = fields.entry("data").or_insert_with(|| json!({}));
    for (name, value) in plain {
        let encoded = base64::engine::general_purpose::STANDARD.encode(value.as_str().unwrap_or_default());
        data[name] = json!(encoded);
    }
}

fn service(object: &mut Value) {
    let spec = &mut object["spec"];
    put(spec, "type", json!("ClusterIP"));
    put(spec, "sessionAffinity", json!("None"));
    let ty = text(spec, "/type").to_owned();
    if ty == "ExternalName" {
        put(object, "status", json!({"loadBalancer": {}}));
        return;
    }
    put(spec, "internalTrafficPolicy", json!("Cluster"));
    if matches!(ty.as_str(), "NodePort" | "LoadBalancer") {
        put(spec, "externalTrafficPolicy", json!("Cluster"));
    }
    if ty == "LoadBalancer" {
        put(spec, "allocateLoadBalancerNodePorts", json!(true));
    }
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        let number = port["port"].clone();
        put(port, "protocol", json!("TCP"));
        put(port, "targetPort", number);
    }
    put(object, "status", json!({"loadBalancer": {}}));
}

/// Gives a Service its cluster address and node ports. GKE's default Service range is 34.118.224.0/20.
pub fn addresses(cluster: &mut Cluster, object: &mut Value) {
    let ty = text(object, "/spec/type").to_owned();
    if ty == "ExternalName" {
        return;
    }
    let spec = &mut object["spec"];
    put(spec, "ipFamilies", json!(["IPv4"]));
    put(spec, "ipFamilyPolicy", json!("SingleStack"));
    if let Some(ip) = spec.get("clusterIP").cloned() {
        put(spec, "clusterIPs", json!([ip]));
    }
    if text(spec, "/clusterIP").is_empty() {
        let number = cluster.next() % 3800 + 32;
        let ip = json!(format!("34.118.{}.{}", 224 + number / 256, number % 256));
        spec["clusterIPs"] = json!([ip]);
        spec["clusterIP"] = ip;
    }
    if matches!(ty.as_str(), "NodePort" | "LoadBalancer") {
        for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
            if port.get("nodePort").and_then(Value::as_i64).unwrap_or(0) == 0 {
                port["nodePort"] = json!(30_000 + cluster.next() % 2768);
            }
        }
    }
}

/// What an update of a Service that does not speak of its addresses leaves as it was.
pub fn keep_addresses(kind: &Kind, live: &Value, object: &mut Value) {
    let external = |object: &Value| text(object, "/spec/type") == "ExternalName";
    if !kind.group.is_empty() || kind.kind != "Service" || external(live) || external(object) {
        return;
    }
    for name in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        if let Some(value) = live["spec"].get(name) {
            put(&mut object["spec"], name, value.clone());
        }
    }
}

/// Times of conditions that the server's own types print as null when nobody has set them.
pub fn null_times(kind: &Kind, object: &mut Value) {
    let names: &[&str] = match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Pod") | ("batch", "Job") => &["lastProbeTime", "lastTransitionTime"],
        ("", "Node") => &["lastHeartbeatTime", "lastTransitionTime"],
        ("apps", "Deployment") => &["lastUpdateTime", "lastTransitionTime"],
        ("", "Namespace") | ("apps", _) => &["lastTransitionTime"],
        _ => return,
    };
    let conditions = object.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten().filter_map(Value::as_object_mut) {
        for name in names {
            condition.entry(*name).or_insert(Value::Null);
        }
    }
}

fn binding(object: &mut Value) {
    const GROUP: &str = "rbac.authorization.k8s.io";
    if object.get("roleRef").is_some() {
        put(&mut object["roleRef"], "apiGroup", json!(GROUP));
    }
    for subject in object.get_mut("subjects").and_then(Value::as_array_mut).into_iter().flatten() {
        if matches!(text(subject, "/kind"), "User" | "Group") {
            put(subject, "apiGroup", json!(GROUP));
        }
    }
}

fn definition(object: &mut Value) {
    let kind = text(object, "/spec/names/kind").to_owned();
    put(&mut object["spec"]["names"], "singular", json!(kind.to_lowercase()));
    put(&mut object["spec"]["names"], "listKind", json!(format!("{kind}List")));
    put(&mut object["spec"], "conversion", json!({"strategy": "None"}));
    let versions = object.pointer("/spec/versions").and_then(Value::as_array);
    let stored: Vec<Value> = versions
        .into_iter()
        .flatten()
        .filter(|version| version["storage"] == true)
        .map(|version| version["name"].clone())
        .collect();
    let status =
        json!({"acceptedNames": {"kind": "", "plural": ""}, "conditions": null, "storedVersions": stored});
    put(object, "status", status);
}

/// Fields whose zero the server's own types leave out although it is not an empty text or list.
const OMITTED_ZEROS: &[&str] = &[
    "hostIPC",
    "hostNetwork",
    "hostPID",
    "hostPort",
    "initialDelaySeconds",
    "minReadySeconds",
    "nodePort",
    "paused",
    "publishNotReadyAddresses",
    "readOnly",
    "stdin",
    "stdinOnce",
    "tty",
    "unschedulable",
];

/// Texts that stay although they are empty.
const KEPT_EMPTY: &[&str] = &["ingressClassName", "storageClassName", "type", "volumeName"];

/// Drops what reading into the server's own types and writing out again drops: nulls, empty maps and
/// lists, empty texts, quantities as numbers (they become texts) and the zeros of [`OMITTED_ZEROS`]. Fields whose struct is empty stay (`emptyDir`).
pub fn settle(schema: &Schema, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let map = schema.ty() == Type::Map;
            if schema.ty() == Type::Any {
                return;
            }
            fields.retain(|name, value| {
                let below = schema.property(name).or_else(|| schema.values());
                if let Some(below) = &below {
                    settle(below, value);
                }
                let ty = below.map(|below| below.ty());
                if let (Some(Type::Quantity), Value::Number(number)) = (ty, &*value) {
                    *value = Value::String(number.to_string());
                }
                match value {
                    Value::Null => ty == Some(Type::Any) || (map && ty == Some(Type::Map)),
                    Value::Array(items) => !items.is_empty() || map || ty == Some(Type::Any),
                    Value::Object(inner) => !inner.is_empty() || ty != Some(Type::Map) || map,
                    Value::String(inner) => {
                        !inner.is_empty()
                            || map
                            || KEPT_EMPTY.contains(&name.as_str())
                            || ty == Some(Type::Any)
                    }
                    Value::Bool(false) => !OMITTED_ZEROS.contains(&name.as_str()),
                    Value::Number(number) if number.as_i64() == Some(0) => {
                        !OMITTED_ZEROS.contains(&name.as_str())
                    }
                    _ => true,
                }
            });
        }
        Value::Array(items) => {
            if let Some(schema) = schema.items() {
                for item in items {
                    settle(&schema, item);
                }
            }
        }
        _ => {}
    }
}
