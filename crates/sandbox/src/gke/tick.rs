//! Changes of clusters, pools and operations over time.

use jiff::Timestamp;

use super::operations::Operation;
use super::path::ClusterId;
use super::settings::{Endpoints, Settings};
use super::state::{Gke, META};
use super::{limits, pools};

/// Attempts to get machines: the first one, or a later one after a shortage.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Attempt {
    First,
    Again,
}

/// Ended operations are forgotten beyond this many, oldest first; real ones after some days.
const KEPT_OPERATIONS: usize = 500;

impl Gke {
    /// Does what is due by `now`. Cheap when nothing is.
    pub fn tick(&mut self, now: Timestamp, settings: &Settings) {
        self.bring_up(now, settings);
        self.grow(now, settings, Attempt::First);
        // Between the two: an operation that met a shortage must tell of it, however late this tick comes.
        self.finish(now, settings);
        self.grow(now, settings, Attempt::Again);
    }

    /// Control planes that answer from now on.
    fn bring_up(&mut self, now: Timestamp, settings: &Settings) {
        let due: Vec<ClusterId> = self
            .clusters
            .values()
            .filter(|cluster| cluster.endpoint.is_none() && cluster.has_control_plane(now))
            .map(|cluster| cluster.id.clone())
            .collect();
        for id in due {
            if settings.endpoints == Endpoints::InProcess {
                // RFC 5737 addresses never lead anywhere by accident.
                let number = self.next();
                self.set_endpoint(&id, &format!("203.0.113.{}", number % 256));
            }
        }
    }

    /// Machines that appear now, or fail to.
    fn grow(&mut self, now: Timestamp, settings: &Settings, attempt: Attempt) {
        let Self { clusters, meta, stockouts, dirty, revision, .. } = self;
        for cluster in clusters.values_mut() {
            let id = cluster.id.clone();
            for pool in &mut cluster.pools {
                let is_its_turn = pool.trouble.is_some() == (attempt == Attempt::Again);
                if !is_its_turn || pool.grow_at.is_none_or(|at| at > now) {
                    continue;
                }
                dirty.insert(format!("cluster/{id}"));
                *revision += 1;
                match limits::shortage(stockouts, &mut meta.met, &id, pool) {
                    Some(trouble) => {
                        dirty.insert(META.to_owned());
                        pool.trouble = Some(trouble);
                        pool.grow_at = Some(settings.scale.after(now, pools::RETRY_SECONDS));
                    }
                    None => {
                        pool.present = pool.sizes.clone();
                        pool.trouble = None;
                        pool.grow_at = None;
                    }
                }
            }
        }
    }

    /// Operations that end now.
    fn finish(&mut self, now: Timestamp, settings: &Settings) {
        let due: Vec<Operation> =
            self.operations.values().filter(|op| op.is_running() && op.due <= now).cloned().collect();
        for operation in due {
            self.end(operation, now, settings);
        }
        self.forget_old();
    }

    fn forget_old(&mut self) {
        if self.operations.len() <= KEPT_OPERATIONS {
            return;
        }
        let mut ended: Vec<(Timestamp, String)> = self
            .operations
            .values()
            .filter(|operation| !operation.is_running())
            .map(|operation| (operation.start, operation.name.clone()))
            .collect();
        ended.sort();
        for (_, name) in ended.into_iter().take(self.operations.len() - KEPT_OPERATIONS) {
            self.operations.remove(&name);
            self.touch_operation(&name);
        }
    }
}
