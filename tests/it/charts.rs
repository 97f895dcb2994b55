//! Charts in golden cases, rendered without `helm`: what `helm` said to each is kept beside the case, in
//! `helm/STACK-RELEASE.yaml` (and `.again.yaml`, when the second run says something else), or `.txt` when it ended with
//! an error. Where the real `helm` is there, what is kept is compared with what it says; `UPDATE_GOLDEN=1` keeps it anew.

#![allow(clippy::unwrap_used, reason = "test code outside of test functions")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use dask_infra::cli::helm::render;
use kinds::kubernetes::kueue::install;
use stack::charts::{Render, Rendered, Trouble};
use stack::{Options, parse_in};

use crate::golden::{cases, golden, root};
use crate::real::{Part, needs};

/// Answers as `helm` did when the case was made. A case with the file `helm/missing` has no `helm`.
pub fn recorded(case: &Path, stack: &str) -> impl Fn(&Render) -> Result<Rendered, Trouble> + Sync {
    let place = case.join("helm").join(stack);
    let missing = case.join("helm/missing");
    move |asked| {
        if missing.exists() {
            return Err(Trouble::NoProgram("helm".to_owned()));
        }
        let file = |ending: &str| kept(&place, asked, ending);
        if let Ok(said) = fs::read_to_string(file("txt")) {
            return Err(Trouble::Said(said));
        }
        let Ok(text) = fs::read_to_string(file("yaml")) else {
            return Err(Trouble::NotRun(format!("nothing is kept in {}", file("yaml").display())));
        };
        let again = fs::read_to_string(file("again.yaml")).unwrap_or_else(|_| text.clone());
        Ok(Rendered { text, again })
    }
}

fn kept(place: &Path, asked: &Render, ending: &str) -> PathBuf {
    let stack = place.file_name().unwrap().to_string_lossy();
    place.with_file_name(format!("{stack}-{}.{ending}", asked.release))
}

/// Asks the real `helm`, with our own chart where a stack names the Dask project's.
fn real(asked: &Render) -> Result<Rendered, Trouble> {
    let mut asked = asked.clone();
    let ours = match (asked.repo.as_deref(), asked.chart.as_str()) {
        (Some("https://helm.dask.org"), "dask") => Some("dask"),
        // Its definitions are large, and `real_helm` looks at them.
        (Some("https://helm.dask.org"), "dask-kubernetes-operator") => Some("asking"),
        (None, chart) if chart == install::CHART => Some("kueue"),
        _ => None,
    };
    if let Some(ours) = ours {
        asked.chart = root().join("tests/charts").join(ours).display().to_string();
        (asked.repo, asked.version) = (None, None);
    }
    render(&Part::Helm.program("helm"), &asked)
}

#[test]
fn what_is_kept_of_charts_is_what_helm_says() {
    needs!(&[Part::Helm]);
    let (mut failures, mut count) = (Vec::new(), 0);
    for case in cases("").into_iter().filter(|case| !case.join("helm/missing").exists()) {
        for stack in ["before", "stack"] {
            let text = fs::read_to_string(case.join(format!("{stack}.toml"))).unwrap_or_default();
            if !text.contains("\nchart = ") && !text.contains("\n[kueue]\nversion") {
                continue;
            }
            fs::create_dir_all(case.join("helm")).unwrap();
            let asked = std::sync::Mutex::new(Vec::new());
            let remember = |render: &Render| {
                asked.lock().unwrap().push(render.clone());
                Err(Trouble::Said(String::new()))
            };
            let env = |_: &str| Some("demo".to_owned());
            let options = Options { env: &env, vars: &BTreeMap::new(), helm: Some(&remember) };
            let _mistakes_are_meant = parse_in(&case, &format!("{stack}.toml"), &text, &options);
            for asked in asked.into_inner().unwrap() {
                count += 1;
                let place = case.join("helm").join(stack);
                let file = |ending: &str| kept(&place, &asked, ending);
                let checked = match real(&asked) {
                    Ok(Rendered { text, again }) => {
                        // What is made up differs from what is kept as well.
                        let steady = text == again;
                        let kept = steady || !file("again.yaml").exists();
                        let first = if kept { golden(&file("yaml"), &text) } else { Ok(()) };
                        first.and(if kept && !steady { golden(&file("again.yaml"), &again) } else { Ok(()) })
                    }
                    Err(Trouble::Said(said)) => golden(&file("txt"), &format!("{said}\n")),
                    Err(trouble) => Err(format!("{}: {trouble:?}", case.display())),
                };
                failures.extend(checked.err());
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(count >= 8, "{count} charts");
}
