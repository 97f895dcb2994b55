//! Checks whether this machine's Python, which the line printed by `connect` is for, is compatible with the scheduler.

use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use model::shell::ShellLine;
use model::versions::{PROGRAM, Versions, skew};

/// The timeout of Python, which only lists installed packages.
const PATIENCE: Duration = Duration::from_secs(10);

/// The Python that a shell finds: in an active venv or conda environment, the Python of that environment.
const PYTHON: &str = "python3";

/// Returns why this machine's Python cannot send work to a scheduler of these versions, and the fix. `None` if it can, or if
/// there is no Python.
pub async fn version_mismatch(scheduler: &Versions) -> Option<String> {
    if scheduler.is_empty() {
        return None;
    }
    let program = format!("{PROGRAM}\nNAMES = [name for name in RULES if name != 'python']\nexec(HERE)");
    let mut command = Command::new(PYTHON);
    command.args(["-I", "-c", &program]).stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let asked = tokio::time::timeout(PATIENCE, command.output()).await.ok()?.ok()?;
    let said = String::from_utf8(asked.stdout).ok()?;
    // A program that a user's Python always runs may say something first.
    let own: Versions = serde_json::from_str(said.lines().next_back()?).ok()?;
    mismatch_text(own, scheduler)
}

fn mismatch_text(own: Versions, scheduler: &Versions) -> Option<String> {
    let wanted: Vec<String> = ["dask", "distributed"]
        .into_iter()
        .filter_map(|name| Some(format!("{name}=={}", scheduler.get(name)?)))
        .collect();
    let install = format!("`{}`", ShellLine::of(PYTHON).words(["-m", "pip", "install"]).words(&wanted));
    if !own.contains_key("distributed") {
        return Some(format!("has no distributed; {install}"));
    }
    let python = own.get("python").cloned().unwrap_or_default();
    let sides = [(PYTHON.to_owned(), own), ("the scheduler".to_owned(), scheduler.clone())];
    let breaks = skew(&sides).breaks;
    let cure = match breaks.iter().any(|said| said.starts_with("python ")) {
        true => format!("use another Python than {python}, and the same packages"),
        false => install,
    };
    (!breaks.is_empty()).then(|| format!("has other versions: {}; {cure}", breaks.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions(python: &str, distributed: Option<&str>) -> Versions {
        let pairs = [("python", Some(python)), ("dask", distributed), ("distributed", distributed)];
        pairs.into_iter().filter_map(|(name, version)| Some((name.to_owned(), version?.to_owned()))).collect()
    }

    #[test]
    fn a_python_that_does_not_fit_is_told_with_its_cure() {
        let scheduler = versions("3.12.4", Some("2026.8.0"));
        let install = "`python3 -m pip install dask==2026.8.0 distributed==2026.8.0`";
        assert_eq!(mismatch_text(versions("3.12.9", Some("2026.8.0")), &scheduler), None);
        let said = mismatch_text(versions("3.12.4", None), &scheduler).unwrap();
        assert_eq!(said, format!("has no distributed; {install}"));
        let said = mismatch_text(versions("3.12.4", Some("2026.3.0")), &scheduler).unwrap();
        assert!(said.contains("distributed 2026.3.0 on python3, 2026.8.0 on the scheduler"), "{said}");
        assert!(said.ends_with(install), "{said}");
        let said = mismatch_text(versions("3.11.7", Some("2026.8.0")), &scheduler).unwrap();
        assert!(said.ends_with("use another Python than 3.11.7, and the same packages"), "{said}");
    }
}
