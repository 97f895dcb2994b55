//! Checks of objects in manifests: their kinds, schemas and names, and errors in the YAML of the RAPIDS guide.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

use crate::rules::Context;
use crate::rules::dask::{Old, old_command};
use crate::rules::names::is_variable;
use crate::{DriverInstall, lower};
use kinds::driver_path;
use kinds::gke::placement::GPU;
use kinds::kubernetes::bundle::{self, Kinds, Object};
use kinds::kubernetes::manifest::{SERVER_FIELDS, node_labels, pod_specs};
use kinds::kubernetes::name_rules;
use kinds::scope::POOL_LABEL;
use kinds::section::PodRole;
use model::address::{FieldPath, Segment};
use model::diag::{Code, Diagnostic, listed, nearest};
use model::resource::{Identity, ObjectId, Resource};
use model::schema::{self, Api, DASK_GROUP, Problem, ProblemKind, Schema, Type};
use model::secrets::env_values::ENV_PREFIX;

fn objects<'a>(context: &Context<'a>) -> Vec<Object<'a>> {
    bundle::objects(&context.stack.bundles()).collect()
}

/// Checks that each object has `apiVersion`, `kind` and a name.
pub(crate) fn objects_are_objects(context: &mut Context<'_>) {
    for object in objects(context) {
        let origin = object.origin();
        let text = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
        let metadata = &object.value["metadata"];
        let missing = ["apiVersion", "kind"].into_iter().find(|key| !text(&object.value[*key]));
        let (what, place) = match missing {
            Some(key) if object.value[key].is_null() => {
                (format!("this object has no `{key}`"), origin.clone())
            }
            Some(key) => (format!("`{key}` of an object must be text"), origin.key(key)),
            None if text(&metadata["name"]) => continue,
            None if text(&metadata["generateName"]) => (
                "an object with a generated name would be a new one each time".to_owned(),
                origin.key("metadata").key("generateName"),
            ),
            None => (format!("this {} has no name", object.kind()), origin.key("metadata")),
        };
        let help = match missing {
            Some(_) if looks_like_values(object.value) => {
                "Helm values are not objects: use the output of `helm template`"
            }
            Some(_) => "an object needs `apiVersion` and `kind`, as in `apiVersion: v1`, `kind: ConfigMap`",
            None => "give it `metadata: { name: … }`",
        };
        context.say(Diagnostic::error(Code::NotAnObject, what).at_value(place, "").help(help));
    }
}

fn looks_like_values(object: &Value) -> bool {
    ["image", "replicaCount", "serviceAccount"].iter().any(|key| !object[*key].is_null())
}

/// Checks that each kind is known, as every request needs its plural and scope.
pub(crate) fn kinds_are_known(context: &mut Context<'_>) {
    let kinds = Kinds::of(&context.stack.bundles());
    let on_gke = context.stack.gke.is_some();
    let mut unchecked: Vec<(&str, FieldPath)> = Vec::new();
    for object in objects(context) {
        let (group, version) = object.group_version();
        let kind = object.kind();
        if kind.is_empty() || version.is_empty() {
            continue;
        }
        let installed = kinds.installed(group, version, kind);
        if installed.is_some() && !on_gke {
            let what = format!("{kind} is a kind that GKE installs in its clusters");
            let help = "if this is a GKE cluster, or the kind is installed by other means, add the file of its \
                        CustomResourceDefinition to `definitions`: `kubectl get crd -o yaml` prints it";
            let place = object.origin().key("kind");
            context.say(Diagnostic::error(Code::UnknownKind, what).at_value(place, "").help(help));
            continue;
        }
        if installed.is_some() {
            unchecked.push((kind, object.origin().key("kind")));
            continue;
        }
        if kinds.api(group, version, kind).is_some() {
            continue;
        }
        let api_version = object.value["apiVersion"].as_str().unwrap_or_default();
        let origin = object.origin();
        let same: Vec<String> = kinds.all().filter(|api| api.kind == kind).map(Api::api_version).collect();
        let names = kinds.all().filter(|api| api.group == group).map(|api| api.kind.as_str());
        let (place, help) = if kind == "Kustomization" {
            (origin.key("kind"), "use the output of `kubectl kustomize`".to_owned())
        } else if !same.is_empty() {
            let same = listed(same.iter().map(String::as_str), "or");
            (origin.key("apiVersion"), format!("{kind} belongs to {same}"))
        } else if let Some(near) = nearest(kind, names) {
            (origin.key("kind"), format!("did you mean `{near}`?"))
        } else {
            let help = match object.bundle.is_chart() {
                true => {
                    "turn it off with the chart's values, or, if it is installed elsewhere, add the file of \
                     its CustomResourceDefinition to `definitions`"
                }
                false => {
                    "add the file of its CustomResourceDefinition to `file`, or to `definitions` if it is \
                     installed elsewhere"
                }
            };
            (origin.key("kind"), help.to_owned())
        };
        let what = format!("unknown kind {kind} of {api_version}");
        context.say(Diagnostic::error(Code::UnknownKind, what).at_value(place, "").help(help));
    }
    let Some((_, place)) = unchecked.first().cloned() else { return };
    let names: BTreeSet<&str> = unchecked.iter().map(|(kind, _)| *kind).collect();
    let what = format!("the fields of {} are not checked: GKE installs the definition", listed(names, "and"));
    let help = "nothing to do; to have them checked, add the file of the definition to `definitions`: `kubectl get crd \
                -o yaml` prints it";
    context.say(Diagnostic::warning(Code::NotChecked, what).at_value(place, "").help(help));
}

/// Checks that each object fits the schema of its kind. The server would report the same errors later.
pub(crate) fn objects_fit_their_schemas(context: &mut Context<'_>) {
    let kinds = Kinds::of(&context.stack.bundles());
    // Secrets of charts are refused, and what is wrong with them would show their values.
    let shown = |object: &Object<'_>| !(object.bundle.is_chart() && object.kind() == "Secret");
    for object in objects(context).into_iter().filter(shown) {
        let (group, version) = object.group_version();
        let named = name_rules::refused_name(object.value);
        for (path, what) in name_rules::refused(object.value).into_iter().chain(named) {
            context.say(Diagnostic::error(Code::Schema, what).at_key(below(&object.origin(), &path), ""));
        }
        let Some(shape) = kinds.schema(group, version, object.kind()) else { continue };
        let problems = schema::check(&shape, object.value);
        for problem in problems.into_iter().filter(|problem| !is_servers(&problem.path)) {
            let (dask, origin) = (group == DASK_GROUP, object.origin());
            context.say(finding(context, &problem, object.value, &shape, &origin, dask));
        }
    }
}

/// Checks that `pod` of a section fits a PodSpec: Dask's, or the newest one for pods without an operator. Missing fields are
/// checked after it is merged over the section's own pod.
pub(crate) fn pods_fit_their_schema(context: &mut Context<'_>) {
    let newest = || schema::definition("io.k8s.api.core.v1.PodSpec");
    let (Some(of_dask), Some(newest)) = (pod_schema(), newest()) else { return };
    for (path, pod, role) in given_pods(context) {
        let plain = without_directives(pod);
        // Pods without an operator are checked against the newest PodSpec.
        let (dask, name) = (role.is_dask(), role.container());
        let shape = if dask { of_dask.clone() } else { newest.clone() };
        for problem in schema::check(&shape, &plain) {
            if !matches!(problem.kind, ProblemKind::MissingField(_)) {
                context.say(finding(context, &problem, &plain, &shape, &path, dask));
            }
        }
        let containers = plain["containers"].as_array().into_iter().flatten().enumerate();
        for (place, _) in containers.filter(|(_, container)| container["name"].is_null()) {
            let what = "a container without `name` cannot be merged with the section's own";
            let place = path.key("containers").index(place);
            let help = format!("`name: {name}` is the section's own container; another name adds one");
            context.say(Diagnostic::error(Code::Schema, what).at_value(place, "").help(help));
        }
    }
}

fn pod_schema() -> Option<Schema> {
    let cluster = schema::dask("DaskCluster")?;
    cluster.property("spec")?.property("worker")?.property("spec")
}

/// Returns the `pod` tables of sections, with their paths and the roles of the pods.
pub(crate) fn given_pods<'a>(context: &Context<'a>) -> Vec<(FieldPath, &'a Value, PodRole)> {
    let mut pods = Vec::new();
    for pod in context.pods() {
        pods.extend(pod.keys.pod.as_ref().map(|given| (pod.path.key("pod"), &given.0, pod.role)));
    }
    pods
}

fn without_directives(value: &Value) -> Value {
    use kinds::pod::DIRECTIVE;
    match value {
        Value::Object(table) => {
            let kept = table.iter().filter(|(key, value)| *key != DIRECTIVE && value[DIRECTIVE] != "delete");
            Value::Object(kept.map(|(key, value)| (key.clone(), without_directives(value))).collect())
        }
        // Items keep their places, also those that only take away.
        Value::Array(items) => items
            .iter()
            .map(|item| match item {
                Value::Object(table) => {
                    let kept =
                        table.iter().filter(|(key, value)| *key != DIRECTIVE && value[DIRECTIVE] != "delete");
                    Value::Object(kept.map(|(key, value)| (key.clone(), without_directives(value))).collect())
                }
                other => other.clone(),
            })
            .collect(),
        other => other.clone(),
    }
}

/// Returns true for fields that the API server writes. They are left out of what is applied.
fn is_servers(path: &FieldPath) -> bool {
    let metadata = |key: &&str| FieldPath::keys(["metadata", key]).contains(path);
    FieldPath::keys(["status"]).contains(path) || SERVER_FIELDS.iter().any(metadata)
}

/// Returns the diagnostic for a schema problem, with the remedy.
pub(crate) fn finding(
    context: &Context<'_>,
    problem: &Problem,
    value: &Value,
    shape: &Schema,
    origin: &FieldPath,
    dask: bool,
) -> Diagnostic {
    let place = below(origin, &problem.path);
    let field = last_key(&problem.path);
    let found = problem.path.find(value).unwrap_or(&Value::Null);
    match &problem.kind {
        ProblemKind::UnknownField { suggestion } => {
            let newer = dask && is_newer_pod_field(&problem.path, value, shape);
            let what = match newer {
                true => format!("the Dask operator's definition has no field `{field}`"),
                false => format!("there is no field `{}`", problem.path),
            };
            let help = match suggestion {
                _ if newer => {
                    "its pods are those of Kubernetes 1.21, and the server rejects newer fields: remove it"
                        .to_owned()
                }
                Some(name) => format!("did you mean `{name}`?"),
                None => "remove it; `kubectl explain` lists the fields".to_owned(),
            };
            Diagnostic::error(Code::Schema, what).at_key(place, "").help(help)
        }
        ProblemKind::MissingField(name) => {
            let at = if problem.path.is_root() { String::new() } else { format!(" in `{}`", problem.path) };
            Diagnostic::error(Code::Schema, format!("required field `{name}` is missing{at}"))
                .at_key(place, "")
                .help(format!("add `{name}`"))
        }
        ProblemKind::WrongType { expected: Type::String, found: kind }
            if found.is_number() || found.is_boolean() =>
        {
            let port = dask && field.to_lowercase().ends_with("port") && found.is_number();
            let what = format!("`{field}` takes text, not {}", article(kind));
            match port {
                true => Diagnostic::error(Code::Schema, what)
                    .at_value(place, "a number")
                    .help(named_port(found, value)),
                false => Diagnostic::error(Code::Schema, what)
                    .at_value(place.clone(), article(kind))
                    .help(format!("quote it: `{field}: \"{}\"`", written(context, &place, found))),
            }
        }
        other => Diagnostic::error(Code::Schema, format!("`{}`: {other}", problem.path)).at_value(place, ""),
    }
}

/// Returns a value as written in the file: `yes` instead of the parsed `true`.
fn written(context: &Context<'_>, place: &FieldPath, value: &Value) -> String {
    let span = context.sources.span(place);
    let text = span.map(|span| context.sources.slice(span)).unwrap_or_default();
    if text.is_empty() || text.contains(['"', '\n', '*']) { value.to_string() } else { text.to_owned() }
}

fn article(kind: &str) -> &'static str {
    match kind {
        "integer" | "number" => "a number",
        "boolean" => "true or false",
        "list" => "a list",
        "object" => "a table",
        _ => "text",
    }
}

/// Returns the remedy for a port number: Dask's CRDs refuse numbers, and Kubernetes refuses quoted numbers.
fn named_port(number: &Value, object: &Value) -> String {
    let mut specs = Vec::new();
    pod_specs(object, &FieldPath::root(), &mut specs);
    let containers = specs.iter().filter_map(|(_, spec)| spec["containers"].as_array()).flatten();
    let ports = containers.filter_map(|container| container["ports"].as_array()).flatten();
    let name = ports.filter(|port| port["containerPort"] == *number).find_map(|port| port["name"].as_str());
    match name {
        Some(name) => format!("use the port's name, `{name}`: numbers are rejected, even in quotes"),
        None => format!(
            "give the container's port {number} a `name` and use that: numbers are rejected, even in quotes"
        ),
    }
}

/// Returns true if a field that Dask's old definitions do not know is in the newest PodSpec.
fn is_newer_pod_field(path: &FieldPath, value: &Value, shape: &Schema) -> bool {
    let Some(pod) = schema::definition("io.k8s.api.core.v1.PodSpec") else { return false };
    let mut specs = Vec::new();
    pod_specs(value, &FieldPath::root(), &mut specs);
    let inside = specs.iter().map(|(root, _)| root).find(|root| root.contains(path));
    let whole = shape.property("containers").map(|_| 0);
    let Some(depth) = inside.map(|root| root.segments().len()).or(whole) else { return false };
    let known = path.segments()[depth..].iter().try_fold(pod, |schema, segment| match segment {
        Segment::Key(key) => schema.property(key).or_else(|| schema.values()),
        Segment::Index(_) => schema.items(),
    });
    known.is_some()
}

fn below(origin: &FieldPath, path: &FieldPath) -> FieldPath {
    origin.segments().iter().chain(path.segments()).cloned().collect()
}

fn last_key(path: &FieldPath) -> String {
    let last = path.segments().iter().rev().find_map(|segment| match segment {
        Segment::Key(key) => Some(key.clone()),
        Segment::Index(_) => None,
    });
    last.unwrap_or_default()
}

/// Checks that no object is defined twice: in a file, in several files, or by a section.
pub(crate) fn objects_are_wanted_once(context: &mut Context<'_>) {
    if context.stack.bundles().is_empty() {
        return;
    }
    let lowered = context.lowered.insert(lower::lower(context.stack, true)).clone();
    let mut seen: HashMap<&ObjectId, &Resource> = HashMap::new();
    for resource in lowered.resources.iter() {
        let Identity::Object(object) = &resource.identity else { continue };
        match seen.get(object) {
            Some(first) => wanted_twice(context, object, resource, first),
            None => drop(seen.insert(object, resource)),
        }
    }
}

fn wanted_twice(context: &mut Context<'_>, object: &ObjectId, again: &Resource, first: &Resource) {
    let text = Segment::Key("objects".to_owned());
    let of_manifest = |resource: &Resource| resource.origin.segments().contains(&text);
    // Sections of one kind and name have a rule of their own.
    let (here, there) = match (of_manifest(again), of_manifest(first)) {
        (true, _) => (again, first),
        (false, true) => (first, again),
        (false, false) => return,
    };
    let place = |resource: &Resource| match of_manifest(resource) {
        true => resource.origin.key("metadata").key("name"),
        false => resource.origin.clone(),
    };
    let by = match here.address.section() == there.address.section() {
        true => "first here".to_owned(),
        false => format!("also by `[{}]`", there.address.section()),
    };
    let finding = Diagnostic::error(Code::SameObject, format!("{object} is defined twice"));
    let finding = finding.at_value(place(here), "here").at_value(place(there), by);
    context.say(finding.help("remove one of the two"));
}

/// Reports fields that only the server writes. Objects of charts are skipped, and so is an empty `status` of a CRD, which
/// controller-gen before 0.9 generates.
pub(crate) fn objects_are_not_exports(context: &mut Context<'_>) {
    for object in objects(context).into_iter().filter(|object| !object.bundle.is_chart()) {
        let metadata = &object.value["metadata"];
        let fields = SERVER_FIELDS.iter().filter(|key| !metadata[**key].is_null()).copied();
        let path = object.origin().key("metadata");
        let mut found: Vec<(FieldPath, &str)> = fields.map(|key| (path.key(key), key)).collect();
        if !object.value["status"].is_null() && object.kind() != "CustomResourceDefinition" {
            found.push((object.origin().key("status"), "status"));
        }
        let Some((place, _)) = found.first().cloned() else { continue };
        let names = listed(found.iter().map(|(_, key)| *key), "and");
        let what = format!("the server sets {names}: not applied");
        let help = "remove them from the file; `kubectl get -o yaml` prints them";
        context.say(Diagnostic::warning(Code::ServersFields, what).at_key(place, "").help(help));
    }
}

/// Reports Secrets with values, because they would be stored in plans and records.
pub(crate) fn secrets_have_no_values(context: &mut Context<'_>) {
    for object in objects(context).into_iter().filter(|object| object.kind() == "Secret") {
        // Values from a chart are literal: `env:X` in them names no variable.
        let literal = |value: &Value| {
            let variable = value.as_str().and_then(|text| text.strip_prefix(ENV_PREFIX));
            object.bundle.is_chart() || !variable.is_some_and(is_variable)
        };
        let filled =
            |key: &&str| object.value[*key].as_object().is_some_and(|data| data.values().any(literal));
        let Some(key) = ["data", "stringData"].into_iter().find(filled) else { continue };
        let what = match object.bundle.is_chart() {
            true => format!(
                "the chart creates the Secret `{}`: its values would appear in plans and records",
                object.name()
            ),
            false => "the values of this Secret would appear in plans and records".to_owned(),
        };
        let refer = match object.bundle.is_chart() {
            true => "give the chart its name (often the value `existingSecret`)",
            false => "refer to it by name",
        };
        let written = match object.bundle.is_chart() {
            true => "",
            false => {
                "; or name an environment variable that has the value when the stack is applied: `stringData: \
                 { KEY: \"env:NAME\" }`"
            }
        };
        let help = format!(
            "create it by other means (`kubectl create secret generic {}`), and {refer}{written}",
            object.name()
        );
        // The lines of what a chart made hold the values.
        let finding = Diagnostic::error(Code::SecretInFile, what);
        let finding = match object.bundle.is_chart() {
            true => finding.at_value(object.bundle.path().key("chart"), "this chart"),
            false => finding.at_key(object.origin().key(key), ""),
        };
        context.say(finding.help(help));
    }
}

/// Checks that nodes have the labels that pods select. A typo in a preferred affinity would fail silently.
pub(crate) fn node_labels_are_there(context: &mut Context<'_>) {
    let pools = &context.stack.node_pool;
    if pools.is_empty() {
        return;
    }
    let mut specs = Vec::new();
    for object in objects(context) {
        pod_specs(object.value, &object.origin(), &mut specs);
    }
    specs.extend(given_pods(context).into_iter().map(|(path, spec, _)| (path, spec)));
    for (path, spec) in specs {
        for label in node_labels(spec, &path) {
            let of = |name: &str, pool: &crate::NodePool| match label.key {
                POOL_LABEL => Some(pool.live_name(name).to_owned()),
                key => pool.labels.get(key).cloned(),
            };
            let have: Vec<(String, String)> =
                pools.iter().filter_map(|(name, pool)| Some((name.clone(), of(name, pool)?))).collect();
            if have.iter().any(|(_, value)| label.values.contains(&value.as_str())) {
                continue;
            }
            // Labels of Kubernetes, GKE and others' agents are not the stack's to know.
            let others = label.key.contains('/') && label.key != POOL_LABEL;
            if have.is_empty() && others {
                continue;
            }
            let value = label.values.join(", ");
            let what = format!("no node pool has the label `{}={value}`", label.key);
            let near = label
                .values
                .first()
                .and_then(|value| nearest(value, have.iter().map(|(_, have)| have.as_str())));
            let help = match near {
                Some(near) => format!("did you mean `{near}`?"),
                None if have.is_empty() => {
                    format!("give a pool `labels = {{ {} = \"{value}\" }}`, or fix the label here", label.key)
                }
                None => format!("pools have {}", listed(have.iter().map(|(_, value)| value.as_str()), "and")),
            };
            let mut finding = Diagnostic::warning(Code::NoSuchNodeLabel, what)
                .at_value(label.path.clone(), "requested here");
            let source = if label.key == POOL_LABEL { "name" } else { "labels" };
            if let Some((name, have)) = have.iter().find(|(_, value)| near.is_none_or(|near| near == value)) {
                let place = FieldPath::keys(["node_pool", name, source]);
                let place = if source == "labels" { place.key(label.key) } else { place };
                finding = finding.at_value(place, format!("`{have}` here"));
            }
            context.say(finding.help(help));
        }
    }
}

/// Warns of a DaemonSet that installs GPU drivers if GKE installs them on all GPU pools: the DaemonSet would run on no node.
pub(crate) fn installers_have_work(context: &mut Context<'_>) {
    let stack = context.stack;
    let by_gke =
        stack.gpu_driver.as_ref().map(|driver| driver.install).unwrap_or_default() == DriverInstall::Gke;
    if stack.gke.is_none() || !by_gke {
        return;
    }
    for object in objects(context).into_iter().filter(|object| object.kind() == "DaemonSet") {
        let text = object.value["spec"]["template"]["spec"].to_string();
        if object.name() != kinds::scope::DRIVER_INSTALLER && !text.contains("cos-nvidia-installer") {
            continue;
        }
        let what = format!("the DaemonSet `{}` would run on no node: GKE installs the driver", object.name());
        let help =
            "remove it; `[gpu_driver] install = \"daemonset\"` adds the same installer and turns GKE's off";
        let place = object.origin().key("metadata").key("name");
        context.say(Diagnostic::warning(Code::IdleInstaller, what).at_value(place, "").help(help));
    }
}

/// Checks that containers with GPUs set the path at which GKE mounts the driver's libraries.
pub(crate) fn containers_find_the_driver(context: &mut Context<'_>) {
    let stack = context.stack;
    let install = stack.gpu_driver.as_ref().map(|driver| driver.install).unwrap_or_default();
    if stack.gke.is_none() || install == DriverInstall::None {
        return;
    }
    let mut specs = Vec::new();
    for object in objects(context) {
        pod_specs(object.value, &object.origin(), &mut specs);
    }
    for (path, spec) in specs {
        let containers = spec["containers"].as_array().into_iter().flatten().enumerate();
        for (index, container) in containers {
            let asks = container["resources"]["limits"].get(GPU).is_some();
            if !asks || driver_path::has_path(container) {
                continue;
            }
            let place = path.key("containers").index(index).key("resources").key("limits").key(GPU);
            let what = format!(
                "the container does not say where the NVIDIA driver is: `{}`",
                driver_path::LIBRARY_PATH_VARIABLE
            );
            let help = "add `env: [{ name: LD_LIBRARY_PATH, value: /usr/local/nvidia/lib64 }]`, unless the image \
                        sets this path, as images of CUDA up to 12.8.0 do";
            let finding = Diagnostic::warning(Code::NoDriverPath, what);
            context.say(finding.at_value(place, "asks for GPUs").help(help));
        }
    }
}

/// Reports old commands in images that no longer have them.
pub(crate) fn commands_exist_in_images(context: &mut Context<'_>) {
    let mut specs = Vec::new();
    for object in objects(context) {
        pod_specs(object.value, &object.origin(), &mut specs);
    }
    for (path, spec) in specs {
        let containers = spec["containers"].as_array().into_iter().flatten().enumerate();
        for (place, container) in containers {
            let path = path.key("containers").index(place);
            let Some(image) = container["image"].as_str() else { continue };
            for key in ["command", "args"] {
                let words = container[key].as_array().into_iter().flatten().enumerate();
                for (index, word) in words.filter_map(|(index, word)| Some((index, word.as_str()?))) {
                    let Some(Old { new, lacks, image }) = old_command(word, image) else { continue };
                    let finding = Diagnostic::warning(Code::OldCommand, format!("{lacks} `{word}`"))
                        .at_value(path.key(key).index(index), "removed in distributed 2026.6.0")
                        .at_value(path.key("image"), image);
                    let words: Vec<&str> = new.split(' ').collect();
                    let words = listed(words, "and");
                    context.say(finding.help(format!("write {words}, each an item of the list")));
                }
            }
        }
    }
}

/// Checks names of Dask clusters in manifests: the operator appends `-scheduler` and allows no dots.
pub(crate) fn dask_names_are_valid(context: &mut Context<'_>) {
    for object in
        objects(context).into_iter().filter(|object| matches!(object.kind(), "DaskCluster" | "DaskJob"))
    {
        let name = object.name();
        if let Some(why) = crate::rules::names::wrong_dask_name(name).filter(|_| !name.is_empty()) {
            let what = format!("`{name}` is not a name for a {}", object.kind());
            let place = object.origin().key("metadata").key("name");
            let help = "lower-case letters, digits and `-`, at most 53 characters";
            context.say(Diagnostic::error(Code::BadName, what).at_value(place, why).help(help));
        }
    }
}

/// Checks that a key of a section and its `pod` table do not set the same field.
pub(crate) fn pods_say_nothing_twice(context: &mut Context<'_>) {
    for pod in context.pods() {
        let Some(given) = &pod.keys.pod else { continue };
        let (path, from) = (pod.path.clone(), pod.path.key("pod"));
        let own = pod.role.container();
        let containers = given.0["containers"].as_array().into_iter().flatten().enumerate();
        let mut said: Vec<(FieldPath, FieldPath)> = Vec::new();
        for (place, container) in containers.filter(|(_, container)| container["name"] == own) {
            let at = from.key("containers").index(place);
            let keys = [
                ("gpus", pod.keys.gpus() > 0, ["limits", "nvidia.com/gpu"]),
                ("cpu", pod.keys.cpu.is_some(), ["limits", "cpu"]),
                ("cpu", pod.keys.cpu.is_some(), ["requests", "cpu"]),
                ("memory", pod.keys.memory.is_some(), ["limits", "memory"]),
                ("memory", pod.keys.memory.is_some(), ["requests", "memory"]),
            ];
            for (key, there, [list, resource]) in keys {
                if there && !container["resources"][list][resource].is_null() {
                    said.push((path.key(key), at.key("resources").key(list).key(resource)));
                }
            }
            if !pod.args.is_empty() && !container["args"].is_null() {
                said.push((path.key("args"), at.key("args")));
            }
            let variables = container["env"].as_array().into_iter().flatten().enumerate();
            for (index, name) in variables.filter_map(|(index, one)| Some((index, one["name"].as_str()?))) {
                if pod.keys.env.contains_key(name) {
                    said.push((path.key("env").key(name), at.key("env").index(index)));
                }
            }
            if container["image"].as_str().is_some_and(|image| image != pod.image) {
                let what = "scheduler, workers and clients should use one image, but this is another";
                let finding = Diagnostic::warning(Code::SaidTwice, what).at_value(at.key("image"), "wins");
                context.say(
                    finding.at_value(pod.image_path.clone(), "the cluster's").help("remove one of the two"),
                );
            }
        }
        if pod.keys.pool.is_some() && !given.0["nodeSelector"][POOL_LABEL].is_null() {
            said.push((path.key("pool"), from.key("nodeSelector").key(POOL_LABEL)));
        }
        for (key, label) in pod.keys.machines.selected_labels() {
            if !given.0["nodeSelector"][label].is_null() {
                said.push((path.key(key), from.key("nodeSelector").key(label)));
            }
        }
        let soft = "preferredDuringSchedulingIgnoredDuringExecution";
        if pod.keys.prefer_pool.is_some() && !given.0["affinity"]["nodeAffinity"][soft].is_null() {
            said.push((path.key("prefer_pool"), from.key("affinity").key("nodeAffinity").key(soft)));
        }
        for (key, field) in said {
            let what = format!("`{}` and `pod` both set it", last_key(&key));
            let finding = Diagnostic::error(Code::SaidTwice, what).at_value(key, "here");
            context.say(finding.at_value(field, "and here").help("remove one of the two"));
        }
    }
}
