use serde_json::{Value, json};

use super::*;

fn problems(schema: &Schema, value: &Value) -> Vec<String> {
    check(schema, value).iter().map(ToString::to_string).collect()
}

#[test]
fn the_files_are_what_the_manifest_says() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas");
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
                "spec.containers[0].resources.limits.memory: \"4GBs\" is not a quantity, \
                 write a number and a unit such as 500m or 16Gi",
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
