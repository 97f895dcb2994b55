//! `[local]` with the real `distributed`: processes on this machine, computed with, disturbed and taken away.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::hosts::agent_faults::{at_reboot, crontab_in, tool};
use crate::hosts::tls::{computes, keys_are_kept, late_worker, strangers_are_refused, tls_configuration};
use crate::real::{Part, free_ports, needs};
use crate::sandbox_server::{CommandOutput, User, entries_in, wait_until};

/// Python with `distributed`, as `tests/real/build` makes it for the operator.
pub fn python() -> PathBuf {
    Part::Operator.program("python")
}

/// A user with a home of their own. Whatever a test left running ends with it.
pub struct LocalUser {
    pub user: User,
    pub state: tempfile::TempDir,
    pub ports: [u16; 2],
    /// Variables of the commands.
    pub variables: Vec<(&'static str, PathBuf)>,
}

impl LocalUser {
    pub fn new(worker: &str, more: &str) -> Self {
        let ports = free_ports::<2>();
        let here =
            Self { user: User::empty(), state: tempfile::tempdir().unwrap(), ports, variables: Vec::new() };
        let [port, pages] = ports;
        let text = format!(
            "[stack]\nname = \"here\"\n\n[local]\n\n[environment.main]\npath = \"{}\"\n\n[dask_cluster.work]\n\
             scheduler = {{ port = {port}, dashboard_port = {pages} }}\nworker = {{ {worker} }}\n\n{more}",
            python().display()
        );
        fs::write(here.user.path().join("stack.toml"), text).unwrap();
        here
    }

    pub fn run(&self, words: &[&str]) -> CommandOutput {
        self.run_as(&self.user, words)
    }

    /// For somebody with another stack.
    pub fn run_as(&self, user: &User, words: &[&str]) -> CommandOutput {
        let mut command = user.command(words);
        command.env("XDG_STATE_HOME", self.state.path());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        CommandOutput::of(&command.output().unwrap())
    }

    pub fn apply(&self) -> CommandOutput {
        self.run(&["apply", "--auto-approve"])
    }

    /// Replaces a section, although nothing of it has changed.
    #[track_caller]
    pub fn replace(&self, section: &str) {
        let allow = format!("replace:{section}");
        self.run(&["apply", "--auto-approve", "--replace", section, "--allow", &allow]).expect(0);
    }

    #[track_caller]
    pub fn nothing_to_do(&self) {
        self.run(&["plan", "--detailed-exitcode"]).expect(0);
    }

    /// Returns the folder of this machine's notes.
    pub fn folder(&self) -> PathBuf {
        notes_folder(self.state.path())
    }

    /// The processes that are noted, by name.
    pub fn pid(&self, name: &str) -> u64 {
        let note = self.folder().join(format!("objects/pods/default/{name}.json"));
        let pod: Value = serde_json::from_str(&fs::read_to_string(note).unwrap()).unwrap();
        pod["internal"]["process"]["pid"].as_u64().unwrap()
    }

    pub fn kill(&self, name: &str) {
        let pid = self.pid(name).to_string();
        assert!(Command::new("kill").args(["-9", &pid]).status().unwrap().success());
        // A killed process is listed until it is reaped.
        while Path::new("/proc").join(&pid).join("exe").exists() {
            std::thread::yield_now();
        }
    }

    /// Processes with a folder of this test in their arguments or in their environment.
    pub fn leftovers(&self) -> Vec<String> {
        let here = self.state.path().display().to_string();
        let port = format!(":{}", self.ports[0]);
        let listed = Command::new("ps").args(["-e", "-o", "pid=,args="]).output().unwrap();
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        // Schedulers and workers, and what adapts their number.
        let is_dask = |line: &str| line.contains("distributed.cli") || line.contains(" adapt ");
        let ours = |line: &&str| is_dask(line) && (line.contains(&here) || line.contains(&port));
        listed.lines().filter(ours).map(str::to_owned).collect()
    }

    /// Destroys the stack; no process is left.
    #[track_caller]
    pub fn is_gone(&self) {
        self.run(&["destroy", "--auto-approve"]).expect(0);
        assert_eq!(self.leftovers(), Vec::<String>::new());
    }
}

/// The status of the answer to a POST, as a form of another site's page sends one.
fn post_status(port: u16, path: &str, body: &str) -> u16 {
    let mut link = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let head = format!(
        "POST {path} HTTP/1.0\r\nHost: 127.0.0.1\r\nOrigin: http://other.example\r\nContent-Type: text/plain\r\nContent-Length: {}",
        body.len()
    );
    link.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(link).read_line(&mut line).unwrap();
    line.split(' ').nth(1).unwrap().parse().unwrap()
}

/// The folder of the only machine that has notes below a state folder.
pub fn notes_folder(state: &Path) -> PathBuf {
    let machines = entries_in(&state.join("dask-infra/at"));
    let [machine] = machines.as_slice() else { panic!("{machines:?}") };
    machine.clone()
}

impl Drop for LocalUser {
    fn drop(&mut self) {
        // Gone already in a good run.
        let _ = self.run(&["destroy", "--auto-approve"]);
    }
}

#[test]
fn a_stack_is_up_computes_and_goes() {
    needs!(&[Part::Operator]);
    let here = LocalUser::new("replicas = 2", "[check.sum]\nrun = \"dask-sum\"\n");
    here.apply().expect(0).says("check.sum");
    here.nothing_to_do();
    here.run(&["status"]).expect(0).says("2 of 2 workers registered").says("distributed 2026.8.0");
    let connected = here.run(&["connect", "--json"]).expect(0).out;
    let connected: Value = serde_json::from_str(&connected).unwrap();
    assert_eq!(connected["client"], format!("tcp://127.0.0.1:{}", here.ports[0]));
    assert_eq!(connected["interpreter"].as_str(), python().to_str());
    // The packages of these tests have none.
    assert_eq!(connected["dashboard_lacks"], "bokeh");
    here.run(&["connect"]).expect(0).says("Nothing has to stay");
    here.run(&["logs", "work", "-c", "scheduler", "--tail", "-1"]).expect(0).says("Scheduler at");
    here.run(&["logs", "work"]).expect(0).says("[process/work-worker-1]");
    here.run(&["why", "work"]).expect(0).says("ready");
    here.run(&["run", "check.sum", "--auto-approve"]).expect(0);
    here.is_gone();
    assert_eq!(fs::read_dir(here.state.path()).unwrap().count(), 0, "a file or folder is left");
    here.run(&["destroy", "--auto-approve"]).expect(0);
    here.run(&["status"]).expect(0);
}

#[test]
fn what_is_killed_is_seen_and_started_again() {
    needs!(&[Part::Operator]);
    let here = LocalUser::new("replicas = 2", "");
    here.apply().expect(0);
    here.kill("work-worker-1");
    here.run(&["plan", "--detailed-exitcode"]).expect(2).says("1 of 2 workers not running");
    here.run(&["status"]).expect(0).says("1 of 2 workers are running");
    here.apply().expect(0);
    here.nothing_to_do();
    here.kill("work-scheduler");
    here.run(&["plan", "--detailed-exitcode"]).expect(2).says("the scheduler is not running");
    let why = here.run(&["why", "work"]).expect(0).says("its scheduler is not running");
    why.says("process work-scheduler").says("`dask-infra apply` starts it again");
    here.apply().expect(0);
    here.nothing_to_do();
    here.is_gone();
}

/// A client holds results while the number of workers goes up and down: what only one worker has is moved before it ends.
#[test]
fn a_scaled_cluster_loses_no_result() {
    needs!(&[Part::Operator]);
    let here = LocalUser::new("replicas = 1", "");
    here.apply().expect(0);
    let program = format!(
        "import sys\nfrom distributed import Client\nwith Client('tcp://127.0.0.1:{}') as client:\n    \
         kept = client.map(lambda x: x * x, range(50))\n    client.gather(kept)\n    print('held', flush=True)\n    \
         for line in sys.stdin:\n        more = client.submit(sum, client.map(int, range(10))).result()\n        \
         print(sum(client.gather(kept)), more, flush=True)\n",
        here.ports[0]
    );
    let mut client = Command::new(python())
        .args(["-c", &program])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut answers = BufReader::new(client.stdout.take().unwrap()).lines();
    let mut ask = client.stdin.take().unwrap();
    assert_eq!(answers.next().unwrap().unwrap(), "held");
    // A page of a browser could send that: the scheduler opens no route for it, as `dask scheduler` does not by itself.
    assert_eq!(post_status(here.ports[1], "/api/v1/retire_workers", "{\"n\":1000}"), 404);
    for number in ["3", "1", "2"] {
        here.run(&["scale", "work", number, "--auto-approve"]).expect(0);
        ask.write_all(b"\n").unwrap();
        assert_eq!(answers.next().unwrap().unwrap(), "40425 45", "with {number} workers");
    }
    drop(ask);
    assert!(client.wait().unwrap().success());
    here.run(&["scale", "work", "0", "--auto-approve"]).expect(0).says("DI0369");
    // The file's number comes back.
    here.run(&["plan", "--detailed-exitcode"]).expect(2).says("replicas");
    here.apply().expect(0);
    here.nothing_to_do();
}

#[test]
fn edits_do_what_the_plan_says() {
    needs!(&[Part::Operator]);
    let here = LocalUser::new("replicas = 1", "[dask_cluster.work.group.more]\nreplicas = 1\n");
    here.apply().expect(0);
    let before = ["work-scheduler", "work-worker-0", "work-more-worker-0"].map(|name| here.pid(name));
    here.user.edit("worker = { replicas = 1 }", "worker = { replicas = 1, memory = \"600Mi\" }");
    // A worker begins with an empty folder for its scratch files, and whoever looks leaves it there.
    let scratch = here.folder().join("scratch/work-more-worker-0/empty");
    fs::create_dir_all(&scratch).unwrap();
    here.run(&["plan"]).expect(0).says("workers are restarted");
    assert!(scratch.is_dir());
    here.apply().expect(0);
    here.nothing_to_do();
    let after = ["work-scheduler", "work-worker-0", "work-more-worker-0"].map(|name| here.pid(name));
    let changed: Vec<bool> = before.iter().zip(after).map(|(before, after)| *before != after).collect();
    assert_eq!(changed, [false, true, false], "only the workers of the changed group are others");
    // Another port is another scheduler, with consent.
    let [port] = free_ports::<1>();
    here.user.edit(&format!("port = {}", here.ports[0]), &format!("port = {port}"));
    here.apply().expect(3);
    here.run(&["apply", "--auto-approve", "--allow", "replace:dask_cluster.work"]).expect(0);
    here.nothing_to_do();
    here.run(&["status"]).expect(0).says(&format!("tcp://127.0.0.1:{port}"));
    here.user.edit("\n[dask_cluster.work.group.more]\nreplicas = 1\n", "");
    here.run(&["apply", "--auto-approve", "--allow", "delete:dask_cluster.work.group.more"]).expect(0);
    here.nothing_to_do();
}

/// Two processes a worker, an interface by its name, a scratch folder elsewhere, no nanny in a group: as real Dask has it.
#[test]
#[ignore = "nightly: agent_workers::workers_run_as_they_are_told runs on every change"]
fn processes_run_as_they_are_told() {
    needs!(&[Part::Operator]);
    let scratch = tempfile::tempdir().unwrap();
    let worker = format!(
        "replicas = 1, processes = 2, threads = 1, interface = \"lo\", local_directory = \"{}\", \
         nanny = {{ spill = 0.65, terminate = false }}",
        scratch.path().display()
    );
    let more =
        "[dask_cluster.work.group.bare]\nnanny = { enabled = false }\n\n[check.sum]\nrun = \"dask-sum\"\n";
    let here = LocalUser::new(&worker, more);
    here.user.edit("scheduler = { port", "scheduler = { interface = \"lo\", port");
    here.apply().expect(0).says("check.sum");
    here.nothing_to_do();
    here.run(&["status"]).expect(0).says(&format!("scheduler at tcp://127.0.0.1:{}", here.ports[0]));
    let program = format!(
        "import json\nimport dask\nfrom distributed import Client\n\
         with Client('tcp://127.0.0.1:{}') as client:\n    workers = client.scheduler_info(n_workers=-1)['workers']\n    \
         print(json.dumps({{str(one['name']): [one['nthreads'], bool(one['nanny'])] for one in workers.values()}}))\n    \
         found = client.run(lambda: [dask.config.get('distributed.worker.memory.' + key) for key in ('spill', 'terminate')])\n    \
         print(json.dumps(sorted(map(str, found.values()))))\n",
        here.ports[0]
    );
    let asked = Command::new(python()).args(["-c", &program]).output().unwrap();
    assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
    let said = String::from_utf8_lossy(&asked.stdout).into_owned();
    let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let expect = serde_json::json!({
        "work-worker-0-0": [1, true], "work-worker-0-1": [1, true], "work-bare-worker-0": [1, false],
    });
    assert_eq!(lines[0], expect);
    assert_eq!(lines[1], serde_json::json!(["[0.65, False]", "[0.65, False]", "[0.7, 0.95]"]));
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1, "a folder for the worker");
    // A worker of two processes is retired whole.
    here.user.edit("processes = 2", "processes = 1");
    here.apply().expect(0);
    here.nothing_to_do();
    here.is_gone();
    assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 0, "its scratch folder went with it");
    assert_eq!(fs::read_dir(here.state.path()).unwrap().count(), 0);
}

#[test]
fn what_cannot_start_says_why() {
    needs!(&[Part::Operator]);
    let here = LocalUser::new("replicas = 1", "");
    let held = std::net::TcpListener::bind(("127.0.0.1", here.ports[0])).unwrap();
    let taken = format!("port {} of 127.0.0.1 is in use", here.ports[0]);
    here.apply().expect(1).says(&taken);
    drop(held);
    here.apply().expect(0);
    here.nothing_to_do();
    // The replacement could not listen, so nothing is stopped.
    let allow = ["apply", "--auto-approve", "--allow", "replace:dask_cluster.work"];
    let [port, other] = [here.ports[0], free_ports::<1>()[0]].map(|port| format!("{{ port = {port},"));
    let held = std::net::TcpListener::bind(("127.0.0.1", free_ports::<1>()[0])).unwrap();
    let taken = held.local_addr().unwrap().port();
    let scheduler = here.pid("work-scheduler");
    here.user.edit(&port, &format!("{{ port = {taken},"));
    here.run(&allow).expect(1).says(&format!("port {taken} of 127.0.0.1 is in use on this host by process"));
    assert_eq!(here.pid("work-scheduler"), scheduler);
    here.run(&["status"]).says("1 of 1 workers registered");
    here.user.edit(&format!("{{ port = {taken},"), &other);
    here.run(&allow).expect(0);
    here.nothing_to_do();
    here.user.edit(&other, &port);
    here.run(&allow).expect(0);
    // A Python without Dask.
    let bare = format!("path = \"{}\"", python().display());
    here.user.edit(&bare, "path = \"/bin/sh\"");
    here.run(&allow).expect(1).says("/bin/sh does not run");
    here.user.edit("path = \"/bin/sh\"", &bare);
    here.run(&allow).expect(0);
    here.nothing_to_do();
    // Without Python there is no agent.
    let mut command = here.user.command(&["plan"]);
    command.env("XDG_STATE_HOME", here.state.path()).env("DASK_INFRA_PYTHON", "/nowhere/python3");
    CommandOutput::of(&command.output().unwrap()).expect(1).says("DI0701").says("DASK_INFRA_PYTHON");
    here.run(&["--sandbox=sandbox", "plan"]).expect(1).says("no sandbox imitates");
}

#[test]
fn only_who_has_the_certificates_connects() {
    needs!(&[Part::Operator]);
    let here = LocalUser::new("replicas = 1", "[check.sum]\nrun = \"dask-sum\"\n");
    here.user.edit("[local]\n", "[local]\ntls = true\n");
    here.run(&["plan", "--out", "saved"]).expect(0).says("with TLS");
    here.apply().expect(0).says("check.sum");
    here.nothing_to_do();
    let connected = || -> Value {
        let said = here.run(&["connect", "--json"]).expect(0).out;
        serde_json::from_str(&said).unwrap()
    };
    let first = connected();
    let (python, at) = (python(), first["client"].as_str().unwrap());
    assert_eq!(at, format!("tls://127.0.0.1:{}", here.ports[0]));
    here.run(&["connect"]).expect(0).says("import Client, Security").says("require_encryption=True");
    strangers_are_refused(&python, &first);
    keys_are_kept(here.state.path(), &[here.user.path()]);
    // Without them others are made, and everything is started again.
    let folder = Path::new(first["security"]["tls_ca_file"].as_str().unwrap()).parent().unwrap();
    let kept = here.user.path().join("kept");
    fs::rename(folder, &kept).unwrap();
    let renewed = |why: &str| {
        here.run(&["plan", "--detailed-exitcode"]).expect(2).says(why).says("replace:dask_cluster.work");
        let before = here.pid("work-scheduler");
        here.apply().expect(3);
        assert_eq!(here.pid("work-scheduler"), before, "what it holds is lost with consent only");
        here.run(&["apply", "--auto-approve", "--allow", "replace:dask_cluster.work"]).expect(0);
        here.nothing_to_do();
    };
    renewed("its certificates are gone or have ended");
    let second = connected();
    assert_ne!(second["security"], first["security"]);
    assert_eq!(computes(&python, at, &tls_configuration(&second)), Ok("45".to_owned()));
    // A plan warns of certificates that expire soon; they are renewed on request.
    let object = notes_folder(here.state.path()).join("objects/clusters/_/work.json");
    let mut live: Value = serde_json::from_str(&fs::read_to_string(&object).unwrap()).unwrap();
    live["internal"]["tls"]["begins"] = "2000-01-01T00:00:00Z".into();
    fs::write(&object, live.to_string()).unwrap();
    // Another change does not come with it: a scheduler that runs keeps those that it has.
    here.run(&["scale", "work", "2", "--auto-approve"]).expect(0);
    assert_eq!(connected()["security"], second["security"]);
    here.run(&["plan", "--detailed-exitcode"]).expect(2).says("its certificates end on");
    here.replace("dask_cluster.work");
    here.nothing_to_do();
    let third = connected();
    assert_ne!(third["security"], second["security"]);
    computes(&python, at, &tls_configuration(&second)).unwrap_err();
    // Old certificates give no access, and a worker that was started with them does not join.
    let mut before = first.clone();
    let files = [("tls_ca_file", "ca.pem"), ("tls_client_cert", "cert.pem"), ("tls_client_key", "key.pem")];
    for (option, file) in files {
        before["security"][option] = kept.join(file).to_str().unwrap().into();
    }
    computes(&python, at, &tls_configuration(&before)).unwrap_err();
    let of_workers =
        tls_configuration(&before).into_iter().map(|(name, value)| (name.replace("CLIENT", "WORKER"), value));
    let mut worker = late_worker(&python, at, here.user.path());
    let ended = worker.args(["--protocol", "tls"]).envs(of_workers).output().unwrap();
    assert!(!String::from_utf8_lossy(&ended.stderr).contains("Registered to"), "{ended:?}");
    here.run(&["status"]).expect(0).says("1 of 1 workers registered");
    // Without TLS it is another scheduler, with consent.
    here.user.edit("tls = true\n", "");
    here.apply().expect(3);
    let allow = ["apply", "--auto-approve", "--allow", "replace:dask_cluster.work"];
    here.run(&allow).expect(0);
    here.nothing_to_do();
    assert!(!folder.parent().unwrap().exists());
    here.is_gone();
    assert_eq!(fs::read_dir(here.state.path()).unwrap().count(), 0);
}

/// Cron and systemd run on few machines that build software: what stands in their place notes what it is told.
#[test]
#[ignore = "nightly: agent_faults::each_step_meets_a_reboot_and_the_host_mends_it runs on every change"]
fn a_cluster_comes_back_after_a_reboot_if_that_is_asked_for() {
    needs!(&[Part::Operator]);
    let mut here = LocalUser::new("replicas = 2", "");
    let tools = here.user.path().join("tools");
    tool(&tools, "systemctl", "exit 1");
    tool(&tools, "crontab", "echo 'You are not allowed to use this program (crontab)'; exit 1");
    let path = format!("{}:{}", tools.display(), std::env::var("PATH").unwrap());
    here.variables = vec![("PATH", path.into()), ("XDG_CONFIG_HOME", tools.clone())];
    here.apply().expect(0);
    let pids = ["work-scheduler", "work-worker-0"].map(|name| here.pid(name));
    here.user.edit("[dask_cluster.work]\n", "[dask_cluster.work]\nrestart = \"on-boot\"\n");
    here.apply().expect(1).says("no systemd that lingers, and no crontab").says("enable-linger");
    let lines = here.user.path().join("lines");
    fs::write(&lines, "0 5 * * * backup\n").unwrap();
    tool(&tools, "crontab", &crontab_in(&lines));
    here.run(&["plan"]).expect(0).says("spec.restart");
    here.apply().expect(0);
    here.nothing_to_do();
    assert_eq!(
        ["work-scheduler", "work-worker-0"].map(|name| here.pid(name)),
        pids,
        "nothing was started again"
    );
    let reboots = |others: &[&str]| {
        for name in others.iter().chain(&["work-worker-0", "work-worker-1", "work-scheduler"]) {
            here.kill(name);
        }
        here.run(&["plan", "--detailed-exitcode"]).expect(2).says("the scheduler is not running");
    };
    let line = fs::read_to_string(&lines).unwrap();
    reboots(&[]);
    assert!(at_reboot(line.lines().last().unwrap()).status().unwrap().success());
    wait_until("its workers are registered", || {
        here.run(&["status"]).out.contains("2 of 2 workers registered")
    });
    here.nothing_to_do();
    // Somebody takes the line away.
    fs::write(&lines, "0 5 * * * backup\n").unwrap();
    here.run(&["plan", "--detailed-exitcode"]).expect(2).says("nothing starts it again after a reboot");
    here.apply().expect(0);
    assert_eq!(fs::read_to_string(&lines).unwrap(), line);
    here.user.edit("restart = \"on-boot\"\n", "");
    here.apply().expect(0);
    assert_eq!(fs::read_to_string(&lines).unwrap(), "0 5 * * * backup\n");

    // With systemd, the number of workers follows the work, too.
    here.user.edit("replicas = 2", "replicas = { min = 2, max = 2 }");
    let told = here.user.path().join("told");
    tool(&tools, "systemctl", &format!("echo \"$@\" >> {}", told.display()));
    tool(&tools, "loginctl", "echo Linger=yes");
    here.user.edit("[dask_cluster.work]\n", "[dask_cluster.work]\nrestart = \"on-boot\"\n");
    here.apply().expect(0);
    here.nothing_to_do();
    let units = tools.join("systemd/user");
    let unit = fs::read_dir(&units).unwrap().next().unwrap().unwrap().path();
    let text = fs::read_to_string(&unit).unwrap();
    let command = text.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    let told = fs::read_to_string(told).unwrap();
    assert!(told.contains(&format!("--user enable {}", unit.file_name().unwrap().display())), "{told}");
    reboots(&["work-adapter"]);
    assert!(at_reboot(&format!("@reboot {command}")).status().unwrap().success());
    wait_until("its workers are registered", || {
        here.run(&["status"]).out.contains("2 of 2 workers registered")
    });
    here.nothing_to_do();
    here.run(&["destroy", "--auto-approve"]).expect(0);
    assert_eq!(fs::read_dir(&units).unwrap().count(), 0);
    assert_eq!(here.leftovers(), Vec::<String>::new());
    assert_eq!(fs::read_dir(here.state.path()).unwrap().count(), 0);
}

/// A program that a real client computes with, beside a cluster of its own that goes with it.
#[test]
fn a_job_runs_to_its_end_and_leaves_its_log() {
    needs!(&[Part::Operator]);
    let program = "from distributed import Client\nwith Client() as client:\n    \
                   print('sum', client.submit(sum, client.map(int, range(10))).result())\n";
    let job = format!(
        "[dask_job.train]\nlike = \"work\"\nreplicas = 2\nwait = true\nargs = [\"python\", \"-c\", {}]\n",
        Value::from(program)
    );
    let here = LocalUser::new("replicas = 1", &job);
    here.apply().expect(0).says("sum 45");
    here.nothing_to_do();
    here.run(&["status"]).expect(0).says("Successful");
    here.run(&["logs", "train"]).expect(0).says("sum 45");
    assert_eq!(here.leftovers().len(), 1, "the worker of the other cluster: {:?}", here.leftovers());
    // It runs once; again when it is asked for, and when its own text changes.
    let run = ["run", "train", "--auto-approve", "--allow", "replace:dask_job.train"];
    here.run(&run).expect(0).says("sum 45");
    here.user.edit("replicas = 1", "replicas = 1, threads = 2");
    here.apply().expect(0);
    here.nothing_to_do();
    here.user.edit("'sum'", "'total'");
    here.apply().expect(3);
    here.run(&["apply", "--auto-approve", "--allow", "replace:dask_job.train"]).expect(0).says("total 45");
    // One that fails says so, with its last words.
    here.user.edit("result())\\n", "result())\\nraise SystemExit('no data')\\n");
    let allow = ["apply", "--auto-approve", "--allow", "replace:dask_job.train"];
    here.run(&allow).expect(1).says("exit code 1").says("no data").says("DI0403");
    here.run(&["plan", "--detailed-exitcode"]).expect(0).says("--replace dask_job.train");
    here.run(&["why", "train"]).expect(0).says("exit code 1").says("no data");
    here.run(&["logs", "train"]).expect(0).says("total 45").says("no data");
    here.is_gone();
    assert_eq!(fs::read_dir(here.state.path()).unwrap().count(), 0);
}

/// A `cupy` that is not NVIDIA's: it adds, and knows a GPU unless it is told that there is none.
const CUPY: &str = "import os\nimport types\n\nclass Array(list):\n    def __add__(self, other):\n        return Array(map(sum, zip(self, other)))\n    \
                    def get(self):\n        return self\n\ndef arange(number, dtype=None):\n    return Array(range(number))\n\n\
                    def getDeviceProperties(index):\n    if os.path.exists(os.path.join(os.path.dirname(__file__), 'none')):\n        \
                    raise RuntimeError('cudaErrorNoDevice: no CUDA-capable device is detected')\n    return {'name': b'stand-in'}\n\n\
                    cuda = types.SimpleNamespace(runtime=types.SimpleNamespace(getDeviceProperties=getDeviceProperties))\n";

/// Speeds are of real workers; what adds vectors on a GPU is a stand-in.
#[test]
fn a_program_of_ones_own_passes_by_its_exit_code() {
    let program = "from dask.distributed import Client; assert Client().submit(sum, [1, 2]).result() == 3; print('three')";
    let here =
        LocalUser::new("replicas = 1", &format!("[check.own]\nrun = [\"python\", \"-c\", \"{program}\"]\n"));
    here.apply().expect(0).says("check.own: passed");
    here.nothing_to_do();
    here.run(&["run", "check.own", "--auto-approve"]).expect(0).says("three");
    here.user.edit("result() == 3", "result() == 4");
    here.run(&["apply", "--auto-approve"]).expect(1).says("AssertionError").says("ended with code 1");
    here.run(&["plan"]).expect(0).says("1 check to run");
    // What a signal ends has no code, and has not passed.
    here.user.edit(&program.replace("== 3", "== 4"), "import os; os.kill(os.getpid(), 9)");
    here.run(&["apply", "--auto-approve"]).expect(1).says("check.own");
    here.run(&["plan"]).expect(0).says("1 check to run");
}

/// Says on which workers its tasks ran, and what the scheduler demands for them.
const WHERE: &str = r#"
import dask
from dask.distributed import Client, get_worker
def declared(number):
    return str(get_worker().state.total_resources)
with Client() as client:
    client.wait_for_workers(2)
    kept = client.map(declared, range(20))
    seen = set(client.gather(kept)) | set(dask.compute(*map(dask.delayed(declared), range(20))))
    demanded = client.run_on_scheduler(
        lambda dask_scheduler: {str(task.resource_restrictions) for task in dask_scheduler.tasks.values()})
print('declared', *seen, 'demanded', *demanded)
"#;

#[test]
fn tasks_of_a_program_run_where_their_resources_are() {
    let more = format!(
        "[dask_cluster.work.group.fast]\nreplicas = 1\nresources = {{ FAST = 2, MEM = 2.5 }}\n\n\
         [check.own]\nrun = [\"python\", \"-c\", '''{WHERE}''']\nresources = {{ FAST = 1 }}\n"
    );
    let here = LocalUser::new("replicas = 1", &more);
    here.apply().expect(0).says("check.own: passed");
    here.nothing_to_do();
    let said = "declared {'FAST': 2.0, 'MEM': 2.5} demanded {'FAST': 1.0}";
    here.run(&["run", "check.own", "--auto-approve"]).expect(0).says(said);
    // Other resources are another check. What no worker declares is found before anything runs.
    here.user.edit("{ FAST = 1 }", "{ FAST = 2 }");
    here.run(&["plan"]).expect(0).says("1 check to run");
    here.user.edit("{ FAST = 2 }", "{ FAST = 3 }");
    here.run(&["plan"]).expect(1).says("the program would wait forever");
    // A stack with errors is not destroyed at the end.
    here.user.edit("{ FAST = 3 }", "{ FAST = 2 }");
}

#[test]
fn checks_measure_the_network_and_use_gpus() {
    needs!(&[Part::Operator]);
    let fake = tempfile::tempdir().unwrap();
    let more =
        "[check.network]\nrun = \"bandwidth\"\nmin = \"1M\"\n\n[check.gpu]\nrun = \"cuda-vectoradd\"\n";
    let env =
        format!("env = {{ CUDA_VISIBLE_DEVICES = \"GPU-1\", PYTHONPATH = \"{}\" }}", fake.path().display());
    let here = LocalUser::new("replicas = 2", more);
    // No worker was given a GPU.
    here.apply().expect(1).says("no worker of this Dask cluster has a GPU");
    let measured = here.run(&["run", "check.network", "--auto-approve"]).expect(0).says("MB/s");
    measured.says("-> tcp://127.0.0.1:");
    here.user.edit("replicas = 2", &format!("replicas = 2, {env}"));
    here.apply().expect(1).says("neither cupy nor numba is there");
    fs::write(fake.path().join("none"), "").unwrap();
    fs::write(fake.path().join("cupy.py"), CUPY).unwrap();
    here.apply().expect(1).says("no CUDA-capable device").says("2 of 2 workers with a GPU cannot use it");
    fs::remove_file(fake.path().join("none")).unwrap();
    here.apply().expect(0);
    here.nothing_to_do();
    here.run(&["run", "check.gpu", "--auto-approve"])
        .expect(0)
        .says("passed on stand-in")
        .says("Test PASSED");
    // No network is that fast.
    here.user.edit("min = \"1M\"", "min = \"1000T\"");
    here.apply().expect(1).says("less than 1000000000 MB/s").says("connections are too slow");
    here.user.edit("replicas = 2", "replicas = 1");
    here.apply().expect(1).says("there is 1 worker, and two are needed");
    here.is_gone();
}
