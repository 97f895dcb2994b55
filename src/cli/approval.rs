//! Approval prompts: `yes` for a plan, and the address of everything that would be replaced or deleted. Without a terminal there
//! is no prompt, and a missing approval is refused at once.

use std::io::{self, BufRead, IsTerminal as _};

use crate::cli::budget;
use crate::cli::settings::{Failure, Format};
use crate::report::human::cost;
use crate::report::human::plan_text::{approval_needed, approval_text};
use model::address::Address;
use model::diag::{Code, Diagnostic};
use model::source::Sources;
use plan::{Approval, ApprovalVerb, Mode, Plan};

/// Parses `replace:ADDRESS`, `delete:ADDRESS`, `take:ADDRESS`, `update:ADDRESS` or `budget`.
pub fn parse(text: &str) -> Result<Approval, String> {
    if text == ApprovalVerb::Budget.as_str() {
        return Ok(Approval { verb: ApprovalVerb::Budget, address: Address::new(text) });
    }
    let form =
        "it is `budget`, or has the form replace:ADDRESS, delete:ADDRESS, take:ADDRESS or update:ADDRESS";
    let (verb, address) = text.split_once(':').ok_or(form)?;
    let verb = ApprovalVerb::OF_CHANGES.into_iter().find(|known| known.as_str() == verb).ok_or(form)?;
    if address.is_empty() {
        Err(form.to_owned())
    } else {
        Ok(Approval { verb, address: Address::new(address) })
    }
}

/// States of the approval of the plan as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanApproval {
    /// `yes` is asked for.
    Ask,
    /// `--auto-approve`, or a saved plan.
    Given,
}

impl PlanApproval {
    /// Returns the state that `--auto-approve` gives, or its absence.
    pub fn of(auto_approve: bool) -> Self {
        if auto_approve { Self::Given } else { Self::Ask }
    }
}

/// How an approval was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovedBy {
    /// By options of the command.
    Options,
    /// By a person at the prompt, who may have taken a while.
    Prompt,
}

/// Approvals that are still missing.
#[derive(Debug, PartialEq, Eq)]
struct MissingApprovals {
    approval: PlanApproval,
    by_address: Vec<Approval>,
}

/// Obtains the approval that a plan needs, or refuses.
///
/// # Errors
/// Approval was not given; what to give.
pub fn obtain(
    plan: &Plan,
    allowed: &[Approval],
    approval: PlanApproval,
    format: Format,
) -> Result<ApprovedBy, Failure> {
    let refusals = budget::refusals(plan, allowed);
    if !refusals.is_empty() {
        return Err(Failure::new(refusals, Sources::default()));
    }
    let missing = MissingApprovals { approval, by_address: plan.missing_approvals(allowed) };
    if missing.approval == PlanApproval::Given && missing.by_address.is_empty() {
        return Ok(ApprovedBy::Options);
    }
    let person = format == Format::Text && io::stdin().is_terminal() && io::stderr().is_terminal();
    if !person {
        return Err(refusal(&missing).into());
    }
    ask(plan, &missing, &mut io::stdin().lock(), &mut io::stderr())?;
    Ok(ApprovedBy::Prompt)
}

/// Returns an error for each resource, not managed by this stack, that the plan would adopt without approval: the plan is
/// refused as it stands.
pub fn adoption_refusals(plan: &Plan, sources: &Sources) -> Vec<Diagnostic> {
    let missing = plan.missing_approvals(&[]);
    let adopted = plan.changes.iter().filter_map(|change| Some((change, change.adopted.as_ref()?)));
    let told = adopted.filter_map(|(change, adopted)| {
        let section = Address::new(change.address.section());
        let wants = |one: &&Approval| {
            one.verb == ApprovalVerb::Adopt && (one.address == change.address || one.address == section)
        };
        let one = missing.iter().find(wants)?;
        let span = sources.span(&change.origin);
        let problem = Diagnostic::error(Code::NotOurs, format!("{} {adopted}", change.identity));
        let help = match adopted.fields.is_empty() {
            true => "choose another name, or delete it if it is not needed",
            false => "two tools that apply one field overwrite each other forever: leave it to one of them",
        };
        let help = format!("{help}; to adopt it: --allow {}", approval_text(one));
        Some(problem.at(span, "requested here").about(change.address.clone(), "").help(help))
    });
    told.collect()
}

/// Returns the error that lists the options to give when nobody can be asked.
fn refusal(MissingApprovals { approval, by_address }: &MissingApprovals) -> Diagnostic {
    let mut flags: Vec<String> = Vec::new();
    if *approval == PlanApproval::Ask {
        flags.push("--auto-approve".to_owned());
    }
    flags.extend(by_address.iter().map(|one| format!("--allow {}", approval_text(one))));
    let needed = match by_address.as_slice() {
        [] => "approval required".to_owned(),
        by_address => approval_needed(by_address),
    };
    let what = format!("{needed}, but stdin is not a terminal; nothing was done");
    Diagnostic::error(Code::ApprovalRequired, what)
        .help(format!("review the plan, then give {}", flags.join(" ")))
}

fn ask(
    plan: &Plan,
    MissingApprovals { approval, by_address }: &MissingApprovals,
    answers: &mut dyn BufRead,
    screen: &mut dyn io::Write,
) -> Result<(), Failure> {
    let what = match plan.mode {
        Mode::Apply if plan.stop_state.is_stop() => "Stop everything listed above",
        Mode::Apply => "Apply this plan",
        Mode::Destroy => "Destroy everything listed above",
    };
    let mut question = format!("\n{what} on {} — {}?\n", plan.target, plan.target.label());
    if *approval == PlanApproval::Ask {
        match by_address.as_slice() {
            [] => {}
            by_address => {
                let mut needed =
                    format!("{}, asked next: {}.\n", approval_needed(by_address), address_list(by_address));
                needed[..1].make_ascii_uppercase();
                question.push_str(&needed);
            }
        }
        question.extend(cost::asked(plan).map(|line| format!("{line}\n")));
        question.push_str("Only 'yes' will be accepted: ");
        confirm(&question, &["yes".to_owned()], answers, screen)?;
        question = String::new();
    }
    for one in by_address {
        let verb = match one.verb {
            ApprovalVerb::Replace => "replace",
            ApprovalVerb::Delete => "delete",
            ApprovalVerb::Adopt => "adopt",
            ApprovalVerb::Update => "update",
            ApprovalVerb::Budget => "exceed",
        };
        question.push_str(&format!("To {verb} {0}, type {0}: ", one.address));
        // As `--allow` takes it, too.
        confirm(&question, &[one.address.to_string(), approval_text(one)], answers, screen)?;
        question = String::new();
    }
    Ok(())
}

fn address_list(by_address: &[Approval]) -> String {
    model::diag::listed(by_address.iter().map(|one| one.address.as_str()), "and")
}

fn confirm(
    question: &str,
    expected: &[String],
    answers: &mut dyn BufRead,
    screen: &mut dyn io::Write,
) -> Result<(), Failure> {
    let cannot = |error: io::Error| {
        Diagnostic::error(Code::ApprovalRequired, format!("cannot read the answer: {error}"))
    };
    screen.write_all(question.as_bytes()).and_then(|()| screen.flush()).map_err(cannot)?;
    let mut answer = String::new();
    let read = answers.read_line(&mut answer).map_err(cannot)?;
    if read == 0 {
        // Ctrl-D leaves the cursor behind the question.
        screen.write_all(b"\n").map_err(cannot)?;
    }
    if expected.iter().any(|expected| answer.trim() == expected) {
        return Ok(());
    }
    Err(Diagnostic::error(Code::ApprovalRequired, "not approved; nothing was done").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn approvals_are_a_verb_and_an_address() {
        let approval = parse("replace:dask_cluster.a").unwrap();
        assert_eq!(approval_text(&approval), "replace:dask_cluster.a");
        for wrong in ["dask_cluster.a", "create:a", "delete:"] {
            parse(wrong).unwrap_err();
        }
    }

    fn plan() -> Plan {
        let target = serde_json::json!({
            "gke": { "project": "p", "location": "l", "cluster": "c" }, "context": null, "simulated": false
        });
        let plan = serde_json::json!({
            "target": target, "owner": { "stack": "s", "id": "s" }, "mode": "apply", "offline": false,
            "changes": [], "desired": [], "notes": []
        });
        serde_json::from_value(plan).unwrap()
    }

    #[test]
    fn the_whole_is_asked_first_and_then_each_address() {
        let by_address = vec![parse("delete:node_pool.a").unwrap()];
        let table = [
            ("yes\nnode_pool.a\n", true),
            ("yes\nyes\n", false),
            ("y\n", false),
            ("", false),
            (" yes \n node_pool.a\n", true),
            ("yes\ndelete:node_pool.a\n", true),
            ("yes\nreplace:node_pool.a\n", false),
            ("node_pool.a\n", false),
        ];
        for (typed, agreed) in table {
            let mut screen = Vec::new();
            let missing = MissingApprovals { approval: PlanApproval::Ask, by_address: by_address.clone() };
            let asked = ask(&plan(), &missing, &mut typed.as_bytes(), &mut screen);
            assert_eq!(asked.is_ok(), agreed, "{typed:?}");
            let screen = String::from_utf8(screen).unwrap();
            let head = "\nApply this plan on p / l / c — LIVE?\nDeleting needs approval by address, asked next: `node_pool.a`.\n\
                        Only 'yes' will be accepted: ";
            assert!(screen.starts_with(head), "{screen}");
            assert_eq!(screen.ends_with('\n'), typed.is_empty(), "{screen:?}");
        }
    }

    #[test]
    fn a_refusal_names_the_flags() {
        let by_address = vec![parse("replace:a.b").unwrap()];
        let refusal = refusal(&MissingApprovals { approval: PlanApproval::Ask, by_address });
        assert_eq!(refusal.help.unwrap(), "review the plan, then give --auto-approve --allow replace:a.b");
    }
}
