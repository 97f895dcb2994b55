//! This crate against kube-scheduler's own code, over generated clusters and pods.
//!
//! `DASK_INFRA_CASES=N` cases of `DASK_INFRA_SEED=TEXT`, 200 of `0` by default; `DASK_INFRA_SHRINK=N` bounds the search for a smaller case. The judge is built by `tests/real/build judge`, or is
//! the program that `DASK_INFRA_SCHEDULER_JUDGE` names. Without it the test says `skipped`, and fails with
//! `DASK_INFRA_REQUIRE_REAL=1`.
//!
//! Both answer for each pod and node. There is no class of differences: "fits" where kube-scheduler refuses is a failure, as are the
//! other way round, another set of plugins that refuse (each run alone), and other words. What a file alone cannot tell ([`Fit`]) must be
//! what kube-scheduler's answers for a node with less and for one with more have in common.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "judge/cases.rs"]
mod cases;
#[path = "judge/program.rs"]
mod program;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::io::{Write as _, stderr};

use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use serde_json::Value;

use cases::Case;
use fit::{Amounts, Cluster, Fit, Node, PodRequirements, Refusal};
use program::Judge;

/// Counts of all cases.
#[derive(Debug, Default)]
struct Counts {
    cases: u32,
    /// Pods that kube-apiserver refuses, and cases with such pods on nodes: not judged.
    invalid: u32,
    /// Pods that admission refuses, by our own account as well.
    not_admitted: u32,
    /// Answers of each kind for nodes that do not exist yet.
    near: u32,
    sure: u32,
    /// Pods that fit on a node.
    fits: u32,
    /// Pods that do not, by kube-scheduler's plugin.
    refused: BTreeMap<String, u32>,
}

/// Compares the answers for each pod and node.
fn compare(case: &Case, judge: &Judge, counts: &RefCell<Counts>) -> Result<(), TestCaseError> {
    let question = case.question();
    let answers = match judge.ask(&question.json) {
        Ok(answers) => answers,
        // A pod on a node that kube-apiserver would not have taken.
        Err(why) if why.starts_with("bound pod") => {
            counts.borrow_mut().invalid += 1;
            return Err(TestCaseError::reject(why));
        }
        Err(why) => return Err(TestCaseError::fail(why)),
    };
    for (pod, answer) in question.pods.iter().zip(answers.as_array().unwrap()) {
        let pod = match (pod, answer.get("invalid").is_some()) {
            (Ok(_), true) => {
                counts.borrow_mut().invalid += 1;
                continue;
            }
            (Err(_), true) => {
                counts.borrow_mut().not_admitted += 1;
                continue;
            }
            (Err(why), false) => return Err(TestCaseError::fail(format!("we refuse the pod: {why}"))),
            (Ok(pod), false) => pod,
        };
        compare_pod(pod, answer, &question.cluster, counts)?;
    }
    counts.borrow_mut().cases += 1;
    Ok(())
}

/// Plugins that this crate follows.
const PLUGINS: [&str; 11] = [
    "NodeUnschedulable",
    "NodeName",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "VolumeRestrictions",
    "VolumeBinding",
    "VolumeZone",
    "PodTopologySpread",
    "InterPodAffinity",
];

fn compare_pod(
    pod: &PodRequirements,
    answer: &Value,
    cluster: &Cluster,
    counts: &RefCell<Counts>,
) -> Result<(), TestCaseError> {
    let asked = cluster.ask(pod);
    let gated = !pod.gates.is_empty();
    let fail = |why: String| Err(TestCaseError::fail(why));
    if gated != (answer["gated"] == true) {
        return fail(format!("gated: we {gated}, kube-scheduler {answer}"));
    }
    for (_, node) in cluster.nodes() {
        let refusals = asked.refusals(node);
        if asked.takes(node) != refusals.is_empty() {
            return fail(format!("{}: takes() differs from {refusals:?}", node.name));
        }
        let theirs = &answer["nodes"][&node.name];
        let told = |what: &str, ours: &dyn std::fmt::Debug| {
            format!("{}: {what}: we {ours:?} {refusals:#?}, kube-scheduler {theirs} of {answer}", node.name)
        };
        let texts = |value: &Value| -> BTreeSet<String> {
            value.as_array().into_iter().flatten().map(|one| one.as_str().unwrap().to_owned()).collect()
        };
        let plugins = |refusal: &Refusal| refusal.predicates().iter().map(|one| one.plugin().to_owned());
        let ours: BTreeSet<String> =
            refusals.iter().flat_map(plugins).filter(|name| name != "SchedulingGates").collect();
        let alone = texts(&answer["alone"][&node.name]);
        let alone: BTreeSet<String> =
            alone.into_iter().filter(|name| PLUGINS.contains(&name.as_str())).collect();
        if ours != alone {
            return fail(told(&format!("alone {alone:?}"), &ours));
        }
        let words: BTreeSet<String> = asked.words(node).into_iter().collect();
        if words != texts(&theirs["reasons"]) {
            return fail(told("words", &words));
        }
        if ours.is_empty() == theirs.is_object() {
            return fail(told("taken", &ours));
        }
        let mut counts = counts.borrow_mut();
        counts.fits += u32::from(ours.is_empty());
        for plugin in alone {
            *counts.refused.entry(plugin).or_default() += 1;
        }
        let sure = compare_verdict(pod, node, cluster)?;
        if sure { counts.sure += 1 } else { counts.near += 1 }
    }
    Ok(())
}

/// Compares the answer for a node that does not exist yet with those for such nodes that have as little and as much as may be. Returns
/// true if both are one.
fn compare_verdict(pod: &PodRequirements, node: &Node, cluster: &Cluster) -> Result<bool, TestCaseError> {
    // Existing nodes could be templates as well.
    let about = || Amounts { cpu: 200, memory: 256 << 20, ephemeral_storage: 1 << 30, ..Amounts::default() };
    let slack = node.slack.clone().unwrap_or_else(about);
    let mut about_it = node.clone();
    about_it.slack = Some(slack.clone());
    let node = &about_it;
    let pod = PodRequirements { gates: Vec::new(), ..pod.clone() };
    let asked = cluster.ask(&pod);
    let with = |sign: i64| {
        let mut node = node.clone();
        let all = &mut node.allocatable;
        // A difference as large as the slack is within it.
        let add = |held: &mut i64, slack: i64| *held += if sign < 0 { -slack - 1 } else { slack };
        add(&mut all.cpu, slack.cpu);
        add(&mut all.memory, slack.memory);
        add(&mut all.ephemeral_storage, slack.ephemeral_storage);
        asked.takes(&node)
    };
    let verdict = asked.verdict(node);
    let agrees = match &verdict {
        Fit::Fits => with(-1),
        Fit::Near(_) => !with(-1) && with(1),
        Fit::Refused(_) => !with(1),
    };
    if !agrees {
        let (least, most) = (with(-1), with(1));
        return Err(TestCaseError::fail(format!("{}: {verdict:?}, and {least} to {most}", node.name)));
    }
    Ok(!matches!(verdict, Fit::Near(_)))
}

#[test]
fn pods_fit_where_kube_scheduler_places_them() {
    let Some(path) = program::path() else {
        let required = env::var_os("DASK_INFRA_REQUIRE_REAL").is_some_and(|value| value == "1");
        assert!(
            !required,
            "the judge is missing: run tests/real/build (DASK_INFRA_REQUIRE_REAL=1 allows no skip)"
        );
        let _ = writeln!(
            stderr(),
            "skipped: pods_fit_where_kube_scheduler_places_them needs judge (tests/real/build makes it)"
        );
        return;
    };
    let judge = Judge::start(&path);
    let number = |name: &str| env::var(name).ok().and_then(|number| number.parse().ok());
    let wanted = number("DASK_INFRA_CASES").unwrap_or(200);
    let seed = env::var("DASK_INFRA_SEED").unwrap_or_else(|_| "0".to_owned());
    println!("{wanted} cases of DASK_INFRA_SEED={seed}");
    let bytes = blake3::hash(format!("fit {seed}").as_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, bytes.as_bytes());
    let config = Config {
        cases: wanted,
        max_global_rejects: 20 * wanted,
        failure_persistence: None,
        max_shrink_iters: number("DASK_INFRA_SHRINK").unwrap_or(4000),
        ..Config::default()
    };
    let counts = RefCell::new(Counts::default());
    let tried =
        TestRunner::new_with_rng(config, rng).run(&cases::case(), |case| compare(&case, &judge, &counts));
    println!("{:?}", counts.borrow());
    match tried {
        Ok(()) => {}
        Err(TestError::Fail(why, case)) => {
            let json: Value = case.question().json;
            panic!("DASK_INFRA_SEED={seed}: {why}\n\nthe smallest case that was found:\n\n{json:#}\n");
        }
        Err(TestError::Abort(why)) => panic!("{why}"),
    }
    // Each predicate has refused, so that each was compared.
    let counts = counts.into_inner();
    let unseen: Vec<&str> = PLUGINS.into_iter().filter(|name| !counts.refused.contains_key(*name)).collect();
    assert!(unseen.is_empty() || wanted < 200, "no case was refused by {unseen:?}: {counts:?}");
    assert!(counts.fits > 0);
    assert!(wanted < 200 || (counts.near > 0 && counts.sure > 0 && counts.not_admitted > 0), "{counts:?}");
}
