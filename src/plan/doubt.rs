//! What is in doubt: whether this is the place where the stack was applied last, and what cannot be known any more.

use super::make::Maker;
use super::{Mode, Note, diff};
use crate::address::{Address, FieldPath};
use crate::diag::{Code, Diagnostic};
use crate::resource::Elsewhere;

impl Maker<'_> {
    /// A stack that is somewhere else already is not made a second time because a name in the file changed.
    pub(super) fn at_its_place(&mut self) {
        let inputs = self.inputs;
        match &inputs.world.elsewhere {
            Elsewhere::Unasked => {}
            Elsewhere::Unknown(why) => self.notes.push(Note {
                code: Code::PlaceUnknown.as_str().into(),
                address: Address::new("cluster"),
                message: format!(
                    "whether this stack has a cluster at another place of the project cannot be told: {why}"
                ),
            }),
            Elsewhere::Found(places) => {
                let Some(place) = places.first().filter(|_| !inputs.retarget) else { return };
                let was = format!("{} / {} / {}", place.project, place.location, place.cluster);
                let what = format!(
                    "stack {} has its cluster at {was}, not at {}",
                    inputs.owner.stack, inputs.target
                );
                let help = match inputs.mode {
                    Mode::Apply => format!(
                        "put the old name and location back; or give `--retarget` to make a second cluster and leave \
                         {} as it is",
                        place.cluster
                    ),
                    Mode::Destroy => {
                        "put the name and location of that cluster back to destroy it".to_owned()
                    }
                };
                let at = match &inputs.target.gke {
                    Some(name) if name.location != place.location => ["gke", "location"],
                    Some(_) | None => ["cluster", "name"],
                };
                let span = inputs.sources.span(&FieldPath::keys(at));
                let problem =
                    Diagnostic::error(Code::Retarget, what).at(span, "changed since the last apply");
                self.problems.push(problem.about(Address::new("cluster"), "").help(help));
            }
        }
    }

    /// Without the record some things that earlier applies did cannot be known.
    pub(super) fn what_cannot_be_known(&mut self) {
        let inputs = self.inputs;
        let manager = inputs.owner.field_manager();
        let ours = || {
            let mut objects = inputs.world.inside.live().into_iter().flatten();
            objects.any(|(_, live)| diff::applied_by(live, &manager))
        };
        if inputs.mode == Mode::Destroy || self.renewed || inputs.world.record.is_some() || !ours() {
            return;
        }
        self.notes.push(Note {
            code: Code::RecordLost.as_str().into(),
            address: Address::new("stack"),
            message: "the record of earlier applies is not there: checks run again, labels and taints of node pools \
                      that left the file stay, and objects of kinds and namespaces that the file no longer mentions \
                      are not found"
                .into(),
        });
    }
}
