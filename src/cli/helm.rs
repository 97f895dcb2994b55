//! The `helm` program, which is only used to render charts. It handles repositories, credentials and caches itself.

use std::io::{ErrorKind, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use stack::charts::{Render, Rendered, Trouble};

/// The first minor version of Helm 3 that is supported: it reads charts from OCI registries without an experimental flag.
const LEAST: (u32, u32) = (3, 8);

/// Renders a chart twice, so that generated values (such as random passwords) can be found by comparison.
///
/// # Errors
/// There is no such program, it is too old, or it cannot render the chart.
pub fn render(program: &Path, asked: &Render) -> Result<Rendered, Trouble> {
    let fetched = match (&asked.repo, asked.chart.contains("://")) {
        (None, false) => {
            // Most charts are folders: the version is looked at beside the work.
            let (version, text, again) = std::thread::scope(|threads| {
                let version = threads.spawn(|| version(program));
                let again = threads.spawn(|| template(program, asked, &asked.chart));
                let text = template(program, asked, &asked.chart);
                (join(version), text, join(again))
            });
            version?;
            return Ok(Rendered { text: text?, again: again? });
        }
        _ => {
            version(program)?;
            FetchedChart::pull(program, asked)?
        }
    };
    let chart = fetched.chart()?;
    let (text, again) = std::thread::scope(|threads| {
        let again = threads.spawn(|| template(program, asked, &chart));
        (template(program, asked, &chart), join(again))
    });
    Ok(Rendered { text: text?, again: again? })
}

fn join<T>(thread: std::thread::ScopedJoinHandle<'_, Result<T, Trouble>>) -> Result<T, Trouble> {
    thread.join().unwrap_or_else(|_| Err(Trouble::NotRun("its thread ended early".to_owned())))
}

/// Returns an error if the program is not Helm, or is too old.
fn version(program: &Path) -> Result<(), Trouble> {
    let said = run(program, &["version", "--short"], None)?;
    let (major, minor) = version_numbers(&said).ok_or_else(|| {
        let line = said.lines().next().unwrap_or_default();
        Trouble::NotRun(format!("`{} version` printed `{line}`, which is not a version", program.display()))
    })?;
    if (major, minor) < LEAST {
        let version = format!("{major}.{minor}");
        return Err(Trouble::TooOld { program: program.display().to_string(), version });
    }
    Ok(())
}

/// `v4.3.1+g5…`, `v4.3`, `Client: v2.17.0+g…`.
fn version_numbers(said: &str) -> Option<(u32, u32)> {
    said.split_whitespace().filter_map(|word| word.strip_prefix('v')).find_map(|version| {
        let mut parts = version.split(['.', '+', '-']);
        Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
    })
}

fn template(program: &Path, asked: &Render, chart: &str) -> Result<String, Trouble> {
    let mut words =
        vec!["template", &asked.release, chart, "--include-crds", "--namespace", &asked.namespace];
    words.extend(["--kube-version", &asked.kube_version]);
    words.extend(asked.api_versions.iter().flat_map(|api| ["--api-versions", api]));
    if asked.values.is_empty() {
        return run(program, &words, None);
    }
    // Not as a word of the command line, which every program of the machine can read.
    words.extend(["--values", "-"]);
    run(program, &words, Some(&Value::Object(asked.values.clone()).to_string()))
}

/// Runs the program and returns its output.
fn run(program: &Path, words: &[&str], input: Option<&str>) -> Result<String, Trouble> {
    let mut command = Command::new(program);
    command.env_clear().envs(std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_passed_on)));
    command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.stdin(if input.is_some() { Stdio::piped() } else { Stdio::null() });
    let mut child = command.spawn().map_err(|error| match error.kind() {
        ErrorKind::NotFound => Trouble::NoProgram(program.display().to_string()),
        _ => Trouble::NotRun(format!("`{}`: {error}", program.display())),
    })?;
    // It may end before it has read everything; what it says then tells more.
    let writer = child
        .stdin
        .take()
        .zip(input.map(str::to_owned))
        .map(|(mut pipe, text)| std::thread::spawn(move || drop(pipe.write_all(text.as_bytes()))));
    let output = child.wait_with_output().map_err(|error| Trouble::NotRun(error.to_string()))?;
    if let Some(writer) = writer {
        let _ended = writer.join();
    }
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        let said = if said.is_empty() { format!("it ended with {}", output.status) } else { said };
        return Err(Trouble::Said(said));
    }
    String::from_utf8(output.stdout)
        .map_err(|_| Trouble::NotRun("what it printed is not UTF-8 text".to_owned()))
}

/// Returns true if `helm` gets an environment variable: those for its files, for other programs and for the network. It does not
/// get cloud credentials or other secrets, which charts must not see, or settings of the shell for a cluster.
fn is_passed_on(name: &str) -> bool {
    const NAMES: &[&str] = &[
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "LANG",
        "TZ",
        "TMPDIR",
        "TMP",
        "TEMP",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "ALL_PROXY",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "DOCKER_CONFIG",
        "REGISTRY_AUTH_FILE",
        "USERPROFILE",
        "APPDATA",
        "LOCALAPPDATA",
        "SYSTEMROOT",
        "PATHEXT",
        "COMSPEC",
    ];
    const CLUSTER: &[&str] = &["HELM_NAMESPACE", "HELM_DEBUG", "HELM_DRIVER"];
    let upper = name.to_ascii_uppercase();
    let own =
        upper.starts_with("HELM_") && !upper.starts_with("HELM_KUBE") && !CLUSTER.contains(&upper.as_str());
    own || NAMES.contains(&upper.as_str()) || upper.starts_with("LC_") || upper.starts_with("XDG_")
}

/// A chart that `helm` has fetched. It is deleted when this value is dropped.
struct FetchedChart {
    folder: tempfile::TempDir,
}

impl FetchedChart {
    fn pull(program: &Path, asked: &Render) -> Result<Self, Trouble> {
        let failed = |error: std::io::Error| {
            Trouble::NotRun(format!("the folder for charts cannot be created: {error}"))
        };
        let folder = tempfile::Builder::new().prefix("dask-infra-chart-").tempdir().map_err(failed)?;
        let place = folder.path().display().to_string();
        let mut words = vec!["pull", &asked.chart, "--untar", "--untardir", &place];
        words.extend(asked.repo.iter().flat_map(|repo| ["--repo", repo]));
        words.extend(asked.version.iter().flat_map(|version| ["--version", version]));
        run(program, &words, None)?;
        Ok(Self { folder })
    }

    /// Returns the folder of the chart.
    fn chart(&self) -> Result<String, Trouble> {
        let entries = std::fs::read_dir(self.folder.path()).into_iter().flatten().flatten();
        let charts = entries.map(|entry| entry.path()).find(|path| path.join("Chart.yaml").is_file());
        let nothing = || Trouble::Said("the download contains no chart".to_owned());
        charts.map(|chart| chart.display().to_string()).ok_or_else(nothing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn helms_of_all_times_say_their_version() {
        for (said, wanted) in [
            ("v4.3.1+g1234567\n", Some((4, 3))),
            ("v4.3", Some((4, 3))),
            ("v3.22.0", Some((3, 22))),
            ("Client: v2.17.0+ga690bad\nError: could not find tiller", Some((2, 17))),
            ("hello", None),
        ] {
            assert_eq!(version_numbers(said), wanted, "{said}");
        }
    }

    #[test]
    fn helm_gets_no_credentials() {
        let rows = [
            ("PATH", true),
            ("https_proxy", true),
            ("HELM_CACHE_HOME", true),
            ("XDG_CACHE_HOME", true),
            ("LC_ALL", true),
            ("HELM_KUBETOKEN", false),
            ("HELM_NAMESPACE", false),
            ("KUBECONFIG", false),
            ("GITHUB_TOKEN", false),
            ("ACTIONS_ID_TOKEN_REQUEST_TOKEN", false),
            ("GOOGLE_APPLICATION_CREDENTIALS", false),
        ];
        for (name, wanted) in rows {
            assert_eq!(is_passed_on(name), wanted, "{name}");
        }
    }

    #[test]
    fn a_program_that_is_not_there_or_is_no_helm_is_told() {
        let asked = |program: &str| render(Path::new(program), &Render::default());
        let there = asked("/nowhere/helm");
        assert_eq!(there, Err(Trouble::NoProgram("/nowhere/helm".to_owned())));
        assert!(matches!(asked("echo"), Err(Trouble::NotRun(why)) if why.contains("version --short")));
    }
}
