//! Checks that the target is that of the last apply, and adds notes on state that is unknown.

use crate::planner::Planner;
use crate::{Approval, Inputs, Mode, Note, observe::diff};
use model::address::{Address, FieldPath};
use model::diag::{self, Code, Diagnostic};
use model::resource::{Identity, OtherClusters, Seen};

impl Inputs<'_> {
    /// Returns true if a live Kubernetes object was applied by the stack.
    pub(crate) fn has_applied_objects(&self) -> bool {
        let manager = self.owner.field_manager();
        let mut objects = self.world.objects.live().into_iter().flatten();
        objects.any(|(_, live)| diff::applied_by(live, &manager))
    }
}

/// The help text for a live state that cannot be read.
pub const NEEDS_LIVE_STATE_HELP: &str =
    "a plan needs the live state; `--offline` plans without it, as a first apply";

/// The maximum number of kinds that a message lists.
const MAX_LISTED: usize = 5;

impl Planner<'_> {
    /// Reports an unreadable live state as an error: it must never count as empty.
    pub(crate) fn check_readable(&mut self) {
        let world = self.observed.inputs.world;
        let unread = match (&world.cluster, &world.objects) {
            (Seen::Unreadable(why), _) => Some(("the GKE cluster", why)),
            (Seen::Live(_), Seen::Unreadable(why)) if self.may_delete_unread_cluster() => {
                self.note_unread_deletes(why);
                None
            }
            (_, Seen::Unreadable(why)) if !self.observed.is_cluster_unusable() => {
                Some(("the Kubernetes cluster", why))
            }
            _ => None,
        };
        if let Some((what, why)) = unread {
            let problem = Diagnostic::error(Code::Unreadable, format!("{what} cannot be read: {why}"));
            let help = match (self.observed.inputs.mode, &world.cluster) {
                (Mode::Destroy, Seen::Live(_)) => {
                    "a plan needs the live state; `destroy --allow delete:unseen` deletes the GKE cluster with \
                     everything in it"
                }
                _ => NEEDS_LIVE_STATE_HELP,
            };
            self.problems.push(problem.about(Address::new("cluster"), "").help(help));
        }
        if let Some(why) = &world.record_error {
            let stack = &self.observed.inputs.owner.stack;
            let problem = Diagnostic::error(
                Code::Unreadable,
                format!(
                    "the record of stack {stack} cannot be used ({}): {why}",
                    model::record::Record::object(stack)
                ),
            );
            self.problems.push(problem.about(Address::new("stack"), "").help(why.remedy(stack)));
        }
        if let Some(record) =
            world.record.as_ref().filter(|record| record.id != self.observed.inputs.owner.id)
        {
            let what = format!(
                "the cluster has the record of another stack named {} (id {}), not {}",
                record.stack, record.id, self.observed.inputs.owner.id
            );
            let span = self.observed.inputs.sources.span(&FieldPath::keys(["stack", "name"]));
            let problem = Diagnostic::error(Code::NotOurs, what);
            // A plan of a file has no text of its stack.
            let problem = match span {
                Some(_) => problem.at(span, "named here"),
                None => problem.about(Address::new("stack"), ""),
            };
            self.problems.push(problem.help("rename this stack, or restore its `id`"));
        }
    }

    /// Refuses to create a stack that exists at another location. Otherwise a changed name in the file would create a second
    /// cluster.
    pub(crate) fn check_target(&mut self) {
        let inputs = self.observed.inputs;
        match &inputs.world.other_clusters {
            OtherClusters::NotSearched => {}
            // With `--retarget` a second cluster is meant, wherever the first one is.
            OtherClusters::Unknown(_) if inputs.allow_retarget => {}
            OtherClusters::Unknown(why) => {
                let what =
                    format!("cannot tell whether this stack has a cluster elsewhere in the project: {why}");
                let help = match inputs.mode {
                    Mode::Apply => {
                        "grant `container.clusters.list`, or try again when GKE responds; or give `--retarget` \
                         if no other cluster matters"
                    }
                    Mode::Destroy => "grant `container.clusters.list`, or try again when GKE responds",
                };
                let problem = Diagnostic::error(Code::PlaceUnknown, what)
                    .at_value(FieldPath::keys(["cluster"]), "does not exist");
                self.problems.push(problem.about(Address::new("cluster"), "").help(help));
            }
            OtherClusters::Found(clusters) => {
                let Some(cluster) = clusters.first().filter(|_| !inputs.allow_retarget) else { return };
                let was = format!("{} / {} / {}", cluster.project, cluster.location, cluster.cluster);
                let what = format!(
                    "stack {} has its cluster at {was}, not at {}",
                    inputs.owner.stack, inputs.target
                );
                let help = match inputs.mode {
                    Mode::Apply => format!(
                        "restore the old name and location; or give `--retarget` to create a second cluster \
                         and leave {} unchanged",
                        cluster.cluster
                    ),
                    Mode::Destroy => "restore the name and location of that cluster to destroy it".to_owned(),
                };
                let at = match &inputs.target.gke {
                    Some(name) if name.location != cluster.location => ["gke", "location"],
                    Some(_) | None => ["cluster", "name"],
                };
                let problem = Diagnostic::error(Code::Retarget, what)
                    .at_value(FieldPath::keys(at), "changed since the last apply");
                self.problems.push(problem.about(Address::new("cluster"), "").help(help));
            }
        }
    }

    /// Returns true if a destroy may delete a GKE cluster whose contents cannot be read.
    pub(crate) fn may_delete_unread_cluster(&self) -> bool {
        let Inputs { mode, approved, .. } = self.observed.inputs;
        *mode == Mode::Destroy
            && approved.iter().any(Approval::is_for_unread_contents)
            && self.deletes_cluster()
    }

    /// Adds a note on what a destroy of an unreadable cluster deletes without having read it. Protected resources of the file
    /// count as existing.
    pub(crate) fn note_unread_deletes(&mut self, why: &str) {
        let inputs = self.observed.inputs;
        self.notes.push(Note::new(
            Code::DeletedUnread,
            &Address::new("cluster"),
            format!(
                "the Kubernetes cluster cannot be read ({why}): everything in it is deleted, including \
                 resources outside this stack and running work; load balancers and disks created by its \
                 controllers may remain"
            ),
        ));
        for resource in inputs.desired.iter() {
            if matches!(resource.identity, Identity::Object(_)) {
                self.refuse_if_protected(resource, "delete");
            }
        }
    }

    /// Returns true if a live Kubernetes object was applied by the stack.
    pub(crate) fn has_applied_objects(&self) -> bool {
        self.observed.inputs.has_applied_objects()
    }

    /// Returns notes on effects of earlier applies that cannot be known without the record.
    pub(crate) fn unknown_state_notes(&self) -> Vec<Note> {
        let inputs = self.observed.inputs;
        if self.cluster_is_new || !self.has_applied_objects() {
            return Vec::new();
        }
        let lost = inputs.world.record.is_none() && inputs.mode == Mode::Apply;
        let lost = lost.then(|| {
            "the record of earlier applies is missing: checks run again, jobs that ran and were deleted need \
             approval to run again, labels and taints removed from the file stay on node pools, and what was \
             stopped counts as running, so this plan creates it"
                .to_owned()
        });
        let unlisted = match inputs.world.unlisted_owned.as_slice() {
            [] => None,
            kinds => {
                let named = diag::listed(kinds.iter().take(MAX_LISTED).map(String::as_str), "and");
                let more = kinds.len().saturating_sub(MAX_LISTED);
                let more = if more == 0 { String::new() } else { format!(" and {more} more kinds") };
                Some(format!(
                    "a record of earlier applies was lost, and resources removed from the file may not be \
                     found, as these kinds cannot be listed in all namespaces: {named}{more}"
                ))
            }
        };
        let note = |message: String| Note::new(Code::RecordLost, &Address::new("stack"), message);
        lost.into_iter().chain(unlisted).map(note).collect()
    }

    /// Returns notes on recorded GKE clusters and node pools of a stack that no longer has `[gke]`: plans no longer read them.
    pub(crate) fn unreachable_state_notes(&self) -> Vec<Note> {
        let Inputs { world, target, .. } = self.observed.inputs;
        let recorded = world.record.iter().flat_map(|record| &record.inventory);
        let unread = recorded.map(|entry| &entry.identity).filter(|identity| !target.reads(identity));
        let names: Vec<String> = unread.map(ToString::to_string).collect();
        if names.is_empty() {
            return Vec::new();
        }
        let message = format!(
            "the record names {}, and a stack without `[gke]` neither reads, changes nor deletes them: they remain, and \
             cost money while they run",
            diag::listed(names.iter().map(String::as_str), "and")
        );
        vec![Note::new(Code::OutOfReach, &Address::new("stack"), message)]
    }
}
