//! Dry runs of plans: `tests/cases/dry-run-*/stack.toml`, planned as the cases of plans are, and the answers of an API server in
//! `answers.json` give `findings.txt`: the requests, what is not tried, and the findings.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use dask_infra::cli::dry_run::answer;
use dask_infra::report::dry_run::text;
use live::answer::Answer;
use live::shape::Media;
use live::{ApiError, Reply, Request};
use model::diag::{self, Look};
use model::resource::Api;
use plan::review::dry_run::{DryRuns, Trial};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::golden::golden;
use crate::planned::Case;

/// The answers of the API server. It accepts what is not named.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Server {
    answers: Vec<Said>,
    /// The versions that it serves, by group.
    served: BTreeMap<String, Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Said {
    /// A part of the paths that are answered so.
    path: String,
    /// The name of the object, if only that one is answered so.
    name: Option<String>,
    status: u16,
    reason: String,
    message: String,
    /// Fields, each with what is wrong.
    causes: Vec<(String, String)>,
    warnings: Vec<String>,
}

impl Said {
    fn body(&self) -> Value {
        let causes = self.causes.iter().map(|(field, message)| json!({ "field": field, "message": message }));
        json!({ "kind": "Status", "reason": self.reason, "message": self.message, "details": { "causes": causes.collect::<Vec<_>>() } })
    }

    fn result(&self, request: &Request) -> Result<Reply, ApiError> {
        if self.status == 0 {
            return Ok(Reply { value: Value::Null, warnings: self.warnings.clone() });
        }
        let body = self.body().to_string().into_bytes();
        let answer = Answer { status: self.status, media: Media::Other, warnings: Vec::new(), body };
        request.read(answer).map(|value| Reply { value, warnings: Vec::new() })
    }
}

impl Server {
    fn answer(&self, trial: &Trial) -> plan::review::dry_run::Answer {
        let request =
            Request { api: Api::Kubernetes, method: trial.method, path: trial.path.clone(), body: None };
        let name = trial.body["metadata"]["name"].as_str();
        let is_meant = |said: &&Said| {
            let named = said.name.is_none() || said.name.as_deref() == name;
            named && trial.path.contains(&said.path)
        };
        let said = self.answers.iter().find(is_meant);
        let quiet = || Ok(Reply { value: Value::Null, warnings: Vec::new() });
        answer(&trial.path, said.map_or_else(quiet, |said| said.result(&request)), &self.served)
    }
}

fn found(folder: &Path) -> String {
    let server = fs::read_to_string(folder.join("answers.json"));
    let server: Server =
        server.map_or_else(|_| Server::default(), |text| serde_json::from_str(&text).unwrap());
    let case = Case::read(folder);
    let env_values = case.world.env_values.clone();
    let (plan, sources) = case.plan(folder);
    let mut plan =
        plan.unwrap_or_else(|problems| panic!("{}", diag::render(&problems, &sources, Look::PLAIN)));
    let Some(runs) = DryRuns::of(&plan, Some(&env_values)) else { return "nothing is tried\n".to_owned() };
    let mut shown = String::new();
    for trial in runs.trials() {
        let version = trial.body["metadata"]["resourceVersion"].as_str();
        let version = version.map(|version| format!("  resourceVersion {version}")).unwrap_or_default();
        shown.push_str(&format!("{} {}{version}\n", trial.method.as_str(), trial.path));
    }
    let answers = runs.trials().iter().map(|trial| server.answer(trial)).collect();
    let (result, mut findings) = runs.review(&plan, answers);
    let changed = result.tried + result.untried.iter().map(|untried| untried.objects.len()).sum::<usize>();
    shown.push_str(&format!("\n{} of {changed} objects were tried\n", result.tried));
    plan.dry_run = Some(result);
    shown.push_str(&text(&plan).map(|line| format!("{line}\n")).unwrap_or_default());
    diag::sort(&mut findings, &sources);
    let found = diag::render(&findings, &sources, Look::PLAIN);
    if !found.is_empty() {
        shown.push_str(&format!("\n{found}"));
    }
    shown
}

pub fn check(folder: &Path) -> Result<(), String> {
    golden(&folder.join("findings.txt"), &found(folder))
}
