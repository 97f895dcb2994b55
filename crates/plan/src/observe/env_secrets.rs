//! Secrets whose values come from environment variables. Plans compare the values without storing them; the steps have deferred
//! values.

use serde_json::Value;

use crate::observe::diff;
use crate::observe::inputs::Inputs;
use kinds::comparison::Comparison;
use model::address::FieldPath;
use model::diag::{Code, Diagnostic};
use model::resource::{Deferred, Effect, FieldChange, JsonText, Resource, Step};
use model::schema::Schema;
use model::secrets::env_values::{ENV_PREFIX, EnvValues, env_references, redacted};

/// Reports each environment variable from which a Secret takes a value and that is not set, or empty.
pub(crate) fn check_env_is_set(inputs: &Inputs<'_>, resource: &Resource, problems: &mut Vec<Diagnostic>) {
    for (key, variable) in env_references(&resource.body) {
        if inputs.world.env_values.has(variable) {
            continue;
        }
        let what = format!("the environment variable `{variable}` is not set, or empty");
        let origin = resource.origin_of(&FieldPath::keys(["data", key]));
        let problem = Diagnostic::error(Code::MissingEnvironment, what);
        let problem = problem.at_value(origin, "the secret is read from it");
        let help = format!(
            "set it and run the command again; plan and apply need the same value: `export {variable}=…`"
        );
        problems.push(problem.about(resource.address.clone(), "").help(help));
    }
}

/// Compares as [`diff::compare`] does, with the values of environment variables. The result does not contain the values.
pub(crate) fn compare(
    env_values: &EnvValues,
    desired: &Value,
    live: &Value,
    manager: &str,
    schema: Option<&Schema>,
    effect: fn(&FieldPath) -> (Effect, Option<&'static str>),
) -> Comparison {
    let filled = env_references(desired).next().map(|_| env_values.filled(desired));
    let mut compared = diff::compare(filled.as_ref().unwrap_or(desired), live, manager, schema, effect);
    redact(desired, &mut compared.changes);
    compared
}

/// Removes values from the differences in the data of a Secret, if any of its values comes from the environment.
pub(crate) fn redact(desired: &Value, changes: &mut [FieldChange]) {
    if env_references(desired).next().is_none() {
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

/// Adds the values of environment variables to the calls as deferred values.
pub(crate) fn defer_env_values(env_values: &EnvValues, steps: &mut [Step]) {
    for step in steps {
        let Step::Call(call) = step else { continue };
        // Hardly any body has one: the others are not unpacked.
        let body = call.body.as_ref().filter(|body| body.text().contains(ENV_PREFIX));
        let Some(body) = body.map(JsonText::value) else { continue };
        let open = env_references(&body).map(|(key, variable)| {
            let digest = env_values.digest(variable, &call.path).unwrap_or_default();
            let deferred = Deferred::Environment { variable: variable.to_owned(), digest };
            (FieldPath::keys(["data", key]), deferred)
        });
        let open: Vec<(FieldPath, Deferred)> = open.collect();
        call.deferred.extend(open);
    }
}
