//! `explain`: a code, or a key of the stack file.

use crate::cli::Exit;
use crate::cli::completion_values::ValueSet;
use crate::cli::settings::{Failure, Format, Settings};
use crate::report::human::page::{Page, render};
use model::diag::{self, Code, Diagnostic};
use stack::explain::{Explained, Unknown, explain as place, sections};

/// Shown below the options.
pub const EXAMPLES: &str = "Examples:\n  \
    dask-infra explain                       the sections of a stack\n  \
    dask-infra explain node_pool             its keys\n  \
    dask-infra explain dask_cluster.worker   accepted values and default\n  \
    dask-infra explain DI0206                what a message means, with an example\n  \
    dask-infra explain --codes               all codes\n\
    \n\
    Needs no stack, no network and no credentials; writes nothing.";

/// Options of `explain`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The code of a message (DI0206), or the path of a key (node_pool.nodes)
    #[arg(value_name = "CODE or PATH", value_parser = ValueSet::Codes, hide_possible_values = true)]
    what: Option<String>,
    /// List the codes of all messages
    #[arg(long, conflicts_with = "what")]
    codes: bool,
}

/// Shows the page that is asked for, or the list of codes.
pub fn explain(settings: &Settings, args: &Args) -> Exit {
    settings.show(Format::Text, |_| {
        let page = match args.codes {
            true => codes(),
            false => page(args.what.as_deref().unwrap_or_default())?,
        };
        Ok(render(&page, settings.screen().data_look().width))
    })
}

fn page(what: &str) -> Result<Page, Failure> {
    let what = what.trim();
    if what.is_empty() {
        return Ok(overview());
    }
    if let Ok(code) = what.trim_matches(['[', ']']).parse::<Code>() {
        return Ok(of_code(code));
    }
    match place(what) {
        Ok(explained) => Ok(of_place(explained)),
        Err(unknown) => match unknown.only(what).map(place) {
            Some(Ok(explained)) => Ok(of_place(explained)),
            Some(Err(_)) | None => Err(nothing(what, &unknown).into()),
        },
    }
}

fn codes() -> Page {
    Page {
        title: "Codes of messages".to_owned(),
        heading: "Codes:".to_owned(),
        rows: Code::all().iter().map(|entry| (entry.id.to_owned(), entry.title.to_owned())).collect(),
        next: Some("For one of them: dask-infra explain DI0206".to_owned()),
        ..Page::default()
    }
}

fn overview() -> Page {
    let rows = sections().into_iter().map(|Explained { path, about, .. }| (path, about));
    Page {
        title: "Sections of a stack file".to_owned(),
        heading: "Each is a table, [NAME] or [NAME.key]:".to_owned(),
        rows: rows.collect(),
        next: Some(
            "`dask-infra explain node_pool` lists the keys of a section, `dask-infra explain DI0206` explains \
             a message."
                .to_owned(),
        ),
        ..Page::default()
    }
}

fn of_code(code: Code) -> Page {
    let entry = code.entry();
    Page {
        title: format!("{}: {}", entry.id, entry.title),
        about: vec![entry.text.to_owned()],
        example: entry.example.map(str::to_owned),
        ..Page::default()
    }
}

fn of_place(Explained { path, takes, default, about, keys }: Explained) -> Page {
    let mut facts = Vec::new();
    if !takes.is_empty() && !takes.starts_with("table") {
        facts.push(format!("Value: {takes}."));
    }
    if default == "required" {
        facts.push("Required.".to_owned());
    } else if !default.is_empty() {
        facts.push(format!("Default: {default}."));
    }
    let rows = keys.into_iter().map(|key| {
        let Explained { path, takes, default, about, keys: _ } = key;
        let default =
            if default.is_empty() || default == "required" { default } else { format!("default {default}") };
        let brief: Vec<&str> =
            [takes.as_str(), default.as_str()].into_iter().filter(|word| !word.is_empty()).collect();
        (path, format!("{about} ({})", brief.join("; ")))
    });
    let rows: Vec<(String, String)> = rows.collect();
    let deeper = rows.first().map(|(key, _)| {
        let plain = path.replace(".NAME", "");
        format!("For one of them: dask-infra explain {plain}.{key}")
    });
    Page {
        title: path,
        about: [vec![about], vec![facts.join(" ")]].concat(),
        heading: "Keys:".to_owned(),
        rows,
        example: None,
        next: deeper,
    }
}

fn nothing(what: &str, Unknown { near }: &Unknown) -> Diagnostic {
    let number = what.get(..2).filter(|start| start.eq_ignore_ascii_case("di")).map(|_| &what[2..]);
    let looks_like_a_code =
        number.is_some_and(|number| !number.is_empty() && number.chars().all(|c| c.is_ascii_digit()));
    if looks_like_a_code {
        let codes = Code::all().iter().map(|entry| entry.id);
        let problem = Diagnostic::error(Code::NothingToExplain, format!("unknown code `{what}`"));
        return match diag::nearest(what, codes) {
            Some(near) => {
                problem.help(format!("did you mean `{near}`? `dask-infra explain --codes` lists them all"))
            }
            None => problem.help("`dask-infra explain --codes` lists them all"),
        };
    }
    let problem = Diagnostic::error(
        Code::NothingToExplain,
        format!("`{what}` is neither a code nor a key of the stack file"),
    );
    if near.is_empty() {
        return problem.help("`dask-infra explain` lists the sections");
    }
    problem.help(format!("did you mean {}?", diag::listed(near.iter().map(String::as_str), "or")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_in_any_case_places_and_slips() {
        for what in ["DI0206", "di0206", "[DI0206]"] {
            assert!(page(what).unwrap().title.starts_with("DI0206: "), "{what}");
        }
        let nodes = page("node_pool.nodes").unwrap();
        assert_eq!(nodes.title, "node_pool.NAME.nodes");
        assert_eq!(page("").unwrap(), overview());
        for (what, help) in [
            ("DI9999", "explain --codes"),
            ("DI020", "DI020"),
            ("nodes", "`node_pool.nodes`"),
            ("node_pool.machine_typ", "machine_type"),
            ("zzzzzzzzzz", "lists the sections"),
            ("é", "lists the sections"),
        ] {
            let said = nothing(what, &place(what).unwrap_err());
            assert!(said.help.as_deref().unwrap().contains(help), "{what}: {said:?}");
        }
    }
}
