//! `extends`, `unset` and `enabled`: merges a file and the files that it extends into one tree. Every field keeps its position.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use serde_json::{Map, Value};

use super::disk::{Fence, Unread, is_folder, real};
use super::schema::{resolve, shape};
use super::tree::{self, Tree};
use model::address::{FieldPath, Segment};
use model::diag::{Code, Diagnostic, nearest};
use model::source::{FileId, Sources, Span};

/// A text, its path, and its name in messages.
pub(super) struct Text {
    pub(super) path: PathBuf,
    pub(super) name: String,
    pub(super) text: String,
}

/// The tree of all files together.
pub(super) struct Joined {
    /// The tree, partial where a text is broken.
    pub(super) value: Value,
    /// The file that the user named.
    pub(super) top: FileId,
    /// Problems with the texts and with merging them.
    pub(super) diagnostics: Vec<Diagnostic>,
    /// Lines (from 1) that break TOML's rules.
    pub(super) broken: BTreeSet<(FileId, usize)>,
    /// True if all files were read. Otherwise, a missing field may be in a file that was not read.
    pub(super) whole: bool,
    /// Removed sections and fields, each with the position of the removal.
    pub(super) taken: BTreeMap<FieldPath, Span>,
}

/// Reads a text and the texts that it extends, and merges them.
pub(super) fn read(sources: &mut Sources, top: Text, fence: &Fence) -> Joined {
    let mut chain = Chain { layers: Vec::new(), opened: Vec::new(), diagnostics: Vec::new(), whole: true };
    let mut next = Some(top);
    while let Some(text) = next {
        next = chain.add(sources, text, fence);
    }
    chain.join(sources)
}

/// Removes sections with `enabled = false` from the tree. Called before variables are resolved, so that a disabled section needs
/// no variables, and again afterwards, as `enabled` may come from a variable.
pub(super) fn disable(
    value: &mut Value,
    sources: &Sources,
    taken: &mut BTreeMap<FieldPath, Span>,
) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    let sections = section_paths(value);
    for section in sections.clone() {
        let switch = section.key("enabled");
        match switch.find(value) {
            Some(Value::Bool(true)) => {
                remove(value, &switch);
            }
            Some(Value::Bool(false)) => {
                let alone =
                    section.find(value).and_then(Value::as_object).is_some_and(|keys| keys.len() == 1);
                remove(value, &section);
                if alone {
                    found.push(takes_no_section(&sections, &section, &switch));
                }
                taken.extend(sources.span(&switch).map(|span| (section, span)));
            }
            _ => {}
        }
    }
    found
}

fn takes_no_section(sections: &[FieldPath], section: &FieldPath, switch: &FieldPath) -> Diagnostic {
    let message = format!("there is no section `[{section}]` to remove");
    let others = sections.iter().filter(|other| *other != section).map(ToString::to_string);
    let others: Vec<String> = others.collect();
    let diagnostic = Diagnostic::error(Code::NothingToTake, message)
        .at_value(switch.clone(), "only this line mentions it");
    match nearest(&section.to_string(), others.iter().map(String::as_str)) {
        Some(near) => diagnostic.help(format!("did you mean `[{near}]`?")),
        None => diagnostic.help("no extended file has it: remove these lines"),
    }
}

/// A file and its tree.
struct Layer {
    file: FileId,
    value: Value,
    places: BTreeMap<FieldPath, (Option<Span>, Span)>,
    broken: BTreeSet<usize>,
}

/// The named file and the files that it extends, in this order.
struct Chain {
    layers: Vec<Layer>,
    /// The opened files: the path, and the name that messages use.
    opened: Vec<(PathBuf, String)>,
    diagnostics: Vec<Diagnostic>,
    whole: bool,
}

impl Chain {
    /// Adds a text, and returns the text that it extends.
    fn add(&mut self, sources: &mut Sources, text: Text, fence: &Fence) -> Option<Text> {
        let Text { path, name, text } = text;
        self.opened.push((real(&path), name.clone()));
        let file = sources.add(name.clone(), text);
        let Tree { mut value, places, diagnostics, broken_lines } = tree::read(sources, file);
        self.diagnostics.extend(diagnostics);
        let places: BTreeMap<_, _> =
            places.into_iter().map(|(path, key, value)| (path, (key, value))).collect();
        let extends = FieldPath::keys(["extends"]);
        let below = extends.find(&value).and_then(Value::as_str).map(str::to_owned);
        let span = places.get(&extends).map(|(_, value)| *value);
        if below.is_some() {
            remove(&mut value, &extends);
        }
        self.layers.push(Layer { file, value, places, broken: broken_lines });
        self.open(sources, (&path, &name), &below?, span, fence)
    }

    /// Returns the text of the file `given`, a path relative to the folder of the file that names it.
    fn open(
        &mut self,
        sources: &mut Sources,
        (from, from_name): (&Path, &str),
        given: &str,
        span: Option<Span>,
        fence: &Fence,
    ) -> Option<Text> {
        let mut refuse = |diagnostic: Diagnostic| {
            self.whole = false;
            self.diagnostics.push(diagnostic);
            None
        };
        if given.contains("${") {
            let what = "`extends` is read before variables are";
            let diagnostic = Diagnostic::error(Code::BadReference, what).at(span, "");
            return refuse(diagnostic.help("write out the path"));
        }
        let folder = |path: &Path| path.parent().map(Path::to_owned).unwrap_or_default();
        let (mut path, mut shown) = (folder(from).join(given), folder(Path::new(from_name)).join(given));
        if is_folder(&path) {
            path.push("stack.toml");
            shown.push("stack.toml");
        }
        let name = plain(&shown).display().to_string();
        if let Some(at) = self.opened.iter().position(|(opened, _)| *opened == real(&path)) {
            let cycle: Vec<&str> = self.opened[at..].iter().map(|(_, name)| name.as_str()).collect();
            return match cycle.as_slice() {
                [one] => refuse(in_cycle(format!("`{one}` extends itself"), span)),
                files => {
                    let names = files.join(" -> ");
                    let what = format!("cycle of `extends`: {names} -> {}", files[0]);
                    refuse(in_cycle(what, span))
                }
            };
        }
        match fence.read(&path).map(String::from_utf8) {
            Ok(Ok(text)) => Some(Text { path, name, text }),
            Ok(Err(error)) => refuse(not_text(sources, &name, error.as_bytes())),
            Err(Unread::Io(error)) => refuse(no_base(&name, &error, span)),
            Err(unread) => refuse(unread.told(&name)?.at(span, "extended here")),
        }
    }

    /// Merges the files, starting with the base file.
    fn join(self, sources: &mut Sources) -> Joined {
        let Self { layers, opened: _, mut diagnostics, whole } = self;
        let mut value = Value::Object(Map::new());
        let (mut broken, mut taken) = (BTreeSet::new(), BTreeMap::new());
        let mut top = None;
        let lowest = layers.len().saturating_sub(1);
        for (depth, layer) in layers.into_iter().enumerate().rev() {
            let Layer { file, value: mut over, places, broken: lines } = layer;
            broken.extend(lines.into_iter().map(|line| (file, line)));
            for Unset { field, item } in unsets(&mut over) {
                let span = places.get(&item).map(|(_, value)| *value);
                if depth < lowest && !field.is_root() && remove(&mut value, &field) {
                    sources.forget(&field);
                    taken.extend(span.map(|span| (field, span)));
                } else if whole {
                    diagnostics.push(takes_nothing(&value, &field, span, depth == lowest));
                }
            }
            merge(sources, &mut value, over, &FieldPath::root());
            for (path, (key, value)) in places {
                sources.record(&path, key, value);
            }
            top = Some(file);
        }
        let idle = disable(&mut value, sources, &mut taken);
        diagnostics.extend(idle.into_iter().filter(|_| whole));
        let top = top.unwrap_or_else(|| sources.add("", ""));
        Joined { value, top, diagnostics, broken, whole, taken }
    }
}

/// Merges `over` into `below`: tables key by key, everything else is replaced.
fn merge(sources: &mut Sources, below: &mut Value, over: Value, path: &FieldPath) {
    match (below, over) {
        (Value::Object(below), Value::Object(over)) => {
            for (key, value) in over {
                let path = path.key(&key);
                match below.get_mut(&key) {
                    Some(below) => merge(sources, below, value, &path),
                    None => {
                        below.insert(key, value);
                    }
                }
            }
        }
        (below, over) => {
            sources.forget(path);
            *below = over;
        }
    }
}

/// A field that a file removes by `unset`, with the position of the entry.
struct Unset {
    field: FieldPath,
    item: FieldPath,
}

/// Removes the `unset` lists from a file's tree, and returns their entries. Lists of other types stay, so that the schema check
/// reports them.
fn unsets(over: &mut Value) -> Vec<Unset> {
    let mut found = Vec::new();
    for section in std::iter::once(FieldPath::root()).chain(section_paths(over)) {
        let list = section.key("unset");
        let Some(Value::Array(items)) = list.find(over) else { continue };
        let texts: Option<Vec<&str>> = items.iter().map(Value::as_str).collect();
        let Some(texts) = texts else { continue };
        for (index, text) in texts.iter().enumerate() {
            let inner: FieldPath = text.trim().parse().unwrap_or_default();
            let field = if inner.is_root() {
                FieldPath::root()
            } else {
                section.segments().iter().chain(inner.segments()).cloned().collect()
            };
            found.push(Unset { field, item: list.index(index) });
        }
        remove(over, &list);
    }
    found
}

fn takes_nothing(value: &Value, field: &FieldPath, span: Option<Span>, lowest: bool) -> Diagnostic {
    if lowest {
        let what = "`unset` removes what an extended file sets, and this file extends none";
        let diagnostic = Diagnostic::error(Code::NothingToTake, what).at(span, "");
        return diagnostic
            .help("remove the lines from this file instead, or name the extended file: `extends = \"…\"`");
    }
    let what = format!("no extended file sets `{field}`");
    let diagnostic = Diagnostic::error(Code::NothingToTake, what).at(span, "removes nothing");
    if field.segments().iter().any(|segment| matches!(segment, Segment::Index(_))) {
        return diagnostic.help("list entries cannot be removed: rewrite the list");
    }
    let (parent, last) = (field.parent().unwrap_or_default(), field.segments().last());
    let siblings = parent.find(value).and_then(Value::as_object);
    let keys = siblings.into_iter().flat_map(Map::keys).map(String::as_str);
    let near = match last {
        Some(Segment::Key(last)) => nearest(last, keys),
        Some(Segment::Index(_)) | None => None,
    };
    match near {
        Some(near) => diagnostic.help(format!("did you mean `{}`?", parent.key(near))),
        None => diagnostic.help(
            "paths start in the section that contains `unset`; quote keys with dots: `unset = \
             ['labels.\"example.com/x\"']`",
        ),
    }
}

fn in_cycle(what: String, span: Option<Span>) -> Diagnostic {
    let diagnostic = Diagnostic::error(Code::ExtendsCircle, what).at(span, "closes the cycle");
    diagnostic.help("remove one `extends` from the cycle")
}

fn no_base(name: &str, error: &std::io::Error, span: Option<Span>) -> Diagnostic {
    let what = match error.kind() {
        ErrorKind::NotFound => format!("there is no file `{name}`"),
        _ => format!("cannot read `{name}`: {error}"),
    };
    let diagnostic = Diagnostic::error(Code::NoBase, what).at(span, "extended here");
    diagnostic.help("the path is relative to the folder of the file with `extends`")
}

/// Returns the diagnostic for a file that is not text. The text is in `sources` afterwards.
pub(super) fn not_text(sources: &mut Sources, name: &str, bytes: &[u8]) -> Diagnostic {
    let good = std::str::from_utf8(bytes).map_or_else(|error| error.valid_up_to(), str::len);
    let file = sources.add(name, String::from_utf8_lossy(bytes).into_owned());
    let end = good + char::REPLACEMENT_CHARACTER.len_utf8();
    Diagnostic::error(Code::NotText, format!("`{name}` is not UTF-8 text"))
        .at(Some(Span { file, start: good, end }), "this byte")
        .help("save the file as UTF-8")
}

/// Returns a path without `..` for messages: `b` for `a/../b`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        let inside = matches!(plain.components().next_back(), Some(Component::Normal(_)));
        match part {
            Component::ParentDir if inside => {
                plain.pop();
            }
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

/// Returns the sections that a tree has: `cluster`, `node_pool.a`, outer ones first.
pub(super) fn section_paths(tree: &Value) -> Vec<FieldPath> {
    let mut found = Vec::new();
    collect(shape(), tree, &FieldPath::root(), &mut found);
    found
}

fn collect(schema: &Value, value: &Value, path: &FieldPath, found: &mut Vec<FieldPath>) {
    let properties = resolve(shape(), schema).get("properties").and_then(Value::as_object);
    let (Some(properties), Some(table)) = (properties, value.as_object()) else { return };
    for (key, value) in table {
        let Some(schema) = properties.get(key).map(|schema| resolve(shape(), schema)) else { continue };
        let path = path.key(key);
        if let Some(members) = super::schema::members(shape(), schema) {
            for (key, value) in value.as_object().into_iter().flatten() {
                let path = path.key(key);
                found.push(path.clone());
                collect(members, value, &path, found);
            }
        } else if path.segments().len() == 1 && super::schema::is_section(key, schema) {
            found.push(path.clone());
            collect(schema, value, &path, found);
        }
    }
}

/// Removes a field from a tree, and returns true if it existed.
fn remove(value: &mut Value, path: &FieldPath) -> bool {
    let Some((Segment::Key(last), parents)) = path.segments().split_last() else { return false };
    let parent = parents.iter().try_fold(value, |value, segment| match segment {
        Segment::Key(key) => value.get_mut(key),
        Segment::Index(_) => None,
    });
    parent.and_then(Value::as_object_mut).is_some_and(|table| table.remove(last).is_some())
}
