//! Colors and line breaking. The only file that knows colors.

use std::borrow::Cow;

use anstyle::{AnsiColor, Style};

use plan::Action;

/// Styles of a piece of text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tint {
    /// Made, passed.
    Add,
    /// Changed, warned about.
    Change,
    /// Taken away, failed.
    Remove,
    Run,
    /// Beside the point: places, legends.
    Dim,
    /// The point.
    Bold,
}

/// Returns the text in its color, ended by a reset.
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

/// Returns the text in one of a few colors, the same for the same number.
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
pub fn strip_controls(text: &str) -> String {
    let stripped = anstream::adapter::strip_str(text).to_string();
    stripped
        .chars()
        .map(|c| if c == '\t' { ' ' } else { c })
        .filter(|c| *c == '\n' || !is_hostile(*c))
        .collect()
}

/// Characters that show nothing themselves and change how others are shown: control characters, C1 among them; those
/// that turn the direction of a line; those without width; other ends of lines.
/// Source: Unicode TR 36 and 39, CVE-2021-42574 ("Trojan Source").
fn is_hostile(c: char) -> bool {
    let turns =
        matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let no_width = matches!(c, '\u{ad}' | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2064}' | '\u{feff}');
    c.is_control() || turns || no_width || matches!(c, '\u{2028}' | '\u{2029}')
}

/// Returns a text that is safe for a stream, whatever its source. Hostile characters are escaped as in JSON and TOML
/// strings, so that both formats read them the same way. Of escape codes, only those of colors remain.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.chars().any(|c| is_hostile(c) && c != '\n') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let colour = rest.strip_prefix("\u{1b}[").and_then(|code| {
            let end = code.find(|c: char| !c.is_ascii_digit() && c != ';')?;
            code[end..].starts_with('m').then_some("\u{1b}[".len() + end + 1)
        });
        let taken = colour.unwrap_or(c.len_utf8());
        match c {
            _ if colour.is_some() || matches!(c, '\n' | '\t') || !is_hostile(c) => {
                out.push_str(&rest[..taken]);
            }
            c => out.push_str(&format!("\\u{:04x}", u32::from(c))),
        }
        rest = &rest[taken..];
    }
    Cow::Owned(out)
}

/// Columns that a text takes, its colors aside.
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
        assert_eq!(strip_controls("\u{1b}[31mred\u{1b}[0m\u{7}\tend\r\nnext"), "red end\nnext");
        assert_eq!(strip_controls("a\u{202e}b\u{200b}c\u{2028}d\u{9b}e\u{2067}f\u{feff}"), "abcdef");
    }

    #[test]
    fn nothing_hostile_reaches_a_stream() {
        for (text, expect) in [
            ("\u{1b}[1mbold\u{1b}[0m\n", "\u{1b}[1mbold\u{1b}[0m\n"),
            ("\u{1b}[2Jx\u{1b}]0;t\u{7}\r", "\\u001b[2Jx\\u001b]0;t\\u0007\\u000d"),
            ("\"\u{9b}31m \u{202e}\u{2066}\u{200b}\u{2029}\"", "\"\\u009b31m \\u202e\\u2066\\u200b\\u2029\""),
            ("äöü → 日本語 ✓\t", "äöü → 日本語 ✓\t"),
        ] {
            assert_eq!(printable(text), expect);
        }
        let hostile: String = (0..=0x10_ffff).filter_map(char::from_u32).filter(|c| is_hostile(*c)).collect();
        let shown = printable(&hostile).replace(['\n', '\t'], "");
        assert!(shown.is_ascii() && shown.chars().all(|c| c.is_ascii_graphic()), "{shown:?}");
        let json: String = serde_json::from_str(&printable(&serde_json::json!(hostile).to_string())).unwrap();
        assert_eq!(json, hostile, "JSON stays what it says");
    }
}
