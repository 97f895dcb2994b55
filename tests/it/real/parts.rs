//! Programs that `tests/real/build` builds. A test without its programs is skipped.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Mutex, PoisonError};

/// A part as `tests/real/build` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    Etcd,
    Kubernetes,
    Kwok,
    Operator,
    Helm,
    Kueue,
    Slurm,
    Wheels,
    Containers,
    Singularity,
}

impl Part {
    /// The parts of [`super::ControlPlane`].
    pub const CONTROL_PLANE: &[Part] = &[Part::Etcd, Part::Kubernetes, Part::Kwok];

    fn name(self) -> &'static str {
        match self {
            Part::Etcd => "etcd",
            Part::Kubernetes => "kubernetes",
            Part::Kwok => "kwok",
            Part::Operator => "operator",
            Part::Helm => "helm",
            Part::Kueue => "kueue",
            Part::Slurm => "slurm",
            Part::Wheels => "wheels",
            Part::Containers => "containers",
            Part::Singularity => "singularity",
        }
    }

    pub fn folder(self) -> PathBuf {
        let versions = versions();
        let version = match self {
            Part::Operator => versions["dask_kubernetes"].clone(),
            Part::Slurm => versions["dask_jobqueue"].clone(),
            Part::Containers => versions["distributed"].clone(),
            Part::Wheels => format!("{}-{}", versions["distributed"], versions["dask_older"]),
            _ => versions[self.name()].clone(),
        };
        cache().join(format!("{}-{version}", self.name()))
    }

    fn is_there(self) -> bool {
        // A part of the system can go without `tests/real/build`.
        let of_system: &[&str] = match self {
            Part::Slurm => &[SLURMCTLD],
            Part::Containers => &["/usr/bin/podman", "/usr/sbin/dockerd", "/usr/sbin/runc"],
            _ => &[],
        };
        self.folder().join("done").exists() && of_system.iter().all(|program| Path::new(program).exists())
    }

    /// One of its programs.
    pub fn program(self, name: &str) -> PathBuf {
        match self {
            Part::Operator | Part::Slurm | Part::Singularity => self.folder().join("bin").join(name),
            _ => self.folder().join(name),
        }
    }
}

/// Privileged programs are not on every `PATH`.
pub const SLURMCTLD: &str = "/usr/sbin/slurmctld";

/// `tests/real/versions`.
pub fn versions() -> BTreeMap<String, String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real/versions");
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let pairs = lines.filter_map(|line| line.split_once('='));
    pairs.map(|(name, version)| (name.to_owned(), version.to_owned())).collect()
}

/// Returns the folder that `tests/real/build` uses.
fn cache() -> PathBuf {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("DASK_INFRA_REAL_CACHE").unwrap_or_else(|| {
        let base = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")));
        base.expect("HOME or DASK_INFRA_REAL_CACHE must be set").join("dask-infra/real")
    })
}

/// Returns true if a test can run. If parts are missing, it says so under the test's name, now and in the last line
/// of the whole run; with `DASK_INFRA_REQUIRE_REAL=1` that is a failure. Use it through [`needs!`].
pub fn can_run(test: &str, parts: &[Part]) -> bool {
    let missing: BTreeSet<Part> = parts.iter().copied().filter(|part| !part.is_there()).collect();
    if missing.is_empty() {
        return true;
    }
    let missing: Vec<&str> = missing.into_iter().map(Part::name).collect();
    let missing = missing.join(", ");
    let test = test.trim_end_matches("::here").trim_end_matches("::{{closure}}");
    let test = test.split_once("::").map_or(test, |(_, test)| test);
    if env::var_os("DASK_INFRA_REQUIRE_REAL").is_some_and(|value| value == "1") {
        panic!("{test} needs {missing}: run tests/real/build (DASK_INFRA_REQUIRE_REAL=1 allows no skip)");
    }
    // Not eprintln: what a passing test prints is not shown.
    let _ = writeln!(io::stderr(), "skipped: {test} needs {missing} (tests/real/build makes it)");
    remember_skip(test);
    false
}

/// A process that waits for our end to say the last line: the test harness has no hook for it.
static LAST_LINE: Mutex<Option<ChildStdin>> = Mutex::new(None);

fn remember_skip(test: &str) {
    const SCRIPT: &str =
        r#"names=$(sort -u) && printf 'skipped, for want of tests/real/build: %s\n' "$(echo $names)" >&2"#;
    let mut last_line = LAST_LINE.lock().unwrap_or_else(PoisonError::into_inner);
    if last_line.is_none() {
        let started =
            Command::new("sh").args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        *last_line = started.unwrap().stdin;
    }
    writeln!(last_line.as_mut().unwrap(), "{test}").unwrap();
}

/// `needs!(PARTS)` at the start of a test: returns from it when a part is missing.
macro_rules! needs {
    ($parts:expr) => {{
        fn here() {}
        if !$crate::real::can_run(std::any::type_name_of_val(&here), $parts) {
            return;
        }
    }};
}
pub(crate) use needs;
