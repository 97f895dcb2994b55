//! Capacity options of a pool: each is the pool of the file with another provisioning model. GKE cannot change the model of a
//! pool, so to try the next option the pool is recreated.

use serde_json::Value;

use super::keys::{Capacity, Reservation};
use super::section::NodePool;
use crate::gke::enums::LocationPolicy;
use crate::json::text;
use crate::short_forms::Nodes;
use model::resource::{CapacityOption, CapacityOptions};

/// Returns the provisioning model of a desired or live pool.
fn capacity_of(pool: &Value) -> Capacity {
    let config = &pool["config"];
    let reserved = &config["reservationAffinity"]["consumeReservationType"];
    match () {
        () if pool["queuedProvisioning"]["enabled"] == true => Capacity::Queued,
        () if config["flexStart"] == true => Capacity::FlexStart,
        () if config["spot"] == true => Capacity::Spot,
        () if text(reserved) == "SPECIFIC_RESERVATION" => Capacity::Reservation,
        () => Capacity::OnDemand,
    }
}

/// A section with one of its options.
pub(super) struct PoolOption {
    pub capacity: String,
    pub zone: Option<String>,
    pub pool: NodePool,
}

/// Returns the section with its first option.
pub(super) fn first_option(section: &NodePool) -> Option<NodePool> {
    pool_options(section).next().map(|option| option.pool)
}

/// Returns the options. An option that does not wait for machines is tried zone by zone, because a pool has the same number of
/// nodes in each of its zones. With an option that waits, GKE chooses the zone.
pub(super) fn pool_options(section: &NodePool) -> impl Iterator<Item = PoolOption> {
    section.capacity.iter().flat_map(move |capacity| {
        let zones: Vec<&[String]> = match section.zones.as_slice() {
            zones if capacity.waits() || zones.is_empty() => vec![zones],
            zones => zones.chunks(1).collect(),
        };
        zones.into_iter().map(move |zones| {
            let pool = section_for(*capacity, section, zones);
            let label = match (&pool.reservation, capacity) {
                (Some(Reservation::Named(name)), Capacity::Reservation) => format!("reservation {name}"),
                _ => capacity.word().to_owned(),
            };
            let zone = zones.first().filter(|_| !capacity.waits()).cloned();
            PoolOption { capacity: label, zone, pool }
        })
    })
}

fn section_for(capacity: Capacity, section: &NodePool, zones: &[String]) -> NodePool {
    let mut pool = NodePool { capacity: Vec::new(), zones: zones.to_vec(), ..section.clone() };
    match capacity {
        Capacity::Reservation => {}
        Capacity::OnDemand => pool.reservation = None,
        Capacity::Spot => (pool.spot, pool.reservation) = (true, None),
        Capacity::FlexStart | Capacity::Queued => {
            // Both are refused with a minimum or a reservation; the rest is what Google's guide asks for.
            pool.nodes = Some(Nodes::Autoscaled { min: 0, max: section.size().most() });
            pool.reservation = Some(Reservation::None);
            pool.location_policy = section.location_policy.or(Some(LocationPolicy::Any));
            pool.auto_repair = section.auto_repair.or(Some(false));
            match capacity {
                Capacity::Queued => pool.queued = Some(true),
                _ => pool.flex_start = Some(true),
            }
        }
    }
    pool
}

/// Returns the option that a live pool was created with.
pub fn option_of(capacity: &CapacityOptions, live: &Value) -> Option<usize> {
    let zones = |pool: &Value| -> Vec<String> {
        let zones = pool["locations"].as_array().into_iter().flatten();
        let mut zones: Vec<String> = zones.filter_map(Value::as_str).map(str::to_owned).collect();
        zones.sort();
        zones
    };
    let same = |option: &CapacityOption| {
        let desired = zones(&option.body);
        capacity_of(&option.body) == capacity_of(live) && (desired.is_empty() || desired == zones(live))
    };
    capacity.options.iter().position(same)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use model::resource::Identity;

    fn section(text: &str) -> NodePool {
        toml::from_str(&format!("machine_type = \"n1-standard-4\"\n{text}")).unwrap()
    }

    fn names(text: &str) -> Vec<String> {
        let name = |option: PoolOption| match option.zone {
            Some(zone) => format!("{} in {zone}", option.capacity),
            None => option.capacity,
        };
        pool_options(&section(text)).map(name).collect()
    }

    #[test]
    fn each_way_is_tried_in_each_zone_unless_gke_waits() {
        let text = "nodes = 2\nreservation = { name = \"r\" }\nzones = [\"a\", \"b\"]\n\
                    capacity = [\"reservation\", \"on-demand\", \"spot\", \"flex-start\", \"queued\"]";
        let expected = [
            "reservation r in a",
            "reservation r in b",
            "on-demand in a",
            "on-demand in b",
            "spot in a",
            "spot in b",
            "flex-start",
            "queued",
        ];
        assert_eq!(names(text), expected);
        assert_eq!(names("capacity = [\"spot\", \"on-demand\"]"), ["spot", "on-demand"]);
        assert!(names("spot = true").is_empty());
    }

    #[test]
    fn a_capacity_option_says_how_its_machines_are_bought_and_nothing_else_differs() {
        let section = section(
            "nodes = 2\nreservation = { name = \"r\" }\nzones = [\"a\", \"b\"]\n\
             capacity = [\"reservation\", \"on-demand\", \"spot\", \"queued\"]",
        );
        let pools: Vec<NodePool> = pool_options(&section).map(|option| option.pool).collect();
        assert_eq!(pools[0].reservation, Some(Reservation::Named("r".into())));
        assert_eq!((pools[2].reservation.clone(), pools[2].spot), (None, false));
        assert_eq!((pools[5].reservation.clone(), pools[5].spot), (None, true));
        assert_eq!(pools[5].zones, ["b"]);
        let queued = &pools[6];
        assert_eq!(queued.nodes, Some(Nodes::Autoscaled { min: 0, max: 2 }));
        assert_eq!((queued.reservation.clone(), queued.zones.len()), (Some(Reservation::None), 2));
        assert_eq!((queued.location_policy, queued.auto_repair), (Some(LocationPolicy::Any), Some(false)));
        assert!(pools.iter().all(|pool| pool.capacity.is_empty() && pool.machine_type == "n1-standard-4"));
    }

    #[test]
    fn a_live_pool_tells_its_way() {
        let option = |name: &str, body: Value| CapacityOption { capacity: name.to_owned(), zone: None, body };
        let capacity = CapacityOptions {
            identity: Identity::Check(model::address::Address::new("x")),
            options: vec![
                option("spot", json!({ "config": { "spot": true }, "locations": ["a"] })),
                option("spot", json!({ "config": { "spot": true }, "locations": ["b"] })),
                option("flex-start", json!({ "config": { "flexStart": true } })),
            ],
        };
        let live = |config: Value, zones: Value| json!({ "config": config, "locations": zones });
        let cases = [
            (live(json!({ "spot": true }), json!(["b"])), Some(1)),
            (live(json!({ "spot": true }), json!(["c"])), None),
            (live(json!({ "flexStart": true }), json!(["a", "b"])), Some(2)),
            (live(json!({}), json!(["a"])), None),
        ];
        for (live, expected) in cases {
            assert_eq!(option_of(&capacity, &live), expected, "{live}");
        }
    }
}
