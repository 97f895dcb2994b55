//! The shell around the pure state, which gets the time passed in: the single lock, the clock and persistence.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::backing::Backing;
use super::endpoint::{self, Authority};
use super::error::SandboxError;
use super::faults;
use super::gke::{self, ClusterId, ClusterLimit, Endpoints, Gke, Request, Settings, Stockout};
use super::kube::object::Key;
use super::kube::run::autopilot::Provision;
use super::kube::run::autoscaler::missing_nodes;
use super::kube::run::idle::Idle;
use super::kube::run::market::Market;
use super::kube::run::provisioning::requested_nodes;
use super::kube::run::{Loops, PoolView, Scripts};
use super::kube::store::{Cluster, DeleteOptions, Dirty};
use super::options::{Clock, Options, join};
use super::persist::{self, Store};

/// The key of the entry that marks a folder whose cluster is a real API server.
const BACKED: &str = "backed";
/// The key of the entry with the number of requests that each rule has matched.
const RULES: &str = "rules";
/// The interval at which the state advances by itself.
const TICK: Duration = Duration::from_millis(25);

/// A sandbox: GKE and its clusters. Clones share the state.
#[derive(Clone, Debug)]
pub struct Sandbox {
    pub(super) shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) state: Mutex<State>,
    pub(super) settings: Settings,
    pub(super) scripts: Scripts,
    pub(super) authority: Authority,
    /// The real API server behind the cluster, if there is one.
    pub(super) backing: Option<Arc<Backing>>,
    /// The token that clients must send when a real API server stands behind the cluster.
    pub(super) token: Option<Arc<str>>,
    pub(super) manual: Option<Mutex<Timestamp>>,
    /// The time by which the sandbox's clock is ahead of the machine's.
    ahead: Mutex<SignedDuration>,
    /// Counts changes; tasks that wait for a change subscribe here.
    pub(super) changes: watch::Sender<u64>,
    pub(super) store: Option<Store>,
    /// The lock of the folder, held as long as the state exists.
    pub(super) _lock: Option<endpoint::Lock>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) gke: Gke,
    pub(super) clusters: BTreeMap<ClusterId, Member>,
    pub(super) rules: faults::Script,
    /// Entries of deleted clusters that the store must delete.
    pub(super) gone: Vec<persist::Change>,
    /// The error of the first failed write; every later change fails with it.
    pub(super) failure: Option<SandboxError>,
}

/// One Kubernetes cluster with the state of its controllers.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) cluster: Cluster,
    pub(super) loops: Loops,
    /// The pools as GKE had them at revision `seen`.
    pub(super) pools: Vec<PoolView>,
    pub(super) seen: Option<u64>,
    /// The idle nodes that GKE may remove.
    idle: Idle,
}

impl Member {
    fn new(cluster: Cluster, scripts: &Scripts) -> Self {
        Self {
            cluster,
            loops: Loops::new(scripts.clone()),
            pools: Vec::new(),
            seen: None,
            idle: Idle::default(),
        }
    }
}

impl Sandbox {
    /// Opens a sandbox in memory, or the one in `dir`, after taking the folder's lock.
    pub fn open(options: Options) -> Result<Self, SandboxError> {
        if options.kubernetes.is_some() {
            return Err(SandboxError::OtherBacking(
                "a real API server can stand behind a sandbox that is served only: use `sandbox serve`",
            ));
        }
        Self::open_with(options, Endpoints::InProcess)
    }

    pub(super) fn open_with(options: Options, endpoints: Endpoints) -> Result<Self, SandboxError> {
        let options = join(options)?;
        let Options { dir, scale, gke_quota, stockouts, requests, degraded, .. } = options;
        let Options { operation_seconds, scripts, clock, kubernetes, .. } = options;
        let backing = kubernetes.map(|path| Backing::new(&path).map(Arc::new)).transpose()?;
        let (lock, authority, store, mut entries) = match &dir {
            None => (None, Authority::new()?, None, Vec::new()),
            Some(dir) => {
                let lock = endpoint::Lock::take(dir)?;
                let authority = Authority::kept_in(dir)?;
                let (store, entries) = Store::open(dir)?;
                (Some(lock), authority, Some(store), entries)
            }
        };
        // The port is open to every user of the machine and gives the rights of the kubeconfig, so it needs a token.
        let token = backing.as_ref().map(|_| endpoint::token(dir.as_deref())).transpose()?.map(Arc::from);
        let was_backed = entries.extract_if(.., |(key, _)| key == BACKED).count() > 0;
        let met = entries.extract_if(.., |(key, _)| key == RULES).next().map(|(_, met)| met);
        let mut state = match dir {
            None => State { gke: Gke::new(), ..State::default() },
            Some(dir) => State::restore(entries, &scripts)
                .map_err(|cause| SandboxError::Unreadable { path: dir.join("sandbox.redb"), cause })?,
        };
        if was_backed != backing.is_some() {
            if state.gke.clusters().next().is_some() {
                return Err(SandboxError::OtherBacking(other_backing(was_backed)));
            }
            if let Some(store) = &store {
                store.write(vec![(BACKED.to_owned(), backing.is_some().then_some(Value::Bool(true)))])?;
            }
        }
        state.gke.add_stockouts(stockouts);
        state.rules = faults::Script::new(requests, &met.unwrap_or_default());
        let cluster_limit = if backing.is_some() { ClusterLimit::One } else { ClusterLimit::Unlimited };
        let authority_pem = authority.certificate().to_owned();
        let (quota, seconds) = (gke_quota, operation_seconds);
        let settings =
            Settings { scale, quota, endpoints, authority: authority_pem, cluster_limit, seconds, degraded };
        let manual = match clock {
            Clock::System => None,
            Clock::Manual(start) => Some(Mutex::new(start)),
        };
        let (changes, _) = watch::channel(0);
        let state = Mutex::new(state);
        let shared = Shared {
            state,
            settings,
            scripts,
            authority,
            backing,
            token,
            manual,
            ahead: Mutex::default(),
            changes,
            store,
            _lock: lock,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns the sandbox's time.
    pub fn now(&self) -> Timestamp {
        match &self.shared.manual {
            None => {
                let ahead = *self.shared.ahead.lock().unwrap_or_else(PoisonError::into_inner);
                Timestamp::now().checked_add(ahead).unwrap_or(Timestamp::MAX)
            }
            Some(now) => *now.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Advances the clock and does everything that is due.
    pub fn advance(&self, by: SignedDuration) -> Result<(), SandboxError> {
        match &self.shared.manual {
            Some(manual) => {
                let mut now = manual.lock().unwrap_or_else(PoisonError::into_inner);
                *now = now.checked_add(by).unwrap_or(Timestamp::MAX);
            }
            None => {
                let mut ahead = self.shared.ahead.lock().unwrap_or_else(PoisonError::into_inner);
                *ahead = ahead.saturating_add(by);
            }
        }
        self.tick()
    }

    /// Does everything that is due.
    pub fn tick(&self) -> Result<(), SandboxError> {
        let now = self.now();
        self.change(|state, shared| state.tick(now, shared))
    }

    /// Ticks until `shutdown` completes. The error of a tick (such as a full disk) also ends it.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), SandboxError> {
        let mut shutdown = std::pin::pin!(shutdown);
        let mut interval = tokio::time::interval(TICK);
        interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = &mut shutdown => return Ok(()),
                _ = interval.tick() => self.tick()?,
            }
        }
    }

    /// Answers one request to GKE, without HTTP.
    pub fn gke_request(
        &self,
        method: &str,
        path: &str,
        query: &str,
        body: &[u8],
    ) -> Result<gke::Reply, SandboxError> {
        let now = self.now();
        self.change(|state, shared| {
            let reply = state.gke.handle(now, &shared.settings, Request { method, path, query, body });
            state.follow(now, shared);
            reply
        })
    }

    /// Returns the existing clusters, sorted.
    pub fn clusters(&self) -> Vec<ClusterId> {
        self.lock().gke.clusters().map(|cluster| cluster.id.clone()).collect()
    }

    /// Returns the cluster whose Kubernetes API is at `host:port`.
    pub fn cluster_by_endpoint(&self, host_port: &str) -> Option<ClusterId> {
        let wanted = host_port.trim_start_matches("https://").trim_end_matches('/');
        let state = self.lock();
        let endpoints = self.shared.settings.endpoints;
        let shown = |cluster: &&gke::Cluster| {
            let endpoint = cluster.endpoint.as_deref() == Some(wanted);
            endpoint || cluster.shown_endpoint(endpoints).as_deref() == Some(wanted)
        };
        let found = state.gke.clusters().find(shown)?;
        Some(found.id.clone())
    }

    /// Calls `look` on every stored object of a cluster, and returns the results. No request is sent, so no rule can refuse it.
    /// For tests that compare states.
    pub fn objects<T>(&self, cluster: &ClusterId, look: impl Fn(&Value) -> T) -> Vec<T> {
        let state = self.lock();
        let inside = state.clusters.get(cluster).into_iter();
        inside.flat_map(|member| member.cluster.objects()).map(|(_, object)| look(object)).collect()
    }

    /// Returns the token that clients of a served sandbox must send when a real API server stands behind it.
    pub fn token(&self) -> Option<&str> {
        self.shared.token.as_deref()
    }

    /// Returns a kubeconfig for one cluster: its certificate authority, its address, and a token that it accepts. `None` while
    /// the cluster has no address.
    pub fn kubeconfig(&self, cluster: &ClusterId) -> Option<Value> {
        use base64::Engine as _;
        let endpoint = self.lock().gke.cluster(cluster)?.endpoint.clone()?;
        let authority = base64::engine::general_purpose::STANDARD.encode(self.shared.authority.certificate());
        let ClusterId { project, location, name } = cluster;
        // The name that gcloud gives a context.
        let context = format!("gke_{project}_{location}_{name}");
        Some(json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{ "name": context, "cluster": {
                "certificate-authority-data": authority, "server": format!("https://{endpoint}"),
            }}],
            "users": [{ "name": context, "user": { "token": self.token().unwrap_or("sandbox") } }],
            "contexts": [{ "name": context, "context": { "cluster": context, "user": context } }],
            "current-context": context,
        }))
    }

    /// Returns the cluster behind which the real API server runs, with its pools, once it has a control plane.
    pub(super) fn backed_cluster(&self) -> Option<(ClusterId, Vec<PoolView>)> {
        let now = self.now();
        let state = self.lock();
        let cluster = state.gke.clusters().find(|cluster| cluster.has_control_plane(now))?;
        Some((cluster.id.clone(), state.gke.pool_views(cluster)))
    }

    /// Returns the clusters that need a listener, with the address they had before.
    pub(super) fn wanted_listeners(&self) -> BTreeMap<ClusterId, Option<String>> {
        let now = self.now();
        let state = self.lock();
        let up = state.gke.clusters().filter(|cluster| cluster.has_control_plane(now));
        up.map(|cluster| (cluster.id.clone(), cluster.endpoint.clone())).collect()
    }

    pub(super) fn set_endpoint(&self, id: &ClusterId, endpoint: &str) -> Result<(), SandboxError> {
        self.change(|state, _| state.gke.set_endpoint(id, endpoint))
    }

    /// Returns a sandbox in memory that continues from this one's state, with other faults. Waits of pods and nodes start again,
    /// as after a restart.
    pub fn copy(&self, options: Options) -> Result<Self, SandboxError> {
        let copy = Self::open_with(Options { dir: None, ..options }, self.shared.settings.endpoints)?;
        let unreadable = |cause: String| SandboxError::Io { what: "copy the sandbox".to_owned(), cause };
        let entries = self.lock().snapshot();
        let restored = State::restore(entries, &copy.shared.scripts).map_err(unreadable)?;
        {
            let mut state = copy.lock();
            state.gke = state.gke.with_state_of(restored.gke);
            state.clusters = restored.clusters;
        }
        Ok(copy)
    }

    /// Returns true if there are rules for requests.
    pub(super) fn has_rules(&self) -> bool {
        !self.lock().rules.is_empty()
    }

    /// Replaces the rules for requests.
    pub fn set_rules(&self, rules: Vec<faults::Rule>) -> Result<(), SandboxError> {
        self.change(|state, _| state.rules = faults::Script::new(rules, &Value::Null))
    }

    /// Returns the rule that applies to a request, and a number that was not used before.
    pub(super) fn strike(
        &self,
        method: &str,
        path: &str,
        is_dry_run: bool,
    ) -> Result<Option<(faults::Rule, u64)>, SandboxError> {
        self.change(|state, _| {
            let struck = state.rules.strike(method, path, is_dry_run);
            struck.map(|rule| (rule, state.gke.next_number()))
        })
    }

    pub(super) fn doom(&self, operation: &str, why: &str) -> Result<(), SandboxError> {
        self.change(|state, _| {
            state.gke.doom(operation, why);
        })
    }

    /// Adds a scripted shortage of machines.
    pub fn add_stockout(&self, stockout: Stockout) -> Result<(), SandboxError> {
        self.change(|state, _| state.gke.add_stockouts(vec![stockout]))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `change` under the lock, stores its changes, and notifies waiting tasks.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut State, &Shared) -> T) -> Result<T, SandboxError> {
        let mut state = self.lock();
        let value = change(&mut state, &self.shared);
        self.keep(state)?;
        Ok(value)
    }

    /// Does the work of [`Self::change`] for callers that cannot fail; the next tick reports the error.
    pub(super) fn change_anyway<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let value = change(&mut state);
        // Kept, and told by whatever comes next.
        let _ = self.keep(state);
        value
    }

    /// Stores the changes. This happens under the lock, so the file is never behind a response that another request has seen. A
    /// change that could not be stored is not part of any later write, so every change after a failure fails.
    pub(super) fn keep(&self, mut state: MutexGuard<'_, State>) -> Result<(), SandboxError> {
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        let changed = match &self.shared.store {
            None => state.drop_dirty(),
            Some(store) => {
                let dirty = state.take_dirty();
                let changed = !dirty.is_empty();
                if let Err(failure) = store.write(dirty) {
                    state.failure = Some(failure.clone());
                    return Err(failure);
                }
                changed
            }
        };
        drop(state);
        if !changed {
            return Ok(());
        }
        self.shared.changes.send_modify(|count| *count += 1);
        Ok(())
    }
}

impl State {
    fn tick(&mut self, now: Timestamp, shared: &Shared) {
        self.gke.tick(now, &shared.settings);
        self.follow(now, shared);
    }

    /// Makes the Kubernetes clusters follow what GKE says, and moves them.
    fn follow(&mut self, now: Timestamp, shared: &Shared) {
        let Self { gke, clusters, gone, .. } = self;
        clusters.retain(|id, member| {
            let keep = gke.cluster(id).is_some();
            if !keep {
                gone.extend(member.cluster.snapshot().into_iter().map(|dirty| (entry(id, dirty).0, None)));
            }
            keep
        });
        let (mut moved, mut demands) = (Vec::new(), Vec::new());
        for cluster in gke.clusters() {
            // A real API server keeps its own state, so nothing is simulated for it.
            if shared.backing.is_some() || !cluster.has_control_plane(now) {
                continue;
            }
            let member = clusters
                .entry(cluster.id.clone())
                .or_insert_with(|| Member::new(Cluster::new(&cluster.id.to_string(), now), &shared.scripts));
            if member.seen != Some(gke.revision()) {
                member.pools = gke.pool_views(cluster);
                member.seen = Some(gke.revision());
            }
            member.loops.makes_pools = cluster.makes_pools();
            member.loops.step(&mut member.cluster, &member.pools, now, &shared.settings.scale);
            member.cluster.collect(now);
            if cluster.makes_nodes() {
                let Member { cluster: inside, pools, idle, .. } = member;
                let demand = idle.demand(inside, pools, now, &shared.settings.scale);
                for unneeded in &demand.idle {
                    // One that is gone already is what was wanted.
                    let _gone = inside.delete(now, &unneeded.node, &DeleteOptions::default());
                }
                demands.push((cluster.id.clone(), demand));
            } else {
                let Member { cluster: inside, pools, idle, .. } = member;
                let clock = &shared.settings.scale;
                let market = Market { rules: &shared.scripts.capacity, now, clock };
                let mut more = missing_nodes(inside, pools, market);
                more.extend(requested_nodes(inside, pools));
                let gone = idle.surplus(inside, pools, now, clock);
                for unneeded in &gone {
                    // One that is gone already is what was wanted.
                    let _gone = inside.delete(now, &unneeded.node, &DeleteOptions::default());
                }
                let wanted = cluster.makes_pools().then(|| Provision::of(inside, pools, &more));
                moved.push((cluster.id.clone(), more, gone, wanted));
            }
        }
        for (id, demand) in demands {
            gke.provision(&id, &demand, now, &shared.settings);
        }
        for (id, more, gone, wanted) in moved {
            gke.take_away(&id, &gone);
            gke.scale_up(&id, &more, now, &shared.settings);
            if let Some(wanted) = wanted {
                gke.auto_provision(&id, &wanted, now, &shared.settings);
            }
        }
    }

    fn take_dirty(&mut self) -> Vec<persist::Change> {
        let mut changes = std::mem::take(&mut self.gone);
        changes.extend(self.gke.take_dirty().into_iter().map(|(key, value)| (format!("gke/{key}"), value)));
        changes.extend(self.rules.take_dirty().map(|met| (RULES.to_owned(), Some(met))));
        for (id, member) in &mut self.clusters {
            for dirty in member.cluster.take_dirty() {
                changes.push(entry(id, dirty));
            }
        }
        changes
    }

    /// Forgets what has changed, where nothing is stored: no copy of an object is made. Returns true if there was anything.
    fn drop_dirty(&mut self) -> bool {
        let gone = !std::mem::take(&mut self.gone).is_empty();
        let gke = self.gke.drop_dirty();
        let rules = self.rules.take_dirty().is_some();
        // Every cluster is asked, whatever another one says.
        let inside =
            self.clusters.values_mut().filter_map(|member| member.cluster.drop_dirty().then_some(()));
        inside.count() > 0 || gone || gke || rules
    }

    /// Everything, as entries to restore from.
    fn snapshot(&self) -> Vec<(String, Value)> {
        let gke = self.gke.snapshot().into_iter().map(|(key, value)| (format!("gke/{key}"), value));
        let inside = self.clusters.iter().flat_map(|(id, member)| {
            let entries = member.cluster.snapshot().into_iter().map(|dirty| entry(id, dirty));
            entries.filter_map(|(key, value)| value.map(|value| (key, value)))
        });
        gke.chain(inside).collect()
    }

    fn restore(entries: Vec<(String, Value)>, scripts: &Scripts) -> Result<Self, String> {
        let mut gke = Vec::new();
        let mut clusters: BTreeMap<ClusterId, (Value, Vec<(Key, Value)>)> = BTreeMap::new();
        for (key, value) in entries {
            if let Some(key) = key.strip_prefix("gke/") {
                gke.push((key.to_owned(), value));
                continue;
            }
            let (id, key) = parse_entry(&key).ok_or_else(|| format!("entry {key} is not known"))?;
            let slot = clusters.entry(id).or_default();
            match key {
                None => slot.0 = value,
                Some(key) => slot.1.push((key, value)),
            }
        }
        let gke = Gke::restore(gke)?;
        let mut members = BTreeMap::new();
        for (id, (meta, objects)) in clusters {
            if gke.cluster(&id).is_some() {
                let cluster = Cluster::restore(&meta, objects)?;
                members.insert(id, Member::new(cluster, scripts));
            }
        }
        Ok(Self { gke, clusters: members, ..Self::default() })
    }
}

/// Why the clusters of a folder cannot go on with another kind of API server.
fn other_backing(was_backed: bool) -> &'static str {
    if was_backed {
        "the cluster of this sandbox is a real API server: serve it with `--kubernetes`, or start again with \
         `dask-infra sandbox reset`"
    } else {
        "the clusters of this sandbox are simulated: choose another folder for `--kubernetes`, or start again \
         with `dask-infra sandbox reset`"
    }
}

/// The entry of one Kubernetes object: `kube`, the cluster and the object's key, one word a part, divided by
/// a letter that no name has.
fn entry(id: &ClusterId, dirty: Dirty) -> persist::Change {
    let ClusterId { project, location, name } = id;
    let head = format!("kube\n{project}\n{location}\n{name}");
    let object = |Key { group, resource, namespace, name }: Key| {
        format!("{head}\n{group}\n{resource}\n{namespace}\n{name}")
    };
    match dirty {
        Dirty::Meta(value) => (head, Some(value)),
        Dirty::Put(key, value) => (object(key), Some(value)),
        Dirty::Remove(key) => (object(key), None),
    }
}

fn parse_entry(key: &str) -> Option<(ClusterId, Option<Key>)> {
    match key.split('\n').collect::<Vec<_>>().as_slice() {
        ["kube", project, location, name] => Some((ClusterId::new(project, location, name), None)),
        ["kube", project, location, cluster, group, resource, namespace, name] => Some((
            ClusterId::new(project, location, cluster),
            Some(Key::new(group, resource, namespace, name)),
        )),
        _ => None,
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
