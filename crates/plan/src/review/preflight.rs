//! Checks before the first write of whether Google Cloud has capacity for what a plan creates: quotas, machines and GPUs of
//! zones, organization policies. Pure: a plan in, questions out; answers in, findings out.

use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use crate::{Action, Change, Mode, Plan};
use kinds::gke::compare::sent_changes;
use kinds::gke::node_pool::capacity::{
    IpExposure, NodeRequirements, ip_exposure_of, most_nodes, nodes_at_first, surge_nodes,
};
use kinds::kubernetes::kueue::gang;
use model::address::{Address, FieldPath, Segment};
use model::catalog;
use model::diag::{Code, Diagnostic, listed};
use model::resource::{
    Api, Call, ClusterName, Effect, FieldChange, Identity, KindId, Method, Query, Resource, Step, by_identity,
};

mod policies;
mod quotas;
mod started_pods;

pub use policies::Constraint;

/// The capacity of Google Cloud that a plan needs.
#[derive(Clone, Debug, PartialEq)]
pub struct Preflight {
    pub project: String,
    region: String,
    pools: Vec<Pool>,
    /// Addresses of resources that request all their machines at once and wait for them.
    provisioning_requests: Vec<Address>,
    /// True if the plan frees an unknown amount of capacity: then no shortage is certain.
    frees_capacity: bool,
}

/// A pool whose nodes are created or changed.
#[derive(Clone, Debug, PartialEq)]
struct Pool {
    address: Address,
    /// The path of its machine type in the stack file.
    machine_at: FieldPath,
    /// The path of its number of nodes in the stack file.
    nodes_at: FieldPath,
    node: NodeRequirements,
    /// The zones of the new nodes; none if GKE chooses.
    zones: Vec<String>,
    /// The number of nodes that are created at once.
    initial_nodes: u64,
    /// The largest number of nodes.
    max_nodes: u64,
    /// Additional nodes during an upgrade.
    surge: u64,
    /// Its nodes before the change: their requirements and their number.
    before: Option<(NodeRequirements, PreviousNodes)>,
    change: PoolChange,
}

/// Nodes that a pool had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PreviousNodes {
    nodes: u64,
    max_nodes: u64,
}

/// Kinds of changes to the nodes of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PoolChange {
    /// All nodes are new.
    New,
    /// Their number.
    Number,
    /// None by the plan: the autoscaler may add some for its pods.
    None,
    /// The nodes are recreated one after the other; `machine` is true if their machine type changes.
    Rolled { machine: bool },
}

/// A question to Google Cloud. An object that does not exist is `null`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Question {
    /// The quotas of a region.
    Region,
    /// The quotas of the project.
    Project,
    /// A machine type in a zone.
    Machine { zone: String, machine: String },
    /// A GPU type in a zone.
    Gpu { zone: String, gpu: String },
    /// An organization policy as it holds for the project.
    Policy(Constraint),
}

/// The answers to the questions, or why there is no answer.
pub type Answers = BTreeMap<Question, Result<Value, String>>;

impl Question {
    /// Returns the request.
    pub fn query(&self, preflight: &Preflight) -> Query {
        let Preflight { project, region, .. } = preflight;
        let compute =
            |rest: String| Query { api: Api::Compute, path: format!("/compute/v1/projects/{project}{rest}") };
        match self {
            Self::Region => compute(format!("/regions/{region}")),
            Self::Project => compute(String::new()),
            Self::Machine { zone, machine } => compute(format!("/zones/{zone}/machineTypes/{machine}")),
            Self::Gpu { zone, gpu } => compute(format!("/zones/{zone}/acceleratorTypes/{gpu}")),
            Self::Policy(constraint) => Query {
                api: Api::Policies,
                path: format!("/v2/projects/{project}/policies/{}:getEffectivePolicy", constraint.name()),
            },
        }
    }

    /// Returns the IAM permission that the question needs.
    pub fn permission(&self) -> &'static str {
        match self {
            Self::Region => "compute.regions.get",
            Self::Project => "compute.projects.get",
            Self::Machine { .. } => "compute.machineTypes.get",
            Self::Gpu { .. } => "compute.acceleratorTypes.get",
            Self::Policy(_) => "orgpolicy.policy.get",
        }
    }

    /// Returns what stays unknown without an answer, as words for a message.
    fn about(&self, preflight: &Preflight) -> String {
        match self {
            Self::Region => format!("quotas of {}", preflight.region),
            Self::Project => format!("quotas of project {}", preflight.project),
            Self::Machine { zone, machine } => format!("{machine} in {zone}"),
            Self::Gpu { zone, gpu } => format!("{gpu} in {zone}"),
            Self::Policy(constraint) => format!("organization policy {}", constraint.name()),
        }
    }
}

impl Preflight {
    /// Returns the needs of a plan; `None` for one that takes no capacity.
    pub fn of(plan: &Plan) -> Option<Self> {
        let name = plan.target.gke.as_ref().filter(|_| !plan.offline && plan.mode == Mode::Apply)?;
        let is_cluster = |resource: &&Resource| matches!(resource.identity, Identity::Cluster(_));
        let ours = plan.desired.iter().find(is_cluster);
        let cluster = plan.external.iter().map(|external| &external.resource).find(is_cluster);
        let addresses = ours.map_or(IpExposure::Unknown, |cluster| ip_exposure_of(&cluster.body));
        let cluster = ours.or(cluster).map(|cluster| &cluster.body);
        let desired = by_identity(&plan.desired);
        let for_pods = LazyCell::new(|| started_pods::nodes_for_pods(plan));
        let pools = plan.changes.iter().filter_map(|change| {
            let resource = desired.get(&change.identity)?;
            let pool = Pool::of(plan, change, resource, addresses, &zones(&resource.body, cluster, name))?;
            let nodes = change.identity.pool().and_then(|pool| for_pods.get(pool)).copied();
            let pool = pool.with_pods(nodes.unwrap_or_default());
            Some(pool).filter(|pool| pool.change != PoolChange::None || pool.initial_nodes > 0)
        });
        let pools: Vec<Pool> = pools.collect();
        let region = catalog::region_of(&name.location).unwrap_or(&name.location);
        let (project, region) = (name.project.clone(), region.to_owned());
        let requests = provisioning_requests(plan);
        let asks = !pools.is_empty() || !requests.is_empty();
        asks.then(|| Self {
            project,
            region,
            pools,
            provisioning_requests: requests,
            frees_capacity: frees(plan),
        })
    }

    /// Returns the questions to ask, each once.
    pub fn questions(&self) -> BTreeSet<Question> {
        let mut questions = BTreeSet::from([Question::Region, Question::Project]);
        for pool in self.pools.iter().filter(|pool| pool.change.asks_for_machines()) {
            for zone in &pool.zones {
                let (zone, machine) = (zone.clone(), pool.node.machine.clone());
                if let Some((gpu, _)) = &pool.node.attached {
                    questions.insert(Question::Gpu { zone: zone.clone(), gpu: gpu.clone() });
                }
                questions.insert(Question::Machine { zone, machine });
            }
        }
        let new: Vec<&Pool> = self.new_pools().collect();
        let bites = Constraint::ALL
            .iter()
            .filter(|constraint| new.iter().any(|pool| constraint.concerns(&pool.node)));
        questions.extend(bites.map(|constraint| Question::Policy(*constraint)));
        questions
    }

    fn new_pools(&self) -> impl Iterator<Item = &Pool> {
        self.pools.iter().filter(|pool| pool.change == PoolChange::New)
    }

    /// Returns the findings from the answers, the most serious first.
    pub fn findings(&self, answers: &Answers) -> Vec<Diagnostic> {
        let mut findings = quotas::findings(self, answers);
        findings.extend(self.not_offered(answers));
        findings.extend(policies::findings(self, answers));
        findings.extend(self.not_looked_at(answers));
        findings.sort_by_key(|finding| finding.severity);
        findings
    }

    /// Returns the machine types and GPUs that a zone does not offer.
    fn not_offered(&self, answers: &Answers) -> Vec<Diagnostic> {
        let mut lacking: BTreeMap<(&str, &Address, &FieldPath), Vec<&str>> = BTreeMap::new();
        for pool in self.pools.iter().filter(|pool| pool.change.asks_for_machines()) {
            for zone in &pool.zones {
                let (at, machine) = (&pool.machine_at, &pool.node.machine);
                let absent = |question| matches!(answers.get(&question), Some(Ok(Value::Null)));
                let of_machine = Question::Machine { zone: zone.clone(), machine: machine.clone() };
                if absent(of_machine) {
                    lacking.entry((machine, &pool.address, at)).or_default().push(zone);
                }
                if let Some((gpu, _)) = &pool.node.attached
                    && absent(Question::Gpu { zone: zone.clone(), gpu: gpu.clone() })
                {
                    lacking.entry((gpu, &pool.address, at)).or_default().push(zone);
                }
            }
        }
        let told = lacking.into_iter().map(|((what, address, at), zones)| {
            let message = format!("{} does not have `{what}`", listed(zones, "and"));
            let list = match catalog::accelerator(what) {
                Some(_) => "accelerator-types",
                None => "machine-types",
            };
            let help = format!(
                "gcloud compute {list} list --project {} --filter name={what} lists the zones that have it",
                self.project
            );
            Diagnostic::error(Code::NotOffered, message)
                .at_value(at.clone(), "asked for here")
                .about(address.clone(), "")
                .help(help)
        });
        told.collect()
    }

    /// Returns a warning for each reason why a check could not run.
    fn not_looked_at(&self, answers: &Answers) -> Vec<Diagnostic> {
        let mut reasons: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (question, answer) in answers {
            if let Err(why) = answer {
                reasons.entry(why.clone()).or_default().insert(question.about(self));
            }
        }
        for pool in &self.pools {
            let untold = "no API of Compute Engine tells them; they are under IAM, Quotas in the console";
            let elsewhere = pool.node.unreported_quotas.iter().cloned();
            if !pool.node.unreported_quotas.is_empty() {
                reasons.entry(untold.to_owned()).or_default().extend(elsewhere);
            }
            if pool.zones.is_empty() && pool.change.asks_for_machines() {
                let why = format!("GKE chooses the zones in {}", self.region);
                reasons.entry(why).or_default().insert(format!("which zones have {}", pool.node.machine));
            }
        }
        let line = |(why, what): (String, BTreeSet<String>)| {
            let what: Vec<&str> = what.iter().map(String::as_str).collect();
            Diagnostic::warning(
                Code::NotLookedAt,
                format!("not looked at: {}, because {why}", what.join(", ")),
            )
        };
        reasons.into_iter().map(line).collect()
    }
}

impl PoolChange {
    fn asks_for_machines(self) -> bool {
        match self {
            Self::New | Self::Rolled { machine: true } => true,
            Self::Number | Self::None | Self::Rolled { machine: false } => false,
        }
    }
}

impl Pool {
    /// Returns the needs of a change; `None` if it takes no capacity.
    fn of(
        plan: &Plan,
        change: &Change,
        resource: &Resource,
        addresses: IpExposure,
        zones: &[String],
    ) -> Option<Self> {
        let name = change.identity.pool()?;
        let body = &resource.body;
        let many = u64::try_from(zones.len()).unwrap_or_default();
        let at = |field: &str| resource.origin_of(&FieldPath::keys([field]));
        let tried = plan.capacity_options.iter().any(|capacity| capacity.identity == change.identity);
        let node = NodeRequirements::of(body, addresses);
        let pool = Self {
            address: change.address.clone(),
            machine_at: resource.origin_of(&FieldPath::keys(["config", "machineType"])),
            nodes_at: at(if body["nodeCount"].is_null() { "autoscaling" } else { "nodeCount" }),
            node: if tried { node.as_uncertain() } else { node },
            zones: zones.to_vec(),
            initial_nodes: 0,
            max_nodes: most_nodes(body, many),
            surge: 0,
            before: None,
            change: PoolChange::New,
        };
        let made = || nodes_at_first(body, initial_nodes_per_zone(plan, name).unwrap_or_default(), many);
        match change.action {
            Action::Create => Some(pool.with_first(made())),
            Action::Replace => {
                let before = Some(nodes_before(body, &change.fields, addresses, many));
                Some(Self { before, ..pool.with_first(made()) })
            }
            Action::Update => pool.updated(body, change, addresses, many),
            Action::Keep if body["autoscaling"]["enabled"] == true => {
                Some(Self { change: PoolChange::None, ..pool })
            }
            Action::Keep | Action::Delete | Action::Forget | Action::Run => None,
        }
    }

    /// Counts the nodes that pods need at once, if the pool is new or stays as it is: the autoscaler creates them for the pods, up to
    /// its maximum. A pool that stays may have free nodes.
    fn with_pods(self, nodes: u64) -> Self {
        match self.change {
            PoolChange::New => {
                let initial_nodes = self.initial_nodes.max(nodes.min(self.max_nodes));
                Self { initial_nodes, ..self }
            }
            PoolChange::None => {
                let most = nodes.min(self.max_nodes);
                Self { initial_nodes: most, max_nodes: most, ..self }
            }
            PoolChange::Number | PoolChange::Rolled { .. } => self,
        }
    }

    fn with_first(self, first: u64) -> Self {
        Self { initial_nodes: first, max_nodes: self.max_nodes.max(first), ..self }
    }

    fn updated(self, body: &Value, change: &Change, addresses: IpExposure, zones: u64) -> Option<Self> {
        let (node, nodes) = nodes_before(body, &change.fields, addresses, zones);
        let first = body["nodeCount"].as_u64().unwrap_or_default();
        let machine = node.machine != self.node.machine;
        let rolls = sent_changes(&change.fields).any(|field| field.effect == Effect::Rolling);
        let news = if rolls { PoolChange::Rolled { machine } } else { PoolChange::Number };
        let takes = rolls || first > nodes.nodes || self.max_nodes > nodes.max_nodes;
        let surge = if rolls { surge_nodes(body) } else { 0 };
        takes.then_some(Self {
            initial_nodes: first,
            surge,
            change: news,
            before: Some((node, nodes)),
            ..self
        })
    }
}

/// Returns the nodes of a pool before its change: their requirements and their number.
fn nodes_before(
    body: &Value,
    fields: &[FieldChange],
    addresses: IpExposure,
    zones: u64,
) -> (NodeRequirements, PreviousNodes) {
    let body = body_before(body, fields);
    let nodes = body["nodeCount"].as_u64().unwrap_or_default();
    (NodeRequirements::of(&body, addresses), PreviousNodes { nodes, max_nodes: most_nodes(&body, zones) })
}

/// Returns a body as it was before the changes of its fields that are sent.
fn body_before(body: &Value, fields: &[FieldChange]) -> Value {
    let mut body = body.clone();
    for field in sent_changes(fields) {
        set(&mut body, field.path.segments(), field.before.clone().unwrap_or_default());
    }
    body
}

/// Sets the value at a path, and creates the objects on the way. An index that the list does not have is ignored.
fn set(target: &mut Value, path: &[Segment], value: Value) {
    match path.split_first() {
        None => *target = value,
        Some((Segment::Index(index), rest)) => {
            if let Some(item) = target.get_mut(*index) {
                set(item, rest, value);
            }
        }
        Some((Segment::Key(key), rest)) => {
            if target.is_null() {
                *target = json!({});
            }
            if let Value::Object(fields) = target {
                set(fields.entry(key.clone()).or_insert(Value::Null), rest, value);
            }
        }
    }
}

/// Returns the zones of a pool's new nodes; none if GKE chooses.
fn zones(pool: &Value, cluster: Option<&Value>, name: &ClusterName) -> Vec<String> {
    let said = |body: &Value| -> Vec<String> {
        let zones = body["locations"].as_array().into_iter().flatten();
        zones.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let own = Some(said(pool)).filter(|zones| !zones.is_empty());
    let of_cluster = || cluster.map(said).filter(|zones| !zones.is_empty());
    let of_place = || catalog::region_of(&name.location).map(|_| vec![name.location.clone()]);
    own.or_else(of_cluster).or_else(of_place).unwrap_or_default()
}

/// Returns the initial number of nodes per zone, as it is sent.
fn initial_nodes_per_zone(plan: &Plan, pool: &str) -> Option<u64> {
    let calls = plan.changes.iter().flat_map(|change| &change.steps).filter_map(|step| match step {
        Step::Call(Call { method: Method::Post, body: Some(body), .. }) => Some(body.value()),
        Step::Call(_) | Step::Await(_) | Step::ReadLog { .. } | Step::RecordCompletion { .. } => None,
    });
    let nodes = |body: Value| {
        let with_cluster = body["cluster"]["nodePools"].as_array().into_iter().flatten();
        let mut pools = with_cluster.chain([&body["nodePool"]]).filter(|body| body["name"] == pool);
        pools.find_map(|body| body["initialNodeCount"].as_u64())
    };
    calls.filter_map(nodes).next()
}

/// Returns the created resources that request all their machines at once: ProvisioningRequests, and work in queues that create
/// these.
fn provisioning_requests(plan: &Plan) -> Vec<Address> {
    let queues: BTreeSet<&str> = plan
        .desired
        .iter()
        .filter(|resource| !resource.body["spec"]["admissionChecksStrategy"].is_null())
        .filter_map(|resource| Some(resource.identity.object()?.name.as_str()))
        .collect();
    let desired = by_identity(&plan.desired);
    let asks = |change: &&Change| {
        let made = change.action.creates();
        let Some(resource) = desired.get(&change.identity).filter(|_| made) else { return false };
        let named = |metadata: &Value| {
            metadata["labels"][gang::QUEUE].as_str().is_some_and(|queue| queues.contains(queue))
        };
        let (own, workers) = (&resource.body["metadata"], &resource.body["spec"]["worker"]["metadata"]);
        change.kind == KindId::ProvisioningRequest || named(own) || named(workers)
    };
    plan.changes.iter().filter(asks).map(|change| change.address.clone()).collect()
}

/// Returns true if a pool is deleted, a pool without `nodeCount` is replaced, or the cluster is deleted or replaced.
fn frees(plan: &Plan) -> bool {
    plan.changes.iter().any(|change| match (&change.identity, change.action) {
        (Identity::NodePool { .. }, Action::Delete) => true,
        (Identity::NodePool { .. }, Action::Replace) => {
            let desired = plan.desired.iter().find(|resource| resource.identity == change.identity);
            desired.is_some_and(|pool| pool.body["nodeCount"].is_null())
        }
        (Identity::Cluster(_), action) => matches!(action, Action::Replace | Action::Delete),
        _ => false,
    })
}
