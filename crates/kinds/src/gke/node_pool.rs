//! GKE node pools.

use serde_json::{Value, json};

use super::api;
use super::field::{self, ManagedBy};
use crate::kind::{ChangeContext, Compare, Kind, StopEffect};
use crate::scope::Scope;
use model::address::{Address, FieldPath, Segment};
use model::resource::{
    Action, CapacityOption, CapacityOptions, ClusterName, DurationEstimate, Identity, KindId, Recreation,
    Resource,
};
use model::schema::Message;

mod billing;
mod calls;
pub mod capacity;
pub mod capacity_options;
mod fields;
mod keys;
mod networks;
mod ready;
mod registries;
mod section;

pub use billing::{billed_node, may_lose_nodes, node_bounds};
pub use calls::{gives_its_account, initial_nodes, inline_body, inline_pool, starts_empty};
pub use fields::{CLOUD_PLATFORM_SCOPE, FIELDS, LABELS_ROLL, default_disk, takes_hyperdisk_only};
pub use keys::{BlueGreen, Capacity, Kubelet, Linux, LocalSsd, Reservation, TenantAffinity};
pub use networks::{NodeNetwork, PodNetwork};
pub use ready::{allocatable_gpus, conditions, lacks_machines};
pub use ready::{is_autoprovisioned, live_gpus, summary};
pub use section::{DriverVersion, NodePool, ServesRequests, Surge, certain_nodes};

/// The usual duration of creating one with nodes, according to issues of Google's provider for Terraform.
const USUAL: DurationEstimate = DurationEstimate { least: 90, most: 7 * 60 };

/// The usual time until a node that the autoscaler adds to a pool with GPUs takes Pods. Source: the guides' runs; the driver's
/// installation is most of it.
pub const NEW_GPU_NODE: DurationEstimate = DurationEstimate { least: 2 * 60, most: 10 * 60 };

/// Returns the usual time until a node that the autoscaler adds to a pool takes Pods. `None` where machines are waited for: that may
/// take days.
pub fn new_node(pool: &Value) -> Option<DurationEstimate> {
    let waits = pool["config"]["flexStart"] == true || pool["queuedProvisioning"]["enabled"] == true;
    let has_gpus = !pool["config"]["accelerators"][0].is_null();
    // A pool with nodes is not created faster than a node.
    (!waits).then_some(if has_gpus { NEW_GPU_NODE } else { USUAL })
}

/// GKE node pools.
pub const KIND: Kind = Kind {
    rank: 10,
    compare: Compare::Gke(Message::NodePool, fields::RULES),
    change_steps: calls::change_steps,
    queries: ready::queries,
    readiness: ready::readiness,
    status_line: ready::status_line,
    plan_summary: ready::about,
    server_defaults: fields::filled_in,
    stop_effect: StopEffect::Empties(emptied),
    scale_target: ready::scaled,
    estimate,
    invalidates_checks: Action::creates,
    ..Kind::DEFAULT
};

/// The fields of a pool's body that select its provisioning model, such as Spot.
const PROVISIONING_FIELDS: [&str; 4] =
    ["config.spot", "config.flexStart", "queuedProvisioning.enabled", "config.reservationAffinity"];

/// Returns the usual duration. `None` for a pool that is created with its cluster, which includes the duration, and for a pool
/// without nodes.
fn estimate(context: &ChangeContext) -> Option<DurationEstimate> {
    (context.inline_pool.is_none() && !starts_empty(context.body())).then_some(USUAL)
}

/// Sets a pool to no nodes, and prevents scale-up. GKE refuses to turn off the autoscaler of pools that wait for capacity, but
/// such pools get no nodes without a request.
fn emptied(body: &mut Value) {
    let waits = body["queuedProvisioning"]["enabled"] == true || body["config"]["flexStart"] == true;
    if !waits {
        body["autoscaling"] = json!({ "enabled": false });
    }
    body["nodeCount"] = json!(0);
    body["initialNodeCount"] = json!(0);
}

/// Returns true for a field that [`emptied`] writes.
pub fn is_emptied_by(path: &FieldPath) -> bool {
    let first = path.segments().first();
    let size = |key: &str| matches!(key, "autoscaling" | "nodeCount" | "initialNodeCount");
    matches!(first, Some(Segment::Key(key)) if size(key))
}

/// Returns the resource of `[node_pool.KEY]`; with `capacity`, the resource of its first option.
pub fn lower(key: &str, section: &NodePool, cluster: &ClusterName, scope: &Scope) -> Resource {
    let first = capacity_options::first_option(section);
    let mut resource = resource(key, first.as_ref().unwrap_or(section), cluster, scope, ManagedBy::Stack);
    if first.is_some() {
        let capacity = resource.origin.key("capacity");
        let bought = PROVISIONING_FIELDS.iter().filter_map(|path| path.parse().ok());
        resource.provenance.extend(bought.map(|path: FieldPath| (path, capacity.clone())));
    }
    resource
}

/// Returns all capacity options of `[node_pool.KEY]`; `None` without `capacity`.
pub fn capacity_options(
    key: &str,
    section: &NodePool,
    cluster: &ClusterName,
    scope: &Scope,
) -> Option<CapacityOptions> {
    let option = |pool_option: capacity_options::PoolOption| CapacityOption {
        body: lower(key, &pool_option.pool, cluster, scope).body,
        capacity: pool_option.capacity,
        zone: pool_option.zone,
    };
    let options: Vec<CapacityOption> = capacity_options::pool_options(section).map(option).collect();
    let identity = Identity::NodePool { cluster: cluster.clone(), pool: section.live_name(key).to_owned() };
    (!options.is_empty()).then_some(CapacityOptions { identity, options })
}

/// Returns the resource to read and compare for `[node_pool.KEY]` with `manage = false`.
pub fn lower_external(key: &str, section: &NodePool, cluster: &ClusterName, scope: &Scope) -> Resource {
    resource(key, section, cluster, scope, ManagedBy::Others)
}

fn resource(
    key: &str,
    section: &NodePool,
    cluster: &ClusterName,
    scope: &Scope,
    maker: ManagedBy,
) -> Resource {
    let name = section.live_name(key);
    let mut body = field::body(FIELDS, section, scope, maker);
    body["name"] = json!(name);
    let origin = FieldPath::keys(["node_pool", key]);
    let mut provenance = field::provenance(FIELDS, &origin);
    provenance.extend(api::merge_into_body(&mut body, Message::NodePool, &section.api, &origin));
    let accelerators = FieldPath::keys(["config", "accelerators"]);
    let driver = accelerators.index(0).key("gpuDriverInstallationConfig");
    provenance.push((driver, origin.key("driver")));
    if section.accelerator.is_none() {
        provenance.push((accelerators, origin.key("machine_type")));
    }
    let mut depends_on: Vec<Address> = scope.cluster_dependency();
    depends_on.extend(section.lifecycle.depends_on.iter().map(Address::new));
    Resource {
        address: Address::of("node_pool", key),
        identity: Identity::NodePool { cluster: cluster.clone(), pool: name.to_owned() },
        kind: KindId::NodePool,
        body,
        provenance,
        origin,
        depends_on,
        protect: section.lifecycle.protect,
        recreation: Recreation::Always,
        create_only: Value::Null,
    }
}
