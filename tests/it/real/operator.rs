//! The real Dask operator, as its image runs it.

use std::process::Command;
use std::time::{Duration, Instant};

use super::client::http_client;
use super::control_plane::{Access, PATIENCE};
use super::parts::Part;
use super::process_group::{ProcessGroup, free_ports};

/// The port where the operator looks for a cluster's scheduler.
pub const TCP_COMM: u16 = 8786;

/// kopf looks again only after a minute whether the timers of an object that is deleted have ended, and until then its finalizer
/// stays: each deletion of a DaskCluster or a DaskAutoscaler would take that long. Source: `settings.background.cancellation_polling`
/// of kopf 1.45, `stop_daemons` in its `daemons.py`.
const SETTINGS: &str = "\
import kopf


@kopf.on.startup()
def look_soon(settings: kopf.OperatorSettings, **_):
    settings.background.cancellation_polling = 0.25
";

/// A running operator that watches all namespaces. Dropping it kills it: finalizers stay.
pub struct Operator {
    /// How long it took to answer its liveness probe.
    pub started_in: Duration,
    processes: ProcessGroup,
}

impl Operator {
    /// Starts it with the rights of `access` and waits for its liveness probe. The custom resource
    /// definitions should be there before: it looks again for them only now and then.
    pub async fn start(access: &Access) -> Operator {
        let begun = Instant::now();
        let mut processes = ProcessGroup::new();
        let [port] = free_ports();
        let liveness = format!("http://127.0.0.1:{port}/healthz");
        let mut command = Command::new(Part::Operator.program("kopf"));
        command.args([
            "run",
            "-m",
            "dask_kubernetes.operator.controller",
            "--all-namespaces",
            "--standalone",
        ]);
        command.arg(format!("--liveness={liveness}")).arg(processes.write("settings.py", SETTINGS));
        command.env("KUBECONFIG", &access.kubeconfig);
        // Dask writes a configuration into HOME, Kubernetes clients write certificates into TMPDIR.
        command.env("HOME", processes.folder()).env("TMPDIR", processes.folder());
        processes.start("operator", &mut command);
        let http = http_client().build().unwrap();
        while !http.get(&liveness).send().await.is_ok_and(|answer| answer.status().is_success()) {
            if let Some(ended) = processes.ended() {
                panic!("{ended}");
            }
            assert!(begun.elapsed() < PATIENCE, "the operator is not alive after {} s", PATIENCE.as_secs());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Operator { started_in: begun.elapsed(), processes }
    }

    /// Stops its process where it is: its Deployment stays available, and nobody watches.
    pub fn pause(&self) {
        self.processes.signal("operator", "STOP");
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.processes.signal("operator", "CONT");
    }

    /// The process group of it.
    pub fn group(&self) -> i32 {
        self.processes.group()
    }

    /// Its whole log.
    pub fn log(&self) -> String {
        self.processes.said("operator")
    }

    /// The last lines of its log.
    pub fn tail(&self) -> String {
        self.processes.tail("operator")
    }
}
