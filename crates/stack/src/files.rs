//! Files that a stack names: `file` and `definitions` of manifests, `pod` and `files` of Dask sections. Their content replaces their names in
//! the tree, so that later stages see values and find their lines.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use serde_json::{Map, Value, json};

use super::disk::{self, Copies, Fence, LARGEST, Unread};
use super::schema::{resolve, shape};
use super::yaml::{Documents, Node};
use kinds::code::{SourceFile, SourceFiles};
use kinds::hosts::environment::{FILES, LOCK, LocalPackages, local_package, without_links};
use kinds::pod::DIRECTIVE;
use kinds::scope::KUEUE;
use model::address::{FieldPath, Segment};
use model::diag::{Code, Diagnostic};
use model::source::{FileId, Sources, Span};

/// The result of reading the files.
#[derive(Default)]
pub(super) struct Found {
    /// Problems with the files.
    pub(super) diagnostics: Vec<Diagnostic>,
    /// Values that are read as something other than they look like. They are reported unless there is a more serious problem.
    pub(super) traps: Vec<(FieldPath, Diagnostic)>,
}

/// Reads every file that the tree names. Paths are relative to the folder of the file that names them; `root` is the folder of
/// the stack, `state_folder` that of [`disk::state_folder`].
pub(super) fn read<'a>(
    tree: &mut Value,
    sources: &'a mut Sources,
    (root, fence): (&'a Path, &'a Fence),
    state_folder: Option<PathBuf>,
) -> Files<'a> {
    let own = sources.names().map(|name| disk::real(Path::new(name)));
    let left_out = own.chain(state_folder).collect();
    let mut files = Files { sources, root, fence, left_out, found: Found::default() };
    let manifests = tree.get_mut("manifest").and_then(Value::as_object_mut);
    for (key, section) in manifests.into_iter().flatten() {
        let path = FieldPath::keys(["manifest", key]);
        for (from, to) in [("file", "objects"), ("definitions", "known")] {
            let objects = files.objects(&section[from].clone(), &path.key(from), &path.key(to));
            if let (Value::Object(section), Some(objects)) = (&mut *section, objects) {
                section.insert(to.to_owned(), objects);
            }
        }
    }
    let environments = tree.get_mut("environment").and_then(Value::as_object_mut);
    for (key, section) in environments.into_iter().flatten() {
        let path = FieldPath::keys(["environment", key]);
        let mut texts = files.texts(section, &path);
        let packages = files.local_packages(section, &mut texts, &path);
        if let (Value::Object(section), false) = (section, texts.is_empty()) {
            section.insert("texts".to_owned(), json!(texts));
            if !packages.is_empty() {
                section.insert("contents".to_owned(), json!(packages));
            }
        }
    }
    for kind in ["dask_cluster", "dask_job", "check"] {
        let sections = tree.get_mut(kind).and_then(Value::as_object_mut);
        for (key, section) in sections.into_iter().flatten() {
            let code = files.code(&section["files"], &FieldPath::keys([kind, key, "files"]));
            if let (Value::Object(section), false) = (section, code.is_empty()) {
                section.insert("contents".to_owned(), json!(code));
            }
        }
    }
    let kueue = FieldPath::keys([KUEUE]);
    if let Some(section) = tree.get_mut(KUEUE) {
        let objects =
            files.objects(&section["manifest"].clone(), &kueue.key("manifest"), &kueue.key("objects"));
        if let (Value::Object(section), Some(objects)) = (&mut *section, objects) {
            section.insert("objects".to_owned(), objects);
        }
    }
    let mut places = Vec::new();
    pods(shape(), tree, &FieldPath::root(), &mut places);
    for place in places {
        files.pod(tree, &place);
    }
    files
}

/// Sets the value at a path. Creates missing tables on the way, as the value may belong to a table that is not in the file, but
/// no list items.
pub(super) fn put(value: &mut Value, path: &[Segment], other: &Value) {
    match path {
        [] => *value = other.clone(),
        [Segment::Index(index), rest @ ..] => {
            if let Some(item) = value.get_mut(*index) {
                put(item, rest, other);
            }
        }
        [Segment::Key(key), rest @ ..] => {
            let Value::Object(table) = value else { return };
            let listed = rest.iter().any(|segment| matches!(segment, Segment::Index(_)));
            match table.get_mut(key) {
                Some(inner) => put(inner, rest, other),
                None if listed => {}
                None => {
                    let mut inner = if rest.is_empty() { Value::Null } else { Value::Object(Map::new()) };
                    put(&mut inner, rest, other);
                    table.insert(key.clone(), inner);
                }
            }
        }
    }
}

/// Collects the paths in the tree that name a file with a pod, by the schema of the stack.
fn pods(schema: &Value, value: &Value, path: &FieldPath, found: &mut Vec<FieldPath>) {
    let reference = schema.get("$ref").or_else(|| schema.pointer("/allOf/0/$ref")).and_then(Value::as_str);
    if reference.is_some_and(|name| name.ends_with("/Pod")) {
        if value.is_string() {
            found.push(path.clone());
        }
        return;
    }
    let schema = resolve(shape(), schema);
    match value {
        Value::Object(table) => {
            for (key, value) in table {
                let inner = schema["properties"].get(key).or_else(|| schema.get("additionalProperties"));
                if let Some(inner) = inner {
                    pods(inner, value, &path.key(key), found);
                }
            }
        }
        Value::Array(items) => {
            let Some(inner) = schema.get("items") else { return };
            items.iter().enumerate().for_each(|(place, item)| pods(inner, item, &path.index(place), found));
        }
        _ => {}
    }
}

/// The files that a stack names, while they are read into its tree.
pub(super) struct Files<'a> {
    pub(super) sources: &'a mut Sources,
    root: &'a Path,
    pub(super) fence: &'a Fence,
    /// The canonical paths that are not copied with a folder.
    left_out: Vec<PathBuf>,
    pub(super) found: Found,
}

impl Files<'_> {
    /// Returns the objects of one file or of several, in their order; `None` when none is named.
    pub(super) fn objects(&mut self, files: &Value, from: &FieldPath, to: &FieldPath) -> Option<Value> {
        let names: Vec<(FieldPath, String)> = match files {
            Value::String(name) => vec![(from.clone(), name.clone())],
            Value::Array(names) => {
                let names =
                    names.iter().enumerate().filter_map(|(place, name)| Some((place, name.as_str()?)));
                names.map(|(place, name)| (from.index(place), name.to_owned())).collect()
            }
            _ => return None,
        };
        let mut objects = Vec::new();
        let mut seen = BTreeSet::new();
        for (place, name) in names {
            if !seen.insert(name.clone()) {
                let problem =
                    Diagnostic::error(Code::SameObject, format!("the file `{name}` is named twice"));
                self.say(problem.at_value(place.clone(), "again here").help("remove one"));
                continue;
            }
            self.objects_of(&name, &place, to, &mut objects);
        }
        Some(Value::Array(objects))
    }

    /// Returns the contents of an environment's files, by their usual names.
    fn texts(&mut self, section: &Value, path: &FieldPath) -> BTreeMap<&'static str, String> {
        let mut texts = BTreeMap::new();
        for (key, usual) in FILES {
            let Some(name) = section[key].as_str() else { continue };
            let place = path.key(key);
            let mut read = |usual: &'static str, name: &str| {
                if let Some(file) = self.text(name, &place) {
                    texts.insert(usual, self.sources.text(file).to_owned());
                }
            };
            read(usual, name);
            if key == "pyproject" {
                read(LOCK, &Path::new(name).with_file_name(LOCK).display().to_string());
            }
        }
        texts
    }

    /// Returns the code of the local packages that an environment's file names, and of its project.
    fn local_packages(
        &mut self,
        section: &Value,
        texts: &mut BTreeMap<&'static str, String>,
        path: &FieldPath,
    ) -> LocalPackages {
        let mut packages = LocalPackages::default();
        let Some((key, name)) =
            ["requirements", "pyproject"].iter().find_map(|key| Some((*key, section[*key].as_str()?)))
        else {
            return packages;
        };
        let mut local: Vec<String> = Vec::new();
        if let Some(text) = texts.get_mut("requirements.txt") {
            local.extend(text.lines().filter_map(local_package).map(str::to_owned));
            if !local.is_empty() {
                *text = without_links(text);
            }
        }
        if let Some(text) = texts.get("pyproject.toml") {
            local.extend((section["project"] == true).then(|| ".".to_owned()));
            local.extend(path_sources(text));
        }
        local.sort();
        local.dedup();
        if local.is_empty() {
            return packages;
        }
        let place = path.key(key);
        let above = Path::new(name).parent().unwrap_or(Path::new("")).to_owned();
        let here = disk::real(&self.path(&self.sources.folder(&place), &above.display().to_string()));
        // So many folders above it are copied by their names, so that `..` leads to the same places.
        let up = local.iter().map(|path| levels_up(path)).max().unwrap_or_default();
        let parts: Vec<String> =
            here.components().filter_map(|part| Some(part.as_os_str().to_str()?.to_owned())).collect();
        packages.base = parts[parts.len().saturating_sub(up)..].join("/");
        for package in local {
            let to = Path::new(&packages.base).join(&package);
            let Some(to) = path_in_folder(&to.display().to_string()) else { continue };
            let name = above.join(&package).display().to_string();
            self.copy(&name, &to, &place, &mut packages.files);
        }
        packages
    }

    /// Returns the user's own code that a section names.
    fn code(&mut self, names: &Value, place: &FieldPath) -> SourceFiles {
        let mut code = SourceFiles::default();
        let names = names.as_array().into_iter().flatten().filter_map(Value::as_str);
        for (index, name) in names.enumerate() {
            let place = place.index(index);
            let Some(to) = path_in_folder(name) else {
                let what = format!("`{name}` is not a path relative to the stack file");
                let problem = Diagnostic::error(Code::UserFiles, what).at_value(place, "");
                self.say(problem.help("copy it into the repository of the stack, and name it relative to the folder of the stack file"));
                continue;
            };
            self.copy(name, &to, &place, &mut code);
        }
        code
    }

    /// Adds a file, or all files of a folder, to the code of a section.
    fn copy(&mut self, name: &str, to: &str, place: &FieldPath, code: &mut SourceFiles) {
        let folder = self.sources.folder(place);
        let path = self.path(&folder, name);
        let Copies { files, unread, .. } = self.fence.copies(&path, &self.left_out);
        let is_empty = files.is_empty() && unread.is_empty();
        for (at, why) in unread {
            let inside = at.strip_prefix(&path).unwrap_or(&at);
            let shown = Path::new(name).join(inside);
            let shown = shown.display().to_string();
            let shown = if inside.as_os_str().is_empty() { name } else { shown.as_str() };
            self.say(unread_code(&why, shown).at_value(place.clone(), "named here"));
        }
        if is_empty {
            let what = format!("`{name}` has no files to copy");
            let problem = Diagnostic::error(Code::UserFiles, what).at_value(place.clone(), "empty");
            self.say(problem.help("name a folder with your code, or remove it from `files`"));
        }
        for file in files {
            let path = match (to.is_empty(), file.path.is_empty()) {
                (true, _) => file.path,
                (false, true) => to.to_owned(),
                (false, false) => format!("{to}/{}", file.path),
            };
            if !code.add(path.clone(), SourceFile::new(file.executable, &file.bytes)) {
                let what = format!("two files would be copied to `{path}`, or one below the other");
                let problem = Diagnostic::error(Code::UserFiles, what).at_value(place.clone(), "the second");
                self.say(problem.help("rename one of them, or name one only"));
            }
        }
    }

    fn objects_of(&mut self, name: &str, place: &FieldPath, to: &FieldPath, objects: &mut Vec<Value>) {
        let said = self.found.diagnostics.len();
        let Some(file) = self.text(name, place) else { return };
        let text = self.sources.shared_text(file);
        let (before, mut documents) = (objects.len(), 0);
        let mut read = Documents::of(&text, file);
        for document in &mut read {
            documents += 1;
            match is_list(&document) {
                true => document.into_items().into_iter().for_each(|item| self.object(item, to, objects)),
                false => self.object(document, to, objects),
            }
        }
        // Errors of the YAML syntax come before errors of its content.
        self.found.diagnostics.splice(said..said, read.diagnostics());
        if objects.len() == before && documents == 0 && self.found.diagnostics.len() == said {
            let problem = Diagnostic::warning(Code::NotAnObject, format!("`{name}` contains no objects"));
            let problem = problem.at_value(place.clone(), "empty");
            self.found.diagnostics.push(problem.help("remove it from `file`, or add objects"));
        }
    }

    fn object(&mut self, node: Node, to: &FieldPath, objects: &mut Vec<Value>) {
        if !node.is_table() {
            let problem = Diagnostic::error(Code::NotAnObject, "this is not a Kubernetes object");
            let help = "an object is a table with `apiVersion`, `kind` and `metadata`";
            self.say(problem.at(Some(node.span()), "").help(help));
            return;
        }
        let path = to.index(objects.len());
        node.traps(&path, &mut self.found.traps, self.sources);
        let mut value = node.place(&path, None, self.sources);
        self.without_nulls(&mut value, &path, true);
        objects.push(value);
    }

    /// Adds an object that a chart rendered. Does not report null values and YAML's special words: templates often contain them,
    /// and the user did not write them.
    pub(super) fn rendered(&mut self, node: Node, to: &FieldPath, objects: &mut Vec<Value>) {
        if !node.is_table() {
            let problem =
                Diagnostic::error(Code::NotAnObject, "the chart's output here is not a Kubernetes object");
            let help = "an object is a table with `apiVersion`, `kind` and `metadata`; check the values that \
                 it comes from";
            self.say(problem.at(Some(node.span()), "").help(help));
            return;
        }
        let path = to.index(objects.len());
        let mut value = node.place(&path, None, self.sources);
        self.without_nulls(&mut value, &path, false);
        objects.push(value);
    }

    /// Returns the path of a file `name` relative to `folder`, as seen from the current folder.
    pub(super) fn path(&self, folder: &Path, name: &str) -> PathBuf {
        self.root.join(folder).join(name)
    }

    /// Removes null values, and reports them: the API server drops them, and usually they are mistakes.
    fn without_nulls(&mut self, value: &mut Value, path: &FieldPath, told: bool) {
        // Paths cost more than a look, and there is hardly ever one.
        if !has_null(value) {
            return;
        }
        match value {
            Value::Object(table) => {
                let empty: Vec<String> =
                    table.iter().filter(|(_, value)| value.is_null()).map(|(key, _)| key.clone()).collect();
                for key in empty {
                    table.remove(&key);
                    // `kubectl create --dry-run -o yaml` writes this one.
                    if told && key != "creationTimestamp" {
                        self.empty_field(&path.key(&key), &key);
                    }
                }
                table.iter_mut().for_each(|(key, value)| self.without_nulls(value, &path.key(key), told));
            }
            Value::Array(items) => {
                for (place, item) in items.iter_mut().enumerate() {
                    let path = path.index(place);
                    if item.is_null() {
                        let problem =
                            Diagnostic::error(Code::EmptyField, "this item of the list has no value");
                        let problem = problem.at_value(path.clone(), "");
                        self.say(problem.help("remove the item or give it a value"));
                    }
                    self.without_nulls(item, &path, told);
                }
            }
            _ => {}
        }
    }

    fn empty_field(&mut self, path: &FieldPath, key: &str) {
        let what = format!("`{key}` has no value: the API server drops it");
        let problem = Diagnostic::warning(Code::EmptyField, what).at_key(path.clone(), "no value");
        let help = match key {
            "emptyDir" | "podSelector" | "namespaceSelector" => {
                format!("an empty one is written `{key}: {{}}`")
            }
            _ => "remove the line; an empty list is `[]`, an empty table `{}`".to_owned(),
        };
        self.found.diagnostics.push(problem.help(help));
    }

    /// Reads a pod from its file. `null` in it removes a value of the section.
    fn pod(&mut self, tree: &mut Value, place: &FieldPath) {
        let Some(name) = place.find(tree).and_then(Value::as_str).map(str::to_owned) else { return };
        let mut value = json!({});
        if let Some(documents) = self.documents(&name, place) {
            match <[Node; 1]>::try_from(documents) {
                Ok([one]) if one.is_table() => {
                    one.traps(place, &mut self.found.traps, self.sources);
                    let key = self.sources.key_span(place);
                    value = one.place(place, key, self.sources);
                    nulls_delete(&mut value);
                }
                others => {
                    let what = format!("`{name}` is not a PodSpec");
                    let others = others.map_or_else(|several| several, Vec::from);
                    let span = others.get(1).or(others.first()).map(Node::span);
                    let problem = Diagnostic::error(Code::NotAnObject, what);
                    let problem = problem.at(span.or_else(|| self.sources.span(place)), "");
                    self.say(problem.help("it must be one document, a table such as `containers: […]`"));
                }
            }
        }
        if let Some(slot) = slot(tree, place) {
            *slot = value;
        }
    }

    /// Returns the documents of a file; `None` when it cannot be read at all.
    pub(super) fn documents(&mut self, name: &str, place: &FieldPath) -> Option<Vec<Node>> {
        let file = self.text(name, place)?;
        Some(self.documents_of(file))
    }

    /// Returns the documents of a text.
    pub(super) fn documents_of(&mut self, file: FileId) -> Vec<Node> {
        let text = self.sources.shared_text(file);
        let mut read = Documents::of(&text, file);
        let documents = read.by_ref().collect();
        self.found.diagnostics.extend(read.diagnostics());
        documents
    }

    fn text(&mut self, name: &str, place: &FieldPath) -> Option<FileId> {
        let problem = |what: String| Diagnostic::error(Code::FileNotRead, what);
        let span = self.sources.span(place);
        if name.contains("://") {
            let problem = problem(format!("`{name}` is a URL, not a file"));
            let help = "download it and name the file: what is applied must not change by itself";
            self.say(problem.at(span, "").help(help));
            return None;
        }
        let path = self.sources.folder(place).join(name);
        let path = path.strip_prefix(".").map(Path::to_owned).unwrap_or(path);
        let shown = if path.as_os_str().is_empty() { name.to_owned() } else { path.display().to_string() };
        let bytes = match self.fence.read(&self.root.join(&path)) {
            Ok(bytes) => bytes,
            Err(unread) => {
                let error = match unread {
                    Unread::Io(error) => error,
                    other => {
                        let told = other.told(&shown).map(|told| told.at(span, "named here"));
                        self.found.diagnostics.extend(told);
                        return None;
                    }
                };
                let (what, help) = match error.kind() {
                    ErrorKind::NotFound => (
                        format!("there is no file `{shown}`"),
                        "fix the name; it is relative to the stack file's folder",
                    ),
                    ErrorKind::IsADirectory => (
                        format!("`{shown}` is a folder"),
                        "name its files: `file = [\"a.yaml\", \"b.yaml\"]`",
                    ),
                    _ => (
                        format!("cannot read `{shown}`: {error}"),
                        "fix its permissions, or name another file",
                    ),
                };
                self.say(problem(what).at(span, "named here").help(help));
                return None;
            }
        };
        match String::from_utf8(bytes) {
            Ok(text) => Some(self.sources.add(shown, text)),
            Err(error) => {
                let good = error.utf8_error().valid_up_to();
                let file = self.sources.add(shown.clone(), String::from_utf8_lossy(error.as_bytes()));
                let byte = Span { file, start: good, end: good + char::REPLACEMENT_CHARACTER.len_utf8() };
                let problem = problem(format!("`{shown}` is not UTF-8 text")).at(Some(byte), "this byte");
                self.say(problem.help("save the file as UTF-8"));
                None
            }
        }
    }

    pub(super) fn say(&mut self, diagnostic: Diagnostic) {
        self.found.diagnostics.push(diagnostic);
    }
}

/// Returns the path that a named file or folder has in the folder of the code: as it is written, without what leads up. `None` for
/// an absolute path.
fn path_in_folder(name: &str) -> Option<String> {
    let mut parts: Vec<&str> = Vec::new();
    for part in Path::new(name).components() {
        match part {
            Component::Prefix(_) | Component::RootDir => return None,
            Component::CurDir => {}
            Component::ParentDir => drop(parts.pop()),
            Component::Normal(part) => parts.push(part.to_str()?),
        }
    }
    (!name.starts_with('~') && !name.contains("://")).then(|| parts.join("/"))
}

/// Returns how many folders a relative path leads up at most.
fn levels_up(path: &str) -> usize {
    let (mut depth, mut most) = (0_usize, 0);
    for part in Path::new(path).components() {
        match part {
            Component::ParentDir if depth == 0 => most += 1,
            Component::ParentDir => depth -= 1,
            Component::Normal(_) => depth += 1,
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    most
}

/// Returns the relative paths of local packages in a `pyproject.toml`. Source: `tool.uv.sources` in the reference of uv: a table, or
/// several of them with markers.
fn path_sources(text: &str) -> Vec<String> {
    let Ok(project) = ::toml::from_str::<Value>(text) else { return Vec::new() };
    let sources = project["tool"]["uv"]["sources"].as_object().into_iter().flatten();
    let tables = sources.flat_map(|(_, source)| match source {
        Value::Array(several) => several.iter().collect(),
        one => vec![one],
    });
    let paths = tables.filter_map(|table| table["path"].as_str());
    paths.filter(|path| Path::new(path).is_relative()).map(str::to_owned).collect()
}

/// Returns the error for a file that cannot be copied.
fn unread_code(why: &Unread, shown: &str) -> Diagnostic {
    let problem = |what: String, help: &str| Diagnostic::error(Code::UserFiles, what).help(help);
    let error = match why {
        Unread::Io(error) => error,
        Unread::Large => {
            let what = format!("with `{shown}` the files are larger than {} MiB", LARGEST / 1024 / 1024);
            return problem(
                what,
                "name the files that the code needs, and keep data elsewhere: `files` is for code",
            );
        }
        other => {
            return other.told(shown).map_or_else(
                || problem(format!("`{shown}` cannot be copied"), "name another file"),
                |told| match told.code {
                    Code::FileNotRead => Diagnostic { code: Code::UserFiles, ..told },
                    _ => told,
                },
            );
        }
    };
    match error.kind() {
        ErrorKind::NotFound => problem(
            format!("there is no file or folder `{shown}`"),
            "fix the name; it is relative to the stack file's folder",
        ),
        _ => problem(format!("cannot read `{shown}`: {error}"), "fix its permissions, or name another file"),
    }
}

/// Returns true if a document is a `List`, or a typed list such as `ConfigMapList`.
pub(super) fn is_list(document: &Node) -> bool {
    let is_list = document.text("kind").is_some_and(|kind| kind.ends_with("List"));
    is_list && document.get("items").is_some_and(Node::is_list)
}

fn has_null(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(table) => table.values().any(has_null),
        Value::Array(items) => items.iter().any(has_null),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn nulls_delete(value: &mut Value) {
    match value {
        Value::Null => *value = json!({ DIRECTIVE: "delete" }),
        Value::Object(table) => table.values_mut().for_each(nulls_delete),
        Value::Array(items) => items.iter_mut().filter(|item| !item.is_null()).for_each(nulls_delete),
        _ => {}
    }
}

pub(super) fn slot<'v>(tree: &'v mut Value, place: &FieldPath) -> Option<&'v mut Value> {
    use model::address::Segment;
    place.segments().iter().try_fold(tree, |value, segment| match segment {
        Segment::Key(key) => value.get_mut(key),
        Segment::Index(index) => value.get_mut(*index),
    })
}
