//! Releases of Helm charts. Only `helm template` is used: the objects are in the same graph, comparison, ownership and deletion
//! as all others, without a release Secret or a pending state.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::json::text;
use crate::kubernetes::bundle::{Bundle, Object};
use crate::kubernetes::hooks::Hooks;
use crate::kubernetes::manifest::Files;
use crate::kubernetes::object::gvk;
use crate::section::{Lifecycle, LiveName, NameRule, Section, SectionHead};
use model::address::{Address, FieldPath};
use model::resource::{Identity, ObjectId, Resource};

pub const SECTION: &str = "helm_release";

/// A Helm chart, rendered by the `helm` program.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct HelmRelease {
    /// The chart: a folder or a `.tgz` relative to the stack file's folder (`"./charts/dask"`), `"oci://…"`, or a name with
    /// `repo`.
    pub chart: String,
    /// The address of the chart's repository: `"https://helm.dask.org"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repo: Option<String>,
    /// The chart's exact version. Needed for a chart that is not a file, so that what is applied does not change by
    /// itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The name of the release, which charts use in the names of objects. Default: the section's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<String>,
    /// The namespace of the release. Default `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The chart's values. They override `values_files`.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub values: Map<String, Value>,
    /// YAML files with values, relative to the stack file's folder; later files override earlier ones. `${…}` in them
    /// is not replaced.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values_files: Vec<String>,
    /// True if the chart's CustomResourceDefinitions are applied. `false`: they are installed elsewhere. Default `true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crds: Option<bool>,
    /// The treatment of the chart's hooks.
    #[serde(default, skip_serializing_if = "Hooks::is_default")]
    pub hooks: Hooks,
    /// Namespaces beside the release's own in which the chart may create objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_namespaces: Vec<String>,
    /// The version of Kubernetes to report to the chart. Default: the one whose kinds dask-infra knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kube_version: Option<String>,
    /// APIs to report to the chart beside the built-in ones: `"monitoring.coreos.com/v1"`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub api_versions: Vec<String>,
    /// YAML files with the CustomResourceDefinitions of kinds that are installed elsewhere: read to check objects of
    /// those kinds, never applied.
    #[serde(default, skip_serializing_if = "Files::is_empty")]
    pub definitions: Files,
    /// `protect` and `depends_on`.
    #[serde(flatten)]
    pub lifecycle: Lifecycle,
    /// Objects of the chart, rendered when the stack is loaded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(skip)]
    pub objects: Vec<Value>,
    /// Definitions of kinds that others have installed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(skip)]
    pub known: Vec<Value>,
    /// The contents of the files of `values_files`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(skip)]
    pub given: Vec<Value>,
}

impl Section for HelmRelease {
    fn head(&self) -> SectionHead<'_> {
        SectionHead {
            depends_on: &self.lifecycle.depends_on,
            namespace: self.namespace.as_deref(),
            ..SectionHead::default()
        }
    }

    fn live_name<'a>(&'a self, key: &'a str) -> Option<LiveName<'a>> {
        let live = LiveName::new(self.release.as_deref(), key, NameRule::Release);
        Some(LiveName { field: live.field.map(|_| "release"), ..live })
    }
}

impl HelmRelease {
    pub fn release<'a>(&'a self, key: &'a str) -> &'a str {
        self.release.as_deref().unwrap_or(key)
    }

    /// Returns its objects, with the settings for all of them.
    pub fn bundle<'a>(&'a self, key: &'a str) -> Bundle<'a> {
        Bundle {
            section: SECTION,
            key: Some(key),
            namespace: self.namespace.as_deref(),
            objects: &self.objects,
            known: &self.known,
            protect: self.lifecycle.protect,
            depends_on: &self.lifecycle.depends_on,
            hooks: Some(self.hooks),
            other_namespaces: &self.other_namespaces,
        }
    }

    /// Returns the path and the value of a top-level chart value: from `values`, else from the last file that sets
    /// it.
    pub fn value(&self, key: &str, name: &str) -> Option<(FieldPath, &Value)> {
        let section = FieldPath::keys([SECTION, key]);
        let inline = self.values.get(name).map(|value| (section.key("values").key(name), value));
        let files = self.given.iter().enumerate().rev();
        let in_files = || {
            files.into_iter().find_map(|(index, file)| {
                let value = file.get(name).filter(|value| !value.is_null())?;
                Some((section.key("given").index(index).key(name), value))
            })
        };
        inline.or_else(in_files)
    }

    /// Returns the groups of workers of a chart with the values of `dask/dask`: `worker`, then each of `additional_worker_groups`
    /// for which the chart rendered a Deployment.
    ///
    /// Source: `templates/dask-worker-deployment.yaml` and `additional-worker-deployment.yaml` of the chart: the Deployments are
    /// `F-worker` and `F-worker-GROUP`, where F is `fullnameOverride`, the release if the chart's name is part of it, else
    /// `RELEASE-CHART`.
    pub fn worker_groups(&self, key: &str) -> Vec<WorkerGroup> {
        let bundle = self.bundle(key);
        let made = |ending: &str| {
            let of_workers = bundle.objects().filter(|object| {
                object.kind() == "Deployment"
                    && object.name().ends_with(ending)
                    && object.value["metadata"]["labels"]["component"] == "worker"
            });
            // `-worker-a` ends names of `a` and of `worker-a`: the shortest is the one that has the ending alone.
            let found = of_workers.min_by_key(|object| object.name().len())?;
            Some((deployment(&found), found.value["spec"]["replicas"].as_u64()))
        };
        let mut groups = Vec::new();
        if let Some((object, replicas)) = made("-worker") {
            let section = FieldPath::keys([SECTION, key]);
            let said = self.value(key, "worker").filter(|(_, worker)| !worker["replicas"].is_null());
            let path = said.map_or_else(|| section.key("values").key("worker"), |(path, _)| path);
            groups.push(WorkerGroup { name: "worker".into(), object, replicas, path: path.key("replicas") });
        }
        let Some((list, entries)) = self.value(key, GROUPS) else { return groups };
        for (index, entry) in entries.as_array().into_iter().flatten().enumerate() {
            let name = text(&entry["name"]);
            let Some((object, replicas)) = made(&format!("-worker-{name}")).filter(|_| !name.is_empty())
            else {
                continue;
            };
            let path = list.index(index).key("replicas");
            groups.push(WorkerGroup { name: name.into(), object, replicas, path });
        }
        groups
    }
}

/// Adds the provenance of the most frequently changed fields in objects of a chart with the values of `dask/dask`: fields of a
/// group or of the scheduler. The origin of all other fields is the chart's own line.
pub fn add_provenance(sections: &BTreeMap<String, HelmRelease>, resources: &mut [Resource]) {
    for (key, section) in sections {
        let groups = section.worker_groups(key).into_iter();
        let mut known: Vec<(ObjectId, FieldPath)> =
            groups.filter_map(|group| Some((group.object, group.path.parent()?))).collect();
        for component in ["scheduler", "jupyter"] {
            let Some((path, _)) = section.value(key, component) else { continue };
            let mut made = section.bundle(key).objects().filter(|object| {
                object.kind() == "Deployment" && object.value["metadata"]["labels"]["component"] == component
            });
            known.extend(made.next().map(|object| (deployment(&object), path)));
        }
        for resource in resources.iter_mut() {
            let Identity::Object(id) = &resource.identity else { continue };
            let Some((_, path)) = known.iter().find(|(object, _)| object == id) else { continue };
            for (field, value) in [
                ("spec.replicas", "replicas"),
                ("spec.template.spec.containers[0].image", "image"),
                ("spec.template.spec.containers[0].resources", "resources"),
                ("spec.template.spec.containers[0].env", "env"),
                ("spec.template.spec.containers[0].args", "extraArgs"),
                ("spec.template.spec.nodeSelector", "nodeSelector"),
                ("spec.template.spec.tolerations", "tolerations"),
                ("spec.template.spec.affinity", "affinity"),
            ] {
                resource.provenance.push((field.parse().unwrap_or_default(), path.key(value)));
            }
        }
    }
}

fn deployment(object: &Object<'_>) -> ObjectId {
    ObjectId {
        gvk: gvk("apps", "v1", "Deployment", "deployments"),
        namespace: Some(object.namespace().to_owned()),
        name: object.name().to_owned(),
    }
}

/// Returns the groups that an address matches: `RELEASE/GROUP`, or a unique ending of it: `helm_release.rapids/gpu-workers`,
/// `rapids/gpu-workers`, `gpu-workers`. Each with the key of its section.
pub fn groups_meant<'a>(
    sections: &'a BTreeMap<String, HelmRelease>,
    typed: &str,
) -> Vec<(&'a str, WorkerGroup)> {
    let all = sections.iter().flat_map(|(key, section)| {
        section.worker_groups(key).into_iter().map(move |group| (key.as_str(), group))
    });
    let address = |key: &str, name: &str| Address::new(format!("{}/{name}", Address::of(SECTION, key)));
    all.filter(|(key, group)| address(key, &group.name).ends_with(typed)).collect()
}

/// The chart value with the groups of workers besides the first.
pub const GROUPS: &str = "additional_worker_groups";

/// A group of workers that a chart rendered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerGroup {
    /// The name in the values; the first one is `worker`.
    pub name: String,
    /// The Deployment; the number is its `spec.replicas`, and its `scale` subresource.
    pub object: ObjectId,
    /// The number in the rendered Deployment.
    pub replicas: Option<u64>,
    /// The path of the number in the values: below `given` if a file of `values_files` sets it, else below `values` of the section.
    pub path: FieldPath,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn made(name: &str, replicas: u32) -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": name, "labels": { "component": "worker" } }, "spec": { "replicas": replicas },
        })
    }

    fn release() -> HelmRelease {
        let values = json!({ "worker": { "image": {} } });
        HelmRelease {
            values: values.as_object().unwrap().clone(),
            given: vec![
                json!({ GROUPS: [{ "name": "early", "replicas": 9 }] }),
                json!({ GROUPS: [{ "name": "gpu-workers", "replicas": 2 }, { "name": "workers" }, { "name": "off" }] }),
            ],
            namespace: Some("team".to_owned()),
            objects: vec![
                made("r-dask-worker-gpu-workers", 2),
                made("r-dask-worker-workers", 3),
                made("r-dask-worker", 3),
            ],
            ..HelmRelease::default()
        }
    }

    #[test]
    fn groups_of_workers_are_found_with_the_places_of_their_numbers() {
        let found: Vec<String> = release()
            .worker_groups("r")
            .iter()
            .map(|group| {
                format!("{} {} {:?} {}", group.name, group.object, group.replicas.unwrap_or(0), group.path)
            })
            .collect();
        assert_eq!(
            found,
            [
                "worker Deployment team/r-dask-worker 3 helm_release.r.values.worker.replicas",
                "gpu-workers Deployment team/r-dask-worker-gpu-workers 2 \
                 helm_release.r.given[1].additional_worker_groups[0].replicas",
                "workers Deployment team/r-dask-worker-workers 3 \
                 helm_release.r.given[1].additional_worker_groups[1].replicas",
            ],
            "a later list takes the place of an earlier one, and a group that the chart did not make is none"
        );
    }

    #[test]
    fn groups_are_meant_by_endings() {
        let sections = BTreeMap::from([("a".to_owned(), release()), ("b".to_owned(), release())]);
        let meant = |typed: &str| {
            let found = groups_meant(&sections, typed).into_iter();
            found.map(|(key, group)| format!("{key}/{}", group.name)).collect::<Vec<_>>()
        };
        assert_eq!(meant("helm_release.a/gpu-workers"), ["a/gpu-workers"]);
        assert_eq!(meant("b/worker"), ["b/worker"]);
        assert_eq!(meant("workers"), ["a/workers", "b/workers"]);
        assert!(meant("helm_release.a").is_empty());
    }
}
