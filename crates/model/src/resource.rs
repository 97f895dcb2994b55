//! The shared vocabulary: names, desired state, live state, changes.
//! Values only; nothing here reads, writes or decides.

use std::collections::HashMap;
use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::address::{Address, FieldPath};
use crate::secrets;

mod capacity;
mod endpoint;
mod json_text;
mod kind;
mod lowering;
mod readiness;
mod target;
mod world;

pub use capacity::{CapacityOption, CapacityOptions, Fallback, FallbackStep};
pub use endpoint::Endpoint;
pub use json_text::JsonText;
pub use kind::{KindId, RecordedKind};
pub use lowering::Lowered;
pub use readiness::{Progress, Queued, Readiness};
pub use target::{Host, HostConnection, Target};
pub use world::{DeletionScope, OtherClusters, World, drop_managed_fields};

/// A GKE cluster by its API coordinates.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ClusterName {
    /// The project's id.
    pub project: String,
    /// Zone or region.
    pub location: String,
    pub cluster: String,
}

impl ClusterName {
    /// `projects/P/locations/L`.
    pub fn parent(&self) -> String {
        format!("projects/{}/locations/{}", self.project, self.location)
    }

    /// `projects/P/locations/L/clusters/C`.
    pub fn path(&self) -> String {
        format!("{}/clusters/{}", self.parent(), self.cluster)
    }

    /// `projects/P/locations/L/clusters/C/nodePools/N`.
    pub fn pool_path(&self, pool: &str) -> String {
        format!("{}/nodePools/{pool}", self.path())
    }
}

/// A kind of Kubernetes object as its API serves it.
///
/// Two kinds are equal if group and kind are equal: versions are views of the same objects. So maps with a kind or an
/// [`ObjectId`] as the key (worlds, records, plans) contain an object once, in whatever version it was listed. Version and plural
/// are only for paths. A map keeps the first key that was inserted: if the version matters, take the path from the value's own
/// id.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Gvk {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version: `v1`. Not part of the identity.
    pub version: String,
    /// The kind: `DaemonSet`.
    pub kind: String,
    /// The plural in paths: `daemonsets`. Not part of the identity.
    pub plural: String,
}

impl PartialEq for Gvk {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Gvk {}

impl PartialOrd for Gvk {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Gvk {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (&self.group, &self.kind).cmp(&(&other.group, &other.kind))
    }
}

impl std::hash::Hash for Gvk {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (&self.group, &self.kind).hash(state);
    }
}

/// Creates a kind.
pub fn gvk(group: &str, version: &str, kind: &str, plural: &str) -> Gvk {
    Gvk { group: group.into(), version: version.into(), kind: kind.into(), plural: plural.into() }
}

impl Gvk {
    /// `v1` or `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.clone() } else { format!("{}/{}", self.group, self.version) }
    }

    /// Returns the path of all objects of the kind: `/apis/apps/v1/namespaces/N/daemonsets`; without a namespace, those of the
    /// whole cluster.
    pub fn collection(&self, namespace: Option<&str>) -> String {
        let root = if self.group.is_empty() {
            format!("/api/{}", self.version)
        } else {
            format!("/apis/{}/{}", self.group, self.version)
        };
        match namespace {
            Some(namespace) => format!("{root}/namespaces/{namespace}/{}", self.plural),
            None => format!("{root}/{}", self.plural),
        }
    }
}

/// Returns a text percent-encoded for a query or a part of a URL. RFC 3986's unreserved characters stay.
pub fn encoded(text: &str) -> String {
    const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    utf8_percent_encode(text, RESERVED).to_string()
}

/// One Kubernetes object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectId {
    /// Its kind.
    pub gvk: Gvk,
    /// Its namespace; `None` for cluster-wide kinds.
    pub namespace: Option<String>,
    pub name: String,
}

impl ObjectId {
    /// Returns the object's path in the Kubernetes API.
    pub fn path(&self) -> String {
        format!("{}/{}", self.gvk.collection(self.namespace.as_deref()), self.name)
    }
}

/// `DaemonSet kube-system/nvidia-driver-installer`.
impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.gvk.kind, self.name),
            None => write!(f, "{} {}", self.gvk.kind, self.name),
        }
    }
}

/// The name of a resource in its API. It decides what is the same resource; the address does not.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Identity {
    /// A GKE cluster.
    Cluster(ClusterName),
    /// A node pool of a GKE cluster.
    NodePool {
        cluster: ClusterName,
        /// Its name.
        pool: String,
    },
    /// A Kubernetes object of the stack's cluster.
    Object(ObjectId),
    /// A check, which leaves no resource.
    Check(Address),
}

impl Identity {
    /// Returns the object of a Kubernetes resource.
    pub fn object(&self) -> Option<&ObjectId> {
        match self {
            Self::Object(object) => Some(object),
            Self::Cluster(_) | Self::NodePool { .. } | Self::Check(_) => None,
        }
    }

    /// Returns the live name of a node pool.
    pub fn pool(&self) -> Option<&str> {
        match self {
            Self::NodePool { pool, .. } => Some(pool),
            Self::Cluster(_) | Self::Object(_) | Self::Check(_) => None,
        }
    }
}

/// The address of the resource.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster(name) => write!(f, "GKE cluster {}", name.cluster),
            Self::NodePool { pool, .. } => write!(f, "node pool {pool}"),
            Self::Object(object) => object.fmt(f),
            Self::Check(address) => address.fmt(f),
        }
    }
}

/// Resources by identity. The map is only for lookups, as it has no order.
pub type ByIdentity<'a> = HashMap<&'a Identity, &'a Resource>;

/// Returns the resources by identity; of two with the same identity, the first.
pub fn by_identity(resources: &[Resource]) -> ByIdentity<'_> {
    resources.iter().rev().map(|resource| (&resource.identity, resource)).collect()
}

/// One desired resource.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Resource {
    pub address: Address,
    pub identity: Identity,
    /// Its kind in this program.
    pub kind: KindId,
    /// The desired state: JSON with the API's own field names.
    pub body: Value,
    /// Create-only fields: set at creation, and owned by other tools from then on. A tree like `body`; `null` if there are none.
    #[serde(rename = "initial", default, skip_serializing_if = "Value::is_null")]
    pub create_only: Value,
    /// The path in the stack file that asks for it.
    pub origin: FieldPath,
    /// Paths in `body`, each with the path in the stack file that its value comes from; the longest matching prefix
    /// counts.
    #[serde(rename = "origins", default, skip_serializing_if = "Vec::is_empty")]
    pub provenance: Vec<(FieldPath, FieldPath)>,
    /// Addresses or sections whose changes must be done first.
    #[serde(rename = "follows", default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<Address>,
    /// True if it must not be deleted or replaced.
    #[serde(default)]
    pub protect: bool,
    /// When it is recreated after it is gone.
    #[serde(rename = "life", default, skip_serializing_if = "Recreation::is_always")]
    pub recreation: Recreation,
}

/// Rules for recreating a resource that is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Recreation {
    /// Whenever it is gone, as long as the file has it.
    #[default]
    #[serde(rename = "kept")]
    Always,
    /// Never, once it was created, until its section changes or `--replace` names it.
    Once {
        /// The longest time, in seconds, that an apply waits for its end; `None` if it does not wait.
        #[serde(rename = "follow", default, skip_serializing_if = "Option::is_none")]
        timeout: Option<u32>,
    },
}

impl Recreation {
    pub fn is_always(&self) -> bool {
        *self == Self::Always
    }
}

impl Resource {
    /// Returns the path in the stack file from which a field of `body` comes. If only a parent of the field has an origin, the rest of
    /// the path is appended to it. The file may lack such a path; [`crate::source::Sources`] then uses the nearest one.
    pub fn origin_of(&self, path: &FieldPath) -> FieldPath {
        let known = self
            .provenance
            .iter()
            .filter(|(place, _)| place.contains(path))
            .max_by_key(|(place, _)| place.segments().len());
        let Some((place, origin)) = known else { return self.origin.clone() };
        let below = &path.segments()[place.segments().len()..];
        origin.segments().iter().chain(below).cloned().collect()
    }
}

/// A resource that is managed elsewhere (`manage = false`): read, compared and relied on, never written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct External {
    /// The resource. Its body contains only what the section sets.
    pub resource: Resource,
    /// The relation of the stack to it.
    pub role: Role,
}

/// The usual seconds until a resource is created and ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DurationEstimate {
    /// When it goes fast.
    pub least: u32,
    /// When it goes slowly.
    pub most: u32,
}

impl DurationEstimate {
    /// Creates the estimate that it takes as long as last time.
    pub fn again(seconds: u32) -> Self {
        Self { least: seconds, most: seconds }
    }
}

/// `3–9 min`, `45 s`, `18 s–2 min`.
impl fmt::Display for DurationEstimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let minutes = |seconds: u32| (seconds + 30) / 60;
        match (self.least, self.most) {
            (least, most @ ..90) if least == most => write!(f, "{most} s"),
            (least, most @ ..90) => write!(f, "{least}–{most} s"),
            (least @ 1..30, most) => write!(f, "{least} s–{} min", minutes(most)),
            (least, most) if minutes(least) == minutes(most) => write!(f, "{} min", minutes(most)),
            (least, most) => write!(f, "{}–{} min", minutes(least), minutes(most)),
        }
    }
}

impl std::ops::Add for DurationEstimate {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { least: self.least.saturating_add(other.least), most: self.most.saturating_add(other.most) }
    }
}

/// Relations of a stack to an external resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The stack needs it: it must exist.
    Needed,
    /// It belongs to something that the stack needs, and is left alone.
    Spared,
}

/// Effects of changing a field in the real world.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Changed in place; nothing restarts.
    InPlace,
    /// Nodes or pods are recreated, some at a time.
    Rolling,
    /// The resource must be deleted and recreated.
    Replace,
    /// Read only when the resource is created: an edit has no effect.
    Ignored,
    /// Unknown: the change is refused unless it is approved.
    Unknown,
}

/// A field that differs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FieldChange {
    /// The path in the body.
    pub path: FieldPath,
    /// The live value; `None` if there is none.
    pub before: Option<Value>,
    /// The desired value; `None` if the field is released.
    pub after: Option<Value>,
    /// The effect of the change.
    pub effect: Effect,
    /// The reason for the effect, in a few words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The field manager that changed a field owned by the stack, and when (RFC 3339 time).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drift: Option<(String, String)>,
    /// True if the values are secret, by the name of the field.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub secret: bool,
}

impl FieldChange {
    /// Returns the desired number, if it is less than the live one.
    pub fn falls_to(&self) -> Option<u64> {
        let [before, after] = [&self.before, &self.after].map(|side| side.as_ref().and_then(Value::as_u64));
        after.filter(|after| before.is_some_and(|before| before > *after))
    }

    /// Returns the live and the desired value as people and programs may see them.
    pub fn shown(&self) -> (Option<Value>, Option<Value>) {
        let shown = |value: &Option<Value>| {
            let value = value.as_ref()?;
            let hidden = self.secret && !value.is_null() && *value != "";
            Some(if hidden { secrets::HIDDEN.into() } else { secrets::masked(value) })
        };
        (shown(&self.before), shown(&self.after))
    }
}

/// Kinds of changes to a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Leave it as it is.
    Keep,
    /// Create it.
    Create,
    /// Change it in place.
    Update,
    /// Delete it and recreate it.
    Replace,
    Delete,
    /// Release it: end the stack's ownership, and leave it to the other stacks that use it.
    Forget,
    /// Run a check.
    Run,
}

impl Action {
    /// Returns true if the action creates a new object.
    pub fn creates(self) -> bool {
        matches!(self, Self::Create | Self::Replace)
    }
}

/// The API that a call goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Api {
    /// The GKE API; paths begin with `/v1/`.
    Gke,
    /// The Compute Engine API; paths begin with `/compute/v1/`.
    Compute,
    /// The Resource Manager API, which tests permissions on a project; paths begin with `/v1/projects/`.
    Projects,
    /// The Organization Policy API; paths begin with `/v2/projects/`.
    Policies,
    /// The Cloud Billing API, which has prices; paths begin with `/v1/services/` or `/v1beta/billingAccounts/`.
    Billing,
    /// The Kubernetes API of the stack's cluster; paths begin with `/api`.
    Kubernetes,
}

/// The verb of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Method {
    /// Read.
    Get,
    /// Create, or a custom method.
    Post,
    /// Update.
    Put,
    /// Server-side apply, in the Kubernetes API.
    Patch,
    /// A merge patch in the Kubernetes API. It edits entries of managedFields, which an apply cannot.
    Merge,
    Delete,
}

impl Method {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Patch | Self::Merge => "PATCH",
            Self::Delete => "DELETE",
        }
    }
}

/// A value that is known only during apply. It is inserted into a call right before the call is sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Deferred {
    /// `labelFingerprint` of the GKE cluster.
    LabelFingerprint,
    /// The value of an environment variable, as a Secret's data.
    Environment {
        /// The name of the variable in the environment of the user who applies.
        variable: String,
        /// The digest of the value at planning time; empty if there was none.
        digest: String,
    },
    /// The object's managedFields without the `Apply` entries of these field managers.
    #[serde(rename = "marks")]
    ManagedFields {
        /// The field managers.
        without: Vec<String>,
    },
    /// The object's resourceVersion, read together with [`Deferred::ManagedFields`].
    Version,
}

/// A request as a plan shows it and as apply sends it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    pub api: Api,
    /// The verb.
    pub method: Method,
    /// The path with its query.
    pub path: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<JsonText>,
    /// Deferred values, with the paths in the body where they are inserted right before sending.
    #[serde(rename = "late", default, skip_serializing_if = "Vec::is_empty")]
    pub deferred: Vec<(FieldPath, Deferred)>,
}

/// A read that a readiness function needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Query {
    pub api: Api,
    /// The path with its query. A missing object is `null`.
    pub path: String,
}

impl Query {
    /// Returns true if it goes through the API server's proxy to a program in the cluster.
    pub fn is_proxied(&self) -> bool {
        self.api == Api::Kubernetes && self.path.contains("/proxy/")
    }
}

/// Conditions that an [`Await`] waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Until {
    /// The resource is ready.
    Ready,
    /// The resource is still ready. It was ready and is not changed, so it is read once; if it is not ready, that is only a
    /// warning.
    #[serde(rename = "still")]
    StillReady,
    /// The resource and all its parts are gone.
    Gone,
    /// The resource has no tasks that would be lost.
    Idle,
    /// The resource's operator has handled the previous write. If that does not happen before the deadline, the change continues
    /// with a warning: a broken operator may be exactly what the change repairs.
    Handled,
}

impl Until {
    /// Returns true if the wait depends on the readiness of the resource.
    pub fn is_ready(self) -> bool {
        matches!(self, Self::Ready | Self::StillReady)
    }
}

/// A wait.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Await {
    /// The kind of the resource, which has the readiness function.
    pub kind: KindId,
    /// The resource that is waited for.
    pub identity: Identity,
    pub until: Until,
    /// The desired state, as far as readiness depends on it.
    #[serde(default, skip_serializing_if = "Facts::is_none")]
    pub facts: Facts,
    /// The longest wait in seconds.
    pub deadline: u32,
}

impl Await {
    /// Returns the number of workers in the file; `None` if the file does not set it.
    pub fn workers(&self) -> Option<u64> {
        if let Facts::Workers { replicas, .. } = self.facts { replicas } else { None }
    }

    /// Returns the name of the gang of its pods, which Kueue starts as a whole.
    pub fn gang(&self) -> Option<&str> {
        match &self.facts {
            Facts::Workers { gang, .. } | Facts::Job { gang, .. } => gang.as_deref(),
            Facts::None
            | Facts::ScaledTo(_)
            | Facts::Cluster(_)
            | Facts::InQueue
            | Facts::Request { .. }
            | Facts::Ends
            | Facts::Suspended
            | Facts::Nodes { .. } => None,
        }
    }

    /// Returns the DaskCluster that the resource belongs to.
    pub fn cluster(&self) -> Option<&str> {
        match &self.facts {
            Facts::Workers { cluster, .. } => cluster.as_deref(),
            Facts::Cluster(cluster) => Some(cluster),
            Facts::None
            | Facts::ScaledTo(_)
            | Facts::Job { .. }
            | Facts::InQueue
            | Facts::Request { .. }
            | Facts::Ends
            | Facts::Suspended
            | Facts::Nodes { .. } => None,
        }
    }
}

/// Facts about the desired state that a plan passes to a wait.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Facts {
    /// No facts: the live object is enough.
    #[default]
    None,
    /// For a DaskCluster or a group: the number of workers if the file sets it, and the cluster of a group. `gang` is the name of
    /// the pod group, if Kueue starts the pods.
    Workers {
        replicas: Option<u64>,
        cluster: Option<String>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gang: Option<String>,
    },
    /// The number of workers that the Dask operator must have scaled to.
    #[serde(rename = "noted")]
    ScaledTo(u64),
    /// The DaskCluster that it belongs to.
    Cluster(String),
    /// For a DaskJob or a Job of a section; `gang` as for workers.
    Job {
        to_the_end: bool,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        gang: Option<String>,
    },
    /// For a Job of a manifest or chart in a queue of Kueue.
    InQueue,
    /// For a provisioning request: its pool, if that also has other capacity options, and the API path of the resource whose pods
    /// use the nodes, if the same section creates it.
    Request {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pool: Option<String>,
        #[serde(rename = "user", default, skip_serializing_if = "Option::is_none")]
        consumer: Option<String>,
    },
    /// For a Pod that runs to completion.
    Ends,
    /// For a Job that the file suspends.
    Suspended,
    /// For a node pool: the number of nodes if the file sets it; `gpus` is true if GKE installs their driver.
    Nodes { nodes: Option<u64>, gpus: bool },
}

impl Facts {
    /// Returns true if there are no facts.
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }
}

/// One step of a change. The steps of a change follow each other.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Send a request. If the reply is a GKE operation, follow it to its end.
    Call(Call),
    /// Wait.
    Await(Await),
    /// Read a pod's log.
    ReadLog {
        pod: ObjectId,
        /// A line that the log must contain.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        expect: Option<String>,
    },
    /// Write a completion into the record: the check has passed, or the run-once resource was created.
    #[serde(rename = "record_pass")]
    RecordCompletion {
        /// The digest of what was checked or created.
        digest: String,
    },
}

/// Lanes of changes. A lane limits how many changes run at the same time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lane {
    /// Changes of the GKE cluster: no other change runs at the same time.
    Cluster,
    /// Changes of node pools: a few at a time, one for each pool.
    Pool(String),
    /// Changes of Kubernetes objects: many at a time.
    Kubernetes,
}

/// The result of a read.
#[derive(Clone, Debug, PartialEq)]
pub enum Seen<T> {
    /// It does not exist.
    Absent,
    /// It exists.
    Live(T),
    /// It could not be read, and why. This never counts as absent.
    Unreadable(String),
}

impl<T> Seen<T> {
    /// Returns the value, if it exists.
    pub fn live(&self) -> Option<&T> {
        match self {
            Self::Live(value) => Some(value),
            Self::Absent | Self::Unreadable(_) => None,
        }
    }
}

/// The set of resources to read: one LIST for each kind and namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadSet {
    /// The GKE cluster.
    pub cluster: Option<ClusterName>,
    /// Kinds and namespaces inside it (`None`: cluster-wide kinds, or all namespaces). No namespace is in the set twice: a
    /// collection of the whole cluster includes its namespaces.
    pub collections: std::collections::BTreeSet<(Gvk, Option<String>)>,
    /// Objects to read in another version than that of their collection.
    pub single_objects: Vec<ObjectId>,
    /// The first ConfigMap of the record.
    pub record: Option<ObjectId>,
    /// The owner. Its resources are also listed if the file no longer has them.
    pub owner: Owner,
}

/// The stack as the owner of resources.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// The stack's name.
    pub stack: String,
    /// The stack's id.
    pub id: String,
}

impl Owner {
    /// Returns the field manager of server-side apply.
    pub fn field_manager(&self) -> String {
        format!("dask-infra/{}", self.stack)
    }

    /// Returns the field manager of create-only fields. As long as it owns a field, the field keeps its value when
    /// [`Self::field_manager`] releases it, instead of returning to its default.
    pub fn initial_manager(&self) -> String {
        format!("{}{INITIAL}", self.field_manager())
    }

    /// Returns the field manager of counts that `scale` writes, so that a later plan can distinguish them from counts that other
    /// tools wrote.
    pub fn scale_manager(&self) -> String {
        format!("{}:scale", self.field_manager())
    }
}

/// Returns a field manager as messages show it: a change by `scale` is one by this program.
pub fn manager_text(manager: &str) -> &str {
    let is_scale = manager.starts_with("dask-infra/") && manager.ends_with(":scale");
    if is_scale { "`dask-infra scale`" } else { manager }
}

/// The suffix of the field manager of create-only fields.
pub const INITIAL: &str = ":initial";

/// The GKE resource label that names the stack.
pub const LABEL_STACK: &str = "dask-infra-stack";
/// The GKE resource label that holds the stack's id.
pub const LABEL_ID: &str = "dask-infra-id";
/// The Kubernetes label that narrows LISTs to one stack.
pub const OBJECT_LABEL_STACK: &str = "dask-infra.dev/stack";
/// Kubernetes' recommended label for the tool that manages an object; its value is `dask-infra`.
pub const OBJECT_LABEL_MANAGED_BY: &str = "app.kubernetes.io/managed-by";
