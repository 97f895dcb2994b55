//! `import` of what runs on hosts: a stack whose file and record are lost takes over what it left, and others' Dask is named.

use std::fs;
use std::process::{Child, Command, Stdio};

use crate::hosts::local::{LocalUser, python};
use crate::hosts::ssh::{Lab, sshd_is_there};
use crate::real::{Cluster, Part, free_ports, needs};
use crate::sandbox_server::{CommandOutput, User, wait_until};

const MORE: &str = "[dask_cluster.work.group.large]\nmemory = \"500M\"\nresources = { LARGE = 1 }\nnanny = { enabled = false }\n\n\
                    [dask_job.train]\nlike = \"work\"\nwait = true\nenv = { EPOCHS = \"3\" }\n\
                    args = [\"python\", \"-c\", \"print('done')\"]\n";

/// Returns the written stack.
fn text(user: &User) -> String {
    fs::read_to_string(user.path().join("stack.toml")).unwrap()
}

#[test]
fn a_stack_without_file_and_record_takes_over_what_it_left() {
    needs!(&[Part::Operator]);
    let worker = "replicas = 2, threads = 2, memory = \"600Mi\", nanny = { spill = 0.65, terminate = false }, \
                  env = { COLOUR = \"red\" }";
    let here = LocalUser::new(worker, MORE);
    here.user.edit("name = \"here\"", "name = \"here\"\nid = \"a1b2c3d4\"");
    let main = format!("path = \"{}\"", python().display());
    here.user.edit(&main, &format!("{main}\n\n[environment.other]\n{main}"));
    here.user.edit("[dask_cluster.work]\n", "[dask_cluster.work]\nenvironment = \"main\"\n");
    here.apply().expect(0);
    let names = ["work-scheduler", "work-worker-0", "work-worker-1", "work-large-worker-0"];
    let pids = names.map(|name| here.pid(name));
    fs::remove_dir_all(here.folder().join("objects/configmaps")).unwrap();

    let other = User::empty();
    here.run_as(&other, &["import", "--local"]).expect(0).says("dask_cluster.work.group.large");
    let written = text(&other);
    for line in [
        "name = \"here\"\nid = \"a1b2c3d4\"\n",
        "[local]\n",
        "nanny = { spill = 0.65, terminate = false }",
        "memory = \"600Mi\"",
        "memory = \"500000000\"",
        "[dask_job.train]",
    ] {
        assert!(written.contains(line), "{line:?} in:\n{written}");
    }
    for words in ["also set", "it differs there", "it is also on", "looks like a secret"] {
        assert!(!written.contains(words), "{words:?} in:\n{written}");
    }
    here.run_as(&other, &["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    here.run_as(&other, &["apply", "--auto-approve"]).expect(0);
    here.run_as(&other, &["scale", "work", "1", "--auto-approve"]).expect(0);
    assert_eq!(
        [0, 1, 3].map(|at| here.pid(names[at])),
        [0, 1, 3].map(|at| pids[at]),
        "nothing was started again"
    );
    here.run_as(&other, &["destroy", "--auto-approve"]).expect(0);
    assert_eq!(here.leftovers(), Vec::<String>::new());
    assert_eq!(fs::read_dir(here.state.path()).unwrap().count(), 0);
}

#[test]
fn a_made_environment_is_imported_with_its_files() {
    needs!(&[Part::Operator]);
    let here = LocalUser::new("replicas = 1", "");
    // Nothing is fetched: what it asks for cannot be had, and that is no reason not to read it.
    fs::write(here.user.path().join("asked.txt"), "no-such-package==1.0\n").unwrap();
    let path = format!("path = \"{}\"", python().display());
    here.user.edit(&path, "requirements = \"asked.txt\"");
    let mut command = here.user.command(&["apply", "--auto-approve"]);
    command.env("XDG_STATE_HOME", here.state.path()).env("UV_OFFLINE", "1").env("PIP_NO_INDEX", "1");
    CommandOutput::of(&command.output().unwrap()).expect(1).says("environment.main");
    let other = User::empty();
    here.run_as(&other, &["import", "--local"]).expect(0).says("environment.main");
    let written = fs::read_to_string(other.path().join("main/requirements.txt")).unwrap();
    assert_eq!(written, "no-such-package==1.0\n");
    assert!(text(&other).contains("requirements = \"main/requirements.txt\""), "{}", text(&other));
    here.run_as(&other, &["destroy", "--auto-approve"]).expect(0);
    assert_eq!(fs::read_dir(here.state.path()).unwrap().count(), 0);
}

/// Ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn dask(words: &[&str]) -> Process {
    let mut command = Command::new(python());
    command.args(["-m", "dask"]).args(words).stdout(Stdio::null()).stderr(Stdio::null());
    Process(command.spawn().unwrap())
}

#[test]
fn dask_of_others_is_named_with_what_stops_it() {
    needs!(&[Part::Operator]);
    let here = LocalUser::new("replicas = 1", "");
    here.apply().expect(0);
    let [port, pages, nanny] = free_ports::<3>().map(|port| port.to_string());
    let local = ["--host", "127.0.0.1", "--dashboard-address"];
    let mut words = vec!["scheduler", "--port", &port];
    words.extend(local);
    let at = format!("127.0.0.1:{pages}");
    words.push(&at);
    let mut scheduler = dask(&words);
    let address = format!("tcp://127.0.0.1:{port}");
    let worker = dask(&["worker", &address, "--nanny-port", &nanny, "--host", "127.0.0.1"]);
    let user = User::empty();
    // As one line, however it is wrapped. Other tests may have Dask on this machine.
    let line = |said: CommandOutput| {
        let words: Vec<&str> = said.err.split_whitespace().filter(|word| *word != "|").collect();
        CommandOutput { err: words.join(" "), ..said }
    };
    let told = || line(here.run_as(&user, &["import", "--local", "--out", "-"]).expect(0));
    wait_until("they are found", || {
        told().err.contains(&format!("{address}, 1 worker, distributed 2026.8.0"))
    });
    let said = told();
    let about = |process: &Process| format!("(process {}", process.0.id());
    for process in [&scheduler, &worker] {
        assert!(said.err.contains(&about(process)), "{}", said.err);
        assert!(said.err.contains(&format!("kill {}", process.0.id())), "{}", said.err);
    }
    assert!(said.out.contains("[dask_cluster.work]"), "{}", said.out);
    // Its own processes are not among them, until what is noted of them is somewhere else, or gone.
    let leader = here.pid("work-scheduler");
    assert!(!said.err.contains(&format!("(process {leader}")), "{}", said.err);
    let elsewhere = tempfile::tempdir().unwrap();
    let mut import = user.command(&["import", "--local", "--out", "-"]);
    let said =
        line(CommandOutput::of(&import.env("XDG_STATE_HOME", elsewhere.path()).output().unwrap()).expect(0));
    let state = here.state.path().display();
    let said = said.says(&format!(
        "dask-infra started it, with its state in {state}/dask-infra; `XDG_STATE_HOME={state}` there imports it"
    ));
    assert!(said.err.contains(&format!("(process {leader}")), "{}", said.err);
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    fs::rename(here.state.path().join("dask-infra"), here.state.path().join("aside")).unwrap();
    let said = told().says("dask-infra started it, and its notes of it are gone");
    assert!(said.err.contains(&format!("(process {leader}")), "{}", said.err);
    fs::rename(here.state.path().join("aside"), here.state.path().join("dask-infra")).unwrap();
    // The command that it prints stops them.
    assert!(Command::new("kill").arg(scheduler.0.id().to_string()).status().unwrap().success());
    scheduler.0.wait().unwrap();
    wait_until("it is gone", || !told().err.contains(&about(&scheduler)));
}

#[test]
fn hosts_by_ssh_are_read_whoever_keeps_the_record() {
    needs!(&[Part::Operator]);
    if !sshd_is_there() {
        return;
    }
    let lab = Lab::new("replicas = 3", "[dask_cluster.work.group.more]\nhosts = [\"n2\"]\n");
    lab.user.edit("[ssh]\n", "[ssh]\nhome = \"n2\"\n");
    lab.run(&["apply", "--auto-approve"]).expect(0);
    // Names are as they were; the way to each stands in the configuration of SSH.
    lab.knows_names();
    let other = User::empty();
    let import = ["import", "--ssh", "n[1-2]", "--ssh", "n3"];
    // The record is looked for on all hosts side by side: no link gets anywhere before there are three.
    let ssh = lab.at("ssh");
    let program = fs::read_to_string(&ssh).unwrap();
    let begun = lab.at("begun");
    fs::create_dir(&begun).unwrap();
    let meet = format!(
        "cd {} && touch $$\nn=0\nuntil [ $(ls | wc -l) -ge 3 ]; do n=$((n+1)); [ $n -lt 300 ] || exit 1; sleep 0.1; done\n",
        begun.display()
    );
    fs::write(&ssh, program.replacen('\n', &format!("\n{meet}"), 1)).unwrap();
    lab.run_as(&other, &import).expect(0).says("dask_cluster.work");
    fs::write(&ssh, program).unwrap();
    let written = text(&other);
    for line in [
        "hosts = [\"n[1-2]\", \"n3\"]",
        "home = \"n2\"",
        "[dask_cluster.work.group.more]",
        "hosts = [\"n2\"]",
    ] {
        assert!(written.contains(line), "{line:?} in:\n{written}");
    }
    lab.run_as(&other, &["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    // One that is not named is missed.
    let third = User::empty();
    lab.run_as(&third, &["import", "--ssh", "n[1-2]"]).expect(0).says("it is also on n3").says("--ssh n3");
    assert!(text(&third).contains("hosts that were not read") && !text(&third).contains("plan is empty"));
    lab.run_as(&other, &["destroy", "--auto-approve"]).expect(0);
    for index in 0..3 {
        assert_eq!(fs::read_dir(lab.state(index)).unwrap().count(), 0);
    }
}

#[test]
fn jobs_of_slurm_are_read_with_what_they_asked_for() {
    needs!(&[Part::Slurm]);
    let (cluster, ports) = (Cluster::start(), free_ports::<2>());
    let (user, state) = (User::empty(), tempfile::tempdir().unwrap());
    let stack = format!(
        "[stack]\nname = \"hpc\"\n\n[slurm]\npartition = \"cpu\"\ntime_limit = \"1h\"\n\n[environment.main]\npath = \"{}\"\n\n\
         [dask_cluster.work]\nscheduler = {{ port = {}, dashboard_port = {} }}\nworker = {{ memory = \"300Mi\", replicas = {{ min = 1, max = 2 }} }}\n\n\
         [dask_cluster.work.group.other]\nmemory = \"300Mi\"\nslurm = {{ directives = [\"--nice=5\"], prologue = [\"umask 077\"] }}\n",
        Part::Slurm.program("python").display(),
        ports[0],
        ports[1],
    );
    fs::write(user.path().join("stack.toml"), stack).unwrap();
    let run = |user: &User, words: &[&str]| {
        let mut command = user.command(words);
        command.env("XDG_STATE_HOME", state.path()).env("SLURM_CONF", cluster.configuration());
        CommandOutput::of(&command.output().unwrap())
    };
    run(&user, &["apply", "--auto-approve"]).expect(0);
    // One of dask-jobqueue, whose Python has gone.
    let script = user.path().join("job.sh");
    fs::write(&script, "#!/bin/sh\nexec sleep 600\n").unwrap();
    let submit =
        ["--parsable", "-J", "dask-worker", "-o", "/dev/null", "--mem=100M", script.to_str().unwrap()];
    let number = cluster.says("sbatch", &submit).trim().to_owned();
    let other = User::empty();
    run(&other, &["import", "--slurm"]).expect(0).says(&format!("`scancel {number}` there stops it"));
    let written = text(&other);
    for line in [
        "[slurm]\n",
        "replicas = { max = 2, min = 1 }",
        "partition = \"cpu\"",
        "time_limit = \"60m\"",
        "\"--nice=5\"",
        "umask 077",
    ] {
        assert!(written.contains(line), "{line:?} in:\n{written}");
    }
    run(&other, &["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    run(&other, &["destroy", "--auto-approve"]).expect(0);
    assert_eq!(cluster.jobs().len(), 1, "that of others goes on: {:?}", cluster.jobs());
    cluster.says("scancel", &[&number]);
    assert_eq!(fs::read_dir(state.path()).unwrap().count(), 0);
}
