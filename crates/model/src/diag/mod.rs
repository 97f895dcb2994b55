//! Messages to the user: [`Diagnostic`], and how it is written for people and for programs. Nothing is printed here.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::address::{Address, FieldPath};
use crate::source::{Location, Sources, Span};

mod codes;
mod page;
mod render;

pub use codes::{Code, Entry};
pub use page::page;
pub use render::{Characters, Colour, Look, render, render_counted};

/// How serious a message is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Nothing is done until it is fixed.
    Error,
    /// Allowed, but probably a mistake.
    Warning,
}

/// Places that a label points at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A range of a text that the user wrote.
    Source(Span),
    /// The value of a field of the stack, or the enclosing table if the texts do not have the field.
    Value(FieldPath),
    /// The key of a field of the stack, or a table's name. If the texts do not have the field, the name of the enclosing table.
    Key(FieldPath),
    /// A section of the stack or an object of a section.
    Address(Address),
}

/// A place, and a text that relates it to the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    pub place: Place,
    /// A few words at the place; may be empty.
    pub text: String,
}

/// One message for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// The stable code, for `explain` and for searching.
    pub code: Code,
    /// How serious a message is.
    pub severity: Severity,
    /// The problem, in one sentence without a period.
    pub message: String,
    /// The places in the source; the first is the primary one.
    pub labels: Vec<Label>,
    /// The remedy.
    pub help: Option<String>,
}

impl Diagnostic {
    /// Creates an error without a place.
    pub fn error(code: Code, message: impl Into<String>) -> Self {
        Self { code, severity: Severity::Error, message: message.into(), labels: Vec::new(), help: None }
    }

    /// Creates a warning without a place.
    pub fn warning(code: Code, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(code, message) }
    }

    /// Points at a range of a text, if there is one.
    #[must_use]
    pub fn at(mut self, span: Option<Span>, text: impl Into<String>) -> Self {
        if let Some(span) = span {
            self.labels.push(Label { place: Place::Source(span), text: text.into() });
        }
        self
    }

    /// Adds a label, if there is one.
    #[must_use]
    pub fn with(mut self, label: Option<Label>) -> Self {
        self.labels.extend(label);
        self
    }

    /// Points at the value of a field.
    #[must_use]
    pub fn at_value(mut self, field: FieldPath, text: impl Into<String>) -> Self {
        self.labels.push(Label { place: Place::Value(field), text: text.into() });
        self
    }

    /// Points at the key of a field, or at a table's name.
    #[must_use]
    pub fn at_key(mut self, field: FieldPath, text: impl Into<String>) -> Self {
        self.labels.push(Label { place: Place::Key(field), text: text.into() });
        self
    }

    /// Points at a section or an object of the stack.
    #[must_use]
    pub fn about(mut self, address: Address, text: impl Into<String>) -> Self {
        self.labels.push(Label { place: Place::Address(address), text: text.into() });
        self
    }

    /// Adds what to do.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Returns the position of the first label that is in a text; a label with an address counts as its section.
    pub fn location(&self, sources: &Sources) -> Option<Location> {
        self.span(sources).map(|span| sources.location(span))
    }

    /// Returns the first address that a label names.
    pub fn address(&self) -> Option<&Address> {
        self.labels.iter().find_map(|label| match &label.place {
            Place::Address(address) => Some(address),
            Place::Source(_) | Place::Value(_) | Place::Key(_) => None,
        })
    }

    /// Returns the paths in the stack file that the labels of the diagnostic point at.
    pub fn fields(&self) -> impl Iterator<Item = &FieldPath> {
        self.labels.iter().filter_map(|label| match &label.place {
            Place::Value(field) | Place::Key(field) => Some(field),
            Place::Source(_) | Place::Address(_) => None,
        })
    }

    /// Returns the stable form for programs.
    pub fn to_json(&self, sources: &Sources) -> Json {
        let Self { code, severity, message, labels: _, help } = self;
        let location = self.location(sources);
        Json {
            code: code.as_str(),
            severity: *severity,
            message: message.clone(),
            line: location.as_ref().map(|location| location.line),
            column: location.as_ref().map(|location| location.column),
            file: location.map(|location| location.file),
            address: self.address().cloned(),
            help: help.clone(),
        }
    }

    /// Returns the first range of a text that a label points at.
    pub fn span(&self, sources: &Sources) -> Option<Span> {
        self.labels.iter().find_map(|label| label.place.span(sources))
    }
}

impl Place {
    /// Returns the range of the text; for an address, the range of its section.
    pub fn span(&self, sources: &Sources) -> Option<Span> {
        match self {
            Self::Source(span) => Some(*span),
            Self::Value(field) => sources.span(field),
            Self::Key(field) => sources.key_span(field),
            Self::Address(address) => sources.address_span(address),
        }
    }
}

/// A diagnostic for programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Json {
    /// The code: `DI0102`.
    pub code: &'static str,
    /// `error` or `warning`.
    pub severity: Severity,
    /// The problem.
    pub message: String,
    /// The file as the user named it.
    pub file: Option<String>,
    /// The line, from 1.
    pub line: Option<usize>,
    /// The column in characters, from 1.
    pub column: Option<usize>,
    /// The section or object concerned.
    pub address: Option<Address>,
    /// The remedy.
    pub help: Option<String>,
}

/// Sorts diagnostics by their position in the texts, then by address, and removes duplicates.
pub fn sort(diagnostics: &mut Vec<Diagnostic>, sources: &Sources) {
    diagnostics.sort_by_cached_key(|diagnostic| {
        let span = diagnostic.span(sources);
        let place = (span.is_none(), span.map(|Span { file, start, .. }| (file, start)));
        (place, diagnostic.address().cloned(), diagnostic.code, diagnostic.message.clone())
    });
    let mut seen = BTreeSet::new();
    diagnostics.retain(|diagnostic| {
        seen.insert((diagnostic.span(sources), diagnostic.code, diagnostic.message.clone()))
    });
}

/// Returns the candidate that `word` most likely means; `None` if none is close.
pub fn nearest<'c>(word: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let plain = |text: &str| text.to_ascii_lowercase().replace('_', "-");
    let wanted = plain(word);
    let allowed = (wanted.chars().count() / 3).max(1);
    let distance = |candidate: &str| strsim::damerau_levenshtein(&wanted, &plain(candidate));
    // Of two that are as close, `gpus` is meant by `gpu` rather than `cpu`: an ending is forgotten easily.
    let other_word = |candidate: &str| {
        let known = plain(candidate);
        !known.starts_with(&wanted) && !wanted.starts_with(&known)
    };
    let close =
        candidates.into_iter().map(|candidate| (distance(candidate), other_word(candidate), candidate));
    close.filter(|(distance, ..)| *distance <= allowed).min().map(|(.., candidate)| candidate)
}

/// Joins words in backticks for a sentence: `` `a`, `b` and `c` ``.
pub fn listed<'w>(words: impl IntoIterator<Item = &'w str>, last: &str) -> String {
    let words: Vec<String> = words.into_iter().map(|word| format!("`{word}`")).collect();
    match words.split_last() {
        Some((end, [])) => end.clone(),
        Some((end, rest)) => format!("{} {last} {end}", rest.join(", ")),
        None => String::new(),
    }
}
