//! The cases as text: what is sent, step by step. `tests/contract/README.md` tells how they are written.

use std::collections::BTreeMap;
use std::fs;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::Value;

use crate::golden::root;

/// A sequence of requests in a namespace of its own.
pub struct Case {
    /// A label: also the name of its namespace.
    pub name: String,
    /// The file it stands in, without its ending.
    pub group: String,
    pub steps: Vec<Step>,
}

/// The treatment of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// One body.
    Answer,
    /// One JSON value a line, until the server ends it.
    Events,
    /// The status and the type of the answer; its body is compared elsewhere.
    Outcome,
    /// Nothing is kept; it is sent again until this status comes, with this text in it.
    Until(u16, String),
    /// Nothing is sent: the history of the store is cut off here, as etcd does every five minutes.
    Compaction,
}

/// One request.
pub struct Step {
    pub method: &'static str,
    pub path: String,
    pub headers: Vec<(String, String)>,
    /// Text, with holes for what earlier answers said.
    pub body: String,
    pub read: Read,
    /// Items of these names are all that is kept of the lists of the answer.
    pub keep: Vec<String>,
}

impl Case {
    /// Returns true if the step compacts the history.
    pub fn compacts(&self) -> bool {
        self.steps.iter().any(|step| step.read == Read::Compaction)
    }
}

impl Step {
    fn compaction() -> Self {
        let (path, body) = (String::new(), String::new());
        Self { method: "COMPACT", path, headers: Vec::new(), body, read: Read::Compaction, keep: Vec::new() }
    }

    /// The body as it is sent: JSON is text, protobuf stands in base64.
    pub fn bytes(&self, answers: &[Value]) -> Vec<u8> {
        match self.body.strip_prefix("base64:") {
            Some(encoded) => BASE64.decode(encoded.replace(['\n', ' '], "")).unwrap(),
            None => fill(&self.body, answers).into_bytes(),
        }
    }
}

/// Abbreviations in paths and bodies.
const SHORT: &[(&str, &str)] = &[
    ("{core}", "/api/v1/namespaces/{ns}"),
    ("{apps}", "/apis/apps/v1/namespaces/{ns}"),
    ("{batch}", "/apis/batch/v1/namespaces/{ns}"),
    ("{dask}", "/apis/kubernetes.dask.org/v1/namespaces/{ns}"),
    ("{crds}", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"),
    ("{rbac}", "/apis/rbac.authorization.k8s.io/v1"),
];

/// All cases, by file and in the order of each.
pub fn load() -> Vec<Case> {
    let folder = root().join("tests/contract");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|ending| ending == "http"));
    files.sort();
    let mut objects = BTreeMap::new();
    let mut cases = Vec::new();
    for path in files {
        let group = path.file_stem().unwrap().to_string_lossy().into_owned();
        parse(&group, &fs::read_to_string(&path).unwrap(), &mut objects, &mut cases);
    }
    let mut names: Vec<&str> = cases.iter().map(|case: &Case| case.name.as_str()).collect();
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        panic!("two cases are named {}", twice[0]);
    }
    cases
}

fn parse(group: &str, text: &str, objects: &mut BTreeMap<String, Value>, cases: &mut Vec<Case>) {
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("# ")).collect();
    for block in lines.split(|line| line.trim().is_empty()).filter(|block| !block.is_empty()) {
        let (first, rest) = (block[0], &block[1..]);
        if let Some(title) = first.strip_prefix("### ") {
            let name = title.trim().to_owned();
            cases.push(Case { name, group: group.to_owned(), steps: Vec::new() });
            if !rest.is_empty() {
                add(cases, rest, objects);
            }
        } else if let Some((name, value)) = first.strip_prefix('@').and_then(|line| line.split_once(" = ")) {
            let value = format!("{value}\n{}", rest.join("\n"));
            objects.insert(name.to_owned(), body(&value, objects, group));
        } else {
            add(cases, block, objects);
        }
    }
}

fn add(cases: &mut [Case], block: &[&str], objects: &BTreeMap<String, Value>) {
    let case = cases.last_mut().expect("a request stands before the first case");
    let step = request(block, objects, &case.name);
    case.steps.push(step);
}

fn request(block: &[&str], objects: &BTreeMap<String, Value>, case: &str) -> Step {
    let mut words = block[0].split_whitespace();
    let mut verb = words.next().unwrap();
    if verb == "COMPACT" {
        return Step::compaction();
    }
    let mut read = Read::Answer;
    if verb == "WAIT" {
        let code = words.next().and_then(|code| code.parse().ok()).expect("WAIT CODE PATH [TEXT]");
        read = Read::Until(code, words.clone().nth(1).unwrap_or_default().to_owned());
        verb = "GET";
    }
    let (method, media) = match verb {
        "GET" => ("GET", ""),
        "WATCH" => {
            read = Read::Events;
            ("GET", "")
        }
        "POST" => ("POST", "application/json"),
        "PUT" => ("PUT", "application/json"),
        "DELETE" => ("DELETE", "application/json"),
        "PATCH" => ("PATCH", ""),
        "APPLY" => ("PATCH", "application/apply-patch+yaml"),
        "MERGE" => ("PATCH", "application/merge-patch+json"),
        "STRATEGIC" => ("PATCH", "application/strategic-merge-patch+json"),
        "JSON" => ("PATCH", "application/json-patch+json"),
        other => panic!("{case}: what is {other}?"),
    };
    let path = words.next().unwrap_or_else(|| panic!("{case}: {} has no path", block[0])).to_owned();
    let mut headers = vec![("accept".to_owned(), "application/json".to_owned())];
    let mut keep = Vec::new();
    let is_header = |line: &&str| line.starts_with("Accept: ") || line.starts_with("Content-Type: ");
    let mut rest = &block[1..];
    let mut media = media.to_owned();
    while let Some((line, more)) = rest.split_first() {
        if let Some(names) = line.strip_prefix("Keep: ") {
            keep = names.split(", ").map(str::to_owned).collect();
        } else if *line == "Only: outcome" {
            read = Read::Outcome;
        } else if is_header(line) {
            let (name, value) = line.split_once(": ").unwrap();
            match name {
                "Accept" => headers[0].1 = value.to_owned(),
                _ => media = value.to_owned(),
            }
        } else {
            break;
        }
        rest = more;
    }
    let text = rest.join("\n");
    let text = if text.starts_with('@') { body(&text, objects, case).to_string() } else { text };
    if !text.is_empty() && !media.is_empty() {
        headers.push(("content-type".to_owned(), media));
    }
    Step { method, path: long(&path, case), headers, body: long(&text, case), read, keep }
}

/// A JSON text, or `@object` with a merge patch after it.
fn body(text: &str, objects: &BTreeMap<String, Value>, place: &str) -> Value {
    let parse = |text: &str| -> Value {
        serde_json::from_str(text).unwrap_or_else(|error| panic!("{place}: {error} in {text}"))
    };
    let text = text.trim();
    let Some(reference) = text.strip_prefix('@') else { return parse(text) };
    let (name, patch) = reference.split_once(char::is_whitespace).unwrap_or((reference, ""));
    let mut value = objects.get(name).unwrap_or_else(|| panic!("{place}: no object @{name}")).clone();
    if !patch.trim().is_empty() {
        merge(&mut value, &parse(patch));
    }
    value
}

/// RFC 7396.
fn merge(value: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *value = patch.clone();
        return;
    };
    if !value.is_object() {
        *value = Value::Object(serde_json::Map::new());
    }
    let Some(fields) = value.as_object_mut() else { return };
    for (name, change) in changes {
        if change.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name).or_insert(Value::Null), change);
        }
    }
}

fn long(text: &str, case: &str) -> String {
    let text = SHORT.iter().fold(text.to_owned(), |text, (short, long)| text.replace(short, long));
    text.replace("{ns}", case)
}

/// Fills `{2:/metadata/uid}` with what the second step's answer said there.
pub fn fill(text: &str, answers: &[Value]) -> String {
    let mut filled = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        filled += &rest[..at];
        let hole = rest[at + 1..].split('}').next().unwrap_or_default();
        let found = hole.split_once(":/").and_then(|(step, pointer)| {
            let step: usize = step.parse().ok()?;
            let value = answers.get(step.checked_sub(1)?)?.pointer(&format!("/{pointer}"))?;
            Some(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
        });
        match found {
            Some(value) => {
                filled += &value;
                rest = &rest[at + hole.len() + 2..];
            }
            None => {
                filled.push('{');
                rest = &rest[at + 1..];
            }
        }
    }
    filled + rest
}
