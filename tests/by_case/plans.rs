//! Plans: what [`crate::planned`] makes of `tests/cases/plan-*` is `plan.txt` with its calls, `drift.txt`, or `diag.txt`
//! when no plan is made.

use std::path::Path;

use dask_infra::report::human::Detail;
use dask_infra::report::{Json, Next, Reporter as _, View};
use model::diag::{self, Look};
use model::resource::{Step, World};
use model::source::Sources;
use plan::{Action, Plan, drift};
use stack::lower::Lowered;

use crate::golden::golden;
use crate::page::{human, screen};
use crate::planned::{Asked, Case, inputs};

/// The plan as people see it, and under it the calls that apply would send.
fn shown(plan: &Plan, sources: &Sources) -> String {
    let (mut human, data, _) = human(Detail::Sections, 100);
    human.plan(plan, &View { sources: Some(sources), next: Next::Apply });
    let mut text = data.take();
    text.push_str("\nCalls:\n");
    for change in plan.changes.iter().filter(|change| change.action != Action::Keep || change.is_waited_for())
    {
        let options = change.fallback.iter().flat_map(|fallback| {
            let attempts =
                fallback.then.iter().map(|attempt| (format!("  else {}:\n", attempt.option), &attempt.steps));
            attempts.chain([("  after the last way:\n".to_owned(), &fallback.cleanup)])
        });
        for (heading, steps) in [(String::new(), &change.steps)].into_iter().chain(options) {
            text.push_str(&heading);
            called(&mut text, steps);
        }
    }
    text
}

/// The steps of a program.
fn called(text: &mut String, steps: &[Step]) {
    for step in steps {
        match step {
            Step::Call(call) => {
                text.push_str(&format!("  {} {}\n", call.method.as_str(), call.path));
                let brief = call.body.as_ref().filter(|body| body.text().len() < 750);
                text.extend(brief.map(|body| format!("    {body}\n")));
            }
            Step::Await(wait) => {
                text.push_str(&format!("  await {:?} of {}\n", wait.until, wait.identity));
            }
            Step::ReadLog { pod, expect: Some(expect) } => {
                text.push_str(&format!("  read log of {pod}: {expect}\n"));
            }
            Step::ReadLog { pod, expect: None } => text.push_str(&format!("  read log of {pod}\n")),
            Step::RecordCompletion { .. } => text.push_str("  record the pass\n"),
        }
    }
}

/// Changes by others, as people and as programs see it.
fn drifted(wanted: Lowered, sources: &Sources, world: &World, asked: &Asked) -> String {
    let (owner, target) = (wanted.owner.clone(), wanted.target.clone());
    let found = match drift(inputs(wanted, sources, world, asked)) {
        Ok(found) => found,
        Err(problems) => return diag::render(&problems, sources, Look::PLAIN),
    };
    let (mut human, people, _) = human(Detail::Sections, 100);
    human.drift(&found, &owner, &target);
    let (screen, programs, _) = screen(100);
    Json::new(screen, || jiff::Timestamp::UNIX_EPOCH).drift(&found, &owner, &target);
    people.take() + &programs.take()
}

pub fn check(folder: &Path) -> Result<(), String> {
    let case = Case::read(folder);
    if case.asked.refresh_only {
        let Case { asked, world, wanted, sources } = case;
        return golden(&folder.join("drift.txt"), &drifted(wanted, &sources, &world, &asked));
    }
    match case.plan(folder) {
        (Ok(plan), sources) => {
            let missing = plan.missing_approvals(&[]);
            let approvals: String = missing
                .iter()
                .map(|c| format!("needs approval: {}:{}\n", c.verb.as_str(), c.address))
                .collect();
            golden(&folder.join("plan.txt"), &format!("{}{approvals}", shown(&plan, &sources)))
        }
        (Err(problems), sources) => {
            golden(&folder.join("diag.txt"), &diag::render(&problems, &sources, Look::PLAIN))
        }
    }
}
