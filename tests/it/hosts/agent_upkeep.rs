//! Upkeep of a host: workers of a job, logs of ended processes, clusters of other users, values of variables.
//! The agent by itself, and the program with stand-ins for ssh, with a stand-in for Dask.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::hosts::agent::{Agent, HOSTS, Setting, cluster, is_alive, pretended, script};
use crate::real::free_ports;
use crate::sandbox_server::{CommandOutput, User, entries_below, entries_in, on_path, wait_until};

const PODS: &str = "/api/v1/namespaces/default/pods";

fn job() -> Value {
    let mut body = cluster(2, [0, 0]);
    body["metadata"]["name"] = json!("j");
    body["spec"]["scheduler"] = json!({ "host": "127.0.0.1" });
    body["spec"]["program"] = json!({ "args": ["python", "--work"] });
    body
}

fn pid(agent: &Agent, pod: &str) -> u32 {
    agent.note(pod).1["internal"]["process"]["pid"].as_u64().unwrap().try_into().unwrap()
}

fn kill(pid: u32) {
    assert!(Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap().success());
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().unwrap();
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap()).collect()
}

/// Nobody applies anything meanwhile, and no command runs. The logs of what ended are there as long as the job.
#[test]
fn workers_of_a_job_are_started_again_while_its_program_runs() {
    if !on_path("python3", "--version") {
        return;
    }
    let (state, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let faster = [
        ("KEEP, KEEP_IN_QUEUE = 2, 15", "KEEP, KEEP_IN_QUEUE = 0.1, 15"),
        ("LOOK, BACKOFF, LONGEST = 0.2, 10", "LOOK, BACKOFF, LONGEST = 0.2, 1"),
    ];
    let mut agent = Agent::start_with(state.path(), &Setting { faster: &faster, ..Setting::default() });
    agent.with_environment(&pretended(home.path()));
    let path = format!("{HOSTS}/jobs/j");
    agent.apply(&path, "", &job());
    agent.wait_until(&path, |_, live| {
        let status = &live["status"];
        status["jobStatus"] == "Running"
            && status["converging"] == false
            && status["workers"]["registered"] == 2
    });
    let logs = ["j-worker-0", "j-worker-1"].map(|name| agent.folder().join(format!("logs/{name}.log")));
    let have_said_something = || {
        wait_until("they have said something", || {
            logs.iter().all(|log| fs::metadata(log).is_ok_and(|log| log.len() > 0))
        });
    };
    // One after the other: what ends again soon is started again after a pause.
    for _ in 0..2 {
        have_said_something();
        let before = ["j-worker-0", "j-worker-1"].map(|name| pid(&agent, name));
        before.into_iter().for_each(kill);
        wait_until("others are there", || {
            let note = |name: &str| {
                fs::read_to_string(agent.folder().join(format!("objects/pods/default/{name}.json")))
            };
            ["j-worker-0", "j-worker-1"].iter().zip(before).all(|(name, before)| {
                let note = note(name)
                    .ok()
                    .and_then(|text| serde_json::from_str::<Value>(&text).ok())
                    .unwrap_or_default();
                let now = note["internal"]["process"]["pid"].as_u64().unwrap_or_default();
                now != 0 && now != u64::from(before) && is_alive(now.try_into().unwrap())
            })
        });
    }
    // A process that ends before its first line leaves no log.
    have_said_something();
    assert_eq!(agent.get(&path).1["status"]["jobStatus"], "Running");
    let of_job = format!("{PODS}?labelSelector=dask.org%2Fcluster-name%3Dj&previous=true");
    let ended = agent.get(&of_job).1;
    let mut all = names(&ended);
    all.sort_unstable();
    assert_eq!(all, ["j-worker-0", "j-worker-0.1", "j-worker-1", "j-worker-1.1"]);
    for name in ["j-worker-0", "j-worker-0.1"] {
        let (status, log) = agent.get(&format!("{PODS}/{name}/log?container=worker&previous=true"));
        assert!(status == 200 && log.as_str().unwrap().contains("--name j-worker-0"), "{log}");
    }
    assert_eq!(agent.get(&format!("{PODS}/j-scheduler/log?previous=true")).0, 404, "it runs");
    fs::write(home.path().join("enough"), "").unwrap();
    agent.wait_until(&path, |_, live| {
        live["status"]["jobStatus"] == "Successful" && live["status"]["followed"] == false
    });
    // Its cluster has gone, and what its workers said has not.
    agent.wait_until(PODS, |_, pods| names(pods) == ["j-runner"]);
    assert!(names(&agent.get(&of_job).1).contains(&"j-worker-1.2"));
    agent.delete(&path);
    assert_eq!(agent.ask("DELETE", &format!("{HOSTS}/environments/main"), None).0, 200);
    wait_until("nothing is left", || entries_in(state.path()).is_empty());
}

#[test]
fn only_the_last_logs_are_kept_and_of_long_ones_the_end() {
    if !on_path("python3", "--version") {
        return;
    }
    let (state, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let faster = [("ENDED_LOGS, ENDED_LOG = 40, 512 * 1024", "ENDED_LOGS, ENDED_LOG = 2, 100")];
    let mut agent = Agent::start_with(state.path(), &Setting { faster: &faster, ..Setting::default() });
    agent.with_environment(&pretended(home.path()));
    let (path, ports) = (format!("{HOSTS}/clusters/c"), free_ports::<2>());
    agent.apply(&path, "", &cluster(3, ports));
    agent.wait_until_settled("clusters/c", 3);
    for name in ["c-worker-0", "c-worker-1", "c-worker-2"] {
        let log = format!("{}\nlast words\n", "x".repeat(500));
        wait_until("it has said something", || {
            fs::metadata(agent.folder().join(format!("logs/{name}.log"))).unwrap().len() > 0
        });
        fs::write(agent.folder().join(format!("logs/{name}.log")), log).unwrap();
    }
    agent.apply(&path, "", &cluster(0, ports));
    agent.wait_until_settled("clusters/c", 0);
    let ended = agent.get(&format!("{PODS}?previous=true")).1;
    assert_eq!(names(&ended).len(), 2, "{ended:#}");
    let one = names(&ended)[0].to_owned();
    let log = agent.get(&format!("{PODS}/{one}/log?previous=true")).1;
    assert_eq!(log, "last words\n");
    agent.destroy();
    assert_eq!(entries_in(state.path()), Vec::<PathBuf>::new());
}

/// A controller that does not answer is about the jobs of its own stack.
#[test]
fn a_silent_slurm_holds_up_its_own_clusters_only() {
    if !on_path("python3", "--version") {
        return;
    }
    let (state, home, tools) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let at = home.path().display();
    let silent = "squeue: error: slurm_load_jobs error: Unable to contact slurm controller (connect failure)";
    let squeue = format!(
        "#!/bin/sh\necho x >> {at}/asked\n[ ! -e {at}/down ] || {{ echo '{silent}' >&2; exit 1; }}\n"
    );
    script(&tools.path().join("squeue"), &squeue);
    for name in ["sbatch", "scancel"] {
        script(&tools.path().join(name), "#!/bin/sh\n[ $(basename $0) = scancel ] || echo 1\n");
    }
    let setting = Setting {
        path: Some(tools.path()),
        faster: &[("PAUSES = (0.2, 1)", "PAUSES = (0, 0)"), ("RECENT = 1\n", "RECENT = 0\n")],
        ..Setting::default()
    };
    let mut agent = Agent::start_with(state.path(), &setting);
    agent.with_environment(&pretended(home.path()));
    let mut of_slurm = cluster(1, free_ports::<2>());
    of_slurm["metadata"]["name"] = json!("hpc");
    of_slurm["spec"]["worker"]["slurm"] = json!({ "directives": [] });
    let hpc = format!("{HOSTS}/clusters/hpc");
    assert_eq!(agent.apply(&hpc, "", &of_slurm).0, 200);
    agent.apply(&format!("{HOSTS}/clusters/c"), "", &cluster(1, free_ports::<2>()));
    agent.wait_until_settled("clusters/c", 1);
    agent.wait_until(&hpc, |_, live| live["status"]["converging"] == false);
    fs::write(home.path().join("down"), "").unwrap();
    let asked = || fs::read_to_string(home.path().join("asked")).unwrap().lines().count();
    let before = asked();
    // As a stack of `[local]` asks.
    let (status, list) = agent.ask_without_jobs(&format!("{HOSTS}/clusters"));
    assert_eq!((status, names(&list)), (200, vec!["c", "hpc"]), "{list:#}");
    let status = |at: usize| &list["items"][at]["status"];
    assert_eq!(status(0)["workers"]["registered"], 1, "{list:#}");
    assert!(
        status(1)["unknown"].as_str().unwrap().starts_with("SLURM cannot be asked: squeue: "),
        "{list:#}"
    );
    assert_eq!(agent.ask_without_jobs(PODS).0, 200);
    assert_eq!(asked(), before + 1, "once, for all that is listed");
    // Requests about objects without SLURM do not need it.
    assert_eq!(agent.get(&format!("{HOSTS}/clusters/c")).0, 200);
    agent.delete(&format!("{HOSTS}/clusters/c"));
    assert_eq!(asked(), before + 1);
    // Its own stack hears that nothing is known.
    for path in [format!("{HOSTS}/clusters"), hpc.clone()] {
        assert_eq!(agent.get(&path).0, 503, "{path}");
    }
    fs::remove_file(home.path().join("down")).unwrap();
    agent.delete(&hpc);
    assert_eq!(agent.ask("DELETE", &format!("{HOSTS}/environments/main"), None).0, 200);
    wait_until("nothing is left", || entries_in(state.path()).is_empty());
}

#[test]
fn an_environment_that_cannot_be_installed_shows_the_end_of_its_log() {
    if !on_path("python3", "--version") {
        return;
    }
    let (state, tools) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let uv = "#!/bin/sh\n[ \"$1\" != venv ] || exit 0\ncat >&2 <<END\nLooking in https://ann:hidden@index.example/simple\nerror: No \
              solution found when resolving dependencies\n  cause: Because xyz was not found in the package registry\nEND\nexit 1\n";
    script(&tools.path().join("uv"), uv);
    let mut agent =
        Agent::start_with(state.path(), &Setting { path: Some(tools.path()), ..Setting::default() });
    let path = format!("{HOSTS}/environments/main");
    agent.apply(&path, "", &json!({ "spec": { "digest": "d1", "packages": ["xyz"], "host": "n1" } }));
    let live = agent.wait_until(&path, |_, live| live["status"]["phase"] == "Failed");
    let log = live["status"]["log"].as_str().unwrap();
    assert!(log.ends_with("\n  cause: Because xyz was not found in the package registry"), "{live:#}");
    assert!(!live.to_string().contains("hidden"), "{live:#}");
    let (_, list) = agent.get(&format!("{PODS}?labelSelector=hosts.dask-infra.dev%2Fenvironment%3Dmain"));
    assert_eq!(names(&list), ["environment-main_n1"]);
    let (status, log) = agent.get(&format!("{PODS}/environment-main_n1/log?container=installer"));
    let log = log.as_str().unwrap();
    assert!(status == 200 && log.contains("uv pip install") && log.contains("cause: Because xyz"), "{log}");
    assert!(!log.contains("hidden"), "{log}");
    assert_eq!(names(&agent.get(PODS).1), Vec::<&str>::new(), "it is no process");
    assert_eq!(agent.ask("DELETE", &path, None).0, 200);
    wait_until("nothing is left", || entries_in(state.path()).is_empty());
}

/// A value goes from the Secret into the process, and stands nowhere else.
#[test]
fn a_secret_is_in_the_variables_of_a_process_and_nowhere_else() {
    if !on_path("python3", "--version") {
        return;
    }
    let (state, home, tools) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let submitted = tools.path().join("submitted");
    script(&tools.path().join("sbatch"), &format!("#!/bin/sh\n: > {}\necho 1\n", submitted.display()));
    for name in ["squeue", "scancel"] {
        script(&tools.path().join(name), "#!/bin/sh\n");
    }
    let mut agent =
        Agent::start_with(state.path(), &Setting { path: Some(tools.path()), ..Setting::default() });
    agent.with_environment(&pretended(home.path()));
    let secret = "/api/v1/namespaces/default/secrets/s-env";
    // `canary-1`
    assert_eq!(agent.apply(secret, "", &json!({ "data": { "TOKEN": "Y2FuYXJ5LTE=" } })).0, 200);
    let mut body = cluster(1, free_ports::<2>());
    body["spec"]["worker"]["secrets"] = json!({ "HF_TOKEN": { "secret": "s-env", "key": "TOKEN" } });
    body["spec"]["worker"]["workerPort"] = json!("40000:40099");
    body["spec"]["worker"]["nannyPort"] = json!("40100");
    agent.apply(&format!("{HOSTS}/clusters/c"), "", &body);
    agent.wait_until_settled("clusters/c", 1);
    let process = PathBuf::from(format!("/proc/{}", pid(&agent, "c-worker-0")));
    let environment = fs::read_to_string(process.join("environ")).unwrap();
    assert!(environment.contains("\0HF_TOKEN=canary-1\0"), "{environment}");
    let line = fs::read_to_string(process.join("cmdline")).unwrap().replace('\0', " ");
    assert!(line.contains("--worker-port 40000:40099 --nanny-port 40100"), "{line}");
    // The script of a job can be read by administrators of SLURM.
    let mut of_slurm = body.clone();
    of_slurm["metadata"]["name"] = json!("hpc");
    of_slurm["spec"]["scheduler"] = cluster(1, free_ports::<2>())["spec"]["scheduler"].clone();
    of_slurm["spec"]["worker"]["slurm"] = json!({ "directives": [] });
    let hpc = format!("{HOSTS}/clusters/hpc");
    agent.apply(&hpc, "", &of_slurm);
    let scripts = agent.folder().join("scripts");
    wait_until("its worker is submitted", || submitted.exists());
    let script = fs::read_to_string(scripts.join("hpc-worker-0.sh")).unwrap();
    assert!(script.contains(&format!("\n. {}\n", scripts.join("hpc-worker-0.env").display())), "{script}");
    let has_it: Vec<PathBuf> = entries_below(state.path())
        .into_iter()
        .filter(|file| file.is_file())
        .filter(|file| {
            let text = fs::read_to_string(file).unwrap_or_default();
            text.contains("canary") || text.contains("Y2FuYXJ5LTE=")
        })
        .collect();
    let folder = agent.folder();
    let expect = [folder.join("objects/secrets/default/s-env.json"), scripts.join("hpc-worker-0.env")];
    assert_eq!(has_it, expect);
    for file in has_it {
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600, "{}", file.display());
    }
    // Without it nothing starts that needs it.
    assert_eq!(agent.ask("DELETE", secret, None).0, 200);
    kill(pid(&agent, "c-worker-0"));
    agent.apply(&format!("{HOSTS}/clusters/c"), "", &body);
    let live = agent.wait_until_settled("clusters/c", 0);
    let said = live["status"]["message"].as_str().unwrap();
    assert!(said.contains("the value of HF_TOKEN is not on this host"), "{said}");
    agent.delete(&hpc);
    agent.destroy();
    assert_eq!(entries_in(state.path()), Vec::<PathBuf>::new());
}

/// A scheduler that had no work for too long is no failure, and neither is a cluster whose time is over, whoever looks.
#[test]
fn a_cluster_ends_when_its_time_is_over() {
    if !on_path("python3", "--version") {
        return;
    }
    let (state, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let setting = Setting { faster: &[("TTL_LOOK = 60", "TTL_LOOK = 0.1")], ..Setting::default() };
    let mut agent = Agent::start_with(state.path(), &setting);
    agent.with_environment(&pretended(home.path()));
    let path = format!("{HOSTS}/clusters/c");
    let mut body = cluster(1, free_ports::<2>());
    body["spec"]["idleTimeout"] = json!(1800);
    agent.apply(&path, "", &body);
    agent.wait_until_settled("clusters/c", 1);
    let group = json!({ "spec": { "cluster": "c", "environment": { "name": "main", "digest": "d1" }, "worker": { "replicas": 1 } } });
    agent.apply(&format!("{HOSTS}/workergroups/c-more"), "", &group);
    agent.wait_until_settled("workergroups/c-more", 1);
    let scheduler = pid(&agent, "c-scheduler");
    let environment = fs::read_to_string(format!("/proc/{scheduler}/environ")).unwrap();
    assert!(environment.contains("\0DASK_DISTRIBUTED__SCHEDULER__IDLE_TIMEOUT=1800s\0"), "{environment}");
    // One that was killed has failed.
    kill(scheduler);
    wait_until("it has ended", || !is_alive(scheduler));
    assert_eq!(agent.get(&path).0, 200);
    agent.apply(&path, "", &body);
    agent.wait_until_settled("clusters/c", 1);
    let log = agent.folder().join("logs/c-scheduler.log");
    fs::write(log, "distributed.scheduler - INFO - Closing scheduler. Reason: idle-timeout-exceeded\n")
        .unwrap();
    kill(pid(&agent, "c-scheduler"));
    agent.wait_until(&path, |status, _| status == 404);
    assert_eq!(agent.get(&format!("{HOSTS}/workergroups/c-more")).0, 404, "it goes with its cluster");
    // Nobody looks at this one.
    let mut body = cluster(1, free_ports::<2>());
    body["spec"]["ttl"] = json!(2);
    agent.apply(&path, "", &body);
    let file = agent.folder().join("objects/clusters/_/c.json");
    wait_until("its time is over", || !file.exists());
    assert_eq!(agent.ask("DELETE", &format!("{HOSTS}/environments/main"), None).0, 200);
    wait_until("nothing is left", || entries_in(state.path()).is_empty());
}

/// Two hosts that are folders of this machine, behind a stand-in for ssh.
struct TwoHosts {
    user: User,
    folder: tempfile::TempDir,
}

impl TwoHosts {
    fn new(stack: &str) -> Self {
        let two = Self { user: User::empty(), folder: tempfile::tempdir().unwrap() };
        let at = two.folder.path().display();
        let ssh = format!(
            "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\n[ ! -e {at}/$2.down ] || {{ echo \"ssh: connect to host $2 port 22: \
             Connection timed out\" >&2; exit 255; }}\nexport XDG_STATE_HOME={at}/$2\nexec sh -c \"$3\"\n"
        );
        script(&two.folder.path().join("ssh"), &ssh);
        pretended(two.folder.path());
        two.write(stack);
        two
    }

    fn write(&self, stack: &str) {
        fs::write(self.user.path().join("stack.toml"), stack).unwrap();
    }

    fn python(&self) -> PathBuf {
        self.folder.path().join("python")
    }

    fn run(&self, words: &[&str], variables: &[(&str, &str)]) -> CommandOutput {
        let mut command = self.user.command(words);
        command.env("DASK_INFRA_SSH", self.folder.path().join("ssh")).stdin(Stdio::null());
        command.envs(variables.iter().copied());
        CommandOutput::of(&command.output().unwrap())
    }
}

/// `status` shows what the other hosts have, with a check in the stack, too; and secrets are on every host.
#[test]
fn what_is_on_other_hosts_is_shown_while_one_is_down() {
    if !on_path("python3", "--version") {
        return;
    }
    let two = TwoHosts::new("");
    let [port, pages] = free_ports::<2>();
    let stack = format!(
        "[stack]\nname = \"lab\"\n\n[ssh]\nhosts = [\"n1\", \"n2\"]\n\n[environment.main]\npath = \"{}\"\n\n[dask_cluster.work]\n\
         scheduler = {{ host = \"127.0.0.1\", port = {port}, dashboard_port = {pages} }}\n\
         worker = {{ replicas = 0, env = {{ HF_TOKEN = {{ secret = \"env:LAB_TOKEN\" }} }} }}\n",
        two.python().display()
    );
    two.write(&stack);
    let given = [("LAB_TOKEN", "canary-7")];
    two.run(&["plan"], &[]).expect(1).says("the environment variable `LAB_TOKEN` is not set");
    let applied = two.run(&["apply", "--auto-approve"], &given).expect(0);
    assert!(!applied.out.contains("canary-7") && !applied.err.contains("canary-7"));
    let again = two.run(&["plan", "--detailed-exitcode"], &given);
    assert_eq!(again.code, 0, "{}{}", again.out, again.err);
    for host in ["n1", "n2"] {
        let files = entries_below(&two.folder.path().join(host));
        let holders: Vec<&PathBuf> = files
            .iter()
            .filter(|file| {
                file.is_file() && fs::read_to_string(file).unwrap_or_default().contains("Y2FuYXJ5LTc=")
            })
            .collect();
        assert_eq!(holders.len(), 1, "{holders:?}");
        let with_value = files.iter().filter(|file| {
            file.is_file() && fs::read_to_string(file).unwrap_or_default().contains("canary-7")
        });
        assert_eq!(with_value.count(), 0);
    }
    two.write(&format!("{stack}\n[check.sum]\nrun = \"dask-sum\"\n"));
    fs::write(two.folder.path().join("n2.down"), "").unwrap();
    let said = two.run(&["status"], &given).expect(1);
    assert!(
        said.out.contains("dask_cluster.work") && said.out.contains("scheduler at tls://"),
        "{}{}",
        said.out,
        said.err
    );
    assert!(said.err.contains("n2") && said.err.contains("`gone = [\"n2\"]` in `[ssh]`"), "{}", said.err);
    fs::remove_file(two.folder.path().join("n2.down")).unwrap();
    two.run(&["destroy", "--auto-approve"], &given).expect(0);
    for host in ["n1", "n2"] {
        wait_until("nothing is left", || entries_in(&two.folder.path().join(host)).is_empty());
    }
}

/// A Python that cannot run the agent is named, and so is what can be done.
#[test]
fn a_python_that_is_too_old_is_named() {
    if !on_path("python3", "--version") {
        return;
    }
    let two = TwoHosts::new(
        "[stack]\nname = \"lab\"\n\n[ssh]\nhosts = [{ name = \"n1\", prologue = [\"export DASK_INFRA_TRIED=1\"] }]\n",
    );
    let old = |text: &str| {
        // The first request to the agent, by a Python that reports an old version.
        let program = "import sys; sys.version_info = (3, 6, 8); sys.argv[1:] = ['n']\n";
        let load = text.split_once('\n').unwrap().1;
        format!("{program}{load}")
    };
    let sent = live::hosts::start_input(live::hosts::AGENT);
    let load: String = sent.split_once("SOURCE = sys.stdin").unwrap().0.to_owned();
    let run = Command::new("python3").args(["-c", &old(&load)]).output().unwrap();
    let hello: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert!(hello["error"].as_str().unwrap().contains("3.8 is the oldest"), "{hello}");
    assert_eq!(hello["nonce"], "n");
    // The lines of a host run before its Python.
    two.run(&["status"], &[]).expect(0);
    let ssh = fs::read_to_string(two.folder.path().join("ssh")).unwrap();
    let noted = ssh
        .replace("exec sh", &format!("printf '%s' \"$3\" > {}/line\nexec sh", two.folder.path().display()));
    script(&two.folder.path().join("ssh"), &noted);
    two.run(&["status"], &[]).expect(0);
    let line = fs::read_to_string(two.folder.path().join("line")).unwrap();
    assert!(line.starts_with("exec bash -lc 'export DASK_INFRA_TRIED=1; exec python3 -I -u -c "), "{line}");
    assert!(!Path::new(two.folder.path()).join("n1").exists(), "a look leaves nothing");
}
