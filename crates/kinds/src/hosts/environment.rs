//! Python environments on a host: an existing one, or one that is created from packages.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::code::{Code, SourceFiles};
use crate::hosts::container::Container;
use crate::hosts::{api, files};
use crate::json::{is_false, text};
use crate::kind::{ChangeContext, Compare, Defect, Kind, PodSource};
use crate::kubernetes::calls::object_change_steps;
use crate::kubernetes::object::pods_labelled;
use crate::scope::{EnvironmentFacts, Scope};
use crate::section::{Lifecycle, LiveName, NameRule, Section};
use crate::status::StatusLine;
use model::address::{Address, FieldPath};
use model::resource::{Effect, Facts, Identity, KindId, Owner, Readiness, Recreation, Resource};
use model::versions::{Skew, Versions, skew};

/// Seconds: hundreds of megabytes may have to be downloaded.
const DEADLINE: u32 = 1800;

/// The number of characters of the digest that are in the name of the folder.
const DIGEST: usize = 16;

/// Keys that name a file, and the usual name of that file, by which the agent recognizes it.
pub const FILES: [(&str, &str); 3] =
    [("requirements", "requirements.txt"), ("pyproject", "pyproject.toml"), ("conda", "environment.yml")];

/// The label with the name of the environment on the pod that stands for its installer.
const INSTALLER_LABEL: &str = "hosts.dask-infra.dev/environment";

/// The lock file of `uv`, beside a `pyproject.toml`.
pub const LOCK: &str = "uv.lock";

/// Returns true for the usual name of a file of an environment.
pub fn is_usual_name(name: &str) -> bool {
    name == LOCK || FILES.iter().any(|(_, file)| *file == name)
}

pub const KIND: Kind = Kind {
    rank: 55,
    compare: Compare::Kubernetes(effect),
    change_steps: |context| object_change_steps(context, KindId::Environment, Facts::None, DEADLINE),
    find_defect,
    readiness: |_, found| Ok(readiness(found.own_object())),
    status_line: |_, found| Ok(status_line(found.own_object())),
    plan_summary: about,
    pods,
    address: |object| Address::of("environment", &object.name),
    ..Kind::DEFAULT
};

/// A Python environment on the hosts (`[local]`, `[ssh]`): one that is there (`path`), one that is made of `packages`,
/// `requirements`, `pyproject` or `conda`, or that of an image (`container`). Other packages, a file with another text or another
/// image make a new environment beside the old one, and the Dask clusters that run in it are replaced.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Environment {
    /// Packages as `pip install` takes them: `["dask[distributed]==2026.8.0", "numpy"]`. They are installed by uv where it
    /// is on the `PATH`, else by venv and pip. Passwords and tokens in URLs are refused: what is written here is in plans and
    /// in logs. Give them in the installer's own configuration (`~/.netrc`, `uv.toml`, `pip.conf`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub packages: Vec<String>,
    /// A file of packages with versions, as `pip install -r` takes it: `"requirements.txt"`. Installed as `packages` are. Each line is
    /// a package, a local package (`./lib`, `-e ../lib`), or one of `--index-url`, `--extra-index-url`, `--only-binary` and `--no-binary`. A local
    /// package is copied to the hosts and installed there; an edit of its code is another environment. Other files (`-r`) are refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requirements: Option<String>,
    /// A `pyproject.toml`, with the `uv.lock` beside it: `uv sync --locked` installs what is locked, without the project itself and its
    /// dev group. Local packages of `[tool.uv.sources]` (`path`) are copied to the hosts, and their code counts, too. Needs uv on each host; a
    /// lock that is out of date is an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pyproject: Option<String>,
    /// With `pyproject`: `true` installs the project itself, too. Its folder is copied to the hosts, without `.git`, `.venv` and `__pycache__`; an
    /// edit in it is another environment. Default `false`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub project: bool,
    /// A file of conda: `"environment.yml"`. The environment is made by micromamba, mamba or conda, whichever is on the `PATH` of a host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conda: Option<String>,
    /// An image with `distributed` in it: `"ghcr.io/dask/dask:2026.8.0-py3.12"`, or a table with `image`, `runtime` (podman, docker,
    /// apptainer or singularity), `mounts` and `options`. Each process runs in a container of its own, with the network, the shared
    /// memory and the user of the host and with the home at its place. It is pulled to each host that does not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<Container>,
    /// The Python to make it with: a version (`"3.12"`; uv downloads what is not there) or the absolute path of an interpreter.
    /// Default the `python3` of the `PATH`. With `container`, the interpreter in the image, default its `python3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python: Option<String>,
    /// A Python that is there: the absolute path (`/…` or `~/…`) of an interpreter or of the folder of an environment, with
    /// `distributed` in it. Used as it is, never written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// For prototypes: packages that the workers of a running Dask cluster install themselves, by Dask's plugin `PipInstall`: `["scikit-learn"]`.
    /// One that is added needs no restart. Each worker that starts runs pip first and needs the index for it, so move what you keep to `packages`.
    /// Such an environment has a folder of its own, so this key, also as `[]`, makes another environment. Not with `path`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pip_install: Option<Vec<String>>,
    /// `protect` and `depends_on`.
    #[serde(flatten)]
    pub lifecycle: Lifecycle,
    /// The contents of its files, by their usual names; read when the stack is loaded.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(skip)]
    pub texts: BTreeMap<String, String>,
    /// The code of its local packages, and of the project; read when the stack is loaded.
    #[serde(default, skip_serializing_if = "LocalPackages::is_empty")]
    #[schemars(skip)]
    pub contents: LocalPackages,
}

/// The code of local packages, in folders that are to each other as in the repository.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
pub struct LocalPackages {
    /// The folder of the file that names them.
    pub base: String,
    pub files: SourceFiles,
}

impl LocalPackages {
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }
}

/// Returns the path of a local package in a line of a requirements file: `./lib`, `-e ../lib[gpu]`, `file:./lib`.
pub fn local_package(line: &str) -> Option<&str> {
    let line = line.trim();
    let flags = ["-e ", "--editable ", "--editable="];
    let line = flags.iter().find_map(|flag| line.strip_prefix(flag)).unwrap_or(line).trim_start();
    let line = line.strip_prefix("file:").unwrap_or(line);
    let end = line.find([' ', ';', '[', '#']).unwrap_or(line.len());
    let path = &line[..end];
    (path == "." || path == ".." || path.starts_with("./") || path.starts_with("../")).then_some(path)
}

/// Returns the text of a requirements file whose local packages are installed as they are when it is read, and not as links to a
/// folder that is gone later.
pub fn without_links(text: &str) -> String {
    let line = |line: &str| match local_package(line) {
        Some(path) => {
            let rest = line.find(path).map_or("", |at| &line[at + path.len()..]);
            if path.starts_with("./") || path.starts_with("../") {
                format!("{path}{rest}\n")
            } else {
                format!("{path}/{rest}\n")
            }
        }
        None => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

impl Section for Environment {
    fn depends_on(&self) -> &[String] {
        &self.lifecycle.depends_on
    }

    fn live_name<'a>(&'a self, key: &'a str) -> Option<LiveName<'a>> {
        Some(LiveName::new(None, key, NameRule::Object))
    }
}

impl Environment {
    pub fn facts(&self, key: &str, owner: &Owner) -> EnvironmentFacts {
        let pip_install = self.pip_install.clone().unwrap_or_default();
        let facts = EnvironmentFacts { key: key.to_owned(), digest: String::new(), pip_install };
        // Packages that workers install must not reach other stacks.
        let alone = self.pip_install.as_ref().map(|_| facts.live_name(owner));
        EnvironmentFacts { digest: self.digest(alone.as_deref()), ..facts }
    }

    /// Returns the digest of an environment. `alone` is the owner of an environment that must not be shared; it changes the
    /// digest.
    fn digest(&self, alone: Option<&str>) -> String {
        let Self {
            packages,
            requirements: _,
            pyproject: _,
            project,
            conda: _,
            python,
            path,
            container,
            pip_install: _,
            lifecycle: _,
            texts,
            contents,
        } = self;
        // The name of a file does not matter for the environment.
        let text = match (container, texts.is_empty()) {
            (Some(container), _) => json!([python, container.body()]),
            (None, true) => json!([packages, python, path]),
            (None, false) => json!([python, texts]),
        };
        let text = match contents.is_empty() {
            true => text,
            false => json!([text, project, contents.base, contents.files.digest()]),
        };
        let text = match alone {
            Some(name) => json!([text, name]).to_string(),
            None => text.to_string(),
        };
        blake3::hash(text.as_bytes()).to_hex().as_str()[..DIGEST].to_owned()
    }
}

/// Lowers `[environment.KEY]` to a resource, and the code of its local packages.
pub fn lower(key: &str, section: &Environment, scope: &Scope) -> Vec<Resource> {
    let Environment { packages, python, path, container, pip_install, lifecycle, texts, contents, .. } =
        section;
    let api = api::environment();
    let origin = FieldPath::keys(["environment", key]);
    let facts = section.facts(key, &scope.owner);
    let name = facts.live_name(&scope.owner);
    let mut spec = json!({ "digest": facts.digest });
    if let Some(container) = container {
        spec["container"] = container.body();
        if scope.slurm.is_some() {
            spec["container"]["jobs"] = json!(true);
        }
    } else if let Some(path) = path {
        spec["path"] = json!(path);
    } else if texts.is_empty() {
        spec["packages"] = json!(packages);
    } else {
        spec["files"] = json!(texts);
    }
    if let Some(python) = python {
        spec["python"] = json!(python);
    }
    if !contents.is_empty() {
        let digest = contents.files.digest();
        spec["sources"] = json!({ "digest": digest, "base": contents.base, "project": section.project });
    }
    if pip_install.is_some() {
        spec["pip"] = json!(true);
    }
    if let Some(hosts) = scope.target.host_names() {
        spec["hosts"] = json!(hosts);
    }
    let source =
        FILES.into_iter().find(|(_, name)| texts.contains_key(*name)).map_or("requirements", |(key, _)| key);
    let mut environment = Resource {
        address: Address::of("environment", key),
        identity: api::identity(&api, &name),
        kind: KindId::Environment,
        body: json!({
            "apiVersion": api.api_version(), "kind": api.kind,
            "metadata": { "name": name, "labels": scope.labels() },
            "spec": spec,
        }),
        create_only: Value::Null,
        provenance: std::iter::once((FieldPath::keys(["spec"]), origin.clone()))
            .chain(FILES.map(|(key, name)| (FieldPath::keys(["spec", "files", name]), origin.key(key))))
            .chain([(FieldPath::keys(["spec", "container"]), origin.key("container"))])
            .chain([(FieldPath::keys(["spec", "sources"]), origin.key(source))])
            .collect(),
        origin: origin.clone(),
        depends_on: lifecycle.depends_on.iter().map(Address::new).collect(),
        protect: lifecycle.protect,
        recreation: Recreation::Always,
    };
    let code = Code { files: (&contents.files, origin.key(source)), working_dir: None };
    let files = files::lower(&mut environment, &code, scope);
    std::iter::once(environment).chain(files).collect()
}

fn effect(path: &FieldPath) -> (Effect, Option<&'static str>) {
    let made = FieldPath::keys(["spec"]).contains(path);
    let made = made && !FieldPath::keys(["spec", "hosts"]).contains(path);
    (Effect::InPlace, made.then_some("a new environment is made, and what runs in the old one is replaced"))
}

/// Finds an environment that could not be created, or whose Python is missing. The repair creates it again.
fn find_defect(context: &ChangeContext) -> Option<Defect> {
    let status = &context.live?["status"];
    let why = (status["phase"] == "Failed").then(|| text(&status["message"]))?;
    let why = format!("it is not complete: {why}");
    Some(Defect::of(context, why))
}

/// The remedy for hosts with different versions.
const PIN: &str = "pin these versions (and `python`), which makes it anew on all hosts; for a `path`, install the same versions \
     on each host";

/// Returns the versions of an environment's packages on each host.
fn by_host(status: &Value) -> Vec<(String, Versions)> {
    let hosts = status["onHosts"].as_object().into_iter().flatten();
    hosts
        .filter_map(|(host, versions)| Some((host.clone(), serde_json::from_value(versions.clone()).ok()?)))
        .collect()
}

fn readiness(live: &Value) -> Readiness {
    api::unread_hosts(live).unwrap_or_else(|| judged(live))
}

fn judged(live: &Value) -> Readiness {
    let status = &live["status"];
    match text(&status["phase"]) {
        "Ready" => {
            let Skew { breaks, differs } = skew(&by_host(status));
            match (breaks.join("; "), differs.join("; ")) {
                (none, same) if none.is_empty() && same.is_empty() => Readiness::Ready,
                (none, differs) if none.is_empty() => {
                    Readiness::Impaired(format!("its hosts have different versions: {differs}; {PIN}"))
                }
                (breaks, _) => {
                    let what = "its hosts have versions that do not work together";
                    Readiness::Failed(format!("{what}: {breaks}; {PIN}"))
                }
            }
        }
        "Failed" | "Stuck" => Readiness::Failed(match text(&status["log"]) {
            "" => text(&status["message"]).to_owned(),
            log => format!("{}; the end of its log:\n{log}", text(&status["message"])),
        }),
        "Removing" => Readiness::progressing(match text(&status["message"]) {
            "" => "its folder is being removed".to_owned(),
            why => format!("its folder is being removed again: {why}"),
        }),
        _ if live["spec"]["container"].is_object() => Readiness::progressing("its image is being pulled"),
        _ if live["spec"]["path"].is_string() => Readiness::progressing("its Python is being checked"),
        _ => Readiness::progressing("its packages are being installed"),
    }
}

/// Returns the pod that stands for its installer, which has the log.
fn pods(resource: &Resource) -> PodSource {
    let Identity::Object(object) = &resource.identity else { return PodSource::None };
    PodSource::Known(pods_labelled(Some(api::NAMESPACE), [(INSTALLER_LABEL, object.name.as_str())]))
}

/// Returns why a host cannot remove the folder of a deleted environment, if it reports so.
pub fn deletion_error(live: &Value) -> Option<&str> {
    let status = &live["status"];
    (live["kind"] == "Environment" && status["phase"] == "Stuck").then(|| text(&status["message"]))
}

fn status_line(live: &Value) -> StatusLine {
    let versions = &live["status"]["versions"];
    let facts: Vec<(&'static str, Value)> = ["python", "dask", "distributed"]
        .into_iter()
        .filter(|name| versions[*name].is_string())
        .map(|name| (name, versions[name].clone()))
        .collect();
    let said: Vec<String> = facts.iter().map(|(name, version)| format!("{name} {}", text(version))).collect();
    StatusLine { line: said.join(", "), facts, ..StatusLine::default() }
}

fn about(resource: &Resource) -> Vec<String> {
    let spec = &resource.body["spec"];
    let packages: Vec<&str> =
        spec["packages"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let python = text(&spec["python"]);
    let python = if python.is_empty() { String::new() } else { format!("Python {python}") };
    let files: Vec<&str> =
        spec["files"].as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    let container = &spec["container"];
    let image = [text(&container["image"]), text(&container["runtime"])].join(" ").trim().to_owned();
    vec![text(&spec["path"]).to_owned(), image, python, packages.join(" "), files.join(" and ")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code::SourceFile;

    #[test]
    fn local_packages_are_found_in_requirements() {
        for (line, path) in [
            ("./lib", Some("./lib")),
            ("-e ./lib", Some("./lib")),
            ("--editable=../lib[gpu] ; python_version > '3'", Some("../lib")),
            ("-e .", Some(".")),
            ("file:./lib", Some("./lib")),
            ("numpy", None),
            ("-r other.txt", None),
            ("/abs/lib", None),
            ("lib @ file:///abs/lib", None),
            (".hidden", None),
        ] {
            assert_eq!(local_package(line), path, "{line}");
        }
        assert_eq!(without_links("-e .\nnumpy\n-e ../lib[gpu]\n"), "./\nnumpy\n../lib[gpu]\n");
    }

    #[test]
    fn the_code_of_a_local_package_makes_another_environment() {
        let of = |text: Option<&str>| {
            let mut section = Environment::default();
            section.texts.insert("requirements.txt".to_owned(), "./lib\n".to_owned());
            if let Some(text) = text {
                assert!(
                    section
                        .contents
                        .files
                        .add("lib/a.py".to_owned(), SourceFile::new(false, text.as_bytes()))
                );
            }
            section.digest(None)
        };
        assert_ne!(of(Some("1")), of(Some("2")));
        assert_eq!(of(Some("1")), of(Some("1")));
        assert_ne!(of(None), of(Some("1")));
    }

    #[test]
    fn an_environment_is_ready_when_its_python_is_known() {
        let on_hosts = |python: &str, numpy: &str| {
            let first = json!({ "python": "3.12.1", "numpy": "2.1.0" });
            json!({ "phase": "Ready", "onHosts": { "a": first, "b": { "python": python, "numpy": numpy } } })
        };
        for (status, ready) in [
            (json!({ "phase": "Ready", "versions": { "python": "3.11.7" } }), Readiness::Ready),
            (json!({ "phase": "Making" }), Readiness::progressing("its packages are being installed")),
            (json!({}), Readiness::progressing("its packages are being installed")),
            (json!({ "phase": "Failed", "message": "no" }), Readiness::Failed("no".to_owned())),
            (
                json!({ "phase": "Failed", "message": "no", "log": "because\nof this" }),
                Readiness::Failed("no; the end of its log:\nbecause\nof this".to_owned()),
            ),
            (json!({ "phase": "Removing" }), Readiness::progressing("its folder is being removed")),
            (json!({ "phase": "Stuck", "message": "no" }), Readiness::Failed("no".to_owned())),
            (
                on_hosts("3.12.1", "2.2.0"),
                Readiness::Impaired(format!(
                    "its hosts have different versions: numpy 2.1.0 on a, 2.2.0 on b; {PIN}"
                )),
            ),
            (
                on_hosts("3.11.7", "2.2.0"),
                Readiness::Failed(format!(
                    "its hosts have versions that do not work together: python 3.12.1 on a, 3.11.7 on b; {PIN}"
                )),
            ),
        ] {
            assert_eq!(readiness(&json!({ "status": status })), ready, "{status}");
        }
    }

    #[test]
    fn a_digest_tells_what_is_in_it() {
        let of = |packages: &[&str], python: Option<&str>| {
            let packages = packages.iter().map(|package| (*package).to_owned()).collect();
            Environment { packages, python: python.map(str::to_owned), ..Environment::default() }.digest(None)
        };
        let one = of(&["dask"], None);
        assert_eq!(one, of(&["dask"], None));
        assert_ne!(one, of(&["dask==1"], None));
        assert_ne!(one, of(&["dask"], Some("3.12")));
        let file = |key: Option<&str>, text: &str| {
            let texts = [("requirements.txt".to_owned(), text.to_owned())].into();
            Environment { requirements: key.map(str::to_owned), texts, ..Environment::default() }.digest(None)
        };
        assert_eq!(file(Some("a.txt"), "dask\n"), file(Some("b.txt"), "dask\n"));
        assert_ne!(file(Some("a.txt"), "dask\n"), file(Some("a.txt"), "dask==1\n"));
        // The list of packages in `pip_install` is not part of the digest, only whether there is one: then the environment
        // belongs to this stack only.
        let owner = |id: &str| Owner { id: id.into(), ..Owner::default() };
        let facts = |pip_install: Option<&[&str]>, id: &str| {
            let pip_install = pip_install.map(|some| some.iter().map(|one| (*one).to_owned()).collect());
            let section =
                Environment { packages: vec!["dask".into()], pip_install, ..Environment::default() };
            section.facts("main", &owner(id)).digest
        };
        assert_eq!(facts(None, "a"), one);
        assert_eq!(facts(None, "a"), facts(None, "b"));
        assert_ne!(facts(Some(&[]), "a"), one);
        assert_eq!(facts(Some(&[]), "a"), facts(Some(&["numpy"]), "a"));
        assert_ne!(facts(Some(&[]), "a"), facts(Some(&[]), "b"));
    }
}
