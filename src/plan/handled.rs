//! A number of workers is written when the Dask operator has handled the one before it.

use super::make::Maker;
use crate::kinds::dask;
use crate::resource::Identity;

impl Maker<'_> {
    /// Puts the waits before all steps of a change: workers that are deleted by name while the operator counts them would be
    /// made again.
    pub(super) fn after_what_is_handled(&mut self) {
        for change in &mut self.changes {
            let Identity::Object(object) = &change.identity else { continue };
            let waits = dask::handled::waits_before(change.action, object, &change.fields, &change.steps);
            change.steps.splice(..0, waits);
        }
    }
}
