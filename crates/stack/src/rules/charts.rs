//! Checks of what charts create: objects outside of the release's namespace, hooks without a place, and wrong defaults of the
//! Dask chart.

use serde_json::Value;

use crate::rules::Context;
use kinds::json::text;
use kinds::kubernetes::bundle::{Bundle, Kinds, Object};
use kinds::kubernetes::helm_release::{self, GROUPS};
use kinds::kubernetes::hooks::{HOOK, HookPlacement, Hooks};
use model::address::FieldPath;
use model::diag::{Code, Diagnostic};

/// Returns the objects that charts rendered.
fn objects<'a>(context: &Context<'a>) -> Vec<Object<'a>> {
    let bundles = context.stack.bundles().into_iter().filter(Bundle::is_chart);
    bundles.flat_map(Bundle::objects).collect()
}

/// Checks that a chart creates objects only in the namespace of its release and in allowed ones.
pub(crate) fn objects_are_in_their_namespace(context: &mut Context<'_>) {
    let kinds = Kinds::of(&context.stack.bundles());
    for object in objects(context) {
        let (group, version) = object.group_version();
        let namespaced = kinds.api(group, version, object.kind()).is_some_and(|api| api.namespaced);
        let (namespace, own) = (object.namespace(), object.bundle.namespace.unwrap_or("default"));
        let allowed = object.bundle.other_namespaces.iter().any(|other| other == namespace);
        if !namespaced || namespace == own || allowed {
            continue;
        }
        let what = format!(
            "the chart creates the {} `{}` in the namespace `{namespace}`, outside its own, `{own}`",
            object.kind(),
            object.name()
        );
        let place = object.origin().key("metadata").key("namespace");
        let section = object.bundle.path();
        let finding = Diagnostic::error(Code::OutsideNamespace, what).at_value(place, "");
        let finding = finding.at_key(section.key("namespace"), format!("the release is in `{own}`"));
        let help = match object.bundle.section {
            helm_release::SECTION => format!(
                "fix the value that sets it, or allow it: `other_namespaces = [\"{namespace}\"]` under \
                 `[{section}]`"
            ),
            _ => "fix the value that sets it".to_owned(),
        };
        context.say(finding.help(help));
    }
}

/// Refuses hooks that a stack cannot apply, and warns of tests, which are skipped.
pub(crate) fn hooks_have_a_place(context: &mut Context<'_>) {
    let charts = context.stack.bundles().into_iter().filter(Bundle::is_chart);
    for object in charts.flat_map(Bundle::all).collect::<Vec<_>>() {
        let place = object.origin().key("metadata").key("annotations").key(HOOK);
        let (kind, name) = (object.kind(), object.name());
        let events = text(&object.value["metadata"]["annotations"][HOOK]);
        let finding = match object.placement() {
            HookPlacement::Refused(event) => {
                let what = format!(
                    "the {kind} `{name}` of the chart is a hook that Helm runs at each {}",
                    at(event)
                );
                let section = object.bundle.path();
                let keys = match object.bundle.section {
                    helm_release::SECTION => format!(
                        "turn it off with the chart's values; or, under `[{section}]`, `hooks = \"once\"` runs \
                         it once and again when its text changes, `hooks = \"none\"` skips all hooks"
                    ),
                    _ => "turn it off with the chart's values".to_owned(),
                };
                Diagnostic::error(Code::HookHasNoPlace, what)
                    .at_value(place, "a plan cannot run it")
                    .help(keys)
            }
            HookPlacement::LeftOut if object.bundle.hooks != Some(Hooks::None) && events.contains("test") => {
                let what = format!("the {kind} `{name}` of the chart is a test: it is skipped");
                Diagnostic::warning(Code::HookLeftOut, what)
                    .at_value(place, "run by `helm test`")
                    .help("`hooks = \"none\"` skips all hooks without this warning")
            }
            _ => continue,
        };
        context.say(finding);
    }
}

/// Checks that keys of the operator's chart are set only with `source = "chart"`.
pub(crate) fn operators_chart_is_asked_for(context: &mut Context<'_>) {
    let Some(operator) = context.stack.dask_operator.as_ref().filter(|operator| !operator.is_chart()) else {
        return;
    };
    let given = [
        ("chart", operator.chart.is_some()),
        ("repo", operator.repo.is_some()),
        ("values", !operator.values.is_empty()),
        ("values_files", !operator.values_files.is_empty()),
    ];
    let section = FieldPath::keys([kinds::scope::DASK_OPERATOR]);
    let Some((key, _)) = given.into_iter().find(|(_, given)| *given) else { return };
    let what = format!("`{key}` has no effect: the operator's objects do not come from its chart");
    let help = match operator.manage.is_managed() {
        true => "add `source = \"chart\"`, or remove the key",
        false => "remove the key: the operator is managed elsewhere",
    };
    context.say(Diagnostic::error(Code::ChartNotAskedFor, what).at_key(section.key(key), "").help(help));
}

fn at(event: &str) -> &str {
    match event.split_once('-') {
        Some((_, "upgrade")) => "upgrade of a release",
        Some((_, "delete")) => "deletion of a release",
        _ => event,
    }
}

/// The hash of the password `dask` in the Dask chart's own values.
const KNOWN: &str = "sha1:aae8550c0a44:9507d45e087d5ee481a5ce9f4f16f37a0867318c";

/// Reports the documented default password of Jupyter in the Dask chart. Source: `values.yaml` of the chart, `jupyter.password`.
pub(crate) fn jupyter_has_a_password(context: &mut Context<'_>) {
    let objects = objects(context);
    for object in objects.iter().filter(|object| object.kind() == "ConfigMap") {
        let data = object.value["data"].as_object().into_iter().flatten();
        let none = |line: &str| {
            let said = line.trim().split_once('=').map(|(key, value)| (key.trim(), value.trim()));
            matches!(said, Some(("c.NotebookApp.password" | "c.ServerApp.password", "''" | "\"\"")))
        };
        let found = data.filter_map(|(key, value)| Some((key, value.as_str()?)));
        let found = found.map(|(key, value)| (key, value.contains(KNOWN), value.lines().any(none)));
        let Some((key, known, _)) = found.into_iter().find(|(_, known, none)| *known || *none) else {
            continue;
        };
        let component = &object.value["metadata"]["labels"]["component"];
        let open = objects.iter().find(|service| {
            service.kind() == "Service"
                && service.bundle.path() == object.bundle.path()
                && !component.is_null()
                && service.value["metadata"]["labels"]["component"] == *component
                && ["LoadBalancer", "NodePort"].contains(&text(&service.value["spec"]["type"]))
        });
        let what = match known {
            true => "Jupyter has the chart's default password, `dask`, which is public",
            false => "Jupyter has no password",
        };
        let finding = match open {
            Some(_) => Diagnostic::error(Code::JupyterPassword, what),
            None => Diagnostic::warning(Code::JupyterPassword, what),
        };
        let finding = finding.at_key(object.origin().key("data").key(key), "in this file");
        let finding = match open {
            Some(service) => finding.at_value(service.origin().key("spec").key("type"), "insecure"),
            None => finding,
        };
        let address = object.bundle.path().key("values").key("jupyter").key("password");
        context.say(finding.help(format!(
            "set the hash of your own password as `jupyter.password` in the values, and allow it: \
             `[allow.literal_secrets]` `{} = \"a hash\"`; or turn Jupyter off: `jupyter = {{ enabled = false }}`",
            crate::rules::secrets::quoted(&address)
        )));
    }
}

/// Reports empty values of groups, which the Dask chart treats as unset: the group then gets the value of `worker`. Source:
/// `merge . $.Values.worker` in the chart's template; Sprig's `merge` fills what is empty.
pub(crate) fn groups_get_what_they_say(context: &mut Context<'_>) {
    for (key, release) in &context.stack.helm_release {
        let Some((list, entries)) = release.value(key, GROUPS) else { continue };
        let made = release.worker_groups(key);
        for (index, entry) in entries.as_array().into_iter().flatten().enumerate() {
            let path = list.index(index);
            let name = text(&entry["name"]);
            let group = made.iter().find(|group| group.name == name && group.path == path.key("replicas"));
            if let Some(replicas) = group.and_then(|group| group.replicas).filter(|_| entry["replicas"] == 0)
                && replicas > 0
            {
                let what = format!(
                    "the chart treats `replicas = 0` as unset: the group `{name}` gets {replicas} workers, \
                     like `worker`"
                );
                let finding = Diagnostic::error(Code::TakenForUnset, what)
                    .at_value(path.key("replicas"), "has no effect");
                context.say(finding.help("remove the group from the list"));
            }
            let worker = release.value(key, "worker").map_or(&Value::Null, |(_, worker)| worker);
            for (place, field) in empty(entry, worker) {
                let place: FieldPath = path.segments().iter().chain(place.segments()).cloned().collect();
                let what = format!(
                    "the chart treats an empty `{field}` as unset: the group `{name}` gets the value of `worker`"
                );
                let finding = Diagnostic::warning(Code::TakenForUnset, what).at_value(place, "has no effect");
                context.say(
                    finding.help(
                        "give it a value of its own, or move it from `worker` to the groups that need it",
                    ),
                );
            }
        }
    }
}

/// Returns the values that are empty in a group and not in `worker`, except the number of workers.
fn empty(entry: &Value, worker: &Value) -> Vec<(FieldPath, String)> {
    let blank = |value: &Value| match value {
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(table) => table.is_empty(),
        Value::Null => false,
    };
    let said = |value: &Value| !value.is_null() && !blank(value);
    let keys =
        entry.as_object().into_iter().flatten().filter(|(key, _)| *key != "replicas" && *key != "name");
    let found = keys.filter(|(key, value)| blank(value) && said(&worker[key.as_str()]));
    found.map(|(key, _)| (FieldPath::keys([key.as_str()]), key.clone())).collect()
}
