//! Mistakes in a faults file.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The range in the text, in bytes.
    pub at: Range<usize>,
    /// The description of the mistake.
    pub message: String,
    /// The text to write instead.
    pub help: Option<String>,
}

/// The mistakes of a file, with its text.
#[derive(Clone, Debug)]
pub struct Mistakes {
    /// The file.
    pub path: PathBuf,
    /// The text of the file.
    pub text: String,
    /// The mistakes, in the order of the text.
    pub problems: Vec<Problem>,
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, text, problems } = self;
        for (count, Problem { at, message, .. }) in problems.iter().enumerate() {
            let line = text[..at.start.min(text.len())].matches('\n').count() + 1;
            let separator = if count == 0 { "" } else { "; " };
            write!(f, "{separator}{}:{line}: {message}", path.display())?;
        }
        Ok(())
    }
}
