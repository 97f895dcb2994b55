//! Environments with the real `distributed`, from wheels: two releases of it that do not work together are found before work is
//! sent, and what workers install by Dask's plugin.

use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;

use serde_json::Value;

use crate::hosts::local::{LocalUser, notes_folder};
use crate::hosts::ssh::{Lab, sshd_is_there};
use crate::hosts::tls::tls_configuration;
use crate::real::{Cluster, Part, free_ports, needs, versions};
use crate::sandbox_server::{CommandOutput, RunningCommand, User, entries_below, wait_until};

/// `dask==V distributed==V`, as packages of an environment.
fn release(version: &str) -> String {
    format!("[\"dask=={version}\", \"distributed=={version}\"]")
}

/// pip takes wheels that are there, and compiles nothing in advance: for options that begin with `no` the value is that of their
/// opposite.
fn offline_pip() -> Vec<(&'static str, PathBuf)> {
    let wheels = Part::Wheels.folder();
    vec![("PIP_NO_INDEX", "1".into()), ("PIP_FIND_LINKS", wheels), ("PIP_NO_COMPILE", "0".into())]
}

/// The same as words of `env`.
fn offline_pip_words() -> String {
    let words = offline_pip().into_iter().map(|(name, value)| format!("{name}={}", value.display()));
    words.collect::<Vec<_>>().join(" ")
}

/// An environment of a release, made by hand.
fn environment(folder: &std::path::Path, version: &str) -> PathBuf {
    let python = folder.join("bin/python");
    if !python.exists() {
        let made = Command::new("python3").args(["-m", "venv", "--without-pip"]).arg(folder).status();
        assert!(made.unwrap().success());
    }
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "--python"]).arg(&python);
    pip.args(["install", "--quiet", "--disable-pip-version-check"]);
    pip.args([format!("dask=={version}"), format!("distributed=={version}")]).envs(offline_pip());
    assert!(pip.status().unwrap().success());
    python
}

/// A group in another environment, the program of a job in a Python of its own, and workers that come after their environment was
/// changed by hand: each is told with who has which version, and no task was sent.
#[test]
fn clients_and_workers_of_other_versions_are_refused() {
    needs!(&[Part::Operator, Part::Wheels]);
    let (new, old) = (versions()["distributed"].clone(), versions()["dask_older"].clone());
    let folder = tempfile::tempdir().unwrap();
    let python = environment(&folder.path().join("mutable"), &new);
    let more = format!(
        "[dask_cluster.work.group.more]\nreplicas = 1\nenvironment = \"old\"\n\n[environment.old]\npackages = {}\n\n\
         [check.sum]\nrun = \"dask-sum\"\n",
        release(&old)
    );
    let mut here = LocalUser::new("replicas = 1", &more);
    here.variables = offline_pip();
    here.user.edit(&crate::hosts::local::python().display().to_string(), &python.display().to_string());
    here.user.edit("[dask_cluster.work]\n", "[dask_cluster.work]\nenvironment = \"main\"\n");
    let said = here.apply().expect(1).says("versions that do not work together");
    said.says(&format!("distributed {new} on its scheduler, {old} on ")).says("use one environment");
    here.run(&["plan"]).expect(0).says("versions that do not work together");
    // Workers of that group are registered, so the check's own client sees them.
    let said = here.run(&["run", "check.sum", "--auto-approve"]).expect(1);
    said.says("dask-sum: versions that do not work together")
        .says(&format!("distributed {new} on the client"));

    here.user.edit("environment = \"old\"", "environment = \"main\"");
    here.apply().expect(0);
    here.nothing_to_do();
    // The message has the version that the scheduler runs, not the one in its environment now.
    environment(&folder.path().join("mutable"), &old);
    let connected: Value = serde_json::from_str(&here.run(&["connect", "--json"]).expect(0).out).unwrap();
    assert_eq!(connected["versions"]["distributed"], new.as_str());
    here.nothing_to_do();
    here.kill("work-worker-0");
    let said = here.apply().expect(1).says("versions that do not work together");
    said.says(&format!("distributed {new} on its scheduler, {old} on work-worker-0"));
    here.replace("dask_cluster.work");
    here.nothing_to_do();

    // A program with a Python of its own.
    let program = "import pathlib, sys; from distributed import Client; pathlib.Path(sys.argv[1]).touch(); \
                   print(Client().submit(sum, [40, 5]).result())";
    let marker = folder.path().join("ran");
    let job = |python: &str| {
        format!(
            "\n[dask_job.train]\nlike = \"work\"\nwait = true\nargs = [{}, \"-c\", {}, {}]\n",
            Value::from(python),
            Value::from(program),
            Value::from(marker.display().to_string())
        )
    };
    let own = crate::hosts::local::python().display().to_string();
    let file = here.user.path().join("stack.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{text}{}", job(&own))).unwrap();
    let said =
        here.apply().expect(1).says("its program was not started").says("other versions than its scheduler");
    said.says(&format!("distributed {old} on its scheduler, {new} on its program"));
    assert!(!marker.exists(), "it ran");
    fs::write(&file, format!("{text}{}", job("python"))).unwrap();
    here.run(&["apply", "--auto-approve", "--allow", "replace:dask_job.train"]).expect(0).says("45");
    assert!(marker.exists());
    here.is_gone();
    assert_eq!(fs::read_dir(here.state.path()).unwrap().count(), 0);
}

/// The digest of packages that pin nothing is one on all hosts, and what is installed is not.
#[test]
#[ignore = "nightly: clients_and_workers_of_other_versions_are_refused and agent_workers::versions_are_compared_alike_in_both_languages run on every change"]
fn an_environment_that_drifts_between_hosts_is_refused() {
    needs!(&[Part::Operator, Part::Wheels]);
    if !sshd_is_there() {
        return;
    }
    let (new, old) = (versions()["distributed"].clone(), versions()["dask_older"].clone());
    let mut lab = Lab::new("replicas = 2, hosts = [\"n1\", \"n2\"]", "[check.sum]\nrun = \"dask-sum\"\n");
    let path = format!("path = \"{}\"", crate::hosts::local::python().display());
    lab.user.edit(&path, "packages = [\"dask\", \"distributed\"]");
    // As if the second host was installed before the newest release came out.
    let constraint = lab.at("constraint");
    fs::write(&constraint, format!("distributed=={old}\ndask=={old}\n")).unwrap();
    let wheels = offline_pip_words();
    for index in 0..3 {
        let own = format!("{wheels} PIP_CONSTRAINT={}", constraint.display());
        lab.variables.insert(index, if index == 1 { own } else { wheels.clone() });
        lab.end(index);
        lab.serve(index);
    }
    let said = lab.run(&["apply", "--auto-approve"]).expect(1);
    let said = said.says("its hosts have versions that do not work together").says("pin these versions");
    said.says(&format!("distributed {new} on n1 and n3, {old} on n2"));
    // The scheduler is on that host.
    let machines: Vec<_> = fs::read_dir(lab.state(0).join("dask-infra/at")).unwrap().collect();
    let machine = machines[0].as_ref().unwrap().path();
    assert!(machine.join("objects/environments").exists() && !machine.join("objects/pods").exists());
    lab.run(&["status"]).says("do not work together");
    lab.user.edit("[\"dask\", \"distributed\"]", &release(&old));
    lab.run(&["apply", "--auto-approve"]).expect(0).says("check.sum");
    lab.nothing_to_do();
    lab.run(&["destroy", "--auto-approve"]).expect(0);
}

/// Returns the versions that workers of a cluster report when they import a package.
fn imported_versions(here: &LocalUser) -> Vec<String> {
    let interpreter: Value =
        serde_json::from_str(&here.run(&["connect", "dask_cluster.work", "--json"]).expect(0).out).unwrap();
    let program = "import json, sys\nfrom distributed import Client\ndef look():\n    try:\n        import more_itertools\n        \
                   return more_itertools.__version__\n    except ImportError:\n        return 'none'\n\
                   with Client(sys.argv[1]) as client:\n    print(json.dumps(sorted(client.run(look).values())))\n";
    let python = interpreter["interpreter"].as_str().unwrap();
    let mut asked = Command::new(python);
    asked.args(["-c", program, interpreter["client"].as_str().unwrap()]);
    let asked = asked.envs(tls_configuration(&interpreter)).output().unwrap();
    assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
    serde_json::from_slice(&asked.stdout).unwrap()
}

/// Has a scheduler find in a moment that it had no work since 1970.
fn mark_idle(here: &LocalUser) {
    let said = here.run(&["connect", "dask_cluster.work", "--json"]).expect(0).out;
    let connected: Value = serde_json::from_str(&said).unwrap();
    let program = "import sys\nfrom distributed import Client\ndef idle(dask_scheduler):\n    from tornado.ioloop import IOLoop\n    \
                   dask_scheduler.idle_since = 1\n    \
                   dask_scheduler._idle_transition_counter = dask_scheduler.transition_counter\n    \
                   IOLoop.current().call_later(0.5, dask_scheduler.check_idle)\n\
                   with Client(sys.argv[1]) as client:\n    client.run_on_scheduler(idle)\n";
    let mut asked = Command::new(connected["interpreter"].as_str().unwrap());
    asked.args(["-c", program, connected["client"].as_str().unwrap()]).envs(tls_configuration(&connected));
    assert!(asked.status().unwrap().success());
}

/// Takes a package out of the environment by hand, as no pip did.
fn remove_package(here: &LocalUser) {
    let interpreter: Value = serde_json::from_str(&here.run(&["connect", "--json"]).expect(0).out).unwrap();
    let mut pip = Command::new(interpreter["interpreter"].as_str().unwrap());
    pip.args(["-m", "pip", "uninstall", "--yes", "--quiet", "more-itertools"]);
    assert!(pip.status().unwrap().success());
}

/// Workers that run, that come later and that a new scheduler gets have the packages; those that are taken out are gone from workers and
/// from the environment; what pip says of its failure is said; and the program of a job finds them. All of it with TLS, with which such a
/// Dask cluster then ends by itself, too.
#[test]
#[ignore = "nightly: workers_of_hosts_install_packages_or_say_where_pip_failed runs on every change"]
fn workers_install_packages_when_they_start() {
    needs!(&[Part::Operator, Part::Wheels]);
    let (new, version) = (versions()["distributed"].clone(), versions()["more_itertools"].clone());
    let env = by_wheels();
    let mut here = LocalUser::new(&format!("replicas = 1, {env}"), "");
    here.variables = offline_pip();
    here.user.edit("[local]\n", "[local]\ntls = true\n");
    let path = format!("path = \"{}\"", crate::hosts::local::python().display());
    here.user.edit(&path, &format!("packages = {}\npip_install = [\"nothing-of-this-name\"]", release(&new)));
    here.user.edit("scheduler = {", &format!("scheduler = {{ {env},"));
    let said = here.apply().expect(1).says("`pip_install`").says("pip failed");
    said.says("No matching distribution found for nothing-of-this-name");
    assert_eq!(here.leftovers().len(), 1, "no worker was started: {:?}", here.leftovers());
    here.user.edit("\"nothing-of-this-name\"", "");
    here.apply().expect(0);
    here.nothing_to_do();
    assert_eq!(imported_versions(&here), ["none"]);
    // In place.
    let before = here.pid("work-worker-0");
    here.user.edit("pip_install = []", "pip_install = [\"more-itertools\"]");
    here.run(&["plan", "--detailed-exitcode"])
        .expect(2)
        .says("running workers install what is added")
        .says("DI0130");
    here.apply().expect(0);
    here.nothing_to_do();
    assert_eq!(imported_versions(&here), [version.as_str()]);
    assert_eq!(here.pid("work-worker-0"), before, "the worker went on");
    // One that comes later installs it again.
    remove_package(&here);
    here.run(&["scale", "work", "2", "--auto-approve"]).expect(0);
    assert_eq!(imported_versions(&here), [version.as_str(), version.as_str()]);
    // A new scheduler is told, too.
    remove_package(&here);
    here.kill("work-scheduler");
    here.apply().expect(0);
    here.nothing_to_do();
    assert_eq!(imported_versions(&here), [version.as_str()]);
    // The program of a job runs when all is there.
    let program = "import more_itertools; from distributed import Client; \
                   print('chunks', Client().submit(lambda: len(list(more_itertools.chunked(range(10), 3)))).result())";
    let file = here.user.path().join("stack.toml");
    let text = fs::read_to_string(&file).unwrap();
    let job = format!(
        "\n[dask_job.train]\nlike = \"work\"\nwait = true\nargs = [\"python\", \"-c\", {}]\n",
        Value::from(program)
    );
    fs::write(&file, format!("{text}{job}")).unwrap();
    remove_package(&here);
    here.apply().expect(0).says("chunks 4");
    // Another list does not run it again, and takes out what is not in it.
    here.user.edit("pip_install = [\"more-itertools\"]", "pip_install = []");
    here.apply().expect(0);
    here.nothing_to_do();
    assert_eq!(imported_versions(&here), ["none"]);
    // Such Dask clusters end by themselves: one believes that it had no work for long, and of the other its creation is set back.
    let [port, pages] = free_ports::<2>();
    let brief = format!(
        "\n[dask_cluster.brief]\nttl = \"1h\"\nscheduler = {{ port = {port}, dashboard_port = {pages} }}\nworker = {{ replicas = 0 }}\n"
    );
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text + &brief).unwrap();
    here.user.edit("[dask_cluster.work]\n", "[dask_cluster.work]\nidle_timeout = \"1h\"\nttl = \"1h\"\n");
    here.user.edit("pip_install = []", "pip_install = [\"more-itertools\"]");
    here.run(&["apply", "--auto-approve", "--allow", "replace:dask_cluster.work"]).expect(0);
    assert_eq!(imported_versions(&here), [version.as_str()]);
    mark_idle(&here);
    let object = here.folder().join("objects/clusters/_/brief.json");
    let mut live: Value = serde_json::from_str(&fs::read_to_string(&object).unwrap()).unwrap();
    live["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
    fs::write(&object, live.to_string()).unwrap();
    wait_until("both have ended", || {
        here.run(&["status"]);
        entries_below(&here.folder().join("objects/clusters")).is_empty()
    });
    here.run(&["plan", "--detailed-exitcode"]).expect(0).says("DI0389").says("3600 s without work");
    here.is_gone();
    let left = Command::new("find")
        .arg(here.state.path())
        .args(["-mindepth", "1", "-printf", "%p %T@\n"])
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&left.stdout), "");
}

/// The versions of a package that workers have, by the name of each.
fn on_workers(connected: &CommandOutput) -> Vec<(String, String)> {
    let program = "import json, sys\nfrom distributed import Client\ndef look():\n    import importlib.metadata as metadata\n    \
                   try:\n        return metadata.version('more-itertools')\n    except metadata.PackageNotFoundError:\n        return 'none'\n\
                   with Client(sys.argv[1]) as client:\n    workers = client.scheduler_info(n_workers=-1)['workers']\n    \
                   print(json.dumps(sorted([str(workers[at]['name']), said] for at, said in client.run(look).items())))\n";
    let connected: Value = serde_json::from_str(&connected.out).unwrap();
    let mut python = Command::new(crate::hosts::local::python());
    python.args(["-c", program, connected["client"].as_str().unwrap()]).envs(tls_configuration(&connected));
    let asked = python.output().unwrap();
    assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
    serde_json::from_slice(&asked.stdout).unwrap()
}

const MORE_ON_N2: &str = "work-more_n2-worker-0";

/// Where the packages of a test are, as variables of a section.
fn by_wheels() -> String {
    format!("env = {{ PIP_NO_INDEX = \"1\", PIP_FIND_LINKS = \"{}\" }}", Part::Wheels.folder().display())
}

/// Two hosts with a worker each, whose environments lie apart. `more` are the keys of the second worker, `installed` is `pip_install`.
fn two_hosts(more: &str, installed: &str) -> Lab {
    let env = by_wheels();
    let group = format!("[dask_cluster.work.group.more]\nreplicas = 1\nhosts = [\"n2\"]\n{more}\n");
    let worker = format!("replicas = 1, hosts = [\"n1\"], {env}");
    let mut lab = Lab::of(free_ports::<2>().to_vec(), &worker, &group);
    let path = format!("path = \"{}\"", crate::hosts::local::python().display());
    let packages = release(&versions()["distributed"]);
    lab.user.edit(&path, &format!("packages = {packages}\npip_install = {installed}"));
    lab.user.edit("scheduler = {", &format!("scheduler = {{ {env},"));
    for index in 0..2 {
        lab.variables.insert(index, offline_pip_words());
        lab.end(index);
        lab.serve(index);
    }
    lab
}

/// Each host has an environment of its own: where pip fails is said, and mended when it works there.
#[test]
fn workers_of_hosts_install_packages_or_say_where_pip_failed() {
    needs!(&[Part::Operator, Part::Wheels]);
    if !sshd_is_there() {
        return;
    }
    let version = versions()["more_itertools"].clone();
    let nowhere = "env = { PIP_NO_INDEX = \"1\" }";
    let lab = two_hosts(nowhere, "[\"more-itertools\"]");
    let failed = format!("{MORE_ON_N2}: pip failed");
    let said = lab.run(&["apply", "--auto-approve"]).expect(1).says("`pip_install`").says(&failed);
    said.says("No matching distribution found for more-itertools");
    lab.run(&["plan", "--detailed-exitcode"]).expect(2).says("they are installed again");
    lab.user.edit(nowhere, &by_wheels());
    lab.run(&["apply", "--auto-approve"]).expect(0);
    lab.nothing_to_do();
    let all =
        |version: &str| [MORE_ON_N2, "work_n1-worker-0"].map(|name| (name.to_owned(), version.to_owned()));
    let workers = || on_workers(&lab.run(&["connect", "--json"]).expect(0));
    assert_eq!(workers(), all(&version));

    lab.knows_names();
    let other = User::empty();
    lab.run_as(&other, &["import", "--ssh", "n[1-2]"]).expect(0);
    let written = other.stack();
    assert!(written.contains("pip_install = [\"more-itertools\"]"), "{written}");
    lab.run_as(&other, &["plan", "--detailed-exitcode"]).expect(0).says("No changes");

    // A worker starts that was not there when the package went.
    let held = lab.at("held");
    fs::write(&held, "").unwrap();
    let hold = format!(
        "import os, time; exec(\"while os.path.exists('{}') and b'dask_worker' in open('/proc/self/cmdline', 'rb').read(): time.sleep(0.1)\")\n",
        held.display()
    );
    let packages = entries_below(&lab.state(1)).into_iter().find(|place| place.ends_with("site-packages"));
    fs::write(packages.unwrap().join("held.pth"), hold).unwrap();
    lab.kill(1, MORE_ON_N2);
    lab.user.edit("pip_install = [\"more-itertools\"]", "pip_install = []");
    let applying = RunningCommand::of(lab.command(&["apply", "--auto-approve"]));
    let note = notes_folder(&lab.state(0)).join("plugins/work");
    wait_until("the note of the scheduler has no packages", || {
        !fs::read_to_string(&note).unwrap().contains("\"packages\": [\n")
    });
    fs::remove_file(held).unwrap();
    assert_eq!(applying.end(), Some(0));
    assert_eq!(workers(), all("none"));
    lab.is_gone();
}

/// The command and a worker are killed while pip of the worker waits for an index.
#[test]
#[ignore = "nightly: agent_faults::each_step_meets_each_fault_and_the_next_apply_mends_it runs on every change"]
fn a_kill_while_pip_installs_is_mended() {
    needs!(&[Part::Operator, Part::Wheels]);
    if !sshd_is_there() {
        return;
    }
    let version = versions()["more_itertools"].clone();
    let index = TcpListener::bind("127.0.0.1:0").unwrap();
    index.set_nonblocking(true).unwrap();
    // The wheels have the package that the index lacks while the index does not answer.
    let slow = format!(
        "env = {{ PIP_INDEX_URL = \"http://{}/\", PIP_RETRIES = \"0\", PIP_FIND_LINKS = \"{}\" }}",
        index.local_addr().unwrap(),
        Part::Wheels.folder().display()
    );
    let lab = two_hosts(&slow, "[]");
    lab.run(&["apply", "--auto-approve"]).expect(0);
    lab.user.edit("pip_install = []", "pip_install = [\"more-itertools\"]");
    let applying = RunningCommand::of(lab.command(&["apply", "--auto-approve"]));
    let mut asks = None;
    wait_until("pip asks the index", || {
        asks = index.accept().ok();
        asks.is_some()
    });
    applying.signal("KILL");
    lab.kill(1, MORE_ON_N2);
    drop((applying, asks, index));
    // Of a worker that is lost meanwhile, pip did not fail.
    wait_until("nothing is installed any more", || {
        let planned = lab.run(&["plan"]).expect(0).out;
        assert!(!planned.contains("CommClosedError"), "{planned}");
        !planned.contains("being installed")
    });
    lab.run(&["apply", "--auto-approve"]).expect(0);
    lab.nothing_to_do();
    let all = [MORE_ON_N2, "work_n1-worker-0"].map(|name| (name.to_owned(), version.clone()));
    assert_eq!(on_workers(&lab.run(&["connect", "--json"]).expect(0)), all);
    lab.is_gone();
}

/// Nodes share an environment, and each job runs pip before it takes work.
#[test]
#[ignore = "nightly: workers_of_hosts_install_packages_or_say_where_pip_failed runs on every change"]
fn workers_of_slurm_install_packages_or_say_why_not() {
    needs!(&[Part::Operator, Part::Slurm, Part::Wheels]);
    let cluster = Cluster::start();
    let (new, version) = (versions()["distributed"].clone(), versions()["more_itertools"].clone());
    let wheels = Part::Wheels.folder().display().to_string();
    let mut here = LocalUser::new("replicas = 1", "");
    here.variables = offline_pip();
    here.variables.push(("SLURM_CONF", cluster.configuration()));
    let constraint = here.user.path().join("constraint");
    let env = |more: &str| format!("env = {{ PIP_NO_INDEX = \"1\", PIP_FIND_LINKS = \"{wheels}\"{more} }}");
    let late = format!(", PIP_CONSTRAINT = \"{}\"", constraint.display());
    here.user.edit("[local]", "[slurm]\npartition = \"cpu\"");
    let path = format!("path = \"{}\"", crate::hosts::local::python().display());
    here.user.edit(&path, &format!("packages = {}\npip_install = [\"more-itertools\"]", release(&new)));
    here.user.edit("scheduler = {", &format!("scheduler = {{ {},", env("")));
    here.user.edit("replicas = 1", &format!("replicas = 1, memory = \"300Mi\", {}", env(&late)));
    here.apply().expect(1).says("work-worker-0: pip failed").says("Could not open requirements file");
    fs::write(&constraint, "").unwrap();
    here.apply().expect(0);
    here.nothing_to_do();
    let workers = on_workers(&here.run(&["connect", "--json"]).expect(0));
    assert_eq!(workers, [("work-worker-0".to_owned(), version)]);
    let other = User::empty();
    here.run_as(&other, &["import", "--slurm"]).expect(0);
    let written = other.stack();
    assert!(written.contains("pip_install = [\"more-itertools\"]"), "{written}");
    here.run(&["destroy", "--auto-approve"]).expect(0);
    assert_eq!((here.leftovers(), cluster.jobs()), (Vec::new(), Vec::new()));
}
