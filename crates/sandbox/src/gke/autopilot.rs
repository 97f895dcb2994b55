//! Autopilot clusters, whose pools are GKE's own and whose nodes come and go with pods, and pools of node auto-provisioning.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::errors::Refusal;
use super::ids::hex;
use super::path::{ClusterId, Target};
use super::quotas::within_limits;
use super::settings::Settings;
use super::state::{Cluster, Gke, Phase, Pool, PoolPhase};
use super::{machines, places, pools};
use crate::kube::object::text;
use crate::kube::run::autopilot::{Demand, Machine, Provision};

/// A machine for pods that wait exists after this much of the service's time, in seconds.
const MACHINE_SECONDS: f64 = 60.0;

/// Returns true if a Cluster message is that of an Autopilot cluster.
pub(super) fn is_on(body: &Value) -> bool {
    body["autopilot"]["enabled"] == true
}

/// GKE's refusal of a zone. Source: Terraform's acceptance tests.
pub(super) fn check_place(body: &Value, id: &ClusterId) -> Result<(), Refusal> {
    if is_on(body) && places::is_zone(&id.location) {
        return Err(Refusal::invalid("Autopilot clusters must be regional clusters."));
    }
    Ok(())
}

/// The pool that a new cluster is asked for has no nodes of its own: they come with pods.
pub(super) fn empty(pool: &mut Pool) {
    pool.sizes.values_mut().for_each(|size| *size = 0);
    pool.grow_at = None;
}

impl Cluster {
    /// Returns true if GKE creates its nodes, as on Autopilot.
    pub fn makes_nodes(&self) -> bool {
        is_on(&self.body) && matches!(self.phase, Phase::Provisioning { .. } | Phase::Running)
    }

    /// Returns true if GKE creates pools beside those that were requested.
    pub fn makes_pools(&self) -> bool {
        let on = self.body["autoscaling"]["enableNodeAutoprovisioning"] == true;
        on && !is_on(&self.body) && matches!(self.phase, Phase::Running)
    }
}

impl Gke {
    /// GKE's refusal of every request on the pools of an Autopilot cluster, lists included. Source: answers in public threads,
    /// gke-labs/kube-agents issue 920 (a list) and turbot/steampipe-plugin-gcp pull request 591.
    pub(super) fn admit_to_pools(&self, target: &Target) -> Result<(), Refusal> {
        let (Target::Pools { id } | Target::Pool { id, .. }) = target else { return Ok(()) };
        match self.cluster(id) {
            Some(cluster) if is_on(&cluster.body) => {
                Err(Refusal::invalid("Autopilot node pools cannot be accessed or modified."))
            }
            _ => Ok(()),
        }
    }

    /// Makes the pools that node auto-provisioning would, within its limits, and deletes those of its pools that are empty.
    pub fn auto_provision(
        &mut self,
        id: &ClusterId,
        wanted: &Provision,
        now: Timestamp,
        settings: &Settings,
    ) {
        for (machine, count) in &wanted.more {
            self.bring(id, machine, *count, now, settings);
        }
        let Some(cluster) = self.clusters.get_mut(id) else { return };
        let before = cluster.pools.len();
        cluster.pools.retain(|pool| {
            let own = pool.body["autoscaling"]["autoprovisioned"] == true;
            let queued = pool.body["queuedProvisioning"]["enabled"] == true;
            !own || pool.nodes() > 0 || (queued && wanted.requested)
        });
        if cluster.pools.len() < before {
            self.touch(id);
        }
    }

    /// Makes the machines that pods need, as far as the quota and the zones go, and lets go those that none needs.
    pub fn provision(&mut self, id: &ClusterId, demand: &Demand, now: Timestamp, settings: &Settings) {
        self.take_away(id, &demand.idle);
        for (machine, count) in &demand.more {
            self.bring(id, machine, *count, now, settings);
        }
    }

    fn bring(&mut self, id: &ClusterId, machine: &Machine, count: u32, now: Timestamp, settings: &Settings) {
        let Some(cluster) = self.cluster(id) else { return };
        let config = machine.config();
        let queued = if machine.is_queued() { "queued" } else { "" };
        let name = format!("nap-{}", hex(&["autopilot", &id.to_string(), &config.to_string(), queued], 8));
        let zones = zones(&cluster.body, &config);
        let known = cluster.pools.iter().find(|pool| pool.name == name);
        // A pool for requests begins without machines, and is made where there is room for one.
        let room = within_limits(cluster, &config, count.max(1));
        // Machines that are on their way are waited for first: the pods may fit those.
        if room == 0 || zones.is_empty() || known.is_some_and(|pool| pool.grow_at.is_some()) {
            return;
        }
        let count = count.min(room);
        let new = known.is_none();
        let body = match known {
            Some(pool) => pool.body.clone(),
            None => pool_of(machine, config, &name, &zones, cluster, now),
        };
        if self.check_quota(id, &[(&body, count)], &settings.quota).is_err() {
            return;
        }
        if let Some(cluster) = self.clusters.get_mut(id).filter(|_| new) {
            let mut pool = pools::new_pool(body, id, now);
            pool.phase = PoolPhase::Running;
            pool.grow_at = None;
            cluster.pools.push(pool);
            self.touch(id);
        }
        if count == 0 {
            return;
        }
        let grow_at = settings.scale.after(now, MACHINE_SECONDS);
        self.change_pool(id, &name, |pool| {
            for _ in 0..count {
                let least = zones.iter().min_by_key(|zone| pool.sizes.get(*zone).copied().unwrap_or(0));
                if let Some(zone) = least {
                    *pool.sizes.entry(zone.clone()).or_default() += 1;
                }
            }
            pools::resize(pool, grow_at);
        });
    }
}

/// The NodePool message of a pool that GKE makes itself.
fn pool_of(
    machine: &Machine,
    mut config: Value,
    name: &str,
    zones: &[String],
    cluster: &Cluster,
    now: Timestamp,
) -> Value {
    let defaults = &cluster.body["autoscaling"]["autoprovisioningNodePoolDefaults"];
    if !is_on(&cluster.body) {
        for key in OF_NODES.iter().filter(|key| !defaults[**key].is_null()) {
            config[*key] = defaults[*key].clone();
        }
    }
    let mut body = json!({
        "name": name, "config": config, "locations": zones,
        "autoscaling": { "enabled": true, "autoprovisioned": true, "maxNodeCount": 1000 },
    });
    for key in ["management", "upgradeSettings"].iter().filter(|key| !defaults[**key].is_null()) {
        body[*key] = defaults[*key].clone();
    }
    if machine.is_queued() {
        body["queuedProvisioning"] = json!({ "enabled": true });
        body["config"]["reservationAffinity"] = json!({ "consumeReservationType": "NO_RESERVATION" });
    }
    pools::prepare(&mut body, &cluster.body, &cluster.id, true, now);
    body
}

/// Fields of nodes that the defaults of auto-provisioning have.
const OF_NODES: [&str; 8] = [
    "bootDiskKmsKey",
    "diskSizeGb",
    "diskType",
    "imageType",
    "minCpuPlatform",
    "oauthScopes",
    "serviceAccount",
    "shieldedInstanceConfig",
];

/// The cluster's zones that have such machines, or those that auto-provisioning is limited to.
fn zones(cluster: &Value, config: &Value) -> Vec<String> {
    let gpu = text(config, "/accelerators/0/acceleratorType");
    let machine = text(config, "/machineType");
    let limited =
        cluster["autoscaling"]["autoprovisioningLocations"].as_array().filter(|all| !all.is_empty());
    let all =
        limited.or_else(|| cluster["locations"].as_array()).into_iter().flatten().filter_map(Value::as_str);
    let has = |zone: &&str| {
        machines::has_machine(zone, machine) && (gpu.is_empty() || machines::has_gpu(zone, gpu))
    };
    all.filter(has).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::super::{Reply, Request};
    use super::*;

    const CLUSTERS: &str = "/v1/projects/p/locations/us-central1/clusters";

    fn call(gke: &mut Gke, now: Timestamp, method: &str, path: &str, body: &Value) -> Reply {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        gke.handle(now, &Settings::default(), Request { method, path, query: "", body: &body })
    }

    #[test]
    fn pools_of_an_autopilot_cluster_are_nobodys() {
        let mut now: Timestamp = "2026-11-21T09:00:00Z".parse().expect("a time");
        let mut gke = Gke::new();
        let asked = json!({ "cluster": {
            "name": "c", "autopilot": { "enabled": true },
            "nodePools": [{ "name": "default-pool", "initialNodeCount": 1 }],
        } });
        let zonal = CLUSTERS.replace("us-central1", "us-central1-c");
        let refused = call(&mut gke, now, "POST", &zonal, &asked);
        assert_eq!(
            (refused.code, refused.body["error"]["message"].as_str()),
            (400, Some("Autopilot clusters must be regional clusters."))
        );
        assert_eq!(call(&mut gke, now, "POST", CLUSTERS, &asked).code, 200);
        now += SignedDuration::from_hours(1);
        let pools = format!("{CLUSTERS}/c/nodePools");
        let pool = format!("{pools}/default-pool");
        let size = format!("{pool}:setSize");
        let more = json!({ "nodePool": { "name": "x", "initialNodeCount": 1 } });
        for (method, path, body) in [
            ("GET", &pools, Value::Null),
            ("POST", &pools, more),
            ("GET", &pool, Value::Null),
            ("PUT", &pool, json!({ "tags": { "tags": ["a"] } })),
            ("DELETE", &pool, Value::Null),
            ("POST", &size, json!({ "nodeCount": 1 })),
        ] {
            let reply = call(&mut gke, now, method, path, &body);
            let message = reply.body["error"]["message"].as_str().unwrap_or_default();
            let expect = (400, "Autopilot node pools cannot be accessed or modified.");
            assert_eq!((reply.code, message), expect, "{method} {path}");
        }
        let cluster = call(&mut gke, now, "GET", &format!("{CLUSTERS}/c"), &Value::Null).body;
        assert_eq!(cluster["status"], "RUNNING");
        assert!(cluster["currentNodeCount"].is_null(), "nodes come with pods");
    }
}
