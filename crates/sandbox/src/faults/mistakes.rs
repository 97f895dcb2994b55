//! What is wrong with a file of faults.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where, in bytes of the text.
    pub at: Range<usize>,
    /// What is wrong.
    pub message: String,
    /// What to write instead.
    pub help: Option<String>,
}

/// The mistakes of a file, with its text.
#[derive(Clone, Debug)]
pub struct Mistakes {
    /// The file.
    pub path: PathBuf,
    /// What it says.
    pub text: String,
    /// What is wrong with it, in its order.
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
