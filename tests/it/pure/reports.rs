//! Reports, beside their cases (`tests/cases/report-*`): their schema, the page that programs are written by, and what others say.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use apply::{Event, Outcome};
use dask_infra::report::human::Detail;
use dask_infra::report::{Reporter as _, event, stack_cost};
use model::address::Address;
use plan::Plan;
use serde_json::Value;

use crate::golden::{golden, root};
use crate::page::human;

#[test]
fn the_committed_schema_of_events_is_current() {
    golden(&root().join("schemas/events.schema.json"), &format!("{:#}\n", event::schema())).unwrap();
}

#[test]
fn the_committed_schema_of_costs_is_current() {
    golden(&root().join("schemas/cost.schema.json"), &format!("{:#}\n", stack_cost::schema())).unwrap();
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
    let plan = fs::read_to_string(root().join("tests/cases/report-create/plan.json")).unwrap();
    let plan: Plan = serde_json::from_str(&plan).unwrap();
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
