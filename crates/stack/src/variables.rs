//! References in strings: `${var.NAME}` anywhere, `${env.NAME}` in `[vars]` and `[gke]`, and `$${` for a literal `${`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::Options;
use model::address::{FieldPath, Segment};
use model::diag::{Code, Diagnostic, listed, nearest};
use model::secrets::{HIDDEN, Secrets, is_secret};
use model::source::{Sources, Span};

/// The result of resolving references.
#[derive(Default)]
pub(super) struct Resolved {
    /// Problems with references.
    pub(super) diagnostics: Vec<Diagnostic>,
    /// Fields whose reference could not be resolved.
    pub(super) doubtful: Vec<FieldPath>,
    /// Values of variables with the name of a secret.
    pub(super) secrets: Secrets,
}

/// Replaces references in the whole tree by their values. Values of `--var` override variables.
pub(super) fn resolve(tree: &mut Value, sources: &Sources, options: &Options<'_>) -> Resolved {
    let Value::Object(root) = tree else { return Resolved::default() };
    let mut resolver =
        Resolver { sources, options, vars: None, broken: BTreeSet::new(), out: Resolved::default() };
    let vars_path = FieldPath::keys(["vars"]);
    resolver.overrides(root, &vars_path);
    if let Some(vars) = root.get_mut("vars") {
        resolver.walk(vars, &vars_path);
    }
    resolver.broken = resolver.out.doubtful.iter().filter_map(last_key).collect();
    let vars = root.get("vars").and_then(Value::as_object).cloned().unwrap_or_default();
    for (_, value) in vars.iter().filter(|(name, _)| is_secret(name)) {
        resolver.out.secrets.add(value.as_str().unwrap_or_default(), HIDDEN);
    }
    resolver.vars = Some(vars);
    for (key, value) in root.iter_mut().filter(|(key, _)| *key != "vars") {
        resolver.walk(value, &FieldPath::root().key(key));
    }
    resolver.out
}

fn last_key(path: &FieldPath) -> Option<String> {
    match path.segments().last()? {
        Segment::Key(key) => Some(key.clone()),
        Segment::Index(_) => None,
    }
}

#[derive(Debug, PartialEq)]
enum Piece<'t> {
    Text(&'t str),
    Var { name: &'t str, raw: &'t str },
    Env { name: &'t str, raw: &'t str },
    Bad { raw: &'t str },
}

/// Splits a string at its references.
fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        let (before, reference) = rest.split_at(at);
        if let Some(before) = before.strip_suffix('$') {
            pieces.push(Piece::Text(before));
            pieces.push(Piece::Text("${"));
            rest = &reference[2..];
            continue;
        }
        pieces.push(Piece::Text(before));
        let end = reference.find('}').map_or(reference.len(), |end| end + 1);
        let raw = &reference[..end];
        rest = &reference[end..];
        let named = |kind: &str| {
            let name = raw.strip_prefix("${")?.strip_suffix('}')?.strip_prefix(kind)?;
            let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
            (!name.is_empty() && name.chars().all(fits)).then_some(name)
        };
        pieces.push(match (named("var."), named("env.")) {
            (Some(name), _) => Piece::Var { name, raw },
            (None, Some(name)) => Piece::Env { name, raw },
            (None, None) => Piece::Bad { raw },
        });
    }
    pieces.push(Piece::Text(rest));
    pieces.retain(|piece| *piece != Piece::Text(""));
    pieces
}

struct Resolver<'a> {
    sources: &'a Sources,
    options: &'a Options<'a>,
    /// `None` while `[vars]` itself is resolved.
    vars: Option<Map<String, Value>>,
    /// Variables that could not be resolved. They are reported once, and not again where they are used.
    broken: BTreeSet<String>,
    out: Resolved,
}

impl Resolver<'_> {
    fn walk(&mut self, value: &mut Value, path: &FieldPath) {
        match value {
            Value::String(text) if text.contains("${") => {
                let text = text.clone();
                *value = self.string(&text, path);
            }
            Value::Array(items) => {
                items.iter_mut().enumerate().for_each(|(index, item)| self.walk(item, &path.index(index)));
            }
            Value::Object(table) => {
                table.iter_mut().for_each(|(key, value)| self.walk(value, &path.key(key)));
            }
            _ => {}
        }
    }

    /// Resolves a string. A string that is exactly one reference gets the variable's type.
    fn string(&mut self, text: &str, path: &FieldPath) -> Value {
        let pieces = pieces(text);
        let mut whole = String::new();
        for piece in &pieces {
            let value = match piece {
                Piece::Text(text) => {
                    whole.push_str(text);
                    continue;
                }
                Piece::Var { name, raw } => self.variable(name, raw, path),
                Piece::Env { name, raw } => self.environment(name, raw, path),
                Piece::Bad { raw } => self.bad(raw, path),
            };
            match value {
                value if pieces.len() == 1 => return value,
                Value::String(text) => whole.push_str(&text),
                Value::Null => {}
                value => whole.push_str(&value.to_string()),
            }
        }
        Value::String(whole)
    }

    fn variable(&mut self, name: &str, raw: &str, path: &FieldPath) -> Value {
        let span = self.place(raw, path);
        let Some(vars) = &self.vars else {
            let diagnostic =
                Diagnostic::error(Code::VariableInVariable, "a variable cannot refer to another one")
                    .at(span, "used in `[vars]` itself")
                    .help("write the value out, or combine the variables where they are used");
            return self.refuse(diagnostic, path);
        };
        if let Some(value) = vars.get(name) {
            if self.broken.contains(name) {
                self.out.doubtful.push(path.clone());
            }
            return value.clone();
        }
        let diagnostic = Diagnostic::error(Code::UnknownVariable, format!("unknown variable `{name}`"));
        let diagnostic = diagnostic.at(span, "not in `[vars]`").help(self.known_variables(name));
        self.refuse(diagnostic, path)
    }

    fn known_variables(&self, name: &str) -> String {
        let names: Vec<&str> = self.vars.iter().flat_map(Map::keys).map(String::as_str).collect();
        match nearest(name, names.iter().copied()) {
            Some(near) => format!("did you mean `${{var.{near}}}`?"),
            None if names.is_empty() => format!("add `{name} = …` to `[vars]`"),
            None => format!("add it to `[vars]`, which has {}", listed(names, "and")),
        }
    }

    fn environment(&mut self, name: &str, raw: &str, path: &FieldPath) -> Value {
        let span = self.place(raw, path);
        let top = path.segments().first();
        let allowed = ["vars", "gke"].iter().any(|key| top == Some(&Segment::Key((*key).to_owned())));
        if !allowed {
            let diagnostic = Diagnostic::error(
                Code::EnvironmentNotHere,
                "environment variables are read in `[vars]` and `[gke]` only",
            )
            .at(span, "not here")
            .help(format!("put `NAME = \"{raw}\"` into `[vars]` and write `${{var.NAME}}` here"));
            return self.refuse(diagnostic, path);
        }
        if let Some(value) = (self.options.env)(name) {
            if is_secret(name) {
                self.out.secrets.add(&value, &format!("${{env.{name}}}"));
            }
            return Value::String(value);
        }
        let message = format!("the environment variable `{name}` is not set");
        let diagnostic = Diagnostic::error(Code::MissingEnvironment, message)
            .at(span, "needed here")
            .help(format!("set it and run the command again: `export {name}=…`"));
        self.refuse(diagnostic, path);
        // Its type is known to be text, so the rest of the file can still be checked.
        Value::String(String::new())
    }

    fn bad(&mut self, raw: &str, path: &FieldPath) -> Value {
        let name = raw.trim_start_matches("${").trim_end_matches('}').trim();
        let plain =
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
        let declared = self.vars.as_ref().is_some_and(|vars| vars.contains_key(name));
        let help = match (plain, declared) {
            (true, true) => format!("did you mean `${{var.{name}}}`?"),
            (true, false) if name.chars().all(|c| !c.is_ascii_lowercase()) => {
                format!("did you mean `${{env.{name}}}`?")
            }
            _ => "write `$${` for a literal `${`".to_owned(),
        };
        let diagnostic = Diagnostic::error(Code::BadReference, format!("`{raw}` is not a reference"))
            .at(self.place(raw, path), "neither `${var.NAME}` nor `${env.NAME}`")
            .help(help);
        self.refuse(diagnostic, path)
    }

    fn refuse(&mut self, diagnostic: Diagnostic, path: &FieldPath) -> Value {
        self.out.diagnostics.push(diagnostic);
        self.out.doubtful.push(path.clone());
        Value::Null
    }

    /// Returns the span of a reference in its string, or of the whole string if it contains escapes.
    fn place(&self, raw: &str, path: &FieldPath) -> Option<Span> {
        let Span { file, start, end } = self.sources.span(path)?;
        let whole = Span { file, start, end };
        let Some(at) = self.sources.slice(whole).find(raw) else { return Some(whole) };
        Some(Span { file, start: start + at, end: start + at + raw.len() })
    }

    fn overrides(&mut self, root: &mut Map<String, Value>, vars_path: &FieldPath) {
        let given: &BTreeMap<String, String> = self.options.vars;
        let mut vars = root.get_mut("vars").and_then(Value::as_object_mut);
        for (name, text) in given {
            let path = vars_path.key(name);
            let Some(value) = vars.as_mut().and_then(|vars| vars.get_mut(name)) else {
                let names = vars.iter().flat_map(|vars| vars.keys()).map(String::as_str);
                let diagnostic = Diagnostic::error(
                    Code::UnknownVariable,
                    format!("`--var {name}=…` sets a variable that `[vars]` does not have"),
                );
                self.out.diagnostics.push(match nearest(name, names) {
                    Some(near) => diagnostic.help(format!("did you mean `--var {near}=…`?")),
                    None => diagnostic.help(format!("declare it first: `{name} = \"…\"` in `[vars]`")),
                });
                continue;
            };
            let kind = match value {
                Value::Bool(_) => text.parse().map(Value::Bool).map_err(|_| "`true` or `false`"),
                Value::Number(number) if number.is_i64() => {
                    text.parse::<i64>().map(Value::from).map_err(|_| "a whole number")
                }
                Value::Number(_) => text.parse::<f64>().map(Value::from).map_err(|_| "a number"),
                _ => Ok(Value::String(text.clone())),
            };
            match kind {
                Ok(given) => *value = given,
                Err(expected) => self.out.diagnostics.push(
                    Diagnostic::error(
                        Code::BadOverride,
                        format!("`--var {name}={}` must be {expected}", shown(name, text)),
                    )
                    .at(self.sources.span(&path), "because it is one here"),
                ),
            }
        }
    }
}

/// Returns the text of a variable that messages may show.
fn shown<'t>(name: &str, text: &'t str) -> &'t str {
    if is_secret(name) { "…" } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_cut_at_their_references() {
        let cases: [(&str, &[Piece<'_>]); 6] = [
            ("plain $ {x}", &[Piece::Text("plain $ {x}")]),
            ("${var.a}", &[Piece::Var { name: "a", raw: "${var.a}" }]),
            (
                "a-${env.B}-${var.c}",
                &[
                    Piece::Text("a-"),
                    Piece::Env { name: "B", raw: "${env.B}" },
                    Piece::Text("-"),
                    Piece::Var { name: "c", raw: "${var.c}" },
                ],
            ),
            ("x$${var.a}", &[Piece::Text("x"), Piece::Text("${"), Piece::Text("var.a}")]),
            ("${var.a", &[Piece::Bad { raw: "${var.a" }]),
            ("${a}", &[Piece::Bad { raw: "${a}" }]),
        ];
        for (text, expected) in cases {
            assert_eq!(pieces(text), expected, "{text}");
        }
    }
}
