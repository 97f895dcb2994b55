//! The path to the NVIDIA driver's libraries in containers with GPUs.
//!
//! GKE mounts the driver at `/usr/local/nvidia`, and the container's dynamic linker must search there. CUDA images up to 12.8.0
//! set the path themselves. Later ones, and RAPIDS images based on them, do not: `import cudf` fails in them. Source: GKE's page
//! "Run GPUs in GKE Standard node pools", section "CUDA libraries"; GoogleCloudPlatform/compute-gpu-installation issue 46,
//! NVIDIA/dcgm-exporter issue 484.

use serde_json::{Value, json};

use crate::json::{append, text};
use crate::scope::Scope;
use crate::security_defaults::for_each_pod;
use crate::short_forms::DriverInstall;

/// The variable with the dynamic linker's search path. A value in the Pod replaces the image's own.
pub const LIBRARY_PATH_VARIABLE: &str = "LD_LIBRARY_PATH";

/// GKE's path, and the one that images of CUDA 12.8.1 and later set.
const PATH: &str = "/usr/local/nvidia/lib64:/usr/local/cuda/lib64";

/// Returns true if GKE's installer or the installer DaemonSet mounts the driver into containers with GPUs. With NVIDIA's GPU
/// Operator, the container runtime sets the path.
pub fn is_needed(scope: &Scope) -> bool {
    scope.target.gke.is_some() && scope.driver != DriverInstall::None
}

/// Adds the path to a container with GPUs, unless it sets a path of its own.
pub fn add(container: &mut Value) {
    if !has_path(container) {
        append(container, "env", vec![variable()]);
    }
}

/// Returns true if a container sets the path.
pub fn has_path(container: &Value) -> bool {
    let mut variables = container["env"].as_array().into_iter().flatten();
    variables.any(|variable| text(&variable["name"]) == LIBRARY_PATH_VARIABLE)
}

/// Removes the path from every pod in `value` where it has the default value.
pub fn remove(value: &mut Value) {
    for_each_pod(value, None, &mut |part, _, _| remove_default(part));
}

/// Removes the path where the live container lacks it. Such a container was created by an earlier version and is not recreated to
/// add the path.
pub fn remove_absent_in_live(desired: &mut Value, live: &Value) {
    for_each_pod(desired, Some(live), &mut |part, live, _| {
        if live.is_some_and(|live| !has_path(live)) {
            remove_default(part);
        }
    });
}

fn variable() -> Value {
    json!({ "name": LIBRARY_PATH_VARIABLE, "value": PATH })
}

/// Removes the default path from a container.
pub fn remove_default(part: &mut Value) {
    let Some(variables) = part.get_mut("env").and_then(Value::as_array_mut) else { return };
    let before = variables.len();
    variables.retain(|known| *known != variable());
    if variables.is_empty()
        && before > 0
        && let Some(part) = part.as_object_mut()
    {
        part.remove("env");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_comes_out_as_it_went_in() {
        let plain = json!({ "containers": [{ "name": "worker", "image": "a" }] });
        let mut whole = plain.clone();
        add(&mut whole["containers"][0]);
        assert_eq!(whole["containers"][0]["env"][0]["name"], LIBRARY_PATH_VARIABLE);
        let mut twice = whole.clone();
        add(&mut twice["containers"][0]);
        assert_eq!(twice, whole);
        let (mut removed, mut kept) = (json!({ "spec": whole }), json!({ "spec": whole }));
        remove(&mut removed);
        assert_eq!(removed["spec"], plain);
        remove_absent_in_live(&mut kept, &json!({ "spec": whole }));
        assert_eq!(kept["spec"], whole);
        remove_absent_in_live(&mut kept, &json!({ "spec": plain }));
        assert_eq!(kept["spec"], plain);
    }

    #[test]
    fn a_path_of_ones_own_stays() {
        let own = json!({ "containers": [{ "name": "worker", "env": [{ "name": LIBRARY_PATH_VARIABLE, "value": "/opt/lib" }] }] });
        let mut pod = own.clone();
        add(&mut pod["containers"][0]);
        remove(&mut pod);
        assert_eq!(pod, own);
    }
}
