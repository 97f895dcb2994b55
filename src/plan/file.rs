//! Saved plans: a file that holds the calls, and what must still be true when it is applied.

use std::path::Path;

use serde::{Deserialize, Serialize};

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
    std::fs::write(path, text).map_err(|why| failed(why.to_string()))
}

/// Reads a plan that [`save`] wrote, by this version of the program and unchanged since.
pub fn load(path: &Path) -> Result<Plan, Diagnostic> {
    let shown = path.display();
    let failed = |why: String| {
        Diagnostic::error(Code::PlanFile, format!("{shown} is not a plan that can be used: {why}"))
            .help("make it again: dask-infra plan --out FILE")
    };
    let text = std::fs::read(path).map_err(|why| failed(why.to_string()))?;
    let saved: Saved = serde_json::from_slice(&text).map_err(|why| failed(why.to_string()))?;
    let Saved { format, tool, digest: written, plan } = saved;
    if format != FORMAT || tool != env!("CARGO_PKG_VERSION") {
        return Err(failed(format!(
            "version {tool} of dask-infra wrote it, this is {}",
            env!("CARGO_PKG_VERSION")
        )));
    }
    if digest(&plan).map_err(|why| failed(why.to_string()))? != written {
        return Err(failed("its content does not match its digest".into()));
    }
    Ok(plan)
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
    if saved.action != now.action {
        return format!(
            "{}: was to be {}, would now be {}",
            saved.address,
            verb(saved.action),
            verb(now.action)
        );
    }
    let field = now.fields.iter().find(|field| !saved.fields.contains(field));
    match field {
        Some(field) => {
            let live = field.before.as_ref().map_or("absent".to_owned(), ToString::to_string);
            format!("{}: {} is now {live}", saved.address, field.path)
        }
        None => format!("{}: what is live changed since the plan was made", saved.address),
    }
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
