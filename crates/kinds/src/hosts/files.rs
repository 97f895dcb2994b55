//! The user's own code on hosts: a folder for each content, named by its digest. A section's object has its current digest. The agent
//! keeps folders that processes or Dask clusters of the host still name, and deletes the others.

use serde_json::{Map, Value, json};

use crate::code::Code;
use crate::hosts::api;
use crate::json::text;
use crate::kind::{ChangeContext, Compare, Defect, Kind};
use crate::kubernetes::calls::object_change_steps;
use crate::scope::Scope;
use model::address::{Address, FieldPath};
use model::resource::{Effect, Facts, KindId, Owner, Readiness, Recreation, Resource};

/// Seconds: megabytes are written.
const DEADLINE: u32 = 120;

/// The field with the contents, which the agent writes into files.
const CONTENT: &str = "content";

pub const KIND: Kind = Kind {
    rank: 55,
    compare: Compare::Kubernetes(effect),
    write_only: Some(|| FieldPath::keys(["spec", CONTENT])),
    change_steps: |context| object_change_steps(context, KindId::HostFiles, Facts::None, DEADLINE),
    find_defect,
    readiness: |_, found| Ok(readiness(found.own_object())),
    address: |object| Address::object("stack", &object.gvk.kind, None, &object.name),
    ..Kind::DEFAULT
};

/// The field of a Dask cluster, a group and a job with the digest of their files.
pub const FIELD: &str = "files";

/// The field of a process with its working folder.
const WORKING_DIR: &str = "workingDir";

/// Returns the files of a section, which come before its resource; `None` if it has none.
pub fn lower(of: &mut Resource, code: &Code<'_>, scope: &Scope) -> Option<Resource> {
    let digest = code.digest()?;
    let (files, origin) = &code.files;
    let api = api::files();
    // The id, as several stacks on one machine may have a section of this name.
    let name = object_name(&scope.owner, &of.address);
    let mut listed = Map::new();
    let mut content = Map::new();
    for (path, file) in files.iter() {
        listed.insert(path.clone(), json!(file.short_digest()));
        content.insert(path.clone(), json!({ "executable": file.executable, "base64": file.base64() }));
    }
    let mut spec = json!({ "digest": digest, "files": listed, CONTENT: content });
    if let Some(hosts) = scope.target.host_names() {
        spec["hosts"] = json!(hosts);
    }
    let address = Address::object(of.address.as_str(), &api.kind, None, &name);
    of.depends_on.push(address.clone());
    Some(Resource {
        address,
        identity: api::identity(&api, &name),
        kind: KindId::HostFiles,
        body: json!({
            "apiVersion": api.api_version(), "kind": api.kind,
            "metadata": { "name": name, "labels": scope.labels() },
            "spec": spec,
        }),
        create_only: Value::Null,
        provenance: vec![(
            FieldPath::keys(["spec", "hosts"]),
            FieldPath::keys([scope.target.hosts_section(), "hosts"]),
        )],
        origin: origin.clone(),
        depends_on: Vec::new(),
        protect: false,
        recreation: Recreation::Always,
    })
}

/// Returns the name of the object with the files of a section.
pub fn object_name(owner: &Owner, section: &Address) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '-' };
    format!("{}-{section}", owner.id).chars().map(plain).collect()
}

/// Adds the digest of the files to a spec.
pub(crate) fn add(spec: &mut Value, code: &Code<'_>) {
    if let Some(digest) = code.digest() {
        spec[FIELD] = json!(digest);
    }
}

/// Adds the working folder to a process.
pub(crate) fn add_folder(process: &mut Value, folder: Option<&str>) {
    if let Some(folder) = folder {
        process[WORKING_DIR] = json!(folder);
    }
}

/// Returns the provenance of the files and of the working folders of processes, which are fields of `spec`. Each has the path of its
/// own working folder, if it has one.
pub(crate) fn provenance(
    code: &Code<'_>,
    processes: &[(&str, Option<FieldPath>)],
) -> Vec<(FieldPath, FieldPath)> {
    let spec = FieldPath::keys(["spec"]);
    let folder = code.working_dir.as_ref().map(|(_, path)| path);
    let folders = processes.iter().filter_map(|(process, own)| {
        Some((spec.key(process).key(WORKING_DIR), own.as_ref().or(folder)?.clone()))
    });
    folders.chain([(spec.key(FIELD), code.files.1.clone())]).collect()
}

fn effect(_: &FieldPath) -> (Effect, Option<&'static str>) {
    // The sections that use them say what restarts.
    (Effect::InPlace, None)
}

/// Finds files that are missing or were changed on a host. The repair writes them again.
fn find_defect(context: &ChangeContext) -> Option<Defect> {
    let status = &context.live?["status"];
    let why = (status["phase"] == "Failed").then(|| text(&status["message"]))?;
    Some(Defect::of(context, format!("{why}; they are written again")))
}

fn readiness(live: &Value) -> Readiness {
    api::unread_hosts(live).unwrap_or_else(|| match text(&live["status"]["phase"]) {
        "Ready" => Readiness::Ready,
        "Failed" => Readiness::Failed(text(&live["status"]["message"]).to_owned()),
        _ => Readiness::progressing("its files are being copied"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_ready_when_all_hosts_have_them() {
        for (status, expect) in [
            (json!({ "phase": "Ready" }), Readiness::Ready),
            (json!({}), Readiness::progressing("its files are being copied")),
            (json!({ "phase": "Failed", "message": "no" }), Readiness::Failed("no".to_owned())),
        ] {
            assert_eq!(readiness(&json!({ "status": status })), expect);
        }
    }

    #[test]
    fn contents_are_not_compared() {
        let body = json!({ "spec": { "digest": "a", "content": { "a.py": {} } } });
        assert_eq!(*KIND.readable(&body), json!({ "spec": { "digest": "a" } }));
    }
}
