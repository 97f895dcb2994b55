//! `[ssh]` with a real sshd on loopback and the real `distributed`: three hosts are three ports, each with a folder of its own.
//! `benches/hosts.rs` has more of them.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use serde_json::Value;

use super::tls::{keys_are_kept, strangers_are_refused};
use crate::real::{PATIENCE, Part, free_ports, needs};
use crate::sandbox_server::{CommandOutput, User, entries_below, wait_until};

/// Privileged programs are not on every `PATH`.
const SSHD: &str = "/usr/sbin/sshd";

pub fn sshd_is_there() -> bool {
    let there = Path::new(SSHD).exists();
    assert!(
        there || std::env::var_os("DASK_INFRA_REQUIRE_REAL").is_none_or(|value| value != "1"),
        "no {SSHD}: `apt-get install openssh-server`"
    );
    if !there {
        let _ =
            writeln!(std::io::stderr(), "skipped: hosts::ssh needs {SSHD} (apt-get install openssh-server)");
    }
    there
}

pub struct Lab {
    pub user: User,
    folder: tempfile::TempDir,
    servers: Vec<Option<Child>>,
    pub ports: Vec<u16>,
    pub dask: [u16; 2],
    /// Variables that a host's server sets, by its number; from its next start on.
    pub variables: BTreeMap<usize, String>,
    /// Where sockets of connections lie: another folder is another connection.
    connections: tempfile::TempDir,
}

fn keygen(file: &Path) {
    let made = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(file).status();
    assert!(made.unwrap().success());
}

impl Lab {
    pub fn new(worker: &str, more: &str) -> Self {
        Self::of(free_ports::<3>().to_vec(), worker, more)
    }

    /// A host for each port.
    pub fn of(ports: Vec<u16>, worker: &str, more: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        keygen(&folder.path().join("id"));
        keygen(&folder.path().join("other"));
        fs::copy(folder.path().join("id.pub"), folder.path().join("authorized_keys")).unwrap();
        if fs::metadata("/proc/self").map(|own| std::os::unix::fs::MetadataExt::uid(&own)).unwrap() == 0 {
            // The privilege separation folder of an sshd that runs as root.
            fs::create_dir_all("/run/sshd").unwrap();
        }
        let mut lab = Self {
            user: User::empty(),
            folder,
            servers: ports.iter().map(|_| None).collect(),
            ports,
            dask: free_ports::<2>(),
            variables: BTreeMap::new(),
            connections: tempfile::tempdir().unwrap(),
        };
        for index in 0..lab.ports.len() {
            keygen(&lab.at(&format!("host{index}")));
            fs::create_dir(lab.state(index)).unwrap();
            lab.serve(index);
        }
        lab.write_known_hosts(&(0..lab.ports.len()).collect::<Vec<usize>>());
        lab.write_ssh_config("id");
        let program = lab.at("ssh");
        let text = format!("#!/bin/sh\nexec ssh -F {}/ssh_config \"$@\"\n", lab.folder.path().display());
        fs::write(&program, text).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let text = format!(
            "[stack]\nname = \"lab\"\n\n{}\n[environment.main]\npath = \"{}\"\n\n[dask_cluster.work]\n\
             scheduler = {{ port = {}, dashboard_port = {} }}\nworker = {{ {worker} }}\n\n{more}",
            lab.hosts(),
            Part::Operator.program("python").display(),
            lab.dask[0],
            lab.dask[1],
        );
        lab.user.write(text);
        lab
    }

    /// The section of its hosts.
    pub fn hosts(&self) -> String {
        let hosts: Vec<String> = (0..self.ports.len()).map(|index| self.host(index)).collect();
        format!("[ssh]\nhosts = [{}]\n", hosts.join(", "))
    }

    /// A host in that section.
    pub fn host(&self, index: usize) -> String {
        format!("{{ name = \"n{}\", address = \"127.0.0.1\", port = {} }}", index + 1, self.ports[index])
    }

    pub fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub fn state(&self, index: usize) -> PathBuf {
        self.at(&format!("state{index}"))
    }

    /// The state of who applies.
    fn applier(&self) -> PathBuf {
        self.at("applier")
    }

    /// Returns the files of a host.
    pub fn leftovers(&self, index: usize) -> Vec<PathBuf> {
        entries_below(&self.state(index))
    }

    /// Destroys the stack; nothing is left on any host.
    #[track_caller]
    pub fn is_gone(&self) {
        self.run(&["destroy", "--auto-approve"]).expect(0);
        assert_eq!(
            (0..self.ports.len()).flat_map(|index| self.leftovers(index)).collect::<Vec<_>>(),
            Vec::<PathBuf>::new()
        );
        // Nor is a copy of certificates.
        assert_eq!(entries_below(&self.applier()), Vec::<PathBuf>::new());
    }

    /// Starts the server of a host, which answers when this returns.
    pub fn serve(&mut self, index: usize) {
        let folder = self.folder.path().display();
        let path = std::env::var("PATH").unwrap();
        // Output of a shell before a command is not the command's answer. One below another reads no `.bashrc`: that
        // of whoever runs the tests may take seconds.
        let text = format!(
            "Port {}\nListenAddress 127.0.0.1\nHostKey {folder}/host{index}\nPidFile none\nAuthorizedKeysFile \
             {folder}/authorized_keys\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n\
             KbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\nSetEnv SHLVL=1 XDG_STATE_HOME={} PATH={path} BASH_ENV={folder}/noise {}\n",
            self.ports[index],
            self.state(index).display(),
            self.variables.get(&index).map_or("", String::as_str),
        );
        // For this shell only: those that a program of its own starts are none of its.
        fs::write(self.at("noise"), "unset BASH_ENV\necho welcome\n").unwrap();
        let file = self.at(&format!("sshd{index}"));
        fs::write(&file, text).unwrap();
        self.servers[index] = Some(self.listening(index, &file));
    }

    /// Starts a server, once more when somebody else has its port for a moment: then it ends at once.
    fn listening(&self, index: usize, configuration: &Path) -> Child {
        let path = self.at(&format!("sshd{index}.log"));
        let begun = Instant::now();
        loop {
            let log = fs::File::create(&path).unwrap();
            let mut server =
                Command::new(SSHD).args(["-D", "-e", "-f"]).arg(configuration).stderr(log).spawn().unwrap();
            while server.try_wait().unwrap().is_none() {
                if fs::read_to_string(&path).unwrap().contains("Server listening on 127.0.0.1") {
                    return server;
                }
                std::thread::yield_now();
            }
            assert!(begun.elapsed() < PATIENCE, "sshd: {}", fs::read_to_string(&path).unwrap());
        }
    }

    pub fn end(&mut self, index: usize) {
        if let Some(mut server) = self.servers[index].take() {
            server.kill().unwrap();
            server.wait().unwrap();
        }
    }

    /// The keys of hosts that are known, each by the number of the host that has it.
    fn write_known_hosts(&self, keys: &[usize]) {
        let line = |(index, key): (usize, &usize)| {
            let key = fs::read_to_string(self.at(&format!("host{key}.pub"))).unwrap();
            format!("[127.0.0.1]:{} {key}", self.ports[index])
        };
        let text: String = keys.iter().enumerate().map(line).collect();
        fs::write(self.at("known_hosts"), text).unwrap();
    }

    fn write_ssh_config(&self, identity: &str) {
        let folder = self.folder.path().display();
        let text = format!(
            "Host *\n  IdentityFile {folder}/{identity}\n  IdentitiesOnly yes\n  UserKnownHostsFile \
             {folder}/known_hosts\n  GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n"
        );
        fs::write(self.at("ssh_config"), text).unwrap();
    }

    /// Adds the way to each host, by its name, to the configuration.
    pub fn knows_names(&self) {
        let of = |(index, port): (usize, &u16)| {
            format!("Host n{}\n  HostName 127.0.0.1\n  Port {port}\n", index + 1)
        };
        let hosts: String = self.ports.iter().enumerate().map(of).collect();
        let general = fs::read_to_string(self.at("ssh_config")).unwrap();
        fs::write(self.at("ssh_config"), hosts + &general).unwrap();
    }

    pub fn run(&self, words: &[&str]) -> CommandOutput {
        self.run_over(self.connections.path(), words)
    }

    /// For somebody with another stack.
    pub fn run_as(&self, user: &User, words: &[&str]) -> CommandOutput {
        self.run_by(user, self.connections.path(), words)
    }

    /// Over connections that nobody made yet.
    pub fn run_anew(&self, words: &[&str]) -> CommandOutput {
        self.run_over(tempfile::tempdir().unwrap().path(), words)
    }

    fn run_over(&self, connections: &Path, words: &[&str]) -> CommandOutput {
        self.run_by(&self.user, connections, words)
    }

    fn run_by(&self, user: &User, connections: &Path, words: &[&str]) -> CommandOutput {
        CommandOutput::of(&self.command_of(user, connections, words).output().unwrap())
    }

    /// The program, not started yet.
    pub fn command(&self, words: &[&str]) -> Command {
        self.command_of(&self.user, self.connections.path(), words)
    }

    fn command_of(&self, user: &User, connections: &Path, words: &[&str]) -> Command {
        let mut command = user.command(words);
        command.env("DASK_INFRA_SSH", self.at("ssh")).env("XDG_RUNTIME_DIR", connections);
        command.env("XDG_STATE_HOME", self.applier());
        command.stdin(Stdio::null());
        command
    }

    #[track_caller]
    pub fn nothing_to_do(&self) {
        self.run(&["plan", "--detailed-exitcode"]).expect(0);
    }

    pub fn kill(&self, index: usize, name: &str) {
        let machines: Vec<PathBuf> = fs::read_dir(self.state(index).join("dask-infra/at"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        let note = machines[0].join(format!("objects/pods/default/{name}.json"));
        let pod: Value = serde_json::from_str(&fs::read_to_string(note).unwrap()).unwrap();
        let pid = pod["internal"]["process"]["pid"].as_u64().unwrap().to_string();
        assert!(Command::new("kill").args(["-9", &pid]).status().unwrap().success());
        while Path::new("/proc").join(&pid).join("exe").exists() {
            std::thread::yield_now();
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // Gone already in a good run.
        let _ = self.run(&["destroy", "--auto-approve"]);
        for index in 0..self.ports.len() {
            self.end(index);
        }
    }
}

#[test]
fn a_stack_is_spread_over_hosts_computes_and_goes() {
    needs!(&[Part::Operator]);
    if !sshd_is_there() {
        return;
    }
    let more =
        "[dask_cluster.work.group.more]\nreplicas = 1\nhosts = [\"n3\"]\n\n[check.sum]\nrun = \"dask-sum\"\n";
    let lab = Lab::new("replicas = 3, hosts = [\"n1\", \"n2\"]", more);
    lab.run(&["apply", "--auto-approve"]).expect(0).says("check.sum");
    lab.nothing_to_do();
    lab.run(&["status"]).expect(0).says("3 of 3 workers").says("1 of 1 workers");
    lab.run(&["logs", "work"]).expect(0).says("work_n2-worker-0");
    let connected: Value = serde_json::from_str(&lab.run(&["connect", "--json"]).expect(0).out).unwrap();
    assert_eq!(connected["client"], format!("tls://127.0.0.1:{}", lab.dask[0]));
    strangers_are_refused(&Part::Operator.program("python"), &connected);
    for host in [lab.state(0), lab.state(1), lab.state(2), lab.applier()] {
        keys_are_kept(&host, &[lab.user.path()]);
    }
    lab.nothing_to_do();
    // A worker of one host ends; the others go on.
    lab.kill(1, "work_n2-worker-0");
    lab.run(&["plan", "--detailed-exitcode"]).expect(2).says("1 of 3 workers not running");
    lab.run(&["apply", "--auto-approve"]).expect(0);
    lab.nothing_to_do();
    lab.run(&["scale", "work", "2", "--auto-approve"]).expect(0);
    lab.run(&["status"]).expect(0).says("2 of 2 workers");
    lab.run(&["apply", "--auto-approve"]).expect(0);
    // A host that is left is emptied.
    lab.user.edit("hosts = [\"n3\"]", "hosts = [\"n2\"]");
    lab.run(&["apply", "--auto-approve"]).expect(0);
    lab.nothing_to_do();
    lab.run(&["logs", "work.group.more"]).expect(0).says("work-more_n2-worker-0");
    lab.is_gone();
}

/// The host with the scheduler is done while the others still retire their workers.
#[test]
fn a_destroy_waits_for_hosts_without_the_scheduler() {
    needs!(&[Part::Operator]);
    if !sshd_is_there() {
        return;
    }
    let lab = Lab::new("replicas = 4, hosts = [\"n2\", \"n3\"]", "");
    lab.run(&["apply", "--auto-approve"]).expect(0);
    lab.is_gone();
}

#[test]
fn what_cannot_be_reached_is_not_called_gone() {
    needs!(&[Part::Operator]);
    if !sshd_is_there() {
        return;
    }
    let mut lab = Lab::new("replicas = 2, hosts = [\"n1\", \"n2\"]", "");
    lab.run(&["apply", "--auto-approve"]).expect(0);
    lab.end(1);
    lab.run_anew(&["plan"]).expect(1).says("n2 cannot be used").says("Connection refused");
    // `status` shows the objects of the other hosts.
    let said = lab.run_anew(&["status"]).expect(1).says("n2 cannot be used");
    assert!(
        said.out.contains("dask_cluster.work") && said.out.contains("1 of 1 workers registered"),
        "{}",
        said.out
    );
    lab.run_anew(&["why", "dask_cluster.work"])
        .expect(0)
        .says("n2 cannot be used")
        .says("no plan can be made without");
    lab.run_anew(&["logs", "dask_cluster.work", "--tail", "-1"])
        .expect(0)
        .says("n2 cannot be used")
        .says("Scheduler at");
    lab.run_anew(&["connect", "dask_cluster.work"]).expect(0);
    // Each that cannot be reached is named.
    lab.end(2);
    lab.run_anew(&["plan"]).expect(1).says("n2 cannot be used").says("n3 cannot be");
    lab.serve(2);
    lab.serve(1);
    lab.write_known_hosts(&[0, 2, 2]);
    lab.run_anew(&["plan"]).expect(1).says("its host key is not the one that is known").says("ssh-keygen -R");
    lab.write_known_hosts(&[0]);
    lab.run_anew(&["plan"]).expect(1).says("its host key is not known");
    lab.write_known_hosts(&[0, 1, 2]);
    lab.write_ssh_config("other");
    lab.run_anew(&["plan"]).expect(1).says("Permission denied");
    lab.write_ssh_config("id");
    lab.run_anew(&["plan", "--detailed-exitcode"]).expect(0);
    // Two names of one host are one host.
    let (second, third) = (lab.ports[1].to_string(), lab.ports[2].to_string());
    lab.user.edit(&format!("port = {third} }}"), &format!("port = {second} }}"));
    lab.run_anew(&["plan"]).expect(1).says("are the same machine and the same user");
    lab.user.edit(
        &format!("\"n3\", address = \"127.0.0.1\", port = {second} }}"),
        &format!("\"n3\", address = \"127.0.0.1\", port = {third} }}"),
    );
    lab.run(&["destroy", "--auto-approve"]).expect(0);
}

#[test]
#[ignore = "nightly: a_host_that_left_is_emptied_by_destroy_and_a_renamed_one_is_the_same runs on every change"]
fn a_host_that_leaves_the_file_is_emptied() {
    needs!(&[Part::Operator]);
    if !sshd_is_there() {
        return;
    }
    let mut lab = Lab::new("replicas = 3", "");
    lab.run(&["apply", "--auto-approve"]).expect(0);
    lab.run(&["status"]).expect(0).says("3 of 3 workers");
    let (second, third) = (lab.host(1), lab.host(2));

    // It cannot be reached: nothing is taken for gone, and what to say when it never comes back stands there.
    lab.user.edit(&format!(", {third}]"), "]");
    lab.end(2);
    let said = lab.run_anew(&["plan"]).expect(1).says("n3 cannot be used").says("gone = [\"n3\"]");
    assert!(!said.out.contains("workers"), "{}", said.out);
    lab.serve(2);
    lab.run(&["plan", "--detailed-exitcode"]).expect(2).says("dask_cluster.work");
    lab.run(&["apply", "--auto-approve"]).expect(0);
    assert_eq!(lab.leftovers(2), Vec::<PathBuf>::new());
    lab.nothing_to_do();
    lab.run(&["status"]).expect(0).says("3 of 3 workers");
    // It is not visited any more.
    lab.end(2);
    lab.run_anew(&["plan", "--detailed-exitcode"]).expect(0);

    // One that burned down, with what was on it.
    lab.user.edit(&format!(", {second}]"), "]\ngone = [\"n[2-9]\"]");
    lab.end(1);
    let there = "n2 is named in `gone`, but 1 worker of dask_cluster.work runs there";
    lab.run_anew(&["plan", "--detailed-exitcode"]).expect(2).says(there).says("remove it from `gone`");
    lab.run_anew(&["apply", "--auto-approve"]).expect(0);
    lab.run_anew(&["status"]).expect(0).says("3 of 3 workers");
    lab.run_anew(&["plan"]).expect(0).says(there).says("add it to `hosts` and apply");
    lab.user.edit("\ngone = [\"n[2-9]\"]", "");
    lab.run_anew(&["plan", "--detailed-exitcode"]).expect(0);
    lab.run_anew(&["destroy", "--auto-approve"]).expect(0);
    assert_eq!(lab.leftovers(0), Vec::<PathBuf>::new());

    // It comes back after all: the file has it again, and destroys what it has.
    lab.serve(1);
    lab.user.edit("]\n\n[environment", &format!(", {second}]\n\n[environment"));
    lab.run(&["destroy", "--auto-approve"]).expect(0);
    assert_eq!(lab.leftovers(1), Vec::<PathBuf>::new());
}

#[test]
fn a_host_that_left_is_emptied_by_destroy_and_a_renamed_one_is_the_same() {
    needs!(&[Part::Operator]);
    if !sshd_is_there() {
        return;
    }
    let lab = Lab::new("replicas = 3", "");
    lab.run(&["apply", "--auto-approve"]).expect(0);
    lab.user.edit("name = \"n2\"", "name = \"node2\"");
    lab.run(&["plan", "--detailed-exitcode"]).expect(2);
    lab.run(&["apply", "--auto-approve"]).expect(0);
    lab.nothing_to_do();
    lab.run(&["logs", "work"]).expect(0).says("work_node2-worker-0");
    let third = format!(", {}", lab.host(2));
    lab.user.edit(&third, "");
    lab.is_gone();
}

/// A name leads to another machine, and on the one before workers go on under the names of those that are to start.
#[test]
fn workers_of_a_machine_that_had_the_name_before_do_not_count() {
    needs!(&[Part::Operator]);
    if !sshd_is_there() {
        return;
    }
    let lab = Lab::new("replicas = 1, hosts = [\"n2\"]", "");
    let third = format!(", {}", lab.host(2));
    lab.user.edit(&third, "");
    lab.run(&["apply", "--auto-approve"]).expect(0);
    let [before, after] = [1, 2].map(|index| format!("port = {} }}", lab.ports[index]));
    lab.user.edit(&before, &after);
    let moved =
        format!("n2 was 127.0.0.1:{} at the last apply and is 127.0.0.1:{} now", lab.ports[1], lab.ports[2]);
    lab.run(&["plan"]).expect(0).says(&moved).says("DI0368");
    let theirs = "which does not run on this host: stop it there, or give this host another name in `hosts`";
    lab.run(&["apply", "--auto-approve"])
        .expect(1)
        .says("the scheduler knows a worker work_n2-worker-0 at")
        .says(theirs);
    lab.run(&["status"]).expect(0).says("0 of 1 workers registered").says("does not run on this host");
    lab.kill(1, "work_n2-worker-0");
    lab.run(&["apply", "--auto-approve"]).expect(0);
    lab.nothing_to_do();
    lab.user.edit(&after, &before);
    lab.user.edit("}]\n", &format!("}}{third}]\n"));
    lab.is_gone();
}

/// The program runs on the scheduler's host, with workers of all hosts, and what it leaves is its log there.
#[test]
#[ignore = "nightly: a_stack_is_spread_over_hosts_computes_and_goes runs on every change"]
fn a_job_computes_on_all_hosts() {
    needs!(&[Part::Operator]);
    if !sshd_is_there() {
        return;
    }
    let program = "import time\nfrom distributed import Client\nwith Client() as client:\n    client.wait_for_workers(3, timeout=60)\n    \
                   names = {str(one['name']).split('-')[0] for one in client.scheduler_info()['workers'].values()}\n    \
                   print('sum', client.submit(sum, client.map(int, range(10))).result(), *sorted(names))\n";
    let job = format!(
        "[dask_job.train]\nlike = \"work\"\nreplicas = 3\nwait = true\nargs = [\"python\", \"-c\", {}]\n",
        Value::from(program)
    );
    let lab = Lab::new("replicas = 1", &job);
    lab.run(&["apply", "--auto-approve"]).expect(0).says("sum 45 train_n1 train_n2 train_n3");
    lab.nothing_to_do();
    lab.run(&["logs", "train"]).expect(0).says("sum 45");
    lab.run(&["status"]).expect(0).says("Successful");
    // A program that is killed while it runs is seen, and runs again when it is asked for.
    lab.user.edit("print('sum'", "time.sleep(600); print('sum'");
    lab.user.edit("wait = true", "wait = false");
    lab.run(&["apply", "--auto-approve", "--allow", "replace:dask_job.train"]).expect(0);
    lab.nothing_to_do();
    lab.run(&["status"]).expect(0).says("Running");
    lab.kill(0, "train-runner");
    wait_until("its end is noted", || !lab.run(&["status"]).out.contains("Running"));
    lab.run(&["plan", "--detailed-exitcode"]).expect(0).says("the job failed");
    lab.run(&["why", "train"]).expect(0).says("its exit code is not known");
    lab.run(&["destroy", "--auto-approve"]).expect(0);
    for index in 0..3 {
        let left: Vec<_> =
            fs::read_dir(lab.state(index)).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert_eq!(left, Vec::<PathBuf>::new());
    }
}
