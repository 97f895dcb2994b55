//! YAML text to trees with the place of every field. Values are read as in kubectl (YAML 1.1 where that differs: `yes`, `0755`).
//! Surprising values are reported. Source: go-yaml v2 `resolve.go`, which kubectl uses through sigs.k8s.io/yaml.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use granit_parser::{Event, Parser, ScalarStyle, ScanError, StrInput, Tag, options};
use serde_json::{Map, Number, Value};

use model::address::FieldPath;
use model::diag::{Code, Diagnostic};
use model::source::{FileId, Sources, Span, Spot};

/// A value and its position.
#[derive(Clone, Debug)]
pub(super) struct Node {
    span: Span,
    content: Content,
}

#[derive(Clone, Debug)]
enum Content {
    Scalar(Value, Option<Trap>),
    List(Vec<Node>),
    Table(Vec<(Key, Node)>),
}

#[derive(Clone, Debug)]
struct Key {
    text: String,
    span: Span,
}

/// A value that is read as something other than it looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trap {
    /// `yes`, `on`, …
    Flag,
    /// `0755`.
    Octal,
    /// `1_000`.
    Underscores,
}

/// The maximum number of values in a text, with aliases expanded: a few lines of nested aliases can stand for billions.
const MOST: usize = 1_000_000;

/// Iterates over the documents of a text, without empty ones. Continues after a broken document. Documents are not stored, as a
/// manifest may have ten thousand.
pub(super) struct Documents<'t> {
    reader: Reader<'t>,
    ended: bool,
}

impl<'t> Documents<'t> {
    /// Creates the iterator for a text, which is `file` in the sources.
    pub(super) fn of(text: &'t str, file: FileId) -> Self {
        let options = options! { emit_comments: false, emit_unresolved_aliases: true };
        let parser = Parser::new_from_str_with_options(text, options);
        let reader =
            Reader { parser, text, file, anchors: BTreeMap::new(), left: MOST, diagnostics: Vec::new() };
        Self { reader, ended: false }
    }

    /// Returns the problems with the text, as far as it was read.
    pub(super) fn diagnostics(self) -> Vec<Diagnostic> {
        self.reader.diagnostics
    }
}

impl Iterator for Documents<'_> {
    type Item = Node;

    fn next(&mut self) -> Option<Node> {
        let Self { reader, ended } = self;
        while !*ended {
            match reader.document() {
                Ok(Some(node)) if matches!(&node.content, Content::Scalar(Value::Null, _)) => {}
                Ok(Some(node)) => return Some(node),
                Ok(None) => *ended = true,
                Err(Stop::TooMany) => {
                    let all = Span { file: reader.file, start: 0, end: 0 };
                    let problem =
                        Diagnostic::error(Code::NotYaml, "the aliases expand to more than a million values");
                    reader.diagnostics.push(problem.at(Some(all), "in this file").help("write them out"));
                    *ended = true;
                }
                Err(Stop::Broken(error)) => {
                    let problem = syntax(&error, reader.text, reader.file);
                    reader.diagnostics.push(problem);
                    *ended = !matches!(reader.parser.proceed_next_document(), Ok(true));
                }
            }
        }
        None
    }
}

fn syntax(error: &ScanError, text: &str, file: FileId) -> Diagnostic {
    let start = error.marker().byte_offset().unwrap_or(0).min(text.len());
    let problem = Diagnostic::error(Code::NotYaml, format!("this is not YAML: {}", error.info()));
    let problem = problem.at(Some(Span { file, start, end: start }), "here");
    let line_start = text.get(..start).and_then(|before| before.rfind('\n')).map_or(0, |newline| newline + 1);
    let line = text.get(line_start..).and_then(|rest| rest.lines().next()).unwrap_or_default();
    if text.contains("{{") {
        return problem.help("it looks like a template of a Helm chart: use the output of `helm template`");
    }
    if line.starts_with([' ', '\t']) && line.trim_start_matches(' ').starts_with('\t') {
        return problem.help("YAML does not allow tabs for indentation: use spaces");
    }
    problem.help("check the indentation, and for unclosed quotes and brackets")
}

/// Reasons why parsing a document stops early.
enum Stop {
    Broken(ScanError),
    TooMany,
}

impl From<ScanError> for Stop {
    fn from(error: ScanError) -> Self {
        Self::Broken(error)
    }
}

struct Reader<'t> {
    parser: Parser<'t, StrInput<'t>>,
    text: &'t str,
    file: FileId,
    anchors: BTreeMap<usize, Node>,
    left: usize,
    diagnostics: Vec<Diagnostic>,
}

impl<'t> Reader<'t> {
    fn next(&mut self) -> Result<Option<(Event<'t>, Span)>, Stop> {
        let Some(next) = self.parser.next_event() else { return Ok(None) };
        let (event, span) = next?;
        let Range { start, end } = span.byte_range().unwrap_or(0..0);
        Ok(Some((event, Span { file: self.file, start, end })))
    }

    fn document(&mut self) -> Result<Option<Node>, Stop> {
        while let Some((event, span)) = self.next()? {
            match event {
                Event::StreamEnd => return Ok(None),
                Event::DocumentStart(..) => self.anchors.clear(),
                event if event.is_node() || matches!(event, Event::UnresolvedAlias(_)) => {
                    return self.node(event, span).map(Some);
                }
                _ => {}
            }
        }
        Ok(None)
    }

    fn node(&mut self, event: Event<'t>, span: Span) -> Result<Node, Stop> {
        self.left = self.left.checked_sub(1).ok_or(Stop::TooMany)?;
        let (anchor, mut node) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let (value, trap) = self.scalar(&text, style, tag.as_deref(), span);
                (anchor, Node { span, content: Content::Scalar(value, trap) })
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.tag(tag.as_deref(), "seq", span);
                (anchor, Node { span, content: Content::List(self.list()?) })
            }
            Event::MappingStart(_, anchor, tag) => {
                self.tag(tag.as_deref(), "map", span);
                (anchor, Node { span, content: Content::Table(self.table()?) })
            }
            Event::Alias(id) => return self.alias(id, span),
            Event::UnresolvedAlias(name) => {
                let problem =
                    Diagnostic::error(Code::NotYaml, format!("there is no anchor `&{name}` before this"));
                self.diagnostics
                    .push(problem.at(Some(span), "").help("fix the name, or define the anchor above"));
                (0, Node { span, content: Content::Scalar(Value::Null, None) })
            }
            _ => (0, Node { span, content: Content::Scalar(Value::Null, None) }),
        };
        // A table without braces has no end of its own: its first line is its place.
        let first = self.text.get(node.span.start..node.span.end).and_then(|text| text.lines().next());
        node.span.end = node.span.start + first.map_or(0, str::len);
        if anchor != 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn alias(&mut self, id: usize, span: Span) -> Result<Node, Stop> {
        let Some(node) = self.anchors.get(&id) else {
            let problem = Diagnostic::error(Code::NotYaml, "this alias is inside its own anchor");
            self.diagnostics.push(problem.at(Some(span), "").help("write the value out"));
            return Ok(Node { span, content: Content::Scalar(Value::Null, None) });
        };
        self.left = self.left.checked_sub(node.size()).ok_or(Stop::TooMany)?;
        Ok(Node { span, content: node.content.clone() })
    }

    fn list(&mut self) -> Result<Vec<Node>, Stop> {
        let mut items = Vec::new();
        while let Some((event, span)) = self.next()? {
            if event == Event::SequenceEnd {
                break;
            }
            items.push(self.node(event, span)?);
        }
        Ok(items)
    }

    fn table(&mut self) -> Result<Vec<(Key, Node)>, Stop> {
        let (mut entries, mut merged) = (Vec::<(Key, Node)>::new(), Vec::new());
        let mut first = Firsts::default();
        while let Some((event, span)) = self.next()? {
            if event == Event::MappingEnd {
                break;
            }
            let key = self.key(event, span)?;
            let Some((event, span)) = self.next()? else { break };
            let value = self.node(event, span)?;
            match key {
                Some(Word::Merge(span)) => self.merge(value, span, &mut merged),
                Some(Word::Key(key)) => match first.note(&entries, &key) {
                    Some(first) => {
                        let problem =
                            Diagnostic::error(Code::DuplicateKey, format!("`{}` is given twice", key.text));
                        let problem = problem.at(Some(key.span), "again here").at(Some(first), "first here");
                        self.diagnostics.push(
                            problem.help(
                                "keep one of the two; kubectl would take the second one without a word",
                            ),
                        );
                    }
                    None => entries.push((key, value)),
                },
                None => {}
            }
        }
        for (key, value) in merged {
            if first.note(&entries, &key).is_none() {
                entries.push((key, value));
            }
        }
        Ok(entries)
    }

    fn key(&mut self, event: Event<'t>, span: Span) -> Result<Option<Word>, Stop> {
        let Event::Scalar(text, style, anchor, _) = &event else {
            self.node(event, span)?;
            let problem = Diagnostic::error(Code::NotYaml, "a key must be text").at(Some(span), "");
            let help =
                "JSON and Kubernetes allow no other keys; templates with `{{ … }}` must be rendered first";
            self.diagnostics.push(problem.help(help));
            return Ok(None);
        };
        if *style == ScalarStyle::Plain && text == "<<" {
            return Ok(Some(Word::Merge(span)));
        }
        if *anchor != 0 {
            self.node(event.clone(), span)?;
        }
        if *style == ScalarStyle::Plain && (flag(text).is_some() || is_null(text)) {
            let problem = Diagnostic::error(Code::YamlTrap, format!("the key `{text}` is not read as text"));
            self.diagnostics.push(problem.at(Some(span), "").help(format!("quote it: `\"{text}\"`")));
        }
        Ok(Some(Word::Key(Key { text: text.to_string(), span })))
    }

    /// `<<: *defaults`: adds the keys of other tables that this table does not set.
    fn merge(&mut self, value: Node, span: Span, merged: &mut Vec<(Key, Node)>) {
        match value.content {
            Content::Table(entries) => merged.extend(entries),
            Content::List(items) => items.into_iter().for_each(|item| self.merge(item, span, merged)),
            Content::Scalar(..) => {
                let problem = Diagnostic::error(Code::NotYaml, "`<<` takes a table or a list of tables");
                self.diagnostics
                    .push(problem.at(Some(span), "").help("give it an alias of a table: `<<: *name`"));
            }
        }
    }

    fn scalar(
        &mut self,
        text: &str,
        style: ScalarStyle,
        tag: Option<&Tag>,
        span: Span,
    ) -> (Value, Option<Trap>) {
        let is = |name: &str| tag.is_some_and(|tag| tag.is_yaml_core_schema_tag(name));
        if is("str") || (tag.is_none() && style != ScalarStyle::Plain) {
            return (Value::String(text.to_owned()), None);
        }
        if !["int", "float", "bool", "null"].into_iter().any(is) {
            self.tag(tag, "str", span);
        }
        let (value, trap) = plain(text);
        if value.is_null() && !is_null(text) {
            let problem = Diagnostic::error(
                Code::OutOfRange,
                format!("`{text}` is not a number that JSON can represent"),
            );
            self.diagnostics.push(problem.at(Some(span), "").help("write a number, or quote the text"));
        }
        (value, trap)
    }

    /// Reports a tag other than those of YAML's own types.
    fn tag(&mut self, tag: Option<&Tag>, usual: &str, span: Span) {
        let Some(tag) = tag.filter(|tag| !tag.is_yaml_core_schema_tag(usual)) else { return };
        let problem =
            Diagnostic::error(Code::NotYaml, format!("the tag `{}` is not supported", tag.original()));
        self.diagnostics.push(problem.at(Some(span), "").help("remove it; base64 text needs no tag"));
    }
}

/// The first position of each key in a table. Most tables have only a few keys, which are searched directly; only large tables
/// have an index.
#[derive(Default)]
struct Firsts(HashMap<String, Span>);

impl Firsts {
    /// The maximum number of keys for a search without an index.
    const FEW: usize = 16;

    /// Returns the earlier position of a key, if there is one. Otherwise adds the key as the next entry.
    fn note(&mut self, entries: &[(Key, Node)], key: &Key) -> Option<Span> {
        if entries.len() < Self::FEW {
            return entries.iter().find(|(other, _)| other.text == key.text).map(|(other, _)| other.span);
        }
        if self.0.is_empty() {
            self.0.extend(entries.iter().map(|(key, _)| (key.text.clone(), key.span)));
        }
        match self.0.entry(key.text.clone()) {
            Entry::Occupied(first) => Some(*first.get()),
            Entry::Vacant(vacant) => {
                vacant.insert(key.span);
                None
            }
        }
    }
}

enum Word {
    Key(Key),
    Merge(Span),
}

impl Node {
    fn size(&self) -> usize {
        match &self.content {
            Content::Scalar(..) => 1,
            Content::List(items) => 1 + items.iter().map(Self::size).sum::<usize>(),
            Content::Table(entries) => 1 + entries.iter().map(|(_, node)| node.size()).sum::<usize>(),
        }
    }

    /// Returns its span.
    pub(super) fn span(&self) -> Span {
        self.span
    }

    /// Returns true if it is a table.
    pub(super) fn is_table(&self) -> bool {
        matches!(self.content, Content::Table(_))
    }

    /// Returns the text of a field.
    pub(super) fn text(&self, key: &str) -> Option<&str> {
        match &self.get(key)?.content {
            Content::Scalar(Value::String(text), _) => Some(text),
            _ => None,
        }
    }

    /// Returns a field of a table.
    pub(super) fn get(&self, key: &str) -> Option<&Self> {
        let Content::Table(entries) = &self.content else { return None };
        entries.iter().find(|(own, _)| own.text == key).map(|(_, node)| node)
    }

    /// Returns true if it is a list.
    pub(super) fn is_list(&self) -> bool {
        matches!(self.content, Content::List(_))
    }

    /// Returns the entries of the list `items` of a table.
    pub(super) fn into_items(self) -> Vec<Self> {
        let Content::Table(entries) = self.content else { return Vec::new() };
        let items = entries.into_iter().find(|(key, _)| key.text == "items").map(|(_, node)| node.content);
        match items {
            Some(Content::List(items)) => items,
            Some(Content::Scalar(..) | Content::Table(_)) | None => Vec::new(),
        }
    }

    /// Returns the value, and adds the positions of its fields to `sources` below `path`.
    pub(super) fn place(self, path: &FieldPath, key: Option<Span>, sources: &mut Sources) -> Value {
        let spot = sources.record(path, key, self.span);
        self.below(spot, sources)
    }

    fn below(self, spot: Spot, sources: &mut Sources) -> Value {
        match self.content {
            Content::Scalar(value, _) => value,
            Content::List(items) => {
                let items = items.into_iter().enumerate();
                let items = items.map(|(place, item)| {
                    let spot = sources.record_item(spot, place, item.span);
                    item.below(spot, sources)
                });
                items.collect()
            }
            Content::Table(entries) => {
                let entries = entries.into_iter().map(|(key, node)| {
                    let spot = sources.record_key(spot, &key.text, key.span, node.span);
                    (key.text, node.below(spot, sources))
                });
                Value::Object(entries.collect::<Map<_, _>>())
            }
        }
    }

    /// Returns true if any value in it is read as something other than it looks like.
    fn is_trap(&self) -> bool {
        match &self.content {
            Content::Scalar(_, trap) => trap.is_some(),
            Content::List(items) => items.iter().any(Self::is_trap),
            Content::Table(entries) => entries.iter().any(|(_, node)| node.is_trap()),
        }
    }

    /// Collects the values that are read as something other than they look like, with their paths.
    pub(super) fn traps(
        &self,
        path: &FieldPath,
        found: &mut Vec<(FieldPath, Diagnostic)>,
        sources: &Sources,
    ) {
        // Paths cost more than a look, and there is hardly ever one.
        if !self.is_trap() {
            return;
        }
        match &self.content {
            Content::Scalar(value, Some(trap)) => {
                found.push((path.clone(), trap.told(sources.slice(self.span), value, self.span)));
            }
            Content::Scalar(_, None) => {}
            Content::List(items) => {
                items
                    .iter()
                    .enumerate()
                    .for_each(|(place, item)| item.traps(&path.index(place), found, sources));
            }
            Content::Table(entries) => {
                entries.iter().for_each(|(key, node)| node.traps(&path.key(&key.text), found, sources));
            }
        }
    }
}

impl Trap {
    fn told(self, text: &str, value: &Value, span: Span) -> Diagnostic {
        let what = match self {
            Self::Flag => format!("`{text}` is read as `{value}`, as kubectl reads it"),
            Self::Octal => format!("`{text}` is read as the octal number {value}, as kubectl reads it"),
            Self::Underscores => format!("`{text}` is read as the number {value}, as kubectl reads it"),
        };
        let help = format!("write `{value}` if you mean that, or `\"{text}\"` for text");
        Diagnostic::warning(Code::YamlTrap, what).at(Some(span), "").help(help)
    }
}

fn is_null(text: &str) -> bool {
    matches!(text, "" | "~" | "null" | "Null" | "NULL")
}

/// Parses words that YAML 1.1 reads as true or false, except `y` and `n`.
fn flag(text: &str) -> Option<(bool, Option<Trap>)> {
    match text {
        "true" | "True" | "TRUE" => Some((true, None)),
        "false" | "False" | "FALSE" => Some((false, None)),
        "yes" | "Yes" | "YES" | "on" | "On" | "ON" => Some((true, Some(Trap::Flag))),
        "no" | "No" | "NO" | "off" | "Off" | "OFF" => Some((false, Some(Trap::Flag))),
        _ => None,
    }
}

/// Returns a scalar without quotes. `Null` for numbers that JSON cannot hold.
fn plain(text: &str) -> (Value, Option<Trap>) {
    if is_null(text) {
        return (Value::Null, None);
    }
    if let Some((flag, trap)) = flag(text) {
        return (Value::Bool(flag), trap);
    }
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) {
        return (Value::String(text.to_owned()), None);
    }
    if let Some((value, octal)) = integer(text) {
        let trap = match (octal, text.contains('_')) {
            (true, _) => Some(Trap::Octal),
            (false, true) => Some(Trap::Underscores),
            (false, false) => None,
        };
        return (value, trap);
    }
    let unsigned = text.trim_start_matches(['+', '-']).to_ascii_lowercase();
    if matches!(unsigned.as_str(), ".inf" | ".nan") {
        return (Value::Null, None);
    }
    if !is_float(&unsigned) {
        return (Value::String(text.to_owned()), None);
    }
    let Some(number) = text.trim_start_matches('+').parse::<f64>().ok().filter(|number| number.is_finite())
    else {
        return (Value::Null, None);
    };
    // As JSON writes it: `1e3` and `1.0` are whole numbers there.
    #[expect(clippy::cast_possible_truncation, reason = "whole and below 2^53")]
    let whole = (number.fract() == 0.0 && number.abs() < 9_007_199_254_740_992.0).then_some(number as i64);
    let value = whole.map(Value::from).or_else(|| Number::from_f64(number).map(Value::Number));
    (value.unwrap_or(Value::Null), None)
}

/// Returns a whole number, and true if a leading zero made it octal.
fn integer(text: &str) -> Option<(Value, bool)> {
    let digits = text.replace('_', "");
    let (negative, digits) = match digits.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, digits.strip_prefix('+').unwrap_or(&digits)),
    };
    let (radix, digits, octal) = match digits.get(..2) {
        Some("0x" | "0X") => (16, &digits[2..], false),
        Some("0b" | "0B") => (2, &digits[2..], false),
        Some("0o" | "0O") => (8, &digits[2..], false),
        Some(start) if start.starts_with('0') && digits.chars().all(|c| c.is_ascii_digit()) => {
            (8, &digits[1..], true)
        }
        _ => (10, digits, false),
    };
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    let number = u64::from_str_radix(digits, radix).ok()?;
    let value = match negative {
        true => Value::from(i64::try_from(i128::from(number).checked_neg()?).ok()?),
        false => Value::from(number),
    };
    Some((value, octal))
}

/// Returns true for digits with at most one point and an exponent.
fn is_float(text: &str) -> bool {
    let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
    let exponent = exponent.trim_start_matches(['+', '-']);
    let digits = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, "0"));
    let point =
        (digits(whole) || whole.is_empty()) && (digits(fraction) || (fraction.is_empty() && digits(whole)));
    point && digits(exponent) && !mantissa.is_empty() && mantissa != "."
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read_text(text: &str) -> (Vec<Value>, Sources, Vec<String>) {
        let mut sources = Sources::default();
        let file = sources.add("a.yaml", text);
        let mut documents = Documents::of(text, file);
        let (mut traps, mut values) = (Vec::new(), Vec::new());
        let root = FieldPath::root();
        for document in &mut documents {
            document.traps(&root, &mut traps, &sources);
            values.push(document.place(&root, None, &mut sources));
        }
        let diagnostics = documents.diagnostics();
        let said = diagnostics.iter().chain(traps.iter().map(|(_, told)| told));
        let said = said.map(|told| format!("{}: {}", told.location(&sources).unwrap(), told.message));
        let said = said.collect();
        (values, sources, said)
    }

    #[test]
    fn scalars_are_read_as_kubectl_reads_them() {
        for (text, expect) in [
            ("yes", json!(true)),
            ("Off", json!(false)),
            ("y", json!("y")),
            ("0755", json!(493)),
            ("0o17", json!(15)),
            ("0x1F", json!(31)),
            ("1_000", json!(1000)),
            ("-7", json!(-7)),
            ("1e3", json!(1000)),
            ("1.5", json!(1.5)),
            (".5", json!(0.5)),
            ("1.2.3", json!("1.2.3")),
            ("2001-01-01", json!("2001-01-01")),
            ("10:30", json!("10:30")),
            ("500m", json!("500m")),
            ("1.", json!(1)),
            (".", json!(".")),
            ("-", json!("-")),
            ("0899", json!(899)),
            ("~", json!(null)),
            (".inf", json!(null)),
            ("18446744073709551615", json!(u64::MAX)),
        ] {
            assert_eq!(plain(text).0, expect, "{text}");
        }
    }

    #[test]
    fn documents_aliases_and_merge_keys() {
        let text = "# a comment\na: &d { x: 1, y: '2' }\nb: { <<: *d, x: 3 }\nc: *d\n---\n---\n- |\n  text\n- !!str 5\n";
        let (values, sources, said) = read_text(text);
        assert_eq!(
            values,
            [
                json!({ "a": { "x": 1, "y": "2" }, "b": { "x": 3, "y": "2" }, "c": { "x": 1, "y": "2" } }),
                json!(["text\n", "5"])
            ]
        );
        assert_eq!(said, Vec::<String>::new());
        assert_eq!(sources.locate(&"a.y".parse().unwrap()).unwrap().to_string(), "a.yaml:2:18");
        assert_eq!(sources.locate(&"c".parse().unwrap()).unwrap().to_string(), "a.yaml:4:4");
    }

    #[test]
    fn what_is_wrong_has_its_place() {
        for (text, expect) in [
            ("a: 1\na: 2\n", vec!["a.yaml:2:1: `a` is given twice"]),
            ("a: *b\n", vec!["a.yaml:1:4: there is no anchor `&b` before this"]),
            ("a: &b [*b]\n", vec!["a.yaml:1:8: this alias is inside its own anchor"]),
            ("on: 1\n", vec!["a.yaml:1:1: the key `on` is not read as text"]),
            ("[a]: 1\n", vec!["a.yaml:1:1: a key must be text"]),
            ("a: !!binary aGk=\n", vec!["a.yaml:1:13: the tag `!!binary` is not supported"]),
            ("a: .nan\n", vec!["a.yaml:1:4: `.nan` is not a number that JSON can represent"]),
            ("a: yes\n", vec!["a.yaml:1:4: `yes` is read as `true`, as kubectl reads it"]),
        ] {
            assert_eq!(read_text(text).2, expect, "{text}");
        }
    }

    #[test]
    fn documents_after_a_broken_one_are_read() {
        let (values, _, said) = read_text("a: [1\nb: 2\n---\nc: 3\n---\nd: 'x\n");
        assert_eq!(values, [json!({ "c": 3 })]);
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(said[0].contains("this is not YAML"), "{said:?}");
    }

    /// If each key were compared with all others, this would take minutes in a debug build.
    #[test]
    fn tables_with_many_keys_are_read() {
        let many: String = (0..100_000).map(|n| format!("k{n}: {n}\n")).collect();
        let (values, _, said) = read_text(&format!("{many}k7: again\n"));
        assert_eq!(values[0].as_object().unwrap().len(), 100_000);
        assert_eq!(said, ["a.yaml:100001:1: `k7` is given twice"]);
    }

    #[test]
    fn aliases_of_aliases_end() {
        let mut text = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for step in 1..12 {
            let before = format!("*a{}, ", step - 1);
            text.push_str(&format!("a{step}: &a{step} [{}]\n", before.repeat(10).trim_end_matches(", ")));
        }
        let (values, _, said) = read_text(&text);
        assert!(values.is_empty());
        assert!(said[0].contains("more than a million"), "{said:?}");
    }
}
