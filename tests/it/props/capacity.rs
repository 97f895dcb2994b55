//! `apply --when-capacity`: killed at any write and typed again it comes to the same end as undisturbed. Between its applies nothing
//! is locked, and nothing but what was agreed to is ever applied.

use std::fmt;

use proptest::prelude::*;
use sandbox::Options;
use sandbox::kube::run::Scripts;
use serde_json::json;

use super::cases::check;
use super::harness::Harness;
use super::interrupted_commands::differ;
use super::laws::{self, Tally};
use super::player::{EDITED, Player, paused};
use super::script::{Command, Edit, Kill, Step, Wait, WhenCapacity};
use super::stacks::apply;
use crate::sandbox_server::ON_GKE;

const WAITS: &str = r#"
[node_pool.a100]
machine_type = "a2-highgpu-2g"
nodes = { min = 0, max = 8 }
queued = true
reservation = "none"
location_policy = "any"

[namespace.beside]
"#;

const JOBS: [&str; 2] = ["train", "tune"];

/// A job that waits for machines.
#[derive(Clone, Copy, Debug)]
struct Job {
    parallelism: u32,
    /// True where the apply waits until it has ended.
    wait: bool,
}

/// An event while the command sleeps.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// There are machines for a job, or another reason why there are none.
    Machines(usize, &'static str),
    /// A second person stops what waits.
    Stop(usize),
    /// A second person applies the same stack.
    Apply,
    Nothing,
    Edit(StackEdit),
}

/// An edit of what was agreed to.
#[derive(Clone, Copy, Debug)]
enum StackEdit {
    Project,
    Cluster,
    Id,
    CapacityOrder,
    Handed,
    Job,
}

#[derive(Clone, Debug)]
struct Case {
    jobs: Vec<Job>,
    events: Vec<Event>,
    kill: Kill,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{self:#?}", self.stack(None).stack)
    }
}

fn case() -> impl Strategy<Value = Case> {
    let job = (1..3u32, any::<bool>()).prop_map(|(parallelism, wait)| Job { parallelism, wait });
    let edited = prop::sample::select(vec![
        StackEdit::Project,
        StackEdit::Cluster,
        StackEdit::Id,
        StackEdit::CapacityOrder,
        StackEdit::Handed,
        StackEdit::Job,
    ]);
    let event = prop_oneof![
        4 => (0..2usize).prop_map(|job| Event::Machines(job, "there")),
        1 => (0..2usize).prop_map(|job| Event::Machines(job, "quota")),
        1 => (0..2usize).prop_map(Event::Stop),
        1 => Just(Event::Apply),
        1 => Just(Event::Nothing),
        1 => edited.prop_map(Event::Edit),
    ];
    let kill = (0..24usize, any::<bool>()).prop_map(|(write, after)| Kill { write, after });
    (prop::collection::vec(job, 1..3), prop::collection::vec(event, 1..5), kill)
        .prop_map(|(jobs, events, kill)| Case { jobs, events, kill })
}

impl Case {
    fn stack(&self, edited: Option<StackEdit>) -> Edit {
        let mut stack = format!("{ON_GKE}{WAITS}");
        for (name, Job { parallelism, wait }) in JOBS.iter().zip(&self.jobs) {
            stack += &format!(
                "\n[job.{name}]\nimage = \"demo:1\"\ncommand = [\"python\", \"{name}.py\"]\ngpus = 2\npool = \"a100\"\n\
                 parallelism = {parallelism}\nwait = {wait}\n\n[provisioning_request.{name}]\njob = \"{name}\"\nmax_run_duration = \"7d\"\n"
            );
        }
        let with = |ways: &str| {
            format!(
                "\n[node_pool.more]\nmachine_type = \"n2-standard-4\"\nnodes = 1\nreservation = {{ name = \"some\" }}\ncapacity = [\"on-demand\", {ways}]\n"
            )
        };
        let ladder = matches!(edited, Some(StackEdit::CapacityOrder));
        stack += &with(if ladder { "\"spot\", \"reservation\"" } else { "\"reservation\", \"spot\"" });
        match edited {
            None | Some(StackEdit::CapacityOrder) => {}
            Some(StackEdit::Project) => stack = stack.replace("\"demo\"", "\"other-team-prod\""),
            Some(StackEdit::Cluster) => stack = stack.replace("name = \"c\"", "name = \"d\""),
            Some(StackEdit::Id) => stack = stack.replace("\"s\"\n", "\"s\"\nid = \"other-id\"\n"),
            Some(StackEdit::Handed) => stack = stack.replace("beside]\n", "beside]\nmanage = false\n"),
            Some(StackEdit::Job) => stack = stack.replace("train.py", "again.py"),
        }
        Edit { stack, files: [].into() }
    }

    fn step(&self, event: Event) -> Step {
        let name = |job: usize| JOBS[job % self.jobs.len()];
        match event {
            Event::Machines(job, what) => {
                let name = name(job);
                let path =
                    format!("/apis/autoscaling.x-k8s.io/v1/namespaces/default/provisioningrequests/{name}");
                let annotations = json!({ "sandbox.dask-infra.dev/capacity": what });
                let body = json!({ "apiVersion": "autoscaling.x-k8s.io/v1", "kind": "ProvisioningRequest", "metadata": { "name": name, "annotations": annotations } });
                Step::Others(apply(&path, &body))
            }
            Event::Stop(job) => {
                let target = vec![format!("provisioning_request.{}", name(job))];
                Step::Stop(Command { target, process: 50, ..Command::default() })
            }
            Event::Apply => Step::Apply(Command { process: 50, ..Command::default() }),
            Event::Nothing => Step::Wait(Wait { seconds: 60 }),
            Event::Edit(edited) => Step::Edit(self.stack(Some(edited))),
        }
    }

    fn command(&self, kill: Option<Kill>) -> Step {
        let asleep = self.events.iter().map(|event| self.step(*event)).collect();
        Step::WhenCapacity(WhenCapacity { asleep, kill })
    }

    /// Judges a step. Returns whether the program died, and whether the file has changed.
    async fn judge(&self, player: &mut Player, step: &Step, tally: &Tally) -> Result<(bool, bool), String> {
        let agreed = player.stack.as_ref().unwrap().digest();
        let done = player.step(step).await;
        tally.step(step, &done);
        laws::deletions_are_named(player, step, &done)?;
        if let Some(other) = done.within.iter().find(|other| other.is_locked_out()) {
            return Err(format!("asleep it holds the lock: {:?}", other.refused));
        }
        let edited = player.file != self.stack(None);
        let stopped = done.refused.as_deref() == Some(EDITED);
        if edited != stopped || edited && agreed == player.stack.as_ref().unwrap().digest() {
            return Err(format!("edited: {edited}, and it ended with {:?}", done.refused));
        }
        if stopped {
            tally.count("ended by an edit");
            player.step(&Step::Edit(self.stack(None))).await;
        }
        Ok((done.died, edited))
    }
}

const BOOKED: &str = r#"
[node_pool.a100]
machine_type = "a2-highgpu-2g"
nodes = { min = 0, max = 8 }
queued = true
reservation = "none"
location_policy = "any"

[dask_operator]
version = "2026.3.0"

[dask_cluster.rapids]
image = "demo:1"
capacity = "queued"
max_run_duration = "7d"
scheduler = { pool = "cpu" }

[dask_cluster.rapids.worker]
gpus = 1
memory = "40Gi"
pool = "a100"
"#;

/// The number of workers that the file asks for, and where the apply dies.
type WorkerRequest = (u32, Option<Kill>);

/// Workers on nodes that are requested all at once: so many, then other numbers, and then they are stopped and started.
#[derive(Clone, Debug)]
struct RequestedWorkers {
    asked: Vec<WorkerRequest>,
    stop: Option<Kill>,
}

impl fmt::Display for RequestedWorkers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{self:#?}", workers_edit(self.asked[0].0).stack)
    }
}

fn workers_edit(workers: u32) -> Edit {
    Edit { stack: format!("{ON_GKE}{BOOKED}replicas = {workers}\n"), files: [].into() }
}

fn booked_case() -> impl Strategy<Value = RequestedWorkers> {
    let kill = |often| {
        let kill = (0..8usize, any::<bool>()).prop_map(|(write, after)| Kill { write, after });
        proptest::option::weighted(often, kill)
    };
    let asked = prop::collection::vec((1..9u32, kill(0.6)), 1..4);
    ((1..5u32).prop_map(|workers| (workers, None)), asked, kill(0.3)).prop_map(|(first, more, stop)| {
        RequestedWorkers { asked: std::iter::once(first).chain(more).collect(), stop }
    })
}

impl RequestedWorkers {
    fn steps(&self) -> Vec<Step> {
        let command = |kill| Command { kill, ..Command::default() };
        let asked = self
            .asked
            .iter()
            .flat_map(|(workers, kill)| [Step::Edit(workers_edit(*workers)), Step::Apply(command(*kill))]);
        let dies = self.stop.map(|kill| Step::Stop(command(Some(kill))));
        asked.chain(dies).chain([Step::Stop(command(None)), Step::Start(command(None))]).collect()
    }
}

/// Requests hold nodes, and nodes cost money.
#[test]
fn a_stop_leaves_no_request_for_nodes() {
    let tally = Tally::default();
    check("booked", 2, booked_case().boxed(), |case| {
        paused(async {
            let mut player = Player::new();
            for step in case.steps() {
                let done = player.step(&step).await;
                tally.step(&step, &done);
                laws::all(&mut player, &step, &done).await?;
                let is_over = matches!(step, Step::Stop(_)) && !done.died;
                let requests = done.after.things.values().filter(|thing| thing.kind == "ProvisioningRequest");
                let left: Vec<String> = requests.filter(|_| is_over).map(ToString::to_string).collect();
                if !left.is_empty() {
                    return Err(format!(
                        "stopped, and there is still {}: {:?}",
                        left.join(", "),
                        done.refused
                    ));
                }
            }
            Ok(())
        })
    });
    tally.demand(2, &["stop: done", "start: done"]);
}

fn started_player() -> Player {
    let scripts = Scripts { no_capacity: true, ..Scripts::default() };
    Player::with_harness(Harness::with(Options { scripts, ..Options::default() }))
}

#[test]
fn an_apply_that_stays_is_killed_and_typed_again() {
    let tally = Tally::default();
    check("when capacity", 2, case().boxed(), |case| {
        paused(async {
            let (mut calm, mut killed) = (started_player(), started_player());
            for player in [&mut calm, &mut killed] {
                let done = player.step(&Step::Edit(case.stack(None))).await;
                if let Some(why) = done.refused {
                    return Err(why);
                }
            }
            case.judge(&mut calm, &case.command(None), &tally).await?;
            let (died, _) = case.judge(&mut killed, &case.command(Some(case.kill)), &tally).await?;
            if died {
                case.judge(&mut killed, &case.command(None), &tally).await?;
                // Booked nodes expire after ten minutes and go after their seven days, here 34 minutes, and a killed command takes longer.
                for player in [&mut calm, &mut killed] {
                    player.step(&Step::Wait(Wait { seconds: 2700 })).await;
                }
            }
            differ(&calm, &killed).await.map_err(|why| format!("undisturbed and after a kill: {why}"))?;
            // In the end there are machines for all.
            let all = [0, 1].map(|job| case.step(Event::Machines(job, "there")));
            for player in [&mut calm, &mut killed] {
                let step = Step::WhenCapacity(WhenCapacity { asleep: all.to_vec(), kill: None });
                let done = player.step(&step).await;
                tally.step(&step, &done);
                laws::deletions_are_named(player, &step, &done)?;
            }
            differ(&calm, &killed).await.map_err(|why| format!("in the end: {why}"))
        })
    });
}
