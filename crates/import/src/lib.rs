//! `import`: turns live objects into the text of a stack. Fields without a short form go into `pod`, or a comment names them:
//! nothing is dropped silently. An import takes nothing over: every section has `manage = false`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde_json::Value;

use kinds::hosts::environment::{FILES, LOCK};
use kinds::scope::Scope;
use model::address::FieldPath;
use model::diag::{Diagnostic, Severity};
use model::resource::{ClusterName, Endpoint, ObjectId, Owner};
use stack::toml::is_bare;
use stack::{Gke, Header, Kubernetes, Options, SshHost, Stack, lower, parse_text};

mod dask;
mod gke;
pub mod hosts;
mod namespaces;
mod page;
mod pod;
#[cfg(test)]
mod tests;

/// The location of the resources.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    Gke(ClusterName),
    /// A context of a kubeconfig.
    Kubeconfig {
        /// The file, when one was named.
        path: Option<String>,
        /// The context; the current one when none was named.
        context: Option<String>,
    },
    Hosts(Hosts),
}

/// Machines on which Dask runs as processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// This machine.
    Local,
    /// Hosts reached by SSH; `home` is set if it is not the first one.
    Ssh { hosts: Vec<SshHost>, home: Option<String> },
    /// The login node of a SLURM cluster; `None` for this machine.
    Slurm { login: Option<SshHost> },
}

/// Live state, as it was read.
#[derive(Clone, Debug)]
pub struct Found {
    pub place: Place,
    /// The endpoint of the GKE cluster that was used.
    pub endpoint: Endpoint,
    /// The GKE cluster as its API gives it, without pools; `null` for a kubeconfig.
    pub cluster: Value,
    /// Its node pools by name.
    pub pools: BTreeMap<String, Value>,
    /// The number of nodes of each pool, over all zones, as far as it is known.
    pub sizes: BTreeMap<String, u32>,
    /// Kubernetes objects.
    pub objects: BTreeMap<ObjectId, Value>,
    /// Dask processes on hosts that no stack manages.
    pub unmanaged: Vec<Value>,
    /// Parts of the live state that could not be read, and why.
    pub unread: Vec<String>,
}

/// A stack file that describes the live objects.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The text of `stack.toml`.
    pub text: String,
    /// The addresses of its sections in the order of the file: those with `manage = false`; on hosts, all sections that become
    /// resources.
    pub sections: Vec<String>,
    /// The files that environments are created from.
    pub files: Vec<EnvironmentFile>,
    /// Parts of the live state that the stack does not describe, and why: the texts of the file's comments.
    pub left_out: Vec<String>,
}

/// A file that an environment is created from. Its path is safe to write: the folder is a section key, and the name comes from a
/// fixed list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvironmentFile {
    environment: String,
    name: &'static str,
    text: String,
}

impl EnvironmentFile {
    /// Creates the file; `None` if the key or the name cannot be part of a path.
    fn new(environment: &str, name: &str, text: &str) -> Option<Self> {
        let name = FILES.iter().map(|(_, file)| *file).chain([LOCK]).find(|known| *known == name)?;
        is_bare(environment).then(|| Self {
            environment: environment.to_owned(),
            name,
            text: text.to_owned(),
        })
    }

    /// Returns its path, relative to the stack's folder.
    pub fn path(&self) -> PathBuf {
        Path::new(&self.environment).join(self.name)
    }

    /// Returns the content of the file.
    pub fn text(&self) -> &str {
        &self.text
    }
}

/// A stack file that is being written, with comments on its sections.
#[derive(Default)]
struct Draft {
    stack: Stack,
    /// Comment lines above a section, by its header.
    above: BTreeMap<String, Vec<String>>,
    /// Comment lines below the keys of a section, on what it does not describe.
    below: BTreeMap<String, Vec<String>>,
    /// Comment lines on objects without a section.
    unsupported: Vec<String>,
    /// True if an object also has parts on hosts that were not read.
    unread_hosts: bool,
}

impl Draft {
    fn above(&mut self, section: &str, line: impl Into<String>) {
        self.above.entry(section.to_owned()).or_default().push(line.into());
    }

    fn below(&mut self, section: &str, line: impl Into<String>) {
        self.below.entry(section.to_owned()).or_default().push(line.into());
    }

    /// Returns the name of the section that a problem is about, if the section can be removed.
    fn about(&self, problem: &Diagnostic) -> Option<String> {
        let sections = self.stack.section_paths();
        let innermost = |field: &FieldPath| {
            let around = sections.iter().filter(|section| section.contains(field));
            around.max_by_key(|section| section.segments().len())
        };
        let section = problem.fields().find_map(innermost)?;
        (*section != FieldPath::keys(["cluster"])).then(|| section.to_string())
    }

    /// Removes a section, and returns true if there was one.
    fn remove(&mut self, section: &str) -> bool {
        self.stack.remove(&section.parse().unwrap_or_default())
    }

    /// Returns the scope of the sections so far.
    fn scope(&self) -> Scope {
        lower::scope(&self.stack, false)
    }
}

/// Returns the stack file for the live objects. `owner` manages none of them, except on hosts, where they are its own.
pub fn import(found: &Found, owner: &Owner) -> Imported {
    let (gke, kubernetes) = match &found.place {
        Place::Gke(ClusterName { project, location, .. }) => {
            (Some(Gke { project: project.clone(), location: location.clone() }), None)
        }
        Place::Kubeconfig { path, context } => {
            (None, Some(Kubernetes { kubeconfig: path.clone(), context: context.clone() }))
        }
        Place::Hosts(_) => (None, None),
    };
    let header = Header {
        name: owner.stack.clone(),
        id: (owner.id != owner.stack).then(|| owner.id.clone()),
        ..Header::default()
    };
    let stack = Stack { stack: header, gke, kubernetes, ..Stack::default() };
    let mut draft = Draft { stack, unsupported: found.unread.clone(), ..Draft::default() };
    if let Place::Hosts(place) = &found.place {
        hosts::target(place, &mut draft.stack);
        hosts::import(found, owner, &mut draft);
    } else {
        gke::import(found, &mut draft);
        namespaces::import(found, &mut draft);
        dask::import(found, &mut draft);
    }
    loop {
        let imported = page::write(found, &draft);
        // Each round takes a section away, so there is a last one.
        if !without_broken(&mut draft, &imported.text) {
            unadoptable(&mut draft, &imported.text);
            return page::write(found, &draft);
        }
    }
}

fn problems(text: &str) -> Vec<Diagnostic> {
    let none = BTreeMap::new();
    match parse_text("stack.toml", text, &Options { env: &|_| None, vars: &none, helm: None }) {
        Ok(_) => Vec::new(),
        Err(failure) => {
            failure.diagnostics.into_iter().filter(|problem| problem.severity == Severity::Error).collect()
        }
    }
}

/// Adds comments below sections that a stack could not manage itself, with the reason.
fn unadoptable(draft: &mut Draft, text: &str) {
    if draft.stack.is_on_hosts() {
        return;
    }
    let text = text.replace("\nmanage = false\n", "\nmanage = true\n");
    for problem in problems(&text) {
        let Some(section) = draft.about(&problem) else { continue };
        let line = format!("a stack cannot describe it: {}", problem.message);
        if !draft.below.get(&section).is_some_and(|lines| lines.contains(&line)) {
            draft.below(&section, line);
        }
    }
}

/// Removes sections that a stack would refuse, with their errors as comments. Returns `false` if there are none.
fn without_broken(draft: &mut Draft, text: &str) -> bool {
    let mut taken = false;
    for problem in problems(text) {
        if let Some(section) = draft.about(&problem).filter(|section| draft.remove(section)) {
            draft.unsupported.push(format!("[{section}]: {}", problem.message));
            taken = true;
        }
    }
    taken
}

/// Returns a unique key for a section: the live name if possible, else with the namespace, else with a number.
fn key(name: &str, namespace: &str, taken: &BTreeSet<&String>) -> String {
    let free = |key: &String| !taken.contains(key);
    let both = format!("{name}-{namespace}");
    let numbered = (2..).map(|number| format!("{both}-{number}"));
    [name.to_owned(), both.clone()].into_iter().chain(numbered).find(free).unwrap_or_default()
}

/// Returns a JSON string, and an empty text for anything else.
fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns the tool that manages an object, if the object shows it: `kubectl`, `Helm release dask`. Source: Helm's
/// `meta.helm.sh/` annotations, Argo CD's tracking annotation and label, the labels that Flux's controllers put on objects.
pub fn kept_by(live: &Value) -> Option<String> {
    let metadata = &live["metadata"];
    let (labels, annotations) = (&metadata["labels"], &metadata["annotations"]);
    if let Some(release) = annotations["meta.helm.sh/release-name"].as_str() {
        return Some(format!("Helm release {release}"));
    }
    if labels["app.kubernetes.io/managed-by"] == "Helm" {
        return Some(
            format!("Helm release {}", text(&labels["app.kubernetes.io/instance"])).trim_end().to_owned(),
        );
    }
    if let Some(tracked) = annotations["argocd.argoproj.io/tracking-id"].as_str() {
        return Some(format!("Argo CD application {}", tracked.split(':').next().unwrap_or(tracked)));
    }
    let flux = [
        ("kustomize.toolkit.fluxcd.io/name", "Kustomization"),
        ("helm.toolkit.fluxcd.io/name", "HelmRelease"),
    ];
    if let Some((name, kind)) = flux.iter().find_map(|(label, kind)| Some((labels[*label].as_str()?, kind))) {
        return Some(format!("Flux {kind} {name}"));
    }
    let entries = metadata["managedFields"].as_array().into_iter().flatten();
    let argo = entries.filter(|entry| entry["manager"] == "argocd-controller").count();
    if argo > 0 {
        return Some("Argo CD".to_owned());
    }
    None
}

/// Returns the stack that owns an object, a cluster or a pool, by its labels and field managers.
pub fn stack_of(live: &Value) -> Option<String> {
    let entries = live["metadata"]["managedFields"].as_array().into_iter().flatten();
    let applied =
        entries.filter(|entry| entry["operation"] == "Apply").filter_map(|entry| entry["manager"].as_str());
    // A stack has more names as a field manager, `dask-infra/s:create_only`, and is one stack.
    let stack = |manager: &'_ str| Some(manager.strip_prefix("dask-infra/")?.split(':').next()?.to_owned());
    let mut stacks = applied.filter_map(stack);
    let labels = [&live["resourceLabels"], &live["config"]["resourceLabels"]];
    let label = labels.iter().find_map(|labels| labels[model::resource::LABEL_STACK].as_str());
    stacks.next().or(label.map(str::to_owned))
}
