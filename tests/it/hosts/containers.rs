//! Environments that are images, with the real podman, docker and SingularityCE, each with images and containers of its own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::hosts::agent_faults::tool;
use crate::hosts::local::LocalUser;
use crate::hosts::slurm::Login;
use crate::real::{Part, needs};
use crate::sandbox_server::{User, wait_until};

/// A runtime with a folder of its own.
pub struct Runtime {
    program: &'static str,
    folder: tempfile::TempDir,
    daemon: Option<Child>,
    pub variables: Vec<(&'static str, PathBuf)>,
}

const IMAGE: &str = "localhost/di-test";

impl Runtime {
    pub fn podman() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        // Without CAP_SYS_RESOURCE, as in a sandbox, no limit can be raised to what podman gives by default; and crun wants one version of
        // cgroups.
        let limits = "[containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=4096:4096\"]\n\n[engine]\nruntime = \"runc\"\n";
        fs::write(at("containers.conf"), limits).unwrap();
        let storage = format!(
            "[storage]\ndriver = \"overlay\"\ngraphroot = \"{}\"\nrunroot = \"{}\"\n",
            at("storage").display(),
            at("run").display()
        );
        fs::write(at("storage.conf"), storage).unwrap();
        let variables =
            vec![("CONTAINERS_CONF", at("containers.conf")), ("CONTAINERS_STORAGE_CONF", at("storage.conf"))];
        Self { program: "podman", folder, daemon: None, variables }
    }

    pub fn docker() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let mut daemon = Command::new("/usr/sbin/dockerd");
        daemon.args([
            "--bridge=none",
            "--iptables=false",
            "--ip6tables=false",
            "--ip-forward=false",
            "--ip-masq=false",
        ]);
        let socket = PathBuf::from(format!("unix://{}", at("socket").display()));
        daemon.arg("--host").arg(&socket).arg("--data-root").arg(at("storage"));
        daemon.arg("--exec-root").arg(at("run")).arg("--pidfile").arg(at("pid"));
        let log = fs::File::create(at("log")).unwrap();
        let daemon = daemon.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().unwrap();
        let runtime = Self {
            program: "docker",
            folder,
            daemon: Some(daemon),
            variables: vec![("DOCKER_HOST", socket)],
        };
        wait_until("dockerd answers", || runtime.command(&["version"]).output().unwrap().status.success());
        runtime
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.program);
        command.args(words).envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    #[track_caller]
    pub fn says(&self, words: &[&str]) -> String {
        let said = self.command(words).output().unwrap();
        assert!(said.status.success(), "{words:?}: {}", String::from_utf8_lossy(&said.stderr));
        String::from_utf8(said.stdout).unwrap().trim().to_owned()
    }

    /// Makes an image of the files of `tests/real/image` but for some, with a variable that tells it from others.
    #[track_caller]
    pub fn import(&self, tag: &str, without: &[&str]) -> String {
        let name = format!("{IMAGE}:{tag}");
        let mut tar = Command::new("tar");
        tar.arg("-C").arg(Part::Containers.folder().join("files"));
        tar.args(without.iter().map(|pattern| format!("--exclude={pattern}"))).args(["-c", "."]);
        let mut tar = tar.stdout(Stdio::piped()).spawn().unwrap();
        let mut import = self.command(&["import", "--change", "ENV PATH=/usr/local/bin:/bin"]);
        import.arg("--change").arg(format!("ENV DI_IMAGE={tag}")).args(["-", &name]);
        import.stdin(tar.stdout.take().unwrap());
        let said = import.output().unwrap();
        assert!(
            tar.wait().unwrap().success() && said.status.success(),
            "{}",
            String::from_utf8_lossy(&said.stderr)
        );
        name
    }

    /// Names of all containers, those that ended too.
    pub fn containers(&self) -> Vec<String> {
        let names = self.says(&["ps", "--all", "--format", "{{.Names}}"]);
        let mut names: Vec<String> = names.lines().map(str::to_owned).collect();
        names.sort();
        names
    }

    #[track_caller]
    fn of(&self, process: &str) -> String {
        let start = format!("dask-infra-{process}-");
        let found: Vec<String> =
            self.containers().into_iter().filter(|name| name.starts_with(&start)).collect();
        let [one] = found.as_slice() else { panic!("{process}: {found:?}") };
        one.clone()
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        for name in self.containers() {
            // Gone already in a good run.
            let _ = self.command(&["rm", "--force", &name]).output();
        }
        if let Some(daemon) = &mut self.daemon {
            let _ = Command::new("kill").arg(daemon.id().to_string()).status();
            let _ = daemon.wait();
        }
        // podman leaves its storage mounted upon itself, and dockerd the network of the host.
        for left in ["storage/overlay", "run/netns/default"] {
            let _ = Command::new("umount").arg("--lazy").arg(self.folder.path().join(left)).output();
        }
    }
}

fn user_of_container(runtime: &Runtime, container: &str, worker: &str, more: &str) -> LocalUser {
    let mut here = LocalUser::new(worker, more);
    here.variables.extend(runtime.variables.clone());
    let path = format!("path = \"{}\"", crate::hosts::local::python().display());
    here.user.edit(&path, &format!("container = {container}"));
    here
}

fn a_whole_life(runtime: &Runtime) {
    let name = runtime.program;
    let (old, new) = (runtime.import("1", &[]), runtime.import("2", &[]));
    let job = "[dask_job.train]\nreplicas = 1\nwait = true\nargs = [\"python\", \"-c\", \"import os; from distributed import Client; client = Client(); \
               print(sum(client.gather(client.map(int, range(10)))), os.environ['DI_IMAGE'], os.getcwd())\"]\n";
    let more = format!("[check.sum]\nrun = \"dask-sum\"\n\n{job}");
    let here = user_of_container(
        runtime,
        &format!("{{ image = \"{old}\", runtime = \"{name}\" }}"),
        "replicas = 2",
        &more,
    );
    here.apply().expect(0).says("check.sum");
    let home = std::env::var("HOME").unwrap();
    here.run(&["logs", "train", "--tail", "-1"]).expect(0).says(&format!("45 1 {home}"));
    here.nothing_to_do();
    here.run(&["status"]).expect(0).says("2 of 2 workers registered").says("distributed 2026.8.0");
    here.run(&["connect"]).expect(0).says(&format!("{name} run --rm --interactive --tty"));
    here.run(&["run", "check.sum", "--auto-approve"]).expect(0);
    // A scheduler and two workers: the job's and the checks' have gone.
    let first = runtime.containers();
    assert_eq!(first.len(), 3, "{first:?}");

    // Its client is killed, and the container goes on.
    let orphan = runtime.of("work-worker-1");
    here.kill("work-worker-1");
    assert_eq!(runtime.containers(), first);
    here.run(&["plan", "--detailed-exitcode"]).expect(2).says("1 of 2 workers not running");
    here.apply().expect(0);
    here.nothing_to_do();
    let second = runtime.containers();
    assert!(second.len() == 3 && !second.contains(&orphan), "{second:?}");

    // A container is killed, and with it its client ends.
    runtime.says(&["kill", &runtime.of("work-worker-0")]);
    wait_until("its client has ended", || runtime.containers().len() == 2);
    here.run(&["plan", "--detailed-exitcode"]).expect(2).says("1 of 2 workers not running");
    // The scheduler's client is killed: its container goes on, and its port is free again when it is removed.
    here.kill("work-scheduler");
    here.apply().expect(0);
    here.nothing_to_do();
    assert_eq!(runtime.containers().len(), 3);

    here.user.edit(&old, &new);
    here.run(&["plan", "--detailed-exitcode"])
        .expect(2)
        .says("a new environment is made, and what runs in the old one is replaced")
        .says("replace");
    here.run(&["apply", "--auto-approve", "--allow", "replace:dask_cluster.work"]).expect(0);
    here.nothing_to_do();
    let images = runtime.says(&["inspect", "--format", "{{.Image}}", &runtime.of("work-worker-0")]);
    let wanted = runtime.says(&["image", "inspect", "--format", "{{.Id}}", &new]);
    assert_eq!(images.trim_start_matches("sha256:"), wanted.trim_start_matches("sha256:"));

    // The file and the record are lost, and the file is written again.
    fs::remove_dir_all(here.folder().join("objects/configmaps")).unwrap();
    let other = User::empty();
    here.run_as(&other, &["import", "--local"]).expect(0).says("environment.main");
    let text = other.stack();
    assert!(text.contains(&new) && text.contains(&format!("runtime = \"{name}\"")), "{text}");
    here.run_as(&other, &["plan", "--detailed-exitcode"]).expect(0);
    here.run_as(&other, &["destroy", "--auto-approve"]).expect(0);
    assert_eq!(runtime.containers(), Vec::<String>::new());
    assert_eq!(here.leftovers(), Vec::<String>::new());
    assert_eq!(fs::read_dir(here.state.path()).unwrap().count(), 0);
    // They are the runtime's, as those that are pulled by hand.
    runtime.says(&["image", "inspect", &new]);
}

#[test]
fn a_stack_lives_in_containers_of_podman() {
    needs!(&[Part::Operator, Part::Containers]);
    a_whole_life(&Runtime::podman());
}

#[test]
#[ignore = "nightly: a_stack_lives_in_containers_of_podman runs on every change"]
fn a_stack_lives_in_containers_of_docker() {
    needs!(&[Part::Operator, Part::Containers]);
    a_whole_life(&Runtime::docker());
}

#[test]
fn what_no_container_can_run_says_why() {
    needs!(&[Part::Operator, Part::Containers]);
    let runtime = Runtime::podman();
    let bare = runtime.import("bare", &["./opt/python/lib/python3*/site-packages/distributed*"]);
    let empty = runtime.import("empty", &["./opt"]);
    let whole = runtime.import("1", &[]);
    let mut here = user_of_container(&runtime, "\"127.0.0.1:1/none:1\"", "replicas = 1", "");
    let mut container = "\"127.0.0.1:1/none:1\"".to_owned();
    let says = |here: &LocalUser, container: &mut String, other: String, said: &[&str]| {
        here.user.edit(container, &other);
        *container = other;
        let mut found = here.apply().expect(1);
        for text in said {
            found = found.says(text);
        }
    };
    let first = here.apply().expect(1);
    first.says("podman pull 127.0.0.1:1/none:1` failed").says("connection refused");
    says(
        &here,
        &mut container,
        format!("\"{bare}\""),
        &["has no package `distributed`", "install `dask[distributed]` in the image"],
    );
    says(
        &here,
        &mut container,
        format!("\"{empty}\""),
        &["`python3` does not run in the image", "names another interpreter"],
    );
    says(
        &here,
        &mut container,
        format!("{{ image = \"{whole}\", mounts = [\"/nowhere/at/all\"] }}"),
        &["there is no /nowhere/at/all on", "which `mounts` names"],
    );
    says(
        &here,
        &mut container,
        format!("{{ image = \"{whole}\", runtime = \"apptainer\" }}"),
        &["apptainer is not on the PATH of", "name another one in `runtime`"],
    );
    // A daemon that does not answer is passed over, and named where nothing else is there.
    let tools = here.user.path().join("tools");
    tool(&tools, "docker", "echo 'Cannot connect to the Docker daemon' >&2; exit 1");
    let path = std::env::var("PATH").unwrap();
    here.variables.push(("PATH", format!("{}:{path}", tools.display()).into()));
    says(
        &here,
        &mut container,
        format!("{{ image = \"{whole}\", runtime = \"docker\" }}"),
        &["docker: Cannot connect to the Docker daemon", "start it or ask for the right to use it"],
    );
    // Without the home.
    here.user.edit(&container, &format!("{{ image = \"{whole}\", home = false }}"));
    here.apply().expect(0);
    here.nothing_to_do();
    assert_eq!(runtime.containers().len(), 2);
    let home = std::env::var("HOME").unwrap();
    for name in runtime.containers() {
        let mounts = runtime.says(&["inspect", "--format", "{{range .Mounts}}{{.Source}}\n{{end}}", &name]);
        assert!(mounts.lines().all(|source| !Path::new(&home).starts_with(source)), "{mounts}");
    }
    // GPUs are asked for that podman cannot give.
    tool(&tools, "nvidia-smi", "echo GPU-1");
    let job = "[dask_job.train]\ngpus = 1\nwait = true\nargs = [\"python\", \"-V\"]\n\n[dask_cluster.work]";
    here.user.edit("[dask_cluster.work]", job);
    here.apply().expect(1).says("podman gives GPUs to containers by").says("nvidia-ctk cdi generate");
    here.run(&["destroy", "--auto-approve"]).expect(0);
    assert_eq!(runtime.containers(), Vec::<String>::new());
}

#[test]
#[ignore = "nightly: a_stack_lives_in_containers_of_podman runs on every change"]
fn hosts_run_containers() {
    needs!(&[Part::Operator, Part::Containers]);
    if !crate::hosts::ssh::sshd_is_there() {
        return;
    }
    let runtime = Runtime::podman();
    let image = runtime.import("1", &[]);
    let mut lab = crate::hosts::ssh::Lab::new("replicas = 3", "[check.sum]\nrun = \"dask-sum\"\n");
    let set: Vec<String> =
        runtime.variables.iter().map(|(name, value)| format!("{name}={}", value.display())).collect();
    for index in 0..3 {
        lab.variables.insert(index, set.join(" "));
        lab.end(index);
        lab.serve(index);
    }
    let path = format!("path = \"{}\"", Part::Operator.program("python").display());
    lab.user.edit(&path, &format!("container = {{ image = \"{image}\", runtime = \"podman\" }}"));
    lab.run(&["apply", "--auto-approve"]).expect(0).says("check.sum");
    lab.nothing_to_do();
    let names = runtime.containers();
    assert_eq!(names.len(), 4, "{names:?}");
    assert!(names.iter().any(|name| name.starts_with("dask-infra-work-n3-worker-0-")), "{names:?}");
    lab.run(&["destroy", "--auto-approve"]).expect(0);
    assert_eq!(runtime.containers(), Vec::<String>::new());
}

/// The script of each worker runs its container on its node, and the scheduler has one on the login node.
#[test]
fn jobs_run_containers() {
    needs!(&[Part::Slurm, Part::Containers, Part::Singularity]);
    let files = Part::Containers.folder().join("files");
    let login = Login::in_containers(&files);
    login.run(&["apply", "--auto-approve"]).expect(0).says("check.sum");
    login.nothing_to_do();
    login.run(&["status"]).expect(0).says("2 of 2 workers registered");
    let scripts = login.folder().join("scripts");
    let script = fs::read_to_string(scripts.join("work-worker-0.sh")).unwrap();
    let last = script.lines().last().unwrap();
    let image = format!("{} python3 -m distributed.cli.dask_worker", files.display());
    assert!(
        last.starts_with("exec /") && last.contains("/singularity exec --pwd ") && last.contains(&image),
        "{last}"
    );
    login.cluster.says("scancel", &["--name", "work-worker-1"]);
    wait_until("its job has ended", || login.jobs().len() == 1);
    login.run(&["plan", "--detailed-exitcode"]).expect(2).says("1 job cancelled by somebody else");
    login.run(&["apply", "--auto-approve"]).expect(0);
    login.nothing_to_do();
    // A scheduler that is a job writes down where it is from inside of its container.
    let ports = format!("port = {}, dashboard_port = {}", login.ports[0], login.ports[1]);
    login.user.edit(&ports, "slurm = { time_limit = \"1h\" }");
    login
        .run(&["apply", "--auto-approve", "--allow", "replace:dask_cluster.work"])
        .expect(0)
        .says("check.sum");
    login.nothing_to_do();
    assert_eq!(login.jobs(), ["work-scheduler", "work-worker-0", "work-worker-1"]);
    let script = fs::read_to_string(scripts.join("work-scheduler.sh")).unwrap();
    let own = login.folder().join("schedulers/work-scheduler");
    assert!(script.contains(&format!("--bind {0}:{0} ", own.display())), "{script}");
    // Scripts and secrets of other jobs are beside each other, and no container sees them.
    assert!(!script.contains(&format!("--bind {}", scripts.display())), "{script}");
    assert!(script.contains("--no-mount home,cwd,"), "{script}");
    login.is_gone();
}
