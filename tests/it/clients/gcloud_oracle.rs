//! gcloud as an oracle: what a stack and a gcloud command of the same meaning send must be the same requests.
//!
//! `gcloud_oracle/intents.toml` has the intents: a stack before and after, and the command. What the real gcloud sends for it to a
//! logging end on loopback is recorded in `gcloud_oracle/requests.json`; the stack is planned against the same world. What differs
//! stands in `gcloud_oracle/differences.toml`, in classes with a reason; that list may only shrink.

#![allow(clippy::unwrap_used, reason = "test code outside of test functions")]

mod differences;
mod fake_gke;
mod intents;
mod terraform;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{LazyLock, Mutex};

pub use differences::fields;
use differences::{Difference, KnownDifferences};
use fake_gke::FakeGke;
pub use intents::writes;
use intents::{Intent, IntentPlan};
use plan::Plan;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::clients::gcloud::{Gcloud, WORKERS};
use crate::control_plane::contract::fits;
use crate::golden::root;
use crate::sandbox_server::on_path;

/// Fewer would be a loss.
const LEAST_INTENTS: usize = 80;

/// How many intents are also said by a gcloud that is not preloaded.
const COMPARED_WITH_ALONE: usize = 8;

/// A write to the GKE API.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Request {
    pub method: String,
    /// Below the location: `clusters/c/nodePools/n:setSize`.
    pub path: String,
    pub body: Value,
}

impl Request {
    fn new(method: &str, path: &str, body: Value) -> Self {
        let below = path.split_once("/locations/").and_then(|(_, rest)| rest.split_once('/'));
        let path = below.map_or(path, |(_, rest)| rest).to_owned();
        Self { method: method.to_owned(), path, body }
    }
}

/// The intents with the cluster that is there before and the plan, once for all tests.
static PLANNED: LazyLock<Vec<(Intent, IntentPlan)>> =
    LazyLock::new(|| planned(include_str!("gcloud_oracle/intents.toml")));

fn planned(text: &str) -> Vec<(Intent, IntentPlan)> {
    intents::all(text).into_iter().map(Intent::planned).collect()
}

/// The plans of all intents, each with its name.
pub fn planned_intents() -> impl Iterator<Item = (String, &'static Plan)> {
    PLANNED.iter().chain(terraform::PLANNED.iter()).map(|(intent, made)| {
        let made = made.as_ref().unwrap_or_else(|why| panic!("{}: {why}", intent.name));
        (intent.name.clone(), &made.1)
    })
}

/// Differences, and the classes of requests that are others.
type Comparison<'k> = Result<(Vec<Difference>, Vec<&'k str>), String>;

/// The recordings, by the name of the first intent with its command.
type Recorded = BTreeMap<String, Recording>;

/// The requests of gcloud for an intent.
#[derive(Debug, PartialEq, Deserialize, Serialize)]
struct Recording {
    /// The digest of the command and of the cluster that is there before.
    asked: String,
    requests: Vec<Request>,
}

/// Returns the digest of what an intent asks of gcloud.
fn asked(intent: &Intent, before: &Option<Value>) -> String {
    let files: Vec<_> = intent.files.iter().collect();
    let asked = format!("{} {files:?} {before:?}", intent.words("FILES"));
    blake3::hash(asked.as_bytes()).to_hex()[..16].to_owned()
}

fn recorded() -> Recorded {
    serde_json::from_str(include_str!("gcloud_oracle/requests.json")).unwrap()
}

/// Returns the intents, those with one command, as stated and by keys, together.
fn by_command<'t>(
    intents: &'t [&'t (Intent, IntentPlan)],
) -> impl Iterator<Item = &'t [&'t (Intent, IntentPlan)]> {
    intents.chunk_by(|(first, _), (next, _)| next.says_by_key(first))
}

/// Compares the requests of both for an intent.
fn compare<'k>(
    (intent, made): &(Intent, IntentPlan),
    theirs: &[Request],
    known: &'k KnownDifferences,
) -> Comparison<'k> {
    let (before, plan) = made.as_ref().map_err(Clone::clone)?;
    let (theirs, classes) = known.translated(theirs);
    let ours = writes(plan, before.as_ref());
    Ok((differences::compare(&intent.name, &ours, &theirs, "gcloud"), classes))
}

fn sent_by_gcloud(intent: &Intent, before: &Option<Value>) -> Result<Vec<Request>, String> {
    let gke = FakeGke::start(before.clone());
    let gcloud = Gcloud::new(&gke.url, "p");
    let (code, said) = gcloud.run(&intent.command(gcloud.folder()));
    let theirs = gke.requests();
    match (code, theirs.is_empty()) {
        (0, false) => Ok(theirs),
        (0, true) => Err(format!("gcloud wrote nothing:\n{said}")),
        (code, _) => Err(format!("gcloud ended with {code}:\n{said}")),
    }
}

/// The results of the intents.
#[derive(Default)]
struct Tally<'t> {
    equal: usize,
    /// How many places differ as is known.
    places: usize,
    /// The intents of each class.
    classes: BTreeMap<&'t str, BTreeSet<&'t str>>,
    /// Patterns and classes that nothing needed yet.
    idle: BTreeSet<(&'t str, &'t str)>,
    wrong: Vec<String>,
}

impl<'t> Tally<'t> {
    fn new(known: &'t KnownDifferences) -> Self {
        let others = known.others().into_iter().map(|class| (class, "instead"));
        Self { idle: known.patterns().into_iter().chain(others).collect(), ..Self::default() }
    }

    fn add(
        &mut self,
        intent: &'t str,
        known: &'t KnownDifferences,
        found: &[Difference],
        others: &[&'t str],
    ) {
        self.equal += usize::from(found.is_empty() && others.is_empty());
        self.places += others.len();
        for class in others {
            self.classes.entry(class).or_default().insert(intent);
            self.idle.remove(&(*class, "instead"));
        }
        for difference in found {
            match known.class(&difference.place) {
                Some(class) => {
                    self.places += 1;
                    self.classes.entry(&class.name).or_default().insert(intent);
                }
                None => self.wrong.push(difference.to_string()),
            }
            self.idle.retain(|(_, pattern)| !fits(pattern, &difference.place));
        }
    }

    /// Checks the totals; the list of known differences may only shrink. `whole`: nothing was left out.
    fn conclude(self, intents: usize, known: &KnownDifferences, list: &str, whole: bool) {
        let Self { equal, places, classes, idle, mut wrong } = self;
        println!("{intents} intents, {equal} equal, {places} known differences:");
        for (class, intents) in &classes {
            println!("{:4} intents  {class}", intents.len());
        }
        if whole {
            wrong.extend(
                idle.iter()
                    .map(|(class, at)| format!("`{at}` ({class}) no longer differs: take it off {list}")),
            );
        }
        assert!(wrong.is_empty(), "{} things are wrong:\n{}", wrong.len(), wrong.join("\n"));
        assert!(!whole || places == known.most, "{list}: `most` is {places} now");
    }
}

/// `DASK_INFRA_INTENT=WORD` takes the intents whose name holds the word.
#[test]
fn a_plan_sends_what_gcloud_sends_for_the_same_intent() {
    assert!(PLANNED.len() >= LEAST_INTENTS, "{} intents", PLANNED.len());
    let word = std::env::var("DASK_INFRA_INTENT").unwrap_or_default();
    let intents: Vec<_> = PLANNED.iter().filter(|(intent, _)| intent.name.contains(&word)).collect();
    let known = KnownDifferences::read(include_str!("gcloud_oracle/differences.toml"));
    let (mut recorded, mut tally) = (recorded(), Tally::new(&known));
    for said in by_command(&intents) {
        let (intent, made) = said[0];
        let theirs = recorded.remove(&intent.name);
        let theirs = theirs.unwrap_or_else(|| panic!("{} is not recorded: {UPDATE}", intent.name));
        if let Ok((before, _)) = made {
            assert_eq!(
                theirs.asked,
                asked(intent, before),
                "{}: another command or world: {UPDATE}",
                intent.name
            );
        }
        for one in said {
            match compare(one, &theirs.requests, &known) {
                Ok((found, others)) => tally.add(&one.0.name, &known, &found, &others),
                Err(why) => tally.wrong.push(format!("{}: {why}", one.0.name)),
            }
        }
    }
    assert!(!word.is_empty() || recorded.is_empty(), "no longer intents: {:?}: {UPDATE}", recorded.keys());
    tally.conclude(intents.len(), &known, "differences.toml", word.is_empty());
}

const UPDATE: &str = "UPDATE_GOLDEN=1 records it, with the nightly test of what gcloud sends";

#[test]
#[ignore = "nightly: a_plan_sends_what_gcloud_sends_for_the_same_intent runs on every change, with what is recorded here"]
fn gcloud_sends_what_is_recorded() {
    if !on_path("gcloud", "--version") {
        let required = std::env::var_os("DASK_INFRA_REQUIRE_REAL").is_some_and(|value| value == "1");
        assert!(!required, "DASK_INFRA_REQUIRE_REAL=1 allows no skip");
        return;
    }
    let intents: Vec<_> = PLANNED.iter().collect();
    let (left, sent) = (Mutex::new(by_command(&intents)), Mutex::new(Recorded::new()));
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                loop {
                    let Some(said) = left.lock().unwrap().next() else { break };
                    let (intent, made) = said[0];
                    let (before, _) = made.as_ref().unwrap_or_else(|why| panic!("{}: {why}", intent.name));
                    let requests = sent_by_gcloud(intent, before);
                    let requests = requests.unwrap_or_else(|why| panic!("{}: {why}", intent.name));
                    let recording = Recording { asked: asked(intent, before), requests };
                    sent.lock().unwrap().insert(intent.name.clone(), recording);
                }
            });
        }
    });
    let sent = sent.into_inner().unwrap();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let lines = sent.iter().map(|(name, requests)| {
            format!("{}: {}", Value::from(name.as_str()), serde_json::to_string(requests).unwrap())
        });
        let text = format!("{{\n{}\n}}\n", lines.collect::<Vec<_>>().join(",\n"));
        std::fs::write(root().join("tests/it/clients/gcloud_oracle/requests.json"), text).unwrap();
        return;
    }
    let recorded = recorded();
    for (name, recording) in &sent {
        assert_eq!(Some(recording), recorded.get(name), "{name}: {UPDATE}");
    }
}

/// A preloaded gcloud is gcloud: what it says and sends is that of a process of its own.
#[test]
#[ignore = "nightly: a_plan_sends_what_gcloud_sends_for_the_same_intent runs on every change"]
fn a_preloaded_gcloud_says_and_sends_the_same() {
    if !on_path("gcloud", "--version") {
        return;
    }
    // Of clusters and pools, good and bad: every kind of end that a command has.
    let every = PLANNED.len() / COMPARED_WITH_ALONE;
    let intents = PLANNED.iter().step_by(every).filter_map(|(intent, made)| {
        let (before, _) = made.as_ref().ok()?;
        Some((before.clone(), Some(intent), String::new()))
    });
    let others = [
        "container clusters list --format=json(name,status)",
        "container clusters describe absent --zone us-central1-c",
        "container clusters create",
        "container get-server-config --zone us-central1-c --format=json",
        "config list --format=json",
    ];
    let others = others.map(|words| (None, None, words.to_owned()));
    for (before, intent, words) in intents.chain(others) {
        let ran = |run: fn(&Gcloud, &str) -> (i32, String)| {
            let gke = FakeGke::start(before.clone());
            let gcloud = Gcloud::new(&gke.url, "p");
            let words = intent.map_or_else(|| words.clone(), |intent| intent.command(gcloud.folder()));
            let (code, said) = run(&gcloud, &words);
            let folder = gcloud.folder().display().to_string();
            (code, said.replace(&gke.url, "URL").replace(&folder, "FOLDER"), gke.requests())
        };
        let what = intent.map_or(&words, |intent| &intent.name);
        assert_eq!(ran(Gcloud::run), ran(Gcloud::run_alone), "{what}");
    }
}
