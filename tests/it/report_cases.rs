//! Golden cases of reports: `tests/cases/report-*/plan.json`, with `stack.toml` where places of fields are
//! shown, `events.json` and `summary.json` where it is applied.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use apply::{Event, Outcome, Stopped, Summary};
use dask_infra::report::human::Detail;
use dask_infra::report::{Human, Json, Next, Reporter as _, Screen, Stream, View, event};
use model::address::Address;
use model::source::Sources;
use plan::Plan;
use serde::Deserialize;
use serde_json::Value;
use stack::{Options, parse_text};

use crate::golden::{cases, golden, root};

/// A writer whose text can be looked at.
#[derive(Clone, Default)]
struct Page(Arc<Mutex<Vec<u8>>>);

impl Page {
    fn take(&self) -> String {
        String::from_utf8(std::mem::take(&mut self.0.lock().unwrap())).unwrap()
    }
}

impl Write for Page {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn screen(width: usize) -> (Screen, Page, Page) {
    let (data, talk) = (Page::default(), Page::default());
    let stream = |page: &Page| Stream::plain(Box::new(page.clone()), width);
    (Screen::new(stream(&data), stream(&talk)), data, talk)
}

fn human(detail: Detail, width: usize) -> (Human, Page, Page) {
    let (screen, data, talk) = screen(width);
    (Human::new(screen, detail, "dask-infra".to_owned()), data, talk)
}

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
        let stopped = if interrupted { Stopped::Interrupted } else { Stopped::No };
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

fn check(case: &Path) -> Vec<String> {
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
    found.iter().filter_map(|(name, text)| judge(case, name, text).err()).collect()
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

#[test]
fn plans_progress_and_summaries() {
    let cases = cases("report-");
    let failures: Vec<String> = cases.iter().flat_map(|case| check(case)).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(cases.len() >= 6, "{} cases", cases.len());
}

#[test]
fn the_committed_schema_of_events_is_current() {
    golden(&root().join("schemas/events.schema.json"), &format!("{:#}\n", event::schema())).unwrap();
}

/// The first cells of the table of a page that begins with a head.
fn cells(page: &str, head: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(root().join(page)).unwrap();
    let rows = text.lines().skip_while(|line| !line.starts_with(head)).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    rows.flat_map(|row| row.split('|').nth(1).unwrap().split(',').map(str::to_owned).collect::<Vec<_>>())
        .map(|cell| cell.trim().trim_matches('`').to_owned())
        .collect()
}

fn words(list: &Value) -> BTreeSet<String> {
    list.as_array().unwrap().iter().map(|word| word.as_str().unwrap().to_owned()).collect()
}

/// Pipelines are written by a page: it has every type of line, every outcome and every exit code, and no other.
#[test]
fn the_page_for_programs_has_all_that_there_is() {
    const PAGE: &str = "docs/plan-and-apply.md";
    let schema = event::schema();
    let lines = schema["oneOf"].as_array().unwrap().iter();
    let types: BTreeSet<String> =
        lines.map(|line| line["properties"]["type"]["const"].as_str().unwrap().to_owned()).collect();
    assert_eq!(cells(PAGE, "| `type` | says |"), types);
    let outcomes = words(&schema["definitions"]["End"]["properties"]["outcome"]["enum"]);
    assert_eq!(cells(PAGE, "| `outcome` | the change |"), outcomes);
    // `--help` has those of the code.
    let help = fs::read_to_string(root().join("docs/commands.md")).unwrap();
    let codes = help.lines().skip_while(|line| *line != "Exit codes:").skip(1);
    let codes: BTreeSet<String> = codes
        .map_while(|line| Some(line.split_whitespace().next()?.to_owned()))
        .take_while(|word| word.parse::<u8>().is_ok())
        .collect();
    assert_eq!(cells(PAGE, "| code | meaning |"), codes);
}

#[test]
fn escape_codes_of_others_do_not_reach_the_terminal() {
    let plan: Plan = read(&root().join("tests/cases/report-create/plan.json")).unwrap();
    let (mut human, _, talk) = human(Detail::Sections, 80);
    human
        .event(&plan, &Event::Log { change: 0, lines: vec!["\u{1b}]0;title\u{7}\u{1b}[2Jhello".to_owned()] });
    let because = Address::new("cluster");
    human.event(
        &plan,
        &Event::Finished { change: 1, outcome: Outcome::Skipped { because }, took: Duration::ZERO },
    );
    assert_eq!(
        talk.take(),
        "00:00  cluster: | hello\n00:00  node_pool.scheduler-pool: skipped because cluster did not succeed\n"
    );
}
