//! Positions of values in the texts that a user wrote. Every later stage, even for an error of an API minutes later, finds the
//! line of a field through [`Sources`]. The values themselves contain no positions.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::address::{Address, FieldPath};
use crate::secrets::Secrets;

mod places;

pub use places::Spot;
use places::{Place, Places};

/// The number of a file in [`Sources`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId(u32);

/// A range of a text in byte offsets, without its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    /// The text.
    pub file: FileId,
    /// The first byte.
    pub start: usize,
    /// The byte after the last one.
    pub end: usize,
}

/// A position for people; prints as `stack.toml:12:5`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    /// The file's name as the user gave it.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, line, column } = self;
        write!(f, "{file}:{line}:{column}")
    }
}

/// The texts of a stack, and the positions of all fields in them.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    files: Vec<File>,
    places: Places,
    secrets: Secrets,
}

#[derive(Clone, Debug)]
struct File {
    name: String,
    /// The text. It is shared, so that it can be read while positions in it are added.
    text: Arc<str>,
    /// The offset of each line's start, as a plan needs many line numbers.
    lines: Vec<usize>,
    /// For a generated text: the value that it was generated for.
    asked_by: Option<Span>,
}

impl Sources {
    /// Adds a text under the name that messages show.
    pub fn add(&mut self, name: impl Into<String>, text: impl Into<String>) -> FileId {
        let id = FileId(u32::try_from(self.files.len()).unwrap_or(u32::MAX));
        let text: Arc<str> = text.into().into();
        let lines =
            std::iter::once(0).chain(text.match_indices('\n').map(|(newline, _)| newline + 1)).collect();
        self.files.push(File { name: name.into(), text, lines, asked_by: None });
        id
    }

    /// Adds a text that a program generated for the value at `asked_by`. Errors are shown in the generated text;
    /// [`Sources::locate`] returns the position of the value.
    pub fn add_made(
        &mut self,
        name: impl Into<String>,
        text: impl Into<String>,
        asked_by: Option<Span>,
    ) -> FileId {
        let id = self.add(name, text);
        if let Some(file) = self.files.last_mut() {
            file.asked_by = asked_by;
        }
        id
    }

    /// Returns the secrets that the texts, their variables and the environment contain.
    pub fn secrets(&self) -> &Secrets {
        &self.secrets
    }

    /// Returns the secrets, to add more.
    pub fn secrets_mut(&mut self) -> &mut Secrets {
        &mut self.secrets
    }

    /// Adds the position of a field. `key` is the span of its key or, for a table with a header, of the key in the header.
    pub fn record(&mut self, path: &FieldPath, key: Option<Span>, value: Span) -> Spot {
        self.places.record(path, Place { key, value })
    }

    /// Adds the position of a field in a table whose position was added before.
    pub fn record_key(&mut self, above: Spot, name: &str, key: Span, value: Span) -> Spot {
        self.places.record_key(above, name, Place { key: Some(key), value })
    }

    /// Adds the position of an item in a list whose position was added before.
    pub fn record_item(&mut self, above: Spot, index: usize, value: Span) -> Spot {
        self.places.record_item(above, index, Place { key: None, value })
    }

    /// Removes the positions of a field and everything below it, because another file replaces it.
    pub fn forget(&mut self, path: &FieldPath) {
        self.places.forget(path);
    }

    /// Returns the position of exactly this value; `None` if it is not in the files.
    pub fn written(&self, path: &FieldPath) -> Option<Span> {
        self.places.get(path).map(|place| place.value)
    }

    /// Returns the position of a comment line that begins with `words`: a section that was commented out.
    pub fn comment(&self, words: &str) -> Option<Span> {
        self.files.iter().zip(0..).find_map(|(file, id)| {
            file.text.match_indices(words).find_map(|(start, _)| {
                let begin = file.text[..start].rfind('\n').map_or(0, |newline| newline + 1);
                let before = file.text[begin..start].trim();
                let comment = !before.is_empty() && before.chars().all(|c| c == '#' || c == ' ');
                comment.then_some(Span { file: FileId(id), start, end: start + words.len() })
            })
        })
    }

    /// Returns the folder of the file that a value came from. Relative paths in it start there.
    pub fn folder(&self, path: &FieldPath) -> PathBuf {
        let name = self.span(path).map_or("", |span| self.name(span.file));
        Path::new(name).parent().map(Path::to_owned).unwrap_or_default()
    }

    /// Returns the name of a text as the user gave it.
    pub fn name(&self, file: FileId) -> &str {
        self.file(file).map_or("", |file| &file.name)
    }

    /// Returns a whole text.
    pub fn text(&self, file: FileId) -> &str {
        self.file(file).map_or("", |file| &file.text)
    }

    /// Returns a whole text that can be read while positions are added.
    pub fn shared_text(&self, file: FileId) -> Arc<str> {
        self.file(file).map_or_else(|| Arc::from(""), |file| Arc::clone(&file.text))
    }

    /// Returns the names of all texts.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|file| file.name.as_str())
    }

    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(|file| &*file.text)
    }

    /// Returns the text of a span.
    pub fn slice(&self, span: Span) -> &str {
        self.text(span.file).get(span.start..span.end).unwrap_or_default()
    }

    /// Returns the span of a value, or of a table's header. If the field is not in the texts, returns that of the nearest
    /// enclosing table.
    pub fn span(&self, path: &FieldPath) -> Option<Span> {
        self.places.nearest(path).map(|place| place.value)
    }

    /// Returns true if the texts contain the field, or the section that it is in.
    pub fn stands(&self, path: &FieldPath) -> bool {
        let section: FieldPath = path.segments().iter().take(1).cloned().collect();
        !section.is_root() && self.places.get(&section).is_some()
    }

    /// Returns the span of a field's key (for a table, in its header). If the field is not in the texts, returns that of the
    /// nearest enclosing table.
    pub fn key_span(&self, path: &FieldPath) -> Option<Span> {
        self.places.nearest(path).map(|place| place.key.unwrap_or(place.value))
    }

    /// Returns the position of a field's value or of the nearest enclosing table, for people.
    pub fn locate(&self, path: &FieldPath) -> Option<Location> {
        let span = self.span(path)?;
        let asked_by = self.file(span.file).and_then(|file| file.asked_by);
        Some(self.location(asked_by.unwrap_or(span)))
    }

    /// Returns the position of an address's section.
    pub fn locate_address(&self, address: &Address) -> Option<Location> {
        self.address_span(address).map(|span| self.location(span))
    }

    /// Returns the span of the key of an address's section.
    pub fn address_span(&self, address: &Address) -> Option<Span> {
        let path: FieldPath = address.section().parse().unwrap_or_default();
        self.key_span(&path)
    }

    /// Returns line and column of a span's start.
    pub fn location(&self, span: Span) -> Location {
        let Some(File { name, text, lines, asked_by: _ }) = self.file(span.file) else {
            return Location { file: String::new(), line: 1, column: 1 };
        };
        let start = span.start.min(text.len());
        let line = lines.partition_point(|begin| *begin <= start).max(1);
        let before = text.get(lines[line - 1]..start).unwrap_or_default();
        Location { file: name.clone(), line, column: before.chars().count() + 1 }
    }

    fn file(&self, FileId(id): FileId) -> Option<&File> {
        self.files.get(usize::try_from(id).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_is_not_there_is_found_at_the_table_around_it() {
        let mut sources = Sources::default();
        let file = sources.add("stack.toml", "# ä\n[a]\nb = 1\n");
        let span = |start, end| Span { file, start, end };
        sources.record(&FieldPath::keys(["a"]), Some(span(6, 7)), span(5, 8));
        sources.record(&FieldPath::keys(["a", "b"]), Some(span(9, 10)), span(13, 14));
        for (path, place) in
            [("a.b", "stack.toml:3:5"), ("a", "stack.toml:2:1"), ("a.c[0].d", "stack.toml:2:1")]
        {
            let path: FieldPath = path.parse().unwrap();
            assert_eq!(sources.locate(&path).unwrap().to_string(), place, "{path}");
        }
        assert_eq!(sources.locate(&FieldPath::keys(["z"])), None);
        assert_eq!(sources.location(span(4, 4)).column, 4, "columns count characters");
        let address = Address::object("a", "Pod", None, "x");
        assert_eq!(sources.locate_address(&address).unwrap().to_string(), "stack.toml:2:2");
    }
}
