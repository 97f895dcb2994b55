//! Faults of a host, generated: each step of a Dask cluster's life meets each fault at several moments, and the next apply
//! brings what is asked for; `destroy` leaves no process and no file. The same for the phases of a job, which never runs twice. The Dask here is the stand-in of `hosts::agent`, which starts in a
//! tenth of a second; `hosts::local` and `hosts::ssh` have the real one.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::hosts::agent::{Agent, HOSTS, Setting, cluster, environment, is_alive, pretended};
use crate::real::free_ports;
use crate::sandbox_server::{entries_below, entries_in, on_path, wait_until};

/// The request during which the fault comes; before it the cluster has two workers, except for the first.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Step {
    Create,
    More,
    Fewer,
    Change,
    Destroy,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    /// Our program is killed: its agent sees the end of its input, or is killed itself.
    Killed,
    HungUp,
    /// The process that brings the host to the desired state.
    Converger,
    Scheduler,
    Worker,
    Everything,
    /// It is there and does nothing.
    StoppedWorker,
    StoppedScheduler,
    Reboot,
    FullDisk,
    TwoUsers,
    ClockAhead,
    PythonGone,
}

const STEPS: [Step; 5] = [Step::Create, Step::More, Step::Fewer, Step::Change, Step::Destroy];

const FAULTS: [Fault; 13] = [
    Fault::Killed,
    Fault::HungUp,
    Fault::Converger,
    Fault::Scheduler,
    Fault::Worker,
    Fault::Everything,
    Fault::StoppedWorker,
    Fault::StoppedScheduler,
    Fault::Reboot,
    Fault::FullDisk,
    Fault::TwoUsers,
    Fault::ClockAhead,
    Fault::PythonGone,
];

/// Milliseconds between the request and the fault.
const MOMENTS: [u64; 3] = [0, 60, 400];

const CLUSTER: &str = "clusters/c";

struct Case {
    state: tempfile::TempDir,
    home: tempfile::TempDir,
    python: PathBuf,
    ports: [u16; 2],
    /// Programs of the system, where its cluster asks to come back after a reboot.
    tools: Option<PathBuf>,
}

impl Case {
    fn new() -> Self {
        let (state, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let python = pretended(home.path());
        fs::write(home.path().join("boot"), "first\n").unwrap();
        Self { state, home, python, ports: free_ports::<2>(), tools: None }
    }

    /// With a crontab of its own, and no systemd.
    fn with_crontab() -> Self {
        let mut case = Self::new();
        let tools = case.home.path().join("tools");
        let text = crontab_in(&case.home.path().join("crontab"));
        tool(&tools, "crontab", &text);
        tool(&tools, "systemctl", "exit 1");
        case.tools = Some(tools);
        case
    }

    fn crontab(&self) -> String {
        fs::read_to_string(self.home.path().join("crontab")).unwrap_or_default()
    }

    /// Runs cron's lines after a reboot, with as few variables as it has.
    #[track_caller]
    fn boots(&self) {
        for line in self.crontab().lines() {
            assert!(at_reboot(line).status().unwrap().success(), "{line}");
        }
    }

    fn agent(&self, shell: &str, clock: &str) -> Agent {
        self.agent_with(&[("    return stamp(time.time())", clock)], shell)
    }

    /// With some text of the agent exchanged.
    fn agent_with(&self, others: &[(&str, &str)], shell: &str) -> Agent {
        let boot = self.home.path().join("boot").display().to_string();
        let faster = [
            ("TERMINATE = 15", "TERMINATE = 1"),
            ("RETIRE = 120", "RETIRE = 5"),
            ("/proc/sys/kernel/random/boot_id", boot.as_str()),
            ("BOOT_PAUSE, BOOT_TIME = 10, 15, 900", "BOOT_PAUSE, BOOT_TIME = 10, 0.2, 60"),
        ];
        let faster = [&faster, others].concat();
        let path = self.tools.as_deref();
        Agent::start_with(self.state.path(), &Setting { faster: &faster, shell, path })
    }

    fn plain(&self) -> Agent {
        self.agent("", "    return stamp(time.time())")
    }

    fn desired_object(&self, step: Step) -> Value {
        let mut body = cluster(if step == Step::More { 3 } else { 2 }, self.ports);
        if self.tools.is_some() {
            body["spec"]["restart"] = json!("on-boot");
        }
        match step {
            Step::Fewer => body["spec"]["worker"]["replicas"] = json!(1),
            Step::Change => body["spec"]["worker"]["threads"] = json!(2),
            Step::Create | Step::More | Step::Destroy => {}
        }
        body
    }

    /// One apply, and what it comes to.
    #[track_caller]
    fn apply_and_check(&self, agent: &mut Agent, step: Step, case: &str) {
        let path = format!("{HOSTS}/environments/main");
        agent.apply(&path, "", &environment(&self.python));
        agent.wait_until(&path, |_, live| live["status"]["phase"] != "Making");
        let body = self.desired_object(step);
        let (status, said) = agent.apply(&format!("{HOSTS}/{CLUSTER}"), "", &body);
        assert_eq!(status, 200, "{case}: {said}");
        // As an apply waits: until nothing goes on, and a scheduler that runs answers.
        let live = agent.wait_until(&format!("{HOSTS}/{CLUSTER}"), |_, live| {
            let scheduler = &live["status"]["scheduler"];
            live["status"]["converging"] == false && scheduler["answers"] == scheduler["running"]
        });
        let workers = &live["status"]["workers"];
        let number = &body["spec"]["worker"]["replicas"];
        assert_eq!([&workers["running"], &workers["present"]], [number, number], "{case}: {live:#}");
        assert_eq!(live["status"]["scheduler"]["answers"], true, "{case}: {live:#}");
    }

    /// Processes of the stand-in that run here.
    fn processes(&self) -> Vec<(u32, String)> {
        let own = self.python.display().to_string();
        let entries = fs::read_dir("/proc").unwrap().flatten();
        let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let words = |pid: u32| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            (pid, String::from_utf8_lossy(&words).replace('\0', " "))
        };
        pids.map(words).filter(|(pid, words)| words.contains(&own) && is_alive(*pid)).collect()
    }

    /// Processes of an agent, of whatever it began, and of the stand-in.
    fn all_processes(&self) -> Vec<String> {
        let own = [self.python.display().to_string(), self.state.path().display().to_string()];
        let is_own = |pid: &String| {
            let mut about = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            // One that was just forked has the variables of its parent.
            about.extend(fs::read(format!("/proc/{pid}/environ")).unwrap_or_default());
            let about = String::from_utf8_lossy(&about);
            own.iter().any(|own| about.contains(own)) && pid.parse().is_ok_and(is_alive)
        };
        let entries = fs::read_dir("/proc").unwrap().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).filter(is_own).collect()
    }

    /// Ends all that runs here, noted or not, and begins another boot.
    fn reboot(&self) {
        wait_until("nothing runs", || {
            let left = self.all_processes();
            if !left.is_empty() {
                let mut kill = std::process::Command::new("kill");
                let _ = kill.arg("-9").args(&left).stderr(std::process::Stdio::null()).status();
            }
            left.is_empty()
        });
        fs::write(self.home.path().join("boot"), "second\n").unwrap();
    }

    /// The processes of an applied cluster, once all of them are the stand-in: one that was just forked is not yet.
    fn started_processes(&self, step: Step, case: &str) -> Vec<(u32, String)> {
        let number = 1 + self.desired_object(step)["spec"]["worker"]["replicas"].as_u64().unwrap();
        let begun = Instant::now();
        loop {
            let found = self.processes();
            if found.len() as u64 == number {
                return found;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{case}: {found:?}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn send(&self, signal: &str, word: &str, most: usize) {
        let pids: Vec<String> = self
            .processes()
            .into_iter()
            .filter(|(_, words)| words.contains(word))
            .map(|(pid, _)| pid.to_string())
            .take(most)
            .collect();
        if !pids.is_empty() {
            // One that ended by itself is no failure.
            let _ = std::process::Command::new("kill")
                .arg(signal)
                .args(&pids)
                .stderr(std::process::Stdio::null())
                .status();
        }
    }

    fn strike(&self, fault: Fault, mut agent: Agent, step: Step) {
        let all = usize::MAX;
        match fault {
            Fault::Killed => agent.kill(),
            Fault::HungUp | Fault::FullDisk | Fault::ClockAhead => {}
            Fault::Converger => {
                let note = fs::read_to_string(agent.folder().join("run/c")).unwrap_or_default();
                let note: Value = serde_json::from_str(&note).unwrap_or_default();
                if let Some(pid) = note["pid"].as_u64() {
                    let _ = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status();
                }
            }
            Fault::Scheduler => self.send("-9", "dask_scheduler", all),
            Fault::Worker => self.send("-9", "dask_worker", 1),
            Fault::Everything => self.send("-9", "", all),
            Fault::StoppedWorker => self.send("-STOP", "dask_worker", 1),
            // Somebody sees that it hangs and ends it.
            Fault::StoppedScheduler => {
                self.send("-STOP", "dask_scheduler", all);
                std::thread::sleep(Duration::from_millis(50));
                self.send("-9", "dask_scheduler", all);
            }
            Fault::Reboot => self.reboot(),
            Fault::TwoUsers => {
                let other = if step == Step::More { Step::Fewer } else { Step::More };
                let mut beside = self.plain();
                beside.apply(&format!("{HOSTS}/{CLUSTER}"), "", &self.desired_object(other));
            }
            Fault::PythonGone => {
                let aside = self.home.path().join("aside");
                fs::rename(&self.python, &aside).unwrap();
                std::thread::sleep(Duration::from_millis(100));
                fs::rename(&aside, &self.python).unwrap();
            }
        }
    }

    /// Without the object and its environment.
    fn leaves_nothing(&self, mut agent: Agent, object: &str, case: &str) {
        for object in [object, "environments/main"] {
            let path = format!("{HOSTS}/{object}");
            let (status, said) = agent.ask("DELETE", &path, None);
            assert!(matches!(status, 200 | 404), "{case}: {said}");
            agent.wait_until(&path, |status, _| status == 404);
        }
        drop(agent);
        assert_eq!(self.processes(), Vec::new(), "{case}: a process is left");
        // The follower of a job looks once more at the deleted folder, with the lock.
        let begun = Instant::now();
        while !entries_in(self.state.path()).is_empty() && begun.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(entries_below(self.state.path()), Vec::<PathBuf>::new(), "{case}: a file is left");
    }

    fn run(&self, step: Step, fault: Fault, moment: u64) {
        let case = format!("{step:?}, {fault:?} after {moment} ms");
        println!("{case}");
        if step != Step::Create {
            self.apply_and_check(&mut self.plain(), Step::Create, &case);
        }
        let shell = if fault == Fault::FullDisk { "ulimit -f 0" } else { "" };
        let clock = match fault {
            Fault::ClockAhead => "    return stamp(time.time() + 86400)",
            _ => "    return stamp(time.time())",
        };
        let mut agent = self.agent(shell, clock);
        let path = format!("{HOSTS}/{CLUSTER}");
        if step == Step::Create {
            agent.tell(
                "PATCH",
                &format!("{HOSTS}/environments/main?fieldManager=x"),
                &environment(&self.python),
            );
        }
        match step {
            Step::Destroy => agent.tell("DELETE", &path, &Value::Null),
            _ => agent.tell(
                "PATCH",
                &format!("{path}?fieldManager=dask-infra%2Fs"),
                &self.desired_object(step),
            ),
        }
        std::thread::sleep(Duration::from_millis(moment));
        self.strike(fault, agent, step);
        // The next apply, and the one after it finds nothing to do.
        let mut agent = self.plain();
        // A change that is under way is waited for, as an apply waits for it.
        let begun = Instant::now();
        while agent.get(&path).1["status"]["converging"] == true {
            assert!(begun.elapsed() < Duration::from_secs(60), "{case}: it never ends");
            std::thread::sleep(Duration::from_millis(50));
        }
        if step != Step::Destroy {
            self.apply_and_check(&mut agent, step, &case);
            let before = self.started_processes(step, &case);
            self.apply_and_check(&mut agent, step, &case);
            assert_eq!(self.processes(), before, "{case}: the second apply did something");
        }
        self.leaves_nothing(agent, CLUSTER, &case);
    }

    /// A change that a reboot ends half way, and nobody applies again: what the host was told comes up by itself.
    fn reboots(&self, step: Step, moment: u64) {
        let case = format!("{step:?}, a reboot after {moment} ms");
        println!("{case}");
        let (path, mut agent) = (format!("{HOSTS}/{CLUSTER}"), self.plain());
        self.apply_and_check(&mut agent, Step::Create, &case);
        assert_eq!(self.crontab().lines().count(), 1, "{case}");
        match step {
            Step::Destroy => agent.tell("DELETE", &path, &Value::Null),
            Step::Create => {}
            _ => agent.tell(
                "PATCH",
                &format!("{path}?fieldManager=dask-infra%2Fs"),
                &self.desired_object(step),
            ),
        }
        std::thread::sleep(Duration::from_millis(moment));
        self.strike(Fault::Reboot, agent, step);
        self.boots();
        let mut agent = self.plain();
        let (status, live) = agent.get(&path);
        if status == 200 && live["metadata"]["deletionTimestamp"].is_null() {
            let (workers, wanted) = (&live["status"]["workers"], &live["spec"]["worker"]["replicas"]);
            assert_eq!([&workers["running"], &workers["present"]], [wanted, wanted], "{case}: {live:#}");
            assert_eq!(live["status"]["scheduler"]["running"], true, "{case}: {live:#}");
            assert_eq!(live["status"]["boot"], "crontab", "{case}: {live:#}");
        }
        self.leaves_nothing(agent, CLUSTER, &case);
        assert_eq!(self.crontab(), "", "{case}");
    }
}

/// A file that is written when a process is killed: by the agent itself, or by what brings processes to what is asked for.
#[derive(Clone, Copy, Debug)]
struct InterruptedWrite {
    /// After so many others.
    write: usize,
    /// True if the file is whole and has its name already.
    whole: bool,
}

const WRITES: &str = "            os.replace(file + UNFINISHED, file)";

impl Case {
    /// An agent of which the process that makes a write is killed there.
    fn cut_off(&self, cut: InterruptedWrite) -> Agent {
        let counts = self.home.path().join("writes");
        let dies = format!(
            "            with open({counts:?}, \"ab\", 0) as count:\n                count.write(b\".\")\n                if count.tell() == {}:\n                    os.kill(os.getpid(), signal.SIGKILL)",
            cut.write + 1
        );
        let text = if cut.whole { format!("{WRITES}\n{dies}") } else { format!("{dies}\n{WRITES}") };
        self.agent_with(&[(WRITES, &text)], "")
    }

    fn writes(&self) -> u64 {
        fs::metadata(self.home.path().join("writes")).map_or(0, |file| file.len())
    }

    /// A change of which one process is killed in the middle of a write, or the whole host: `destroy` leaves nothing.
    fn is_cut_off(&self, step: Step, fault: Fault, cut: InterruptedWrite) {
        let case = format!("{step:?}, {fault:?} at {cut:?}");
        println!("{case}");
        let path = format!("{HOSTS}/{CLUSTER}");
        self.apply_and_check(&mut self.plain(), Step::Create, &case);
        let mut agent = self.cut_off(cut);
        match step {
            Step::Destroy => agent.tell("DELETE", &path, &Value::Null),
            _ => agent.tell(
                "PATCH",
                &format!("{path}?fieldManager=dask-infra%2Fs"),
                &self.desired_object(step),
            ),
        }
        agent.wait_for_reply();
        let mut beside = self.plain();
        wait_until(&case, || {
            let (_, live) = beside.get(&path);
            self.writes() > cut.write as u64 || live["status"]["converging"] != true
        });
        drop(beside);
        self.strike(fault, agent, step);
        if fault == Fault::Reboot {
            self.boots();
        }
        self.leaves_nothing(self.plain(), CLUSTER, &case);
        assert_eq!(self.crontab(), "", "{case}");
    }
}

impl Drop for Case {
    fn drop(&mut self) {
        // Gone already in a good run.
        self.send("-9", "", usize::MAX);
    }
}

/// A program in a folder of its own, in the language of the shell.
pub(crate) fn tool(folder: &Path, name: &str, text: &str) {
    fs::create_dir_all(folder).unwrap();
    let file = folder.join(name);
    fs::write(&file, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A `crontab` that keeps its lines in a file: cron itself is on few machines that build software.
pub(crate) fn crontab_in(file: &Path) -> String {
    let file = file.display();
    format!(
        "case $1 in\n-l) [ -e {file} ] || {{ echo \"no crontab for you\" >&2; exit 1; }}; cat {file};;\n\
         -r) rm {file};;\n-) cat > {file};;\nesac"
    )
}

/// Returns the command that cron runs after a reboot. Source: crontab(5): `@reboot`, `\\%`, and the variables that
/// there are.
pub(crate) fn at_reboot(line: &str) -> std::process::Command {
    let text = line.strip_prefix("@reboot ").unwrap().replace("\\%", "%");
    let mut command = std::process::Command::new("/bin/sh");
    command.args(["-c", &text]).env_clear().env("HOME", std::env::var_os("HOME").unwrap());
    command.env("PATH", "/usr/bin:/bin").env("SHELL", "/bin/sh");
    command
}

/// Every `step`th of the cases, from the seed on; all of them with `DASK_INFRA_SWEEP=all`.
fn sweep<S: Copy, F: Copy, M: Copy>(cases: &[(S, F, M)], step: usize, run: impl Fn(&Case, S, F, M)) {
    if !on_path("python3", "--version") || !Path::new("/proc").exists() {
        return;
    }
    let all = std::env::var("DASK_INFRA_SWEEP").is_ok_and(|value| value == "all");
    let seed: usize = std::env::var("DASK_INFRA_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mine = cases.iter().enumerate().filter(|(at, _)| all || (at + seed).is_multiple_of(step));
    let mut count = 0;
    for (_, (at, fault, moment)) in mine {
        run(&Case::new(), *at, *fault, *moment);
        count += 1;
    }
    println!("{count} of {} faults", cases.len());
}

/// At each of these each fault, at each moment.
fn all_cases<S: Copy, F: Copy>(steps: &[S], faults: &[F]) -> Vec<(S, F, u64)> {
    let with = |step: S| faults.iter().flat_map(move |fault| MOMENTS.map(|moment| (step, *fault, moment)));
    steps.iter().flat_map(|step| with(*step)).collect()
}

/// 195 cases; a sample of them unless `DASK_INFRA_SWEEP=all`.
#[test]
fn each_step_meets_each_fault_and_the_next_apply_mends_it() {
    let cases = all_cases(&STEPS, &FAULTS);
    assert_eq!(cases.len(), 195);
    // A step of 17 through 195 cases meets every step and nearly every fault in a dozen.
    sweep(&cases, 17, Case::run);
}

/// 15 reboots; a sample of them unless `DASK_INFRA_SWEEP=all`.
#[test]
fn each_step_meets_a_reboot_and_the_host_mends_it() {
    let cases = all_cases(&STEPS, &[Fault::Reboot]);
    sweep(&cases, 4, |_, step, _, moment| Case::with_crontab().reboots(step, moment));
}

/// 64 writes that are cut off; a sample of them unless `DASK_INFRA_SWEEP=all`.
#[test]
fn each_write_is_cut_off_and_a_destroy_leaves_nothing() {
    let cuts = (0..4).flat_map(|write| [false, true].map(|whole| InterruptedWrite { write, whole }));
    let cuts: Vec<InterruptedWrite> = cuts.collect();
    let cases: Vec<_> = [Step::More, Step::Fewer, Step::Change, Step::Destroy]
        .into_iter()
        .flat_map(|step| [Fault::Killed, Fault::Reboot].map(|fault| (step, fault)))
        .flat_map(|(step, fault)| cuts.iter().map(move |cut| (step, fault, *cut)))
        .collect();
    assert_eq!(cases.len(), 64);
    sweep(&cases, 11, |_, step, fault, cut| Case::with_crontab().is_cut_off(step, fault, cut));
}

/// The phase of a job when the fault comes.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    Begins,
    Runs,
    Ends,
    Destroyed,
}

const PHASES: [Phase; 4] = [Phase::Begins, Phase::Runs, Phase::Ends, Phase::Destroyed];

#[derive(Clone, Copy, Debug, PartialEq)]
enum JobFault {
    /// Our program, or its agent.
    Killed,
    HungUp,
    Converger,
    /// The process that follows the job.
    Follower,
    Both,
    Program,
    /// The shell that waits for the program.
    Waiter,
    Scheduler,
    Worker,
    Everything,
    Reboot,
    FullDisk,
    TwoUsers,
    ClockAhead,
}

const JOB_FAULTS: [JobFault; 14] = [
    JobFault::Killed,
    JobFault::HungUp,
    JobFault::Converger,
    JobFault::Follower,
    JobFault::Both,
    JobFault::Program,
    JobFault::Waiter,
    JobFault::Scheduler,
    JobFault::Worker,
    JobFault::Everything,
    JobFault::Reboot,
    JobFault::FullDisk,
    JobFault::TwoUsers,
    JobFault::ClockAhead,
];

impl JobFault {
    /// Returns true if a job whose program runs still succeeds.
    fn spares_the_program(self) -> bool {
        match self {
            Self::Program | Self::Waiter | Self::Everything | Self::Reboot => false,
            Self::Killed
            | Self::HungUp
            | Self::Converger
            | Self::Follower
            | Self::Both
            | Self::Scheduler
            | Self::Worker
            | Self::FullDisk
            | Self::TwoUsers
            | Self::ClockAhead => true,
        }
    }
}

const JOB: &str = "jobs/j";

impl Case {
    fn job(&self) -> Value {
        let mut body = cluster(2, self.ports);
        body["metadata"]["name"] = json!("j");
        body["spec"]["scheduler"] = json!({ "host": "127.0.0.1" });
        body["spec"]["program"] = json!({ "args": ["python", "--work"] });
        body
    }

    /// How often the program began.
    fn runs(&self) -> usize {
        fs::read_to_string(self.home.path().join("ran")).unwrap_or_default().lines().count()
    }

    /// Lets the program end.
    fn end_program(&self) {
        fs::write(self.home.path().join("enough"), "").unwrap();
    }

    fn kill_noted(&self, agent: &Agent, folder: &str) {
        let note = fs::read_to_string(agent.folder().join(folder).join("j")).unwrap_or_default();
        let note: Value = serde_json::from_str(&note).unwrap_or_default();
        if let Some(pid) = note["pid"].as_u64() {
            let mut kill = std::process::Command::new("kill");
            let _ = kill.args(["-9", &pid.to_string()]).stderr(std::process::Stdio::null()).status();
        }
    }

    /// Kills the program, or the shell that waits for it.
    fn kill_program(&self, waiter: bool) {
        for (pid, words) in self.processes() {
            if words.contains("--work") && words.contains("file=$1") == waiter {
                let mut kill = std::process::Command::new("kill");
                let _ = kill.args(["-9", &pid.to_string()]).stderr(std::process::Stdio::null()).status();
            }
        }
    }

    fn strike_job(&self, fault: JobFault, mut agent: Agent) {
        match fault {
            JobFault::Killed => agent.kill(),
            JobFault::HungUp | JobFault::FullDisk | JobFault::ClockAhead => {}
            JobFault::Converger => self.kill_noted(&agent, "run"),
            JobFault::Follower => self.kill_noted(&agent, "follow"),
            JobFault::Both => {
                self.kill_noted(&agent, "follow");
                self.kill_noted(&agent, "run");
            }
            JobFault::Program => self.kill_program(false),
            JobFault::Waiter => self.kill_program(true),
            JobFault::Scheduler => self.send("-9", "dask_scheduler", usize::MAX),
            JobFault::Worker => self.send("-9", "dask_worker", 1),
            JobFault::Everything => self.send("-9", "", usize::MAX),
            JobFault::Reboot => self.reboot(),
            JobFault::TwoUsers => {
                let mut beside = self.plain();
                beside.apply(&format!("{HOSTS}/{JOB}"), "", &self.job());
            }
        }
    }

    /// A job as an apply waits for it: until it is as asked, and nobody does anything for it.
    #[track_caller]
    fn job_is(&self, agent: &mut Agent, so: impl Fn(&Value) -> bool) -> Value {
        agent.wait_until(&format!("{HOSTS}/{JOB}"), |_, live| so(&live["status"]))["status"].clone()
    }

    fn run_job(&self, phase: Phase, fault: JobFault, moment: u64) {
        let case = format!("a job that {phase:?}, {fault:?} after {moment} ms");
        println!("{case}");
        let path = format!("{HOSTS}/{JOB}");
        let environments = format!("{HOSTS}/environments/main");
        let mut first = self.plain();
        first.apply(&environments, "", &environment(&self.python));
        first.wait_until(&environments, |_, live| live["status"]["phase"] == "Ready");
        if phase != Phase::Begins {
            first.apply(&path, "", &self.job());
            self.job_is(&mut first, |status| status["jobStatus"] == "Running");
            let begun = Instant::now();
            while self.runs() == 0 {
                assert!(begun.elapsed() < Duration::from_secs(60), "{case}: its program does not run");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        drop(first);
        let shell = if fault == JobFault::FullDisk { "ulimit -f 0" } else { "" };
        let clock = match fault {
            JobFault::ClockAhead => "    return stamp(time.time() + 86400)",
            _ => "    return stamp(time.time())",
        };
        let mut agent = self.agent(shell, clock);
        match phase {
            Phase::Destroyed => agent.tell("DELETE", &path, &Value::Null),
            Phase::Ends => self.end_program(),
            Phase::Begins | Phase::Runs => {
                agent.tell("PATCH", &format!("{path}?fieldManager=dask-infra%2Fs"), &self.job());
            }
        }
        std::thread::sleep(Duration::from_millis(moment));
        self.strike_job(fault, agent);
        self.end_program();
        let mut agent = self.plain();
        if phase != Phase::Destroyed {
            let (status, said) = agent.apply(&path, "", &self.job());
            assert_eq!(status, 200, "{case}: {said}");
            let status = self.job_is(&mut agent, |status| {
                let ended = status["jobStatus"] == "Successful" || status["jobStatus"] == "Failed";
                ended && status["followed"] == false && status["converging"] == false
            });
            assert!(self.runs() <= 1, "{case}: it ran {} times", self.runs());
            let good = status["jobStatus"] == "Successful";
            assert!(
                good || status["message"].as_str().is_some_and(|said| !said.is_empty()),
                "{case}: {status:#}"
            );
            assert!(!good || self.runs() == 1, "{case}: {status:#}");
            if phase != Phase::Begins && fault.spares_the_program() {
                assert!(good, "{case}: {status:#}");
            }
            assert_eq!(self.processes(), Vec::new(), "{case}: its cluster is left");
            // It has ended, whoever asks for it.
            agent.apply(&path, "", &self.job());
            assert_eq!(agent.get(&path).1["status"]["jobStatus"], status["jobStatus"], "{case}");
        }
        self.leaves_nothing(agent, JOB, &case);
    }
}

/// A program runs once or not at all, its end is known or its failure has a reason, and its cluster goes with it: 168 cases.
#[test]
fn each_phase_of_a_job_meets_each_fault_and_it_runs_once() {
    let cases = all_cases(&PHASES, &JOB_FAULTS);
    assert_eq!(cases.len(), 168);
    // A step of 13 through 168 cases meets every phase and nearly every fault in a dozen.
    sweep(&cases, 13, Case::run_job);
}
