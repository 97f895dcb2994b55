//! Work in queues: several works in one namespace, with the work of others beside them. Whatever is replaced, stopped, started or
//! deleted, no command waits for what stays.

use std::time::Duration;

use plan::Mode;
use proptest::prelude::*;
use sandbox::{Options, Scale};
use serde_json::{Value, json};

use super::cases::check;
use super::harness::{Harness, SCALE};
use super::laws::{self, Tally};
use super::player::{Player, paused, play};
use super::script::{Command, Edit, Others, Run, Script, Step};
use super::stacks::apply;
use crate::golden::root;

const CASES: u32 = 3;

const HEAD: &str = r#"[stack]
name = "team"

[gke]
project = "demo"
location = "us-central1-c"

[cluster]
name = "main"

[node_pool.system]
machine_type = "e2-standard-8"
nodes = 2

[node_pool.gpu]
machine_type = "n1-standard-4"
accelerator = "nvidia-tesla-t4"
nodes = 10

[dask_operator]
version = "2026.3.0"

[kueue]
manifest = "kueue.yaml"

[queue.research]
pool = "gpu"
"#;

/// The work in the queue.
#[derive(Clone, Debug, Default)]
struct QueuedWork {
    /// A number in the image of each of the two Dask clusters.
    images: [u32; 2],
    workers: [u32; 2],
    /// The number in the image of the first cluster's group, if it has one.
    group: Option<u32>,
    /// A DaskJob, and the number in its image.
    job: Option<u32>,
}

/// An event between two applies.
#[derive(Clone, Copy, Debug)]
enum Event {
    Image(usize),
    Workers(usize, u32),
    Group,
    NoGroup,
    Job,
    NoJob,
    /// Commands that leave the file as it is: of one work, or of all.
    Stop(Option<usize>),
    Start(Option<usize>),
    Replace(usize),
    Run,
}

/// The names of the first two works and the job.
const WORKS: [&str; 3] = ["dask_cluster.one", "dask_cluster.two", "dask_job.train"];

impl Event {
    /// The command that it is.
    fn command(self) -> Option<Step> {
        let of = |which: Option<usize>| Command {
            target: which.map(|which| WORKS[which].to_owned()).into_iter().collect(),
            ..Command::default()
        };
        match self {
            Self::Stop(which) => Some(Step::Stop(of(which))),
            Self::Start(which) => Some(Step::Start(of(which))),
            Self::Replace(which) => {
                let replace = vec![WORKS[which].to_owned()];
                Some(Step::Apply(Command { replace, ..Command::default() }))
            }
            Self::Run => Some(Step::Run(Run { section: WORKS[2].to_owned(), kill: None, within: None })),
            _ => None,
        }
    }
}

impl QueuedWork {
    fn apply_event(&mut self, event: Event) {
        match event {
            Event::Image(which) => self.images[which] += 1,
            Event::Workers(which, number) => self.workers[which] = number,
            Event::Group => self.group = Some(self.group.map_or(0, |image| image + 1)),
            Event::NoGroup => self.group = None,
            Event::Job => self.job = Some(self.job.map_or(0, |image| image + 1)),
            Event::NoJob => self.job = None,
            Event::Stop(_) | Event::Start(_) | Event::Replace(_) | Event::Run => {}
        }
    }

    fn render(&self) -> Edit {
        let pod = "scheduler = { pool = \"system\" }";
        let worker = |replicas| format!("worker = {{ replicas = {replicas}, gpus = 1, pool = \"gpu\" }}");
        let mut stack = HEAD.to_owned();
        for (place, name) in ["one", "two"].into_iter().enumerate() {
            let (image, worker) = (self.images[place], worker(self.workers[place]));
            stack += &format!(
                "\n[dask_cluster.{name}]\nimage = \"demo:{image}\"\nqueue = \"research\"\n{pod}\n{worker}\n"
            );
        }
        if let Some(image) = self.group {
            stack += &format!(
                "\n[dask_cluster.one.group.big]\nimage = \"demo:{image}\"\nreplicas = 1\ngpus = 1\npool = \"gpu\"\n"
            );
        }
        if let Some(image) = self.job {
            let worker = worker(1);
            stack += &format!(
                "\n[dask_job.train]\nimage = \"demo:{image}\"\nargs = [\"python\", \"-c\", \"pass\"]\nqueue = \"research\"\n{pod}\n{worker}\n"
            );
        }
        let kueue = std::fs::read_to_string(root().join("tests/data/kueue.yaml")).unwrap();
        Edit { stack, files: [("kueue.yaml".to_owned(), kueue)].into() }
    }
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => (0..2usize).prop_map(Event::Image),
        1 => (0..2usize, 1..3u32).prop_map(|(which, number)| Event::Workers(which, number)),
        3 => Just(Event::Group),
        1 => Just(Event::NoGroup),
        1 => Just(Event::Job),
        1 => Just(Event::NoJob),
    ]
}

/// A command; most are about one of the works, while the other one stays.
fn command() -> impl Strategy<Value = Event> {
    prop_oneof![
        2 => proptest::option::weighted(0.8, 0..3usize).prop_map(Event::Stop),
        2 => proptest::option::weighted(0.5, 0..3usize).prop_map(Event::Start),
        2 => (0..2usize).prop_map(Event::Replace),
        1 => Just(Event::Run),
    ]
}

/// Work of others in the namespace of ours: a pod and a Job in the queue.
fn of_others() -> Vec<Others> {
    let labels = json!({ "kueue.x-k8s.io/queue-name": "research" });
    let pod = json!({ "containers": [{ "name": "c", "image": "demo:1" }], "restartPolicy": "Never" });
    let object = |api: &str, kind: &str, labels: &Value, spec: Value| json!({ "apiVersion": api, "kind": kind, "metadata": { "name": "theirs", "labels": labels }, "spec": spec });
    let job = json!({ "suspend": true, "template": { "spec": pod } });
    let namespace = "namespaces/default";
    vec![
        apply(&format!("/api/v1/{namespace}/pods/theirs"), &object("v1", "Pod", &labels, pod)),
        apply(&format!("/apis/batch/v1/{namespace}/jobs/theirs"), &object("batch/v1", "Job", &labels, job)),
    ]
}

fn script() -> impl Strategy<Value = Script> {
    let others = prop::sample::subsequence(of_others(), 1..=2);
    let round = (prop::collection::vec(event(), 0..3), prop::collection::vec(command(), 0..3));
    let rounds = prop::collection::vec(round, 1..3);
    (any::<bool>(), any::<bool>(), others, rounds).prop_map(|(group, job, others, rounds)| {
        let (group, job) = (group.then_some(0), job.then_some(0));
        let mut works = QueuedWork { workers: [1, 1], group, job, ..QueuedWork::default() };
        let mut steps = vec![Step::Edit(works.render()), Step::Apply(Command::default())];
        steps.extend(others.into_iter().map(Step::Others));
        for (edits, commands) in rounds {
            if !edits.is_empty() {
                edits.into_iter().for_each(|event| works.apply_event(event));
                steps.push(Step::Edit(works.render()));
                steps.push(Step::Apply(Command::default()));
            }
            steps.extend(commands.into_iter().filter_map(Event::command));
        }
        Script { steps, ..Script::default() }
    })
}

#[test]
fn work_in_a_queue_is_replaced_beside_other_work() {
    let tally = Tally::default();
    check("queued", CASES, script().boxed(), |script| {
        play(script, async |player, step, done| {
            tally.step(step, done);
            if let Step::Others(_) = step
                && let Some(why) = &done.refused
            {
                return Err(format!("others are refused: {why}"));
            }
            laws::all(player, step, done).await
        })
    });
}

/// A ClusterQueue whose flavor nobody makes.
const NO_FLAVOR: &str = r#"
apiVersion: kueue.x-k8s.io/v1beta2
kind: ClusterQueue
metadata: { name: team-a }
spec:
  namespaceSelector: {}
  resourceGroups:
    - coveredResources: [cpu]
      flavors: [{ name: spot, resources: [{ name: cpu, nominalQuota: "12" }] }]
"#;

/// At 600 times the speed Kueue has answered before the first look at the queue; at twenty times it has not.
#[test]
fn a_queue_that_kueue_calls_inactive_was_never_ready() {
    [SCALE, Scale { time_scale: 20.0 }].into_iter().for_each(inactive_queue);
}

fn inactive_queue(scale: Scale) {
    paused(async {
        let mut player = Player::with_harness(Harness::at_scale(scale, Options::default()));
        let mut edit = QueuedWork { workers: [1, 1], ..QueuedWork::default() }.render();
        let (head, _) = edit.stack.split_once("\n[dask_cluster.one]").unwrap();
        edit.stack = format!("{head}\n[manifest.q]\nfile = \"q.yaml\"\n");
        edit.files.insert("q.yaml".to_owned(), NO_FLAVOR.to_owned());
        player.step(&Step::Edit(edit)).await;
        let done = player.step(&Step::Apply(Command::default())).await;
        let failures = done.failures().join("; ");
        assert!(failures.contains("TimedOut") && failures.contains("FlavorNotFound"), "{failures}");
        // Five minutes, and the look that ends them, after the cluster.
        let cluster = Duration::from_secs_f64(600.0 / scale.time_scale);
        assert!(done.took < Duration::from_secs(310) + cluster, "{:?}", done.took);
        let plan = player.harness.plan(player.stack.as_ref().unwrap(), Mode::Apply).await.unwrap();
        let queue = plan.changes.iter().find(|change| change.address.as_str().contains("team-a")).unwrap();
        assert!(queue.is_waited_for(), "the next apply waits for what was never ready");
    });
}
