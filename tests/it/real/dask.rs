//! A real Dask scheduler and real workers, for what the operator asks of them: KWOK's pods run nothing.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::client::http_client;
use super::control_plane::PATIENCE;
use super::kwok::Forward;
use super::operator::TCP_COMM;
use super::parts::Part;
use super::process_group::{ProcessGroup, free_ports};

/// The scheduler's web server, in pods.
pub const DASHBOARD: u16 = 8787;

/// A running scheduler with its workers. Only one can stand behind a control plane: KWOK's port-forward goes
/// by the port, whatever the pod.
pub struct Dask {
    comm: u16,
    dashboard: u16,
    processes: ProcessGroup,
}

impl Dask {
    /// Starts a scheduler and waits until it answers.
    pub async fn start() -> Dask {
        let mut processes = ProcessGroup::new();
        let [comm, dashboard] = free_ports();
        let mut command = program(&processes);
        command.args(["scheduler", "--host", "127.0.0.1", "--port", &comm.to_string(), "--no-show"]);
        command.args(["--dashboard-address", &format!("127.0.0.1:{dashboard}")]);
        // The operator retires workers through the API, which is off by default.
        let routes = "['distributed.http.health', 'distributed.http.scheduler.json', 'distributed.http.scheduler.api']";
        command.env("DASK_DISTRIBUTED__SCHEDULER__HTTP__ROUTES", routes);
        processes.start("dask scheduler", &mut command);
        let mut dask = Dask { comm, dashboard, processes };
        dask.wait_until("the scheduler does not answer", async |dask| dask.ask("health").await.is_some())
            .await;
        dask
    }

    /// Where clients reach the scheduler.
    pub fn address(&self) -> String {
        format!("tcp://127.0.0.1:{}", self.comm)
    }

    /// Returns the forwards for [`super::ControlPlane::restart_kwok`].
    pub fn forwards(&self) -> [Forward; 2] {
        [Forward { pod: TCP_COMM, host: self.comm }, Forward { pod: DASHBOARD, host: self.dashboard }]
    }

    /// Starts a worker for each name and waits until the scheduler knows them all. The operator looks for
    /// the names of its worker Deployments.
    pub async fn add_workers(&mut self, names: &[&str]) {
        for name in names {
            let mut command = program(&self.processes);
            command.args(["worker", &self.address(), "--name", name]);
            command.args(["--no-nanny", "--no-dashboard", "--nthreads", "1", "--memory-limit", "0"]);
            command.args(["--host", "127.0.0.1", "--local-directory", "workers"]);
            self.processes.start(*name, &mut command);
        }
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        self.wait_until("workers are missing", async |dask| {
            let known = dask.workers().await;
            names.iter().all(|name| known.contains(name))
        })
        .await;
    }

    /// Has a client compute something until `done` is there, and waits until it has begun.
    pub async fn work_until(&mut self, done: &Path) {
        let script = "import os, sys, time\nfrom distributed import Client\n\
            def work(done):\n while not os.path.exists(done): time.sleep(0.05)\n\
            Client(sys.argv[1]).submit(work, sys.argv[2]).result()\n";
        let mut command = Command::new(Part::Operator.program("python"));
        command.args(["-c", script, &self.address()]).arg(done);
        command.env("HOME", self.processes.folder());
        self.processes.start("client", &mut command);
        self.wait_until("no task runs", async |dask| {
            let counts = dask.ask("json/counts.json").await.unwrap_or_default();
            serde_json::from_str::<Value>(&counts).unwrap_or_default()["processing"] == 1
        })
        .await;
    }

    /// Runs a script of a notebook's user, `KUBECONFIG` and the rest in its environment, and says what it printed.
    pub fn notebook(&self, kubeconfig: &Path, script: &str) -> String {
        let mut command = Command::new(Part::Operator.program("python"));
        command.args(["-c", script]).env("KUBECONFIG", kubeconfig).current_dir(self.processes.folder());
        command.env("HOME", self.processes.folder()).env("TMPDIR", self.processes.folder());
        let output = tokio::task::block_in_place(|| command.output()).unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        said
    }

    /// Names of the workers that the scheduler knows.
    pub async fn workers(&self) -> Vec<String> {
        let said = self.ask("api/v1/get_workers").await.unwrap_or_default();
        let said: Value = serde_json::from_str(&said).unwrap_or_default();
        let workers = said["workers"].as_array().cloned().unwrap_or_default();
        workers.iter().filter_map(|worker| Some(worker["name"].as_str()?.to_owned())).collect()
    }

    async fn ask(&self, path: &str) -> Option<String> {
        let http = http_client().build().unwrap();
        let answer = http.get(format!("http://127.0.0.1:{}/{path}", self.dashboard)).send().await.ok()?;
        answer.error_for_status().ok()?.text().await.ok()
    }

    async fn wait_until(&mut self, what: &str, done: impl AsyncFn(&Dask) -> bool) {
        let begun = Instant::now();
        while !done(self).await {
            // A worker that was retired ends well.
            if let Some(ended) = self.processes.failed() {
                panic!("{ended}");
            }
            assert!(begun.elapsed() < PATIENCE, "{what} after {} s", PATIENCE.as_secs());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}

fn program(processes: &ProcessGroup) -> Command {
    let mut command = Command::new(Part::Operator.program("dask"));
    command.env("HOME", processes.folder()).env("TMPDIR", processes.folder());
    command
}
