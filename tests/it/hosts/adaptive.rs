//! `replicas = { min, max }` on hosts with the real `distributed`, its own `Adaptive`, and the real SLURM.

use std::io::{BufRead as _, BufReader, Lines, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;

use crate::hosts::local::{self, LocalUser};
use crate::hosts::slurm::{self, Login};
use crate::hosts::ssh::{Lab, sshd_is_there};
use crate::hosts::tls::tls_configuration;
use crate::real::{Part, needs};
use crate::sandbox_server::wait_until;

/// A client that computes while the number of workers goes up and down, a step for each line that it is sent.
pub(crate) struct Client {
    child: Child,
    ask: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

/// `up N SECONDS` submits N tasks and says how many workers there were at most; `begin N SECONDS` submits more; `put N` hands
/// N numbers to the workers, which nobody can compute again; `sum` says what all of them
/// came to, `held N` the same with the N workers, one if not said, that have their results; `gone` lets go of them and waits until there is
/// no worker; `again` computes once more, from none.
const PROGRAM: &str = "
import sys, time
from distributed import Client
def square(x, seconds):
    time.sleep(seconds)
    return x * x
def until(what, is_so):
    last = time.monotonic() + 150
    while not is_so():
        if time.monotonic() > last:
            raise SystemExit('not in time: ' + what)
        time.sleep(0.05)
with Client(sys.argv[1]) as client:
    kept = []
    for line in sys.stdin:
        word, *more = line.split()
        if word == 'up':
            kept, most = client.map(square, range(int(more[0])), seconds=float(more[1]), pure=False), 0
            def done():
                global most
                most = max(most, len(client.nthreads()))
                return all(one.done() for one in kept)
            until('all is computed', done)
            print(most, flush=True)
        elif word == 'begin':
            kept += client.map(square, range(int(more[0])), seconds=float(more[1]), pure=False)
            print('begun', flush=True)
        elif word == 'put':
            kept = client.scatter(list(range(int(more[0]))))
            print('put', flush=True)
        elif word == 'workers':
            until('workers', lambda: len(client.nthreads()) >= int(more[0]))
            print(len(client.nthreads()), flush=True)
        elif word in ('held', 'sum'):
            until('few workers', lambda: word == 'sum' or len(client.nthreads()) == int((more or [1])[0]))
            print(sum(client.gather(kept)), {one.status for one in kept}, flush=True)
        elif word == 'gone':
            kept = []
            until('no workers', lambda: not client.nthreads())
            print('gone', flush=True)
        elif word == 'again':
            print(client.submit(sum, client.map(int, range(10), pure=False), pure=False).result(timeout=150), flush=True)
";

impl Client {
    pub(crate) fn start(python: &Path, port: u16) -> Self {
        Self::with(python, &format!("tcp://127.0.0.1:{port}"), Vec::new())
    }

    /// Connects by the line of `connect --json`.
    pub(crate) fn connected(python: &Path, said: &str) -> Self {
        let connected: Value = serde_json::from_str(said).unwrap();
        Self::with(python, connected["client"].as_str().unwrap(), tls_configuration(&connected))
    }

    fn with(python: &Path, scheduler: &str, variables: Vec<(String, String)>) -> Self {
        let mut child = Command::new(python)
            .args(["-c", PROGRAM, scheduler])
            .envs(variables)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { ask: child.stdin.take().unwrap(), child, answers }
    }

    fn tell(&mut self, step: &str) {
        writeln!(self.ask, "{step}").unwrap();
    }

    #[track_caller]
    pub(crate) fn says(&mut self, step: &str) -> String {
        self.tell(step);
        self.answers.next().unwrap_or_else(|| panic!("{step}: the client ended")).unwrap()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The sum of so many squares each time, and that none was lost.
pub(crate) fn squares(numbers: &[u64]) -> String {
    let sum: u64 = numbers.iter().flat_map(|number| 0..*number).map(|x| x * x).sum();
    format!("{sum} {{'finished'}}")
}

#[test]
fn workers_follow_the_work_and_no_result_is_lost() {
    needs!(&[Part::Operator]);
    let here = LocalUser::new("replicas = { min = 0, max = 4 }", "");
    here.apply().expect(0);
    here.nothing_to_do();
    here.run(&["status"]).expect(0).says("0 of 0 workers registered, adapts");
    let mut client = Client::start(&local::python(), here.ports[0]);
    assert_eq!(client.says("up 60 0.5"), "4");
    here.nothing_to_do();
    // Results hold one worker back, and are moved to it.
    assert_eq!(client.says("held"), squares(&[60]));
    here.nothing_to_do();
    assert_eq!(client.says("gone"), "gone");
    assert_eq!(client.says("again"), "45", "from none");
    here.run(&["logs", "work", "-c", "adapter", "--tail", "-1"])
        .expect(0)
        .says("workers wanted")
        .says("not needed: ");
    here.run(&["scale", "work", "2", "--auto-approve"]).expect(1).says("between 0 and 4");
    // An adapter that is killed decides nothing until it is started again; workers go on.
    client.says("begin 600 0.5");
    client.says("workers 4");
    // A scheduler tells of itself while workers compute, too.
    here.run(&["status"]).expect(0).says("4 of 4 workers registered");
    here.kill("work-adapter");
    here.run(&["plan", "--detailed-exitcode"])
        .expect(2)
        .says("the adapter, which sets the number of workers, is not running");
    here.run(&["why", "work"]).expect(0).says("its adapter is not running");
    here.apply().expect(0);
    here.nothing_to_do();
    client.says("workers 4");
    // Destroyed while it works: nothing is left.
    here.is_gone();
    assert_eq!(std::fs::read_dir(here.state.path()).unwrap().count(), 0, "a file or folder is left");
}

#[test]
fn a_number_is_given_to_the_adapter_and_taken_back_in_place() {
    needs!(&[Part::Operator]);
    let here = LocalUser::new(
        "replicas = 2",
        "[dask_cluster.work.group.fixed]\nreplicas = 1\nresources = { FIXED = 1 }\n",
    );
    here.apply().expect(0);
    let before = [here.pid("work-scheduler"), here.pid("work-fixed-worker-0")];
    here.user.edit("replicas = 2", "replicas = { min = 1, max = 3 }");
    here.run(&["plan"]).expect(0).says("spec.worker.adapt");
    here.apply().expect(0);
    here.nothing_to_do();
    let note = |name: &str| here.folder().join(format!("objects/pods/default/{name}.json"));
    let noted = |name: &str| note(name).exists();
    let workers = || (0..9).filter(|index| noted(&format!("work-worker-{index}"))).count();
    wait_until("one of two has nothing to do", || workers() == 1);
    // Bounds are read as they change.
    let adapter = here.pid("work-adapter");
    here.user.edit("min = 1", "min = 2");
    here.apply().expect(0);
    here.nothing_to_do();
    assert_eq!((workers(), here.pid("work-adapter")), (2, adapter));
    let mut client = Client::start(&local::python(), here.ports[0]);
    client.says("begin 300 0.5");
    // The group beside them is no part of the number.
    client.says("workers 4");
    here.user.edit("max = 3", "max = 2");
    here.apply().expect(0);
    wait_until("more than the maximum go, whatever they do", || workers() == 2);
    here.nothing_to_do();
    // A worker that is killed is replaced by the adapter.
    let killed = (0..9).map(|index| format!("work-worker-{index}")).find(|name| noted(name)).unwrap();
    let uid = |name: &str| {
        let text = std::fs::read_to_string(note(name)).unwrap_or_default();
        serde_json::from_str::<Value>(&text).map(|pod| pod["metadata"]["uid"].clone()).unwrap_or_default()
    };
    let before_it = uid(&killed);
    here.kill(&killed);
    wait_until("there is another one", || workers() == 2 && uid(&killed) != before_it);
    here.user.edit("replicas = { min = 2, max = 2 }", "replicas = 3");
    here.apply().expect(0);
    here.nothing_to_do();
    assert_eq!((workers(), noted("work-adapter")), (3, false));
    assert_eq!([here.pid("work-scheduler"), here.pid("work-fixed-worker-0")], before);
    here.is_gone();
}

/// A worker of several processes is one to the file, and several to the scheduler.
#[test]
#[ignore = "nightly: workers_follow_the_work_and_no_result_is_lost runs on every change"]
fn processes_of_a_worker_come_and_go_together() {
    needs!(&[Part::Operator]);
    let here = LocalUser::new("processes = 2, replicas = { min = 0, max = 3 }", "");
    here.apply().expect(0);
    let mut client = Client::start(&local::python(), here.ports[0]);
    assert_eq!(client.says("up 120 0.5"), "6");
    here.nothing_to_do();
    assert_eq!(client.says("held 2"), squares(&[120]));
    here.run(&["status"]).expect(0).says("1 of 1 workers registered, adapts");
    assert_eq!(client.says("gone"), "gone");
    assert_eq!(client.says("again"), "45");
    here.is_gone();
}

/// The process that starts and retires workers for an adapter is killed while scaling up and down, and others apply at
/// the same time.
#[test]
#[ignore = "nightly: workers_follow_the_work_and_no_result_is_lost runs on every change"]
fn who_works_for_the_adapter_may_be_killed_and_others_apply_beside_it() {
    needs!(&[Part::Operator]);
    let here = LocalUser::new("replicas = { min = 0, max = 4 }", "");
    here.apply().expect(0);
    let note = here.folder().join("run/work");
    let kill_it = || {
        let noted = std::fs::read(&note).ok()?;
        let pid = serde_json::from_slice::<Value>(&noted).ok()?["pid"].as_u64()?;
        let killed = Command::new("kill").args(["-9", &pid.to_string()]).stderr(Stdio::null()).status();
        killed.unwrap().success().then_some(())
    };
    let mut client = Client::start(&local::python(), here.ports[0]);
    client.says("begin 200 0.25");
    wait_until("it is killed while it starts workers", || kill_it().is_some());
    client.says("workers 4");
    here.user.edit("max = 4", "max = 3");
    let both = std::thread::scope(|scope| {
        [(); 2].map(|()| scope.spawn(|| here.apply())).map(|one| one.join().unwrap())
    });
    // Whoever comes second waits for nobody.
    assert!(both.iter().any(|said| said.code == 0), "{}\n{}", both[0].err, both[1].err);
    here.nothing_to_do();
    assert_eq!(client.says("sum"), squares(&[200]));
    // It retires those that are not needed, and is killed meanwhile.
    wait_until("it is killed while it retires workers", || kill_it().is_some());
    assert_eq!(client.says("held"), squares(&[200]));
    here.nothing_to_do();
    assert_eq!(client.says("gone"), "gone");
    here.is_gone();
    assert_eq!(std::fs::read_dir(here.state.path()).unwrap().count(), 0, "a file or folder is left");
}

/// Adapters of two hosts share one number out, and that of the third has the scheduler.
#[test]
#[ignore = "nightly: workers_follow_the_work_and_no_result_is_lost runs on every change"]
fn workers_of_several_hosts_follow_the_work() {
    needs!(&[Part::Operator]);
    if !sshd_is_there() {
        return;
    }
    let lab = Lab::new("replicas = { min = 0, max = 4 }, hosts = [\"n2\", \"n3\"]", "");
    lab.run(&["apply", "--auto-approve"]).expect(0);
    lab.nothing_to_do();
    lab.run(&["status"]).expect(0).says("0 of 0 workers registered, adapts");
    let mut client = Client::connected(&local::python(), &lab.run(&["connect", "--json"]).out);
    assert_eq!(client.says("up 60 0.5"), "4");
    lab.nothing_to_do();
    let logs = lab.run(&["logs", "work", "-c", "adapter", "--tail", "-1"]).expect(0);
    logs.says("work_n2-adapter").says("work_n3-adapter");
    assert_eq!(client.says("held"), squares(&[60]));
    assert_eq!(client.says("gone"), "gone");
    assert_eq!(client.says("again"), "45");
    // Without the adapter of a host the others have its share.
    assert_eq!(client.says("gone"), "gone");
    wait_until("nothing goes on", || !lab.run(&["status"]).expect(0).out.contains("1 of"));
    lab.kill(2, "work_n3-adapter");
    wait_until("it is missed, once nothing else goes on", || {
        lab.run(&["plan"]).expect(0).out.contains("the adapter, which sets the number of workers")
    });
    lab.run(&["why", "work"]).expect(0).says("n3: ");
    client.says("begin 600 0.5");
    client.says("workers 4");
    lab.run(&["apply", "--auto-approve"]).expect(0);
    lab.nothing_to_do();
    // A number of the file's is spread again.
    lab.user.edit("replicas = { min = 0, max = 4 }", "replicas = 2");
    lab.run(&["apply", "--auto-approve"]).expect(0);
    lab.nothing_to_do();
    lab.run(&["status"]).expect(0).says("2 of 2 workers");
    lab.is_gone();
}

/// From none to ten jobs and back.
#[test]
#[ignore = "nightly: workers_follow_the_work_and_no_result_is_lost runs on every change"]
fn jobs_follow_the_work_and_no_result_is_lost() {
    needs!(&[Part::Slurm]);
    let login = Login::new("partition = \"cpu\"", "replicas = { min = 0, max = 10 }", "");
    login.apply().expect(0);
    login.nothing_to_do();
    assert_eq!(login.jobs(), Vec::<String>::new());
    let mut client = Client::connected(&slurm::python(), &login.run(&["connect", "--json"]).out);
    assert_eq!(client.says("up 200 1"), "10");
    login.nothing_to_do();
    assert_eq!(client.says("held"), squares(&[200]));
    assert_eq!(client.says("gone"), "gone");
    wait_until("no job is left", || login.jobs().is_empty());
    login.nothing_to_do();
    assert_eq!(client.says("again"), "45");
    // Destroyed on its way up.
    client.says("begin 400 1");
    client.says("workers 2");
    login.is_gone();
}

/// A queue that gives less is asked once; what waits in it goes with the work.
#[test]
#[ignore = "nightly: workers_follow_the_work_and_no_result_is_lost runs on every change"]
fn what_the_queue_does_not_give_is_not_asked_for_twice() {
    needs!(&[Part::Slurm]);
    let login = Login::new(
        "partition = \"short\"\ntime_limit = \"10m\"",
        "cpu = \"2\", replicas = { min = 0, max = 6 }",
        "",
    );
    login.apply().expect(0);
    let mut client = Client::connected(&slurm::python(), &login.run(&["connect", "--json"]).out);
    client.tell("up 120 0.5");
    let mut most = 0;
    wait_until("all are asked for", || {
        most = most.max(login.jobs().len());
        most == 6
    });
    login.nothing_to_do();
    login.run(&["status"]).expect(0).says("in SLURM's queue").says("adapts");
    // One node of four CPUs has room for two.
    assert_eq!(client.answers.next().unwrap().unwrap(), "2");
    assert_eq!(client.says("gone"), "gone");
    wait_until("no job is left", || {
        most = most.max(login.jobs().len());
        login.jobs().is_empty()
    });
    assert_eq!(most, 6);
    login.is_gone();
}

/// A worker that leaves before its time limit is replaced without an apply.
#[test]
#[ignore = "nightly: workers_follow_the_work_and_no_result_is_lost runs on every change"]
fn a_job_at_its_time_limit_is_replaced_by_the_adapter() {
    needs!(&[Part::Slurm]);
    let login = Login::new("partition = \"cpu\"\ntime_limit = \"1m\"", "replicas = { min = 1, max = 2 }", "");
    login.apply().expect(0);
    let first = login.cluster.job("work-worker-0");
    let is_other = || {
        let jobs = login.cluster.jobs();
        jobs.iter().any(|job| job.ends_with(" RUNNING") && !job.starts_with(&format!("{first} ")))
    };
    wait_until("another one runs", is_other);
    login.run(&["logs", "work", "-c", "adapter", "--tail", "-1"]).expect(0).says("has ended");
    login.is_gone();
}
