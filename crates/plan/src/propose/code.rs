//! The user's own code in pods and on hosts: the ConfigMaps of a section follow the change of what uses them, and plans name the files
//! that changed.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::observe::text_index::{has_word, referencing_fields};
use crate::planner::Planner;
use crate::propose::provisioned_workers::Former;
use crate::reason::Reason;
use crate::{Action, Change};
use kinds::comparison::Comparison;
use kinds::dask;
use kinds::hosts;
use kinds::json::{is_terminating, text};
use kinds::kubernetes::pod_code;
use model::address::{Address, FieldPath};
use model::resource::{Identity, KindId, ObjectId, Resource};
use model::schema::DASK_GROUP;

/// The largest number of files that a plan names for one change.
const NAMED: usize = 4;

impl Planner<'_> {
    /// Plans a ConfigMap whose user stays as it is and does not name it: a job that keeps the files that it was started with. Returns
    /// `false` if the resource must be planned like any other.
    pub(crate) fn plan_unused_code(&mut self, resource: &Resource) -> bool {
        let Identity::Object(object) = &resource.identity else { return false };
        if !pod_code::has_code(object, &resource.body) || self.live(&resource.identity).is_some() {
            return false;
        }
        let desired = &self.observed.inputs.desired;
        let Some(user) = desired.iter().find(|one| one.depends_on.contains(&resource.address)) else {
            return false;
        };
        let change = self.changes.iter().find(|change| change.identity == user.identity);
        let stays = change.is_some_and(|change| matches!(change.action, Action::Keep | Action::Delete));
        let is_named = self.live(&user.identity).is_some_and(|live| names(live, object));
        if !stays || is_named {
            return false;
        }
        self.not_created.insert(resource.identity.clone());
        self.changes.push(self.observed.proposed(resource, Action::Keep, Vec::new()));
        true
    }

    /// Decides about files that the file no longer has. The agent of a host keeps folders by itself.
    pub(crate) fn former_files(&self, identity: &Identity) -> Option<Former> {
        let object = identity.object()?;
        if object.gvk == hosts::api::files() {
            return Some(Former::Delete(Reason::UnusedFiles));
        }
        pod_code::has_code(object, self.live(identity)?).then(|| match self.user_of_code(object) {
            Some(by) => Former::Keep(Reason::FilesInUse { by }),
            None => Former::Delete(Reason::UnusedFiles),
        })
    }

    /// Returns what still uses a ConfigMap with code: a Dask cluster, a group or a job that stays. A job's cluster has the files with
    /// which it was started, whatever the job's object names since.
    fn user_of_code(&self, object: &ObjectId) -> Option<String> {
        let objects = self.observed.inputs.world.objects.live().into_iter().flatten();
        let mut users = objects.filter(|(other, live)| {
            other.gvk.group == DASK_GROUP
                && other.namespace == object.namespace
                && names(live, object)
                && !self.goes(other, live)
        });
        users.next().map(|(other, _)| other.to_string())
    }

    /// Returns true if this plan ends the pods of a Dask resource.
    fn goes(&self, object: &ObjectId, live: &Value) -> bool {
        let ends = |gvk, name: &str| {
            let is_it = |change: &&Change| {
                change.identity.object().is_some_and(|one| {
                    one.gvk == gvk && one.name == name && one.namespace == object.namespace
                })
            };
            self.changes.iter().find(is_it).is_some_and(|change| match change.action {
                Action::Create | Action::Replace | Action::Delete => true,
                Action::Keep | Action::Update | Action::Forget | Action::Run => false,
            })
        };
        let (group, cluster, job) = (dask::api::group(), dask::api::cluster(), dask::api::job());
        let of = if object.gvk == group { text(&live["spec"]["cluster"]) } else { object.name.as_str() };
        is_terminating(live) || ends(object.gvk.clone(), &object.name) || ends(cluster, of) || ends(job, of)
    }

    /// Adds the names of changed files to the changes of `files`.
    pub(crate) fn name_changed_files(&self, resource: &Resource, live: &Value, compared: &mut Comparison) {
        match resource.kind {
            KindId::DaskCluster | KindId::DaskGroup | KindId::DaskJob => {
                self.files_of_pods(resource, live, compared);
            }
            KindId::HostCluster | KindId::HostGroup | KindId::HostJob => {
                self.files_on_hosts(resource, &[hosts::files::FIELD], compared);
            }
            KindId::Environment => self.files_on_hosts(resource, &["sources", "digest"], compared),
            _ => {}
        }
    }

    fn files_of_pods(&self, resource: &Resource, live: &Value, compared: &mut Comparison) {
        let named = |path: &FieldPath| path.last_key() == Some("name") && is_in_config_map(path);
        let renamed: Vec<FieldPath> =
            compared.changes.iter().map(|change| change.path.clone()).filter(named).collect();
        for path in renamed {
            let Some(of) = path.parent() else { continue };
            // The list of paths follows from the files.
            let items = of.key("items");
            compared.changes.retain(|change| !items.contains(&change.path));
            let Some(pod) = of.parent().and_then(|volume| volume.parent()?.parent()) else { continue };
            let changed = self.changed_in_pods(resource, live, &pod);
            let note = compared.changes.iter_mut().find(|change| change.path == path);
            if let (Some(field), Some(changed)) = (note, changed) {
                add_note(&mut field.note, &changed);
            }
        }
    }

    fn changed_in_pods(&self, resource: &Resource, live: &Value, pod: &FieldPath) -> Option<String> {
        let namespace = resource.identity.object()?.namespace.clone();
        let config_map = |volume: &Value| {
            let gvk = model::resource::gvk("", "v1", "ConfigMap", "configmaps");
            let name = text(&volume["configMap"]["name"]).to_owned();
            Identity::Object(ObjectId { gvk, namespace: namespace.clone(), name })
        };
        let before = pod_code::volume(pod.find(live)?)?;
        let after = pod_code::volume(pod.find(&resource.body)?)?;
        let old = self.observed.inputs.world.find(&config_map(before))?;
        let new = self.observed.desired.get(&config_map(after))?;
        changed(&pod_code::contents(before, old), &pod_code::contents(after, &new.body))
    }

    /// Adds the names to the change of a field of `spec` with the digest of files.
    fn files_on_hosts(&self, resource: &Resource, field: &[&str], compared: &mut Comparison) {
        let path = field.iter().fold(FieldPath::keys(["spec"]), |path, key| path.key(key));
        let Some(field) = compared.changes.iter_mut().find(|change| change.path == path) else { return };
        let section: Vec<&str> = resource.address.as_str().split('.').take(2).collect();
        let name = hosts::files::object_name(&self.observed.inputs.owner, &Address::new(section.join(".")));
        let identity = Identity::Object(ObjectId { gvk: hosts::api::files(), namespace: None, name });
        let (Some(old), Some(new)) =
            (self.observed.inputs.world.find(&identity), self.observed.desired.get(&identity))
        else {
            return;
        };
        let files = |object: &Value| -> BTreeMap<String, Value> {
            let files = object["spec"]["files"].as_object().into_iter().flatten();
            files.map(|(name, digest)| (name.clone(), digest.clone())).collect()
        };
        if let Some(changed) = changed(&files(old), &files(&new.body)) {
            add_note(&mut field.note, &changed);
        }
    }
}

/// Returns true for a live ConfigMap with the files of the user's code (`files` of a section).
pub(crate) fn is_config_map(identity: &Identity, live: &Value) -> bool {
    identity.object().is_some_and(|object| pod_code::has_code(object, live))
}

/// Returns true for the files of a section.
pub(crate) fn is_code(resource: &Resource) -> bool {
    resource.kind == KindId::HostFiles || is_config_map(&resource.identity, &resource.body)
}

fn is_in_config_map(path: &FieldPath) -> bool {
    path.parent().is_some_and(|parent| parent.last_key() == Some("configMap"))
}

/// Returns true if an object names a ConfigMap.
fn names(live: &Value, config_map: &ObjectId) -> bool {
    referencing_fields(live).any(|value| has_word(value, &config_map.name))
}

fn add_note(note: &mut Option<String>, changed: &str) {
    *note = Some(match note.take() {
        Some(note) => format!("{changed}: {note}"),
        None => changed.to_owned(),
    });
}

/// Returns `train.py, lib/a.py changed`; `None` if nothing differs.
fn changed<K: Ord + AsRef<str>, V: PartialEq>(
    before: &BTreeMap<K, V>,
    after: &BTreeMap<K, V>,
) -> Option<String> {
    let differs = |name: &&K| before.get(*name) != after.get(*name);
    let names: BTreeSet<&str> =
        before.keys().chain(after.keys()).filter(differs).map(AsRef::as_ref).collect();
    let named: Vec<&str> = names.iter().copied().take(NAMED).collect();
    match names.len() {
        0 => None,
        number if number > NAMED => Some(format!("{} and {} more changed", named.join(", "), number - NAMED)),
        _ => Some(format!("{} changed", named.join(", "))),
    }
}
