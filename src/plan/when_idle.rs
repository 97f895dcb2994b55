//! What takes Dask's workers away, and with them what they compute, waits until their scheduler has no work.

use serde_json::Value;

use super::make::Maker;
use crate::kinds::dask;
use crate::resource::Step;

impl Maker<'_> {
    /// Puts the wait before all other steps of a change, so that nothing of it is done before, and says so.
    pub(super) fn when_idle(&mut self) {
        let Some(seconds) = self.inputs.when_idle else { return };
        let world = self.inputs.world;
        for change in &mut self.changes {
            if !dask::when_idle::takes_workers(change.action, &change.steps) {
                continue;
            }
            let live = world.find(&change.identity).unwrap_or(&Value::Null);
            let wait = dask::when_idle::wait(change.kind, &change.identity, live, seconds);
            let Some(wait) = wait.filter(|_| live.is_object()) else { continue };
            let mark = format!("waits until it is idle, at most {}", time(seconds));
            change.reason = Some(match change.reason.take() {
                Some(reason) => format!("{reason}; {mark}"),
                None => mark,
            });
            change.steps.insert(0, Step::Await(wait));
        }
    }
}

/// `4h`, `90m`, `45s`.
fn time(seconds: u32) -> String {
    match seconds {
        _ if seconds.is_multiple_of(3600) => format!("{}h", seconds / 3600),
        _ if seconds.is_multiple_of(60) => format!("{}m", seconds / 60),
        _ => format!("{seconds}s"),
    }
}
