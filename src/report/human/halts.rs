//! What a plan says of stopping and starting.

use super::style::{Tint, paint, wrap};
use crate::plan::{Halting, Partial, Plan};

/// `stop: dask_cluster.d, node_pool.a100; the stack file stays as it is`
pub fn stopping(partial: &Partial, width: usize) -> String {
    let mut sections: Vec<&str> = Vec::new();
    for target in &partial.selection.targets {
        let section = target.split('/').next().unwrap_or_default();
        if !sections.contains(&section) {
            sections.push(section);
        }
    }
    let what = format!("{}; the stack file stays as it is", sections.join(", "));
    wrap(&format!("{} ", paint(Tint::Change, "stop:")), &what, width)
}

/// What is told where nothing changes but the record, or not even that.
pub fn nothing(plan: &Plan) -> Option<&'static str> {
    match (plan.halts.is_stop(), plan.halts.news) {
        (true, true) => Some("Nothing of it exists; apply notes that it is stopped."),
        (true, false) => Some("It is stopped already."),
        (false, true) => Some("Apply notes that it is no longer stopped."),
        (false, false) => None,
    }
}

/// Words of the next command: what stops, or that what is stopped starts.
pub fn asked_again(plan: &Plan) -> Vec<String> {
    match plan.halts.asked {
        Halting::Leave => Vec::new(),
        Halting::Start => vec!["--start".to_owned()],
        Halting::Stop(_) => {
            let targets = plan.partial.iter().flat_map(|partial| &partial.selection.targets);
            // What is part of a section stops with it.
            targets.filter(|target| !target.contains('/')).cloned().collect()
        }
    }
}
