//! Kinds: a section of the stack file, what it becomes, how its fields may change, when it is ready.
//! A kind is one file; [`KINDS`] is the one list. Kinds never import each other's sections: what one
//! must know of its neighbours comes in [`Scope`].

use serde_json::{Value, json};

use crate::address::{Address, FieldPath, Segment};
use crate::resource::{
    Action, Api, Await, Call, Effect, FieldChange, Gvk, Identity, KindId, Life, Method, ObjectId, Owner,
    Query, Readiness, Resource, Step, Target, Until,
};
use crate::schema;

pub mod bundle;
pub mod check;
pub mod cluster;
mod conditions;
pub mod dask_autoscaler;
pub mod dask_cluster;
pub mod dask_group;
pub mod dask_job;
pub mod dask_operator;
pub mod dask_pod;
pub mod dask_service;
pub mod door;
pub mod env;
pub mod gke;
pub mod going;
pub mod gpu_driver;
pub mod handled;
pub mod helm_release;
pub mod hooks;
pub mod idle;
pub mod made;
pub mod manifest;
pub mod namespace;
pub mod node_pool;
pub mod notebook;
pub mod object;
pub mod own_pods;
pub mod pod;
mod registered;
pub mod replicas;
pub mod runs;
pub mod same;
pub mod scale;
pub mod section;
pub mod short;
pub mod status;
pub mod when_idle;
pub mod why;
pub mod workload;

/// The static description of a kind.
pub struct Kind {
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

/// What a kind is. Kubernetes kinds without a line here are [`object::PLAIN`].
pub fn of(id: KindId) -> &'static Kind {
    match id {
        KindId::Cluster => &cluster::KIND,
        KindId::NodePool => &node_pool::KIND,
        KindId::Namespace => &namespace::KIND,
        KindId::Definition => &object::DEFINITION,
        KindId::Object => &object::PLAIN,
        KindId::Binding => &object::BINDING,
        KindId::Service => &object::SERVICE,
        KindId::Deployment => &workload::DEPLOYMENT,
        KindId::DaemonSet => &workload::DAEMON_SET,
        KindId::StatefulSet => &runs::STATEFUL_SET,
        KindId::Pod => &runs::POD,
        KindId::Job => &runs::JOB,
        KindId::GpuDriver => &gpu_driver::KIND,
        KindId::Check => &check::KIND,
        KindId::DaskCluster => &dask_cluster::KIND,
        KindId::DaskGroup => &dask_group::KIND,
        KindId::DaskAutoscaler => &dask_autoscaler::KIND,
        KindId::DaskJob => &dask_job::KIND,
        KindId::Notebook => &notebook::KIND,
    }
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
    /// In how many zones the nodes of a pool lie when their number is set; 0 where only GKE will know.
    pub zones: usize,
    /// Whether something of the same name is being deleted, or goes with its owner, and must be gone first.
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
    /// Labels that the file gives its nodes.
    pub labels: std::collections::BTreeMap<String, String>,
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
    applied(object.path(), &owner.field_manager(), body, if force { "&force=true" } else { "" })
}

fn applied(path: String, manager: &str, body: Value, force: &str) -> Call {
    let manager = manager.replace('/', "%2F").replace(':', "%3A");
    Call {
        api: Api::Kubernetes,
        method: Method::Patch,
        path: format!("{path}?fieldManager={manager}&fieldValidation=Strict{force}"),
        body: Some(body),
        late: Vec::new(),
    }
}

/// The resourceVersion that no live object has: an apply with it fails when there is one.
pub const ABSENT: &str = "1";

/// An apply that makes: the resourceVersion fails when the object is there already.
/// Source: seen on kube-apiserver 1.36; applying onto an object of others merges without a word otherwise.
fn create_call(object: &ObjectId, owner: &Owner, body: &Value) -> Call {
    let mut body = body.clone();
    body["metadata"]["resourceVersion"] = json!(ABSENT);
    apply_call(object, owner, body, false)
}

/// An apply that changes the object that the plan saw and no other. A change that takes back what was
/// changed by hand, or takes over what others made, is forced, and then nothing else may have moved either.
fn update_call(doing: &Doing, object: &ObjectId) -> Call {
    let mut body = doing.body().clone();
    let live = doing.live.unwrap_or(&Value::Null);
    body["metadata"]["uid"] = live["metadata"]["uid"].clone();
    let drifted = doing.taking || doing.fields.iter().any(|field| field.drift.is_some());
    if drifted {
        body["metadata"]["resourceVersion"] = live["metadata"]["resourceVersion"].clone();
    }
    // What we gave away is no one else's when we take it back.
    apply_call(object, doing.owner, body, drifted || takes_back(doing))
}

/// Whether the file takes back fields that it had set at the beginning and left to others.
fn takes_back(doing: &Doing) -> bool {
    let manager = doing.owner.initial_manager();
    let entries = doing.live.and_then(|live| live["metadata"]["managedFields"].as_array());
    let ours = |entry: &Value| entry["manager"] == *manager && entry["operation"] == "Apply";
    doing.resource.is_some_and(|resource| resource.initial.is_null())
        && entries.into_iter().flatten().any(ours)
}

/// An apply of some fields under the manager that keeps what others go on with. With no fields it lets go of all.
fn initial_call(object: &ObjectId, doing: &Doing, fields: &Value) -> Call {
    let mut body = fields.as_object().cloned().unwrap_or_default();
    for key in ["apiVersion", "kind"] {
        body.insert(key.to_owned(), doing.body()[key].clone());
    }
    let mut metadata = json!({ "name": object.name });
    if let Some(namespace) = &object.namespace {
        metadata["namespace"] = json!(namespace);
    }
    body.insert("metadata".to_owned(), metadata);
    let owner = doing.owner.initial_manager();
    applied(object.path(), &owner, Value::Object(body), "")
}

/// Makes a thing of which some fields are set at the beginning and then left to others. All at once first, so that no
/// default of its definition acts; then a second manager takes those fields, and we give them up: they stay as they are.
/// Source: seen on kube-apiserver 1.36: a field that its last owner gives up goes back to its default, and the
/// operator acts on that.
fn create_steps(object: &ObjectId, doing: &Doing) -> Vec<Step> {
    let initial = doing.resource.map_or(&Value::Null, |resource| &resource.initial);
    if initial.is_null() {
        return vec![Step::Call(create_call(object, doing.owner, doing.body()))];
    }
    let mut whole = doing.body().clone();
    merge(&mut whole, initial);
    vec![
        Step::Call(create_call(object, doing.owner, &whole)),
        Step::Call(initial_call(object, doing, initial)),
        Step::Call(apply_call(object, doing.owner, doing.body().clone(), false)),
    ]
}

/// Changes a thing. Fields that the file leaves to others from now on get a second owner first, at their live value;
/// fields that it takes back lose theirs afterwards.
fn update_steps(object: &ObjectId, doing: &Doing) -> Vec<Step> {
    let initial = doing.resource.map_or(&Value::Null, |resource| &resource.initial);
    let mut left = Value::Null;
    for field in doing.fields.iter().filter(|field| field.after.is_none()) {
        if let (Some(_), Some(before)) = (field.path.find(initial), &field.before) {
            merge(&mut left, &nested(&field.path, before));
        }
    }
    let update = Step::Call(update_call(doing, object));
    if !left.is_null() {
        return vec![Step::Call(initial_call(object, doing, &left)), update];
    }
    if takes_back(doing) {
        return vec![update, Step::Call(initial_call(object, doing, &json!({})))];
    }
    vec![update]
}

/// A tree with one value at a path of keys.
fn nested(path: &FieldPath, value: &Value) -> Value {
    path.segments().iter().rev().fold(value.clone(), |inner, segment| match segment {
        Segment::Key(key) => json!({ key: inner }),
        Segment::Index(_) => json!([inner]),
    })
}

/// Puts a tree into another; values of the second win.
fn merge(target: &mut Value, patch: &Value) {
    match (target, patch) {
        (Value::Object(target), Value::Object(patch)) => {
            for (key, value) in patch {
                merge(target.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (target, patch) => *target = patch.clone(),
    }
}

/// Writes the number of a thing's replicas over whoever wrote it last, and becomes the owner of nothing else. No
/// server-side apply: kube-apiserver 1.36 answers 500 to one of the Scale of a custom resource (seen).
pub(crate) fn scale_call(object: &ObjectId, owner: &Owner, replicas: Value) -> Call {
    scale_as(object, &owner.field_manager(), replicas)
}

/// The same under the name of another field manager.
pub(crate) fn scale_as(object: &ObjectId, manager: &str, replicas: Value) -> Call {
    let body = json!({
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": { "name": object.name, "namespace": object.namespace },
        "spec": { "replicas": replicas },
    });
    let call = applied(format!("{}/scale", object.path()), manager, body, "");
    Call { method: Method::Put, ..call }
}

/// Has an operator do again what it does when it sees an object first: the body holds the status that it acts on, of a
/// kind whose status is ordinary data.
pub(crate) fn mend_call(object: &ObjectId, owner: &Owner, body: Value) -> Call {
    applied(object.path(), &format!("{}:mend", owner.field_manager()), body, "&force=true")
}

/// An apply of nothing but the name: our field manager gives up every field, and what others apply as well stays.
/// Source: apimachinery, `managedfields/internal/stripmeta.go`: a manager without fields loses its entry.
fn forget_call(doing: &Doing, object: &ObjectId) -> Call {
    let live = doing.live.unwrap_or(&Value::Null);
    let mut metadata = json!({ "name": object.name, "uid": live["metadata"]["uid"] });
    if let Some(namespace) = &object.namespace {
        metadata["namespace"] = json!(namespace);
    }
    // Two stacks that leave at once would each leave it to the other: whoever comes second plans again, and deletes it.
    if let Some(version) = live["metadata"]["resourceVersion"].as_str() {
        metadata["resourceVersion"] = json!(version);
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
    Call {
        api: Api::Kubernetes,
        method: Method::Delete,
        path: object.path(),
        body: Some(body),
        late: Vec::new(),
    }
}

/// The steps that nearly all Kubernetes kinds take; `facts` go to the judge.
pub(crate) fn object_program(doing: &Doing, kind: KindId, facts: Value, deadline: u32) -> Vec<Step> {
    let Some(object) = doing.object() else { return Vec::new() };
    let wait = |until| {
        let (identity, facts) = (doing.identity.clone(), facts.clone());
        Step::Await(Await { kind, identity, until, facts, deadline })
    };
    let delete = || Step::Call(delete_call(object, doing.live.unwrap_or(&Value::Null)));
    // What is made once is noted, so that its absence can be told from one that nobody meant.
    let once = doing.resource.filter(|resource| matches!(resource.life, Life::Once { .. }));
    let note = || once.map(|resource| Step::RecordPass { digest: made::digest(resource) });
    let steps = |before: Vec<Step>, middle: Vec<Step>, until| {
        // Noted as soon as it is made: what happens while it is waited for does not make it once more.
        before.into_iter().chain(middle).chain(note()).chain([wait(until)]).collect()
    };
    match doing.action {
        Action::Keep => vec![wait(Until::Still)],
        Action::Create if doing.leaving => {
            steps(vec![wait(Until::Gone)], create_steps(object, doing), Until::Ready)
        }
        Action::Create => steps(Vec::new(), create_steps(object, doing), Until::Ready),
        Action::Update => steps(Vec::new(), update_steps(object, doing), Until::Ready),
        // It has gone already, and is made once more.
        Action::Replace if doing.live.is_none() => {
            steps(Vec::new(), create_steps(object, doing), Until::Ready)
        }
        Action::Replace => {
            steps(vec![delete(), wait(Until::Gone)], create_steps(object, doing), Until::Ready)
        }
        Action::Delete => vec![delete(), wait(Until::Gone)],
        Action::Forget => vec![Step::Call(forget_call(doing, object))],
        Action::Run => Vec::new(),
    }
}

/// What an apply that keeps a thing looks at.
pub fn kept(resource: &Resource, owner: &Owner, live: &Value) -> Option<Await> {
    let steps = (of(resource.kind).program)(&Doing {
        action: Action::Keep,
        identity: &resource.identity,
        resource: Some(resource),
        live: Some(live),
        fields: &[],
        owner,
        inline_pool: None,
        zones: 0,
        leaving: false,
        taking: false,
    });
    steps.into_iter().find_map(|step| match step {
        Step::Await(wait) => Some(wait),
        Step::Call(_) | Step::ReadLog { .. } | Step::RecordPass { .. } => None,
    })
}

/// The address and kind of an object of ours that neither the file nor the record knows.
pub fn known_as(object: &ObjectId) -> (Address, KindId) {
    let (kind, name, namespace) =
        (object.gvk.kind.as_str(), object.name.as_str(), object.namespace.as_deref());
    match kind {
        "DaskCluster" => (Address::of("dask_cluster", name), KindId::DaskCluster),
        "DaskJob" => (Address::of("dask_job", name), KindId::DaskJob),
        "DaskWorkerGroup" => (Address::object("dask_cluster", kind, namespace, name), KindId::DaskGroup),
        "DaskAutoscaler" => (Address::object("dask_cluster", kind, namespace, name), KindId::DaskAutoscaler),
        "Namespace" => (Address::of("namespace", name), KindId::Namespace),
        "DaemonSet" if name == gpu_driver::NAME => {
            (Address::object("gpu_driver", kind, namespace, name), KindId::GpuDriver)
        }
        "CustomResourceDefinition" if name.ends_with(dask_cluster::GROUP) => {
            (Address::object(dask_operator::SECTION, kind, namespace, name), KindId::Definition)
        }
        _ => {
            let kind_name = manifest::kind_of(object);
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

/// What a section says of an object that others own: everything but the labels of our objects.
pub(crate) fn unmarked(mut resource: Resource) -> Resource {
    use crate::resource::{OBJECT_LABEL_MANAGED_BY, OBJECT_LABEL_STACK};
    let labels = resource.body.pointer_mut("/metadata/labels").and_then(Value::as_object_mut);
    if let Some(labels) = labels {
        labels.retain(|key, value| {
            key != OBJECT_LABEL_STACK && !(key == OBJECT_LABEL_MANAGED_BY && *value == "dask-infra")
        });
    }
    if resource.body["metadata"]["labels"] == json!({})
        && let Some(metadata) = resource.body["metadata"].as_object_mut()
    {
        metadata.remove("labels");
    }
    resource
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
