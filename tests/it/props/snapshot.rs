//! All live objects by **uid**: every object of every cluster and everything of GKE, straight out of the sandbox's
//! store. It knows nothing of the engine: not its world, not its identities, not its plans.

use std::collections::{BTreeMap, BTreeSet};

use sandbox::{ClusterId, Sandbox};
use serde_json::Value;

/// The identity of a thing, which differs from its successor of the same name. Objects have a uid, clusters an id.
/// GKE gives pools none: theirs is the cluster's, their name, and how many pools of that name were deleted before.
pub type Uid = String;

/// The field manager of whoever the tests call "others".
pub const OTHERS: &str = "platform";
/// The GKE resource label of things of others.
pub const OTHERS_LABEL: &str = "platform-team";

/// The creator of a thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Maker {
    /// dask-infra: an `Apply` entry of one of its managers, or its GKE labels.
    Us,
    /// [`OTHERS`], by hand.
    Others,
    /// A controller, or the system.
    Machine,
}

#[derive(Clone, Debug)]
pub struct Thing {
    /// `cluster`, `pool` or the kind of an object.
    pub kind: String,
    /// Its API group; `gke` for clusters and pools.
    pub group: String,
    /// The namespace of an object.
    pub namespace: Option<String>,
    pub name: String,
    /// The cluster that it is in, or that it is.
    pub cluster: Uid,
    /// Its creator.
    pub maker: Maker,
    /// Every field manager with an `Apply` entry.
    pub appliers: BTreeSet<String>,
    pub owners: Vec<Uid>,
    /// True while it is being deleted.
    pub going: bool,
    /// True if it is deleted by itself: a DaskCluster with a timeout.
    pub passing: bool,
    /// True for objects of the Dask operator.
    pub operator: bool,
}

/// `ConfigMap team/settings`.
impl std::fmt::Display for Thing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

/// Everything at one moment.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    pub things: BTreeMap<Uid, Thing>,
}

impl Snapshot {
    pub fn read(sandbox: &Sandbox) -> Self {
        let mut things = BTreeMap::new();
        let deleted = deleted_pools(sandbox);
        for cluster in get(sandbox, "clusters")["clusters"].as_array().into_iter().flatten() {
            let uid = word(&cluster["id"]);
            things.insert(uid.clone(), of_gke("cluster", &uid, cluster, &cluster["resourceLabels"]));
            // GKE owns the pools of an Autopilot cluster, whatever their labels: they come and go as Pods do.
            let pools = cluster["autopilot"]["enabled"] != true;
            let pools = cluster["nodePools"].as_array().filter(|_| pools);
            for pool in pools.into_iter().flatten() {
                let link = target(&word(&pool["selfLink"]));
                let before = deleted.get(&link).copied().unwrap_or_default();
                let labels = &pool["config"]["resourceLabels"];
                things.insert(format!("{uid}/{link}#{before}"), of_gke("pool", &uid, pool, labels));
            }
            let id = ClusterId::new("demo", &word(&cluster["location"]), &word(&cluster["name"]));
            things.extend(
                sandbox.objects(&id, |object| (word(&object["metadata"]["uid"]), of_object(&uid, object))),
            );
        }
        Self { things }
    }

    /// Returns the things that a later snapshot does not have.
    pub fn removed_since<'a>(&'a self, later: &'a Self) -> impl Iterator<Item = (&'a Uid, &'a Thing)> {
        self.things.iter().filter(|(uid, _)| !later.things.contains_key(*uid))
    }

    /// Returns the things of one creator.
    pub fn of(&self, maker: Maker) -> impl Iterator<Item = (&Uid, &Thing)> {
        self.things.iter().filter(move |(_, thing)| thing.maker == maker)
    }
}

fn get(sandbox: &Sandbox, what: &str) -> Value {
    let path = format!("/v1/projects/demo/locations/-/{what}");
    sandbox.gke_request("GET", &path, "", b"").map(|reply| reply.body).unwrap_or_default()
}

fn word(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// `projects/…` of a link: GKE names the project by its number in some of them.
fn target(link: &str) -> String {
    link.split_once("/locations/").or(link.split_once("/zones/")).map_or(link, |(_, rest)| rest).to_owned()
}

fn deleted_pools(sandbox: &Sandbox) -> BTreeMap<String, usize> {
    let mut deleted = BTreeMap::new();
    for operation in get(sandbox, "operations")["operations"].as_array().into_iter().flatten() {
        let failed = operation.get("error").is_some();
        if operation["operationType"] == "DELETE_NODE_POOL" && operation["status"] == "DONE" && !failed {
            *deleted.entry(target(&word(&operation["targetLink"]))).or_default() += 1;
        }
    }
    deleted
}

fn of_gke(kind: &str, cluster: &str, live: &Value, labels: &Value) -> Thing {
    let maker = match () {
        () if labels.get("dask-infra-stack").is_some() => Maker::Us,
        () if labels.get(OTHERS_LABEL).is_some() => Maker::Others,
        () => Maker::Machine,
    };
    Thing {
        kind: kind.to_owned(),
        group: "gke".to_owned(),
        namespace: None,
        name: word(&live["name"]),
        cluster: cluster.to_owned(),
        maker,
        appliers: BTreeSet::new(),
        owners: Vec::new(),
        going: live["status"] == "STOPPING",
        passing: false,
        operator: false,
    }
}

fn of_object(cluster: &str, object: &Value) -> Thing {
    let metadata = &object["metadata"];
    let entries = || metadata["managedFields"].as_array().into_iter().flatten();
    let applied = entries().filter(|entry| entry["operation"] == "Apply");
    let appliers: BTreeSet<String> = applied.map(|entry| word(&entry["manager"])).collect();
    // Whoever made it first: a thing of ours that others annotate is ours, and the other way round.
    let first = |manager: &str| entries().any(|entry| entry["manager"] == manager);
    // The server makes it with the cluster, whoever annotates it.
    let servers = object["kind"] == "Namespace" && metadata["name"] == "default";
    let maker = match () {
        () if first(OTHERS) && !servers && !appliers.iter().any(|name| is_ours(name)) => Maker::Others,
        () if appliers.iter().any(|name| is_ours(name)) => Maker::Us,
        () => Maker::Machine,
    };
    let owners = metadata["ownerReferences"].as_array().into_iter().flatten();
    let version = word(&object["apiVersion"]);
    Thing {
        kind: word(&object["kind"]),
        group: version.split_once('/').map(|(group, _)| group.to_owned()).unwrap_or_default(),
        namespace: metadata["namespace"].as_str().map(str::to_owned),
        name: word(&metadata["name"]),
        cluster: cluster.to_owned(),
        maker,
        appliers,
        owners: owners.map(|owner| word(&owner["uid"])).collect(),
        going: metadata["deletionTimestamp"].is_string(),
        passing: object["spec"]["idleTimeout"].as_i64().is_some_and(|seconds| seconds > 0),
        operator: is_of_operator(object),
    }
}

/// Returns true for field managers of this program.
pub fn is_ours(manager: &str) -> bool {
    manager == "dask-infra" || manager.starts_with("dask-infra/") || manager.starts_with("dask-infra-")
}

/// Its definitions, its rights, its Deployment and the namespace that is made for it.
fn is_of_operator(object: &Value) -> bool {
    let name = word(&object["metadata"]["name"]);
    name.ends_with(".kubernetes.dask.org")
        || name.starts_with("dask-kubernetes-operator")
        || (object["kind"] == "Namespace" && name.starts_with("dask-operator"))
}
