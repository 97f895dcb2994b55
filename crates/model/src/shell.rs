//! Text that people paste: command lines and strings of Python. Parts may come from a stack, a host or a scheduler. So each part
//! is a single quoted word, whatever it contains.

use std::fmt;

/// A command line for a POSIX shell. It can only be made of words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShellLine(Vec<String>);

impl ShellLine {
    /// Creates a command line from the name of a program.
    pub fn of(program: &str) -> Self {
        Self(vec![quoted(program)])
    }

    /// Parses a line of words and quotes, such as Python's `shlex.join` writes; `None` for any other line.
    pub fn read(text: &str) -> Option<Self> {
        let (mut words, mut word, mut rest) = (Vec::new(), None::<String>, text);
        while let Some(first) = rest.chars().next() {
            let after = &rest[first.len_utf8()..];
            rest = match first {
                ' ' => {
                    words.extend(word.take());
                    after
                }
                '\'' | '"' => {
                    let (inside, after) = after.split_once(first)?;
                    // Within these a shell still expands.
                    if first == '"' && inside.contains(['$', '`', '\\']) {
                        return None;
                    }
                    word.get_or_insert_default().push_str(inside);
                    after
                }
                plain if is_plain(plain) => {
                    word.get_or_insert_default().push(plain);
                    after
                }
                _ => return None,
            };
        }
        words.extend(word);
        let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
        (!words.is_empty()).then_some(Self(words))
    }

    /// Adds words.
    #[must_use]
    pub fn words<W: AsRef<str>>(mut self, words: impl IntoIterator<Item = W>) -> Self {
        self.0.extend(words.into_iter().map(|word| quoted(word.as_ref())));
        self
    }

    /// Adds an option and a path. A shell still expands `~/` in the path.
    #[must_use]
    pub fn path(mut self, option: &str, path: &str) -> Self {
        self.0.push(quoted(option));
        self.0.push(match path.strip_prefix("~/") {
            Some(rest) => format!("~/{}", quoted(rest)),
            None => quoted(path),
        });
        self
    }
}

impl fmt::Display for ShellLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(" "))
    }
}

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || "_-./=:@%+,".contains(c)
}

/// Returns a word quoted for a shell. Control characters become `?`.
pub fn quoted(word: &str) -> String {
    let word: String = word.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
    if !word.is_empty() && word.chars().all(is_plain) {
        word
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Returns a Python string literal. Python understands JSON's escapes.
pub fn python_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_shells() {
        for (word, shown) in [
            ("a/b.c", "a/b.c"),
            ("a b", "'a b'"),
            ("it's", r"'it'\''s'"),
            ("", "''"),
            ("$(touch x)", "'$(touch x)'"),
            ("a;b`c`|d", "'a;b`c`|d'"),
            ("a\nb\u{1b}c", "'a?b?c'"),
        ] {
            assert_eq!(quoted(word), shown);
        }
    }

    #[test]
    fn a_line_is_the_words_that_it_was_made_of() {
        let hostile = ["me;touch x", "-o", "$(id)", "`id`", "it's", "a b"];
        let line = ShellLine::of("printf").words(["%s\\n"]).words(hostile).to_string();
        let said = std::process::Command::new("sh").args(["-c", &line]).output().unwrap();
        assert_eq!(String::from_utf8(said.stdout).unwrap().lines().collect::<Vec<_>>(), hostile);
        assert_eq!(ShellLine::of("ssh").path("-i", "~/.ssh/a b").to_string(), "ssh -i ~/'.ssh/a b'");
        assert_eq!(ShellLine::of("ssh").path("-i", "~/.ssh/a").to_string(), "ssh -i ~/.ssh/a");
    }

    #[test]
    fn lines_of_others_are_words_or_nothing() {
        let read = |text: &str| ShellLine::read(text).map(|line| line.to_string());
        for line in ["podman run --rm image:1 python3", "a 'b c' d", "a 'b'\"'\"'c'"] {
            assert!(read(line).is_some(), "{line}");
        }
        assert_eq!(read("a  'b c'").as_deref(), Some("a 'b c'"));
        for hostile in
            ["", "curl evil|sh", "a;b", "a `b`", "a $(b)", "a \"$(b)\"", "a 'b", "a\nb", "a > b", "~/a"]
        {
            assert_eq!(read(hostile), None, "{hostile}");
        }
    }

    #[test]
    fn strings_of_python_hold_any_text() {
        assert_eq!(python_string("tcp://n1:8786"), "\"tcp://n1:8786\"");
        assert_eq!(python_string("x\"); evil(\"\\\n"), r#""x\"); evil(\"\\\n""#);
    }
}
