//! `[slurm] login = …`: a login node at the other end of the real sshd, with the real SLURM behind it.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;

use crate::real::{Cluster, Part, free_ports, needs};
use crate::real_ssh::{Lab, sshd_is_there};
use crate::served::until;

#[test]
fn a_login_node_is_reached_by_ssh() {
    needs!(&[Part::Slurm]);
    if !sshd_is_there() {
        return;
    }
    let cluster = Cluster::start();
    let variables = format!("SLURM_CONF={}", cluster.configuration().display());
    let mut lab = Lab::of(free_ports::<1>().to_vec(), "", "");
    lab.variables.insert(0, variables);
    lab.end(0);
    lab.serve(0);
    let (port, [scheduler, pages]) = (lab.ports[0], lab.dask);
    let text = format!(
        "[stack]\nname = \"hpc\"\n\n[slurm]\nlogin = {{ name = \"login1\", address = \"127.0.0.1\", port = {port} }}\n\
         partition = \"cpu\"\n\n[environment.main]\npath = \"{}\"\n\n[dask_cluster.work]\n\
         scheduler = {{ port = {scheduler}, dashboard_port = {pages} }}\nworker = {{ replicas = 1, memory = \"300Mi\" }}\n\n\
         [check.sum]\nrun = \"dask-sum\"\n",
        Part::Slurm.program("python").display()
    );
    fs::write(lab.user.path().join("stack.toml"), text).unwrap();
    lab.run(&["apply", "--auto-approve"]).expect(0).says("check.sum");
    lab.nothing_to_do();
    lab.run(&["scale", "work", "2", "--auto-approve"]).expect(0);
    assert_eq!(cluster.jobs().len(), 2);
    lab.run(&["status"]).expect(0).says("2 of 2 workers");
    lab.run(&["logs", "work"]).expect(0).says("work-worker-1").says("Registered to");
    lab.run(&["connect"]).expect(0).says(&format!("tcp://127.0.0.1:{scheduler}"));
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
    until("its node has cleaned up", || cluster.jobs().is_empty());
    assert_eq!(lab.left(0), Vec::<PathBuf>::new());
}
