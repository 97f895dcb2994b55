//! CustomResourceDefinitions that change while objects of their kinds are stored: reports what would be lost. Source:
//! `ValidateCustomResourceDefinitionUpdate` of k8s.io/apiextensions-apiserver refuses a CRD without a version of
//! `status.storedVersions`; unknown fields are pruned when an object is next written.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::Note;
use crate::planner::Planner;
use model::address::FieldPath;
use model::diag::{Code, Diagnostic, listed};
use model::resource::Resource;

/// The maximum number of removed fields that a note lists.
const MAX_LISTED: usize = 3;

impl Planner<'_> {
    /// Refuses a CRD without a version that objects are stored in, and notes removed fields.
    pub(crate) fn check_stored_versions(&mut self, resource: &Resource, live: &Value) {
        let desired = &resource.body;
        let names = |value: &Value| -> BTreeSet<String> {
            let versions = value["spec"]["versions"].as_array().into_iter().flatten();
            versions.filter_map(|version| version["name"].as_str().map(str::to_owned)).collect()
        };
        let has = names(desired);
        let stored =
            live["status"]["storedVersions"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let lost: Vec<&str> = stored.filter(|version| !has.contains(*version)).collect();
        if !lost.is_empty() {
            let what = format!(
                "{} no longer has the version {}, in which live objects may be stored",
                resource.address,
                listed(lost.iter().copied(), "and")
            );
            let origin = resource.origin_of(&FieldPath::keys(["spec", "versions"]));
            let help = "keep the version with `served: false`, or migrate the objects and take it out of \
                        `status.storedVersions` first";
            let problem =
                Diagnostic::error(Code::StoredVersion, what).at_value(origin, "without it").help(help);
            self.problems.push(problem);
        }
        let served = |value: &Value| -> BTreeSet<String> {
            let versions = value["spec"]["versions"].as_array().into_iter().flatten();
            let served = versions.filter(|version| version["served"] == true);
            served.filter_map(|version| version["name"].as_str().map(str::to_owned)).collect()
        };
        let still = served(desired);
        let gone: Vec<String> = served(live).into_iter().filter(|version| !still.contains(version)).collect();
        let fields = removed(desired, live);
        let mut said = Vec::new();
        if !gone.is_empty() {
            said.push(format!("it no longer serves {}", listed(gone.iter().map(String::as_str), "and")));
        }
        if !fields.is_empty() {
            let more = fields.len().saturating_sub(MAX_LISTED);
            let named = listed(fields.iter().take(MAX_LISTED).map(String::as_str), "and");
            let more = if more == 0 { String::new() } else { format!(" and {more} more") };
            said.push(format!(
                "it no longer has the fields {named}{more}: objects lose them on their next write"
            ));
        }
        if !said.is_empty() {
            self.notes.push(Note::new(Code::RemovedInDefinition, &resource.address, said.join("; ")));
        }
    }
}

/// Returns the fields of the live CRD that the desired CRD no longer has. Fields inside a removed field are left out.
fn removed(desired: &Value, live: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for old in live["spec"]["versions"].as_array().into_iter().flatten() {
        let new = desired["spec"]["versions"].as_array().into_iter().flatten();
        let Some(new) = new.into_iter().find(|new| new["name"] == old["name"]) else { continue };
        let schema = |version: &Value| version["schema"]["openAPIV3Schema"].clone();
        fields(&schema(new), &schema(old), &FieldPath::root(), &mut found);
    }
    found.sort();
    found.dedup();
    found
}

fn fields(new: &Value, old: &Value, path: &FieldPath, found: &mut Vec<String>) {
    if new["x-kubernetes-preserve-unknown-fields"] == true {
        return;
    }
    for (name, old) in old["properties"].as_object().into_iter().flatten() {
        let path = path.key(name);
        match new["properties"].get(name) {
            Some(new) => fields(new, old, &path, found),
            // Any value may stand there.
            None if !new["additionalProperties"].is_null() && new["additionalProperties"] != false => {}
            None => found.push(path.to_string()),
        }
    }
    for inner in ["items", "additionalProperties"] {
        if old[inner].is_object() && new[inner].is_object() {
            fields(&new[inner], &old[inner], path, found);
        }
    }
}
