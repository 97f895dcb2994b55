//! Bounds of the pods that sections make: no token of a service account, no way to more privileges than the container has, the
//! system calls that the runtime allows, and no capabilities where the image is known to start without.

use serde_json::{Map, Value, json};

/// A field of a bound, from the pod or from a container on, and its value.
type Restriction = (&'static [&'static str], fn(&Value) -> bool);

const OF_POD: &[Restriction] = &[
    (&[TOKEN], |value| *value == false),
    (&["securityContext", "seccompProfile"], |value| *value == json!({ "type": "RuntimeDefault" })),
];

const OF_CONTAINER: &[Restriction] =
    &[(ESCALATION, |value| *value == false), (DROP, |value| *value == json!(["ALL"]))];

const TOKEN: &str = "automountServiceAccountToken";
const ESCALATION: &[&str] = &["securityContext", "allowPrivilegeEscalation"];
const DROP: &[&str] = &["securityContext", "capabilities", "drop"];
const ADD: &[&str] = &["securityContext", "capabilities", "add"];

/// Repositories whose images start without capabilities: Dask's run as root and write only files of root, those of RAPIDS and
/// Jupyter run as a user. Recalled from their Dockerfiles; not tried with each image.
const PLAIN: &[&str] = &["ghcr.io/dask/", "daskdev/", "nvcr.io/nvidia/rapidsai/", "rapidsai/"];

/// Variables by which the entry points of those images install packages whose files, or whose installer, change users.
const INSTALLERS: &[&str] = &["EXTRA_APT_PACKAGES", "EXTRA_CONDA_PACKAGES"];

/// Gives a pod of one container its bounds.
pub fn restrict(pod: &mut Value) {
    pod[TOKEN] = json!(false);
    pod["securityContext"]["seccompProfile"]["type"] = json!("RuntimeDefault");
    let container = &mut pod["containers"][0];
    container["securityContext"]["allowPrivilegeEscalation"] = json!(false);
    if is_plain(container) {
        container["securityContext"]["capabilities"]["drop"] = json!(["ALL"]);
    }
}

/// Takes bounds back that do not go with what `given`, the user's own part of the pod, says. A pod with a service account of
/// its own needs its token. The API refuses a privileged container without privilege escalation, and one with `CAP_SYS_ADMIN`.
/// Recalled from `ValidateSecurityContext` in `pkg/apis/core/validation/validation.go` of Kubernetes.
pub fn relax_restrictions(pod: &mut Value, given: &Value) {
    let is_named = ["serviceAccountName", "serviceAccount"].iter().any(|key| pod[*key].is_string());
    if is_named && given[TOKEN].is_null() {
        take(pod, &[TOKEN], OF_POD[0].1);
    }
    for container in pod["containers"].as_array_mut().into_iter().flatten() {
        let own = named(given, container);
        let said = |path: &[&str]| own.is_some_and(|own| at(own, path).is_some());
        let added = at(container, ADD).and_then(Value::as_array).into_iter().flatten();
        let mut added = added.filter_map(Value::as_str);
        let is_free = container["securityContext"]["privileged"] == true
            || added.any(|name| ["SYS_ADMIN", "CAP_SYS_ADMIN"].contains(&name));
        if is_free && !said(ESCALATION) {
            take(container, ESCALATION, OF_CONTAINER[0].1);
        }
        let is_root = container["securityContext"]["runAsUser"] == 0;
        if (is_root || !is_plain(container)) && !said(DROP) {
            take(container, DROP, OF_CONTAINER[1].1);
        }
    }
}

/// Takes the bounds out of every pod in `value`: what is compared or kept by its text, and does not become another thing by them.
pub fn remove_restrictions(value: &mut Value) {
    each(value, None, &mut |part, _, bounds| {
        for (path, is_own) in bounds {
            take(part, path, *is_own);
        }
    });
}

/// Takes those bounds out that a live thing lacks: it was made before there were any, and is not made again for them.
pub fn match_live_restrictions(desired: &mut Value, live: &Value) {
    each(desired, Some(live), &mut |part, live, bounds| {
        let Some(live) = live else { return };
        for (path, is_own) in bounds.iter().filter(|(path, _)| at(live, path).is_none()) {
            take(part, path, *is_own);
        }
    });
}

/// Tells whether a live pod has the first of the bounds, so that a section that makes it has them, too.
pub fn is_restricted(pod: &Value, container: &Value) -> bool {
    pod[TOKEN] == false || at(container, ESCALATION).is_some_and(|value| *value == false)
}

/// Calls `visit` with every pod and every container in `value`, and with the same of `live`.
fn each(
    value: &mut Value,
    live: Option<&Value>,
    visit: &mut impl FnMut(&mut Value, Option<&Value>, &[Restriction]),
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
        each(inner, live.and_then(|live| live.get(key)), visit);
    }
}

/// The container of a pod that is called as another is.
fn named<'a>(pod: &'a Value, container: &Value) -> Option<&'a Value> {
    let mut containers = pod["containers"].as_array()?.iter();
    containers.find(|other| other["name"] == container["name"])
}

fn at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, key| value.get(key))
}

/// Takes a value away, with the tables that are empty without it.
fn take(value: &mut Value, path: &[&str], is_own: fn(&Value) -> bool) {
    let (Some(table), [first, rest @ ..]) = (value.as_object_mut(), path) else { return };
    let Some(inner) = table.get_mut(*first) else { return };
    let goes = match rest {
        [] => is_own(inner),
        rest => {
            take(inner, rest, is_own);
            inner.as_object().is_some_and(Map::is_empty)
        }
    };
    if goes {
        table.remove(*first);
    }
}

/// Tells whether a container runs a program that needs no capabilities to start.
fn is_plain(container: &Value) -> bool {
    let image = container["image"].as_str().unwrap_or_default();
    let image = image.strip_prefix("docker.io/").unwrap_or(image);
    let mut variables = container["env"].as_array().into_iter().flatten();
    let installs = variables.any(|variable| INSTALLERS.iter().any(|name| variable["name"] == *name));
    !installs && PLAIN.iter().any(|repository| image.starts_with(repository))
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
        restrict(&mut pod);
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
        restrict(&mut whole);
        let mut nested = json!({ "spec": { "worker": { "spec": whole } } });
        remove_restrictions(&mut nested);
        assert_eq!(nested["spec"]["worker"]["spec"], plain);
        // Others' values beside them stay.
        whole["securityContext"]["fsGroup"] = json!(100);
        whole["containers"][0]["securityContext"]["allowPrivilegeEscalation"] = json!(true);
        remove_restrictions(&mut whole);
        assert_eq!(whole["securityContext"], json!({ "fsGroup": 100 }));
        assert_eq!(whole["containers"][0]["securityContext"], json!({ "allowPrivilegeEscalation": true }));
    }

    #[test]
    fn what_was_made_before_keeps_its_body() {
        let live = json!({ "spec": pod("daskdev/dask:1", &[]) });
        let mut desired = live.clone();
        restrict(&mut desired["spec"]);
        let confined = desired.clone();
        match_live_restrictions(&mut desired, &live);
        assert_eq!(desired, live);
        // What was made with them keeps them, also those that were changed since.
        let mut live = confined.clone();
        live["spec"][TOKEN] = json!(true);
        desired = confined.clone();
        match_live_restrictions(&mut desired, &live);
        assert_eq!(desired, confined);
    }

    #[test]
    fn what_a_user_says_is_kept_and_stays_valid() {
        let relaxed = |given: Value| {
            let mut pod = pod("daskdev/dask:1", &[]);
            restrict(&mut pod);
            crate::pod::merge_pod(
                &mut pod,
                Some(&crate::pod::Pod(given.clone())),
                &model::address::FieldPath::root(),
                &model::address::FieldPath::root(),
                &mut Vec::new(),
            );
            relax_restrictions(&mut pod, &given);
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
