//! Kinds: a section of the stack file, what it becomes, how its fields may change, when it is ready.
//! A kind is one file; [`KINDS`] is the one list. Kinds never import each other's sections: what one
//! must know of its neighbours comes in [`Scope`].

use serde_json::{Value, json};

use crate::address::{Address, FieldPath};
use crate::resource::{
    Action, Api, Await, Call, Effect, FieldChange, Gvk, Identity, Late, Method, ObjectId, Owner, Query,
    Readiness, Resource, Step, Target, Until,
};
use crate::schema;

pub mod check;
pub mod cluster;
pub mod dask_cluster;
pub mod dask_operator;
pub mod dask_pod;
pub mod gke;
pub mod gpu_driver;
pub mod namespace;
pub mod node_pool;
pub mod object;
pub mod short;
pub mod status;
pub mod workload;

/// The static description of a kind.
pub struct Kind {
    /// `node_pool`, `DaemonSet`.
    pub name: &'static str,
    /// The place in the order of making: what has a higher rank is made later and deleted earlier.
    pub rank: u32,
    /// How wanted and live are compared.
    pub compare: Compare,
    /// The steps of a change.
    pub program: fn(&Doing) -> Vec<Step>,
    /// What to read to judge readiness.
    pub queries: fn(&Await) -> Vec<Query>,
    /// Judges readiness by what the queries found, in their order; `null` is what is not there.
    pub judge: fn(&Await, &[Value]) -> Readiness,
    /// Whether several stacks of one cluster may have the same object.
    pub shared: bool,
}

/// How wanted and live are compared.
pub enum Compare {
    /// Field by field under rules; fields without a rule are refused.
    Gke(&'static [gke::Rule]),
    /// By our field manager's entries and the live values; the function tells what changing a field does.
    Kubernetes(fn(&FieldPath) -> (Effect, Option<&'static str>)),
    /// Not at all: an action.
    Action,
}

/// All kinds. Kubernetes kinds without a line here are [`object::PLAIN`].
pub const KINDS: &[&Kind] = &[
    &cluster::KIND,
    &node_pool::KIND,
    &namespace::KIND,
    &object::DEFINITION,
    &object::PLAIN,
    &object::BINDING,
    &object::SERVICE,
    &workload::DEPLOYMENT,
    &workload::DAEMON_SET,
    &gpu_driver::KIND,
    &check::KIND,
    &dask_cluster::KIND,
];

/// The kind of a name.
pub fn find(name: &str) -> Option<&'static Kind> {
    KINDS.iter().copied().find(|kind| kind.name == name)
}

/// What a kind's file is told to write the steps of a change.
pub struct Doing<'a> {
    /// What happens.
    pub action: Action,
    /// What it is.
    pub identity: &'a Identity,
    /// What is wanted; `None` for deletes.
    pub resource: Option<&'a Resource>,
    /// What is live.
    pub live: Option<&'a Value>,
    /// What differs.
    pub fields: &'a [FieldChange],
    /// Whose.
    pub owner: &'a Owner,
    /// For a cluster that is made: the pool that is made with it. For that pool: its own body.
    pub inline_pool: Option<&'a Value>,
    /// Whether something of the same name is being deleted, and must be gone first.
    pub leaving: bool,
    /// Whether it, or a field of it, is taken from another tool, with consent.
    pub taking: bool,
}

impl Doing<'_> {
    /// The wanted body, `null` for deletes.
    pub fn body(&self) -> &Value {
        self.resource.map_or(&Value::Null, |resource| &resource.body)
    }

    /// The object, for Kubernetes kinds.
    pub fn object(&self) -> Option<&ObjectId> {
        match self.identity {
            Identity::Object(object) => Some(object),
            Identity::Cluster(_) | Identity::NodePool { .. } | Identity::Check(_) => None,
        }
    }
}

/// What a section may know of its neighbours when it becomes resources.
#[derive(Clone, Debug)]
pub struct Scope {
    /// Whose.
    pub owner: Owner,
    /// Where.
    pub target: Target,
    /// The node pools of the file, by key.
    pub pools: Vec<PoolFacts>,
    /// Who installs the NVIDIA driver.
    pub driver: gpu_driver::DriverInstall,
    /// Sections of the file that others may have to follow.
    pub sections: Vec<Address>,
    /// Checks and the keys of the pools they run on.
    pub checks: Vec<(Address, Option<String>)>,
    /// Live names of the file's namespaces, and their addresses.
    pub namespaces: Vec<(String, Address)>,
    /// In how many zones the cluster's nodes are.
    pub zones: u32,
}

/// A node pool as its neighbours see it.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolFacts {
    /// The section's key.
    pub key: String,
    /// The live name.
    pub name: String,
    /// Allocatable `nvidia.com/gpu` of a node: GPUs × partitions × clients.
    pub gpus: u32,
    /// Nodes at least, over all zones.
    pub nodes: u32,
    /// Machine type and GPUs, as text: what a check of the pool has checked.
    pub hardware: String,
    /// Taints that the file gives.
    pub taints: Vec<node_pool::Taint>,
}

impl Scope {
    /// The pool of a key.
    pub fn pool(&self, key: &str) -> Option<&PoolFacts> {
        self.pools.iter().find(|pool| pool.key == key)
    }

    /// The address of a section, when the file has it.
    pub fn section(&self, address: &str) -> Option<Address> {
        self.sections.iter().find(|known| known.as_str() == address).cloned()
    }

    /// What everything inside the cluster follows.
    pub fn inside(&self) -> Vec<Address> {
        self.section("cluster").into_iter().collect()
    }

    /// Labels of every object of the stack. They narrow LISTs; they do not tell who owns what.
    pub fn labels(&self) -> Value {
        json!({
            crate::resource::OBJECT_LABEL_MANAGED_BY: "dask-infra",
            crate::resource::OBJECT_LABEL_STACK: self.owner.stack,
        })
    }

    /// The section of a namespace, by its live name.
    pub fn namespace(&self, name: &str) -> Option<Address> {
        self.namespaces.iter().find(|(live, _)| live == name).map(|(_, address)| address.clone())
    }

    /// What follows from a namespace: its section when the file has one, else the cluster.
    pub fn in_namespace(&self, namespace: &str) -> Vec<Address> {
        let mut follows = self.inside();
        follows.extend(self.namespace(namespace));
        follows
    }

    /// Labels of what stacks share: the same from every stack, so that none takes them from another.
    pub fn shared_labels(&self) -> Value {
        json!({ crate::resource::OBJECT_LABEL_MANAGED_BY: "dask-infra" })
    }
}

/// The `[…]` of an object of a built-in or Dask kind.
pub fn gvk(group: &str, version: &str, kind: &str, plural: &str) -> Gvk {
    Gvk { group: group.into(), version: version.into(), kind: kind.into(), plural: plural.into() }
}

/// Server-side apply of an object.
fn apply_call(object: &ObjectId, owner: &Owner, body: Value, force: bool) -> Call {
    let manager = owner.field_manager().replace('/', "%2F");
    let force = if force { "&force=true" } else { "" };
    Call {
        api: Api::Kubernetes,
        method: Method::Patch,
        path: format!("{}?fieldManager={manager}&fieldValidation=Strict{force}", object.path()),
        body: Some(body),
        late: Vec::new(),
    }
}

/// An apply that makes: the resourceVersion fails when the object is there already.
/// Source: seen on kube-apiserver 1.36; applying onto an object of others merges without a word otherwise.
fn create_call(object: &ObjectId, owner: &Owner, body: &Value) -> Call {
    let mut body = body.clone();
    body["metadata"]["resourceVersion"] = json!("1");
    apply_call(object, owner, body, false)
}

/// An apply that changes the object that the plan saw and no other. A change that takes back what was
/// changed by hand, or takes over what others made, is forced, and then nothing else may have moved either.
fn update_call(doing: &Doing, object: &ObjectId) -> Call {
    let mut body = doing.body().clone();
    let live = doing.live.unwrap_or(&Value::Null);
    body["metadata"]["uid"] = live["metadata"]["uid"].clone();
    let force = doing.taking || doing.fields.iter().any(|field| field.drift.is_some());
    if force {
        body["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"].clone();
    }
    apply_call(object, doing.owner, body, force)
}

/// An apply of nothing but the name: our field manager gives up every field, and what others apply as well stays.
/// Source: apimachinery, `managedfields/internal/stripmeta.go`: a manager without fields loses its entry.
fn forget_call(doing: &Doing, object: &ObjectId) -> Call {
    let live = doing.live.unwrap_or(&Value::Null);
    let mut metadata = json!({ "name": object.name, "uid": live["metadata"]["uid"] });
    if let Some(namespace) = &object.namespace {
        metadata["namespace"] = json!(namespace);
    }
    let body =
        json!({ "apiVersion": object.gvk.api_version(), "kind": object.gvk.kind, "metadata": metadata });
    apply_call(object, doing.owner, body, false)
}

/// A delete of the object that the plan saw and no other.
pub(crate) fn delete_call(object: &ObjectId, live: &Value) -> Call {
    let mut body = json!({ "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background" });
    if let Some(uid) = live["metadata"]["uid"].as_str() {
        body["preconditions"] = json!({ "uid": uid });
    }
    Call { api: Api::Kubernetes, method: Method::Delete, path: object.path(), body: Some(body), late: Vec::new() }
}

/// The steps that nearly all Kubernetes kinds take; `facts` go to the judge.
pub(crate) fn object_program(doing: &Doing, kind: &str, facts: Value, deadline: u32) -> Vec<Step> {
    let Some(object) = doing.object() else { return Vec::new() };
    let wait = |until| {
        let (identity, facts) = (doing.identity.clone(), facts.clone());
        Step::Await(Await { kind: kind.to_owned(), identity, until, facts, deadline })
    };
    let create = || Step::Call(create_call(object, doing.owner, doing.body()));
    let delete = || Step::Call(delete_call(object, doing.live.unwrap_or(&Value::Null)));
    match doing.action {
        Action::Keep => vec![wait(Until::Ready)],
        Action::Create if doing.leaving => vec![wait(Until::Gone), create(), wait(Until::Ready)],
        Action::Create => vec![create(), wait(Until::Ready)],
        Action::Update => vec![Step::Call(update_call(doing, object)), wait(Until::Ready)],
        Action::Replace => vec![delete(), wait(Until::Gone), create(), wait(Until::Ready)],
        Action::Delete => vec![delete(), wait(Until::Gone)],
        Action::Forget => vec![Step::Call(forget_call(doing, object))],
        Action::Run => Vec::new(),
    }
}

/// The address and kind of an object of ours that neither the file nor the record knows.
pub fn known_as(object: &ObjectId) -> (Address, &'static str) {
    let (kind, name, namespace) =
        (object.gvk.kind.as_str(), object.name.as_str(), object.namespace.as_deref());
    match kind {
        "DaskCluster" => (Address::of("dask_cluster", name), dask_cluster::KIND.name),
        "Namespace" => (Address::of("namespace", name), namespace::KIND.name),
        "DaemonSet" if name == gpu_driver::NAME => {
            (Address::object("gpu_driver", kind, namespace, name), gpu_driver::KIND.name)
        }
        "CustomResourceDefinition" if name.ends_with(dask_cluster::GROUP) => {
            (Address::object(dask_operator::SECTION, kind, namespace, name), object::DEFINITION.name)
        }
        _ => {
            let kind_name = match kind {
                "Deployment" => workload::DEPLOYMENT.name,
                "DaemonSet" => workload::DAEMON_SET.name,
                "Service" => object::SERVICE.name,
                "CustomResourceDefinition" => object::DEFINITION.name,
                "RoleBinding" | "ClusterRoleBinding" => object::BINDING.name,
                _ => object::PLAIN.name,
            };
            let operator = name.starts_with(dask_operator::NAME);
            let section = if operator { dask_operator::SECTION } else { "object" };
            (Address::object(section, kind, namespace, name), kind_name)
        }
    }
}

/// The schema that an object's kind has in this program.
pub fn object_schema(identity: &Identity) -> Option<schema::Schema> {
    let Identity::Object(object) = identity else { return None };
    let gvk = &object.gvk;
    if gvk.group == dask_cluster::GROUP {
        return schema::dask(&gvk.kind);
    }
    schema::builtin(&gvk.group, &gvk.version, &gvk.kind)
}

/// The query that reads the object itself.
pub(crate) fn itself(wait: &Await) -> Vec<Query> {
    match &wait.identity {
        Identity::Object(object) => vec![Query { api: Api::Kubernetes, path: object.path() }],
        Identity::Cluster(name) => vec![Query { api: Api::Gke, path: format!("/v1/{}", name.path()) }],
        Identity::NodePool { cluster, pool } => {
            vec![Query { api: Api::Gke, path: format!("/v1/{}", cluster.pool_path(pool)) }]
        }
        Identity::Check(_) => Vec::new(),
    }
}

/// A condition of a Kubernetes object by its type.
pub(crate) fn condition<'v>(object: &'v Value, kind: &str) -> Option<&'v Value> {
    object["status"]["conditions"].as_array()?.iter().find(|condition| condition["type"] == kind)
}

/// What an object is and what it is called, and nothing else of it.
pub(crate) fn bare(body: &Value) -> Value {
    let mut bare = json!({ "apiVersion": body["apiVersion"], "kind": body["kind"] });
    for field in ["name", "namespace"] {
        if let Some(value) = body["metadata"].get(field) {
            bare["metadata"][field] = value.clone();
        }
    }
    bare
}

/// Text of a JSON string, empty for anything else.
pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// A count in an object's status; what is not written is zero.
pub(crate) fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or(0)
}

/// For `skip_serializing_if` of switches.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's skip_serializing_if passes a reference")]
pub(crate) fn is_false(value: &bool) -> bool {
    !value
}
