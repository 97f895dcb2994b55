//! `[slurm] login = …`: a login node at the other end of the real sshd, with the real SLURM behind it.

use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::hosts::adaptive::{Client, squares};
use crate::hosts::ssh::{Lab, sshd_is_there};
use crate::real::{Cluster, Part, free_ports, needs};
use crate::sandbox_server::wait_until;

/// The login node of a cluster, and a stack whose scheduler has these terms.
fn login(cluster: &Cluster, scheduler: &str) -> Lab {
    let mut lab = Lab::of(free_ports::<1>().to_vec(), "", "");
    lab.variables.insert(0, format!("SLURM_CONF={}", cluster.configuration().display()));
    lab.end(0);
    lab.serve(0);
    let text = format!(
        "[stack]\nname = \"hpc\"\n\n[slurm]\nlogin = {{ name = \"login1\", address = \"127.0.0.1\", port = {} }}\n\
         partition = \"cpu\"\n\n[environment.main]\npath = \"{}\"\n\n[dask_cluster.work]\n\
         scheduler = {{ {scheduler} }}\nworker = {{ replicas = 1, memory = \"300Mi\" }}\n\n\
         [check.sum]\nrun = \"dask-sum\"\n",
        lab.ports[0],
        Part::Slurm.program("python").display()
    );
    lab.user.write(text);
    lab
}

/// The forward that `connect` prints reaches a scheduler on a node behind the login node.
#[test]
#[ignore = "nightly: a_login_node_is_reached_by_ssh runs on every change"]
fn a_scheduler_that_is_a_job_is_reached_through_the_login_node() {
    needs!(&[Part::Slurm]);
    if !sshd_is_there() {
        return;
    }
    let cluster = Cluster::start();
    let lab = login(&cluster, "memory = \"400Mi\", slurm = {}");
    lab.run(&["apply", "--auto-approve"]).expect(0).says("check.sum");
    lab.nothing_to_do();
    assert_eq!(cluster.jobs().len(), 2);
    let mut connected: Value = serde_json::from_str(&lab.run(&["connect", "--json"]).expect(0).out).unwrap();
    let forward: Vec<&str> = connected["forward"].as_str().unwrap().split(' ').collect();
    assert_eq!(forward[..3], ["ssh", "-N", "-L"], "{forward:?}");
    // The port itself is taken here: the node is this machine, too.
    let (theirs, [ours]) = (forward[3].split_once(':').unwrap().1, free_ports::<1>());
    let mut tunnel = Command::new(lab.at("ssh"));
    tunnel.args(["-N", "-L", &format!("{ours}:{theirs}")]).args(&forward[6..]);
    let mut tunnel = tunnel.stdin(Stdio::null()).spawn().unwrap();
    wait_until("the tunnel is there", || TcpStream::connect(("127.0.0.1", ours)).is_ok());
    connected["client"] = format!("tls://127.0.0.1:{ours}").into();
    let mut client = Client::connected(&Part::Slurm.program("python"), &connected.to_string());
    assert_eq!(client.says("up 20 0"), "1");
    assert_eq!(client.says("sum"), squares(&[20]));
    drop(client);
    tunnel.kill().unwrap();
    tunnel.wait().unwrap();
    lab.run(&["destroy", "--auto-approve"]).expect(0);
    wait_until("their nodes have cleaned up", || cluster.jobs().is_empty());
    assert_eq!(lab.leftovers(0), Vec::<PathBuf>::new());
}

#[test]
fn a_login_node_is_reached_by_ssh() {
    needs!(&[Part::Slurm]);
    if !sshd_is_there() {
        return;
    }
    let cluster = Cluster::start();
    let [scheduler, pages] = free_ports::<2>();
    let mut lab = login(&cluster, &format!("port = {scheduler}, dashboard_port = {pages}"));
    let port = lab.ports[0];
    lab.run(&["apply", "--auto-approve"]).expect(0).says("check.sum");
    lab.nothing_to_do();
    lab.run(&["scale", "work", "2", "--auto-approve"]).expect(0);
    assert_eq!(cluster.jobs().len(), 2);
    lab.run(&["status"]).expect(0).says("2 of 2 workers");
    lab.run(&["logs", "work"]).expect(0).says("work-worker-1").says("Registered to");
    lab.run(&["connect"]).expect(0).says(&format!("tls://127.0.0.1:{scheduler}"));
    // It refuses: what runs is unknown, and goes on.
    lab.end(0);
    lab.run_anew(&["plan"]).expect(1).says("login1 cannot be used").says("Connection refused");
    lab.run_anew(&["destroy", "--auto-approve"]).expect(1).says("login1 cannot be used");
    // It takes connections and says nothing.
    let silent = TcpListener::bind(("127.0.0.1", port)).unwrap();
    lab.run_anew(&["plan"]).expect(1).says("login1 cannot be used").says("timed out");
    drop(silent);
    assert_eq!(cluster.jobs().len(), 2);
    lab.serve(0);
    lab.run_anew(&["plan", "--detailed-exitcode"]).expect(2).says("replicas");
    lab.run(&["apply", "--auto-approve"]).expect(0);
    lab.nothing_to_do();
    lab.run(&["destroy", "--auto-approve"]).expect(0);
    wait_until("its node has cleaned up", || cluster.jobs().is_empty());
    assert_eq!(lab.leftovers(0), Vec::<PathBuf>::new());
}
