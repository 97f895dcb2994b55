//! Texts of a plan about stopping and starting.

use super::style::{Tint, paint, wrap};
use model::diag::Code;
use model::record::Stop;
use plan::{Partial, Plan, StopRequest};

/// `stop: dask_cluster.d, node_pool.a100; the stack file stays as it is`
pub fn stopping(partial: &Partial, width: usize) -> String {
    let what = format!("{}; the stack file stays as it is", sections(&partial.selection.targets));
    wrap(&format!("{} ", paint(Tint::Change, "stop:")), &what, width)
}

/// Returns the line that lists what is started, wrapped at `width` columns: `start: dask_cluster.d, node_pool.a100`.
pub fn starting(partial: &Partial, width: usize) -> String {
    wrap(&format!("{} ", paint(Tint::Change, "start:")), &sections(&partial.selection.targets), width)
}

fn sections(targets: &[String]) -> String {
    let mut sections: Vec<&str> = Vec::new();
    for target in targets {
        let section = target.split('/').next().unwrap_or_default();
        if !sections.contains(&section) {
            sections.push(section);
        }
    }
    sections.join(", ")
}

/// Returns true for a plan of `start`, and not of `apply --start`.
pub fn is_start(plan: &Plan) -> bool {
    plan.stop_state.is_start()
        && plan.partial.as_ref().is_some_and(|partial| partial.selection.excludes.is_empty())
}

/// `Note: stopped by ann@laptop since 2026-11-23T18:00:00Z: node_pool.cpu, dask_cluster.d`, one line for each stop.
pub fn stopped(plan: &Plan, width: usize) -> String {
    let mut stops: Vec<(&Stop, Vec<&str>)> = Vec::new();
    for note in plan.notes.iter().filter(|note| note.code == Code::Stopped.as_str()) {
        let change = plan.changes.iter().find(|change| change.address == note.address);
        let Some(stop) = change.and_then(|change| plan.stop_state.stopped.get(&change.identity)) else {
            continue;
        };
        let same =
            |(other, _): &&mut (&Stop, Vec<&str>)| (&other.by, &other.since) == (&stop.by, &stop.since);
        match stops.iter_mut().find(same) {
            Some((_, addresses)) => addresses.push(note.address.as_str()),
            None => stops.push((stop, vec![note.address.as_str()])),
        }
    }
    let line = |(stop, addresses): (&Stop, Vec<&str>)| {
        let start = match addresses.as_slice() {
            [only] => format!("`dask-infra start {only}` restores it"),
            _ => "`dask-infra start` restores everything that is stopped".to_owned(),
        };
        let code = paint(Tint::Dim, &format!("({})", Code::Stopped.as_str()));
        let what = format!("{stop}: {}; {start} {code}", addresses.join(", "));
        wrap(&format!("{} ", paint(Tint::Bold, "Note:")), &what, width)
    };
    stops.into_iter().map(line).collect()
}

/// Returns the text for a plan that changes only the record, or nothing at all.
pub fn nothing(plan: &Plan) -> Option<&'static str> {
    match (plan.stop_state.is_stop(), plan.stop_state.differs_from_record) {
        (true, true) => Some("Nothing of it exists; apply notes that it is stopped."),
        (true, false) if plan.stop_state.stops_all_stopped() => {
            Some("Nothing of it exists, so there is nothing to stop.")
        }
        (true, false) => Some("It is stopped already."),
        (false, true) if plan.stop_state.starting.is_empty() => {
            Some("Apply notes that it is no longer stopped.")
        }
        (false, true) => Some("Apply notes that it has started."),
        (false, false) => None,
    }
}

/// Words of the next command: what stops, or that what is stopped starts.
pub fn repeated_options(plan: &Plan) -> Vec<String> {
    match plan.stop_state.request {
        StopRequest::Leave => Vec::new(),
        StopRequest::Start if is_start(plan) => {
            let targets = plan.partial.iter().flat_map(|partial| &partial.selection.targets);
            targets.filter(|target| !target.contains('/')).cloned().collect()
        }
        StopRequest::Start => vec!["--start".to_owned()],
        StopRequest::Stop(_) => {
            let targets = plan.partial.iter().flat_map(|partial| &partial.selection.targets);
            // An address with `/` is part of a section and stops with it.
            targets.filter(|target| !target.contains('/')).cloned().collect()
        }
    }
}
