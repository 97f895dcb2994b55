//! Parses TOML text to a tree of values with their positions. A value that cannot be parsed becomes `Null`, which TOML does not
//! have: its error is reported here, and later checks skip it.

use std::collections::{BTreeSet, HashSet};
use std::ops::Range;

use serde_json::{Map, Number, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use model::address::FieldPath;
use model::diag::{Code, Diagnostic};
use model::source::{FileId, Sources, Span};

/// The result of reading a text.
pub(super) struct Tree {
    /// The tree, partial where the text is broken.
    pub(super) value: Value,
    /// The positions of its fields: their key (for tables, in the header) and their value.
    pub(super) places: Vec<(FieldPath, Option<Span>, Span)>,
    /// Problems with the text.
    pub(super) diagnostics: Vec<Diagnostic>,
    /// Lines (from 1) that are not valid TOML. Values in them are guesses.
    pub(super) broken_lines: BTreeSet<usize>,
}

/// Reads a text of `sources`.
pub(super) fn read(sources: &Sources, file: FileId) -> Tree {
    let text = sources.text(file).to_owned();
    let (readable, errors) = errors_of(&text);
    let mut reader = Reader { sources, file, places: Vec::new(), diagnostics: Vec::new() };
    let (table, _) = DeTable::parse_recoverable(&readable);
    let top = reader.span(0..0);
    reader.places.push((FieldPath::root(), None, top));
    let value = reader.table(table.get_ref(), &FieldPath::root());
    let mut broken_lines = BTreeSet::new();
    let values = std::mem::take(&mut reader.diagnostics);
    let mut header = None;
    let mut unclosed: Option<usize> = None;
    for (message, range) in once_a_line(&text, closed(&text, errors, table.get_ref())) {
        let span = reader.span(range.clone());
        let line = reader.sources.location(span).line;
        if message != DUPLICATE {
            broken_lines.insert(line);
            if is_unclosed(&message) {
                unclosed = Some(unclosed.map_or(line, |first| first.min(line)));
            }
            reader.diagnostics.push(syntax(
                &message,
                span,
                text.get(line_around(&text, range.start)).unwrap_or(""),
            ));
        } else if header_of(&text, range.start) != header {
            // A second header was reported itself; its keys are not reported again.
            if text[line_around(&text, range.start)].trim_start().starts_with('[') {
                header = header_of(&text, range.start);
            }
            reader.duplicate(&text, range, span);
        }
    }
    if let Some(first) = unclosed {
        broken_lines.extend(first..=text.lines().count());
    }
    let trusted = |found: &Diagnostic| {
        found.location(reader.sources).is_none_or(|location| !broken_lines.contains(&location.line))
    };
    let values: Vec<Diagnostic> = values.into_iter().filter(trusted).collect();
    reader.diagnostics.extend(values);
    Tree { value, places: reader.places, diagnostics: reader.diagnostics, broken_lines }
}

const DUPLICATE: &str = "duplicate key";

/// Returns true for the error of a list or inline table that is not closed. An unclosed header only affects its own line.
fn is_unclosed(message: &str) -> bool {
    ["unclosed array", "unclosed inline table"].iter().any(|start| message.starts_with(start))
}

const LONE_RETURN: &str = "carriage return must be followed by newline";

/// Keeps only the first error of each line, because further ones follow from it. With lone carriage returns the whole file is one
/// line, so they are reported once.
fn once_a_line(text: &str, errors: Vec<(String, Range<usize>)>) -> Vec<(String, Range<usize>)> {
    let mut lines = BTreeSet::new();
    let mut first = |(message, range): &(String, Range<usize>)| {
        message == DUPLICATE || lines.insert(line_around(text, range.start.min(text.len())).start)
    };
    errors.into_iter().filter(|error| first(error)).collect()
}

/// Returns the position of the first unclosed bracket outside strings and comments.
fn bracket_left(text: &str) -> Option<usize> {
    let mut open = Vec::new();
    let (mut quote, mut comment, mut escaped) = (None, false, false);
    for (at, c) in text.char_indices() {
        match (c, quote) {
            ('\n', _) => (quote, comment, escaped) = (None, false, false),
            _ if comment => {}
            ('\\', Some('"')) if !escaped => escaped = true,
            (c, Some(end)) if c == end && !escaped => quote = None,
            (_, Some(_)) => escaped = false,
            ('#', None) => comment = true,
            ('"' | '\'', None) => quote = Some(c),
            ('[' | '{', None) => open.push(at),
            (']' | '}', None) => drop(open.pop()),
            (_, None) => {}
        }
    }
    open.first().copied()
}

/// Returns the position of the last header at or before a position.
fn header_of(text: &str, at: usize) -> Option<usize> {
    let Range { mut start, end } = line_around(text, at);
    let mut line = &text[start..end];
    while !line.trim_start().starts_with('[') {
        let before = line_around(text, start.checked_sub(1)?);
        (start, line) = (before.start, &text[before]);
    }
    Some(start)
}

/// Replaces the errors after an unclosed list or table, which the parser reports for each following line, by a single error at
/// its beginning.
fn closed(
    text: &str,
    errors: Vec<(String, Range<usize>)>,
    table: &DeTable<'_>,
) -> Vec<(String, Range<usize>)> {
    let open = errors.iter().find(|(message, _)| is_unclosed(message));
    let Some((message, end)) = open else { return errors };
    let Some(start) = bracket_left(text).or_else(|| open_at(table, end.start)) else { return errors };
    let first = (message.clone(), start..start + 1);
    let mut rest = errors.clone();
    rest.retain(|(_, range)| range.start < start);
    rest.push(first);
    rest
}

/// Returns the beginning of the first list or inline table that ends at `end`.
fn open_at(table: &DeTable<'_>, end: usize) -> Option<usize> {
    table.iter().find_map(|(_, value)| match value.get_ref() {
        DeValue::Array(_) if value.span().end >= end => Some(value.span().start),
        DeValue::Table(inner) => {
            let inside = open_at(inner, end);
            inside.or_else(|| (value.span().end >= end).then(|| value.span().start))
        }
        _ => None,
    })
}

/// Returns the text without the lines at which the parser gives up, and every error. It recovers from most errors, but stops at a
/// key without `=`. Without that line the rest of the file can be parsed, too.
fn errors_of(text: &str) -> (String, Vec<(String, Range<usize>)>) {
    let mut text = text.to_owned();
    let (mut errors, mut seen) = (Vec::new(), HashSet::new());
    for _ in 0..100 {
        let (_, found) = DeTable::parse_recoverable(&text);
        let mut stop = None;
        for error in found {
            let range = error.span().unwrap_or(0..0);
            if error.message().starts_with("key with no value") {
                stop = Some(range.start);
            }
            let error = (error.message().to_owned(), range);
            if seen.insert(error.clone()) {
                errors.push(error);
            }
        }
        let Some(stop) = stop else { break };
        let Range { start, end } = line_around(&text, stop);
        text.replace_range(start..end, &" ".repeat(end - start));
    }
    (text, errors)
}

fn line_around(text: &str, at: usize) -> Range<usize> {
    let start = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
    let end = text[at..].find('\n').map_or(text.len(), |newline| at + newline);
    start..end
}

const UNQUOTED: &str = "string values must be quoted";

/// Returns the diagnostic for a syntax error; `line` is the text of its line.
fn syntax(message: &str, span: Span, line: &str) -> Diagnostic {
    let (what, expected) = match message.split_once(", expected ") {
        // Any word that begins with `n` or `i` is read as one of TOML's `nan` and `inf`.
        Some(("invalid float", "`nan`" | "`inf`")) => (UNQUOTED, "literal string"),
        split => split.unwrap_or((message, "")),
    };
    let expected = expected.replace("literal string", "text in quotes");
    let diagnostic = Diagnostic::error(Code::Syntax, what);
    let diagnostic = if expected.is_empty() || expected == "nothing" {
        diagnostic.at(Some(span), "here")
    } else {
        diagnostic.at(Some(span), format!("expected {expected}"))
    };
    if let Some(odd) = line.chars().find(|c| is_unseen(*c)) {
        return diagnostic.help(format!(
            "the line has the character U+{:04X}, which looks like a space or is invisible: retype the line",
            u32::from(odd)
        ));
    }
    if let Some((key, _)) = line.split_once(':').filter(|(key, _)| is_bare(key.trim())) {
        return diagnostic.help(format!("TOML writes `{} = …`", key.trim()));
    }
    if line.contains(['“', '”', '‘', '’', '„']) {
        return diagnostic.help("these are typographic quotes: TOML's are `\"` and `'`");
    }
    if line.trim_start().starts_with('{') {
        return diagnostic.help("a stack is TOML: `[section]`, and below it `key = value`");
    }
    match what {
        "unclosed array" | "unclosed inline table" => diagnostic.help("what follows is read as part of it"),
        UNQUOTED => diagnostic.help("quote text: `key = \"text\"`"),
        "key with no value" => diagnostic.help("write `key = value`"),
        "unclosed table" => diagnostic.help("headers end with a bracket: `[section]`"),
        "unexpected leading zero" => diagnostic.help("numbers do not begin with 0"),
        "unexpected key or value" => {
            diagnostic.help("put each key on a line of its own; comments start with `#`")
        }
        "invalid unquoted key" => {
            diagnostic.help("keys are letters, digits, `_` and `-`; quote all others: `\"a.b/c\" = …`")
        }
        "invalid basic string" => diagnostic.help(
            "text must end with `\"` on the same line; `\\` starts an escape, and control characters are not \
             allowed",
        ),
        LONE_RETURN => diagnostic.help("save the file with LF or CR LF line endings"),
        _ if what.starts_with("cannot extend value") => {
            diagnostic.help("the key already has a value: remove one of the two")
        }
        _ => diagnostic,
    }
}

fn is_bare(key: &str) -> bool {
    !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
}

/// Returns true for invisible characters, which editors and web pages leave behind.
fn is_unseen(c: char) -> bool {
    let named =
        matches!(c, '\u{a0}' | '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202f}' | '\u{2060}');
    named || (c.is_control() && !matches!(c, '\t' | '\n' | '\r'))
}

struct Reader<'s> {
    sources: &'s Sources,
    file: FileId,
    places: Vec<(FieldPath, Option<Span>, Span)>,
    diagnostics: Vec<Diagnostic>,
}

impl Reader<'_> {
    fn span(&self, Range { start, end }: Range<usize>) -> Span {
        Span { file: self.file, start, end }
    }

    fn table(&mut self, table: &DeTable<'_>, path: &FieldPath) -> Value {
        let mut object = Map::new();
        for (key, value) in table {
            let path = path.key(key.get_ref());
            let (key_span, value_span) = (self.span(key.span()), self.span(value.span()));
            self.places.push((path.clone(), Some(key_span), value_span));
            let value = self.value(value, &path);
            object.insert(key.get_ref().to_string(), value);
        }
        Value::Object(object)
    }

    fn value(&mut self, value: &Spanned<DeValue<'_>>, path: &FieldPath) -> Value {
        let span = self.span(value.span());
        match value.get_ref() {
            DeValue::String(text) => Value::String(text.to_string()),
            DeValue::Boolean(flag) => Value::Bool(*flag),
            DeValue::Integer(integer) => {
                let parsed = i64::from_str_radix(integer.as_str(), integer.radix());
                parsed.map_or_else(
                    |_| self.broken(Code::OutOfRange, "this number is too large", span),
                    Value::from,
                )
            }
            DeValue::Float(float) => {
                let number = float.as_str().parse().ok().and_then(Number::from_f64);
                number.map_or_else(
                    || self.broken(Code::OutOfRange, "numbers must be finite", span),
                    Value::Number,
                )
            }
            DeValue::Datetime(_) => {
                self.broken(Code::WrongType, "no key takes a date; quote it if it is text", span)
            }
            DeValue::Array(items) => {
                let items = items.iter().enumerate().map(|(index, item)| {
                    let path = path.index(index);
                    let item_span = self.span(item.span());
                    self.places.push((path.clone(), None, item_span));
                    self.value(item, &path)
                });
                Value::Array(items.collect())
            }
            DeValue::Table(table) => self.table(table, path),
        }
    }

    /// Reports an error, unless the parser has already reported one for the line. Returns `Null`.
    fn broken(&mut self, code: Code, message: &str, span: Span) -> Value {
        if !self.sources.slice(span).is_empty() {
            self.diagnostics.push(Diagnostic::error(code, message).at(Some(span), ""));
        }
        Value::Null
    }

    fn duplicate(&mut self, text: &str, range: Range<usize>, span: Span) {
        let name = self.sources.slice(span).to_owned();
        let earlier = earlier_place(text, range).map(|range| self.span(range));
        let diagnostic = Diagnostic::error(Code::DuplicateKey, format!("`{name}` is given twice"))
            .at(Some(span), "again here")
            .at(earlier, "first here")
            .help("keep one of the two");
        self.diagnostics.push(diagnostic);
    }
}

/// Returns the range where a duplicate key was first set, which the parser does not report. The key's path is computed from its
/// own line and the last header, and searched in the text before.
fn earlier_place(text: &str, range: Range<usize>) -> Option<Range<usize>> {
    let Range { start, end } = line_around(text, range.start);
    let (before, line) = (&text[..start], &text[start..end]);
    let is_header = |line: &str| line.trim_start().starts_with('[');
    let header = before.lines().rev().find(|line| is_header(line)).filter(|_| !is_header(line));
    let header = header.map(|header| format!("{header}\n")).unwrap_or_default();
    let snippet = format!("{header}{line}");
    let place_in_snippet = range.start - start + header.len();
    let (own, _) = DeTable::parse_recoverable(&snippet);
    let (all, _) = DeTable::parse_recoverable(before);
    let (mut own, mut all) = (own.get_ref(), all.get_ref());
    loop {
        let (key, value) = own.iter().next()?;
        let (found, inner) = all.get_key_value(key.get_ref().as_ref())?;
        if key.span().start == place_in_snippet {
            return Some(found.span());
        }
        (own, all) = (value.get_ref().as_table()?, inner.get_ref().as_table()?);
    }
}
