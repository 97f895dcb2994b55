//! **Calls made = calls planned.** What an undisturbed apply writes is what its plan holds, each call once, as it is shown;
//! beside it only the record and its lock are written.

use live::Request;
use model::resource::{Call, JsonText, Step};
use plan::{Action, Plan};
use serde_json::Value;

use super::player::StepResult;

/// # Errors
/// A call that was sent and not planned, or planned and not sent.
pub fn calls_match_plan(done: &StepResult) -> Result<usize, String> {
    let (Some(plan), true) = (&done.plan, done.is_whole()) else { return Ok(0) };
    let calls = planned(plan);
    let own = |request: &&Request| !request.path.starts_with("/api/v1/namespaces/dask-infra");
    let late = |request: &Request| -> Vec<String> {
        let call = calls.iter().find(|call| (call.method, &call.path) == (request.method, &request.path));
        call.map(|call| call.deferred.iter().map(|(path, _)| path.to_string()).collect()).unwrap_or_default()
    };
    let written = done.written.iter().filter(own);
    let mut sent: Vec<String> = written
        .map(|request| line(request.method.as_str(), &request.path, request.body.as_ref(), &late(request)))
        .collect();
    let mut wanted: Vec<String> = calls
        .iter()
        .map(|call| {
            let late: Vec<String> = call.deferred.iter().map(|(path, _)| path.to_string()).collect();
            line(call.method.as_str(), &call.path, call.body.as_ref().map(JsonText::value).as_ref(), &late)
        })
        .collect();
    sent.sort();
    wanted.sort();
    let more = |these: &[String], than: &[String]| {
        let mut rest = than.to_vec();
        let alone = these.iter().find(|one| match rest.iter().position(|other| other == *one) {
            Some(at) => {
                rest.swap_remove(at);
                false
            }
            None => true,
        });
        alone.cloned()
    };
    if let Some(call) = more(&sent, &wanted) {
        return Err(format!("calls: sent and not planned: {call}"));
    }
    match more(&wanted, &sent) {
        Some(call) => Err(format!("calls: planned and not sent: {call}")),
        None => Ok(sent.len()),
    }
}

fn planned(plan: &Plan) -> Vec<&Call> {
    let changes = plan.changes.iter().filter(|change| change.action != Action::Keep);
    let calls = changes.flat_map(|change| &change.steps).filter_map(|step| match step {
        Step::Call(call) if call.method.as_str() != "GET" => Some(call),
        Step::Call(_) | Step::Await(_) | Step::ReadLog { .. } | Step::RecordCompletion { .. } => None,
    });
    calls.collect()
}

/// One line for a write, without what is filled in right before it is sent.
fn line(method: &str, path: &str, body: Option<&Value>, late: &[String]) -> String {
    let mut body = body.cloned().unwrap_or_default();
    for path in late {
        let (inner, field) =
            path.rsplit_once('.').map_or(("", path.as_str()), |(inner, field)| (inner, field));
        let inner = if inner.is_empty() { String::new() } else { format!("/{}", inner.replace('.', "/")) };
        if let Some(Value::Object(fields)) = body.pointer_mut(&inner) {
            fields.remove(field);
        }
    }
    format!("{method} {path} {body}")
}
