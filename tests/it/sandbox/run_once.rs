//! Run-once resources are created once: whatever else is applied, excluded, scaled, renamed, killed, or lost.

use std::fmt;
use std::time::{Duration, Instant};

use apply::Outcome;
use live::Request;
use model::resource::{self, Api, KindId};
use plan::Mode;
use proptest::prelude::*;
use sandbox::faults::{DryRuns, FaultEffect, Rule};
use serde_json::Value;

use crate::props::cases::check;
use crate::props::harness::{Harness, Injection, InjectionPoint, Stack};
use crate::props::player::{Player, paused};
use crate::props::script::{Approvals, Command, Edit, Kill, Others, Scale, Step};
use crate::props::snapshot::Snapshot;
use crate::sandbox_server::{SandboxServer, User};

/// A thing that is made once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunOnceResource {
    /// A job, whose object may go after its end.
    Job,
    /// A Dask cluster that the operator deletes when it is idle.
    IdleCluster,
}

impl RunOnceResource {
    fn section(self) -> &'static str {
        match self {
            Self::Job => "dask_job",
            Self::IdleCluster => "dask_cluster",
        }
    }

    fn path(self) -> &'static str {
        match self {
            Self::Job => JOB,
            Self::IdleCluster => "/apis/kubernetes.dask.org/v1/namespaces/default/daskclusters/train",
        }
    }

    /// Returns the plan's text about one that is gone.
    fn gone(self) -> &'static str {
        match self {
            Self::Job => "the job has run and was deleted",
            Self::IdleCluster => "and the operator deletes it",
        }
    }

    fn stack(self, key: &str, text: &str, labels: &str) -> String {
        let what = match self {
            Self::Job => format!("args = [\"python\", \"{text}\"]"),
            // The part that distinguishes two texts is an argument here, too.
            Self::IdleCluster => {
                format!("idle_timeout = 3600\nscheduler = {{ env = {{ TEXT = \"{text}\" }} }}")
            }
        };
        format!(
            "[stack]\nname = \"s\"\n\n[gke]\nproject = \"demo\"\nlocation = \"us-central1-c\"\n\n[cluster]\nname = \"c\"\n\n\
             [node_pool.cpu]\nmachine_type = \"e2-standard-8\"\nnodes = 1\n\n[namespace.team]\n{labels}\n\
             [dask_operator]\nversion = \"2026.3.0\"\n\n\
             [{}.{key}]\nname = \"train\"\nimage = \"demo:1\"\n{what}\n\
             worker = {{ replicas = 1, cpu = \"100m\" }}\n",
            self.section()
        )
    }
}

const JOB: &str = "/apis/kubernetes.dask.org/v1/namespaces/default/daskjobs/train";
const RECORD: &str = "/api/v1/namespaces/dask-infra/configmaps/dask-infra-s";

fn write(user: &User, text: &str) {
    user.write(text);
}

/// A step between the end of a run-once resource and the next plan.
type Disturbance = (&'static str, fn(RunOnceResource, &User));

const HARMLESS: &[Disturbance] = &[
    ("a part", |made, user| {
        write(user, &made.stack("train", "a.py", "labels = { of = \"x\" }\n"));
        user.run(&["apply", "--auto-approve", "--target", "namespace.team"]).expect(0).says("1 changed");
    }),
    ("all but it", |made, user| {
        write(user, &made.stack("train", "a.py", "labels = { of = \"y\" }\n"));
        let address = format!("{}.train", made.section());
        user.run(&["apply", "--auto-approve", "--exclude", &address]).expect(0).says("1 changed");
    }),
    ("a number", |_, user| {
        user.run(&["scale", "node_pool.cpu", "2", "--auto-approve"]).expect(0);
        user.run(&["apply", "--auto-approve"]).expect(0);
    }),
    ("another spelling", |made, user| {
        let text = made.stack("train", "a.py", "labels = { of = \"y\" }\n");
        write(user, &text.replace("replicas = 1, cpu = \"100m\"", "cpu = \"0.1\", replicas = 1"));
        user.run(&["apply", "--auto-approve"]).expect(0);
    }),
    ("another key", |made, user| {
        write(user, &made.stack("learn", "a.py", "labels = { of = \"z\" }\n"));
        user.run(&["apply", "--auto-approve"]).expect(0).says("1 changed");
    }),
];

#[test]
fn a_job_that_has_run_does_not_run_again_by_itself() {
    is_not_made_again_by_itself(RunOnceResource::Job);
}

#[test]
fn a_cluster_that_went_when_it_was_idle_does_not_come_back_by_itself() {
    is_not_made_again_by_itself(RunOnceResource::IdleCluster);
}

fn is_not_made_again_by_itself(made: RunOnceResource) {
    let served = SandboxServer::fast();
    let user = User::empty_at(&served.gke);
    let goes = || {
        assert_eq!(served.delete(made.path()), 200);
        // The operator takes its finalizer off.
        let last = Instant::now() + Duration::from_secs(60);
        while served.code(made.path()) != 404 {
            assert!(Instant::now() < last, "{} is still there", made.path());
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    write(&user, &made.stack("train", "a.py", ""));
    user.run(&["apply", "--auto-approve"]).expect(0);
    goes();
    for (what, between) in HARMLESS {
        between(made, &user);
        user.run(&["plan", "--detailed-exitcode"]).expect(0).says(made.gone());
        assert_eq!(served.code(made.path()), 404, "{what}");
    }
    // Nobody knows any more: it asks.
    let allow = format!("replace:{}.learn", made.section());
    assert_eq!(served.delete(RECORD), 200);
    user.run(&["apply", "--auto-approve"])
        .expect(3)
        .says(&format!("--allow {allow}"))
        .says("may have run before");
    assert_eq!(served.code(made.path()), 404);
    user.run(&["apply", "--auto-approve", "--allow", &allow]).expect(0).says("1 replaced");
    user.run(&["plan", "--detailed-exitcode"]).expect(0);
    // A new text is a new one.
    goes();
    write(&user, &made.stack("learn", "b.py", "labels = { of = \"z\" }\n"));
    user.run(&["apply", "--auto-approve"]).expect(0).says("1 added");
}

#[test]
fn a_damaged_record_runs_nothing_again() {
    let served = SandboxServer::fast();
    let user = User::empty_at(&served.gke);
    write(&user, &RunOnceResource::Job.stack("train", "a.py", ""));
    user.run(&["apply", "--auto-approve"]).expect(0);
    assert_eq!(served.delete(JOB), 200);
    let damaged = serde_json::json!({ "binaryData": { "record": "AAAA" } });
    assert_eq!(served.merge(RECORD, &damaged).0, 200);
    for words in [
        &["plan"][..],
        &["apply", "--auto-approve"],
        &["apply", "--auto-approve", "--allow", "replace:dask_job.train"],
        &["destroy", "--auto-approve"],
        &["scale", "node_pool.cpu", "2", "--auto-approve"],
    ] {
        user.run(words).expect(1).says("the record of stack s cannot be used").says("kubectl");
        assert_eq!(served.code(JOB), 404, "{words:?}");
    }
    assert_eq!(served.sandbox.clusters().len(), 1);
    // As the message says: without it nobody knows whether the job has run, so it asks.
    assert_eq!(served.delete(RECORD), 200);
    user.run(&["apply", "--auto-approve"]).expect(3).says("--allow replace:dask_job.train");
    assert_eq!(served.code(JOB), 404);
    user.run(&["destroy", "--auto-approve"]).expect(0);
    assert!(served.sandbox.clusters().is_empty());
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Apply,
    Team,
    AllButJob,
    Scale(u32),
    Key,
    Text,
    Spelling,
    Labels,
    Killed(usize, bool),
    JobGoes,
    RecordGoes,
}

#[derive(Clone, Debug)]
struct Case(Vec<Event>);

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => Just(Event::Apply),
        1 => Just(Event::Team),
        1 => Just(Event::AllButJob),
        1 => (1..3u32).prop_map(Event::Scale),
        1 => Just(Event::Key),
        1 => Just(Event::Text),
        2 => Just(Event::Spelling),
        2 => Just(Event::Labels),
        2 => (0..6usize, any::<bool>()).prop_map(|(write, after)| Event::Killed(write, after)),
        3 => Just(Event::JobGoes),
        1 => Just(Event::RecordGoes),
    ]
}

/// Jobs of the name that were there, by uid.
fn jobs(snapshot: &Snapshot) -> impl Iterator<Item = &String> {
    snapshot.things.iter().filter(|(_, thing)| thing.kind == "DaskJob").map(|(uid, _)| uid)
}

#[test]
fn a_job_is_made_once_for_each_of_its_texts() {
    let cases = prop::collection::vec(event(), 2..9).prop_map(Case).boxed();
    check("once", 12, cases, is_made_once);
}

#[test]
fn what_a_lost_record_knew_is_asked_for_after_an_apply_of_a_part() {
    // Found by the property above.
    is_made_once(&Case(vec![Event::RecordGoes, Event::Team, Event::JobGoes, Event::Apply])).unwrap();
}

fn is_made_once(Case(events): &Case) -> Result<(), String> {
    paused(async {
        let mut player = Player::new();
        let (mut key, mut text, mut spelling, mut labels) = (0, 0, 0, 0);
        let mut made = std::collections::BTreeSet::new();
        let mut texts = std::collections::BTreeSet::new();
        let others = |method: &str, path: &str| Step::Others(Others::request(method, path, &Value::Null));
        let quiet = Command { approval: Approvals::Nothing, ..Command::default() };
        for event in [Event::Apply].iter().chain(events) {
            match event {
                Event::Key => key += 1,
                Event::Text => text += 1,
                Event::Spelling => spelling += 1,
                Event::Labels => labels += 1,
                _ => {}
            }
            let (key, text) = (["train", "learn"][key % 2], format!("{text}.py"));
            let file = RunOnceResource::Job.stack(key, &text, &format!("labels = {{ of = \"{labels}\" }}\n"));
            let file = file.replace("100m", ["100m", "0.1", "100000u"][spelling % 3]);
            let step = match event {
                Event::Apply => Step::Apply(quiet.clone()),
                Event::Team => {
                    Step::Apply(Command { target: vec!["namespace.team".into()], ..quiet.clone() })
                }
                Event::AllButJob => {
                    Step::Apply(Command { exclude: vec![format!("dask_job.{key}")], ..quiet.clone() })
                }
                Event::Scale(number) => Step::Scale(Scale {
                    address: "node_pool.cpu".into(),
                    number: *number,
                    kill: None,
                    within: None,
                }),
                Event::Killed(write, after) => {
                    let kill = Some(Kill { write: *write, after: *after });
                    Step::Apply(Command { kill, process: 1, ..quiet.clone() })
                }
                Event::JobGoes => others("DELETE", JOB),
                Event::RecordGoes => others("DELETE", RECORD),
                Event::Key | Event::Text | Event::Spelling | Event::Labels => continue,
            };
            texts.insert(text);
            player.step(&Step::Edit(Edit { stack: file, files: Default::default() })).await;
            let done = player.step(&step).await;
            made.extend(jobs(&done.after).cloned());
            if made.len() > texts.len() {
                return Err(format!("{} runs of {} texts after {event:?}", made.len(), texts.len()));
            }
        }
        Ok(())
    })
}

/// An amount in one of its spellings: of thousandths of a CPU, and of mebibytes.
fn spell_amounts(cpu: u64, memory: u64, how: usize) -> (String, String) {
    let whole =
        if memory.is_multiple_of(1024) { format!("{}Gi", memory / 1024) } else { format!("{memory}Mi") };
    match how {
        0 => (format!("{cpu}m"), format!("{memory}Mi")),
        1 => (format!("{}u", cpu * 1000), format!("{}Ki", memory << 10)),
        2 => (format!("{}.{:03}", cpu / 1000, cpu % 1000), format!("{}", memory << 20)),
        _ => (format!("{cpu}e-3"), whole),
    }
}

/// The digest of a job that asks for so much, spelled so.
fn digest_of((cpu, memory): (u64, u64), how: usize) -> String {
    let (cpu, memory) = spell_amounts(cpu, memory, how);
    let keys = [format!("cpu = \"{cpu}\""), format!("memory = \"{memory}\""), "replicas = 1".to_owned()];
    let keys = [&keys[how % 3..], &keys[..how % 3]].concat().join(", ");
    let text = RunOnceResource::Job
        .stack("train", "a.py", "")
        .replace("worker = { replicas = 1, cpu = \"100m\" }", &format!("worker = {{ {keys} }}"))
        .replace("image = \"demo:1\"", &format!("image = \"demo:1\"\nscheduler = {{ cpu = \"{cpu}\" }}"));
    let stack = Stack::of(&text);
    let job = stack.resources().iter().find(|resource| resource.kind == KindId::DaskJob);
    kinds::kubernetes::once_digest::digest(job.unwrap())
}

#[derive(Clone, Debug)]
struct Spellings {
    one: (u64, u64),
    other: (u64, u64),
    how: [usize; 2],
}

impl fmt::Display for Spellings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

#[test]
fn however_a_job_is_spelled_it_is_the_same_job() {
    let amount = || (1..4000_u64, prop_oneof![1..9000_u64, (1..9_u64).prop_map(|gibi| gibi << 10)]);
    let cases = (amount(), amount(), [0..4_usize, 0..4_usize])
        .prop_map(|(one, other, how)| Spellings { one, other, how })
        .boxed();
    check("spelled otherwise", 60, cases, |Spellings { one, other, how: [left, right] }| {
        let (here, there) = (digest_of(*one, *left), digest_of(*one, *right));
        let another = digest_of(*other, *right);
        if here != there {
            return Err(format!("one job has two digests, {here} and {there}"));
        }
        ((one == other) == (here == another)).then_some(()).ok_or("two jobs have one digest".to_owned())
    });
}

/// A check with an image of its own or, when that is empty, its usual one; or no check.
fn stack_with_check(image: Option<&str>) -> Stack {
    let check = image.map_or(String::new(), |image| {
        let image = if image.is_empty() { String::new() } else { format!("image = \"{image}\"\n") };
        format!("[check.cuda]\nrun = \"cuda-vectoradd\"\npool = \"gpu\"\n{image}")
    });
    Stack::of(&format!(
        "[stack]\nname = \"s\"\n\n[gke]\nproject = \"demo\"\nlocation = \"us-central1-c\"\n\n[cluster]\nname = \"c\"\n\n\
         [node_pool.cpu]\nmachine_type = \"e2-standard-4\"\n\n[node_pool.gpu]\nmachine_type = \"n1-standard-4\"\n\
         accelerator = \"nvidia-tesla-t4\"\n\n[namespace.team]\n\n{check}"
    ))
}

#[tokio::test(start_paused = true)]
async fn the_pod_of_a_check_that_was_cut_short_goes_with_the_next_apply() {
    for next in [Some(""), None] {
        let (first, harness) = (stack_with_check(Some("demo:1")), Harness::new());
        let check = first.resources().iter().find(|resource| resource.kind == KindId::Check);
        let pod = kinds::dask::check::pod(&check.unwrap().body).path();
        let (method, path) = ("PATCH".to_owned(), pod.clone());
        let moment = InjectionPoint::At { method, path, skip: 0, turn: Injection::DeathAfter };
        let plan = harness.plan(&first, Mode::Apply).await.unwrap();
        harness.apply(&first, &plan, Vec::new(), Some(moment)).await;
        let read_pod = || Request::get(Api::Kubernetes, pod.clone());
        harness.try_kubernetes(&first, read_pod()).await.expect("it was left behind");

        let second = stack_with_check(next);
        let plan = harness.plan(&second, Mode::Apply).await.unwrap();
        assert_eq!(plan.missing_approvals(&[]), [], "nothing of anybody is in it");
        let ended = harness.apply(&second, &plan, Vec::new(), None).await;
        assert!(harness.try_kubernetes(&second, read_pod()).await.is_err(), "{next:?}");
        // It holds the GPU that the next run asks for, so it goes before.
        if let Some(check) = second.resources().iter().find(|resource| resource.kind == KindId::Check) {
            let again = kinds::dask::check::pod(&check.body).path();
            let at = |method: resource::Method, path: &String| {
                let sent =
                    |asked: &Request| asked.method == method && asked.path.split('?').next() == Some(path);
                ended.asked.iter().position(sent)
            };
            let (gone, made) = (at(resource::Method::Delete, &pod), at(resource::Method::Patch, &again));
            assert!(gone.is_some() && gone < made, "{next:?}: {gone:?} {made:?}");
        }
        let plan = harness.plan(&second, Mode::Apply).await.unwrap();
        assert!(plan.is_empty(), "{plan:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_pod_of_a_check_is_taken_as_it_is_when_its_apply_is_not_sure_of_it() {
    let stack = stack_with_check(Some(""));
    let check = stack.resources().iter().find(|resource| resource.kind == KindId::Check);
    let pod = kinds::dask::check::pod(&check.unwrap().body).path();
    let at = |turn| InjectionPoint::At { method: "PATCH".to_owned(), path: pod.clone(), skip: 0, turn };
    let lost = Rule {
        method: Some("PATCH".to_owned()),
        path: pod.clone(),
        dry_run: DryRuns::Never,
        skip: 0,
        times: Some(1),
        delay: Duration::ZERO,
        then: FaultEffect::LoseAnswer,
    };
    for (what, rules, moment) in
        [("killed", Vec::new(), Some(at(Injection::DeathAfter))), ("answer lost", vec![lost], None)]
    {
        let harness = Harness::new();
        let plan = harness.plan(&stack, Mode::Apply).await.unwrap();
        let killed = moment.is_some();
        let mut ended = harness.apply(&stack, &plan, rules, moment).await;
        if killed {
            let left = Request::get(Api::Kubernetes, pod.clone());
            harness.try_kubernetes(&stack, left).await.expect("it was left behind");
            let plan = harness.plan(&stack, Mode::Apply).await.unwrap();
            ended = harness.apply(&stack, &plan, Vec::new(), None).await;
        }
        let outcomes = ended.summary.unwrap().outcomes;
        assert!(outcomes.iter().all(|(_, outcome, _)| *outcome == Outcome::Done), "{what}: {outcomes:?}");
        let of_pod = ended.asked.iter().filter(|asked| asked.path.split('?').next() == Some(&pod));
        let sent: Vec<_> = of_pod.filter(|asked| asked.method != resource::Method::Get).collect();
        let made = |asked: &&Request| {
            let body = asked.body.as_ref().unwrap();
            asked.method == resource::Method::Patch
                && body["metadata"]["resourceVersion"] == kinds::kubernetes::calls::ABSENT
        };
        let (last, before) = sent.split_last().unwrap();
        assert_eq!(last.method, resource::Method::Delete, "{what}: {sent:?}");
        assert!(!before.is_empty() && before.iter().all(made), "{what}: {sent:?}");
        assert!(harness.plan(&stack, Mode::Apply).await.unwrap().is_empty(), "{what}");
    }
}
