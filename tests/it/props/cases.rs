//! How many cases a property is tried with, from which seed, and what is printed of one that fails.
//!
//! `DASK_INFRA_CASES=N` cases of `DASK_INFRA_SEED=TEXT`; `DASK_INFRA_SURVEY=1` goes on after a failure, and
//! `DASK_INFRA_NUMBER=N` tries that case of the seed alone and prints it as it came, `DASK_INFRA_SHRINK=N` bounds the search for a smaller case.

use std::fmt::{Debug, Display};

use proptest::strategy::{BoxedStrategy, Strategy as _, ValueTree as _};
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

/// Cases of a property: `DASK_INFRA_CASES`, or what its author found to fit.
pub fn count(default: u32) -> u32 {
    std::env::var("DASK_INFRA_CASES").ok().and_then(|count| count.parse().ok()).unwrap_or(default)
}

/// The seed of a run that names none.
const SEED: &str = "0";

/// Returns the seed of the cases: `DASK_INFRA_SEED`, any text. Without it, every run has the same cases.
pub fn seed() -> String {
    std::env::var("DASK_INFRA_SEED").unwrap_or_else(|_| SEED.to_owned())
}

/// How many cases of any seed are enough for all that a property is about to happen.
const MANY: u32 = 24;

/// Returns true if a run is not narrowed: all that a property is about happens in it.
pub fn is_usual(default: u32) -> bool {
    let enough = if seed() == SEED { default } else { MANY };
    std::env::var_os("DASK_INFRA_NUMBER").is_none() && count(default) >= enough
}

/// Goes on after a failure and tells every one in a line, as it came: for a look at how much is broken.
fn survey<C: Debug>(
    name: &str,
    cases: u32,
    strategy: &BoxedStrategy<C>,
    runner: &mut TestRunner,
    property: impl Fn(&C) -> Result<(), String>,
) {
    let mut failed = 0;
    for number in 0..cases {
        let case = strategy.new_tree(runner).unwrap().current();
        if let Err(why) = property(&case) {
            failed += 1;
            println!("  case {number}: {}", why.lines().next().unwrap_or_default());
        }
    }
    assert!(failed == 0, "{name}: {failed} of {cases} cases fail");
}

/// Tries a property with cases of a strategy, `default` of them when nobody says how many. A case that fails is shrunk
/// and printed.
///
/// # Panics
/// The property does not hold.
pub fn check<C: Debug + Display>(
    name: &str,
    default: u32,
    strategy: BoxedStrategy<C>,
    property: impl Fn(&C) -> Result<(), String>,
) {
    let (cases, seed) = (count(default), seed());
    println!("{name}: {cases} cases of DASK_INFRA_SEED={seed}");
    let bytes = blake3::hash(format!("{name} {seed}").as_bytes());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, bytes.as_bytes());
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: std::env::var("DASK_INFRA_SHRINK")
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(300),
        ..Config::default()
    };
    let mut runner = TestRunner::new_with_rng(config, rng);
    if let Some(number) = std::env::var("DASK_INFRA_NUMBER").ok().and_then(|number| number.parse().ok()) {
        let mut trees = std::iter::repeat_with(|| strategy.new_tree(&mut runner).unwrap().current());
        let case = trees.nth(number).unwrap();
        println!("{case}");
        return property(&case).unwrap_or_else(|why| panic!("{name} {number}: {why}"));
    }
    if std::env::var_os("DASK_INFRA_SURVEY").is_some() {
        return survey(name, cases, &strategy, &mut runner, property);
    }
    let tried = runner.run(&strategy, |case| property(&case).map_err(TestCaseError::fail));
    match tried {
        Ok(()) => {}
        Err(TestError::Fail(why, case)) => {
            panic!("{name} (DASK_INFRA_SEED={seed}): {why}\n\nthe smallest case that was found:\n\n{case}\n")
        }
        Err(TestError::Abort(why)) => panic!("{name}: {why}"),
    }
}
