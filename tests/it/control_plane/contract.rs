//! One contract, two servers: the requests of `tests/contract/*.http` go to the sandbox's Kubernetes API and
//! to a real API server, and the answers are compared field by field.
//!
//! Answers of the real one are recorded, so the sandbox is judged without it, too. Differences of the sandbox
//! are in `tests/contract/known-differences.toml`, with a reason; that list may only shrink.

#![allow(clippy::unwrap_used, reason = "test code outside of test functions")]

mod clients;
pub mod normalizer;
mod script;
mod server;
mod shapes;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value;

use crate::golden::{golden, root};
use crate::real::{Part, needs};
use script::Case;
use server::Answers;

/// Fewer cases would be a loss.
const LEAST_CASES: usize = 200;

/// `tests/contract/known-differences.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KnownDifferences {
    /// How many places may differ in all. Lower it with every fix.
    most: usize,
    #[serde(default)]
    class: Vec<Class>,
}

/// Differences with one reason.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Class {
    name: String,
    /// Why the sandbox may answer so.
    reason: String,
    /// `CASE STEP POINTER`; `*` stands for any text.
    at: Vec<String>,
}

fn folder() -> PathBuf {
    root().join("tests/contract")
}

/// A group's answers, a step a line.
fn written(cases: &[Case], group: &str, answers: &Answers) -> String {
    let mut text = "{\n".to_owned();
    let mine: Vec<&Case> = cases.iter().filter(|case| case.group == group).collect();
    for (index, case) in mine.iter().enumerate() {
        let steps: Vec<String> = answers[&case.name].iter().map(|step| format!("  {step}")).collect();
        let comma = if index + 1 < mine.len() { "," } else { "" };
        let _ = writeln!(text, "\"{}\": [\n{}\n]{comma}", case.name, steps.join(",\n"));
    }
    text + "}\n"
}

fn groups(cases: &[Case]) -> Vec<&str> {
    let mut groups: Vec<&str> = cases.iter().map(|case| case.group.as_str()).collect();
    groups.dedup();
    groups
}

#[tokio::test(flavor = "multi_thread")]
async fn the_recordings_are_what_a_real_api_server_answers() {
    needs!(Part::CONTROL_PLANE);
    let cases = script::load();
    let answers = server::real(&cases).await;
    let mut stale = Vec::new();
    for group in groups(&cases) {
        let path = folder().join(format!("recorded/{group}.json"));
        stale.extend(golden(&path, &written(&cases, group, &answers)).err());
    }
    assert!(stale.is_empty(), "{}", stale.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sandbox_answers_as_recorded() {
    let cases = script::load();
    assert!(cases.len() >= LEAST_CASES, "only {} cases are left", cases.len());
    let ours = server::sandbox(&cases).await;
    let mut theirs = Answers::new();
    for group in groups(&cases) {
        let path = folder().join(format!("recorded/{group}.json"));
        let text = fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("{}: {error}: UPDATE_GOLDEN=1 records it", path.display()));
        theirs.extend(serde_json::from_str::<Answers>(&text).unwrap());
    }
    let found = compare(&cases, &ours, &theirs);
    let known: KnownDifferences =
        toml::from_str(&fs::read_to_string(folder().join("known-differences.toml")).unwrap()).unwrap();
    let mut wrong = Vec::new();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    let mut idle: Vec<(&Class, &String)> =
        known.class.iter().flat_map(|class| class.at.iter().map(move |at| (class, at))).collect();
    for (place, said) in &found {
        match known.class.iter().find(|class| class.at.iter().any(|at| fits(at, place))) {
            Some(class) => *counts.entry(&class.name).or_default() += 1,
            None => wrong.push(format!("{place}\n{said}")),
        }
        idle.retain(|(_, at)| !fits(at, place));
    }
    wrong.extend(idle.iter().map(|(class, at)| {
        format!("`{at}` ({}) no longer differs: take it off known-differences.toml", class.name)
    }));
    for class in &known.class {
        assert!(!class.reason.is_empty(), "{} has no reason", class.name);
    }
    let listed: usize = counts.values().sum();
    println!("{} cases; {listed} known differences: {counts:?}", cases.len());
    assert!(wrong.is_empty(), "{} things are wrong:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(listed, known.most, "known-differences.toml: `most` must say how many places differ");
}

/// The first line of `shapes.txt`: other versions may send other things.
fn recorded_with() -> String {
    let output = std::process::Command::new("kubectl").args(["version", "--client"]).output();
    let said = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let kubectl = said.lines().find_map(|line| line.strip_prefix("Client Version: v")).unwrap_or_default();
    let minor: Vec<&str> = kubectl.split('.').take(2).collect();
    let helm = crate::real::versions()["helm"].clone();
    format!("# What real clients send: kubectl {}, helm {helm} and dask-infra.", minor.join("."))
}

fn recorded_shapes() -> (String, clients::Shapes) {
    let text = fs::read_to_string(folder().join("shapes.txt")).unwrap_or_default();
    let mut lines = text.lines().map(str::to_owned);
    (lines.next().unwrap_or_default(), lines.collect())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly: every_recorded_shape_has_a_case and the_sandbox_answers_as_recorded run on every change, with what is recorded here"]
async fn what_real_clients_send_is_recorded() {
    needs!(&[Part::Etcd, Part::Kubernetes, Part::Kwok, Part::Operator, Part::Helm]);
    if !crate::clients::kubectl::has_kubectl() {
        return;
    }
    let (with, mut shapes) = recorded_shapes();
    let update = std::env::var_os("UPDATE_GOLDEN").is_some();
    if with != recorded_with() && !update {
        println!("skipped: shapes.txt is of other versions ({with}) than these ({})", recorded_with());
        return;
    }
    let (seen, failed) = clients::record().await;
    let mut new: Vec<String> = seen.difference(&shapes).cloned().collect();
    if !update && failed.is_empty() && !new.is_empty() {
        // An occasional request, such as a list after a broken watch, is not in every run.
        let (again, _) = clients::record().await;
        new.retain(|shape| again.contains(shape));
    }
    if update {
        // An occasional request, such as a second watch, stays in the list.
        shapes.extend(seen);
        let lines: Vec<String> = shapes.into_iter().collect();
        let text = format!("{}\n{}\n", recorded_with(), lines.join("\n"));
        fs::write(folder().join("shapes.txt"), text).unwrap();
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    assert!(update || new.is_empty(), "not in shapes.txt, UPDATE_GOLDEN=1 adds them:\n{}", new.join("\n"));
}

#[test]
fn every_recorded_shape_has_a_case() {
    let (_, recorded) = recorded_shapes();
    assert!(recorded.len() > 50, "only {} shapes are recorded", recorded.len());
    let covered: BTreeSet<String> = script::load().iter().flat_map(shapes::of_case).collect();
    let shape = |line: &str| line.split_once(' ').map(|(_, shape)| shape.to_owned()).unwrap_or_default();
    let wanted: BTreeSet<String> = recorded.iter().map(|line| shape(line)).collect();
    println!("{} shapes", wanted.len());
    let missing: Vec<&String> = wanted.difference(&covered).collect();
    assert!(missing.is_empty(), "{} shapes have no case:\n{missing:#?}", missing.len());
}

/// Places that differ, with what both say.
fn compare(cases: &[Case], ours: &Answers, theirs: &Answers) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for case in cases {
        let Some(theirs) = theirs.get(&case.name) else {
            all.push((case.name.clone(), "  is not recorded: UPDATE_GOLDEN=1 does it".to_owned()));
            continue;
        };
        let ours = &ours[&case.name];
        assert_eq!(ours.len(), theirs.len(), "{}: the recording is of other steps", case.name);
        for (index, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
            let mut found = Vec::new();
            if ours["code"] == theirs["code"] {
                normalizer::differences("", ours, theirs, &mut found);
            } else {
                // Then the bodies have nothing in common.
                let said = |answer: &Value| format!("{} {}", answer["code"], answer["body"]["message"]);
                found.push(("/code".to_owned(), said(ours), said(theirs)));
            }
            let request: &Value = &ours["step"];
            for (pointer, ours, theirs) in found {
                let place = format!("{} {} {pointer}", case.name, index + 1);
                all.push((place, format!("  {request}\n  sandbox {ours}\n  real    {theirs}")));
            }
        }
    }
    all
}

/// Returns true if a place matches a pattern with stars.
pub fn fits(pattern: &str, place: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| place.strip_prefix(first)) else { return false };
    let mut ended = !pattern.contains('*');
    for part in parts {
        match (part.is_empty(), rest.find(part)) {
            (true, _) => ended = true,
            (false, Some(at)) => {
                rest = &rest[at + part.len()..];
                ended = false;
            }
            (false, None) => return false,
        }
    }
    ended || rest.is_empty()
}
