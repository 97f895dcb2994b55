//! Kueue itself: its chart, a manifest of a release, or an external installation.

use std::sync::LazyLock;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::kubernetes::bundle::Bundle;
use crate::kubernetes::controller;
use crate::kubernetes::hooks::Hooks;
use crate::kubernetes::kueue::{GROUP, kind};
use crate::kubernetes::manifest::Files;
use crate::kubernetes::object::gvk;
use crate::scope::{KUEUE, Scope};
use crate::section::{Lifecycle, Manage, Section, SectionHead};
use model::address::{Address, FieldPath};
use model::resource::{External, Identity, KindId, ObjectId, Recreation, Resource, Role};

/// The project's own chart.
pub const CHART: &str = "oci://registry.k8s.io/kueue/charts/kueue";
/// The name of the release, which the chart uses in the names of its objects.
pub const RELEASE: &str = "kueue";
/// The default namespace, which is also that of the release's own manifests.
pub const NAMESPACE: &str = "kueue-system";

/// The manager's configuration: that of the chart, with plain Pods among the frameworks. Without them the pods of a gang start
/// one by one, without any error. Kueue skips frameworks whose CRDs are not installed.
const CONFIGURATION: &str = "apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
health:
  healthProbeBindAddress: :8081
metrics:
  bindAddress: :8443
webhook:
  port: 9443
leaderElection:
  leaderElect: true
  resourceName: c1f6bfd2.kueue.x-k8s.io
controller:
  groupKindConcurrency:
    Job.batch: 5
    Pod: 5
    Workload.kueue.x-k8s.io: 5
    LocalQueue.kueue.x-k8s.io: 1
    ClusterQueue.kueue.x-k8s.io: 1
    ResourceFlavor.kueue.x-k8s.io: 1
clientConnection:
  qps: 50
  burst: 100
integrations:
  frameworks:
  - batch/job
  - pod
";

/// Kueue, which holds work back until a queue has room for all of it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct Kueue {
    /// The release, which is also the version of the chart: `"0.15.0"`. 0.15 is the oldest with the API version that is
    /// written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Where it runs. Default `kueue-system`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The chart: a folder or a `.tgz` relative to the stack file's folder, or `"oci://…"`. Default the project's own,
    /// `oci://registry.k8s.io/kueue/charts/kueue`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chart: Option<String>,
    /// The chart's values. They override `values_files`. Default for
    /// `managerConfig.controllerManagerConfigYaml`: the frameworks `batch/job` and `pod`, which Dask clusters need.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub values: Map<String, Value>,
    /// YAML files with values, relative to the stack file's folder; later files override earlier ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values_files: Vec<String>,
    /// In place of the chart: a YAML file with the objects of a release, or a list of such files. `pod` must be among the
    /// `integrations.frameworks` of its configuration, which the released one does not have.
    #[serde(default, skip_serializing_if = "Files::is_empty")]
    pub manifest: Files,
    /// `false`: it exists and is managed elsewhere. It is read and relied on, never written or deleted. Default `true`.
    #[serde(default, skip_serializing_if = "Manage::is_managed")]
    pub manage: Manage,
    /// `protect` and `depends_on`.
    #[serde(flatten)]
    pub lifecycle: Lifecycle,
    /// Objects of the chart or of the files, read when the stack is loaded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(skip)]
    pub objects: Vec<Value>,
}

impl Section for Kueue {
    fn head(&self) -> SectionHead<'_> {
        SectionHead {
            manage: self.manage,
            depends_on: &self.lifecycle.depends_on,
            namespace: self.namespace.as_deref(),
        }
    }
}

impl Kueue {
    pub fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or(NAMESPACE)
    }

    /// Returns true if it serves the API version that dask-infra writes. A missing or unreadable version counts as new enough.
    pub fn is_newer(&self) -> bool {
        self.version.as_deref().and_then(release).is_none_or(|release| release >= OLDEST)
    }

    /// Returns its objects, with the settings for all of them.
    pub fn bundle(&self) -> Option<Bundle<'_>> {
        self.manage.is_managed().then(|| Bundle {
            section: KUEUE,
            key: None,
            namespace: Some(self.namespace()),
            objects: &self.objects,
            known: &[],
            protect: self.lifecycle.protect,
            depends_on: &self.lifecycle.depends_on,
            hooks: self.manifest.is_empty().then_some(Hooks::Ordered),
            other_namespaces: &*OTHER_NAMESPACES,
        })
    }

    /// Returns true if its configuration has plain Pods among the frameworks; `None` if the configuration is not known.
    pub fn takes_pods(&self) -> Option<bool> {
        self.manage.is_managed().then_some(())?;
        let configuration = self.objects.iter().filter(|object| object["kind"] == "ConfigMap");
        let mut texts =
            configuration.filter_map(|map| map["data"]["controller_manager_config.yaml"].as_str());
        texts.next().map(has_pods)
    }
}

/// Namespaces besides Kueue's own in which its chart creates objects: a RoleBinding lets the manager read the settings of
/// aggregated API servers.
/// Source: `templates/visibility/role_binding.yaml` of the chart.
static OTHER_NAMESPACES: LazyLock<[String; 1]> = LazyLock::new(|| ["kube-system".to_owned()]);

/// Returns true if a configuration lists `pod` among its frameworks. Comments do not count.
fn has_pods(configuration: &str) -> bool {
    let item = |line: &str| {
        let line = line.split(" #").next().unwrap_or_default().trim();
        let item = line.strip_prefix("- ").map(|item| item.trim().trim_matches(['"', '\'']).to_owned());
        let listed =
            || Some(line.strip_prefix("frameworks:")?.trim().strip_prefix('[')?.trim_end_matches(']'));
        item.is_some_and(|item| item == "pod")
            || listed().is_some_and(|list| {
                list.split(',').any(|item| item.trim().trim_matches(['"', '\'']) == "pod")
            })
    };
    configuration.lines().any(item)
}

/// Sets the chart value that dask-infra changes by default: the manager's configuration.
pub fn own_values(values: &mut Map<String, Value>) {
    let own = values.entry("managerConfig").or_insert_with(|| json!({}));
    if let Some(own) = own.as_object_mut() {
        own.entry("controllerManagerConfigYaml").or_insert_with(|| json!(CONFIGURATION));
    }
}

/// Returns the resources of `[kueue]`: its namespace, and the objects of its chart or manifest.
pub fn lower(section: &Kueue, made: Vec<Resource>, scope: &Scope) -> Vec<Resource> {
    controller::in_order(KUEUE, section.namespace(), &section.lifecycle, made, scope)
}

/// Returns the objects that `[kueue]` with `manage = false` relies on: its manager and the CRD of its queues.
pub fn lower_external(section: &Kueue, scope: &Scope) -> Vec<External> {
    let queues = kind("ClusterQueue");
    let needed = [
        (
            KindId::Deployment,
            ObjectId {
                gvk: gvk("apps", "v1", "Deployment", "deployments"),
                namespace: Some(section.namespace().to_owned()),
                name: format!("{RELEASE}-controller-manager"),
            },
        ),
        (
            KindId::Crd,
            ObjectId {
                gvk: gvk(
                    "apiextensions.k8s.io",
                    "v1",
                    "CustomResourceDefinition",
                    "customresourcedefinitions",
                ),
                namespace: None,
                name: format!("{}.{GROUP}", queues.plural),
            },
        ),
    ];
    let read = needed.into_iter().map(|(kind, id)| {
        let mut body = json!({
            "apiVersion": id.gvk.api_version(), "kind": id.gvk.kind, "metadata": { "name": id.name },
        });
        if let Some(namespace) = &id.namespace {
            body["metadata"]["namespace"] = json!(namespace);
        }
        let resource = Resource {
            address: Address::object(KUEUE, &id.gvk.kind, id.namespace.as_deref(), &id.name),
            identity: Identity::Object(id),
            kind,
            body,
            create_only: Value::Null,
            provenance: Vec::new(),
            origin: FieldPath::keys([KUEUE]),
            depends_on: scope.cluster_dependency(),
            protect: false,
            recreation: Recreation::Always,
        };
        External { resource, role: Role::Needed }
    });
    read.collect()
}

/// The first release that serves v1beta2.
pub const OLDEST: (u32, u32) = (0, 15);

/// Returns major and minor version of a release such as `0.15.0`; `None` for any other text.
fn release(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.trim_start_matches('v').split('.').map(|part| part.parse::<u32>().ok());
    Some((parts.next()??, parts.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_takes_pods_when_it_lists_them() {
        assert!(has_pods(CONFIGURATION));
        for (text, expect) in [
            ("integrations:\n  frameworks:\n  - \"batch/job\"\n  - \"pod\"\n", true),
            ("integrations:\n  frameworks: [\"batch/job\", \"pod\"]\n", true),
            ("integrations:\n  frameworks:\n  - \"batch/job\"\n#  - \"pod\"\n  #  - \"deployment\"\n", false),
            ("integrations:\n  frameworks: [batch/job]\n", false),
            ("controller:\n  groupKindConcurrency:\n    Pod: 5\n", false),
        ] {
            assert_eq!(has_pods(text), expect, "{text}");
        }
    }

    #[test]
    fn the_configuration_is_ours_unless_values_say_it() {
        let key = "controllerManagerConfigYaml";
        let mut values = Map::new();
        own_values(&mut values);
        assert_eq!(values["managerConfig"][key], CONFIGURATION);
        values["managerConfig"][key] = json!("own");
        own_values(&mut values);
        assert_eq!(values["managerConfig"][key], "own");
    }
}
