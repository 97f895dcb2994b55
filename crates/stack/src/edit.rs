//! Changes or removes a single value of a stack file. Comments and layout stay unchanged.

use std::path::{Path, PathBuf};

use toml_edit::{DocumentMut, Item};

use super::Sources;
use model::address::{FieldPath, Segment};
use model::diag::{Code, Diagnostic};

/// A file with one value changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    pub file: PathBuf,
    /// Its text before.
    pub before: String,
    /// Its text afterwards.
    pub after: String,
    /// The change in words: `stack.toml:12:20: replicas = 5 (was 2)`.
    pub what: String,
}

/// Returns the edit that sets a number or a text of the stack: in the file that has the value, or for a default in the file that
/// has the section. A value from a file that the stack extends is overridden in the stack's own file.
///
/// # Errors
/// The value is not in a TOML file, nor a number in a YAML file: it comes from a variable or from another type of file.
pub fn value(
    sources: &Sources,
    place: &FieldPath,
    value: impl Into<toml_edit::Value>,
) -> Result<Edit, Diagnostic> {
    let value = value.into();
    let written = sources.written(place);
    let Some(span) = written.or_else(|| sources.span(place)) else {
        return Err(cannot(place, "it is not in a file", "write it into the stack file"));
    };
    let (name, shown) = (sources.name(span.file), sources.location(span).to_string());
    let by_hand = format!("change it by hand at {shown}, then apply");
    let toml = PathBuf::from(name).extension().is_some_and(|extension| extension == "toml");
    let was = written.map(|span| sources.slice(span).to_owned());
    // Of YAML only a plain number can be exchanged without knowing what else is around it.
    let plain = value.is_integer() && was.as_ref().is_some_and(|was| was.parse::<u32>().is_ok());
    let can = toml || plain && is_yaml(name);
    if !can {
        let why = format!("it is in {name}, and only TOML, and numbers in YAML, can be changed");
        return Err(cannot(place, &why, &by_hand).at(Some(span), "here"));
    }
    // The stack's own file is read first.
    if let Some(top) = sources.names().next().filter(|top| toml && *top != name) {
        return over(sources, top, place, &value, &shown);
    }
    if let Some(was) = was.as_ref().filter(|was| was.contains("${")) {
        let help = "change the variable in `[vars]`, or give it with `--var`; everything that uses it changes \
             with it";
        return Err(cannot(place, &format!("it comes from {was}"), help).at(Some(span), "here"));
    }
    let before = sources.text(span.file).to_owned();
    let after = match &was {
        // The one value and no other byte.
        Some(_) => Some(format!("{}{value}{}", &before[..span.start], &before[span.end..])),
        None => added(&before, place, &value),
    };
    let after = after.ok_or_else(|| cannot(place, "it is not in a file", &by_hand).at(Some(span), "here"))?;
    let key = match place.segments().last() {
        Some(Segment::Key(key)) => key.as_str(),
        Some(Segment::Index(_)) | None => "",
    };
    let was = was.map_or_else(|| "was not given".to_owned(), |was| format!("was {was}"));
    Ok(Edit { file: PathBuf::from(name), before, after, what: format!("{shown}: {key} = {value} ({was})") })
}

/// Returns the edit that overrides the value in the top file, since the base file may be shared with other stacks.
fn over(
    sources: &Sources,
    top: &str,
    place: &FieldPath,
    value: &toml_edit::Value,
    shown: &str,
) -> Result<Edit, Diagnostic> {
    let before = sources.texts().next().unwrap_or_default().to_owned();
    let help = format!("write it to {top} by hand, or change {shown}");
    let after = added(&before, place, value)
        .ok_or_else(|| cannot(place, &format!("{top} has nowhere to put it"), &help))?;
    let what = format!("{top}: {place} = {value} (overrides {shown}, which other stacks may use)");
    Ok(Edit { file: PathBuf::from(top), before, after, what })
}

fn is_yaml(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
}

/// Returns the edit that removes a key from its file. `value` is its current text. A comment after it stays, on its own line.
///
/// # Errors
/// The value is not in a TOML file, or its text differs: it comes from a variable.
pub fn without(sources: &Sources, place: &FieldPath, value: &str) -> Result<Edit, Diagnostic> {
    let cannot = |why: String, help: &str| {
        Diagnostic::error(Code::CannotEdit, format!("`{place}` cannot be removed from the file: {why}"))
            .help(help)
    };
    let (Some(span), Some(key)) = (sources.written(place), sources.key_span(place)) else {
        return Err(cannot("it is not in a file".to_owned(), "change the stack file by hand"));
    };
    let (name, before) = (sources.name(span.file), sources.text(span.file));
    let shown = sources.location(key).to_string();
    let stands = sources.slice(span);
    if !name.ends_with(".toml") || stands != value || key.file != span.file || key.start > span.start {
        let problem = cannot(format!("the file has `{stands}`"), "change it by hand, then try again");
        return Err(problem.at(Some(span), "here"));
    }
    let line = before[..key.start].rfind('\n').map_or(0, |newline| newline + 1);
    let end = before[span.end..].find('\n').map_or(before.len(), |newline| span.end + newline + 1);
    let lead = &before[line..key.start];
    let behind = before[span.end..end].trim();
    let alone = lead.trim().is_empty() || lead.trim_end().ends_with('.') && !lead.contains(['{', '=']);
    let (from, to, instead) = match alone && (behind.is_empty() || behind.starts_with('#')) {
        true if behind.is_empty() => (line, end, String::new()),
        true => (line, end, format!("{behind}\n")),
        false => {
            let (from, to) = between_commas(before, key.start, span.end);
            (from, to, String::new())
        }
    };
    let after = format!("{}{instead}{}", &before[..from], &before[to..]);
    let what = format!("{shown}: `{} = {value}` removed", sources.slice(key));
    Ok(Edit { file: PathBuf::from(name), before: before.to_owned(), after, what })
}

/// Returns the range of an entry of an inline table, including the comma to remove with it.
fn between_commas(text: &str, start: usize, end: usize) -> (usize, usize) {
    let behind = &text[end..];
    let blanks = behind.len() - behind.trim_start_matches([' ', '\t']).len();
    if behind[blanks..].starts_with(',') {
        let rest = &behind[blanks + 1..];
        let more = rest.len() - rest.trim_start_matches([' ', '\t']).len();
        return (start, end + blanks + 1 + more);
    }
    let before = text[..start].trim_end();
    (before.strip_suffix(',').map_or(start, |before| before.trim_end().len()), end)
}

fn cannot(place: &FieldPath, why: &str, help: &str) -> Diagnostic {
    Diagnostic::error(Code::CannotKeep, format!("`{place}` cannot be written: {why}")).help(help)
}

/// Returns the text with a key added; `None` if there is no table for it.
fn added(before: &str, place: &FieldPath, value: &toml_edit::Value) -> Option<String> {
    let mut document: DocumentMut = before.parse().ok()?;
    set(document.as_item_mut(), place.segments(), value)?;
    let after = document.to_string();
    // The library writes all lines with `\n`.
    let windows = before.contains("\r\n") && !before.replace("\r\n", "").contains('\n');
    Some(if windows { after.replace('\n', "\r\n") } else { after })
}

fn set(item: &mut Item, path: &[Segment], value: &toml_edit::Value) -> Option<()> {
    let (segment, rest) = path.split_first()?;
    match segment {
        Segment::Key(key) => {
            let table = item.as_table_like_mut()?;
            if rest.is_empty() {
                table.insert(key, toml_edit::value(value.clone()));
                return Some(());
            }
            if !table.contains_key(key) {
                table.insert(key, toml_edit::value(toml_edit::InlineTable::new()));
            }
            set(table.get_mut(key)?, rest, value)
        }
        Segment::Index(index) => set(item.get_mut(*index)?, rest, value),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{Options, parse_text};

    const HEAD: &str = "[stack]\nname = \"s\"\n[kubernetes]\n[dask_operator]\nversion = \"2026.3.0\"\n";

    fn edit(text: &str, place: &str) -> Result<String, String> {
        let head = if text.contains("\r\n") { HEAD.replace('\n', "\r\n") } else { HEAD.to_owned() };
        let text = format!("{head}{text}");
        let options = Options { env: &|_| None, vars: &BTreeMap::new(), helm: None };
        let loaded = parse_text("stack.toml", &text, &options).unwrap();
        let edit = value(&loaded.sources, &place.parse().unwrap(), 5);
        let edit = edit.map_err(|problem| problem.message)?;
        let again = parse_text("stack.toml", &edit.after, &options).unwrap();
        let tree = serde_json::to_value(again.stack).unwrap();
        let place: FieldPath = place.parse().unwrap();
        assert_eq!(place.find(&tree), Some(&serde_json::json!(5)), "{}", edit.after);
        Ok(edit.after[head.len()..].to_owned())
    }

    #[test]
    fn one_value_changes_and_nothing_else() {
        let worker = "dask_cluster.d.worker.replicas";
        let table = [
            (
                "[dask_cluster.d] # the one\nimage = \"i\"\nworker = { cpu = \"1\",  replicas = 2 } # two\n",
                worker,
                "[dask_cluster.d] # the one\nimage = \"i\"\nworker = { cpu = \"1\",  replicas = 5 } # two\n",
            ),
            (
                "[dask_cluster.d]\nimage = \"i\"\n\n  [dask_cluster.d.worker]\n  replicas   =   2   # two\n",
                worker,
                "[dask_cluster.d]\nimage = \"i\"\n\n  [dask_cluster.d.worker]\n  replicas   =   5   # two\n",
            ),
            (
                "[dask_cluster.d]\nimage = \"i\"\nworker.replicas = 2\n",
                worker,
                "[dask_cluster.d]\nimage = \"i\"\nworker.replicas = 5\n",
            ),
            (
                "[dask_cluster.d]\nimage = \"i\"\nworker = { cpu = \"1\" }\n",
                worker,
                "[dask_cluster.d]\nimage = \"i\"\nworker = { cpu = \"1\" , replicas = 5 }\n",
            ),
            (
                "[dask_cluster.d]\nimage = \"i\" # last\n\n# end\n",
                worker,
                "[dask_cluster.d]\nimage = \"i\" # last\nworker = { replicas = 5 }\n\n# end\n",
            ),
            (
                "[dask_cluster.d]\nimage = \"i\"\nworker = { replicas = { start = 2 } }\n",
                "dask_cluster.d.worker.replicas.start",
                "[dask_cluster.d]\nimage = \"i\"\nworker = { replicas = { start = 5 } }\n",
            ),
            (
                "[dask_cluster.d]\r\nimage = \"i\"\r\n",
                worker,
                "[dask_cluster.d]\r\nimage = \"i\"\r\nworker = { replicas = 5 }\r\n",
            ),
            (
                "[dask_cluster.\"d\"]\r\nimage = \"i\"\r\n[dask_cluster.d.group.g]\r\nreplicas = 1_0\r\n",
                "dask_cluster.d.group.g.replicas",
                "[dask_cluster.\"d\"]\r\nimage = \"i\"\r\n[dask_cluster.d.group.g]\r\nreplicas = 5\r\n",
            ),
        ];
        for (before, place, after) in table {
            assert_eq!(edit(before, place).as_deref(), Ok(after), "{before}");
        }
    }

    #[test]
    fn a_text_is_written_in_the_form_of_the_file() {
        let rest = "[gke]\nproject = \"p\"\nlocation = \"us-central1-c\"\n[cluster]\nname = \"c\"\nworkload_identity = true\n[node_pool.a]\nmachine_type = \"e2-standard-4\"\n";
        for (before, place, after) in [
            ("name = \"s\"\n", "stack.ttl", "name = \"s\"\nttl = \"4h\"\n"),
            ("name = \"s\"\nttl = '8h' # a day\n", "stack.ttl", "name = \"s\"\nttl = \"4h\" # a day\n"),
            (
                "name = \"s\"\nttl = { after = \"8h\", destroy = true }\n",
                "stack.ttl.after",
                "name = \"s\"\nttl = { after = \"4h\", destroy = true }\n",
            ),
        ] {
            let options = Options { env: &|_| None, vars: &BTreeMap::new(), helm: None };
            let loaded = parse_text("stack.toml", &format!("[stack]\n{before}{rest}"), &options).unwrap();
            let edit = value(&loaded.sources, &place.parse().unwrap(), "4h").unwrap();
            assert_eq!(edit.after, format!("[stack]\n{after}{rest}"));
        }
    }

    #[test]
    fn a_variable_is_left_to_people() {
        let text = "[vars]\nn = 2\n[dask_cluster.d]\nimage = \"i\"\nworker = { replicas = \"${var.n}\" }\n";
        let said = edit(text, "dask_cluster.d.worker.replicas").unwrap_err();
        assert_eq!(said, "`dask_cluster.d.worker.replicas` cannot be written: it comes from \"${var.n}\"");
    }

    #[test]
    fn a_key_goes_and_its_comment_stays() {
        let table = [
            (
                "[cluster]\nname = \"c\"\nmanage = false   # others'\n# next\n",
                "cluster.manage",
                "[cluster]\nname = \"c\"\n# others'\n# next\n",
            ),
            ("[node_pool.a] # pool\n  manage = false\n", "node_pool.a.manage", "[node_pool.a] # pool\n"),
            (
                "cluster = { name = \"c\", manage = false } # one\n",
                "cluster.manage",
                "cluster = { name = \"c\" } # one\n",
            ),
            (
                "cluster = { manage = false, name = \"c\" }\n",
                "cluster.manage",
                "cluster = { name = \"c\" }\n",
            ),
            ("node_pool.a.manage = false\n", "node_pool.a.manage", ""),
        ];
        let head = "gke = { project = \"p\", location = \"us-central1-c\" }\nstack = { name = \"s\" }\n";
        for (before, place, after) in table {
            let more = if before.contains("cluster") {
                ""
            } else {
                "cluster.name = \"c\"\ncluster.manage = false\n"
            };
            let text = format!("{head}{more}{before}");
            let options = Options { env: &|_| None, vars: &BTreeMap::new(), helm: None };
            let loaded = parse_text("stack.toml", &text, &options).unwrap();
            let edit = without(&loaded.sources, &place.parse().unwrap(), "false").unwrap();
            assert_eq!(edit.after, format!("{head}{more}{after}"));
        }
    }
}
