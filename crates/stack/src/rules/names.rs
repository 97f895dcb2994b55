//! Checks of names, labels and taints, by the rules of GKE, Kubernetes and the Dask operator.

use std::collections::BTreeMap;

use crate::rules::Context;
use crate::sections::Placed;
use kinds::section::{LabelRules, NameRule};
use model::address::FieldPath;
use model::diag::{Code, Diagnostic};

/// Returns why a name is invalid; `None` if it is valid.
fn wrong_name(name: &str, naming: NameRule) -> Option<String> {
    let longest = naming.longest();
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let first = |c: char| c.is_ascii_lowercase() || (naming.digit_first() && c.is_ascii_digit());
    if name.is_empty() {
        return Some("it is empty".to_owned());
    }
    if let Some(wrong) = name.chars().find(|c| !fits(*c)) {
        return Some(format!("`{wrong}` is not a lower-case letter, a digit or `-`"));
    }
    if !name.starts_with(first) {
        return Some(format!("it does not begin with {}", first_of(naming)));
    }
    if name.ends_with('-') {
        return Some("it ends with `-`".to_owned());
    }
    (name.len() > longest).then(|| format!("it has {} characters, at most {longest} are allowed", name.len()))
}

fn first_of(naming: NameRule) -> &'static str {
    if naming.digit_first() { "a letter or digit" } else { "a letter" }
}

/// Returns why a text is not a valid name of a DaskCluster.
pub(crate) fn wrong_dask_name(name: &str) -> Option<String> {
    wrong_name(name, NameRule::Dask)
}

/// Returns true if a text can be the name of a namespace.
pub(crate) fn is_object_name(name: &str) -> bool {
    wrong_name(name, NameRule::Object).is_none()
}

/// Returns true if Compute Engine accepts a text as a name. Source: RFC 1035, as Services have it.
pub(crate) fn is_compute_name(name: &str) -> bool {
    wrong_name(name, NameRule::Service).is_none()
}

/// Checks the names and namespaces in sections.
pub(crate) fn names_are_valid(context: &mut Context<'_>) {
    let stack = context.stack;
    name_is_valid(context, FieldPath::keys(["stack", "name"]), &stack.stack.name, NameRule::Gke);
    if let Some(id) = &stack.stack.id {
        name_is_valid(context, FieldPath::keys(["stack", "id"]), id, NameRule::StackId);
    }
    for Placed { key, path, section, .. } in stack.sections() {
        if let Some(live) = section.live_name(key) {
            let place = live.field.map_or_else(|| path.clone(), |field| path.key(field));
            name_is_valid(context, place, live.name, live.naming);
        }
        if let Some(namespace) = section.given_namespace() {
            name_is_valid(context, path.key("namespace"), namespace, NameRule::Object);
        }
    }
    project_is_given(context);
}

fn name_is_valid(context: &mut Context<'_>, place: FieldPath, name: &str, naming: NameRule) {
    let is_key = matches!(place.segments().len(), 2 | 4)
        && context.sources.key_span(&place) != context.sources.span(&place);
    let at = |finding: Diagnostic, text: String| {
        if is_key && place.to_string() != "stack.name" && place.to_string() != "cluster.name" {
            finding.at_key(place.clone(), text)
        } else {
            finding.at_value(place.clone(), text)
        }
    };
    if let Some(why) = wrong_name(name, naming) {
        let finding = Diagnostic::error(Code::BadName, format!("`{name}` is not a valid name here"));
        let finding = at(finding, why);
        let longest = naming.longest();
        let first = first_of(naming);
        context.say_of_value(finding.help(format!(
            "names are lower-case letters, digits and `-`, begin with {first}, do not end with `-`, and have at \
             most {longest} characters"
        )));
    } else if naming == NameRule::Dask && name.len() > LONG_DASK_NAME {
        let finding =
            Diagnostic::warning(Code::LongName, format!("the name `{name}` is too long for its workers"));
        let finding = at(finding, format!("{} characters", name.len()));
        context.say_of_value(finding.help(format!(
            "names of worker Pods add 26 characters and are truncated at 63: use at most {LONG_DASK_NAME}"
        )));
    }
}

/// The maximum length of a name to which the operator appends `-default-worker-` and ten digits, within 63 characters.
const LONG_DASK_NAME: usize = 37;

fn project_is_given(context: &mut Context<'_>) {
    let Some(gke) = &context.stack.gke else { return };
    // A domain may stand before: `example.com:project`.
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.' | ':');
    let wrong = gke.project.is_empty() || !gke.project.chars().all(fits);
    if wrong {
        let message = match gke.project.as_str() {
            "" => "the project ID is empty".to_owned(),
            project => format!("`{project}` is not a project ID"),
        };
        let place = FieldPath::keys(["gke", "project"]);
        let help = match gke.project.strip_prefix('$') {
            Some(name) => format!("did you mean `${{env.{name}}}`?"),
            None => "`gcloud projects list` shows the IDs of your projects".to_owned(),
        };
        context.say_of_value(Diagnostic::error(Code::BadName, message).at_value(place, "").help(help));
    }
}

/// Checks that no two sections have the same live object.
pub(crate) fn live_names_differ(context: &mut Context<'_>) {
    let stack = context.stack;
    let mut seen: BTreeMap<(&str, &str, &str), FieldPath> = BTreeMap::new();
    for Placed { row, key, path, section, is_inner } in stack.sections() {
        // Releases may have one name in several namespaces, and groups have their cluster's before theirs.
        let Some(live) = section.live_name(key).filter(|live| !is_inner && live.naming != NameRule::Release)
        else {
            continue;
        };
        if let Some(first) = seen.get(&(row.name, live.namespace, live.name)) {
            let message = format!("`{first}` and `{path}` are both named `{}`", live.name);
            let finding = Diagnostic::error(Code::SameName, message);
            let finding =
                finding.at_value(path.key("name"), "again here").at_value(first.key("name"), "first here");
            context.say(finding.help("give one of them another `name`"));
        } else {
            seen.insert((row.name, live.namespace, live.name), path);
        }
    }
}

/// Reports built-in namespaces, which a stack must not create or delete.
pub(crate) fn namespaces_are_not_built_in(context: &mut Context<'_>) {
    let stack = context.stack;
    for (key, namespace) in &stack.namespace {
        let live = namespace.name.as_deref().unwrap_or(key);
        if live == "default" || live.starts_with("kube-") || live == model::record::NAMESPACE {
            let message = format!("namespace `{live}` is built in and cannot be managed by a stack");
            let finding =
                Diagnostic::error(Code::BuiltIn, message).at_value(FieldPath::keys(["namespace", key]), "");
            context.say(finding.help("remove the section; other sections can use the namespace without it"));
        }
    }
}

/// Checks that images are valid: nodes would refuse an invalid one minutes later.
pub(crate) fn images_are_given(context: &mut Context<'_>) {
    let stack = context.stack;
    let clusters = stack.dask_cluster.iter();
    let images = clusters.flat_map(|(key, cluster)| {
        let path = FieldPath::keys(["dask_cluster", key]);
        let groups = cluster.group.iter().filter_map({
            let path = path.clone();
            move |(key, group)| Some((path.key("group").key(key), group.image.as_ref()?))
        });
        // External clusters need not name an image.
        let own = ((cluster.manage.is_managed() && !stack.is_on_hosts()) || !cluster.image.is_empty())
            .then_some((path, &cluster.image));
        own.into_iter().chain(groups)
    });
    let jobs = stack.job.iter().map(|(key, job)| (FieldPath::keys(["job", key]), &job.image));
    let requests = stack.provisioning_request.iter().filter_map(|(key, request)| {
        Some((FieldPath::keys(["provisioning_request", key]), request.image.as_ref()?))
    });
    for (path, image) in images.chain(jobs).chain(requests) {
        let place = path.key("image");
        let Some(why) = wrong_image(image) else {
            no_version(context, place, image);
            continue;
        };
        let message = match image.trim() {
            "" => format!("`{path}` has an empty image `{image}`"),
            image => format!("`{image}` is not the name of an image"),
        };
        let help = "for example image = \"nvcr.io/nvidia/rapidsai/base:25.04-cuda12.8-py3.12\"";
        context.say_of_value(Diagnostic::error(Code::BadName, message).at_value(place, why).help(help));
    }
}

/// Warns of an image without a tag: it is `latest`, which may be another image with each pull.
fn no_version(context: &mut Context<'_>, place: FieldPath, image: &str) {
    let last = image.rsplit('/').next().unwrap_or(image);
    if image.is_empty() || last.contains([':', '@']) {
        return;
    }
    let message = format!("`{image}` names no version, so nodes pull `{image}:latest`");
    let finding = Diagnostic::warning(Code::ImageVersion, message).at_value(place, "no tag");
    context.say_of_value(finding.help("write the tag: scheduler, workers and clients need the same version"));
}

/// Returns why nodes would refuse the name of an image. Source: the grammar of references in `distribution/reference`.
fn wrong_image(image: &str) -> Option<String> {
    if image.trim().is_empty() {
        return Some(String::new());
    }
    if let Some(wrong) = image.chars().find(|c| c.is_whitespace() || c.is_control() || !c.is_ascii()) {
        return Some(format!("`{}` is not allowed", wrong.escape_debug()));
    }
    // Registries are hosts and may have upper case; tags and digests as well.
    let path = image.split('@').next().unwrap_or(image);
    let path = match path.split_once('/') {
        Some((host, rest)) if host.contains(['.', ':']) || host == "localhost" => rest,
        _ => path,
    };
    let name = path.split(':').next().unwrap_or(path);
    name.chars()
        .any(|c| c.is_ascii_uppercase())
        .then(|| "names of images have no upper-case letters".to_owned())
}

/// Checks labels of Kubernetes and Google Cloud.
pub(crate) fn labels_are_valid(context: &mut Context<'_>) {
    let stack = context.stack;
    let mut maps = Vec::new();
    for Placed { path, section, .. } in stack.sections() {
        let labels = section.labels().into_iter();
        maps.extend(labels.map(|(field, map, rules)| (path.key(field), map, rules)));
    }
    for pod in stack.pods() {
        maps.push((pod.path.key("labels"), &pod.keys.labels, LabelRules::Kubernetes));
        maps.push((pod.path.key("annotations"), &pod.keys.annotations, LabelRules::Annotations));
    }
    for (path, map, rules) in maps {
        for (key, value) in map {
            let (wrong_key, wrong_value) = match rules {
                LabelRules::Kubernetes => (wrong_key(key), wrong_value(value)),
                LabelRules::Annotations => (wrong_key(key), None),
                LabelRules::Google => (wrong_google(key, Part::Key), wrong_google(value, Part::Value)),
            };
            let place = path.key(key);
            if let Some(why) = wrong_key {
                let message = format!("`{key}` cannot be the key of a label");
                context.say_of_value(
                    Diagnostic::error(Code::BadLabel, message).at_key(place, why).help(advice(rules)),
                );
            } else if let Some(why) = wrong_value {
                let message = format!("`{value}` cannot be the value of a label");
                context.say_of_value(
                    Diagnostic::error(Code::BadLabel, message).at_value(place, why).help(advice(rules)),
                );
            }
        }
    }
}

fn advice(rules: LabelRules) -> &'static str {
    match rules {
        LabelRules::Kubernetes | LabelRules::Annotations => {
            "Kubernetes takes at most 63 letters, digits, `-`, `_` and `.`, beginning and ending with a letter \
             or digit; keys may have a DNS name and `/` in front"
        }
        LabelRules::Google => {
            "Google Cloud labels take at most 63 lower-case letters, digits, `-` and `_`; keys begin with a letter"
        }
    }
}

/// Checks keys and values of taints.
pub(crate) fn taints_are_valid(context: &mut Context<'_>) {
    for (path, pool) in context.pools() {
        for (index, taint) in pool.taints.iter().enumerate() {
            let place = path.key("taints").index(index);
            if let Some(why) = wrong_key(&taint.key) {
                let message = format!("`{}` cannot be the key of a taint", taint.key);
                let finding = Diagnostic::error(Code::BadTaint, message).at_value(place.key("key"), why);
                context.say_of_value(finding.help(advice(LabelRules::Kubernetes)));
            }
            if let Some(why) = wrong_value(&taint.value) {
                let message = format!("`{}` cannot be the value of a taint", taint.value);
                let finding = Diagnostic::error(Code::BadTaint, message).at_value(place.key("value"), why);
                context.say_of_value(finding.help(advice(LabelRules::Kubernetes)));
            }
            let same = |other: &super::super::Taint| other.key == taint.key && other.effect == taint.effect;
            if let Some(first) = pool.taints[..index].iter().position(same) {
                let message = format!("the taint `{}` is given twice with the same effect", taint.key);
                let finding = Diagnostic::error(Code::BadTaint, message).at_value(place, "again here");
                context.say_of_value(
                    finding.at_value(path.key("taints").index(first), "first here").help("keep one of them"),
                );
            }
        }
    }
}

/// Returns why a text is not a qualified name of Kubernetes.
fn wrong_key(key: &str) -> Option<String> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if let Some(prefix) = prefix {
        let parts = prefix.split('.').all(|part| wrong_name(part, NameRule::Object).is_none());
        if !parts || prefix.len() > 253 {
            return Some(format!("`{prefix}` is not a DNS name"));
        }
    }
    if name.is_empty() { Some("it has no name".to_owned()) } else { wrong_value(name) }
}

/// Returns why a text is not a valid value of a Kubernetes label.
fn wrong_value(value: &str) -> Option<String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let ends = |c: char| c.is_ascii_alphanumeric();
    if value.is_empty() {
        return None;
    }
    if let Some(wrong) = value.chars().find(|c| !fits(*c)) {
        return Some(format!("`{wrong}` is not allowed"));
    }
    if !value.starts_with(ends) || !value.ends_with(ends) {
        return Some("it does not begin and end with a letter or digit".to_owned());
    }
    (value.len() > 63).then(|| format!("it has {} characters, at most 63 are allowed", value.len()))
}

#[derive(Clone, Copy, PartialEq)]
enum Part {
    Key,
    Value,
}

/// Returns why a text is not a valid key or value of a Google Cloud label. International characters are allowed in these.
fn wrong_google(text: &str, part: Part) -> Option<String> {
    let fits = |c: char| (c.is_alphabetic() && !c.is_uppercase()) || c.is_numeric() || c == '-' || c == '_';
    if let Some(wrong) = text.chars().find(|c| !fits(*c)) {
        return Some(format!("`{wrong}` is not allowed"));
    }
    if part == Part::Key && !text.starts_with(char::is_alphabetic) {
        return Some("it does not begin with a letter".to_owned());
    }
    let length = text.chars().count();
    (length > 63).then(|| format!("it has {length} characters, at most 63 are allowed"))
}

/// Returns true if a shell can have a variable of this name.
pub(crate) fn is_variable(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && name.chars().all(inner) && !name.starts_with(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_labels_follow_their_owners() {
        for (name, naming, good) in [
            ("a", NameRule::Gke, true),
            ("a-1", NameRule::Gke, true),
            ("1a", NameRule::Gke, false),
            ("1a", NameRule::Object, true),
            ("a-", NameRule::Gke, false),
            ("A", NameRule::Gke, false),
            ("a.b", NameRule::Object, false),
            ("", NameRule::Object, false),
            (&"a".repeat(41), NameRule::Gke, false),
        ] {
            assert_eq!(wrong_name(name, naming).is_none(), good, "{name}");
        }
        for (key, good) in [
            ("dedicated", true),
            ("app.kubernetes.io/name", true),
            ("a/", false),
            ("/a", false),
            ("A_b.c", true),
            ("-a", false),
            ("a b", false),
            ("Upper.io/x", false),
        ] {
            assert_eq!(wrong_key(key).is_none(), good, "{key}");
        }
        assert_eq!(wrong_value(""), None);
        assert!(wrong_value(&"a".repeat(64)).is_some());
        assert!(wrong_google("Team", Part::Value).is_some());
        assert!(wrong_google("1", Part::Key).is_some());
        assert_eq!(wrong_google("1", Part::Value), None);
    }
}
