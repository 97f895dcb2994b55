//! Kinds: how resources are compared, how they are changed, and when they are ready.
//!
//! Readiness is a function over the results of a kind's queries, keyed by name, instead of over typed readers: so its tests are
//! JSON snippets. A function that reads an undeclared query fails the apply at once.
//!
//! [`Part`] and [`Neighbor`] are two types because a wait for a deletion reads only the parts. A LIST of everything in a
//! namespace may never become empty, as other users work there.

use std::borrow::Cow;
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
    /// The rank in the order of creation: higher ranks are created later and deleted earlier.
    pub rank: u32,
    /// How desired and live resources are compared.
    pub compare: Compare,
    pub change_steps: fn(&ChangeContext) -> Vec<Step>,
    /// The field of the body that the server stores and does not return. Another field has its digest.
    pub write_only: Option<fn() -> FieldPath>,
    /// Finds a defect of a live resource that no field shows. A resource that would be kept is then updated.
    pub find_defect: fn(&ChangeContext) -> Option<Defect>,
    /// Returns the workers to delete by name when a group shrinks, with their live objects.
    pub deleted_workers: fn(&ChangeContext) -> Vec<(ObjectId, Value)>,
    /// Returns the reads for readiness.
    pub queries: fn(&Await) -> Queries,
    /// Returns the readiness from the results of the queries.
    pub readiness: fn(&Await, &QueryResults) -> Result<Readiness, MissingQuery>,
    /// The condition under which the server removes a deleted resource.
    pub deletion_blocker: DeletionBlocker,
    /// The capacity that a delete frees.
    pub freed_capacity: FreedCapacity,
    /// True if its workers are retired before they stop, so that their data moves to other workers of their Dask cluster.
    pub retires_gracefully: bool,
    /// Returns other kinds that a plan reads in its namespace.
    pub also_read: fn() -> Vec<Gvk>,
    /// True if several stacks can own the same object.
    pub shared: bool,
    /// Returns the line of `status`, from the results of the queries.
    pub status_line: fn(&Await, &QueryResults) -> Result<StatusLine, MissingQuery>,
    /// Returns the address of an owned resource that is neither in the file nor in the record.
    pub address: fn(&ObjectId) -> Address,
    /// Summarizes a desired resource for a row of a plan: number, machine and GPUs first, images last. The address and the kind
    /// are not repeated. Elements may be empty.
    pub plan_summary: fn(&Resource) -> Vec<String>,
    /// Returns the values that the server is expected to choose for a new resource that does not set them.
    pub server_defaults: fn(&Resource) -> Vec<(FieldPath, Value)>,
    pub pods: fn(&Resource) -> PodSource,
    /// Returns the endpoint that `connect` opens.
    pub endpoint: fn(&Resource) -> Option<ConnectTarget>,
    /// Returns the usual duration of creating it, if it is known.
    pub estimate: fn(&ChangeContext) -> Option<DurationEstimate>,
    /// The effect of `stop`.
    pub stop_effect: StopEffect,
    /// The effect of a rolling change on the workload, as plans state it: `workers are restarted`.
    pub rolling_effect: &'static str,
    /// True if it runs to completion, so that `run` can run it again.
    pub runs_to_completion: bool,
    /// True if a provisioning request can be made for its workers.
    pub has_workers: bool,
    /// Returns true if the checks that depend on the resource must run again after this action.
    pub invalidates_checks: fn(Action) -> bool,
    /// True if JSON output shows its Kubernetes kind (`config_map`) instead of its [`KindId`].
    pub shown_by_kubernetes_kind: bool,
    /// Returns how it is scaled; `None` if it has no replica count. The second argument is all resources of the stack.
    pub scale_target: fn(&Resource, &[Resource]) -> Option<ScaleTarget>,
}

impl Kind {
    /// The default values. Readiness reads only the object itself.
    pub const DEFAULT: Self = Self {
        rank: 0,
        compare: Compare::Action,
        change_steps: |_| Vec::new(),
        write_only: None,
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
        address: address_by_name,
        pods: |_| PodSource::None,
        endpoint: |_| None,
        estimate: |_| None,
        stop_effect: StopEffect::Nothing,
        rolling_effect: "nodes or pods are recreated",
        runs_to_completion: false,
        has_workers: false,
        invalidates_checks: |_| false,
        shown_by_kubernetes_kind: false,
        scale_target: |_, _| None,
    };

    /// Returns the fields of a body that the server returns.
    pub fn readable<'b>(&self, body: &'b Value) -> Cow<'b, Value> {
        let Some(path) = self.write_only.map(|path| path()) else { return Cow::Borrowed(body) };
        let mut readable = body.clone();
        let (parent, key) = (path.parent().unwrap_or_default(), path.last_key().unwrap_or_default());
        let mut rest = parent.find(&readable).cloned().unwrap_or_default();
        if let Some(fields) = rest.as_object_mut() {
            fields.remove(key);
            parent.put(&mut readable, rest);
        }
        Cow::Owned(readable)
    }

    /// Returns the readiness of a resource. A readiness function that reads an undeclared query fails at once instead of waiting.
    pub fn readiness(&self, wait: &Await, found: &QueryResults) -> Readiness {
        (self.readiness)(wait, found).unwrap_or_else(|MissingQuery(read)| {
            Readiness::Failed(format!(
                "this is a bug in dask-infra: readiness depends on {read:?}, which was not read"
            ))
        })
    }

    /// Returns the wait that an apply uses to check a resource that it keeps; `None` if there is nothing to wait for.
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

/// A part of a resource. It is deleted with the resource, so a wait for the deletion waits for it, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Itself,
    /// The Dask cluster of a job.
    Cluster,
    /// The Deployment of a scheduler.
    Scheduler,
    /// The scheduler's Service.
    Service,
    /// The group of workers that the Dask operator creates with a cluster.
    Group,
    /// The Deployments of workers.
    Workers,
    /// The pod of a job's program.
    Program,
    /// The resource's pods.
    Pods,
    /// Kueue's Workload of its gang, which has the gang's name.
    Workload,
}

/// Something that the readiness of a resource depends on without being a part of it. It stays when the resource is deleted, and
/// is often not managed by this stack. So a wait for a deletion does not read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Neighbor {
    /// The group whose number of workers an autoscaler writes.
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

/// The name of a query.
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

/// The queries of a resource: its parts, then its neighbors.
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

    /// Returns the parts alone.
    pub fn parts(&self) -> &[(Part, Query)] {
        &self.parts
    }

    /// Returns parts and neighbors.
    pub fn all(&self) -> impl Iterator<Item = (QueryKey, &Query)> {
        let parts = self.parts.iter().map(|(part, query)| (QueryKey::Part(*part), query));
        parts.chain(self.neighbors.iter().map(|(neighbor, query)| (QueryKey::Neighbor(*neighbor), query)))
    }
}

/// Results by query; `null` for an object that does not exist.
pub struct QueryResults<'a>(BTreeMap<QueryKey, &'a Value>);

/// The error for a query that a readiness function reads and its kind does not declare.
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

    /// Creates the results from responses in the order of [`Queries::all`].
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

/// The condition under which the server removes a deleted resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeletionBlocker {
    /// Nothing.
    Nothing,
    /// The Dask operator removes a finalizer, of the resource or of its cluster.
    Operator,
    /// Its contents, the objects of its kind and related ones are deleted first, and may wait for the operator.
    Contents,
}

/// Capacity that the delete of a Kubernetes resource frees. Other changes may wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FreedCapacity {
    /// No capacity that another change waits for.
    Nothing,
    /// Nodes, and the GPUs on them.
    Nodes,
    /// The ownership of a cluster's number of workers: afterwards something else can set it.
    WorkerCount,
}

/// Effects of `stop` on a resource.
#[derive(Clone, Copy)]
pub enum StopEffect {
    /// Stop leaves it: it costs nothing by itself, or other resources need it.
    Nothing,
    /// It is deleted, and `start` creates it again.
    Deletes,
    /// It is deleted if this function returns true for the live object, because it has not ended. A job that has ended uses no
    /// node, and `start` would run it again.
    DeletesWhile(fn(&Value) -> bool),
    /// It stays without nodes: the function changes the desired body.
    Empties(fn(&mut Value)),
}

impl StopEffect {
    /// Returns true if `stop` can delete the resource instead of only emptying it.
    pub fn deletes(self) -> bool {
        matches!(self, Self::Deletes | Self::DeletesWhile(_))
    }
}

/// Ways to find the pods of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodSource {
    /// A LIST of the pods, or a GET of a single pod.
    Known(Query),
    /// The query reads the live object, and [`crate::kubernetes::pods::selected`] returns the LIST for its selector.
    FromObject(Query),
    /// The resource has no pods.
    None,
}

/// Kinds of servers behind an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EndpointKind {
    /// A Dask scheduler, with a port for clients and a dashboard.
    Scheduler,
    /// A Jupyter server.
    Notebook,
}

/// An endpoint that `connect` can open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectTarget {
    /// The kind of server behind it.
    pub kind: EndpointKind,
    /// The Service of the server.
    pub service: ObjectId,
}

/// Returns the address of an object in a section.
pub fn address_in(section: &str, object: &ObjectId) -> Address {
    Address::object(section, &object.gvk.kind, object.namespace.as_deref(), &object.name)
}

/// Returns the address of a live object from its kind and name alone. An object of the Dask operator gets the operator's section.
pub fn address_by_name(object: &ObjectId) -> Address {
    let operator = object.name.starts_with(OPERATOR_NAME);
    address_in(if operator { DASK_OPERATOR } else { "object" }, object)
}

/// How desired and live resources are compared.
pub enum Compare {
    /// Compares field by field under rules. A field without a rule is an error.
    Gke(Message, &'static [&'static Rule]),
    /// Compares by the stack's field manager and the live values; the function returns the effect of changing a
    /// field.
    Kubernetes(fn(&FieldPath) -> (Effect, Option<&'static str>)),
    /// Does not compare: the resource is an action.
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
    /// The reason for the effect.
    pub note: Option<&'static str>,
}

impl Rule {
    /// Returns the field's path in a body.
    pub fn path(&self) -> FieldPath {
        self.path.parse().unwrap_or_default()
    }
}

/// How a field of the GKE API is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// No call changes it.
    Never,
    /// A field of the update request, sent together with other fields that change only metadata.
    Together(&'static str),
    /// A field of the update request, sent together with other fields whose changes recreate the nodes, so that the nodes are
    /// recreated only once.
    Rolling(&'static str),
    /// A field of the update request, sent alone.
    Alone(&'static str),
    /// A method of its own, such as `setManagement`, which takes the part of the body that the field is in.
    Method(&'static str),
    /// The request that `schemas/gke-fields.tsv` has for the field.
    FromSchema(GkeCall),
}

/// Ways of comparing. In all of them a number and its string are equal (the API writes int64 as strings), and so are a missing
/// field and its zero value (the API leaves zero values out).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldComparison {
    /// Compares the values exactly.
    Exact,
    /// Ignores case.
    CaseInsensitive,
    /// A list in any order.
    Set,
    /// A list in any order; entries that the stack added are removed if they are no longer desired.
    OwnItems,
    /// Entries of a map that the stack added.
    OwnEntries,
    /// Google Cloud labels of nodes that the stack added. GKE's own labels are not sent.
    OwnLabels,
    /// Taints that the stack added, by key and effect.
    OwnTaints,
    /// The last segment of a path: `default` is `projects/P/global/networks/default`.
    LastSegment,
    /// GPUs: type, count and partition are fixed, driver and sharing are not.
    Accelerators,
    /// A minimum version: `1.33` matches every patch of 1.33 and everything newer. Words such as `latest` are not compared.
    MinVersion,
    /// A range of addresses, or the prefix length of a range that GKE chooses: `/20`.
    CidrOrPrefixLength,
    /// Set at creation, not compared later.
    AtCreation,
}

/// The facts from which a kind computes the steps of a change.
pub struct ChangeContext<'a> {
    /// The action of the change.
    pub action: Action,
    pub identity: &'a Identity,
    /// The desired resource; `None` for deletes.
    pub resource: Option<&'a Resource>,
    pub live: Option<&'a Value>,
    /// The objects in the cluster, if they were read.
    pub objects: Option<&'a BTreeMap<ObjectId, Value>>,
    /// The fields that differ.
    pub fields: &'a [FieldChange],
    pub owner: &'a Owner,
    /// The body of the node pool that is created with the cluster, for the change of the cluster and for that of the pool.
    pub inline_pool: Option<&'a Value>,
    /// The number of zones that a pool's nodes are in when their count is set; 0 if only GKE knows.
    pub zones: usize,
    /// The nodes of a live pool over all zones, if they are known.
    pub nodes: Option<u32>,
    /// True if an object of the same name is terminating, or is deleted with its owner: it must be gone first.
    pub terminating: bool,
    /// True if it, or a field of it, is adopted from another tool, with approval.
    pub adopting: bool,
    /// Field managers whose ownership ends: other stacks' when the object is adopted from them, the stack's own when
    /// it is released.
    pub removed_managers: &'a [String],
    /// The defect that the change repairs.
    pub defect: Option<&'a Defect>,
    /// The longest wait, in seconds, for an idle scheduler before workers are deleted.
    pub idle_wait_seconds: Option<u32>,
}

/// A problem of a live resource that its fields do not show: objects that its operator creates are missing or surplus.
#[derive(Clone, Debug)]
pub struct Defect {
    /// The text for people.
    pub why: String,
    /// The steps that repair it, before all others.
    pub steps: Vec<Step>,
    /// True if nothing else differs, so that the resource itself is not written.
    pub repair_only: bool,
    /// True if only a replacement repairs it. That needs the approval of a replacement.
    pub needs_replace: bool,
}

impl Defect {
    /// Creates a defect that an update of the resource, or its steps, repairs.
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
            removed_managers: &[],
            defect: None,
            idle_wait_seconds: None,
        }
    }

    /// Returns the desired body, `null` for deletes.
    pub fn body(&self) -> &Value {
        self.resource.map_or(&Value::Null, |resource| &resource.body)
    }

    /// Returns the object, for Kubernetes kinds.
    pub fn object(&self) -> Option<&ObjectId> {
        self.identity.object()
    }
}

/// Returns the query that reads the object itself.
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
