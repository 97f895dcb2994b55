//! The table of `docs/queues.md` with what is said of work in the real Kueue: in each case the state of the Workload, and what
//! `status` and `why` say. Tests go through the cases and hold the page against what they see.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::golden::root;

/// The head of the table in the page.
const HEAD: &str = "| case | state in Kueue | `status` says | `why` says |";

/// Cases of one test, and what is wrong with them.
pub struct PageCases {
    /// The page's rows for cases that have not come yet.
    rows: BTreeMap<String, [String; 3]>,
    wrong: Vec<String>,
}

impl PageCases {
    /// The rows whose case stands in a test.
    pub fn of(test: &str) -> Self {
        let mut rows = rows();
        rows.retain(|case, _| test.contains(&call(case)));
        Self { rows, wrong: Vec::new() }
    }

    /// Holds a row of the page against what is.
    pub fn case(&mut self, case: &str, [is, status, why]: &[String; 3]) {
        println!("{case}\n  state: {is}\n  status: {status}\n  why: {why}");
        let wrong = self.differs(case, [is, status, why]);
        self.wrong.extend(wrong);
        self.rows.remove(case);
    }

    /// Returns true if the state of a Workload is the one of a case's row, so that it is time to ask for the rest.
    pub fn has_state(&self, case: &str, is: &str) -> bool {
        self.rows.get(case).is_some_and(|[row, ..]| row == is)
    }

    /// Compares a case with its row. State, `status` and `why` are read one after the other while Kueue works, so
    /// the three belong together only some time after it came to rest.
    pub fn agrees(&self, case: &str, [is, status, why]: &[String; 3]) -> bool {
        self.differs(case, [is, status, why]).is_empty()
    }

    fn differs(&self, case: &str, [is, status, why]: [&str; 3]) -> Vec<String> {
        let Some([row, of_status, of_why]) = self.rows.get(case) else {
            return vec![format!("{case} is not in the page")];
        };
        let mut wrong = Vec::new();
        if row != is {
            wrong.push(format!("{case}: the page says {row:?}, and it is {is:?}"));
        }
        for (told, said) in [(status, of_status), (why, of_why)] {
            wrong.extend(lacks(told, said).map(|part| format!("{case}: no {part:?} in: {told}")));
        }
        wrong
    }

    /// Keeps what is wrong until all cases have come.
    pub fn wrong(&mut self, said: String) {
        println!("wrong: {said}");
        self.wrong.push(said);
    }

    /// Fails when a row was wrong, or never came.
    pub fn end(mut self) {
        self.wrong.extend(self.rows.keys().map(|name| format!("{name} is in the page, and never came")));
        assert!(self.wrong.is_empty(), "{}", self.wrong.join("\n"));
    }
}

/// How a test goes through a case.
fn call(case: &str) -> String {
    format!("lab.case(\"{case}\"")
}

pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The rows of the page: state, what `status` says, what `why` says; `…` is what differs from run to run.
fn rows() -> BTreeMap<String, [String; 3]> {
    let page = std::fs::read_to_string(root().join("docs/queues.md")).unwrap();
    let rows = page.split_once(HEAD).expect("the table is in the page").1.lines().skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    rows.map(|line| {
        let cells: Vec<String> =
            line.trim_matches('|').split('|').map(|cell| cell.trim().replace('`', "")).collect();
        let [name, state, status, why] = cells.try_into().expect("four cells");
        (name, [state, status, why])
    })
    .collect()
}

/// Returns the part of a row that the program does not print.
fn lacks<'t>(told: &str, said: &'t str) -> Option<&'t str> {
    said.split('…').map(str::trim).find(|part| !told.contains(*part))
}

/// The state of a Workload in short: conditions that hold, and its check.
pub fn state(workload: &Value) -> String {
    if !workload["kind"].is_string() || workload["kind"] == "Status" {
        return "no Workload".to_owned();
    }
    let conditions = workload["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let holds = |kind: &&str| conditions.iter().any(|one| one["type"] == *kind && one["status"] == "True");
    let mut words: Vec<String> =
        ["QuotaReserved", "Admitted", "WaitingForReplacementPods", "Evicted", "Finished"]
            .iter()
            .filter(|kind| holds(kind))
            .map(ToString::to_string)
            .collect();
    if let Some(told) =
        conditions.iter().find(|one| one["type"] == "QuotaReserved" && one["status"] != "True")
    {
        words.push(format!("QuotaReserved=False {}", told["reason"].as_str().unwrap()));
    }
    // Without its quota, what is left of checks is about to be taken off.
    let check = workload["status"]["admissionChecks"][0]["state"].as_str();
    if let Some(check) = check.filter(|_| holds(&"QuotaReserved")) {
        words.push(format!("check {check}"));
    }
    if workload["spec"]["active"] == false {
        words.push("active: false".to_owned());
    }
    if words.is_empty() { "not looked at".to_owned() } else { words.join(", ") }
}

/// Rows of the page are cases of a test, also where the real parts are not there.
#[test]
fn the_page_has_no_other_cases() {
    let read =
        |name: &str| std::fs::read_to_string(root().join("tests/it/control_plane").join(name)).unwrap();
    let tests = [read("queued_nodes.rs"), read("queue_turns.rs")].concat();
    let rows = rows();
    assert!(rows.len() >= 20, "{} cases", rows.len());
    for name in rows.keys() {
        assert!(tests.contains(&call(name)), "{name} is in docs/queues.md alone");
    }
    assert_eq!(tests.matches("lab.case(\"").count(), rows.len(), "each case has a row");
}
