//! Security defaults of the pods that sections create: no service account token, no privilege escalation, the runtime's default
//! seccomp profile, and no capabilities if the image is known to start without them.

use serde_json::{Map, Value, json};

/// The path of a default in a pod or in a container, and a test for its value.
type SecurityDefault = (&'static [&'static str], fn(&Value) -> bool);

const OF_POD: &[SecurityDefault] = &[
    (&[TOKEN], |value| *value == false),
    (&["securityContext", "seccompProfile"], |value| *value == json!({ "type": "RuntimeDefault" })),
];

const OF_CONTAINER: &[SecurityDefault] =
    &[(ESCALATION, |value| *value == false), (DROP, |value| *value == json!(["ALL"]))];

const TOKEN: &str = "automountServiceAccountToken";
const ESCALATION: &[&str] = &["securityContext", "allowPrivilegeEscalation"];
const DROP: &[&str] = &["securityContext", "capabilities", "drop"];
const ADD: &[&str] = &["securityContext", "capabilities", "add"];

/// Repositories whose images start without capabilities. Dask's run as root and write only root's files; those of RAPIDS and
/// Jupyter run as another user. From memory of their Dockerfiles, not tried with each image.
const UNPRIVILEGED_IMAGES: &[&str] = &["ghcr.io/dask/", "daskdev/", "nvcr.io/nvidia/rapidsai/", "rapidsai/"];

/// Variables that make the entry points of those images install packages, which needs capabilities.
const INSTALLERS: &[&str] = &["EXTRA_APT_PACKAGES", "EXTRA_CONDA_PACKAGES"];

/// Sets the defaults in a pod of one container.
pub fn apply(pod: &mut Value) {
    pod[TOKEN] = json!(false);
    pod["securityContext"]["seccompProfile"]["type"] = json!("RuntimeDefault");
    let container = &mut pod["containers"][0];
    container["securityContext"]["allowPrivilegeEscalation"] = json!(false);
    if runs_unprivileged(container) {
        container["securityContext"]["capabilities"]["drop"] = json!(["ALL"]);
    }
}

/// Removes defaults that contradict `given`, the `pod` table of the user. A pod with its own service account needs the token. The
/// API refuses a privileged container without privilege escalation, and one with `CAP_SYS_ADMIN`. From memory of
/// `ValidateSecurityContext` in `pkg/apis/core/validation/validation.go` of Kubernetes.
pub fn remove_conflicts(pod: &mut Value, given: &Value) {
    let is_named = ["serviceAccountName", "serviceAccount"].iter().any(|key| pod[*key].is_string());
    if is_named && given[TOKEN].is_null() {
        remove_default(pod, &[TOKEN], OF_POD[0].1);
    }
    for container in pod["containers"].as_array_mut().into_iter().flatten() {
        let own = named(given, container);
        let said = |path: &[&str]| own.is_some_and(|own| at(own, path).is_some());
        let added = at(container, ADD).and_then(Value::as_array).into_iter().flatten();
        let mut added = added.filter_map(Value::as_str);
        let is_free = container["securityContext"]["privileged"] == true
            || added.any(|name| ["SYS_ADMIN", "CAP_SYS_ADMIN"].contains(&name));
        if is_free && !said(ESCALATION) {
            remove_default(container, ESCALATION, OF_CONTAINER[0].1);
        }
        let is_root = container["securityContext"]["runAsUser"] == 0;
        if (is_root || !runs_unprivileged(container)) && !said(DROP) {
            remove_default(container, DROP, OF_CONTAINER[1].1);
        }
    }
}

/// Removes the defaults from every pod in `value`, for bodies that are compared by their text or digest.
pub fn remove(value: &mut Value) {
    for_each_pod(value, None, &mut |part, _, bounds| {
        for (path, is_own) in bounds {
            remove_default(part, path, *is_own);
        }
    });
}

/// Removes defaults that the live object lacks. It was created by a version without these defaults and is not recreated to add
/// them.
pub fn remove_absent_in_live(desired: &mut Value, live: &Value) {
    for_each_pod(desired, Some(live), &mut |part, live, bounds| {
        let Some(live) = live else { return };
        for (path, is_own) in bounds.iter().filter(|(path, _)| at(live, path).is_none()) {
            remove_default(part, path, *is_own);
        }
    });
}

/// Returns true if a live pod has the first of the defaults: then the section that is imported for it gets the defaults, too.
pub fn is_applied(pod: &Value, container: &Value) -> bool {
    pod[TOKEN] == false || at(container, ESCALATION).is_some_and(|value| *value == false)
}

/// Calls `visit` with every pod and container in `value`, together with its counterpart in `live`.
pub(crate) fn for_each_pod(
    value: &mut Value,
    live: Option<&Value>,
    visit: &mut impl FnMut(&mut Value, Option<&Value>, &[SecurityDefault]),
) {
    if value["containers"].is_array() {
        visit(value, live, OF_POD);
        for container in value["containers"].as_array_mut().into_iter().flatten() {
            let live = live.and_then(|live| named(live, container));
            visit(container, live, OF_CONTAINER);
        }
        return;
    }
    for (key, inner) in value.as_object_mut().into_iter().flatten() {
        for_each_pod(inner, live.and_then(|live| live.get(key)), visit);
    }
}

/// Returns the container of `pod` that has the same name as `container`.
fn named<'a>(pod: &'a Value, container: &Value) -> Option<&'a Value> {
    let mut containers = pod["containers"].as_array()?.iter();
    containers.find(|other| other["name"] == container["name"])
}

fn at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, key| value.get(key))
}

/// Removes a value, and the tables that become empty.
fn remove_default(value: &mut Value, path: &[&str], is_own: fn(&Value) -> bool) {
    let (Some(table), [first, rest @ ..]) = (value.as_object_mut(), path) else { return };
    let Some(inner) = table.get_mut(*first) else { return };
    let goes = match rest {
        [] => is_own(inner),
        rest => {
            remove_default(inner, rest, is_own);
            inner.as_object().is_some_and(Map::is_empty)
        }
    };
    if goes {
        table.remove(*first);
    }
}

/// Returns true if a container runs a program that needs no capabilities to start.
fn runs_unprivileged(container: &Value) -> bool {
    let image = container["image"].as_str().unwrap_or_default();
    let image = image.strip_prefix("docker.io/").unwrap_or(image);
    let mut variables = container["env"].as_array().into_iter().flatten();
    let installs = variables.any(|variable| INSTALLERS.iter().any(|name| variable["name"] == *name));
    !installs && UNPRIVILEGED_IMAGES.iter().any(|repository| image.starts_with(repository))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(image: &str, env: &[&str]) -> Value {
        let env: Vec<Value> = env.iter().map(|name| json!({ "name": name, "value": "1" })).collect();
        json!({ "containers": [{ "name": "worker", "image": image, "env": env }] })
    }

    fn dropped(image: &str, env: &[&str]) -> bool {
        let mut pod = pod(image, env);
        apply(&mut pod);
        assert_eq!(pod[TOKEN], false);
        assert_eq!(pod["containers"][0]["securityContext"]["allowPrivilegeEscalation"], false);
        at(&pod["containers"][0], DROP).is_some()
    }

    #[test]
    fn capabilities_are_dropped_where_the_image_starts_without() {
        for image in
            ["ghcr.io/dask/dask:2026.8.0", "docker.io/rapidsai/base:26.04", "nvcr.io/nvidia/rapidsai/base:1"]
        {
            assert!(dropped(image, &["EXTRA_PIP_PACKAGES"]), "{image}");
            assert!(!dropped(image, &["EXTRA_APT_PACKAGES"]), "{image}");
        }
        for image in ["", "mine/dask:1", "example.com/rapidsai/base:1", "rapidsai"] {
            assert!(!dropped(image, &[]), "{image}");
        }
    }

    #[test]
    fn bounds_come_out_as_they_went_in() {
        let plain = pod("daskdev/dask:1", &[]);
        let mut whole = plain.clone();
        apply(&mut whole);
        let mut nested = json!({ "spec": { "worker": { "spec": whole } } });
        remove(&mut nested);
        assert_eq!(nested["spec"]["worker"]["spec"], plain);
        // Others' values beside them stay.
        whole["securityContext"]["fsGroup"] = json!(100);
        whole["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = json!(true);
        remove(&mut whole);
        assert_eq!(whole["securityContext"], json!({ "fsGroup": 100 }));
        assert_eq!(whole["containers"][0]["securityContext"], json!({ "allowPrivilegeEscalation": true }));
    }

    #[test]
    fn what_was_made_before_keeps_its_body() {
        let live = json!({ "spec": pod("daskdev/dask:1", &[]) });
        let mut desired = live.clone();
        apply(&mut desired["spec"]);
        let confined = desired.clone();
        remove_absent_in_live(&mut desired, &live);
        assert_eq!(desired, live);
        // Objects that were created with the defaults keep them, also those changed since.
        let mut live = confined.clone();
        live["spec"][TOKEN] = json!(true);
        desired = confined.clone();
        remove_absent_in_live(&mut desired, &live);
        assert_eq!(desired, confined);
    }

    #[test]
    fn what_a_user_says_is_kept_and_stays_valid() {
        let relaxed = |given: Value| {
            let mut pod = pod("daskdev/dask:1", &[]);
            apply(&mut pod);
            crate::pod::merge_pod(
                &mut pod,
                Some(&crate::pod::Pod(given.clone())),
                &model::address::FieldPath::root(),
                &model::address::FieldPath::root(),
                &mut Vec::new(),
            );
            remove_conflicts(&mut pod, &given);
            pod
        };
        let worker =
            |security: Value| json!({ "containers": [{ "name": "worker", "securityContext": security }] });
        assert_eq!(relaxed(json!({}))[TOKEN], false);
        assert_eq!(relaxed(json!({ "serviceAccountName": "data" })).get(TOKEN), None);
        assert_eq!(relaxed(json!({ "serviceAccountName": "data", TOKEN: false }))[TOKEN], false);
        assert_eq!(relaxed(json!({ TOKEN: true }))[TOKEN], true);
        let privileged = relaxed(worker(json!({ "privileged": true })));
        assert_eq!(at(&privileged["containers"][0], ESCALATION), None);
        let traced = relaxed(worker(json!({ "capabilities": { "add": ["SYS_PTRACE"] } })));
        let security = &traced["containers"][0]["securityContext"];
        assert_eq!(security["capabilities"], json!({ "add": ["SYS_PTRACE"], "drop": ["ALL"] }));
        assert_eq!(security["allowPrivilegeEscalation"], false);
        let admin = relaxed(worker(json!({ "capabilities": { "add": ["SYS_ADMIN"] } })));
        assert_eq!(at(&admin["containers"][0], ESCALATION), None);
        let root = relaxed(worker(json!({ "runAsUser": 0 })));
        assert_eq!(at(&root["containers"][0], DROP), None);
        let other = relaxed(json!({ "containers": [{ "name": "worker", "image": "mine:1" }] }));
        assert_eq!(at(&other["containers"][0], DROP), None);
    }
}
