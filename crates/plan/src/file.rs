//! Saved plans: files with the calls of a plan, and with the live state that must be unchanged when it is applied.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Action, Change, Inputs, Plan};
use model::diag::{Code, Diagnostic};
use model::prices::Prices;
use model::resource::{
    Deferred, FieldChange, Identity, JsonText, KindId, Lowered, Method, Resource, Step, World,
};
use model::source::Sources;

/// The format version; files of other versions are refused.
const FORMAT: u32 = 3;

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

/// Returns a plan as the bytes of its file.
///
/// # Errors
/// Serialization fails.
pub fn to_bytes(plan: &Plan) -> Result<Vec<u8>, serde_json::Error> {
    let tool = env!("CARGO_PKG_VERSION").into();
    serde_json::to_vec(&Saved { format: FORMAT, tool, digest: digest(plan)?, plan: plan.clone() })
}

/// Returns the error for an unusable plan file.
pub fn unusable_plan_file(shown: &str, why: &str) -> Diagnostic {
    Diagnostic::error(Code::PlanFile, format!("{shown} is not a usable plan: {why}"))
        .help("create it again: dask-infra plan --out FILE")
}

/// Reads a plan that [`to_bytes`] of this version wrote and that was not edited since. `shown` is the file's name in messages.
///
/// # Errors
///
/// The reason why it cannot be used.
pub fn read(shown: &str, text: &[u8]) -> Result<Plan, Diagnostic> {
    let failed = |why: String| unusable_plan_file(shown, &why);
    let value: Value = serde_json::from_slice(text).map_err(|why| failed(json_error(text, &why)))?;
    let (format, tool) = (value["format"].as_u64(), value["tool"].as_str());
    let (Some(format), Some(tool)) = (format, tool) else {
        return Err(failed("it is JSON, but not a file written by `plan --out`".into()));
    };
    let version = env!("CARGO_PKG_VERSION");
    if format != u64::from(FORMAT) || tool != version {
        let wrote = format!("it was written by dask-infra {tool}, and this is {version}");
        return Err(failed(wrote).help(format!(
            "plan again with this version: dask-infra plan --out {shown}; or apply it with version {tool}"
        )));
    }
    let unknown = unknown_kind(&value["plan"]);
    let Saved { digest: written, plan, .. } = serde_json::from_value(value).map_err(|why| {
        failed(format!("its content was changed: {}", unknown.unwrap_or_else(|| why.to_string())))
    })?;
    if digest(&plan).map_err(|why| failed(why.to_string()))? != written {
        return Err(failed(
            "its content was changed after it was written; it does not match its digest".into(),
        ));
    }
    check_shape(&plan).map_err(|why| failed(format!("its content was changed: {why}")))?;
    Ok(plan)
}

/// Returns a message about a desired resource of a kind that this version does not have.
fn unknown_kind(plan: &Value) -> Option<String> {
    let items = |key: &str| plan[key].as_array().into_iter().flatten();
    let unknown =
        |desired: &&Value| desired["kind"].as_str().is_some_and(|kind| KindId::named(kind).is_none());
    let in_file = plan["in_file"]["resources"].as_array().into_iter().flatten();
    let mut desired =
        items("desired").chain(in_file).chain(items("theirs").map(|external| &external["resource"]));
    let found = desired.find(unknown)?;
    Some(format!("{} is of an unknown kind", found["address"].as_str().unwrap_or_default()))
}

/// Checks the shape of desired resources that planning relies on: a digest can be computed for any content.
fn check_shape(plan: &Plan) -> Result<(), String> {
    let table = |value: Option<&Value>| value.is_none_or(|value| value.is_null() || value.is_object());
    let external = plan.external.iter().map(|external| &external.resource);
    for resource in plan.desired.iter().chain(&plan.file_baseline.resources).chain(external) {
        let Resource { address, body, create_only, .. } = resource;
        let pointers = ["/metadata", "/metadata/labels", "/metadata/annotations", "/spec", "/config"];
        let inner = pointers.iter().all(|pointer| table(body.pointer(pointer)));
        if !body.is_object() || !inner || !table(Some(create_only)) {
            return Err(format!("the desired body of {address} is not an object"));
        }
    }
    Ok(())
}

fn json_error(text: &[u8], why: &serde_json::Error) -> String {
    if text.is_empty() {
        "it is empty".to_owned()
    } else if text.starts_with(b"PK") {
        "it is a ZIP archive, as Terraform's plans are".to_owned()
    } else if why.is_eof() && text.starts_with(b"{") {
        "it is truncated: it was cut off when it was written or copied".to_owned()
    } else {
        format!("it is not valid JSON ({why})")
    }
}

/// Returns the inputs of a saved plan, with the world as it is now.
pub fn replan_inputs<'a>(saved: &'a Plan, world: &'a World, sources: &'a Sources) -> Inputs<'a> {
    let Plan {
        target,
        owner,
        mode,
        desired,
        file_baseline: in_file,
        external,
        capacity_options,
        bill,
        budget,
        approved,
        partial,
        allow_retarget: retarget,
        replace,
        retry_capacity,
        idle_wait_seconds: when_idle,
        stop_state,
        ..
    } = saved;
    let stack = Lowered {
        owner: owner.clone(),
        target: target.clone(),
        resources: in_file.restored(desired),
        external: external.clone(),
        capacity_options: capacity_options.clone(),
    };
    Inputs {
        approved: approved.clone(),
        selection: partial.as_ref().map(|partial| partial.selection.clone()).unwrap_or_default(),
        allow_retarget: *retarget,
        replace: replace.clone(),
        retry_capacity: *retry_capacity,
        idle_wait_seconds: *when_idle,
        stop_state: stop_state.clone(),
        budget: *budget,
        prices: bill.as_ref().and_then(|bill| bill.prices.as_deref()).unwrap_or_else(|| Prices::list()),
        ..Inputs::of(stack, *mode, world, sources)
    }
}

/// Returns the differences between a saved plan and a new one of the same resources; empty if the saved one still holds. Then the
/// new plan is applied: it has the steps of the saved one, at current versions.
pub fn stale_changes(saved: &Plan, now: &Plan) -> Vec<String> {
    let mut moved = Vec::new();
    let (before, after) = (by_identity(saved), by_identity(now));
    for change in &saved.changes {
        let same = after.get(&change.identity).copied();
        match same {
            None => moved.push(format!("{}: it no longer exists", change.address)),
            // Mostly all of it is the same, and nothing needs a copy without what moves by itself.
            Some(other) if change != other && relied_on(change) != relied_on(other) => {
                moved.push(describe(change, other));
            }
            Some(_) => {}
        }
    }
    for read in &saved.reads {
        let same = now.reads.iter().find(|other| other.identity == read.identity);
        if same.is_none_or(|other| other.fingerprint != read.fingerprint) {
            moved.push(format!("{}: managed elsewhere, and changed since the plan was made", read.address));
        }
    }
    for change in now.changes.iter().filter(|change| change.action != Action::Keep) {
        if !before.contains_key(&change.identity) {
            moved.push(format!("{}: planned: no change; now: {}", change.address, verb(change.action)));
        }
    }
    moved
}

/// Returns the new plan with the positions in the stack file, which only the saved one knows.
pub fn with_saved_locations(mut now: Plan, saved: &Plan) -> Plan {
    let before = by_identity(saved);
    for change in &mut now.changes {
        let same = before.get(&change.identity);
        change.location = same.and_then(|same| same.location.clone());
    }
    now
}

/// Returns the changes of a plan by identity; of two with one identity the first.
fn by_identity(plan: &Plan) -> HashMap<&Identity, &Change> {
    plan.changes.iter().rev().map(|change| (&change.identity, change)).collect()
}

/// Returns the parts of a change that a person agrees to. Parts that change by themselves are left out: versions of objects,
/// times of writes, the body of a deleted object, and positions in the file and in the plan.
fn relied_on(change: &Change) -> Change {
    let mut change = Change {
        location: None,
        depends_on: Vec::new(),
        before: JsonText::default(),
        estimate: None,
        ..change.clone()
    };
    for (_, time) in change.fields.iter_mut().filter_map(|field| field.drift.as_mut()) {
        time.clear();
    }
    if change.action == Action::Keep {
        // The wait of a kept resource depends on the changes that follow it.
        change.steps.retain(|step| !matches!(step, Step::Await(_)));
        change.fallback = None;
    }
    for step in &mut change.steps {
        let Step::Call(call) = step else { continue };
        let body = call.body.as_ref().filter(|_| call.method == Method::Patch);
        let Some(mut body) = body.map(JsonText::value) else { continue };
        let version = body.pointer_mut("/metadata/resourceVersion");
        if let Some(version) = version.filter(|version| *version != kinds::kubernetes::calls::ABSENT) {
            *version = Value::Null;
            call.body = Some(body.into());
        }
    }
    change
}

fn describe(saved: &Change, now: &Change) -> String {
    let address = &saved.address;
    if saved.action != now.action {
        return format!("{address}: planned: {}; now: {}", verb(saved.action), verb(now.action));
    }
    let text = |value: Option<Value>| value.map_or("absent".to_owned(), |value| value.to_string());
    let before = |field: &FieldChange| text(field.shown().0);
    let after = |field: &FieldChange| text(field.shown().1);
    let news = now.fields.iter().filter(|field| !saved.fields.contains(field));
    let mut moved: Vec<String> = news
        .map(|field| {
            let then = saved.fields.iter().find(|then| then.path == field.path);
            match then {
                Some(then) if then.before != field.before => {
                    format!("{} was {} and is {}", field.path, before(then), before(field))
                }
                Some(_) => format!("the effect of changing {} is different now", field.path),
                // A field without a difference then had its desired value.
                None => format!("{} was {} and is {}", field.path, after(field), before(field)),
            }
        })
        .collect();
    let gone = saved.fields.iter().filter(|field| !now.fields.iter().any(|other| other.path == field.path));
    moved.extend(
        gone.map(|field| format!("{} was {} and is now {}", field.path, before(field), after(field))),
    );
    if !moved.is_empty() {
        return format!("{address}: {}", moved.join("; "));
    }
    if saved.fingerprint != now.fingerprint {
        return format!("{address}: it was replaced by another one of the same name, or changed");
    }
    if let Some(variable) = other_value(saved, now) {
        return format!(
            "{address}: the environment variable `{variable}` has changed since the plan was made"
        );
    }
    match (saved.why(), now.why()) {
        (was, Some(is)) if was.as_ref() != Some(&is) => {
            format!("{address}: now: {}: {is}", verb(now.action))
        }
        (Some(was), None) => {
            format!("{address}: planned: {}; no longer true: {was}", verb(saved.action))
        }
        _ => format!("{address}: its requests now differ from those in the plan"),
    }
}

/// Returns an environment variable whose value has changed since the saved plan was made.
fn other_value<'c>(saved: &'c Change, now: &Change) -> Option<&'c str> {
    let now: Vec<&Deferred> = deferred_values(now).collect();
    deferred_values(saved).find_map(|deferred| match deferred {
        Deferred::Environment { variable, digest: _ } if !now.contains(&deferred) => Some(variable.as_str()),
        Deferred::Environment { .. }
        | Deferred::LabelFingerprint
        | Deferred::ManagedFields { .. }
        | Deferred::Version => None,
    })
}

fn deferred_values(change: &Change) -> impl Iterator<Item = &Deferred> {
    let calls = change.steps.iter().filter_map(|step| match step {
        Step::Call(call) => Some(call),
        Step::Await(_) | Step::ReadLog { .. } | Step::RecordCompletion { .. } => None,
    });
    calls.flat_map(|call| call.deferred.iter().map(|(_, deferred)| deferred))
}

fn verb(action: Action) -> &'static str {
    match action {
        Action::Keep => "kept",
        Action::Create => "created",
        Action::Update => "updated",
        Action::Replace => "replaced",
        Action::Delete => "deleted",
        Action::Forget => "released",
        Action::Run => "run",
    }
}
