//! Reports: `tests/cases/report-*/plan.json`, with `stack.toml` where places of fields are shown, `events.json` and
//! `summary.json` where it is applied.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use apply::{AbortCause, Event, Outcome, Summary};
use dask_infra::report::human::Detail;
use dask_infra::report::{Json, Next, Reporter as _, View};
use model::source::Sources;
use plan::Plan;
use serde::Deserialize;
use serde_json::Value;
use stack::{Options, parse_text};

use crate::golden::golden;
use crate::page::{human, screen};

/// An event as the cases write it.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Told {
    Started(usize),
    Waiting(usize, String, u64, u64),
    Retrying(usize, String, u64),
    Log(usize, Vec<String>),
    Finished(usize, Outcome, u64),
    Interrupted,
}

impl From<Told> for Event {
    fn from(told: Told) -> Self {
        let secs = Duration::from_secs;
        match told {
            Told::Started(change) => Self::Started { change },
            Told::Waiting(change, message, waited, deadline) => {
                let (waited, deadline) = (secs(waited), secs(deadline));
                let operation = None;
                Self::Waiting { change, message, operation, waited, deadline }
            }
            Told::Retrying(change, message, after) => Self::Retrying { change, message, after: secs(after) },
            Told::Log(change, lines) => Self::Log { change, lines },
            Told::Finished(change, outcome, took) => Self::Finished { change, outcome, took: secs(took) },
            Told::Interrupted => Self::Interrupted,
        }
    }
}

/// A summary as the cases write it.
#[derive(Deserialize)]
struct End {
    outcomes: Vec<(usize, Outcome, u64)>,
    took: u64,
    interrupted: bool,
}

impl From<End> for Summary {
    fn from(End { outcomes, took, interrupted }: End) -> Self {
        let outcomes =
            outcomes.into_iter().map(|(change, outcome, took)| (change, outcome, Duration::from_secs(took)));
        let stopped = if interrupted { AbortCause::Interrupted } else { AbortCause::None };
        Self { outcomes: outcomes.collect(), took: Duration::from_secs(took), stopped }
    }
}

fn read<T: for<'de> Deserialize<'de>>(path: &Path) -> Option<T> {
    let text = fs::read_to_string(path).ok()?;
    Some(serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
}

fn sources(case: &Path) -> Option<Sources> {
    let text = fs::read_to_string(case.join("stack.toml")).ok()?;
    let vars = BTreeMap::new();
    let loaded = parse_text("stack.toml", &text, &Options { env: &|_| None, vars: &vars, helm: None });
    Some(loaded.map_or_else(|failure| failure.sources, |loaded| loaded.sources))
}

pub fn check(case: &Path) -> Result<(), String> {
    let plan: Plan = read(&case.join("plan.json")).unwrap();
    let sources = sources(case);
    let next = match plan.offline {
        true => Next::PlanOnline,
        false => Next::Apply,
    };
    let view = View { sources: sources.as_ref(), next };
    let mut found = Vec::new();
    for (name, detail, width) in [
        ("plan.txt", Detail::Sections, 100),
        ("plan.80.txt", Detail::Sections, 80),
        ("plan.v.txt", Detail::Objects, 100),
        ("plan.summary.txt", Detail::Summary, 80),
    ] {
        let (mut human, data, talk) = human(detail, width);
        human.plan(&plan, &view);
        assert_eq!(talk.take(), "", "a plan is data");
        found.push((name, data.take()));
    }
    let (screen, data, _) = screen(100);
    let mut json = Json::new(screen, || jiff::Timestamp::UNIX_EPOCH);
    json.plan(&plan, &view);
    found.push(("plan.jsonl", data.take()));
    let (mut human, said, talk) = human(Detail::Sections, 80);
    if let Some(events) = read::<Vec<Told>>(&case.join("events.json")) {
        for event in events.into_iter().map(Event::from) {
            human.event(&plan, &event);
            json.event(&plan, &event);
        }
        found.push(("progress.txt", talk.take()));
        assert_eq!(said.take(), "", "progress is no data");
    }
    if let Some(end) = read::<End>(&case.join("summary.json")) {
        let summary = Summary::from(end);
        human.summary(&plan, &summary);
        json.summary(&plan, &summary);
        found.push(("summary.txt", said.take()));
    }
    let applied = data.take();
    if !applied.is_empty() {
        found.push(("apply.jsonl", applied));
    }
    let stale: Vec<String> = found.iter().filter_map(|(name, text)| judge(case, name, text).err()).collect();
    if stale.is_empty() { Ok(()) } else { Err(stale.join("\n")) }
}

fn judge(case: &Path, name: &str, text: &str) -> Result<(), String> {
    let blank = text.lines().find(|line| line.ends_with(' '));
    assert_eq!(blank, None, "{}/{name}: a line ends with a blank", case.display());
    if name.ends_with(".jsonl") {
        for line in text.lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            assert!(line["type"].is_string() && line["@message"].is_string(), "{line}");
        }
    }
    golden(&case.join(name), text)
}
