//! Kinds: how their things are compared, changed and judged.
//!
//! Readiness is a function over the results of a kind's queries, each found by its name, and not over typed readers: its tests
//! are JSON snippets. A result that the kind did not ask for fails the apply at once.
//!
//! [`Part`] and [`Neighbor`] are two types: a wait until a thing is gone reads its parts alone. A list of everything in a
//! namespace is never empty where others work.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::scale::ScaleTarget;
use crate::scope::{DASK_OPERATOR, OPERATOR_NAME};
use crate::status::StatusLine;
use model::address::{Address, FieldPath};
use model::resource::{
    Action, Api, Await, DurationEstimate, Effect, FieldChange, Gvk, Identity, ObjectId, Owner, Query,
    Readiness, Resource, Step,
};
use model::schema::{GkeCall, Message};

/// The static description of a kind.
pub struct Kind {
    /// The place in the order of making: what has a higher rank is made later and deleted earlier.
    pub rank: u32,
    /// How desired and live are compared.
    pub compare: Compare,
    pub change_steps: fn(&ChangeContext) -> Vec<Step>,
    /// Finds a defect of a live one that no field shows. One that would be kept is then updated.
    pub find_defect: fn(&ChangeContext) -> Option<Defect>,
    /// Workers to delete by name when a group shrinks, with their live objects.
    pub deleted_workers: fn(&ChangeContext) -> Vec<(ObjectId, Value)>,
    /// Reads that readiness is judged by.
    pub queries: fn(&Await) -> Queries,
    /// Judges readiness by what the queries found.
    pub readiness: fn(&Await, &QueryResults) -> Result<Readiness, MissingQuery>,
    /// The condition for the server to remove one that is deleted.
    pub deletion_blocker: DeletionBlocker,
    /// The capacity that one frees when it is deleted.
    pub freed_capacity: FreedCapacity,
    /// True if its workers are retired before they stop, so that others of their Dask cluster get their data.
    pub retires_gracefully: bool,
    /// Returns the other kinds that are read in its namespace.
    pub also_read: fn() -> Vec<Gvk>,
    /// True if several stacks of one cluster may have the same object.
    pub shared: bool,
    /// Returns the line of `status`, from what the queries found.
    pub status_line: fn(&Await, &QueryResults) -> Result<StatusLine, MissingQuery>,
    /// Returns the address of one that the stack owns and that neither the file nor the record knows.
    pub address: fn(&ObjectId) -> Address,
    /// Summarizes a desired one for a row of a plan: number, machine and GPUs first, images last. The address and the
    /// kind are not repeated. Parts may be empty.
    pub plan_summary: fn(&Resource) -> Vec<String>,
    /// Returns the values that the server is expected to choose for a new one that does not give them.
    pub server_defaults: fn(&Resource) -> Vec<(FieldPath, Value)>,
    pub pods: fn(&Resource) -> PodSource,
    /// Where one can connect to.
    pub endpoint: fn(&Resource) -> Option<Endpoint>,
    /// Returns how long creating it takes, if something is known about that.
    pub estimate: fn(&ChangeContext) -> Option<DurationEstimate>,
    /// The effect of `stop` on one.
    pub stop_effect: StopEffect,
    /// The effect of a rolling change on what runs in it.
    pub rolling_effect: &'static str,
    /// True if it runs to completion, so that `run` can run it again.
    pub runs_to_completion: bool,
    /// True if it has workers that nodes can be requested for.
    pub has_workers: bool,
    /// Returns true if this action invalidates the checks that depend on it.
    pub invalidates_checks: fn(Action) -> bool,
    /// True if it has no name of its own here, but that of its Kubernetes kind.
    pub uses_kubernetes_name: bool,
    /// Returns how it is scaled, among all resources of the stack; `None` if it has no replica count.
    pub scale_target: fn(&Resource, &[Resource]) -> Option<ScaleTarget>,
}

impl Kind {
    /// Defaults: its readiness reads only its own object.
    pub const DEFAULT: Self = Self {
        rank: 0,
        compare: Compare::Action,
        change_steps: |_| Vec::new(),
        find_defect: |_| None,
        deleted_workers: |_| Vec::new(),
        queries: own_object_query,
        readiness: |_, _| Ok(Readiness::Ready),
        deletion_blocker: DeletionBlocker::Nothing,
        freed_capacity: FreedCapacity::Nothing,
        retires_gracefully: false,
        also_read: Vec::new,
        shared: false,
        status_line: |_, _| Ok(StatusLine::default()),
        plan_summary: |_| Vec::new(),
        server_defaults: |_| Vec::new(),
        address: unnamed,
        pods: |_| PodSource::None,
        endpoint: |_| None,
        estimate: |_| None,
        stop_effect: StopEffect::Nothing,
        rolling_effect: "nodes or pods are recreated",
        runs_to_completion: false,
        has_workers: false,
        invalidates_checks: |_| false,
        uses_kubernetes_name: false,
        scale_target: |_, _| None,
    };

    /// Returns how ready a thing is. A readiness function that reads an undeclared query fails at once instead of
    /// waiting.
    pub fn readiness(&self, wait: &Await, found: &QueryResults) -> Readiness {
        (self.readiness)(wait, found).unwrap_or_else(|MissingQuery(read)| {
            Readiness::Failed(format!(
                "this is a bug in dask-infra: readiness depends on {read:?}, which was not read"
            ))
        })
    }

    /// Returns the wait of an apply that keeps the resource.
    pub fn keep_wait(&self, resource: &Resource, owner: &Owner, live: &Value) -> Option<Await> {
        let steps = (self.change_steps)(&ChangeContext {
            resource: Some(resource),
            live: Some(live),
            ..ChangeContext::of(Action::Keep, &resource.identity, owner)
        });
        steps.into_iter().find_map(|step| match step {
            Step::Await(wait) => Some(wait),
            Step::Call(_) | Step::ReadLog { .. } | Step::RecordCompletion { .. } => None,
        })
    }
}

/// A piece of a thing. It is deleted with the thing, so a wait until the thing is gone waits for it, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Itself,
    /// The Dask cluster of a job.
    Cluster,
    /// The Deployment of a scheduler.
    Scheduler,
    /// The Service in front of it.
    Service,
    /// The group of workers that the Dask operator creates with a cluster.
    Group,
    /// The Deployments of workers.
    Workers,
    /// The pod of a job's program.
    Program,
    /// The thing's pods.
    Pods,
    /// Kueue's Workload of its gang, which has the gang's name.
    Workload,
}

/// Something that a thing is judged by and that is no piece of it. It stays when the thing is deleted, and most of it belongs
/// to other work: no wait until a thing is gone reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Neighbor {
    /// The group of workers whose number an autoscaler writes.
    ScaledGroup,
    /// All pods of the Dask cluster that a group belongs to.
    ClusterPods,
    /// The numbers of workers and tasks that the scheduler reports.
    Counts,
    /// The DaskAutoscalers of its namespace.
    Autoscalers,
    Nodes,
    /// The resource whose pods consume the requested nodes.
    Consumer,
    /// All pods in its namespace.
    AllPods,
    /// All of Kueue's Workloads in its namespace.
    Workloads,
    /// All ProvisioningRequests in its namespace.
    ProvisioningRequests,
}

/// Something that a look at a thing reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QueryKey {
    Part(Part),
    Neighbor(Neighbor),
}

impl From<Part> for QueryKey {
    fn from(part: Part) -> Self {
        Self::Part(part)
    }
}

impl From<Neighbor> for QueryKey {
    fn from(neighbor: Neighbor) -> Self {
        Self::Neighbor(neighbor)
    }
}

/// The reads of a look at a thing: its parts, then its neighbors.
#[derive(Clone, Debug, Default)]
pub struct Queries {
    parts: Vec<(Part, Query)>,
    neighbors: Vec<(Neighbor, Query)>,
}

impl Queries {
    /// Adds a part.
    pub fn part(&mut self, part: Part, query: Query) {
        self.parts.push((part, query));
    }

    /// Adds a neighbor.
    pub fn neighbor(&mut self, neighbor: Neighbor, query: Query) {
        self.neighbors.push((neighbor, query));
    }

    /// The parts alone.
    pub fn parts(&self) -> &[(Part, Query)] {
        &self.parts
    }

    /// Parts and neighbors.
    pub fn all(&self) -> impl Iterator<Item = (QueryKey, &Query)> {
        let parts = self.parts.iter().map(|(part, query)| (QueryKey::Part(*part), query));
        parts.chain(self.neighbors.iter().map(|(neighbor, query)| (QueryKey::Neighbor(*neighbor), query)))
    }
}

/// Results of a look, by read; `null` is a thing that does not exist.
pub struct QueryResults<'a>(BTreeMap<QueryKey, &'a Value>);

/// A query that a readiness function needs and its kind does not declare.
#[derive(Debug, PartialEq)]
pub struct MissingQuery(pub QueryKey);

impl<'a> QueryResults<'a> {
    /// Creates the results from pairs of query and value.
    pub fn of<R: Into<QueryKey>>(reads: impl IntoIterator<Item = (R, &'a Value)>) -> Self {
        Self(reads.into_iter().map(|(read, value)| (read.into(), value)).collect())
    }

    /// Adds a result.
    #[must_use]
    pub fn with(mut self, read: impl Into<QueryKey>, value: &'a Value) -> Self {
        self.0.insert(read.into(), value);
        self
    }

    /// Answers to queries, in the order of [`Queries::all`].
    pub fn answers(queries: &Queries, answers: &'a [Value]) -> Self {
        Self::of(queries.all().map(|(read, _)| read).zip(answers))
    }

    /// Returns the result of a query that is always declared.
    ///
    /// # Errors
    /// The query was not declared.
    pub fn get(&self, read: impl Into<QueryKey>) -> Result<&'a Value, MissingQuery> {
        let read = read.into();
        self.find(read).ok_or(MissingQuery(read))
    }

    /// Returns the result of a query that is not always declared.
    pub fn find(&self, read: impl Into<QueryKey>) -> Option<&'a Value> {
        self.0.get(&read.into()).copied()
    }

    /// Returns all results.
    pub fn all(&self) -> impl Iterator<Item = &'a Value> + '_ {
        self.0.values().copied()
    }

    /// Returns the object itself; `null` for actions.
    pub fn own_object(&self) -> &'a Value {
        self.find(Part::Itself).unwrap_or(&Value::Null)
    }
}

/// Conditions for the server to remove a deleted thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeletionBlocker {
    /// Nothing.
    Nothing,
    /// The Dask operator removes a finalizer, of the thing or of its cluster.
    Operator,
    /// Things in it, of its kind or beside it are deleted first, and may wait for the operator.
    Contents,
}

/// Capacity that a thing in Kubernetes frees when it is deleted, so that others wait for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreedCapacity {
    /// Nothing that is scarce.
    Nothing,
    /// Nodes, and the GPUs on them.
    Nodes,
    /// The number of workers of a cluster.
    WorkerCount,
}

/// Effects of `stop` on a thing.
#[derive(Clone, Copy)]
pub enum StopEffect {
    /// It costs nothing by itself, or others need it.
    Nothing,
    /// It is deleted, and `start` creates it again.
    Deletes,
    /// It is deleted, as long as this returns true for the live one: it has not ended. One that has ended holds no node, and would run
    /// again.
    DeletesWhile(fn(&Value) -> bool),
    /// It stays with nothing in it: this writes that into a desired body.
    Empties(fn(&mut Value)),
}

impl StopEffect {
    /// Returns true if a thing is deleted, and not only emptied.
    pub fn deletes(self) -> bool {
        matches!(self, Self::Deletes | Self::DeletesWhile(_))
    }
}

/// Where to find the pods of a thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodSource {
    /// A LIST of them, or the one.
    Known(Query),
    /// The live object says it; [`crate::kubernetes::pods::selected`] reads it.
    FromObject(Query),
    /// It has none.
    None,
}

/// Kinds of servers behind an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EndpointKind {
    /// A Dask scheduler: clients speak to it, its dashboard shows what it does.
    Scheduler,
    /// A Jupyter server.
    Notebook,
}

/// Where one can connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The kind of server behind it.
    pub kind: EndpointKind,
    /// The Service in front of it.
    pub service: ObjectId,
}

/// An object by the section that made it.
pub fn address_in(section: &str, object: &ObjectId) -> Address {
    Address::object(section, &object.gvk.kind, object.namespace.as_deref(), &object.name)
}

/// Returns the address of an object of which only the name is known. An operator's object has the operator's section.
pub fn unnamed(object: &ObjectId) -> Address {
    let operator = object.name.starts_with(OPERATOR_NAME);
    address_in(if operator { DASK_OPERATOR } else { "object" }, object)
}

/// How desired and live are compared.
pub enum Compare {
    /// Field by field under rules; fields without a rule are refused.
    Gke(Message, &'static [&'static Rule]),
    /// Compares by the stack's field manager and the live values; the function returns the effect of changing a
    /// field.
    Kubernetes(fn(&FieldPath) -> (Effect, Option<&'static str>)),
    /// Not at all: an action.
    Action,
}

/// One row of a table of rules.
pub struct Rule {
    /// The field, as printed: `config.machineType`.
    pub path: &'static str,
    /// How it is compared.
    pub comparison: FieldComparison,
    /// The effect of changing it.
    pub effect: Effect,
    /// The call that changes it.
    pub update: Update,
    /// Why the effect is what it is.
    pub note: Option<&'static str>,
}

impl Rule {
    /// The field's place in a body.
    pub fn path(&self) -> FieldPath {
        self.path.parse().unwrap_or_default()
    }
}

/// How a field of the GKE API is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// No call changes it.
    Never,
    /// A field of the update request, sent together with others that change only metadata.
    Together(&'static str),
    /// A field of the update request, sent together with others that recreate the nodes, so that they are recreated
    /// once.
    Rolling(&'static str),
    /// A field of the update request, sent alone.
    Alone(&'static str),
    /// A method of its own, `setManagement`, which takes the part of the body that the field is in.
    Method(&'static str),
    /// The request that `schemas/gke-fields.tsv` has for the field.
    FromSchema(GkeCall),
}

/// Ways of comparing. In all of them a number and its text are the same (the API writes int64 as text),
/// and so are an absent field and its zero value (the API leaves zero values out).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldComparison {
    /// Compares the values as they are.
    Exact,
    /// Ignores case.
    CaseInsensitive,
    /// A list in any order.
    Set,
    /// A list in any order, of which what we put in goes when it is no longer said.
    OwnItems,
    /// Entries of a map that we put in.
    OwnEntries,
    /// Entries of the Google Cloud labels of nodes that we put in; GKE's own are not sent.
    OwnLabels,
    /// Taints that we put in, by key and effect.
    OwnTaints,
    /// The last part of a path: `default` is `projects/P/global/networks/default`.
    LastSegment,
    /// GPUs: type, count and partition are fixed, driver and sharing are not.
    Accelerators,
    /// A version that is reached or passed: `1.33` is any patch of it and everything newer. Of words like `latest` nothing
    /// is known.
    MinVersion,
    /// A range of addresses, or the prefix length of one that GKE chooses: `/20`.
    CidrOrPrefixLength,
    /// Set at creation, not compared later.
    AtCreation,
}

/// The input of a kind for the steps of a change.
pub struct ChangeContext<'a> {
    /// The action of the change.
    pub action: Action,
    pub identity: &'a Identity,
    /// The desired resource; `None` for deletes.
    pub resource: Option<&'a Resource>,
    pub live: Option<&'a Value>,
    /// The objects in the cluster, where they were read.
    pub objects: Option<&'a BTreeMap<ObjectId, Value>>,
    /// The fields that differ.
    pub fields: &'a [FieldChange],
    pub owner: &'a Owner,
    /// The node pool that is created with the cluster; for that pool its own body.
    pub inline_pool: Option<&'a Value>,
    /// The number of zones that a pool's nodes are in when their count is set; 0 if only GKE knows.
    pub zones: usize,
    /// The nodes of a live pool over all zones, where that is known.
    pub nodes: Option<u32>,
    /// True if something of the same name is being deleted, or is deleted with its owner, and must be gone first.
    pub terminating: bool,
    /// True if it, or a field of it, is adopted from another tool, with approval.
    pub adopting: bool,
    /// Field managers whose ownership ends: other stacks' when the object is adopted from them, the stack's own when
    /// it is released.
    pub released: &'a [String],
    /// The defect that the change mends.
    pub defect: Option<&'a Defect>,
    /// The longest wait, in seconds, for an idle scheduler before workers are deleted.
    pub idle_wait_seconds: Option<u32>,
}

/// A problem of a thing that is as the file says: what others made for it is lost, or too much.
#[derive(Clone, Debug)]
pub struct Defect {
    /// In words.
    pub why: String,
    /// The steps that repair it, before all others.
    pub steps: Vec<Step>,
    /// True if nothing else of the thing differs, so that the thing itself is not written.
    pub repair_only: bool,
    /// True if only a replacement repairs it, with the approval that a replacement needs.
    pub needs_replace: bool,
}

impl Defect {
    /// Creates a defect that an update of the thing, or its steps, repairs.
    pub fn of(context: &ChangeContext, why: String) -> Self {
        Self { why, steps: Vec::new(), repair_only: context.action == Action::Keep, needs_replace: false }
    }
}

impl<'a> ChangeContext<'a> {
    /// Creates a context in which nothing is desired and nothing is live.
    pub fn of(action: Action, identity: &'a Identity, owner: &'a Owner) -> Self {
        Self {
            action,
            identity,
            resource: None,
            live: None,
            objects: None,
            fields: &[],
            owner,
            inline_pool: None,
            zones: 0,
            nodes: None,
            terminating: false,
            adopting: false,
            released: &[],
            defect: None,
            idle_wait_seconds: None,
        }
    }

    /// The desired body, `null` for deletes.
    pub fn body(&self) -> &Value {
        self.resource.map_or(&Value::Null, |resource| &resource.body)
    }

    /// The object, for Kubernetes kinds.
    pub fn object(&self) -> Option<&ObjectId> {
        self.identity.object()
    }
}

/// The query that reads the object itself.
pub(crate) fn own_object_query(wait: &Await) -> Queries {
    let mut queries = Queries::default();
    let (api, path) = match &wait.identity {
        Identity::Object(object) => (Api::Kubernetes, object.path()),
        Identity::Cluster(name) => (Api::Gke, format!("/v1/{}", name.path())),
        Identity::NodePool { cluster, pool } => (Api::Gke, format!("/v1/{}", cluster.pool_path(pool))),
        Identity::Check(_) => return queries,
    };
    queries.part(Part::Itself, Query { api, path });
    queries
}
