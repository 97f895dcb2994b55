//! Saved plans: a file that holds the calls, and what must still be true when it is applied.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Action, Change, Plan};
use crate::diag::{Code, Diagnostic};

/// The shape of the file; others are not read.
const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
struct Saved {
    format: u32,
    tool: String,
    digest: String,
    plan: Plan,
}

fn digest(plan: &Plan) -> Result<String, serde_json::Error> {
    Ok(blake3::hash(&serde_json::to_vec(plan)?).to_hex().to_string())
}

/// Writes a plan. An error says what could not be written.
pub fn save(path: &Path, plan: &Plan) -> Result<(), Diagnostic> {
    let failed = |why: String| {
        Diagnostic::error(
            Code::CannotWrite,
            format!("the plan cannot be written to {}: {why}", path.display()),
        )
        .help("give a file in a folder that exists and may be written to")
    };
    let digest = digest(plan).map_err(|why| failed(why.to_string()))?;
    let saved = Saved { format: FORMAT, tool: env!("CARGO_PKG_VERSION").into(), digest, plan: plan.clone() };
    let text = serde_json::to_vec(&saved).map_err(|why| failed(why.to_string()))?;
    write(path, &text).map_err(|why| failed(why.to_string()))
}

/// Whole or not at all: a plan that is cut off must never lie under the name.
fn write(path: &Path, text: &[u8]) -> std::io::Result<()> {
    let special = std::fs::metadata(path).is_ok_and(|there| !there.is_file());
    let Some(name) = path.file_name().filter(|_| !special) else { return std::fs::write(path, text) };
    let mut beside = std::ffi::OsString::from(".");
    beside.push(name);
    beside.push(format!(".{}", std::process::id()));
    let beside = path.with_file_name(beside);
    let moved = std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, path));
    if moved.is_err() {
        // What could not be moved is of no use; that it cannot be removed either changes nothing.
        let _ = std::fs::remove_file(&beside);
    }
    moved
}

/// Reads a plan that [`save`] wrote, by this version of the program and unchanged since.
pub fn load(path: &Path) -> Result<Plan, Diagnostic> {
    let shown = path.display();
    let failed = |why: String| {
        Diagnostic::error(Code::PlanFile, format!("{shown} is not a plan that can be used: {why}"))
            .help("make it again: dask-infra plan --out FILE")
    };
    let text = std::fs::read(path).map_err(|why| match why.kind() {
        std::io::ErrorKind::NotFound => failed("there is no such file".to_owned()),
        _ => failed(why.to_string()),
    })?;
    let value: Value = serde_json::from_slice(&text).map_err(|why| failed(no_json(&text, &why)))?;
    let (format, tool) = (value["format"].as_u64(), value["tool"].as_str());
    let (Some(format), Some(tool)) = (format, tool) else {
        return Err(failed("it is JSON, and not what `plan --out` writes".into()));
    };
    let version = env!("CARGO_PKG_VERSION");
    if format != u64::from(FORMAT) || tool != version {
        let wrote = format!("version {tool} of dask-infra wrote it, and this is {version}");
        return Err(failed(wrote).help(format!(
            "plan again with this version: dask-infra plan --out {shown}; or apply it with version {tool}"
        )));
    }
    let Saved { digest: written, plan, .. } =
        serde_json::from_value(value).map_err(|why| failed(format!("its content was changed: {why}")))?;
    if digest(&plan).map_err(|why| failed(why.to_string()))? != written {
        return Err(failed(
            "its content was changed after it was written; it does not match its digest".into(),
        ));
    }
    Ok(plan)
}

fn no_json(text: &[u8], why: &serde_json::Error) -> String {
    if text.is_empty() {
        "it is empty".to_owned()
    } else if text.starts_with(b"PK") {
        "it is a ZIP archive, as Terraform's plans are".to_owned()
    } else if why.is_eof() && text.starts_with(b"{") {
        "it ends in the middle: it was cut off when it was written or copied".to_owned()
    } else {
        format!("it is no JSON ({why})")
    }
}

/// What moved between a saved plan and one made now of the same resources; empty when it still holds.
pub fn moved(saved: &Plan, now: &Plan) -> Vec<String> {
    let mut moved = Vec::new();
    for change in &saved.changes {
        let same = now.changes.iter().find(|other| other.identity == change.identity);
        match same {
            None => moved.push(format!("{}: it is gone", change.address)),
            Some(other) if differs(change, other) => moved.push(describe(change, other)),
            Some(_) => {}
        }
    }
    for read in &saved.reads {
        let same = now.reads.iter().find(|other| other.identity == read.identity);
        if same.is_none_or(|other| other.fingerprint != read.fingerprint) {
            moved.push(format!("{}: what others own changed since the plan was made", read.address));
        }
    }
    for change in now.changes.iter().filter(|change| change.action != Action::Keep) {
        if !saved.changes.iter().any(|other| other.identity == change.identity) {
            moved.push(format!("{}: it would now be {}", change.address, verb(change.action)));
        }
    }
    moved
}

fn differs(saved: &Change, now: &Change) -> bool {
    saved.action != now.action || saved.fingerprint != now.fingerprint || saved.fields != now.fields
}

fn describe(saved: &Change, now: &Change) -> String {
    let address = &saved.address;
    if saved.action != now.action {
        return format!("{address}: was to be {}, would now be {}", verb(saved.action), verb(now.action));
    }
    let shown = |value: &Option<Value>| value.as_ref().map_or("absent".to_owned(), Value::to_string);
    let news = now.fields.iter().filter(|field| !saved.fields.contains(field));
    let mut moved: Vec<String> = news
        .map(|field| {
            let then = saved.fields.iter().find(|then| then.path == field.path);
            match then {
                Some(then) if then.before != field.before => {
                    format!("{} was {} and is {}", field.path, shown(&then.before), shown(&field.before))
                }
                Some(_) => format!("what a change of {} does is not what it was", field.path),
                // What did not differ then was as it is wanted.
                None => format!("{} was {} and is {}", field.path, shown(&field.after), shown(&field.before)),
            }
        })
        .collect();
    let gone = saved.fields.iter().filter(|field| !now.fields.iter().any(|other| other.path == field.path));
    moved.extend(gone.map(|field| {
        format!("{} was {} and is {} by now", field.path, shown(&field.before), shown(&field.after))
    }));
    if moved.is_empty() {
        return format!("{address}: it is another one now, made anew under the same name, or was changed");
    }
    format!("{address}: {}", moved.join("; "))
}

fn verb(action: Action) -> &'static str {
    match action {
        Action::Keep => "kept",
        Action::Create => "created",
        Action::Update => "updated",
        Action::Replace => "replaced",
        Action::Delete => "deleted",
        Action::Forget => "left to other stacks",
        Action::Run => "run",
    }
}
