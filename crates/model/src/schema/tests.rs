use serde_json::{Value, json};

use super::*;

fn problems(schema: &Schema, value: &Value) -> Vec<String> {
    check(schema, value).iter().map(ToString::to_string).collect()
}

#[test]
fn charts_are_told_the_version_of_the_built_in_kinds() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas");
    let versions: toml::Table =
        std::fs::read_to_string(folder.join("versions.toml")).unwrap().parse().unwrap();
    let version = versions["kubernetes.jsonl"]["version"].as_str().unwrap();
    assert_eq!(version.trim_start_matches('v'), KUBERNETES);
}

#[test]
fn the_files_are_what_the_manifest_says() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas");
    let manifest: toml::Table =
        std::fs::read_to_string(folder.join("versions.toml")).unwrap().parse().unwrap();
    for (name, entry) in &manifest {
        let found = blake3::hash(&std::fs::read(folder.join(name)).unwrap()).to_hex().to_string();
        assert_eq!(
            entry["blake3"].as_str(),
            Some(&*found),
            "schemas/{name} is not what schemas/versions.toml records: run schemas/generate"
        );
    }
}

fn pod(container: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}, "spec": {"containers": [container]}})
}

#[test]
fn pods_are_checked() {
    let schema = builtin("", "v1", "Pod").unwrap();
    let cases = [
        (pod(&json!({"name": "a", "image": "b"})), vec![]),
        (
            json!({"spec": {"contaners": []}}),
            vec![
                "spec: required field `containers` is missing",
                "spec.contaners: unknown field, did you mean `containers`?",
            ],
        ),
        (pod(&json!({"name": 1})), vec!["spec.containers[0].name: expected string, found integer"]),
        (pod(&json!({"name": null})), vec!["spec.containers[0]: required field `name` is missing"]),
        (
            pod(&json!({"name": "a", "resources": {"limits": {"nvidia.com/gpu": 1, "memory": "1.5Gi"}}})),
            vec![],
        ),
        (
            pod(&json!({"name": "a", "resources": {"limits": {"memory": "4GBs", "cpu": true}}})),
            vec![
                "spec.containers[0].resources.limits.cpu: expected quantity, found boolean",
                "spec.containers[0].resources.limits.memory: \"4GBs\" is not a quantity; use a number and a \
                 unit such as 500m or 16Gi",
            ],
        ),
        (pod(&json!({"name": "a", "livenessProbe": {"httpGet": {"port": 8787}}})), vec![]),
        (
            pod(
                &json!({"name": "a", "livenessProbe": {"periodSeconds": 5_000_000_000_i64, "httpGet": {"port": 1.5}}}),
            ),
            vec![
                "spec.containers[0].livenessProbe.httpGet.port: expected integer or string, found number",
                "spec.containers[0].livenessProbe.periodSeconds: number does not fit int32",
            ],
        ),
        (
            pod(&json!({"name": "a", "env": {"A": "b"}, "command": "sleep"})),
            vec![
                "spec.containers[0].command: expected list, found string",
                "spec.containers[0].env: expected list, found object",
            ],
        ),
        (
            json!({"metadata": {"labels": {"a": 1}, "lables": {}}, "spec": null, "status": {"phase": "Running"}}),
            vec![
                "metadata.labels.a: expected string, found integer",
                "metadata.lables: unknown field, did you mean `labels`?",
            ],
        ),
    ];
    for (value, expected) in cases {
        assert_eq!(problems(&schema, &value), expected, "{value}");
    }
}

#[test]
fn dask_resources_are_checked_by_their_own_old_schema() {
    let schema = dask("DaskCluster").unwrap();
    let cluster = |probe: &Value, limits: &Value| {
        let container = json!({"name": "s", "image": "i", "args": ["dask-scheduler"],
            "livenessProbe": {"httpGet": {"port": probe, "path": "/health"}}, "resources": {"limits": limits}});
        json!({"apiVersion": "kubernetes.dask.org/v1", "kind": "DaskCluster", "metadata": {"name": "a", "labels": {}},
            "spec": {"worker": {"replicas": 2, "spec": {"containers": [{"name": "w"}]}},
                "scheduler": {"spec": {"containers": [container]}, "service": {"type": "ClusterIP",
                    "selector": {"a": "b"}, "ports": [{"name": "tcp-comm", "port": 8786, "targetPort": "tcp-comm"}]}}}})
    };
    let container = "spec.scheduler.spec.containers[0]";
    let cases = [
        (cluster(&json!("http-dashboard"), &json!({"nvidia.com/gpu": "1"})), vec![]),
        (
            cluster(&json!(8787), &json!({"nvidia.com/gpu": 1})),
            vec![
                format!("{container}.livenessProbe.httpGet.port: expected string, found integer"),
                format!("{container}.resources.limits.\"nvidia.com/gpu\": expected string, found integer"),
            ],
        ),
        (
            json!({"metadata": {"nme": "a"}, "spec": {"worker": null}, "status": {"fase": "Running"}}),
            vec![
                "metadata.nme: unknown field, did you mean `name`?".to_owned(),
                "spec: required field `scheduler` is missing".to_owned(),
                "spec: required field `worker` is missing".to_owned(),
                "status.fase: unknown field, did you mean `phase`?".to_owned(),
            ],
        ),
    ];
    for (value, expected) in cases {
        assert_eq!(problems(&schema, &value), expected, "{value}");
    }
}

#[test]
fn gke_messages_are_checked() {
    let schema = gke::message("Cluster").unwrap();
    let cases = [
        (
            json!({"name": "a", "nodePools": [{"name": "p", "initialNodeCount": 1, "config": {"machineType": "e2-small",
            "accelerators": [{"acceleratorCount": "1", "acceleratorType": "nvidia-tesla-t4",
                "gpuDriverInstallationConfig": {"gpuDriverVersion": "INSTALLATION_DISABLED"}}]}}]}),
            vec![],
        ),
        (
            json!({"nodePools": [{"config": {"machinetype": "a", "accelerators": [{"acceleratorCount": 1,
                "gpuDriverInstallationConfig": {"gpuDriverVersion": "OFF"}}]}}], "releaseChannel": "STABLE"}),
            vec![
                "nodePools[0].config.accelerators[0].gpuDriverInstallationConfig.gpuDriverVersion: must be one of \
                 GPU_DRIVER_VERSION_UNSPECIFIED, INSTALLATION_DISABLED, DEFAULT, LATEST",
                "nodePools[0].config.machinetype: unknown field, did you mean `machineType`?",
                "releaseChannel: expected object, found string",
            ],
        ),
        (
            json!({"maintenancePolicy": {"window": {"dailyMaintenanceWindow": {}, "recurringWindow": {}}}}),
            vec!["maintenancePolicy.window: only one of dailyMaintenanceWindow, recurringWindow may be set"],
        ),
    ];
    for (value, expected) in cases {
        assert_eq!(problems(&schema, &value), expected, "{value}");
    }
    assert!(gke::enum_names("NodePool.Status").contains(&"RUNNING_WITH_ERROR".to_owned()));
    let pool = gke::message("NodePool").unwrap();
    assert!(pool.property("selfLink").unwrap().read_only());
    assert!(!pool.property("config").unwrap().read_only());
    assert!(gke::names().any(|name| name == "UpdateNodePoolRequest"));
}

/// Follows a path down a schema: field names, `[]` for the elements of a list, `{}` for the values of a map.
fn down(schema: Schema, way: &str) -> Schema {
    way.split(' ').filter(|step| !step.is_empty()).fold(schema, |schema, step| {
        let inner = match step {
            "[]" => schema.items(),
            "{}" => schema.values(),
            name => schema.property(name),
        };
        inner.unwrap_or_else(|| panic!("no {step} in {way}"))
    })
}

#[test]
fn shapes_are_what_the_diff_needs() {
    let of = |way: &str| down(builtin("", "v1", "Pod").unwrap(), way);
    let keys = |names: &[&str]| List::Map(names.iter().map(|&name| name.to_owned()).collect());
    assert_eq!(of("spec containers").list(), keys(&["name"]));
    assert_eq!(of("spec containers").patch_merge_key(), Some("name"));
    assert_eq!(of("spec containers").patch_strategies(), ["merge"]);
    assert_eq!(of("spec containers [] ports").list(), keys(&["containerPort", "protocol"]));
    assert_eq!(of("spec containers [] ports [] protocol").default(), Some(json!("TCP")));
    assert_eq!(of("spec containers [] command").list(), List::Atomic);
    assert_eq!(of("metadata finalizers").list(), List::Set);
    assert!(of("spec nodeSelector").atomic_map());
    assert!(!of("metadata labels").atomic_map());
    for (way, ty) in [
        ("", Type::Object),
        ("spec containers", Type::List),
        ("spec containers [] resources limits", Type::Map),
        ("spec containers [] resources limits {}", Type::Quantity),
        ("spec containers [] livenessProbe httpGet port", Type::IntOrString),
        ("spec terminationGracePeriodSeconds", Type::Integer),
        ("spec hostNetwork", Type::Boolean),
        ("metadata creationTimestamp", Type::String),
        ("metadata managedFields [] fieldsV1", Type::Any),
    ] {
        assert_eq!(of(way).ty(), ty, "{way}");
    }
    assert_eq!(of("spec containers []").required(), ["name"]);
    let cluster = |way: &str| down(dask("DaskCluster").unwrap(), way);
    assert_eq!(cluster("spec worker spec containers").list(), List::Atomic);
    assert_eq!(cluster("spec worker spec nodeSelector").ty(), Type::Map);
    assert_eq!(cluster("spec worker replicas").default(), Some(json!(1)));
    assert_eq!(cluster("metadata ownerReferences").list(), keys(&["uid"]));
    let recursive =
        definition("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps").unwrap();
    assert_eq!(down(recursive, "properties {} not properties {} type").ty(), Type::String);
}

#[test]
fn custom_resources_say_what_they_hold() {
    let schema = Schema::from_crd(&json!({"type": "object", "required": ["spec"], "properties": {"spec": {
        "type": "object", "required": ["size", "mode"], "properties": {
            "size": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
            "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
            "note": {"type": "string", "nullable": true},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "bag": {"type": "object", "additionalProperties": true},
            "empty": {"type": "object"},
            "inner": {"type": "object", "x-kubernetes-embedded-resource": true},
            "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}}}}}));
    let cases = [
        (
            json!({"apiVersion": "a/v1", "kind": "A", "metadata": {"name": "a"}, "spec": {"size": "10%", "note": null,
            "free": {"x": [1]}, "bag": {"x": 1}, "empty": {}, "tags": ["a"],
            "inner": {"kind": "B", "metadata": {"labels": {"a": "b"}}}}}),
            vec![],
        ),
        (json!({"spec": null}), vec!["required field `spec` is missing"]),
        (
            json!({"spec": {"mode": "c", "empty": {"x": 1}, "tags": [null], "size": null}}),
            vec![
                "spec: required field `size` is missing",
                "spec.empty.x: unknown field",
                "spec.mode: must be one of a, b",
                "spec.tags[0]: expected string, found null",
            ],
        ),
    ];
    for (value, expected) in cases {
        assert_eq!(problems(&schema, &value), expected, "{value}");
    }
    assert_eq!(down(schema.clone(), "spec tags").list(), List::Set);
    assert_eq!(down(schema.clone(), "spec bag").ty(), Type::Map);
    assert!(down(schema, "spec note").nullable());
    assert_eq!(Schema::from_crd(&json!({"type": 3})).ty(), Type::Any);
}

#[test]
fn kinds_are_as_discovery_tells_them() {
    let pod = api("", "v1", "Pod").unwrap();
    assert_eq!((&*pod.plural, &*pod.api_version(), pod.namespaced), ("pods", "v1", true));
    assert_eq!(pod.short_names, ["po"]);
    for name in ["log", "status", "eviction"] {
        assert!(pod.subresources.iter().any(|sub| sub == name), "{name}");
    }
    assert_eq!(api("apps", "v1", "Deployment").unwrap().api_version(), "apps/v1");
    assert!(!api("", "v1", "Node").unwrap().namespaced);
    assert!(api("", "v1", "PodList").is_none());
    assert!(apis().is_sorted());
    for api in apis() {
        assert!(builtin(&api.group, &api.version, &api.kind).is_some(), "{api:?}");
    }
    for (group, version, kind) in
        [("", "v1", "PodList"), ("autoscaling", "v1", "Scale"), ("", "v1", "Status")]
    {
        assert!(builtin(group, version, kind).is_some(), "{kind}");
    }
    for (group, kind) in [
        ("resource.k8s.io", "ResourceClaimTemplate"),
        ("resource.k8s.io", "DeviceClass"),
        ("flowcontrol.apiserver.k8s.io", "FlowSchema"),
    ] {
        assert!(api(group, "v1", kind).is_some(), "{kind}");
    }
    let scale = subresources("apps", "v1", "Deployment").into_iter().find(|sub| sub.name == "scale").unwrap();
    assert_eq!((&*scale.group, &*scale.version, &*scale.kind), ("autoscaling", "v1", "Scale"));
    assert_eq!(scale.verbs, ["get", "patch", "update"]);
    let status =
        subresources("apps", "v1", "Deployment").into_iter().find(|sub| sub.name == "status").unwrap();
    assert_eq!((&*status.group, &*status.version, &*status.kind), ("apps", "v1", "Deployment"));
    let dask: Vec<_> =
        dask_apis().iter().map(|api| (&*api.kind, &*api.plural, api.subresources.join(","))).collect();
    let expected = [
        ("DaskAutoscaler", "daskautoscalers", ""),
        ("DaskCluster", "daskclusters", "scale"),
        ("DaskJob", "daskjobs", "status"),
        ("DaskWorkerGroup", "daskworkergroups", "scale"),
    ];
    assert_eq!(dask, expected.map(|(kind, plural, subresources)| (kind, plural, subresources.to_owned())));
    assert_eq!(dask_crds().len(), 4);
}

/// Every CRD in this program would be accepted by the server.
#[test]
fn the_dask_definitions_fit_their_own_schema() {
    let schema = builtin("apiextensions.k8s.io", "v1", "CustomResourceDefinition").unwrap();
    for crd in dask_crds() {
        assert_eq!(problems(&schema, crd), Vec::<String>::new());
    }
}

/// Every reference in the data can be resolved.
#[test]
fn references_lead_somewhere() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas");
    for file in ["kubernetes.jsonl", "gke.jsonl"] {
        let text = std::fs::read_to_string(folder.join(file)).unwrap();
        for part in text.split("\"$ref\":\"").skip(1) {
            let name = part.split('"').next().unwrap();
            let found =
                if name.starts_with(gke::PACKAGES) { gke::definition(name) } else { definition(name) };
            assert!(found.is_some(), "{file} refers to {name}");
        }
    }
}

#[test]
fn quantities_follow_the_grammar() {
    let schema = definition("io.k8s.apimachinery.pkg.api.resource.Quantity").unwrap();
    for good in ["0", "1", "-1", "+1.5", ".5", "1.", "100m", "16Gi", "1e3", "12E", "1E-3", "3n"] {
        assert_eq!(problems(&schema, &json!(good)), Vec::<String>::new(), "{good}");
    }
    for bad in ["", ".", "1 Gi", "1gi", "1KB", "Gi", "1.2.3", "1e", "0x1"] {
        assert_eq!(check(&schema, &json!(bad)).len(), 1, "{bad}");
    }
}

#[test]
fn close_words_are_suggested() {
    let names = ["containers", "initContainers", "nodeSelector", "image", "nodeName"];
    for (word, expected) in [
        ("contaners", Some("containers")),
        ("nodeselector", Some("nodeSelector")),
        ("node_selector", Some("nodeSelector")),
        ("imgae", Some("image")),
        ("colour", None),
        ("x", None),
    ] {
        assert_eq!(closest(word, &names).as_deref(), expected, "{word}");
    }
}

#[test]
fn kinds_that_gke_installs_have_one_definition_each() {
    let rows: Vec<(&str, &str, &str)> =
        installed().iter().map(|row| (&*row.api.group, &*row.api.version, &*row.api.kind)).collect();
    assert!(rows.len() > 30, "{}", rows.len());
    assert_eq!(rows.iter().collect::<std::collections::BTreeSet<_>>().len(), rows.len(), "{rows:?}");
    for row in installed() {
        let (group, plural) = (&row.api.group, &row.api.plural);
        assert!(api(group, &row.api.version, &row.api.kind).is_none(), "{plural} is built in");
        let definition = installed_crd(group, plural).unwrap();
        assert_eq!(definition["metadata"]["name"], format!("{plural}.{group}"));
        assert!(Api::from_crd(&definition).iter().any(|api| api.version == row.api.version), "{definition}");
    }
}
