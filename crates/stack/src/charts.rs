//! Charts of a stack: computes the arguments for `helm`, and adds the rendered objects to the tree of the section. `helm` itself
//! is a function that the caller passes.
//!
//! The real program renders, instead of a template engine or Helm's library, so that charts behave as they do with Helm. Its
//! output is an input like the files. So everything after it is pure, and test cases contain what `helm` printed.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::disk::{self, Chart, outside};
use super::files::{Files, is_list, put};
use super::yaml::Node;
use kinds::dask;
use kinds::kubernetes::helm_release;
use kinds::kubernetes::kueue::install;
use kinds::scope::{DASK_OPERATOR, KUEUE, OPERATOR_NAME};
use model::address::{FieldPath, Segment};
use model::diag::{Code, Diagnostic, Severity};
use model::schema;

/// Arguments of one run of `helm template`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Render {
    /// The name of the release.
    pub release: String,
    pub namespace: String,
    /// The chart: a path, an `oci://` address, or a name in `repo`.
    pub chart: String,
    /// The address of its repository.
    pub repo: Option<String>,
    /// The version of a chart that is not a file.
    pub version: Option<String>,
    /// The values of all files and of the section, merged as in Helm. `null` removes a value of the chart.
    pub values: Map<String, Value>,
    /// The Kubernetes version that is passed to the chart.
    pub kube_version: String,
    /// API versions that are passed to the chart, in addition to the built-in ones.
    pub api_versions: Vec<String>,
}

/// The output of two renderings of a chart. Parts that differ are random.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rendered {
    /// The YAML that `helm template --include-crds` prints.
    pub text: String,
    /// The YAML of a second run.
    pub again: String,
}

/// Reasons why a chart was not rendered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The program does not exist.
    NoProgram(String),
    /// Its version is too old.
    TooOld {
        /// How it was called.
        program: String,
        /// The version that it reports.
        version: String,
    },
    /// It could not be run, and why.
    NotRun(String),
    /// It failed, with this message.
    Said(String),
}

/// Renders a chart. Called from several threads at once.
pub type Helm<'a> = dyn Fn(&Render) -> Result<Rendered, Trouble> + Sync + 'a;

/// A section with a chart.
struct Asked {
    section: FieldPath,
    render: Render,
    /// True if the CustomResourceDefinitions of the chart are applied.
    crds: bool,
    local: bool,
}

/// Renders every chart that the tree names, and puts its objects into the tree. Replaces some values of sections before. Without
/// `helm`, charts are not rendered.
pub(super) fn read(
    tree: &mut Value,
    files: &mut Files<'_>,
    helm: Option<&Helm<'_>>,
    instead: &[(FieldPath, Value)],
) {
    let mut asked: Vec<Asked> = Vec::new();
    for section in sections(tree) {
        let Some(table) = section.find(tree).cloned() else { continue };
        let said = files.found.diagnostics.len();
        let mut given = values_files(&table, &section, files);
        let place = section.key("given");
        for (path, other) in instead.iter().filter(|(path, _)| place.contains(path)) {
            if let [Segment::Index(index), below @ ..] = &path.segments()[place.segments().len()..]
                && let Some(file) = given.get_mut(*index)
            {
                put(file, below, other);
            }
        }
        let readable = files.found.diagnostics[said..].iter().all(|said| said.severity != Severity::Error);
        let definitions =
            files.objects(&table["definitions"], &section.key("definitions"), &section.key("known"));
        if let Some(slot) = super::files::slot(tree, &section).and_then(Value::as_object_mut) {
            if let Some(known) = definitions {
                slot.insert("known".into(), known);
            }
            if !given.is_empty() && slot.contains_key("values_files") && section.segments().len() > 1 {
                slot.insert("given".into(), Value::Array(given.clone()));
            }
        }
        asked.extend(ask(&table, &section, &given, files).filter(|_| readable));
    }
    let Some(helm) = helm else { return };
    let answers: Vec<Result<Rendered, Trouble>> = std::thread::scope(|threads| {
        let running: Vec<_> = asked.iter().map(|asked| threads.spawn(move || helm(&asked.render))).collect();
        let lost = |_| Err(Trouble::NotRun("its thread ended early".to_owned()));
        running.into_iter().map(|thread| thread.join().unwrap_or_else(lost)).collect()
    });
    let mut without_helm: Option<Diagnostic> = None;
    for (asked, answer) in asked.iter().zip(answers) {
        let chart = files.sources.span(&asked.section.key("chart"));
        match answer {
            Ok(rendered) => place(tree, asked, &rendered, files),
            Err(Trouble::Said(words)) => {
                let problem = failed(asked, &words, files);
                files.say(problem);
            }
            Err(trouble) => {
                without_helm = Some(match without_helm {
                    Some(problem) => problem.at(chart, "and this one"),
                    None => cannot_run(&trouble).at(chart, "needed to render this chart"),
                });
            }
        }
    }
    files.found.diagnostics.extend(without_helm);
}

/// Returns the sections with charts.
fn sections(tree: &Value) -> Vec<FieldPath> {
    let releases = tree.get(helm_release::SECTION).and_then(Value::as_object);
    let releases = releases.into_iter().flatten().filter(|(_, section)| section.is_object());
    let mut found: Vec<FieldPath> =
        releases.map(|(key, _)| FieldPath::keys([helm_release::SECTION, key])).collect();
    let operator = &tree[DASK_OPERATOR];
    if operator["source"] == "chart" && operator["manage"] != false {
        found.push(FieldPath::keys([DASK_OPERATOR]));
    }
    let kueue = &tree[KUEUE];
    if kueue.is_object() && kueue["manifest"].is_null() && kueue["manage"] != false {
        found.push(FieldPath::keys([KUEUE]));
    }
    found
}

/// Reads the values files, so that their errors are reported and their lines are known.
fn values_files(table: &Value, section: &FieldPath, files: &mut Files<'_>) -> Vec<Value> {
    let names = table["values_files"].as_array().into_iter().flatten().enumerate();
    let mut given = Vec::new();
    for (index, name) in names {
        let place = section.key("values_files").index(index);
        let documents = name.as_str().and_then(|name| files.documents(name, &place)).unwrap_or_default();
        let path = section.key("given").index(index);
        if documents.is_empty() {
            given.push(json!({}));
            continue;
        }
        given.push(match <[Node; 1]>::try_from(documents) {
            Ok([one]) if one.is_table() => {
                one.traps(&path, &mut files.found.traps, files.sources);
                one.place(&path, None, files.sources)
            }
            others => {
                let several = others.map_or_else(|several| several, Vec::from);
                let span = several.get(1).or(several.first()).map(Node::span);
                let what = format!("`{}` has no table of values", name.as_str().unwrap_or_default());
                let problem = Diagnostic::error(Code::NotAnObject, what).at(span, "");
                files.say(
                    problem.help("it must be one document with the chart's values, like its `values.yaml`"),
                );
                json!({})
            }
        });
    }
    given
}

/// Types of sections with a chart.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whose {
    Operator,
    Kueue,
    Release,
}

impl Whose {
    fn of(section: &FieldPath) -> Self {
        match section.segments() {
            [Segment::Key(key)] if key == KUEUE => Self::Kueue,
            [_] => Self::Operator,
            _ => Self::Release,
        }
    }

    /// Returns the default namespace of its release.
    fn namespace(self) -> &'static str {
        match self {
            Self::Operator => "dask-operator",
            Self::Kueue => install::NAMESPACE,
            Self::Release => "default",
        }
    }

    /// Returns the default name of its release.
    fn release(self, section: &FieldPath) -> &str {
        section.last_key().filter(|_| self != Self::Operator).unwrap_or(OPERATOR_NAME)
    }

    /// Adds the chart values that other keys of the section set.
    fn own_values(self, table: &Value, values: &mut Map<String, Value>) {
        match self {
            Self::Operator => dask::operator::own_values(table, values),
            Self::Kueue => install::own_values(values),
            Self::Release => {}
        }
    }
}

/// Returns the arguments of `helm` for a section. Reports errors in the section instead, if it has any.
fn ask(table: &Value, section: &FieldPath, given: &[Value], files: &mut Files<'_>) -> Option<Asked> {
    let whose = Whose::of(section);
    let text = |key: &str| table[key].as_str().map(str::to_owned);
    let (repo, version) = (text("repo"), text("version"));
    let chart = named(table, section, whose, files)?;
    let local = repo.is_none() && !chart.contains("://");
    let chart = if local {
        let folder = files.sources.folder(&section.key("chart"));
        let path = files.path(&folder, &chart);
        local_chart(&path, &chart, version.as_deref().filter(|_| whose != Whose::Operator), section, files)?;
        path.display().to_string()
    } else {
        remote_chart(&chart, repo.as_deref(), version.as_deref(), section, files)?;
        chart
    };
    let mut values = Map::new();
    let over = given.iter().chain([&table["values"]]).filter_map(Value::as_object);
    over.for_each(|over| lay(&mut values, over));
    whose.own_values(table, &mut values);
    let release = text("release").unwrap_or_else(|| whose.release(section).to_owned());
    let namespace = text("namespace").unwrap_or_else(|| whose.namespace().to_owned());
    if !names_are_valid(&release, &namespace) {
        return None;
    }
    let apis = table["api_versions"].as_array().into_iter().flatten();
    let render = Render {
        release,
        namespace,
        chart,
        repo,
        version: version.filter(|_| !local),
        values,
        kube_version: text("kube_version").unwrap_or_else(|| schema::KUBERNETES.to_owned()),
        api_versions: apis.filter_map(|item| item.as_str().map(str::to_owned)).collect(),
    };
    Some(Asked { section: section.clone(), render, crds: table["crds"] != false, local })
}

/// Returns the chart that a section names, or the default one for what it installs.
fn named(table: &Value, section: &FieldPath, whose: Whose, files: &mut Files<'_>) -> Option<String> {
    match (table["chart"].as_str(), whose) {
        (Some(chart), _) => return Some(chart.to_owned()),
        (None, Whose::Kueue) => return Some(install::CHART.to_owned()),
        (None, Whose::Operator) if table["chart"].is_null() => {}
        (None, Whose::Operator | Whose::Release) => return None,
    }
    let problem = Diagnostic::error(Code::ChartNotFound, "`source = \"chart\"` needs a chart");
    let problem = problem.at_value(section.key("source"), "");
    files.say(problem.help(
        "add `chart = \"dask-kubernetes-operator\"` and `repo = \"https://helm.dask.org\"`, or the \
         folder of the chart",
    ));
    None
}

/// Merges values over others: tables are merged, everything else is replaced. Source: `mergeMaps` of Helm's `pkg/cli/values`.
fn lay(values: &mut Map<String, Value>, over: &Map<String, Value>) {
    for (key, value) in over {
        match (values.get_mut(key), value) {
            (Some(Value::Object(below)), Value::Object(over)) => lay(below, over),
            _ => drop(values.insert(key.clone(), value.clone())),
        }
    }
}

/// Returns true if `helm` accepts the names. The rules about names report invalid ones.
fn names_are_valid(release: &str, namespace: &str) -> bool {
    let fits = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    fits(release) && release.len() <= 53 && fits(namespace)
}

/// Checks a chart that is a folder or a file; `None` if it is neither.
fn local_chart(
    path: &Path,
    named: &str,
    version: Option<&str>,
    section: &FieldPath,
    files: &mut Files<'_>,
) -> Option<()> {
    let place = section.key("chart");
    let chart = Chart::at(path);
    let problem = match chart {
        Chart::Other | Chart::Nothing => Some(no_chart(chart, named, version)),
        _ => leaves_the_fence(path, named, files),
    };
    if let Some(problem) = problem {
        files.say(problem.at_value(place, "named here"));
        return None;
    }
    if chart == Chart::Archive {
        return Some(());
    }
    if let Some(problem) = other_version(path, named, version) {
        files.say(problem.at_value(section.key("version"), ""));
        return None;
    }
    let asks = |line: &str| line.contains("{{") && line.contains("lookup \"");
    if let Some((template, _)) = disk::templates(path).iter().find(|(_, text)| text.lines().any(asks)) {
        let what = format!("`lookup` in `{template}` of the chart finds nothing here");
        let problem = Diagnostic::warning(Code::ChartLooksUp, what);
        let problem = problem.at_value(place, "rendered without a cluster");
        files.say(problem.help(
            "the chart is rendered as for a new cluster; if it keeps a password that way, give it the Secret's \
             name",
        ));
    }
    Some(())
}

fn no_chart(chart: Chart, named: &str, version: Option<&str>) -> Diagnostic {
    let is_folder = chart == Chart::Other;
    let what = match is_folder {
        true => format!("the folder `{named}` has no chart: it has no `Chart.yaml`"),
        false => format!("there is no chart `{named}`"),
    };
    // An alias of `helm repo add`, such as `dask`, exists on one machine only.
    let alias = named.split_once('/').filter(|(first, name)| {
        let words = !first.is_empty() && !first.starts_with('.') && !name.contains('/');
        words && version.is_some() && !is_folder
    });
    let help = match alias {
        Some((alias, name)) => format!(
            "paths of folders and `.tgz` files are relative to the stack file's folder; for a chart of the \
             repository that `helm repo list` calls `{alias}` write `chart = \"{name}\"`, `repo = \
             \"https://…\"` and `version`"
        ),
        None => {
            "name a folder with `Chart.yaml` or a `.tgz` file, relative to the stack file's folder, or add \
                 `repo = \"https://…\"` and `version`"
                .to_owned()
        }
    };
    Diagnostic::error(Code::ChartNotFound, what).help(help)
}

/// Returns the error for a link in a chart that leads out of the repository: `helm` follows links, and templates can print files
/// of their chart.
fn leaves_the_fence(path: &Path, named: &str, files: &Files<'_>) -> Option<Diagnostic> {
    let leak = if files.fence.holds(path) { files.fence.leak(path) } else { Some(path.to_owned()) };
    let (leak, root) = leak.zip(files.fence.root())?;
    let shown = leak.strip_prefix(path).ok().filter(|rest| !rest.as_os_str().is_empty());
    let shown = shown.map_or(Path::new(named).to_owned(), |rest| Path::new(named).join(rest));
    Some(outside(&shown.display().to_string(), root))
}

fn other_version(path: &Path, named: &str, version: Option<&str>) -> Option<Diagnostic> {
    let about = disk::about_chart(path);
    let own = about.lines().find_map(|line| line.strip_prefix("version:"))?;
    let own = own.split(" #").next().unwrap_or_default().trim().trim_matches(['"', '\'']);
    let wanted = version.filter(|wanted| own != *wanted)?;
    let what = format!("the chart in `{named}` has the version {own}, not {wanted}");
    let help = format!("set `version = \"{own}\"`, or omit it: a folder has only one version");
    Some(Diagnostic::error(Code::ChartVersion, what).help(help))
}

/// Checks the name and the version of a chart that is not a file.
fn remote_chart(
    chart: &str,
    repo: Option<&str>,
    version: Option<&str>,
    section: &FieldPath,
    files: &mut Files<'_>,
) -> Option<()> {
    let place = section.key("chart");
    let not_found = |what: String, help: String| Diagnostic::error(Code::ChartNotFound, what).help(help);
    let problem = match (chart.split_once("://"), repo) {
        (Some(("oci", _)), None) => None,
        (Some(_), Some(_)) => Some(not_found(
            format!("`{chart}` is a full address, and `repo` is another one"),
            "keep one of the two: `chart = \"oci://…\"`, or the chart's name and `repo`".to_owned(),
        )),
        (Some(_), None) => Some(not_found(
            format!("`{chart}` is neither a file nor `oci://…`"),
            "give the repository's address as `repo` and the chart's name as `chart`".to_owned(),
        )),
        (None, Some(_)) => chart.rsplit_once('/').map(|(_, name)| {
            not_found(
                format!("`{chart}` is not the name of a chart in `repo`"),
                format!("write `chart = \"{name}\"`: the repository is given by `repo`"),
            )
        }),
        (None, None) => None,
    };
    if let Some(problem) = problem {
        let problem = problem.at_value(place.clone(), "");
        files.say(problem);
        return None;
    }
    let exact = |version: &str| {
        let numbers = version.trim_start_matches('v').split(['-', '+']).next().unwrap_or_default();
        let digits = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_digit());
        numbers.split('.').count() == 3 && numbers.split('.').all(digits)
    };
    let (what, place) = match version {
        Some(version) if exact(version) => return Some(()),
        Some(version) => (format!("`{version}` is not the exact version of a chart"), section.key("version")),
        None => (format!("the chart `{chart}` has no `version`"), place),
    };
    let problem = Diagnostic::error(Code::ChartVersion, what).at_value(place.clone(), "");
    let see = match repo {
        Some(repo) => format!("`helm show chart {chart} --repo {repo}`"),
        None => format!("`helm show chart {chart}`"),
    };
    files.say(problem.help(format!("write `version = \"1.2.3\"`: {see} shows the latest")));
    None
}

fn cannot_run(trouble: &Trouble) -> Diagnostic {
    let get = "install Helm 4 from https://helm.sh/docs/intro/install (`brew install helm`, `snap install helm \
         --classic`, or one file from https://github.com/helm/helm/releases), or give its path: `--helm PATH`, \
         or DASK_INFRA_HELM. `apply FILE` of a saved plan, also one of `plan --destroy --out FILE`, does not need it";
    let (what, help) = match trouble {
        Trouble::NoProgram(program) => (format!("`{program}` was not found"), get.to_owned()),
        Trouble::TooOld { program, version } => {
            (format!("`{program}` is Helm {version}; charts are rendered by Helm 3 and 4"), get.to_owned())
        }
        Trouble::NotRun(why) | Trouble::Said(why) => (
            format!("`helm` could not be run: {why}"),
            "try `helm version` in a shell; `--helm PATH` or DASK_INFRA_HELM selects another one".to_owned(),
        ),
    };
    Diagnostic::error(Code::HelmMissing, what).help(help)
}

/// Returns the error that `helm` printed, with the position of the value that it names.
fn failed(asked: &Asked, words: &str, files: &Files<'_>) -> Diagnostic {
    let Asked { section, render, local, .. } = asked;
    let lines = words
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("Use --debug") && !line.starts_with("level="));
    let words = lines.fold(String::new(), |said, line| match said.as_str() {
        "" => line.to_owned(),
        said if said.ends_with(':') || line.starts_with("executing ") => format!("{said} {line}"),
        said => format!("{said}; {line}"),
    });
    let words = words.trim_start_matches("Error: ").to_owned();
    let rendering =
        ["templates/", "schema", "execution error", "parse error", "YAML", "dependenc", "kubeVersion"];
    if !local && !rendering.iter().any(|word| words.contains(word)) {
        let problem = Diagnostic::error(Code::ChartNotFound, format!("the chart cannot be fetched: {words}"));
        let problem = problem.at_value(section.key("chart"), "named here");
        let login = match render.repo {
            Some(_) => "fetch a chart that needs a login yourself (`helm pull`) and name its file",
            None => "`helm registry login` gives helm your credentials",
        };
        return problem.help(format!("check name, version and address; {login}; HTTPS_PROXY sets a proxy"));
    }
    let problem = Diagnostic::error(Code::ChartNotRendered, format!("the chart does not render: {words}"));
    if words.contains("dependency build") || words.contains("missing in charts/") {
        let problem = problem.at_value(section.key("chart"), "needs other charts");
        return problem.help(format!("run `helm dependency build {}` once", render.chart));
    }
    if words.contains("kube version") {
        let problem = problem.at_value(section.key("kube_version"), "");
        return problem.help("a version of Kubernetes is written `\"1.33\"`");
    }
    match named_value(&words, section, files) {
        Some((path, at)) => problem.at_value(at.clone(), "").help(format!(
            "fix `{path}`; `helm show values` prints the chart's values"
        )),
        None => problem.at_value(section.key("chart"), "this chart").help(
            "fix the values; `helm show values` prints the chart's values, `helm lint` checks the chart itself",
        ),
    }
}

/// Returns the path of a value of the user that helm's message names, and its position: the longest match.
fn named_value(words: &str, section: &FieldPath, files: &Files<'_>) -> Option<(FieldPath, FieldPath)> {
    let mut named: Vec<FieldPath> = Vec::new();
    // Of templates: `<.Values.worker.image.tag>`.
    for (at, start) in words.match_indices(".Values.") {
        let rest = &words[at + start.len()..];
        let end =
            rest.find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-' | '.'))).unwrap_or(rest.len());
        named.push(FieldPath::keys(rest[..end].split('.').filter(|key| !key.is_empty())));
    }
    // Of schemas: `at '/worker/replicas'` (Helm 4), `- worker.replicas: Invalid type` (Helm 3).
    for pointer in words.split("at '/").skip(1).filter_map(|rest| rest.split('\'').next()) {
        named.push(pointer.split('/').fold(FieldPath::root(), |path, key| match key.parse::<usize>() {
            Ok(index) => path.index(index),
            Err(_) => path.key(key),
        }));
    }
    for line in words.split("- ").skip(1) {
        let path = line.split(": ").next().unwrap_or_default().split('.');
        named.push(path.fold(FieldPath::root(), |path, key| match key.parse::<usize>() {
            Ok(index) => path.index(index),
            Err(_) => path.key(key),
        }));
    }
    let below = |root: &FieldPath, path: &[Segment]| -> FieldPath {
        root.segments().iter().chain(path).cloned().collect()
    };
    let mut roots = vec![section.key("values")];
    roots.extend((0..files.sources.names().count()).rev().map(|index| section.key("given").index(index)));
    let mut best: Option<(FieldPath, FieldPath)> = None;
    for path in &named {
        for length in (1..=path.segments().len()).rev() {
            let start = &path.segments()[..length];
            let place =
                roots.iter().map(|root| below(root, start)).find(|at| files.sources.written(at).is_some());
            let longer = best.as_ref().is_none_or(|(found, _)| found.segments().len() < length);
            if let Some(at) = place.filter(|_| longer) {
                best = Some((start.iter().cloned().collect(), at));
            }
        }
    }
    best
}

/// Adds the rendered objects to the tree.
fn place(tree: &mut Value, asked: &Asked, rendered: &Rendered, files: &mut Files<'_>) {
    let Asked { section, crds, .. } = asked;
    let chart = files.sources.span(&section.key("chart"));
    let pieces = pieces(&rendered.text);
    if let Some((template, line)) = unsteady(&pieces, &self::pieces(&rendered.again)) {
        let what =
            format!("the chart renders differently each time: line {line} of the output of `{template}`");
        let problem = Diagnostic::error(Code::ChartNotSteady, what).at(chart, "rendered twice");
        files.say(problem.help(
            "every plan would have changes: set the value that it generates, or create the Secret yourself and \
             give the chart its name (often `existingSecret`)",
        ));
        return;
    }
    let (mut objects, mut known) = (Vec::new(), Vec::new());
    if let Some(before) = section.key("known").find(tree).and_then(Value::as_array) {
        known.clone_from(before);
    }
    for (template, text) in pieces {
        let file = files.sources.add_made(format!("{section}/{template}"), text, chart);
        for document in files.documents_of(file) {
            let nodes = if is_list(&document) { document.into_items() } else { vec![document] };
            for node in nodes {
                let definition = node.text("kind") == Some("CustomResourceDefinition");
                match definition && !crds {
                    true => files.rendered(node, &section.key("known"), &mut known),
                    false => files.rendered(node, &section.key("objects"), &mut objects),
                }
            }
        }
    }
    if objects.is_empty() {
        let problem = Diagnostic::warning(Code::NotAnObject, "the chart renders no objects");
        let problem = problem.at(chart, "no output");
        files.say(problem.help("check its values: most charts have a value that turns everything off"));
    }
    if let Some(table) = super::files::slot(tree, section).and_then(Value::as_object_mut) {
        table.insert("objects".into(), Value::Array(objects));
        if !known.is_empty() {
            table.insert("known".into(), Value::Array(known));
        }
    }
}

/// Splits the output of `helm template` by template: `---`, `# Source: chart/templates/x.yaml`, YAML. Several documents
/// of one template stay together.
fn pieces(text: &str) -> Vec<(String, String)> {
    let mut pieces: Vec<(String, String)> = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let source = lines.peek().filter(|_| line == "---").and_then(|next| next.strip_prefix("# Source: "));
        match (source, pieces.last_mut()) {
            (Some(source), Some((last, text))) if last == source => text.push_str("---\n"),
            (Some(source), _) => pieces.push((source.to_owned(), String::new())),
            (None, Some((_, text))) => {
                text.push_str(line);
                text.push('\n');
            }
            (None, None) if line.trim().is_empty() || line == "---" => {}
            (None, None) => pieces.push(("chart".to_owned(), format!("{line}\n"))),
        }
    }
    pieces
}

/// Returns the first template that differs between two renderings, and the line in it.
fn unsteady(first: &[(String, String)], second: &[(String, String)]) -> Option<(String, usize)> {
    let differs = |(one, other): (&(String, String), &(String, String))| {
        let place = one.1.lines().zip(other.1.lines()).position(|(one, other)| one != other);
        let place = place.unwrap_or_else(|| one.1.lines().count().min(other.1.lines().count()));
        (one != other).then(|| (one.0.clone(), place + 1))
    };
    let found = first.iter().zip(second).find_map(differs);
    let more = first.iter().chain(second).nth(first.len().min(second.len()));
    found.or_else(|| more.filter(|_| first.len() != second.len()).map(|(template, _)| (template.clone(), 1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rendered_text_is_told_apart_by_template() {
        let text = "---\n# Source: a/templates/x.yaml\nkind: A\n---\n# Source: a/templates/x.yaml\nkind: B\n\
                    ---\n# Source: a/templates/y.yaml\ndata:\n  text: |\n    ---\n    # Source: no\n";
        let found = pieces(text);
        let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a/templates/x.yaml", "a/templates/y.yaml"]);
        assert_eq!(
            found[0].1,
            "# Source: a/templates/x.yaml\nkind: A\n---\n# Source: a/templates/x.yaml\nkind: B\n"
        );
        assert!(pieces("").is_empty());
        assert!(pieces("\n---\n").is_empty());
    }

    #[test]
    fn values_are_laid_over_each_other_as_helm_does_it() {
        let mut values = Map::new();
        for over in [
            json!({ "a": { "b": 1, "c": [1, 2] }, "d": "x" }),
            json!({ "a": { "c": [3], "e": null }, "d": { "f": 1 } }),
            json!({ "d": null }),
        ] {
            lay(&mut values, over.as_object().unwrap());
        }
        assert_eq!(Value::Object(values), json!({ "a": { "b": 1, "c": [3], "e": null }, "d": null }));
    }

    #[test]
    fn what_differs_between_two_runs_is_found() {
        let one = pieces("---\n# Source: a\nx: 1\ny: 2\n---\n# Source: b\nz: 1\n");
        assert_eq!(unsteady(&one, &one), None);
        let other = pieces("---\n# Source: a\nx: 1\ny: 3\n---\n# Source: b\nz: 1\n");
        assert_eq!(unsteady(&one, &other), Some(("a".to_owned(), 3)));
        assert_eq!(unsteady(&one, &one[..1]), Some(("b".to_owned(), 1)));
    }
}
