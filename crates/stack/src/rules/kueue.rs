//! Checks that objects named by Kueue's objects in manifests exist.

use std::collections::BTreeSet;

use crate::rules::Context;
use kinds::kubernetes::{bundle, kueue};
use model::address::FieldPath;
use model::diag::{Code, Diagnostic, nearest};
use model::resource::Identity;

/// Checks that objects of Kueue name objects of the stack: Kueue keeps a queue inactive if one is missing. With an external
/// Kueue, these objects may be external, too.
pub(crate) fn objects_name_what_is_there(context: &mut Context<'_>) {
    let stack = context.stack;
    if !stack.kueue.as_ref().is_some_and(|kueue| kueue.manage.is_managed()) {
        return;
    }
    let Some(lowered) = context.lowered.clone() else { return };
    let external = lowered.external.iter().map(|external| &external.resource.identity);
    let all = lowered.resources.iter().map(|resource| &resource.identity).chain(external);
    let known: BTreeSet<(&str, &str)> = all
        .filter_map(Identity::object)
        .filter(|object| object.gvk.group == kueue::GROUP)
        .map(|object| (object.gvk.kind.as_str(), object.name.as_str()))
        .collect();
    let bundles = stack.bundles();
    for object in bundle::objects(&bundles).filter(|object| object.group_version().0 == kueue::GROUP) {
        for (kind, place, name) in named_by(&object) {
            if known.contains(&(kind, name)) {
                continue;
            }
            let others = known.iter().filter(|(other, _)| *other == kind).map(|(_, name)| *name);
            let instead = match nearest(name, others) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("add the {kind} to a manifest of the stack"),
            };
            let what = format!("the stack has no {kind} `{name}`");
            let held = format!("without it Kueue keeps the {} `{}` inactive", object.kind(), object.name());
            context.say(Diagnostic::warning(Code::NoQueue, what).at_value(place, held).help(instead));
        }
    }
}

/// Returns the kinds, paths and names of the objects that an object of Kueue names.
fn named_by<'a>(object: &bundle::Object<'a>) -> Vec<(&'static str, FieldPath, &'a str)> {
    let (spec, at) = (&object.value["spec"], object.origin().key("spec"));
    let items = |value: &'a serde_json::Value| value.as_array().into_iter().flatten().enumerate();
    let mut found = Vec::new();
    let mut name = |kind, place: FieldPath, value: &'a serde_json::Value| {
        found.extend(value.as_str().map(|name| (kind, place, name)));
    };
    match object.kind() {
        "ClusterQueue" => {
            for (group, value) in items(&spec["resourceGroups"]) {
                let flavors = at.key("resourceGroups").index(group).key("flavors");
                for (flavor, value) in items(&value["flavors"]) {
                    name("ResourceFlavor", flavors.index(flavor).key("name"), &value["name"]);
                }
            }
            let checks = at.key("admissionChecksStrategy").key("admissionChecks");
            for (check, value) in items(&spec["admissionChecksStrategy"]["admissionChecks"]) {
                name("AdmissionCheck", checks.index(check).key("name"), &value["name"]);
            }
            // Of v1beta1.
            for (check, value) in items(&spec["admissionChecks"]) {
                name("AdmissionCheck", at.key("admissionChecks").index(check), value);
            }
        }
        "LocalQueue" => name("ClusterQueue", at.key("clusterQueue"), &spec["clusterQueue"]),
        _ => {}
    }
    found
}
