//! This crate against kube-scheduler's own code, over generated clusters and pods.
//!
//! `DASK_INFRA_CASES=N` cases of `DASK_INFRA_SEED=TEXT`, 200 of `0` by default; `DASK_INFRA_SHRINK=N` bounds the search for a smaller case. The judge is built by `tests/real/build judge`, or is
//! the program that `DASK_INFRA_SCHEDULER_JUDGE` names. Without it the test says `skipped`, and fails with
//! `DASK_INFRA_REQUIRE_REAL=1`.
//!
//! Both answer for each pod and node. There is no class of differences: "fits" where kube-scheduler refuses is a failure, as are the
//! other way round and another reason. kube-scheduler ends at the first predicate that refuses, this crate tells all, so
//! that its reason must be among ours.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "judge/cases.rs"]
mod cases;
#[path = "judge/program.rs"]
mod program;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::env;
use std::io::{Write as _, stderr};

use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use serde_json::Value;

use cases::Case;
use program::Judge;

/// Counts of all cases.
#[derive(Debug, Default)]
struct Counts {
    cases: u32,
    /// Pods that kube-apiserver refuses, and cases with such pods on nodes: not judged.
    invalid: u32,
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
        if answer.get("invalid").is_some() {
            counts.borrow_mut().invalid += 1;
            continue;
        }
        let asked = question.cluster.ask(pod);
        for (_, node) in question.cluster.nodes() {
            let refusals = asked.refusals(node);
            if asked.takes(node) != refusals.is_empty() {
                return Err(TestCaseError::fail(format!("{}: takes() differs from {refusals:?}", node.name)));
            }
            let ours: Vec<&str> = refusals.iter().map(|refusal| refusal.predicate().plugin()).collect();
            let theirs = &answer["nodes"][&node.name];
            let told =
                || format!("{}: we {ours:?} {refusals:#?}, kube-scheduler {theirs} of {answer}", node.name);
            let plugin = match (answer["gated"] == true, theirs["plugin"].as_str()) {
                (true, _) => Some("SchedulingGates"),
                (false, plugin) => plugin,
            };
            match plugin {
                None if ours.is_empty() => counts.borrow_mut().fits += 1,
                Some(plugin) if ours.contains(&plugin) => {
                    *counts.borrow_mut().refused.entry(plugin.to_owned()).or_default() += 1;
                }
                _ => return Err(TestCaseError::fail(told())),
            }
        }
    }
    counts.borrow_mut().cases += 1;
    Ok(())
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
    let predicates = [
        "SchedulingGates",
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
    let unseen: Vec<&str> =
        predicates.into_iter().filter(|name| !counts.refused.contains_key(*name)).collect();
    assert!(unseen.is_empty() || wanted < 200, "no case was refused by {unseen:?}: {counts:?}");
    assert!(counts.fits > 0);
}
