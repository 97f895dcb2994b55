//! Adaptive scaling on a host: `replicas = { min, max }`. An adapter sets the number of workers. It is a process of the Dask
//! cluster, and runs distributed's `Adaptive` on top of the agent's functions that start and retire workers.
//!
//! Not dask-jobqueue's `SLURMCluster.adapt`: it starts its own scheduler and keeps the list of its jobs in its own process. When
//! that process is killed, the scheduler is gone, and waiting jobs are forgotten and submitted again. Here scheduler and jobs
//! survive any process, and jobs are found by their comments.

use serde_json::{Value, json};

use crate::descriptions::counted;
use crate::json::{count, text};
use crate::scale::ReplicaOwner;
use model::address::FieldPath;
use model::resource::{Readiness, Resource};

/// The smallest and the largest number of workers.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    pub least: u64,
    pub most: u64,
}

/// The text of a wait for a scheduler that runs but does not answer.
pub(crate) const SILENT: &str = "its scheduler does not answer yet";

/// Returns the path of the bounds in clusters.
pub(crate) fn path() -> FieldPath {
    FieldPath::keys(["spec", "worker", "adapt"])
}

/// Returns the bounds in `spec.worker`; `None` if the file sets a fixed number.
pub(crate) fn bounds(worker: &Value) -> Option<Bounds> {
    let adapt = worker.get("adapt")?;
    Some(Bounds { least: count(&adapt["minimum"]), most: count(&adapt["maximum"]) })
}

/// Sets bounds in `spec.worker`, so that the adapter owns the number.
pub(crate) fn set_adaptive(worker: &mut Value, least: u32, most: u32) {
    if let Some(fields) = worker.as_object_mut() {
        fields.remove("replicas");
    }
    worker["adapt"] = json!({ "minimum": least, "maximum": most });
}

/// Returns the adapter as the owner of the number.
pub(crate) fn replica_owner(resource: &Resource) -> Option<ReplicaOwner> {
    let Bounds { least, most } = bounds(&resource.body["spec"]["worker"])?;
    let origin = resource.origin_of(&path().key("maximum"));
    Some(ReplicaOwner::Autoscaler { min: least, max: most, whose: "the adapter".to_owned(), origin })
}

/// Returns the defect of a cluster whose adapter has ended: nothing sets its number of workers.
pub(crate) fn defect(status: &Value) -> Option<String> {
    let ended = status["adapter"]["running"] == false;
    ended.then(|| {
        "the adapter, which sets the number of workers, is not running; it is started again".to_owned()
    })
}

/// Describes workers that still run with settings from before a change.
pub(crate) fn unrestarted(status: &Value) -> Option<String> {
    let changed = count(&status["workers"]["changed"]);
    (changed > 0).then(|| format!("{} did not restart", counted(changed, "worker")))
}

/// Returns the readiness of a cluster with a running scheduler: it must have the minimum of workers. Workers above it start and
/// end without a wait.
pub(crate) fn readiness(bounds: Bounds, status: &Value) -> Option<Readiness> {
    let Bounds { least, most: _ } = bounds;
    let (workers, adapter) = (&status["workers"], &status["adapter"]);
    let converging = status["converging"] == true;
    let ended = |what: String, said: &str| match said {
        "" => what,
        said => format!("{what}: {said}"),
    };
    if adapter["running"] != true {
        return Some(match converging {
            true => Readiness::progressing("its adapter is being started"),
            false => {
                Readiness::Failed(ended("its adapter is not running".to_owned(), text(&adapter["message"])))
            }
        });
    }
    if status["scheduler"]["answers"] != true {
        return Some(Readiness::progressing(SILENT));
    }
    if let Some(what) = unrestarted(status) {
        return Some(match converging {
            true => Readiness::progressing("waiting for workers to restart"),
            false => Readiness::Failed(ended(what, text(&status["message"]))),
        });
    }
    let (running, registered) = (count(&workers["running"]), count(&workers["registered"]));
    let said = text(&status["message"]);
    // Without a word of one that ended the adapter has only not got to it yet.
    if running < least && !converging && !said.is_empty() {
        let what = format!("{running} of at least {least} workers are running");
        return Some(Readiness::Failed(ended(what, said)));
    }
    if registered < least {
        let waits = crate::hosts::slurm::readiness(&status["queue"]);
        let registered = format!("{registered} of at least {least} workers are registered");
        return Some(waits.unwrap_or_else(|| Readiness::progressing(registered)));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_that_adapts_is_ready_with_its_minimum() {
        let status = |adapter: bool, workers: [u64; 3], converging: bool| {
            let [running, registered, changed] = workers;
            json!({
                "converging": converging, "adapter": { "running": adapter, "message": "killed" }, "message": "gone",
                "scheduler": { "answers": true },
                "workers": { "running": running, "registered": registered, "changed": changed },
            })
        };
        let waits = |text: &str| Some(Readiness::progressing(text));
        let fails = |text: &str| Some(Readiness::Failed(text.to_owned()));
        for (least, status, expect) in [
            (0, status(true, [0, 0, 0], false), None),
            (0, status(true, [9, 2, 0], true), None),
            (0, status(false, [0, 0, 0], true), waits("its adapter is being started")),
            (0, status(false, [0, 0, 0], false), fails("its adapter is not running: killed")),
            (0, status(true, [2, 2, 1], true), waits("waiting for workers to restart")),
            (0, status(true, [2, 2, 1], false), fails("1 worker did not restart: gone")),
            (2, status(true, [1, 1, 0], false), fails("1 of at least 2 workers are running: gone")),
            (2, status(true, [2, 1, 0], false), waits("1 of at least 2 workers are registered")),
            (2, status(true, [3, 2, 0], true), None),
        ] {
            assert_eq!(readiness(Bounds { least, most: 9 }, &status), expect, "{least} {status}");
        }
        let mut queued = status(true, [2, 1, 0], false);
        queued["queue"] = json!({ "waiting": { "Resources": 1 } });
        assert!(matches!(readiness(Bounds { least: 2, most: 9 }, &queued), Some(Readiness::Queued(_))));
        let mut early = status(true, [1, 1, 0], false);
        early["message"] = Value::Null;
        assert_eq!(
            readiness(Bounds { least: 2, most: 9 }, &early),
            waits("1 of at least 2 workers are registered")
        );
        // Above the minimum nobody waits for the queue.
        assert_eq!(readiness(Bounds { least: 1, most: 9 }, &queued), None);
    }

    #[test]
    fn the_number_is_given_away() {
        let mut worker = json!({ "replicas": 8, "threads": 1 });
        assert!(bounds(&worker).is_none());
        set_adaptive(&mut worker, 0, 8);
        assert_eq!(worker, json!({ "threads": 1, "adapt": { "minimum": 0, "maximum": 8 } }));
        let Some(Bounds { least: 0, most: 8 }) = bounds(&worker) else { panic!("{worker}") };
        assert!(defect(&json!({ "adapter": { "running": false } })).is_some());
        assert!(defect(&json!({ "adapter": { "running": true } })).is_none() && defect(&json!({})).is_none());
    }
}
