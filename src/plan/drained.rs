//! What runs on nodes that GKE makes anew: it drains them one after the other.

use super::Note;
use super::along::{NAMED, empties, owner, rolls, runs_on};
use super::cascade::pods_of_pool;
use super::planner::Planner;
use crate::diag::Code;
use crate::resource::{Identity, ObjectId};

impl Planner<'_> {
    /// Names the Pods that a rolling change of a pool evicts: those that are lost, and those that come back elsewhere.
    pub(super) fn drained(&self) -> Vec<Note> {
        let world = self.seen.inputs.world;
        let mut notes = Vec::new();
        for change in self.changes.iter().filter(|change| rolls(change) || empties(change)) {
            let Identity::NodePool { pool, .. } = &change.identity else { continue };
            let (mut lost, mut moved) = (Vec::new(), Vec::new());
            for (object, live) in pods_of_pool(world, pool) {
                match (runs_on(object, live), owner(live)) {
                    (false, _) | (true, Some("DaemonSet" | "Node")) => {}
                    (true, Some(_)) => moved.push(object),
                    (true, None) => lost.push(object),
                }
            }
            let mut parts = Vec::new();
            if !lost.is_empty() {
                let (is, it) = if lost.len() == 1 { ("is", "it") } else { ("are", "them") };
                parts.push(format!("{} {is} lost, as no controller recreates {it}", named(&lost)));
            }
            if !moved.is_empty() {
                let (is, loses) = if moved.len() == 1 { ("is", "loses") } else { ("are", "lose") };
                let what = "data in memory and on the node's disks";
                parts.push(format!("{} {is} recreated on another node and {loses} {what}", named(&moved)));
            }
            parts.extend(
                world.unseen.iter().map(|why| format!("not all pods on them could be listed: {why}")),
            );
            if parts.is_empty() {
                continue;
            }
            let what = if empties(change) { "deletes all nodes" } else { "drains and recreates the nodes" };
            let message = format!("GKE {what} of this pool: {}", parts.join("; "));
            notes.push(Note::of(Code::NodesDrained, &change.address, message));
        }
        notes
    }
}

fn named(pods: &[&ObjectId]) -> String {
    let names: Vec<String> = pods.iter().take(NAMED).map(ToString::to_string).collect();
    let more = match pods.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{}{more}", names.join(", "))
}
