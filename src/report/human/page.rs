//! A page of help: a title, paragraphs, rows, an example. What `explain` shows.

use super::style::{Tint, paint, push_line, wrap};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The first line.
    pub title: String,
    /// Paragraphs under it.
    pub about: Vec<String>,
    /// The heading above the rows.
    pub heading: String,
    /// Names, and what is said of each.
    pub rows: Vec<(String, String)>,
    /// Lines that are shown as they stand.
    pub example: Option<String>,
    /// How to go on.
    pub next: Option<String>,
}

/// Returns the page as text, with colors.
pub fn render(page: &Page, width: usize) -> String {
    let Page { title, about, heading, rows, example, next } = page;
    let mut text = String::new();
    push_line(&mut text, &paint(Tint::Bold, title));
    for paragraph in about.iter().filter(|paragraph| !paragraph.is_empty()) {
        text.push('\n');
        text.push_str(&wrap("", paragraph, width));
    }
    if !rows.is_empty() {
        text.push_str(&format!("\n{heading}\n"));
        text.push_str(&table(rows, width));
    }
    if let Some(example) = example {
        text.push_str("\nExample:\n");
        for line in example.lines() {
            push_line(&mut text, &format!("  {line}"));
        }
    }
    if let Some(next) = next {
        text.push('\n');
        text.push_str(&wrap("", next, width));
    }
    text
}

/// Two columns. A name that is longer than its column has a line of its own.
fn table(rows: &[(String, String)], width: usize) -> String {
    let longest = rows.iter().map(|(name, _)| name.chars().count()).max().unwrap_or_default();
    let column = longest.min(width / 3);
    let mut text = String::new();
    for (name, said) in rows {
        let pad = column.saturating_sub(name.chars().count());
        let first = format!("  {}{}  ", paint(Tint::Bold, name), " ".repeat(pad));
        if name.chars().count() <= column {
            text.push_str(&wrap(&first, said, width));
        } else {
            push_line(&mut text, &first);
            text.push_str(&wrap(&" ".repeat(column + 4), said, width));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_in_two_columns_and_long_names_alone() {
        let row = |name: &str, said: &str| (name.to_owned(), said.to_owned());
        let page = Page {
            title: "a.b".to_owned(),
            about: vec!["One two three four five six.".to_owned(), String::new()],
            heading: "Keys:".to_owned(),
            rows: vec![row("key", "Short."), row("a_much_longer_key", "Long.")],
            example: Some("x = 1\ny = 2".to_owned()),
            next: None,
        };
        let text = anstream::adapter::strip_str(&render(&page, 24)).to_string();
        let expected = "a.b\n\nOne two three four five\nsix.\n\nKeys:\n  key       Short.\n  a_much_longer_key\n            Long.\n\n\
                        Example:\n  x = 1\n  y = 2\n";
        assert_eq!(text, expected);
    }
}
