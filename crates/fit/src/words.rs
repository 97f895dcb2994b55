//! kube-scheduler's own wording, as in events and conditions of pods.
//!
//! Source: the constants `ErrReason…` of its plugins (`pkg/scheduler/framework/plugins`), Kubernetes 1.36.

use crate::refusal::{Predicate, Reason, Refusal};
use crate::resources::Resource;

/// Returns a PreFilter plugin's message about a claim that makes every node unfit, with its rank: the plugin, then the step in
/// the plugin.
pub fn of_claim(reason: &Reason) -> Option<(u8, String)> {
    let immediate = || "pod has unbound immediate PersistentVolumeClaims".to_owned();
    Some(match reason {
        Reason::NoClaim { claim } => (0, format!("persistentvolumeclaim {claim:?} not found")),
        Reason::ClaimLost { claim, volume } => {
            (1, format!("persistentvolumeclaim {claim:?} bound to non-existent persistentvolume {volume:?}"))
        }
        Reason::ClaimGoing { claim } => (1, format!("persistentvolumeclaim {claim:?} is being deleted")),
        Reason::Unbound { .. }
        | Reason::NotBoundYet { .. }
        | Reason::NoClass { .. }
        | Reason::NoClassOfVolume { .. } => (2, immediate()),
        Reason::NoVolume { volume, .. } => (3, format!("persistentvolume {volume:?} not found")),
        _ => return None,
    })
}

/// Returns the messages of the first plugin that refuses a node.
pub fn of_node(refusals: &[Refusal]) -> Vec<String> {
    let Some(first) = refusals.first().map(Refusal::predicate) else { return Vec::new() };
    let own = refusals.iter().filter(|refusal| refusal.predicate() == first);
    let mut all: Vec<String> = own.map(|refusal| of_refusal(&refusal.reason)).collect();
    match first {
        // These tell all that is short, and all that is wrong with volumes.
        Predicate::NodeResourcesFit | Predicate::VolumeBinding => {
            all.sort();
            all.dedup();
        }
        // A disk comes before claims.
        Predicate::VolumeRestrictions if all.iter().any(|words| words == DISK) => all = vec![DISK.to_owned()],
        _ => all.truncate(1),
    }
    all
}

const DISK: &str = "node(s) had no available disk";

fn of_refusal(reason: &Reason) -> String {
    let words = match reason {
        Reason::Gated { gates } => return format!("waiting for scheduling gates: [{}]", gates.join(" ")),
        Reason::Short { resource: Resource::Pods, .. } => "Too many pods",
        Reason::Short { resource, .. } => return format!("Insufficient {resource}"),
        Reason::Cordoned => "node(s) were unschedulable",
        Reason::NodeName { .. } => "node(s) didn't match the requested node name",
        Reason::Taint { .. } => "node(s) had untolerated taint(s)",
        Reason::Selector { .. } | Reason::Affinity { .. } => {
            "node(s) didn't match Pod's node affinity/selector"
        }
        Reason::Port { .. } => "node(s) didn't have free ports for the requested pod ports",
        Reason::DiskInUse { .. } => DISK,
        Reason::ClaimInUse { .. } => {
            "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
        }
        Reason::VolumeElsewhere { .. } => "node(s) didn't match PersistentVolume's node affinity",
        Reason::ClassElsewhere { .. } | Reason::MadeElsewhere { .. } => {
            "node(s) didn't find available persistent volumes to bind"
        }
        Reason::Zone { .. } => "node(s) had no available volume zone",
        Reason::NoDomain { .. } => {
            "node(s) didn't match pod topology spread constraints (missing required label)"
        }
        Reason::Skewed { .. } => "node(s) didn't match pod topology spread constraints",
        Reason::NotNear { .. } => "node(s) didn't match pod affinity rules",
        Reason::NotApart { .. } => "node(s) didn't match pod anti-affinity rules",
        Reason::KeptOut { .. } => "node(s) didn't satisfy existing pods anti-affinity rules",
        Reason::NoClaim { .. }
        | Reason::ClaimGoing { .. }
        | Reason::ClaimLost { .. }
        | Reason::Unbound { .. }
        | Reason::NotBoundYet { .. }
        | Reason::NoVolume { .. }
        | Reason::NoClass { .. }
        | Reason::NoClassOfVolume { .. } => {
            return of_claim(reason).map(|(_, words)| words).unwrap_or_default();
        }
    };
    words.to_owned()
}
