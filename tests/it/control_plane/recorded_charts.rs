//! Charts in golden cases: where the real `helm` is there, what is kept of it beside the cases is compared with what it says;
//! `UPDATE_GOLDEN=1` keeps it again.

#![allow(clippy::unwrap_used, reason = "test code outside of test functions")]

use std::collections::BTreeMap;
use std::fs;

use dask_infra::cli::helm::render;
use kinds::kubernetes::kueue::install;
use stack::charts::{Render, Rendered, Trouble};
use stack::{Options, parse_in};

use crate::charts::kept;
use crate::golden::{cases, golden, root};
use crate::real::{Part, needs};

/// Asks the real `helm`, with our own chart where a stack names the Dask project's.
fn real(asked: &Render) -> Result<Rendered, Trouble> {
    let mut asked = asked.clone();
    let ours = match (asked.repo.as_deref(), asked.chart.as_str()) {
        (Some("https://helm.dask.org"), "dask") => Some("dask"),
        // Its definitions are large, and `control_plane::helm` looks at them.
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
                        // A random value also differs from the recorded one.
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
