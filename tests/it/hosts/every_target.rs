//! One section, four targets: the same Dask cluster, check and job, unchanged, on this machine, on hosts by a real sshd, as jobs of a
//! real SLURM, and in Kubernetes with a real API server and the real Dask operator. All of it computes: what a node would run in its
//! pods runs beside the control plane.

#![allow(clippy::unwrap_used, reason = "test code outside of test functions")]

use std::fs;
use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;
use tokio::runtime::Handle;
use tokio::task::block_in_place;

use crate::control_plane::connect::KillOnDrop;
use crate::hosts::ssh::{Lab, sshd_is_there};
use crate::hosts::tls::tls_configuration;
use crate::real::{Cluster, ControlPlane, Kubelet, Operator, Part, free_ports, needs, start_operator};
use crate::sandbox_server::{CommandOutput, User, wait_until};

const BASE: &str = r#"
[stack]
name = "s"

[dask_cluster.work]
image = "demo:1"
worker = { replicas = 1, threads = 1, memory = "400Mi", nanny = { spill = 0.65 }, env = { COLOUR = "red" } }

[dask_cluster.work.group.large]
replicas = 1
threads = 1
memory = "400Mi"
resources = { LARGE = 1 }

[check.sum]
run = "dask-sum"

[dask_job.train]
like = "work"
replicas = 1
wait = true
args = ["python", "-c", "from distributed import Client; print('total', Client().submit(sum, range(10)).result())"]
"#;

/// Holds results while the number of workers changes, and tells what the workers were told.
const CLIENT: &str = "
import sys
from distributed import Client
def told():
    import dask, os
    return os.environ.get('COLOUR'), dask.config.get('distributed.worker.memory.spill')
with Client(sys.argv[1]) as client:
    client.wait_for_workers(2, timeout=120)
    kept = client.map(lambda x: x * x, range(50))
    client.gather(kept)
    large = client.submit(told, resources={'LARGE': 1}, pure=False).result()
    plain = sorted({str(told) for told in client.run(told).values()})
    threads = sorted(one['nthreads'] for one in client.scheduler_info(n_workers=-1)['workers'].values())
    print(threads, large, *plain, flush=True)
    for line in sys.stdin:
        more = client.submit(sum, client.map(int, range(10), pure=False), pure=False).result()
        print(sum(client.gather(kept)), more, len(client.scheduler_info(n_workers=-1)['workers']), flush=True)
";

const TOLD: &str = "[1, 1] (None, 0.7) ('red', 0.65) (None, 0.7)";

fn python() -> PathBuf {
    Part::Operator.program("python")
}

/// A place where the stack runs.
trait Place {
    fn user(&self) -> &User;
    /// Returns the target's sections of the stack.
    fn target(&self) -> String;
    fn run(&mut self, words: &[&str]) -> CommandOutput;
    /// The line of `connect --json`.
    fn connected(&mut self) -> Value {
        serde_json::from_str(&self.run(&["connect", "--json"]).expect(0).out).unwrap()
    }
    /// Returns leftovers after a destroy.
    fn leftovers(&mut self) -> Vec<String>;
}

struct Client {
    process: Child,
    ask: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Client {
    fn new(connected: &Value) -> Self {
        let mut command = Command::new(python());
        command.envs(tls_configuration(connected));
        command
            .args(["-c", CLIENT, connected["client"].as_str().unwrap()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let ask = process.stdin.take().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, ask, answers }
    }

    fn says(&mut self) -> String {
        self.answers.next().expect("the client goes on").unwrap()
    }

    fn computes(&mut self) -> String {
        self.ask.write_all(b"\n").unwrap();
        self.says()
    }

    fn ends(mut self) {
        drop(self.ask);
        assert!(self.process.wait().unwrap().success());
    }
}

/// From nothing to nothing.
fn goes_through(name: &str, place: &mut dyn Place) {
    println!("{name}");
    fs::write(place.user().path().join("base.toml"), BASE).unwrap();
    let stack = format!("extends = \"base.toml\"\n\n{}", place.target());
    place.user().write(stack);
    place
        .run(&["plan", "--detailed-exitcode"])
        .expect(2)
        .says("+ dask_cluster.work")
        .says("+ dask_job.train");
    let applied = place.run(&["apply", "--auto-approve"]).expect(0);
    let applied = applied.says("check.sum").says("total 45");
    assert!(!applied.err.contains("warning"), "{name}: {}", applied.err);
    place.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    let mut client = Client::new(&place.connected());
    assert_eq!(client.says(), TOLD, "{name}");
    assert_eq!(client.computes(), "40425 45 2", "{name}: before");
    for (number, all) in [("3", 4), ("1", 2)] {
        place.run(&["scale", "work", number, "--auto-approve"]).expect(0);
        // Workers that left the scheduler's list end soon after.
        wait_until("the scheduler knows them", || client.computes() == format!("40425 45 {all}"));
    }
    client.ends();
    place.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    place.run(&["status"]).expect(0).says("Successful");
    place.run(&["run", "check.sum", "--auto-approve"]).expect(0);
    place.run(&["logs", "train"]).expect(0).says("total 45");
    place.run(&["destroy", "--auto-approve", "--allow", "delete:dask_operator"]).expect(0);
    // At the other end of SSH an agent ends a moment after its command.
    wait_until(&format!("nothing is left: {name}"), || place.leftovers().is_empty());
    place.run(&["destroy", "--auto-approve"]).expect(0).says("Nothing to destroy");
}

/// Files in a folder, and processes that know of it.
fn leftovers(folder: &std::path::Path) -> Vec<String> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path().display().to_string());
    let mut left: Vec<String> = files.collect();
    let here = format!("={}", folder.display()).into_bytes();
    for entry in fs::read_dir("/proc").unwrap().filter_map(Result::ok) {
        let variables = fs::read(entry.path().join("environ")).unwrap_or_default();
        if variables.windows(here.len()).any(|some| some == here) {
            let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            left.push(String::from_utf8_lossy(&words).replace('\0', " "));
        }
    }
    left
}

/// Returns the target's own keys: the Python that is there, and free ports.
fn own() -> String {
    let [port, dashboard] = free_ports::<2>();
    format!(
        "[environment.main]\npath = \"{}\"\n\n[dask_cluster.work]\nscheduler = {{ port = {port}, dashboard_port = {dashboard} }}\n",
        python().display()
    )
}

/// `[local]`, and `[slurm]` with a cluster.
struct Machine {
    user: User,
    state: tempfile::TempDir,
    cluster: Option<Cluster>,
}

impl Machine {
    fn new(cluster: Option<Cluster>) -> Self {
        Self { user: User::empty(), state: tempfile::tempdir().unwrap(), cluster }
    }
}

impl Place for Machine {
    fn user(&self) -> &User {
        &self.user
    }

    fn target(&self) -> String {
        let section = if self.cluster.is_some() { "[slurm]\npartition = \"cpu\"\n" } else { "[local]\n" };
        format!("{section}\n{}", own())
    }

    fn run(&mut self, words: &[&str]) -> CommandOutput {
        let mut command = self.user.command(words);
        command.env("XDG_STATE_HOME", self.state.path());
        if let Some(cluster) = &self.cluster {
            command.env("SLURM_CONF", cluster.configuration());
        }
        CommandOutput::of(&command.output().unwrap())
    }

    fn leftovers(&mut self) -> Vec<String> {
        let jobs = self.cluster.as_ref().map(Cluster::jobs).unwrap_or_default();
        leftovers(self.state.path()).into_iter().chain(jobs).collect()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Gone already in a good run.
        let _ = self.run(&["destroy", "--auto-approve"]);
    }
}

impl Place for Lab {
    fn user(&self) -> &User {
        &self.user
    }

    fn target(&self) -> String {
        format!("{}\n{}", self.hosts(), own())
    }

    fn run(&mut self, words: &[&str]) -> CommandOutput {
        Lab::run(self, words)
    }

    fn leftovers(&mut self) -> Vec<String> {
        (0..3).flat_map(|index| leftovers(&self.state(index))).collect()
    }
}

/// `[kubernetes]`. Its operator is there already: it wants its definitions before it starts.
struct Kubernetes {
    user: User,
    connecting: Option<KillOnDrop>,
    kubelet: Kubelet,
    _operator: Operator,
    plane: ControlPlane,
    runtime: Handle,
}

impl Kubernetes {
    async fn start() -> Self {
        let mut plane = ControlPlane::start_with_a_way_to_pods().await;
        let kubelet = Kubelet::start(&mut plane, "work").await;
        let user = User::empty();
        let operator = start_operator(&plane, &user).await;
        Self { user, connecting: None, kubelet, _operator: operator, plane, runtime: Handle::current() }
    }
}

impl Place for Kubernetes {
    fn user(&self) -> &User {
        &self.user
    }

    fn target(&self) -> String {
        let kubeconfig = self.plane.access().kubeconfig.display();
        format!("[kubernetes]\nkubeconfig = \"{kubeconfig}\"\n\n[dask_operator]\nversion = \"2026.3.0\"\n")
    }

    fn run(&mut self, words: &[&str]) -> CommandOutput {
        self.user.run(words)
    }

    /// Through the API server, for as long as this goes on.
    fn connected(&mut self) -> Value {
        let connected = self.run(&["connect", "--background", "--json"]).expect(0).out;
        let connected: Value = serde_json::from_str(&connected).unwrap();
        self.connecting = Some(KillOnDrop(u32::try_from(connected["pid"].as_u64().unwrap()).unwrap()));
        connected
    }

    fn leftovers(&mut self) -> Vec<String> {
        let paths = [
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            "/apis/apps/v1/deployments",
            "/apis/batch/v1/jobs",
            "/api/v1/pods",
            "/api/v1/namespaces/default/configmaps",
            "/api/v1/namespaces/default/services",
        ];
        let mut left = self.kubelet.running();
        for path in paths {
            let (_, list) = self.runtime.block_on(self.plane.client().get(path));
            let names =
                list["items"].as_array().unwrap().iter().filter_map(|item| item["metadata"]["name"].as_str());
            let made = names.filter(|name| !["kube-root-ca.crt", "kubernetes"].contains(name));
            left.extend(made.map(str::to_owned));
        }
        left
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly: local::a_stack_is_up_computes_and_goes, ssh::a_stack_is_spread_over_hosts_computes_and_goes, slurm::a_stack_is_up_computes_and_goes and main_job::the_ready_stack_lives_and_goes_on_a_real_control_plane run on every change"]
async fn the_same_section_computes_on_every_target() {
    needs!(&[Part::Etcd, Part::Kubernetes, Part::Kwok, Part::Operator, Part::Slurm]);
    if !sshd_is_there() {
        return;
    }
    let mut kubernetes = Kubernetes::start().await;
    block_in_place(|| {
        // Side by side with the others: it computes little and waits long, up to 30 s for the garbage collector to find Dask's kinds.
        std::thread::scope(|scope| {
            scope.spawn(|| goes_through("kubernetes", &mut kubernetes));
            goes_through("local", &mut Machine::new(None));
            goes_through("ssh", &mut Lab::new("", ""));
            goes_through("slurm", &mut Machine::new(Some(Cluster::start())));
        });
    });
}
