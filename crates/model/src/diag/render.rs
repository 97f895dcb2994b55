//! Diagnostics for people: the code, the message, `file:line:column`, the lines with labels, the help.

use std::collections::BTreeMap;
use std::fmt;

use miette::{
    GraphicalReportHandler, GraphicalTheme, LabeledSpan, MietteError, MietteSpanContents, SourceCode,
    SourceSpan, SpanContents,
};

use super::{Diagnostic, Place, Severity};
use crate::secrets;
use crate::source::{FileId, Sources, Span};

/// Use of colors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// Plain text.
    Off,
    /// ANSI colors.
    On,
}

/// The characters of the lines around an excerpt of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Characters {
    /// Only ASCII.
    Ascii,
    /// Box drawing.
    Unicode,
}

/// The form of the output. The caller knows the terminal and decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// The maximum width in columns.
    pub width: usize,
    pub colour: Colour,
    pub characters: Characters,
}

impl Look {
    /// Plain ASCII without colors, 100 columns wide: for files, tests and pipes.
    pub const PLAIN: Self = Self { width: 100, colour: Colour::Off, characters: Characters::Ascii };
}

/// The maximum number of diagnostics. Nobody reads more; `--json` has all of them.
const MOST: usize = 50;
/// The maximum length of a shown line: a file may be a single line of megabytes.
const LONGEST: usize = 200;
/// The maximum length of a word; longer words are shortened. Even a name may have megabytes. URLs and paths that people copy are
/// shorter.
const LONGEST_WORD: usize = 1_000;

/// Renders at most [`MOST`] diagnostics, and a line with the numbers of all errors and warnings. If some are left out, errors come
/// first.
pub fn render_counted(diagnostics: &[Diagnostic], sources: &Sources, look: Look) -> String {
    // Errors come first if not all diagnostics can be shown.
    let mut shown: Vec<&Diagnostic> = diagnostics.iter().collect();
    if shown.len() > MOST {
        shown.sort_by_key(|diagnostic| diagnostic.severity);
        shown.truncate(MOST);
    }
    let shown: Vec<Diagnostic> = shown.into_iter().cloned().collect();
    let mut text = render(&shown, sources, look);
    if diagnostics.len() > 1 {
        let number =
            |severity| diagnostics.iter().filter(|diagnostic| diagnostic.severity == severity).count();
        let counted = |severity, noun: &str| match number(severity) {
            0 => None,
            1 => Some(format!("1 {noun}")),
            number => Some(format!("{number} {noun}s")),
        };
        let counts = [counted(Severity::Error, "error"), counted(Severity::Warning, "warning")];
        let counts = counts.into_iter().flatten().collect::<Vec<_>>().join(", ");
        let left = match diagnostics.len() - shown.len() {
            0 => String::new(),
            left => format!("; {left} are not shown (`--json` shows all)"),
        };
        text.push_str(&format!("\n{counts}{left}\n"));
    }
    text
}

/// Returns the diagnostics one below the other, with a blank line between them.
pub fn render(diagnostics: &[Diagnostic], sources: &Sources, look: Look) -> String {
    let Look { width, colour, characters } = look;
    let theme = match (characters, colour) {
        (Characters::Unicode, Colour::On) => GraphicalTheme::unicode(),
        (Characters::Unicode, Colour::Off) => GraphicalTheme::unicode_nocolor(),
        (Characters::Ascii, Colour::On) => GraphicalTheme::ascii(),
        (Characters::Ascii, Colour::Off) => GraphicalTheme::none(),
    };
    let handler = GraphicalReportHandler::new_themed(theme)
        .with_wrap_lines(false)
        .with_links(false)
        .with_context_lines(1);
    let texts = texts(diagnostics, sources);
    let rendered = diagnostics.iter().map(|diagnostic| one(&handler, diagnostic, (sources, &texts), width));
    rendered.collect::<Vec<_>>().join("\n")
}

/// The texts that diagnostics point into, with their secrets replaced by as many stars.
type Texts = BTreeMap<FileId, String>;

fn texts(diagnostics: &[Diagnostic], sources: &Sources) -> Texts {
    let spans = diagnostics.iter().flat_map(|diagnostic| &diagnostic.labels);
    let files = spans.filter_map(|label| label.place.span(sources)).map(|span| span.file);
    let mut texts = Texts::new();
    for file in files {
        texts.entry(file).or_insert_with(|| secrets::starred(sources.text(file), sources.secrets()));
    }
    texts
}

fn one(
    handler: &GraphicalReportHandler,
    diagnostic: &Diagnostic,
    (sources, texts): (&Sources, &Texts),
    width: usize,
) -> String {
    let report = Report::new(diagnostic, (sources, texts), width);
    let mut text = String::new();
    let drawn = handler.render_report(&mut text, &report);
    if drawn.is_err() {
        // The frame could not be drawn (a span outside its text); the words still can.
        text = format!("{}\n\n  {}\n", report.code, diagnostic.message);
        if let Some(location) = diagnostic.location(sources) {
            text.push_str(&format!("  at {location}\n"));
        }
    }
    for line in report.elsewhere {
        text.push_str(&format!("  {line}\n"));
    }
    let lines = text.lines().map(str::trim_end);
    lines.map(|line| format!("{line}\n")).collect()
}

/// A diagnostic in miette's form, which has labels in a single text. Labels in other texts become lines.
#[derive(Debug)]
struct Report<'a> {
    severity: Severity,
    code: String,
    message: String,
    help: Option<String>,
    text: Option<Text<'a>>,
    labels: Vec<LabeledSpan>,
    elsewhere: Vec<String>,
}

impl<'a> Report<'a> {
    fn new(diagnostic: &'a Diagnostic, (sources, texts): (&'a Sources, &'a Texts), width: usize) -> Self {
        let kind = match diagnostic.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let code = format!("{kind}[{}]", diagnostic.code.as_str());
        let words = |text: &str, width| wrapped(&readable(text, sources), width);
        let mut report = Self {
            severity: diagnostic.severity,
            code,
            message: words(&diagnostic.message, width.saturating_sub(4)),
            help: diagnostic.help.as_ref().map(|help| words(help, width.saturating_sub(8))),
            text: None,
            labels: Vec::new(),
            elsewhere: Vec::new(),
        };
        for label in &diagnostic.labels {
            report.add(label, diagnostic.code, (sources, texts));
        }
        report
    }

    fn add(
        &mut self,
        super::Label { place, text: words }: &super::Label,
        code: super::Code,
        (sources, texts): (&'a Sources, &'a Texts),
    ) {
        let words = &readable(words, sources);
        let Some(span) = place.span(sources) else {
            let Place::Address(address) = place else { return };
            self.elsewhere.push(joined(&readable(&format!("at {address}"), sources), words));
            return;
        };
        let content = texts.get(&span.file).map_or("", String::as_str);
        // The lines of a value that must not be seen are its content, and so is a line of megabytes.
        let long = is_long(content, span);
        if code.is_about_secrets() || long {
            self.elsewhere.push(joined(&format!("at {}", sources.location(span)), words));
            self.elsewhere.extend((!code.is_about_secrets()).then(|| excerpt(content, span)));
            return;
        }
        let text = self.text.get_or_insert(Text { sources, file: span.file, content });
        if text.file != span.file {
            self.elsewhere.push(joined(&format!("at {}", sources.location(span)), words));
            return;
        }
        // The lines between two places are shown with them.
        let around = self.labels.iter().map(|label| (label.offset(), label.offset() + label.len()));
        let (start, end) =
            around.fold((span.start, span.end), |(start, end), (from, to)| (start.min(from), end.max(to)));
        if is_long(content, Span { start, end, ..span }) {
            self.elsewhere.push(joined(&format!("at {}", sources.location(span)), words));
            return;
        }
        let words = (!words.is_empty()).then(|| words.clone());
        let stretch = text.stretch(span);
        self.labels.push(if self.labels.is_empty() {
            LabeledSpan::new_primary_with_span(words, stretch)
        } else {
            LabeledSpan::new_with_span(words, stretch)
        });
    }
}

/// Returns a text with the middle of long words left out. Secrets are removed before, as half of one would not be recognized.
fn readable(text: &str, sources: &Sources) -> String {
    const KEPT: usize = 100;
    if text.len() <= LONGEST_WORD {
        return text.to_owned();
    }
    let text = sources.secrets().out_of(text);
    let shortened = |word: &str| {
        let number = word.chars().count();
        if number <= LONGEST_WORD {
            return word.to_owned();
        }
        let head: String = word.chars().take(KEPT).collect();
        let tail: String = word.chars().skip(number - KEPT).collect();
        format!("{head}…({number} characters)…{tail}")
    };
    text.split_inclusive([' ', '\n']).map(shortened).collect()
}

/// Lines broken at spaces only. miette's own wrapping also breaks at hyphens, and names such as
/// `n1-standard-2` must stay whole to be copied.
fn wrapped(text: &str, width: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for paragraph in text.lines() {
        let mut line = String::new();
        for word in paragraph.split(' ') {
            if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
                lines.push(std::mem::take(&mut line));
            } else if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        lines.push(line);
    }
    lines.join("\n")
}

/// Returns true if any line to be shown, including the ones above and below, is longer than [`LONGEST`].
fn is_long(text: &str, Span { start, end, .. }: Span) -> bool {
    let above = text.get(..start).unwrap_or_default().rmatch_indices('\n').nth(1);
    let below = text.get(end..).unwrap_or_default().match_indices('\n').nth(1);
    let from = above.map_or(0, |(newline, _)| newline + 1);
    let to = below.map_or(text.len(), |(newline, _)| end + newline);
    text.get(from..to).unwrap_or_default().split('\n').any(|line| line.len() > LONGEST)
}

/// Returns a part of a long line, around a span.
fn excerpt(text: &str, Span { start, .. }: Span) -> String {
    const BEFORE: usize = 20;
    const AFTER: usize = 60;
    let (before, after) = text.split_at_checked(start).unwrap_or((text, ""));
    let head: Vec<char> = before.chars().rev().take_while(|c| *c != '\n').take(BEFORE).collect();
    let tail = after.chars().take_while(|c| *c != '\n').take(AFTER);
    let shown: String = head.into_iter().rev().chain(tail).collect();
    format!("| … {} …", shown.trim())
}

fn joined(place: &str, words: &str) -> String {
    if words.is_empty() { place.to_owned() } else { format!("{place}: {words}") }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Report<'_> {}

impl miette::Diagnostic for Report<'_> {
    fn code<'b>(&'b self) -> Option<Box<dyn fmt::Display + 'b>> {
        Some(Box::new(&self.code))
    }

    fn severity(&self) -> Option<miette::Severity> {
        Some(match self.severity {
            Severity::Error => miette::Severity::Error,
            Severity::Warning => miette::Severity::Warning,
        })
    }

    fn help<'b>(&'b self) -> Option<Box<dyn fmt::Display + 'b>> {
        self.help.as_ref().map(|help| Box::new(help) as Box<dyn fmt::Display>)
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        self.text.as_ref().map(|text| text as &dyn SourceCode)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        Some(Box::new(self.labels.iter().cloned()))
    }
}

/// A text for miette. miette's own type counts columns in bytes, but all positions of this program are in characters.
#[derive(Debug)]
struct Text<'a> {
    sources: &'a Sources,
    file: FileId,
    content: &'a str,
}

impl Text<'_> {
    /// Returns the span for miette, limited to its first line (a table or a list may be long) and to the text.
    fn stretch(&self, Span { file, start, end }: Span) -> SourceSpan {
        debug_assert_eq!(file, self.file);
        let text = self.content;
        let start = start.min(text.len());
        let rest = text.get(start..end.clamp(start, text.len())).unwrap_or_default();
        let first_line = rest.split(['\r', '\n']).next().unwrap_or_default();
        (start, first_line.len()).into()
    }
}

impl SourceCode for Text<'_> {
    fn read_span<'b>(
        &'b self,
        span: &SourceSpan,
        before: usize,
        after: usize,
    ) -> Result<Box<dyn SpanContents<'b> + 'b>, MietteError> {
        let inner = self.content.read_span(span, before, after)?;
        let (line, column) = if before == 0 {
            let start = span.offset();
            let location = self.sources.location(Span { file: self.file, start, end: start });
            (location.line - 1, location.column - 1)
        } else {
            (inner.line(), inner.column())
        };
        Ok(Box::new(MietteSpanContents::new_named(
            self.sources.name(self.file).to_owned(),
            inner.data(),
            *inner.span(),
            line,
            column,
            inner.line_count(),
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Address;
    use crate::diag::Code;

    #[test]
    fn the_place_stands_in_every_look() {
        let mut sources = Sources::default();
        let file = sources.add("a/stack.toml", "# first\nname = \"ärger\" # ä\nx = 1");
        let diagnostics = [
            Diagnostic::error(Code::UnknownKey, "nothing is called `x`")
                .at(Some(Span { file, start: 29, end: 30 }), "here")
                .help("remove it"),
            Diagnostic::warning(Code::Syntax, "at the end").at(Some(Span { file, start: 99, end: 120 }), ""),
            Diagnostic::error(Code::Syntax, "nowhere").about(Address::new("cluster"), "this"),
        ];
        for colour in [Colour::Off, Colour::On] {
            for characters in [Characters::Ascii, Characters::Unicode] {
                let text = render(&diagnostics, &sources, Look { width: 60, colour, characters });
                for part in
                    ["a/stack.toml:3:1", "a/stack.toml:3:6", "DI0102", "remove it", "at cluster: this"]
                {
                    assert!(text.contains(part), "{part} in\n{text}");
                }
                assert_eq!(text.contains('\u{1b}'), colour == Colour::On);
                assert_eq!(text.contains('─'), characters == Characters::Unicode);
            }
        }
        let json = serde_json::to_value(diagnostics[0].to_json(&sources)).unwrap();
        assert_eq!(json["line"], 3);
        assert_eq!(json["severity"], "error");
    }

    #[test]
    fn a_name_of_megabytes_is_cut_and_no_half_of_a_secret_stays() {
        let mut sources = Sources::default();
        let secret = "hunter2-hunter2-hunter2-hunter2".repeat(40);
        sources.secrets_mut().add(&secret, "(secret)");
        let name = format!("{}{secret}{}", "a".repeat(90), "b".repeat(60_000));
        let told = [Diagnostic::error(Code::Syntax, format!("nothing is called `{name}`, said once"))
            .about(Address::new(&name), &name)
            .help(&name)];
        let text = render(&told, &sources, Look::PLAIN);
        assert!(text.len() < 3_000, "{} bytes", text.len());
        assert!(text.contains("…bb") && text.contains("(60102"), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }

    #[test]
    fn no_line_of_megabytes_is_shown_wherever_it_is_beside_a_place() {
        let long = "b".repeat(60_000);
        for text in [
            format!("{long}\nlist = [\n1,\n]\nlast"),
            format!("first\nlist = [\n{long},\n]\nlast"),
            format!("first\nlist = [\n1,\n]\n{long}"),
        ] {
            let mut sources = Sources::default();
            let start = text.find("list").unwrap_or_default();
            let end = text.find(']').unwrap_or_default() + 1;
            let file = sources.add("stack.toml", &text);
            let told = [Diagnostic::error(Code::Syntax, "no").at(Some(Span { file, start, end }), "here")];
            let shown = render(&told, &sources, Look::PLAIN);
            assert!(shown.len() < 1_000 && shown.contains("stack.toml:2:1"), "{shown}");
        }
    }
}
