//! SLURM on one machine: munge, a controller and four nodes that are names of it, in a folder and on ports of their own.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use super::parts::SLURMCTLD;
use super::process_group::{ProcessGroup, free_ports};
use crate::sandbox_server::wait_until;

/// Nodes that the machine pretends to be, and CPUs of each: more than it has.
const NODES: usize = 4;
const CPUS: usize = 4;

pub struct Cluster {
    processes: ProcessGroup,
    has_controller: bool,
}

impl Cluster {
    /// Nodes are idle when this returns.
    pub fn start() -> Self {
        let mut processes = ProcessGroup::new();
        let ports = free_ports::<5>();
        let host = Command::new("hostname").arg("-s").output().unwrap();
        let host = String::from_utf8(host.stdout).unwrap().trim().to_owned();
        let folder = processes.folder().display().to_string();
        let mut text = format!(
            "ClusterName=real\nSlurmctldHost={host}(127.0.0.1)\nSlurmctldPort={}\nSlurmUser={user}\nSlurmdUser={user}\n\
             AuthType=auth/munge\nAuthInfo=socket={folder}/munge.sock\nCredType=cred/munge\nStateSaveLocation={folder}/ctld\n\
             SlurmdSpoolDir={folder}/spool.%n\nSlurmctldPidFile={folder}/slurmctld.pid\nSlurmdPidFile={folder}/slurmd.%n.pid\n\
             ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSwitchType=switch/none\nMpiDefault=none\n\
             JobAcctGatherType=jobacct_gather/none\nAccountingStorageType=accounting_storage/none\nJobCompType=jobcomp/none\n\
             SchedulerType=sched/backfill\nSelectType=select/cons_tres\nSelectTypeParameters=CR_CPU_Memory\n\
             SlurmdParameters=config_overrides\nSchedulerParameters=batch_sched_delay=0,sched_interval=5,bf_interval=5\n\
             ReturnToService=2\nKillWait=5\nMinJobAge=300\nInactiveLimit=0\nSlurmctldTimeout=30\nSlurmdTimeout=30\nMessageTimeout=5\n",
            ports[0],
            user = user(),
        );
        for (node, port) in ports.iter().enumerate().skip(1) {
            fs::create_dir(processes.folder().join(format!("spool.n{node}"))).unwrap();
            writeln!(
                text,
                "NodeName=n{node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={CPUS} RealMemory=8000 State=UNKNOWN"
            )
            .unwrap();
        }
        writeln!(text, "PartitionName=cpu Nodes=n[1-{NODES}] Default=YES MaxTime=INFINITE State=UP").unwrap();
        writeln!(text, "PartitionName=short Nodes=n1 MaxTime=10 State=UP").unwrap();
        processes.write("slurm.conf", text);
        fs::create_dir(processes.folder().join("ctld")).unwrap();
        let key = processes.write(
            "munge.key",
            (0..128u8).map(|byte| byte.wrapping_mul(37).wrapping_add(11)).collect::<Vec<u8>>(),
        );
        fs::set_permissions(&key, fs::Permissions::from_mode(0o400)).unwrap();
        // munged refuses a folder that others can write, and its socket is for everybody.
        fs::set_permissions(processes.folder(), fs::Permissions::from_mode(0o755)).unwrap();
        let mut munged = Command::new("/usr/sbin/munged");
        munged.args(["--foreground", "--force", "--num-threads=2"]);
        for (option, file) in [
            ("socket", "munge.sock"),
            ("key-file", "munge.key"),
            ("pid-file", "munged.pid"),
            ("seed-file", "munge.seed"),
        ] {
            munged.arg(format!("--{option}={folder}/{file}"));
        }
        processes.start("munged", &mut munged);
        let socket = processes.folder().join("munge.sock");
        wait_until("munge answers", || std::os::unix::net::UnixStream::connect(&socket).is_ok());
        let mut cluster = Self { processes, has_controller: false };
        cluster.start_controller();
        for node in 1..=NODES {
            cluster.start_node(node);
        }
        wait_until("all nodes are idle", || {
            cluster
                .says("sinfo", &["-h", "-N", "-p", "cpu", "-o", "%T"])
                .lines()
                .filter(|state| *state == "idle")
                .count()
                == NODES
        });
        cluster
    }

    pub fn configuration(&self) -> PathBuf {
        self.processes.folder().join("slurm.conf")
    }

    pub fn start_controller(&mut self) {
        let mut controller = Command::new(SLURMCTLD);
        controller.arg("-D").env("SLURM_CONF", self.configuration());
        self.processes.start("slurmctld", &mut controller);
        self.has_controller = true;
    }

    /// As a controller ends that an administrator shuts down: one that is killed forgets jobs that it started a moment before, and later ends them.
    pub fn end_controller(&mut self) {
        self.processes.signal("slurmctld", "TERM");
        wait_until("the controller ends", || {
            self.processes.take_ended().iter().any(|(name, _)| name == "slurmctld")
        });
        self.has_controller = false;
    }

    /// For what must be ended after a test that failed meanwhile.
    pub fn with_controller(&mut self) {
        if !self.has_controller {
            self.start_controller();
        }
    }

    fn start_node(&mut self, node: usize) {
        let mut daemon = Command::new("/usr/sbin/slurmd");
        daemon.args(["-D", "-N", &format!("n{node}")]).env("SLURM_CONF", self.configuration());
        self.processes.start(format!("slurmd-n{node}"), &mut daemon);
    }

    /// Runs one of SLURM's programs and returns its output.
    pub fn says(&self, program: &str, words: &[&str]) -> String {
        let said =
            Command::new(program).args(words).env("SLURM_CONF", self.configuration()).output().unwrap();
        String::from_utf8(said.stdout).unwrap()
    }

    /// Jobs of this user that wait or run, or whose node has not cleaned up yet: `ID NAME STATE`.
    pub fn jobs(&self) -> Vec<String> {
        let states = "PENDING,CONFIGURING,RUNNING,COMPLETING";
        let all = self.says("squeue", &["-h", "-u", &user(), "-t", states, "-o", "%i %j %T"]);
        all.lines().map(str::to_owned).collect()
    }

    /// The job of a worker.
    pub fn job(&self, name: &str) -> String {
        let jobs = self.jobs();
        let found = jobs.iter().find(|job| job.split(' ').nth(1) == Some(name));
        found.unwrap_or_else(|| panic!("no job {name} in {jobs:?}")).split(' ').next().unwrap().to_owned()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Processes of the nodes do not end with the nodes.
        for user in [&user(), "nobody"] {
            self.says("scancel", &["--full", "--signal=KILL", "--user", user]);
        }
    }
}

fn user() -> String {
    let said = Command::new("id").arg("-un").output().unwrap();
    String::from_utf8(said.stdout).unwrap().trim().to_owned()
}
