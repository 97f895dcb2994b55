//! The judge as a process: `tests/real/judge`, which `tests/real/build` builds.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;

/// kube-scheduler's filters. It answers one case after the other, and ends with this value.
pub struct Judge {
    process: RefCell<(Child, BufReader<ChildStdout>)>,
}

/// The path of the program: `DASK_INFRA_SCHEDULER_JUDGE`, else that in the cache of `tests/real/build`. `None` when it is not there.
pub fn path() -> Option<PathBuf> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(path) = set("DASK_INFRA_SCHEDULER_JUDGE") {
        return Some(path);
    }
    let cache = set("DASK_INFRA_REAL_CACHE").or_else(|| {
        let base = set("XDG_CACHE_HOME").or_else(|| Some(set("HOME")?.join(".cache")))?;
        Some(base.join("dask-infra/real"))
    })?;
    let versions = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/real/versions");
    let text = fs::read_to_string(versions).unwrap();
    let versions: BTreeMap<&str, &str> = text.lines().filter_map(|line| line.split_once('=')).collect();
    let folder = cache.join(format!("judge-{}-{}", versions["kubernetes"], versions["judge"]));
    folder.join("done").exists().then(|| folder.join("scheduler-judge"))
}

impl Judge {
    pub fn start(path: &Path) -> Self {
        let mut command = Command::new(path);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { process: RefCell::new((child, out)) }
    }

    /// One case; `Err` with the words of the judge when it cannot be judged.
    pub fn ask(&self, case: &Value) -> Result<Value, String> {
        let (child, out) = &mut *self.process.borrow_mut();
        let input = child.stdin.as_mut().unwrap();
        writeln!(input, "{case}").unwrap();
        input.flush().unwrap();
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        let reply: Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line:?} for {case}"));
        match reply["error"].as_str() {
            Some(error) => Err(error.to_owned()),
            None => Ok(reply["pods"].clone()),
        }
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        let (child, _) = self.process.get_mut();
        // It ends with its input.
        drop(child.stdin.take());
        let _ = child.wait();
    }
}
