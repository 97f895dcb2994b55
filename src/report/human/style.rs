//! Colours and line breaking. The only file that knows colours.

use anstyle::{AnsiColor, Style};

use crate::plan::Action;

/// What a piece of text is, as far as its look goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tint {
    /// Made, passed.
    Add,
    /// Changed, warned about.
    Change,
    /// Taken away, failed.
    Remove,
    /// Run.
    Run,
    /// Beside the point: places, legends.
    Dim,
    /// The point.
    Bold,
}

/// The text in its colour, ended by a reset.
pub fn paint(tint: Tint, text: &str) -> String {
    let style = match tint {
        Tint::Add => AnsiColor::Green.on_default(),
        Tint::Change => AnsiColor::Yellow.on_default(),
        Tint::Remove => AnsiColor::Red.on_default(),
        Tint::Run => AnsiColor::Cyan.on_default(),
        Tint::Dim => Style::new().dimmed(),
        Tint::Bold => Style::new().bold(),
    };
    if text.is_empty() { String::new() } else { format!("{style}{text}{style:#}") }
}

/// The text in one of a few colours, the same for the same number.
pub fn paint_nth(nth: usize, text: &str) -> String {
    let colours = [
        AnsiColor::Cyan,
        AnsiColor::Green,
        AnsiColor::Magenta,
        AnsiColor::Yellow,
        AnsiColor::Blue,
        AnsiColor::BrightCyan,
        AnsiColor::BrightGreen,
        AnsiColor::BrightMagenta,
    ];
    let style = colours[nth % colours.len()].on_default();
    format!("{style}{text}{style:#}")
}

/// Terraform's symbols, three columns wide, and `>` for a check.
pub fn symbol(action: Action) -> String {
    match action {
        Action::Keep => "   ".to_owned(),
        Action::Create => paint(Tint::Add, "  +"),
        Action::Update => paint(Tint::Change, "  ~"),
        Action::Replace => format!("{}/{}", paint(Tint::Remove, "-"), paint(Tint::Add, "+")),
        Action::Delete => paint(Tint::Remove, "  -"),
        Action::Forget => paint(Tint::Dim, "  ."),
        Action::Run => paint(Tint::Run, "  >"),
    }
}

/// Text from outside without escape codes and other control characters: a log or a label must not steer the
/// terminal.
pub fn tame(text: &str) -> String {
    let stripped = anstream::adapter::strip_str(text).to_string();
    stripped
        .chars()
        .map(|c| if c == '\t' { ' ' } else { c })
        .filter(|c| *c == '\n' || !c.is_control())
        .collect()
}

/// Columns that a text takes, its colours aside.
pub fn columns(text: &str) -> usize {
    anstream::adapter::strip_str(text).map(|piece| piece.chars().count()).sum()
}

/// Breaks a text between words. The first line begins with `first`, the others with as many blanks. A word
/// longer than a line stays whole, so that it can be copied.
pub fn wrap(first: &str, text: &str, width: usize) -> String {
    let indent = columns(first);
    let mut out = String::new();
    for paragraph in text.lines() {
        let mut line = if out.is_empty() { first.to_owned() } else { " ".repeat(indent) };
        let mut used = indent;
        for word in paragraph.split(' ').filter(|word| !word.is_empty()) {
            let length = columns(word);
            if used > indent && used + 1 + length > width {
                push_line(&mut out, &line);
                line = " ".repeat(indent);
                used = indent;
            }
            if used > indent {
                line.push(' ');
                used += 1;
            }
            line.push_str(word);
            used += length;
        }
        push_line(&mut out, &line);
    }
    out
}

/// Adds a line without blanks at its end.
pub fn push_line(out: &mut String, line: &str) {
    out.push_str(line.trim_end());
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_broken_between_words_and_colours_take_no_room() {
        assert_eq!(wrap("> ", "one two three", 9), "> one two\n  three\n");
        assert_eq!(wrap("> ", &format!("{} two", paint(Tint::Bold, "one")), 9).lines().count(), 1);
        assert_eq!(wrap("  ", "https://a-long-word.example", 9), "  https://a-long-word.example\n");
    }

    #[test]
    fn escape_codes_from_outside_are_taken_out() {
        assert_eq!(tame("\u{1b}[31mred\u{1b}[0m\u{7}\tend\r\nnext"), "red end\nnext");
    }
}
