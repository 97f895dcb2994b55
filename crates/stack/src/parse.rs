//! Parses texts to a [`Stack`]: TOML, extended files, references, schema and rules. Reports all errors in one run, in the order
//! of the texts.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use serde::Deserialize as _;
use serde_json::Value;

use super::charts::{self, Helm};
use super::check::{self, Mistake};
use super::disk::{self, Fence, Trust, Unread};
use super::files::{self, put};
use super::lower::lower;
use super::overlay::{self, Joined, Text};
use super::{Stack, references, rules, shares, variables};
use model::address::{Address, FieldPath, Segment};
use model::diag::{self, Code, Diagnostic, Severity};
use model::resource::Lowered;
use model::secrets;
use model::source::{FileId, Sources, Span};

/// Inputs of a stack file from outside.
pub struct Options<'a> {
    /// The environment variables. It is a function, so that tests need not change the environment of the process.
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// Values of `--var NAME=VALUE`.
    pub vars: &'a BTreeMap<String, String>,
    /// Renders charts; without it, charts are not rendered.
    pub helm: Option<&'a Helm<'a>>,
}

/// A valid stack.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub stack: Stack,
    /// The positions of its fields.
    pub sources: Sources,
    /// Warnings, in order.
    pub warnings: Vec<Diagnostic>,
    /// The lowered stack for the sandbox, if a rule computed it.
    lowered: Option<Lowered>,
}

impl Loaded {
    /// Returns the lowered stack. `simulated` is true if the sandbox answers.
    pub fn lowered(&mut self, simulated: bool) -> Lowered {
        let mut lowered = self.lowered.take().unwrap_or_else(|| lower(&self.stack, simulated));
        lowered.target.simulated = simulated;
        lowered
    }
}

/// The errors of a file that is not a valid stack.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Its texts, to show positions.
    pub sources: Sources,
    /// Diagnostics, in order: at least one error, and warnings.
    pub diagnostics: Vec<Diagnostic>,
}

/// Loads a stack from a file, or from `stack.toml` in a folder.
///
/// # Errors
/// All errors in the file, with their positions.
pub fn load(path: &Path, options: &Options<'_>) -> Result<Loaded, Failure> {
    load_with(path, options, &[], Trust::Repository)
}

/// Loads a stack as [`load`] does, with some values of the tree replaced.
///
/// # Errors
/// All errors in the file and in those values, with their positions.
pub fn load_with(
    path: &Path,
    options: &Options<'_>,
    instead: &[(FieldPath, Value)],
    trust: Trust,
) -> Result<Loaded, Failure> {
    let file = file_of(path);
    let name = file.display().to_string();
    let fail = |sources, diagnostic| Failure { sources, diagnostics: vec![diagnostic] };
    let bytes = disk::whole(path, &file, trust).map_err(|why| {
        let problem = match &why {
            Unread::Io(error) => Some(unreadable(&name, error)),
            why => why.told(&name),
        };
        fail(Sources::default(), problem.unwrap_or_else(|| unreadable(&name, &ErrorKind::Other.into())))
    })?;
    match String::from_utf8(bytes) {
        Ok(text) => parse(Text { path: file, name, text }, options, instead, trust),
        Err(error) => {
            let mut sources = Sources::default();
            let diagnostic = overlay::not_text(&mut sources, &name, error.as_bytes());
            Err(fail(sources, diagnostic))
        }
    }
}

/// Returns the addresses of the sections in a file and in those it extends, as far as they can be read. It is for shell
/// completion, so it reports no errors, and renders and runs nothing.
pub fn sections(path: &Path) -> Vec<Address> {
    let file = file_of(path);
    let text = disk::whole(path, &file, Trust::Repository).map(String::from_utf8);
    let Ok(Ok(text)) = text else { return Vec::new() };
    let fence = Fence::around(file.parent().unwrap_or(Path::new("")), Trust::Repository);
    let text = Text { name: file.display().to_string(), path: file, text };
    let joined = overlay::read(&mut Sources::default(), text, &fence);
    let paths = overlay::section_paths(&joined.value);
    paths.iter().filter_map(address_of).collect()
}

/// Sections that are settings and have no resources.
const SETTINGS: [&str; 9] =
    ["allow", "budget", "gke", "kubernetes", "local", "slurm", "ssh", "stack", "vars"];

/// Returns the address of a section's path: `node_pool.a`. `None` for a path inside a section.
fn address_of(path: &FieldPath) -> Option<Address> {
    match path.segments() {
        [Segment::Key(section), ..] if SETTINGS.contains(&section.as_str()) => None,
        [Segment::Key(section)] => Some(Address::new(section)),
        [Segment::Key(section), Segment::Key(name)] => Some(Address::of(section, name)),
        _ => None,
    }
}

/// Returns the file of a stack that is given as a file or as its folder.
fn file_of(path: &Path) -> PathBuf {
    let file = if disk::is_folder(path) { path.join("stack.toml") } else { path.to_owned() };
    file.strip_prefix(".").map(Path::to_owned).unwrap_or(file)
}

/// Parses a stack from its text. `name` is its name in messages, and the path to which files in it are relative.
///
/// # Errors
/// All errors in the text, with their positions.
pub fn parse_text(name: &str, text: &str, options: &Options<'_>) -> Result<Loaded, Failure> {
    parse_in(Path::new(""), name, text, options)
}

/// Parses the text of a file in `folder`, which messages do not show.
///
/// # Errors
/// All errors in the text, with their positions.
pub fn parse_in(folder: &Path, name: &str, text: &str, options: &Options<'_>) -> Result<Loaded, Failure> {
    let text = Text { path: folder.join(name), name: name.to_owned(), text: text.to_owned() };
    parse(text, options, &[], Trust::Repository)
}

fn parse(
    text: Text,
    options: &Options<'_>,
    instead: &[(FieldPath, Value)],
    trust: Trust,
) -> Result<Loaded, Failure> {
    let fence = Fence::around(text.path.parent().unwrap_or(Path::new("")), trust);
    // The folder that all file names are relative to.
    let depth = Path::new(&text.name).components().count();
    let root = text.path.ancestors().nth(depth).map(Path::to_owned).unwrap_or_default();
    let mut sources = Sources::default();
    let Joined { mut value, top, mut diagnostics, broken, whole, mut taken } =
        overlay::read(&mut sources, text, &fence);
    let resolved = variables::resolve(&mut value, &sources, options);
    sources.secrets_mut().extend(&resolved.secrets);
    learn(&value, &mut sources);
    diagnostics.extend(resolved.diagnostics);
    diagnostics.extend(overlay::disable(&mut value, &sources, &mut taken));
    instead.iter().for_each(|(path, other)| put(&mut value, path.segments(), other));
    let mistakes = check::check(&value);
    let shaped = diagnostics.is_empty() && mistakes.is_empty();
    let mut doubtful = resolved.doubtful;
    doubtful.extend(mistakes.iter().map(|mistake| mistake.path.clone()));
    doubtful.extend(mistakes.iter().filter_map(|mistake| mistake.meant.clone()));
    let news = mistakes.iter().filter_map(|mistake| mistake.diagnostic.as_ref()).filter(|diagnostic| {
        !repeated(diagnostic, &sources, &diagnostics)
            && trusted(diagnostic, &sources, &broken)
            && (whole || diagnostic.code != Code::MissingKey)
    });
    let news: Vec<Diagnostic> = news.cloned().collect();
    diagnostics.extend(news);
    doubtful.extend(take_out(&mut value, &mistakes));
    nulls(&value, &FieldPath::root(), &mut doubtful);
    remove_nulls(&mut value);
    let mut files = files::read(&mut value, &mut sources, (&root, &fence), disk::state_folder(options.env));
    charts::read(&mut value, &mut files, options.helm, instead);
    let found = files.found;
    diagnostics.extend(found.diagnostics);
    // Files that the stack names are inserted only now, so their values are learned again.
    instead.iter().for_each(|(path, other)| put(&mut value, path.segments(), other));
    learn(&value, &mut sources);
    check::fill(&mut value);
    let words = references::unread(&value, &sources);
    let mut read = Stack::deserialize(&value);
    let is_sound = whole && broken.is_empty() && doubtful.is_empty();
    let shared = read.as_ref().map(|stack| shares::of(stack, is_sound)).unwrap_or_default();
    if shared.iter().any(|amount| amount.share.is_ok()) {
        shares::put_in(&mut value, &shared);
        read = Stack::deserialize(&value);
    }
    diagnostics.extend(read.as_ref().err().filter(|_| shaped).map(|error| not_read(error, top)));
    let stack = read.ok();
    let mut lowered = None;
    if let Some(stack) = stack.as_ref().filter(|_| whole && broken.is_empty()) {
        let doubt = rules::Doubt { sections: doubtful.iter().map(section).collect(), fields: doubtful };
        let (found, known) = rules::check(stack, &sources, doubt, &taken, &resolved.secrets, &words);
        diagnostics.extend(found);
        lowered = known;
        let has_error = diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error);
        diagnostics.extend(rules::shares::findings(stack, &shared, has_error));
    }
    diagnostics.extend(harmless(found.traps, &diagnostics, &sources));
    diag::sort(&mut diagnostics, &sources);
    let failed = diagnostics.iter().any(|diagnostic| diagnostic.severity == Severity::Error);
    match stack {
        Some(stack) if !failed => Ok(Loaded { stack, sources, warnings: diagnostics, lowered }),
        _ => Err(Failure { sources, diagnostics }),
    }
}

/// Removes wrong values from the tree. If a removed key is required, its table is removed as well. Returns these tables.
fn take_out(value: &mut Value, mistakes: &[Mistake]) -> Vec<FieldPath> {
    mistakes.iter().for_each(|mistake| prune(value, &mistake.path));
    let mut tables = Vec::new();
    while !mistakes.is_empty() {
        let before = value.clone();
        let left = check::check(value);
        left.iter().for_each(|mistake| prune(value, &mistake.path));
        if *value == before {
            break;
        }
        tables.extend(left.into_iter().map(|mistake| mistake.path));
    }
    tables
}

/// Adds values under names of secrets to the secrets that no message shows. Skips the reasons in `[allow]`, whose keys are the
/// names of what they allow.
fn learn(value: &Value, sources: &mut Sources) {
    let sections = value.as_object().into_iter().flatten().filter(|(key, _)| *key != "allow");
    for found in sections.flat_map(|(_, section)| secrets::found_in(section)) {
        sources.secrets_mut().add(&found, secrets::HIDDEN);
    }
}

/// Returns warnings about values that are read as something other than they look like, unless there is another diagnostic at the
/// same position.
fn harmless(traps: Vec<(FieldPath, Diagnostic)>, said: &[Diagnostic], sources: &Sources) -> Vec<Diagnostic> {
    let spans: BTreeSet<Option<Span>> = said.iter().map(|diagnostic| diagnostic.span(sources)).collect();
    traps.into_iter().map(|(_, trap)| trap).filter(|trap| !spans.contains(&trap.span(sources))).collect()
}

/// Returns false for schema errors that follow from a broken line: values there are guesses of the parser, and missing keys may
/// be in that line.
fn trusted(diagnostic: &Diagnostic, sources: &Sources, broken: &BTreeSet<(FileId, usize)>) -> bool {
    let line = diagnostic.span(sources).map(|span| (span.file, sources.location(span).line));
    broken.is_empty()
        || (diagnostic.code != Code::MissingKey && line.is_none_or(|line| !broken.contains(&line)))
}

/// Returns true for a schema error at a key that is set twice: the duplicate is reported already.
fn repeated(diagnostic: &Diagnostic, sources: &Sources, said: &[Diagnostic]) -> bool {
    let line = |span: Span| (span.file, sources.location(span).line);
    let Some(place) = diagnostic.span(sources).map(line) else { return false };
    let twice = said.iter().filter(|said| said.code == Code::DuplicateKey);
    let mut lines =
        twice.flat_map(|said| &said.labels).filter_map(|label| label.place.span(sources)).map(line);
    lines.any(|other| other == place)
}

/// Returns the section of a field: `node_pool.a`, `cluster`.
fn section(path: &FieldPath) -> FieldPath {
    let keyed = |top: &str| top == "vars" || super::sections::is_keyed(top);
    let depth = match path.segments().first() {
        Some(Segment::Key(top)) if keyed(top) => 2,
        _ => 1,
    };
    path.segments().iter().take(depth).cloned().collect()
}

/// Removes a wrong field from the tree, so that the rules can check the rest.
fn prune(value: &mut Value, path: &FieldPath) {
    let Some((last, parents)) = path.segments().split_last() else { return };
    let parent = parents.iter().try_fold(value, |value, segment| match segment {
        Segment::Key(key) => value.get_mut(key),
        Segment::Index(index) => value.get_mut(*index),
    });
    match (parent, last) {
        (Some(Value::Object(table)), Segment::Key(key)) => {
            table.remove(key);
        }
        (Some(Value::Array(items)), Segment::Index(index)) => {
            if let Some(item) = items.get_mut(*index) {
                *item = Value::Null;
            }
        }
        _ => {}
    }
}

/// Collects the paths of values that could not be parsed, so that a rule does not assume their default.
fn nulls(value: &Value, path: &FieldPath, found: &mut Vec<FieldPath>) {
    match value {
        Value::Null => found.push(path.clone()),
        Value::Object(table) => table.iter().for_each(|(key, value)| nulls(value, &path.key(key), found)),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, value)| nulls(value, &path.index(index), found));
        }
        _ => {}
    }
}

fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(table) => {
            table.retain(|_, value| !value.is_null());
            table.values_mut().for_each(remove_nulls);
        }
        Value::Array(items) => {
            items.retain(|item| !item.is_null());
            items.iter_mut().for_each(remove_nulls);
        }
        _ => {}
    }
}

fn unreadable(name: &str, error: &io::Error) -> Diagnostic {
    match error.kind() {
        ErrorKind::NotFound => {
            Diagnostic::error(Code::StackNotFound, format!("there is no stack file `{name}`")).help(
                "give the file or its folder with `--stack PATH`, or start with a ready stack: `dask-infra \
                 init` lists them",
            )
        }
        _ => Diagnostic::error(Code::StackNotReadable, format!("cannot read `{name}`: {error}"))
            .help("fix its permissions, or give another file or folder with `--stack PATH`"),
    }
}

fn not_read(error: &serde_json::Error, file: FileId) -> Diagnostic {
    Diagnostic::error(Code::NotRead, format!("the checked stack could not be parsed: {error}"))
        .at(Some(Span { file, start: 0, end: 0 }), "")
        .help("this is a bug in dask-infra; please report it with the file")
}
