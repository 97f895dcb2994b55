//! The findings of `doctor`: a line for each check, and under it the command that fixes the problem.

use serde_json::{Value, json};

use super::style::{Tint, paint, push_line, strip_controls, wrap};

/// How a thing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// As it should be.
    Good,
    /// Works, and may not be meant so.
    Doubtful,
    /// Nothing works without mending it.
    Bad,
    /// Not looked at, or not needed.
    Skipped,
}

impl Mark {
    pub fn word(self) -> &'static str {
        match self {
            Self::Good => "ok",
            Self::Doubtful => "look",
            Self::Bad => "bad",
            Self::Skipped => "-",
        }
    }
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How it is.
    pub mark: Mark,
    /// The subject of the check: `credentials`.
    pub what: &'static str,
    /// The observation.
    pub seen: String,
    /// The fix.
    pub remedy: Option<String>,
}

impl Finding {
    /// Without a cure.
    pub fn new(mark: Mark, what: &'static str, seen: impl Into<String>) -> Self {
        Self { mark, what, seen: seen.into(), remedy: None }
    }

    #[must_use]
    pub fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }

    /// For programs.
    pub fn json(&self) -> Value {
        let Self { mark, what, seen, remedy } = self;
        let mark = match mark {
            Mark::Skipped => "skipped",
            mark => mark.word(),
        };
        json!({ "what": what, "mark": mark, "seen": seen, "cure": remedy })
    }
}

/// Returns the whole text, with colors.
pub fn render(findings: &[Finding], width: usize) -> String {
    let column = findings.iter().map(|finding| finding.what.chars().count()).max().unwrap_or_default();
    let mut text = String::new();
    for Finding { mark, what, seen, remedy } in findings {
        let tint = match mark {
            Mark::Good => Tint::Add,
            Mark::Doubtful => Tint::Change,
            Mark::Bad => Tint::Remove,
            Mark::Skipped => Tint::Dim,
        };
        let first = format!(
            "  {}  {}  ",
            paint(tint, &format!("{:4}", mark.word())),
            paint(Tint::Bold, &format!("{what:column$}"))
        );
        text.push_str(&wrap(&first, &strip_controls(seen), width));
        for line in remedy.iter().flat_map(|remedy| remedy.lines()) {
            // Whole, so that it can be copied.
            push_line(&mut text, &format!("{}-> {}", " ".repeat(column + 10), strip_controls(line)));
        }
    }
    let bad = findings.iter().filter(|finding| finding.mark == Mark::Bad).count();
    let total = match bad {
        0 => "No problems found.".to_owned(),
        1 => "1 problem found.".to_owned(),
        number => format!("{number} problems found."),
    };
    text.push_str(&format!("\n{}\n", paint(Tint::Bold, &total)));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_has_its_cure_below_it() {
        let findings = [
            Finding::new(Mark::Good, "stack", "stack rapids"),
            Finding::new(Mark::Bad, "credentials", "none were found")
                .remedy("gcloud auth application-default login"),
        ];
        let text = anstream::adapter::strip_str(&render(&findings, 80)).to_string();
        let expected = "  ok    stack        stack rapids\n  bad   credentials  none were found\n\
            \x20                    -> gcloud auth application-default login\n\n1 problem found.\n";
        assert_eq!(text, expected);
        assert_eq!(findings[1].json()["mark"], "bad");
    }
}
