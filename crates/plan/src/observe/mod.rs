//! The state that a plan is computed from: desired and live state, owners, and addresses. Nothing here changes while a plan is
//! made.

pub(crate) mod address_match;
pub mod cascade;
pub(crate) mod crd_schemas;
pub mod diff;
pub(crate) mod env_secrets;
pub(crate) mod immutable;
pub(crate) mod inputs;
pub mod recheck;
pub(crate) mod stop_state;
pub(crate) mod system;
pub(crate) mod text_index;

use std::collections::{BTreeMap, HashMap};

use serde_json::Value;

use crate::observe::cascade::defined_kind;
use crate::observe::crd_schemas::CrdSchemas;
use crate::observe::inputs::Inputs;
use crate::reason::OtherStacks;
use crate::{Action, Change};
use kinds::comparison::{Comparison, FingerprintInput};
use kinds::dask::check;
use kinds::gke;
use kinds::kind::{ChangeContext, Compare, Defect, Kind};
use kinds::kubernetes::object::kind_of;
use kinds::kubernetes::ownership;
use model::address::{Address, FieldPath};
use model::record::Record;
use model::resource::{
    self, ByIdentity, Effect, FieldChange, Identity, KindId, LABEL_STACK, ObjectId, Resource,
};

/// The desired and the live state, with indices.
pub(crate) struct Observed<'a> {
    pub(crate) inputs: &'a Inputs<'a>,
    /// The stack's field manager.
    manager: String,
    /// The schemas of custom kinds.
    pub(crate) crd_schemas: CrdSchemas,
    /// The desired resources, keyed by their identity in the API.
    pub(crate) desired: ByIdentity<'a>,
    /// The desired CRDs, by plural and group of their kind.
    crds: BTreeMap<(&'a str, &'a str), &'a Resource>,
    /// The addresses of resources.
    pub(crate) addresses: KnownAddresses<'a>,
}

impl<'a> Observed<'a> {
    pub(crate) fn of(inputs: &'a Inputs<'a>) -> Self {
        Self {
            inputs,
            manager: inputs.owner.field_manager(),
            crd_schemas: CrdSchemas::of(inputs),
            desired: resource::by_identity(&inputs.desired),
            crds: crds(&inputs.desired),
            addresses: KnownAddresses::of(&inputs.desired, inputs.world.record.as_ref()),
        }
    }

    /// Returns true if the GKE cluster is STOPPING or ERROR: then its contents cannot be read.
    pub(crate) fn is_cluster_unusable(&self) -> bool {
        let status = self.inputs.world.cluster.live().and_then(|cluster| cluster["status"].as_str());
        matches!(status, Some("STOPPING" | "ERROR"))
    }

    /// Returns true if the stack has the CRD of an object's kind, with the version that the object needs.
    pub(crate) fn will_serve(&self, resource: &Resource) -> bool {
        let Identity::Object(object) = &resource.identity else { return false };
        let crd = self.crd_of(object);
        crd.is_some_and(|other| served_versions(&other.body).any(|version| version == object.gvk.version))
    }

    /// Returns the desired CRD of an object's kind.
    pub(crate) fn crd_of(&self, object: &ObjectId) -> Option<&Resource> {
        self.crds.get(&(object.gvk.plural.as_str(), object.gvk.group.as_str())).copied()
    }

    /// Returns the identity of a deleted object in an API version that its CRD serves before and after its own
    /// change.
    pub(crate) fn in_served_version(&self, identity: Identity) -> Identity {
        let Identity::Object(mut object) = identity else { return identity };
        let later = (!object.gvk.group.is_empty()).then(|| self.crd_of(&object)).flatten();
        if let Some(later) = later
            && !served_versions(&later.body).any(|version| version == object.gvk.version)
        {
            let now = self.inputs.world.find(&later.identity).unwrap_or(&Value::Null);
            let mut both = served_versions(&later.body)
                .filter(|version| served_versions(now).any(|other| other == *version));
            if let Some(version) = both.next() {
                object.gvk.version = version.to_owned();
            }
        }
        Identity::Object(object)
    }

    /// Compares the desired with the live state; returns `None` for actions.
    pub(crate) fn compared(&self, resource: &Resource, kind: &Kind, live: &Value) -> Option<Comparison> {
        match kind.compare {
            Compare::Gke(message, rows) => {
                let record = self.inputs.world.record.as_ref();
                let last = record.and_then(|record| record.last_set(&resource.identity));
                Some(gke::api::compared(message, rows, &resource.body, live, last))
            }
            Compare::Kubernetes(effect) => {
                let schema = self.crd_schemas.schema(resource);
                let given = &self.inputs.world.env_values;
                let body = kind.readable(&resource.body);
                let mut compared =
                    env_secrets::compare(given, &body, live, &self.manager, schema.as_ref(), effect);
                compared.changes.extend(other_version(&resource.body, live, &self.manager));
                immutable::replace_if_immutable(resource, live, &mut compared.changes);
                Some(compared)
            }
            Compare::Action => None,
        }
    }

    /// Returns the defect of a live resource that its fields do not show.
    pub(crate) fn find_defect(
        &self,
        resource: &Resource,
        kind: &Kind,
        live: &Value,
        action: Action,
    ) -> Option<Defect> {
        (kind.find_defect)(&ChangeContext {
            resource: Some(resource),
            live: Some(live),
            objects: self.inputs.world.objects.live(),
            ..ChangeContext::of(action, &resource.identity, &self.inputs.owner)
        })
    }

    /// Returns true if the stack has applied a live object.
    pub(crate) fn has_applied(&self, live: &Value) -> bool {
        diff::applied_by(live, &self.manager)
    }

    /// Returns the ownership of a live resource. It is shared if other stacks created it under the same name, and foreign if
    /// another tool or a person did.
    pub(crate) fn ownership(&self, resource: &Resource, kind: &Kind, live: &Value) -> Ownership {
        if matches!(kind.compare, Compare::Gke(..)) {
            let labels = gke_labels(&resource.identity, live);
            if gke::compare::is_ours(labels, &self.inputs.owner) {
                return Ownership::Owned;
            }
            return Ownership::Foreign(match labels[LABEL_STACK].as_str() {
                Some(stack) => format!("its label names the stack `{stack}`"),
                None => "it has no stack label".to_owned(),
            });
        }
        if self.has_applied(live) {
            return Ownership::Owned;
        }
        let stacks = diff::other_stacks(live, &self.manager);
        if kind.shared && !stacks.is_empty() {
            return Ownership::Shared(stacks.into_iter().map(stack_of).collect());
        }
        let makers = live["metadata"]["managedFields"].as_array();
        let maker = makers.and_then(|list| list.first()).and_then(|entry| entry["manager"].as_str());
        Ownership::Foreign(match maker {
            Some(maker) => format!("its field manager is `{maker}`"),
            None => "it has no field manager".to_owned(),
        })
    }

    /// Returns the field managers that a change removes: those of other stacks when it adopts an object, the stack's own when it
    /// releases one. Shared objects keep all of them, and the agent of a host cannot edit entries.
    pub(crate) fn removed_managers(&self, change: &Change, kind: &Kind, live: Option<&Value>) -> Vec<String> {
        let Some(live) = live.filter(|_| is_in_kubernetes(&change.identity)) else { return Vec::new() };
        let managers = match change.action {
            Action::Update if change.adopted.is_some() && !kind.shared => {
                ownership::other_stacks(live, &self.manager)
            }
            Action::Forget if self.is_external(&change.identity) => {
                ownership::own_managers(live, &self.manager)
            }
            _ => Vec::new(),
        };
        managers.into_iter().map(str::to_owned).collect()
    }

    /// "stack other uses it too".
    pub(crate) fn other_stacks_of(&self, identity: &Identity) -> OtherStacks {
        let live = self.inputs.world.find(identity).unwrap_or(&Value::Null);
        OtherStacks(diff::other_stacks(live, &self.manager).into_iter().map(stack_of).collect())
    }

    /// Returns the change of a desired resource, with the position of the first field that asks for it.
    pub(crate) fn proposed(&self, resource: &Resource, action: Action, fields: Vec<FieldChange>) -> Change {
        let first = fields.iter().find(|field| field.effect == Effect::Replace).or(fields.first());
        let origin = first.map_or_else(|| resource.origin.clone(), |field| resource.origin_of(&field.path));
        let Resource { address, identity, kind, .. } = resource;
        Change {
            fields,
            location: self.inputs.sources.locate(&origin).map(|location| location.to_string()),
            origin,
            ..Change::new(address.clone(), identity.clone(), *kind, action)
        }
    }

    /// Returns the address and the kind of a resource.
    pub(crate) fn name_of(&self, identity: &Identity) -> (Address, KindId) {
        self.addresses.find(identity)
    }

    /// Returns true for the record and its namespace. Apply manages both; they are not resources of the stack.
    pub(crate) fn is_record(&self, object: &ObjectId) -> bool {
        let namespace = kinds::kubernetes::namespace::object(model::record::NAMESPACE);
        *object == Record::object(&self.inputs.owner.stack) || *object == namespace
    }

    /// Returns true if the file declares it external (`manage = false`).
    pub(crate) fn is_external(&self, identity: &Identity) -> bool {
        self.inputs.external.iter().any(|external| external.resource.identity == *identity)
    }
}

fn crds(desired: &[Resource]) -> BTreeMap<(&str, &str), &Resource> {
    let mut crds = BTreeMap::new();
    for resource in desired {
        if let Identity::Object(object) = &resource.identity
            && let Some(name) = defined_kind(object)
        {
            crds.entry(name).or_insert(resource);
        }
    }
    crds
}

/// Returns the versions that a CRD serves.
fn served_versions(crd: &Value) -> impl Iterator<Item = &str> {
    let versions = crd["spec"]["versions"].as_array().into_iter().flatten();
    versions.filter(|version| version["served"] == true).filter_map(|version| version["name"].as_str())
}

/// Returns the change of the API version if the stack last applied an object in another one. Then the object is applied once in
/// the desired version: field ownership is stored per API version, and lost when the server no longer serves that version.
/// Source: `merge/update.go` of structured-merge-diff (from memory): managers of versions that cannot be converted are dropped.
fn other_version(desired: &Value, live: &Value, manager: &str) -> Option<FieldChange> {
    let applied = diff::applied_in(live, manager)?;
    let now = desired["apiVersion"].as_str().filter(|now| *now != applied)?;
    Some(FieldChange {
        path: FieldPath::keys(["apiVersion"]),
        before: Some(applied.into()),
        after: Some(now.into()),
        effect: Effect::InPlace,
        note: Some("the same object in another API version".to_owned()),
        drift: None,
        secret: false,
    })
}

/// Kinds of ownership of a live resource.
pub(crate) enum Ownership {
    /// This stack owns it.
    Owned,
    /// Other stacks own it, and its kind can have several owners.
    Shared(Vec<String>),
    /// It is not managed by this stack: the text says who created it.
    Foreign(String),
}

/// Returns `stack rapids` for the field manager `dask-infra/rapids`.
pub(crate) fn stack_of(manager: &str) -> String {
    let stack = manager.trim_start_matches("dask-infra/");
    format!("stack {}", stack.split(':').next().unwrap_or(stack))
}

/// Returns the Google Cloud labels of a cluster or pool.
pub(crate) fn gke_labels<'v>(identity: &Identity, live: &'v Value) -> &'v Value {
    labels_path(identity).find(live).unwrap_or(&Value::Null)
}

/// Returns the path of these labels.
pub(crate) fn labels_path(identity: &Identity) -> FieldPath {
    match identity {
        Identity::NodePool { .. } => FieldPath::keys(["config", "resourceLabels"]),
        Identity::Cluster(_) | Identity::Object(_) | Identity::Check(_) => {
            FieldPath::keys(["resourceLabels"])
        }
    }
}

/// Returns true for an object of a Kubernetes API server. An agent stores the objects on hosts.
pub(crate) fn is_in_kubernetes(identity: &Identity) -> bool {
    identity.object().is_some_and(|object| object.gvk.group != kinds::scope::HOSTS_GROUP)
}

/// Returns the field that distinguishes a pool from a later pool of the same name. GKE gives pools no id, and their links contain
/// only the name. But every new pool gets new instance groups.
pub(crate) fn pool_identity_field(live: &Value) -> Option<(&'static str, &Value)> {
    // A cluster has an id, and lists the groups of all its pools.
    let groups = live.get("instanceGroupUrls").filter(|_| live["id"].is_null())?;
    Some(("instanceGroupUrls", groups))
}

/// Returns a digest of what a change relies on: the resource's identity, and the live values that were compared.
pub(crate) fn fingerprint(live: &Value, fingerprint_input: &FingerprintInput) -> String {
    let uid = live["metadata"]["uid"].as_str().or(live["id"].as_str()).or(live["selfLink"].as_str());
    let mut hasher = blake3::Hasher::new();
    hasher.update(uid.unwrap_or_default().as_bytes()).update(fingerprint_input.as_bytes());
    hasher.finalize().to_hex().as_str()[..16].to_owned()
}

/// The addresses of desired and of recorded resources, by identity.
pub(crate) struct KnownAddresses<'a> {
    addresses: HashMap<&'a Identity, (&'a Address, KindId)>,
    /// The pods that the checks of the file run, with their checks.
    pods: HashMap<Identity, &'a Address>,
}

impl<'a> KnownAddresses<'a> {
    fn of(desired: &'a [Resource], record: Option<&'a Record>) -> Self {
        let recorded = record.into_iter().flat_map(|record| &record.inventory);
        let recorded = recorded.map(|entry| (&entry.identity, (&entry.address, entry.kind.id())));
        let of_file = desired.iter().map(|resource| (&resource.identity, (&resource.address, resource.kind)));
        let checks = desired.iter().filter(|resource| resource.kind == KindId::Check);
        let pods = checks.map(|resource| (Identity::Object(check::pod(&resource.body)), &resource.address));
        Self { addresses: recorded.chain(of_file).collect(), pods: pods.collect() }
    }

    /// Returns the check of the file that runs this pod.
    pub(crate) fn check_of(&self, identity: &Identity) -> Option<&'a Address> {
        self.pods.get(identity).copied()
    }

    pub(crate) fn find(&self, identity: &Identity) -> (Address, KindId) {
        if let Some((address, kind)) = self.addresses.get(identity) {
            return ((*address).clone(), *kind);
        }
        match identity {
            Identity::Cluster(_) => (Address::new("cluster"), KindId::Cluster),
            Identity::NodePool { pool, .. } => (Address::of("node_pool", pool), KindId::NodePool),
            Identity::Check(address) => (address.clone(), KindId::Check),
            Identity::Object(object) => {
                let kind = kind_of(object);
                let address = match self.check_of(identity) {
                    Some(check) => check::address_of(check, object),
                    None => (kinds::of(kind).address)(object),
                };
                (address, kind)
            }
        }
    }
}
