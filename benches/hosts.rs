//! How long a Dask cluster on hosts takes to be up, beside Dask's own, and what many hosts add: see README.md beside this file.

#![allow(
    dead_code,
    unused_imports,
    unused_macros,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::unwrap_used
)]

#[path = "../tests/it/real/mod.rs"]
mod real;
#[path = "../tests/it/sandbox_server.rs"]
mod sandbox_server;
#[path = "../tests/it/hosts/ssh.rs"]
mod ssh;
#[path = "../tests/it/hosts/tls.rs"]
mod tls;

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use real::{Part, free_ports};
use sandbox_server::{CommandOutput, User};
use ssh::Lab;

/// Short commands are measured so often, and the shortest time counts.
const BEST_OF: usize = 3;
/// Workers of the local cluster.
const WORKERS: usize = 4;

/// A cluster of Dask's own, until its workers are registered.
const LOCAL: &str = "
from distributed import LocalCluster
if __name__ == '__main__':
    with LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address=':0') as cluster:
        cluster.wait_for_workers(4)
        print('up', flush=True)
        import sys; sys.stdin.read()
";

fn best(mut measure: impl FnMut() -> Duration) -> Duration {
    (0..BEST_OF).map(|_| measure()).min().unwrap()
}

fn timed(act: impl FnOnce()) -> Duration {
    let began = Instant::now();
    act();
    began.elapsed()
}

/// From the start of the interpreter until the workers are there.
fn by_dask(folder: &std::path::Path) -> Duration {
    let program = folder.join("local.py");
    std::fs::write(&program, LOCAL).unwrap();
    let began = Instant::now();
    let mut python = Command::new(Part::Operator.program("python"))
        .arg(&program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(python.stdout.take().unwrap()), &mut line)
        .unwrap();
    let up = began.elapsed();
    assert_eq!(line, "up\n");
    drop(python.stdin.take());
    python.wait().unwrap();
    up
}

/// Processes that outlive the command: `dask scheduler` and each `dask worker` as a process of its own, started all at
/// once, until the workers are there.
fn by_hand() -> Duration {
    let [port, dashboard] = free_ports::<2>();
    let began = Instant::now();
    let start = |what: &str, words: &[&str]| {
        let mut python = Command::new(Part::Operator.program("python"));
        python
            .arg("-m")
            .arg(format!("distributed.cli.dask_{what}"))
            .args(words)
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        python.spawn().unwrap()
    };
    let listens = [format!("--port={port}"), format!("--dashboard-address=127.0.0.1:{dashboard}")];
    let mut started = vec![start("scheduler", &["--host=127.0.0.1", &listens[0], &listens[1]])];
    started
        .extend((0..WORKERS).map(|_| start("worker", &[&format!("tcp://127.0.0.1:{port}"), "--nthreads=1"])));
    while counted(dashboard) != Some(WORKERS) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let up = began.elapsed();
    // The workers first: their nannies take them along.
    for mut process in started.into_iter().rev() {
        Command::new("kill").arg(process.id().to_string()).status().unwrap();
        process.wait().unwrap();
    }
    up
}

/// How many workers a scheduler says it has.
fn counted(dashboard: u16) -> Option<usize> {
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", dashboard)).ok()?;
    stream.write_all(b"GET /json/counts.json HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n").ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let counts: serde_json::Value = serde_json::from_str(text.split_once("\r\n\r\n")?.1).ok()?;
    usize::try_from(counts["workers"].as_u64()?).ok()
}

/// From the start of `apply` until it says that the workers are registered, which are told by these terms.
fn by_us(worker: &str) -> Duration {
    let user = User::empty();
    let [port, dashboard] = free_ports::<2>();
    let text = format!(
        "[stack]\nname = \"bench\"\n\n[local]\n\n[environment.main]\npath = \"{}\"\n\n[dask_cluster.bench]\n\
         scheduler = {{ port = {port}, dashboard_port = {dashboard} }}\nworker = {{ {worker}, threads = 1 }}\n",
        Part::Operator.program("python").display(),
    );
    std::fs::write(user.path().join("stack.toml"), text).unwrap();
    // One interpreter for all rows, without a launcher in front of it.
    let run = |words: &[&str]| {
        let output = user.command(words).env("DASK_INFRA_PYTHON", Part::Operator.program("python")).output();
        drop(CommandOutput::of(&output.unwrap()).expect(0));
    };
    let up = timed(|| run(&["apply", "--auto-approve"]));
    run(&["destroy", "--auto-approve"]);
    up
}

fn row(what: &str, time: Duration, beside: Option<(&str, Duration)>) {
    let ratio = beside.map_or_else(String::new, |(name, other)| {
        format!("{:.2} x {name} ({:.2} s)", time.as_secs_f64() / other.as_secs_f64(), other.as_secs_f64())
    });
    println!("{what:<46} {:>8.2} s   {ratio}", time.as_secs_f64());
}

/// Measures workers on so many hosts: when they are up, a plan without changes, and when all is gone.
fn spread(hosts: usize, workers: usize) -> [Duration; 3] {
    let ports = (0..hosts).map(|_| free_ports::<1>()[0]).collect();
    let lab = Lab::of(ports, &format!("replicas = {workers}, threads = 1"), "");
    // Connections are there from the first command on, as on a day of work.
    lab.run(&["plan"]).expect(0);
    let up = timed(|| drop(lab.run(&["apply", "--auto-approve"]).expect(0)));
    let plan = best(|| timed(|| drop(lab.run(&["plan", "--detailed-exitcode"]).expect(0))));
    let gone = timed(|| drop(lab.run(&["destroy", "--auto-approve"]).expect(0)));
    [up, plan, gone]
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let many = words.iter().find_map(|word| word.parse().ok()).unwrap_or(50);
    if !real::can_run("benches::hosts", &[Part::Operator]) || !ssh::sshd_is_there() {
        println!("no distributed or no sshd: tests/real/build makes them");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let dask = best(|| by_dask(folder.path()));
    row("LocalCluster, 4 workers", dask, None);
    let hand = best(by_hand);
    row("dask scheduler and 4 times dask worker", hand, Some(("LocalCluster", dask)));
    let together = best(|| by_us(&format!("processes = {WORKERS}")));
    row("apply of [local], a worker of 4 processes", together, Some(("LocalCluster", dask)));
    let each = best(|| by_us(&format!("replicas = {WORKERS}")));
    row("apply of [local], 4 workers", each, Some(("LocalCluster", dask)));
    row("", each, Some(("processes by hand", hand)));
    let one = spread(1, many);
    let all = spread(many, many);
    for (what, one, all) in
        [("apply", one[0], all[0]), ("plan without changes", one[1], all[1]), ("destroy", one[2], all[2])]
    {
        row(&format!("{what}, {many} workers on one host"), one, None);
        row(&format!("{what}, {many} workers on {many} hosts"), all, Some(("one host", one)));
    }
}
