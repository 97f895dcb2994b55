//! Questions before the first write: `tests/cases/preflight-*/stack.toml`, planned as the cases of plans are, and
//! `answers.json` give `findings.txt`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use model::diag::{self, Look};
use plan::review::preflight::{Answers, Preflight, Question};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::golden::golden;
use crate::planned::planned;

/// The answers of Google Cloud. There is plenty of what is not named.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Google {
    /// Limit and usage by quota.
    quotas: BTreeMap<String, (f64, f64)>,
    /// Quotas that are not listed.
    unlisted: Vec<String>,
    /// Ends of paths that are not there.
    absent: Vec<String>,
    /// Parts of paths that have no answer, and why.
    unread: BTreeMap<String, String>,
    /// Rules by constraint.
    policies: BTreeMap<String, Value>,
}

const REGION: [&str; 11] = [
    "ACTIVE_RESIZE_REQUESTS",
    "A2_CPUS",
    "CPUS",
    "N2_CPUS",
    "PREEMPTIBLE_CPUS",
    "NVIDIA_T4_GPUS",
    "PREEMPTIBLE_NVIDIA_T4_GPUS",
    "NVIDIA_A100_GPUS",
    "SSD_TOTAL_GB",
    "DISKS_TOTAL_GB",
    "IN_USE_ADDRESSES",
];
const PROJECT: [&str; 2] = ["CPUS_ALL_REGIONS", "GPUS_ALL_REGIONS"];

impl Google {
    fn quotas(&self, names: &[&str]) -> Value {
        let listed = names.iter().filter(|name| !self.unlisted.contains(&(**name).to_owned()));
        let quota = |name: &&str| {
            let (limit, usage) = self.quotas.get(*name).copied().unwrap_or((10_000.0, 0.0));
            json!({ "metric": name, "limit": limit, "usage": usage })
        };
        json!({ "quotas": listed.map(quota).collect::<Vec<Value>>() })
    }

    fn answer(&self, question: &Question, path: &str) -> Result<Value, String> {
        if let Some((_, why)) = self.unread.iter().find(|(part, _)| path.contains(part.as_str())) {
            return Err(why.clone());
        }
        Ok(match question {
            Question::Region => self.quotas(&REGION),
            Question::Project => self.quotas(&PROJECT),
            Question::Machine { .. } | Question::Gpu { .. } => {
                let absent = self.absent.iter().any(|end| path.ends_with(end));
                if absent { Value::Null } else { json!({ "name": "there" }) }
            }
            Question::Policy(constraint) => {
                let rules =
                    self.policies.get(constraint.name()).cloned().unwrap_or(json!([{ "allowAll": true }]));
                json!({ "spec": { "rules": rules } })
            }
        })
    }
}

fn found(folder: &Path) -> String {
    let google: Google =
        serde_json::from_str(&fs::read_to_string(folder.join("answers.json")).unwrap()).unwrap();
    let (plan, sources) = planned(folder);
    let plan = plan.unwrap_or_else(|problems| panic!("{}", diag::render(&problems, &sources, Look::PLAIN)));
    let Some(preflight) = Preflight::of(&plan) else { return "nothing is asked\n".to_owned() };
    let mut text = String::new();
    let mut answers = Answers::new();
    for question in preflight.questions() {
        let path = question.query(&preflight).path;
        text.push_str(&format!("GET {path}\n"));
        let answer = google.answer(&question, &path);
        answers.insert(question, answer);
    }
    text.push('\n');
    text.push_str(&diag::render(&preflight.findings(&answers), &sources, Look::PLAIN));
    text
}

pub fn check(folder: &Path) -> Result<(), String> {
    golden(&folder.join("findings.txt"), &found(folder))
}
