//! `stages.toml`: how long everything takes, and which containers end by themselves.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use serde_json::Value;

use super::super::object::{controller, label, name, namespace, text};
use super::select::glob;

/// The timelines.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stages {
    delay: BTreeMap<String, f64>,
    pull: Vec<Pull>,
    container: Vec<Stage>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Pull {
    image: String,
    seconds: f64,
}

/// Which part a container plays in its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Runs to its end before the main containers.
    Init,
    /// One of `spec.containers`.
    Main,
}

/// Conditions that the end of a container waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Gate {
    /// The GPU driver of its node.
    Driver,
}

/// Which script changes a container's fate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Fault {
    /// `Scripts::cuda_fails`.
    Cuda,
    /// `Scripts::driver_fails`.
    Driver,
}

/// How a container ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct End {
    /// Real seconds from its start.
    pub after: f64,
    /// Exit code.
    pub exit: i64,
}

/// The timeline of a container.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stage {
    container: Option<String>,
    image: Option<String>,
    pod: Option<String>,
    namespace: Option<String>,
    role: Option<Role>,
    owner: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    /// Real seconds from the image's arrival to Running.
    #[serde(default)]
    pub start: f64,
    /// Real seconds from Running to Ready, on top of the probe's initial delay.
    #[serde(default)]
    pub ready: f64,
    /// `None`: runs forever.
    pub ends: Option<End>,
    /// A further condition of the end.
    pub needs: Option<Gate>,
    /// The scripted fault that can happen.
    pub fault: Option<Fault>,
}

static STAGES: LazyLock<Stages> =
    LazyLock::new(|| toml::from_str(include_str!("stages.toml")).unwrap_or_default());

/// The built-in timelines.
pub fn stages() -> &'static Stages {
    &STAGES
}

impl Stages {
    /// Real seconds of a named delay.
    pub fn delay(&self, name: &str) -> f64 {
        self.delay.get(name).copied().unwrap_or(0.0)
    }

    /// Real seconds until an image is on a node.
    pub fn pull(&self, image: &str) -> f64 {
        self.pull.iter().find(|pull| glob(&pull.image, image)).map_or(0.0, |pull| pull.seconds)
    }

    /// The timeline of a container of a pod; `None` runs at once and forever.
    pub fn container(&self, pod: &Value, container: &Value, role: Role) -> Option<&Stage> {
        self.container.iter().find(|stage| stage.covers(pod, container, role))
    }
}

impl Stage {
    fn covers(&self, pod: &Value, container: &Value, role: Role) -> bool {
        let fits = |pattern: &Option<String>, text: &str| pattern.as_deref().is_none_or(|p| glob(p, text));
        let owner = controller(pod).map_or("", |owner| text(owner, "/kind"));
        fits(&self.container, text(container, "/name"))
            && fits(&self.image, text(container, "/image"))
            && fits(&self.pod, name(pod))
            && fits(&self.namespace, namespace(pod))
            && self.role.is_none_or(|wanted| wanted == role)
            && self.owner.as_deref().is_none_or(|wanted| wanted == owner)
            && self.labels.iter().all(|(key, value)| label(pod, key) == value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_file_is_read_whole() {
        let stages: Result<Stages, _> = toml::from_str(include_str!("stages.toml"));
        assert!(stages.is_ok(), "{:?}", stages.err());
    }

    #[test]
    fn every_delay_that_the_code_names_is_there() {
        for name in [
            "node_ready",
            "driver_install",
            "gpu_report",
            "pod_stop",
            "pull_fails",
            "pull_back_off",
            "crash_back_off",
            "load_balancer",
            "operator_reacts",
            "kueue_reacts",
            "operator_retry",
            "autoscaler_tick",
            "autoscaler_cooldown",
            "deploy_deadline",
        ] {
            assert!(stages().delay(name) > 0.0, "{name}");
        }
    }

    #[test]
    fn the_first_stage_that_fits_wins() {
        let pod = json!({"metadata": {"name": "p", "namespace": "default",
            "labels": {"dask.org/component": "job-runner"}}});
        let table = [
            ("c", "nvidia/samples:vectoradd-cuda11.6.0-ubuntu18.04", Role::Main, Some(4.0)),
            ("c", "python", Role::Main, Some(60.0)),
            ("nvidia-driver-installer", "cos-nvidia-installer:fixed", Role::Init, Some(90.0)),
            ("other", "busybox", Role::Init, Some(2.0)),
        ];
        for (container, image, role, want) in table {
            let stage = stages().container(&pod, &json!({"name": container, "image": image}), role);
            assert_eq!(stage.and_then(|stage| stage.ends).map(|end| end.after), want, "{container} {image}");
        }
    }
}
