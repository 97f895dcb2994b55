//! Versions of packages in processes and clients of Dask, and which of them do not work together.
//!
//! `versions.json` has the rules: packages, and how many parts of their versions must be equal; with 0 a difference may be
//! harmless. Dask compares the same packages (`distributed/versions.py` of 2026.8.0), and only warns. Functions are sent between
//! processes as byte code, which differs between minor versions of Python, in cloudpickle's format, which is not stable between
//! versions. And Dask's scheduler, workers and clients are only compatible within a release.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Map, Value};

/// `versions.py` with the rules before it: the same comparison as Python code.
pub const PROGRAM: &str = concat!("RULES = ", include_str!("versions.json"), include_str!("versions.py"));

const RULES: &str = include_str!("versions.json");

/// Versions by package.
pub type Versions = BTreeMap<String, String>;

/// Differences between the versions of several processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Skew {
    /// Versions that do not work together.
    pub breaks: Vec<String>,
    /// Versions that may not work together.
    pub differs: Vec<String>,
}

/// Compares the versions of several processes, each with its name. A package that a process does not have is not compared.
pub fn skew(sides: &[(String, Versions)]) -> Skew {
    let mut skew = Skew::default();
    for (package, parts) in rules() {
        let mut found: Vec<(&str, Vec<&str>)> = Vec::new();
        for (who, versions) in sides {
            let Some(version) = versions.get(&package).filter(|version| !version.is_empty()) else {
                continue;
            };
            match found.iter_mut().find(|(known, _)| known == version) {
                Some((_, names)) => names.push(who),
                None => found.push((version, vec![who])),
            }
        }
        let kin = |version: &str| match parts {
            0 => version.to_owned(),
            parts => version.split('.').take(parts).collect::<Vec<_>>().join("."),
        };
        let different: HashSet<String> = found.iter().map(|(version, _)| kin(version)).collect();
        if different.len() > 1 {
            let said = found.iter().map(|(version, names)| format!("{version} on {}", several(names)));
            let said = format!("{package} {}", said.collect::<Vec<_>>().join(", "));
            if parts > 0 { &mut skew.breaks } else { &mut skew.differs }.push(said);
        }
    }
    skew
}

/// Returns the packages, and how many parts of their versions must be equal.
fn rules() -> Vec<(String, usize)> {
    let rules: Map<String, Value> = serde_json::from_str(RULES).unwrap_or_default();
    let parts =
        |value: Value| value.as_u64().and_then(|parts| usize::try_from(parts).ok()).unwrap_or_default();
    rules.into_iter().map(|(package, value)| (package, parts(value))).collect()
}

/// Joins names: `a`, `a and b`, `a, b and 3 others`.
fn several(names: &[&str]) -> String {
    let others = format!("{} others", names.len().saturating_sub(2));
    let mut shown = names.to_vec();
    if shown.len() > 3 {
        shown.truncate(2);
        shown.push(&others);
    }
    match shown.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
        None => String::new(),
    }
}
