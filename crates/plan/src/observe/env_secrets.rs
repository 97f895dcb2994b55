//! Secrets whose values come from the environment: compared without being kept, and left open in what is planned.

use serde_json::Value;

use crate::observe::diff;
use crate::observe::inputs::Inputs;
use kinds::gke::compare::Compared;
use model::address::FieldPath;
use model::diag::{Code, Diagnostic};
use model::resource::{Effect, FieldChange, JsonText, Late, Resource, Step};
use model::schema::Schema;
use model::secrets::env_values::{Given, VARIABLE, asked, redacted};

/// Reports each environment variable of a Secret that is not set, or empty.
pub(crate) fn check_env_is_set(inputs: &Inputs<'_>, resource: &Resource, problems: &mut Vec<Diagnostic>) {
    for (key, variable) in asked(&resource.body) {
        if inputs.world.given.has(variable) {
            continue;
        }
        let what = format!("the environment variable `{variable}` is not set, or empty");
        let place = resource.origin_of(&FieldPath::keys(["data", key]));
        let problem = Diagnostic::error(Code::MissingEnvironment, what);
        let problem = problem.at_value(place, "the secret is read from it");
        let help = format!(
            "set it and run the command again; plan and apply need the same value: `export {variable}=…`"
        );
        problems.push(problem.about(resource.address.clone(), "").help(help));
    }
}

/// As [`diff::compare`], with the values of the environment, which do not come out of here.
pub(crate) fn compare(
    given: &Given,
    desired: &Value,
    live: &Value,
    manager: &str,
    schema: Option<&Schema>,
    effect: fn(&FieldPath) -> (Effect, Option<&'static str>),
) -> Compared {
    let filled = asked(desired).next().map(|_| given.filled(desired));
    let mut compared = diff::compare(filled.as_ref().unwrap_or(desired), live, manager, schema, effect);
    redact(desired, &mut compared.changes);
    compared
}

/// Takes the values out of what differs in the data of a Secret that has any from the environment.
pub(crate) fn redact(desired: &Value, changes: &mut [FieldChange]) {
    if asked(desired).next().is_none() {
        return;
    }
    let data = FieldPath::keys(["data"]);
    for change in changes.iter_mut().filter(|change| data.contains(&change.path)) {
        change.before = change.before.as_ref().map(redacted);
        change.after = change.after.as_ref().map(redacted);
        change.secret = false;
        if change.before.is_some() && change.after.is_some() {
            change.note = Some("running Pods keep the old value until they restart".to_owned());
        }
    }
}

/// Leaves the values of the environment open in what would be sent.
pub(crate) fn leave_open(given: &Given, steps: &mut [Step]) {
    for step in steps {
        let Step::Call(call) = step else { continue };
        // Hardly any body has one: the others are not unpacked.
        let body = call.body.as_ref().filter(|body| body.text().contains(VARIABLE));
        let Some(body) = body.map(JsonText::value) else { continue };
        let open = asked(&body).map(|(key, variable)| {
            let digest = given.digest(variable, &call.path).unwrap_or_default();
            let late = Late::Environment { variable: variable.to_owned(), digest };
            (FieldPath::keys(["data", key]), late)
        });
        let open: Vec<(FieldPath, Late)> = open.collect();
        call.late.extend(open);
    }
}
