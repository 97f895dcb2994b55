//! Zones, regions, and how the nodes of a pool lie in them.

use std::collections::BTreeSet;

use crate::rules::{Context, counted};
use crate::{NodePool, Nodes, Stack};
use model::address::FieldPath;
use model::catalog;
use model::diag::{Code, Diagnostic, listed, nearest};

/// Google Cloud's regions as published in 2026. The list grows: what is not in it is a warning, not an error.
const REGIONS: [&str; 44] = [
    "africa-south1",
    "asia-east1",
    "asia-east2",
    "asia-northeast1",
    "asia-northeast2",
    "asia-northeast3",
    "asia-south1",
    "asia-south2",
    "asia-southeast1",
    "asia-southeast2",
    "asia-southeast3",
    "australia-southeast1",
    "australia-southeast2",
    "europe-central2",
    "europe-north1",
    "europe-north2",
    "europe-southwest1",
    "europe-west1",
    "europe-west10",
    "europe-west12",
    "europe-west2",
    "europe-west3",
    "europe-west4",
    "europe-west6",
    "europe-west8",
    "europe-west9",
    "me-central1",
    "me-central2",
    "me-west1",
    "northamerica-northeast1",
    "northamerica-northeast2",
    "northamerica-south1",
    "southamerica-east1",
    "southamerica-west1",
    "us-central1",
    "us-east1",
    "us-east4",
    "us-east5",
    "us-east7",
    "us-south1",
    "us-west1",
    "us-west2",
    "us-west3",
    "us-west4",
];

/// A location taken apart.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Location<'t> {
    /// `us-central1`
    Region(&'t str),
    /// `us-central1-c`
    Zone { region: &'t str },
    /// Neither.
    Malformed,
}

fn taken_apart(text: &str) -> Location<'_> {
    let is_region = |text: &str| {
        let Some((continent, place)) = text.split_once('-') else { return false };
        let letters = place.trim_end_matches(|c: char| c.is_ascii_digit());
        let lower = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase());
        lower(continent) && lower(letters) && letters.len() < place.len()
    };
    match text.rsplit_once('-') {
        _ if is_region(text) => Location::Region(text),
        Some((region, zone))
            if is_region(region) && zone.len() == 1 && zone.chars().all(|c| c.is_ascii_lowercase()) =>
        {
            Location::Zone { region }
        }
        _ => Location::Malformed,
    }
}

/// The region of a zone or a region, when it is written like one.
fn region_of(text: &str) -> Option<&str> {
    match taken_apart(text) {
        Location::Region(region) | Location::Zone { region } => Some(region),
        Location::Malformed => None,
    }
}

/// The zones of a pool: its own, else the cluster's, else the cluster's zone. Empty for a regional cluster
/// that leaves them to GKE.
fn zones_of<'a>(stack: &'a Stack, pool: &'a NodePool) -> Vec<&'a str> {
    let cluster = stack.cluster.as_ref().map(|cluster| cluster.zones.as_slice()).unwrap_or_default();
    let zones = [pool.zones.as_slice(), cluster].into_iter().find(|zones| !zones.is_empty());
    if let Some(zones) = zones {
        return zones.iter().map(String::as_str).collect();
    }
    let location = stack.gke.as_ref().map(|gke| gke.location.as_str());
    location.filter(|location| matches!(taken_apart(location), Location::Zone { .. })).into_iter().collect()
}

fn written_zones<'a>(context: &Context<'a>) -> Vec<(FieldPath, &'a str)> {
    let mut zones = Vec::new();
    let mut list = |path: FieldPath, list: &'a [String]| {
        zones.extend(list.iter().enumerate().map(|(index, zone)| (path.index(index), zone.as_str())));
    };
    if let Some(cluster) = &context.stack.cluster {
        list(FieldPath::keys(["cluster", "zones"]), &cluster.zones);
    }
    for (path, pool) in context.pools() {
        list(path.key("zones"), &pool.zones);
    }
    zones
}

/// A zone that is given twice would count twice where nodes are spread.
pub(crate) fn zones_come_once(context: &mut Context<'_>) {
    let zones = written_zones(context);
    for (index, (place, zone)) in zones.iter().enumerate() {
        let same = |(other, name): &&(FieldPath, &str)| name == zone && other.parent() == place.parent();
        if let Some((first, _)) = zones[..index].iter().find(same) {
            let finding = Diagnostic::error(Code::Twice, format!("the zone `{zone}` is given twice"));
            let finding = finding.at_value(place.clone(), "again here").at_value(first.clone(), "first here");
            context.say(finding.help("keep one of the two"));
        }
    }
}

/// Source: googleapis `cluster_service.proto`, `Cluster.locations`: it includes the zone of the control plane.
pub(crate) fn own_zone_is_among_them(context: &mut Context<'_>) {
    let stack = context.stack;
    let (Some(gke), Some(cluster)) = (&stack.gke, &stack.cluster) else { return };
    let zonal = matches!(taken_apart(&gke.location), Location::Zone { .. });
    if !zonal
        || cluster.zones.is_empty()
        || cluster.zones.contains(&gke.location)
        || !cluster.manage.is_managed()
    {
        return;
    }
    let message = format!("the cluster's own zone `{}` is not among its `zones`", gke.location);
    let finding = Diagnostic::error(Code::OwnZone, message)
        .at_value(FieldPath::keys(["cluster", "zones"]), "the nodes are here")
        .at_value(FieldPath::keys(["gke", "location"]), "the control plane is here");
    let region = region_of(&gke.location).unwrap_or(&gke.location);
    context.say(finding.help(format!(
        "add `\"{}\"` to `zones`, or make the cluster regional: `location = \"{region}\"`",
        gke.location
    )));
}

/// An upgrade needs a node more or a node less at a time.
pub(crate) fn upgrades_can_go_on(context: &mut Context<'_>) {
    for (path, pool) in context.pools() {
        if pool.surge.is_some_and(|surge| surge.max_surge + surge.max_unavailable == 0) {
            let message = "with no extra node and no unavailable node an upgrade cannot proceed";
            let finding = Diagnostic::error(Code::NoSurge, message).at_value(path.key("surge"), "both are 0");
            context.say(finding.help("set one of them to 1: `max_unavailable = 1` needs no extra machine"));
        }
    }
}

/// Zones and regions are known, or at least written like ones.
pub(crate) fn zones_exist(context: &mut Context<'_>) {
    let mut places = written_zones(context);
    for (place, zone) in &places {
        if let Location::Region(region) = taken_apart(zone) {
            let message = format!("`{region}` is a region, not a zone");
            let finding = Diagnostic::error(Code::UnknownZone, message).at_value(place.clone(), "not a zone");
            context.say_of_value(finding.help(format!("its zones are named `{region}-a`, `{region}-b`, …")));
        }
    }
    if let Some(gke) = &context.stack.gke {
        places.push((FieldPath::keys(["gke", "location"]), &gke.location));
    }
    for (place, text) in places {
        match region_of(text) {
            Some(region) if REGIONS.contains(&region) => unknown_letter(context, place, text, region),
            Some(region) => unknown_region(context, place, text, region),
            None => {
                let message = format!("`{text}` is not a zone or region");
                let finding = Diagnostic::error(Code::UnknownZone, message).at_value(place, "");
                context.say_of_value(finding.help(match better(text) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => "a zone looks like `us-central1-c`, a region like `us-central1`".to_owned(),
                }));
            }
        }
    }
}

/// Zones are lettered from `a`, and none is known behind `f` (from memory; so a warning, and wide).
fn unknown_letter(context: &mut Context<'_>, place: FieldPath, text: &str, region: &str) {
    let letter = text.strip_prefix(region).and_then(|rest| rest.strip_prefix('-'));
    if letter.is_some_and(|letter| letter.len() == 1 && letter > "f") {
        let message = format!("unknown zone `{text}`");
        let help = format!(
            "`gcloud compute zones list --filter=region:{region}` lists the region's zones; a new zone is used \
             as written"
        );
        context.say_of_value(Diagnostic::warning(Code::UnknownZone, message).at_value(place, "").help(help));
    }
}

/// A region with a new number may be new; a misspelled place is none.
fn unknown_region(context: &mut Context<'_>, place: FieldPath, text: &str, region: &str) {
    let place_of = |region: &str| region.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned();
    let known_place = REGIONS.iter().any(|known| place_of(known) == place_of(region));
    let message = format!("unknown region `{region}`");
    context.say_of_value(match better(text).filter(|_| !known_place) {
        Some(near) => Diagnostic::error(Code::UnknownZone, message)
            .at_value(place, "")
            .help(format!("did you mean `{near}`?")),
        None => Diagnostic::warning(Code::UnknownZone, message)
            .at_value(place, "")
            .help("`gcloud compute zones list` lists all; a new one is used as written"),
    });
}

/// The location that was meant, its zone's letter kept.
fn better(text: &str) -> Option<String> {
    // A letter at the end is a zone's: `us-central1c` is no misspelled region.
    let region_like = text.ends_with(|end: char| end.is_ascii_digit());
    if let Some(region) = nearest(text, REGIONS.iter().copied()).filter(|_| region_like) {
        return Some(region.to_owned());
    }
    let (region, zone) = text.rsplit_once('-')?;
    match zone.len() {
        1 => nearest(region, REGIONS.iter().copied()).map(|region| format!("{region}-{zone}")),
        // `us-central-1c`, `us-central1c`
        _ => {
            let zone = text.chars().next_back().filter(char::is_ascii_lowercase)?;
            let region = text.trim_end_matches(zone);
            // A stray hyphen before the number: `europe-west-2a`.
            let joined = region.rsplit_once('-').map(|(name, number)| format!("{name}{number}"));
            if let Some(region) = joined.filter(|joined| REGIONS.contains(&joined.as_str())) {
                return Some(format!("{region}-{zone}"));
            }
            nearest(region, REGIONS.iter().copied()).map(|region| format!("{region}-{zone}"))
        }
    }
}

/// Zones of nodes lie in the cluster's region.
pub(crate) fn zones_lie_in_the_region(context: &mut Context<'_>) {
    let Some(region) = context.stack.gke.as_ref().and_then(|gke| region_of(&gke.location)) else { return };
    for (place, zone) in written_zones(context) {
        let known = region_of(zone).filter(|region| REGIONS.contains(region));
        if known.is_some_and(|other| other != region) {
            let message = format!("the zone `{zone}` is not in the cluster's region `{region}`");
            let finding = Diagnostic::error(Code::ZoneOutside, message).at_value(place, "another region");
            let finding = finding.at_value(FieldPath::keys(["gke", "location"]), "the cluster is here");
            context.say(finding.help("all nodes of a cluster are in one region"));
        }
    }
}

/// A regional cluster that leaves the zones to GKE gets nodes in three of them.
const ZONES_OF_A_REGION: u32 = 3;

/// How many zones a pool's nodes lie in, where that is said, and why; 1 where nothing needs to divide.
fn spread(stack: &Stack, path: &FieldPath, pool: &NodePool) -> (u32, FieldPath, String) {
    // Of a pool with ways, one zone after the other is tried.
    if !pool.capacity.is_empty() && !pool.zones.is_empty() {
        return (1, path.key("zones"), "one zone".to_owned());
    }
    let zones: BTreeSet<&str> = zones_of(stack, pool).into_iter().collect();
    let regional =
        stack.gke.as_ref().is_some_and(|gke| matches!(taken_apart(&gke.location), Location::Region(_)));
    match u32::try_from(zones.len()).unwrap_or(u32::MAX) {
        0 if regional => {
            let why = format!("a region: nodes in {ZONES_OF_A_REGION} zones");
            (ZONES_OF_A_REGION, FieldPath::keys(["gke", "location"]), why)
        }
        number if pool.zones.is_empty() => {
            (number.max(1), FieldPath::keys(["cluster", "zones"]), format!("{number} zones"))
        }
        number => (number, path.key("zones"), format!("{number} zones")),
    }
}

/// The minimum of an autoscaler counts all zones together, and a pool is made with the same number in each.
pub(crate) fn minimums_divide(context: &mut Context<'_>) {
    let stack = context.stack;
    for (path, pool) in context.pools() {
        let Nodes::Autoscaled { min, .. } = pool.size() else { continue };
        let (number, place, why) = spread(stack, &path, pool);
        if min.is_multiple_of(number) {
            continue;
        }
        let first = min - min % number;
        let message = format!("the pool begins with {}, not with its minimum {min}", counted(first, "node"));
        let finding = Diagnostic::warning(Code::NodesNotDivisible, message);
        let finding =
            finding.at_value(path.key("nodes").key("min"), "all zones together").at_value(place, why);
        context.say(finding.help(format!(
            "GKE takes one number for each zone, and its autoscaler adds nodes when Pods need them: use a multiple of \
             {number}, or set `zones` of the pool to fewer of them"
        )));
    }
}

/// A cluster is created with one pool that has a node. One that is there already may have its pools scaled to nothing, and
/// the file alone does not tell which it is.
pub(crate) fn a_pool_can_be_first(context: &mut Context<'_>) {
    let stack = context.stack;
    let Some(cluster) = stack.cluster.as_ref().filter(|cluster| cluster.manage.is_managed()) else { return };
    let pools: Vec<_> = context.pools().collect();
    let can = |(path, pool): &(FieldPath, &NodePool)| match pool.size() {
        _ if pool.waits_for_machines() || !pool.capacity.is_empty() => false,
        Nodes::Fixed(nodes) => nodes > 0,
        Nodes::Autoscaled { max, .. } => max >= spread(stack, path, pool).0,
    };
    let Some((path, _)) = pools.first().filter(|_| !pools.iter().any(can)) else { return };
    let message = format!("no pool can be created with the cluster `{}`", cluster.name);
    let finding = Diagnostic::warning(Code::NoFirstPool, message);
    let finding = finding.at_value(path.key("nodes"), "a cluster is created with a node in each zone");
    context.say(finding.help(
        "if the cluster is still to be created, add a small pool: `[node_pool.system]` with `machine_type = \
         \"e2-standard-2\"` and `nodes` of at least 1 in each zone",
    ));
}

/// A fixed number of nodes is the same in each zone.
pub(crate) fn nodes_divide(context: &mut Context<'_>) {
    let stack = context.stack;
    for (path, pool) in context.pools() {
        let Nodes::Fixed(nodes) = pool.size() else { continue };
        let (number, place, why) = spread(stack, &path, pool);
        if nodes.is_multiple_of(number) {
            continue;
        }
        let below = nodes - nodes % number;
        let message = format!("{} cannot be spread over {number} zones", counted(nodes, "node"));
        let finding = Diagnostic::error(Code::NodesNotDivisible, message);
        let finding = finding.at_value(path.key("nodes"), "all zones together").at_value(place, why);
        let neighbours = match below {
            0 => format!("at least {number} nodes are needed"),
            below => format!("use {below} or {} nodes", below + number),
        };
        context.say(finding.help(format!("{neighbours}, or set `zones` of the pool to fewer of them")));
    }
}

/// The limits of an autoscaler.
pub(crate) fn limits_are_in_order(context: &mut Context<'_>) {
    for (path, pool) in context.pools() {
        if let Nodes::Autoscaled { min, max } = pool.size()
            && min > max
        {
            let message = format!("`min` is {min} and `max` is {max}");
            let nodes = path.key("nodes");
            let finding = Diagnostic::error(Code::Limits, message)
                .at_value(nodes.key("min"), "")
                .at_value(nodes.key("max"), "");
            context.say(finding.help(format!("for example `nodes = {{ min = {max}, max = {min} }}`")));
        }
    }
}

/// The zones offer the pool's GPU type, as far as our table knows.
pub(crate) fn gpus_are_offered(context: &mut Context<'_>) {
    let stack = context.stack;
    for (path, pool) in context.pools() {
        let Some(gpu) = crate::rules::machines::gpu_type_of(pool) else { continue };
        let Some(accelerator) = catalog::accelerator(gpu) else { continue };
        if accelerator.zones.is_empty() {
            continue;
        }
        let missing: Vec<&str> = zones_of(stack, pool)
            .into_iter()
            .filter(|zone| region_of(zone).is_some_and(|region| REGIONS.contains(&region)))
            .filter(|zone| !accelerator.zones.iter().any(|known| known == zone))
            .collect();
        if missing.is_empty() {
            continue;
        }
        let message =
            format!("`{gpu}` is not known to be available in {}", listed(missing.iter().copied(), "and"));
        let place = if !pool.zones.is_empty() {
            path.key("zones")
        } else if stack.cluster.as_ref().is_some_and(|cluster| !cluster.zones.is_empty()) {
            FieldPath::keys(["cluster", "zones"])
        } else {
            FieldPath::keys(["gke", "location"])
        };
        let what = if pool.accelerator.is_some() { "accelerator" } else { "machine_type" };
        let finding = Diagnostic::warning(Code::GpuNotSeenInZone, message);
        let finding = finding.at_value(path.key(what), "this GPU").at_value(place, "here");
        context.say(finding.help(other_zones(&accelerator.zones, &missing)));
    }
}

fn other_zones(known: &[String], missing: &[&str]) -> String {
    let region = missing.first().and_then(|zone| region_of(zone));
    let near: Vec<&str> = known
        .iter()
        .map(String::as_str)
        .filter(|zone| region_of(zone) == region && region.is_some())
        .collect();
    // Zones of the same part of the world come first: `us` of `us-east4-a`.
    let part = |zone: &str| zone.split('-').next().unwrap_or_default().to_owned();
    let here = missing.first().map(|zone| part(zone));
    let mut all: Vec<&str> = known.iter().map(String::as_str).collect();
    all.sort_by_key(|zone| Some(part(zone)) != here);
    all.truncate(6);
    match near.as_slice() {
        [] => format!("it is available in {}; the list may be out of date", listed(all, "and")),
        near => format!("in this region it is available in {}", listed(near.iter().copied(), "and")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locations_are_taken_apart() {
        for (text, location) in [
            ("us-central1", Location::Region("us-central1")),
            ("us-central1-c", Location::Zone { region: "us-central1" }),
            ("europe-west12-a", Location::Zone { region: "europe-west12" }),
            ("us-central", Location::Malformed),
            ("us-central1-", Location::Malformed),
            ("us-central1-cc", Location::Malformed),
            ("", Location::Malformed),
            ("US-CENTRAL1", Location::Malformed),
        ] {
            assert_eq!(taken_apart(text), location, "{text}");
        }
    }

    #[test]
    fn misspelt_locations_are_recognised() {
        for (text, meant) in [
            ("us-central-1-c", Some("us-central1-c")),
            ("us-central1c", Some("us-central1-c")),
            ("us-central-c", Some("us-central1-c")),
            ("us-centrall-c", Some("us-central1-c")),
            ("us_central1", Some("us-central1")),
            ("europe-west-2a", Some("europe-west2-a")),
            ("nowhere", None),
        ] {
            assert_eq!(better(text).as_deref(), meant, "{text}");
        }
    }
}
