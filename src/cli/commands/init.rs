//! `init`: a stack file to start from.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{BuildHasher as _, Hasher as _};
use std::io::Write as _;
use std::path::{Component, Path, PathBuf};

use crate::cli::Exit;
use crate::cli::completion_values::ValueSet;
use crate::cli::gcloud::{self, Gcloud};
use crate::cli::settings::{Failure, Format, PROJECT_VARIABLE, Settings, quoted};
use crate::report::human::page::{Page, render};
use model::diag::{self, Code, Diagnostic};
use stack::ready::{Own, READY, Ready, SCHEMA};
use stack::{Options, parse_text};

/// Shown below the options.
pub const EXAMPLES: &str = "Examples:\n  \
    dask-infra init                                 lists the ready stacks\n  \
    dask-infra init --from rapids-gke-lean          writes stack.toml here\n  \
    dask-infra --stack lab init --from rapids-gke   writes lab/stack.toml\n\
    \n\
    Writes stack.toml and .dask-infra/stack.schema.json (for editors); never overwrites an existing file.";

/// Options of `init`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The ready stack to start from; without it, lists them
    #[arg(long, value_name = "NAME", value_parser = ValueSet::ReadyStacks, hide_possible_values = true)]
    from: Option<String>,
}

/// Writes a stack file, or lists what there is to start from.
pub fn init(settings: &Settings, args: &Args) -> Exit {
    let Some(name) = &args.from else { return list(settings) };
    settings.show(Format::Text, |_| {
        let ready = Ready::find(name).ok_or_else(|| unknown(name))?;
        write(settings, ready)
    })
}

fn list(settings: &Settings) -> Exit {
    let page = Page {
        title: "Ready stacks to start from".to_owned(),
        rows: READY.iter().map(|ready| (ready.name.to_owned(), ready.about())).collect(),
        heading: "Names:".to_owned(),
        next: Some(format!("To use one: {} init --from {}", settings.program(), READY[0].name)),
        ..Page::default()
    };
    settings.print(&render(&page, settings.screen().data_look().width))
}

fn unknown(name: &str) -> Diagnostic {
    let names = || READY.iter().map(|ready| ready.name);
    let problem =
        Diagnostic::error(Code::UnknownReadyStack, format!("there is no ready stack named `{name}`"));
    match diag::nearest(name, names()) {
        Some(near) => problem.help(format!("did you mean `{near}`?")),
        None => problem.help(format!("there is {}", diag::listed(names(), "and"))),
    }
}

fn write(settings: &Settings, ready: &Ready) -> Result<String, Failure> {
    let folder = folder(&settings.stack)?;
    let gcloud = gcloud::read(&live::environment::env_var);
    let is_local = ready.text().lines().any(|line| matches!(line.trim(), "[local]" | "[ssh]" | "[slurm]"));
    let (own, said) = match is_local {
        true => (Own { id: id(), ..Own::default() }, Vec::new()),
        false => own(ready, &gcloud, id(), settings.environment(PROJECT_VARIABLE)),
    };
    let needs_project =
        !is_local && own.project.is_none() && settings.environment(PROJECT_VARIABLE).is_none();
    let mut made: Vec<(PathBuf, String)> = vec![(PathBuf::from("stack.toml"), ready.own(&own))];
    made.extend(ready.files.iter().skip(1).map(|(name, text)| (PathBuf::from(name), (*text).to_owned())));
    let files: Vec<(PathBuf, String)> =
        made.iter().map(|(name, text)| (folder.join(name), text.clone())).collect();
    if let Some((there, _)) = files.iter().find(|(path, _)| path.exists()) {
        let what = format!("{} already exists; nothing was written", there.display());
        let help = "choose another folder with `--stack FOLDER`, or move the existing file away";
        return Err(Diagnostic::error(Code::AlreadyThere, what).help(help).into());
    }
    create_all(&folder, &[made, schema_in(&folder)].concat())?;
    let next =
        if is_local { next_here(settings, &files) } else { next(settings, &files, &said, needs_project) };
    Ok(next)
}

/// Returns the schema that editors look for, where a folder does not have it yet.
pub(crate) fn schema_in(folder: &Path) -> Vec<(PathBuf, String)> {
    match folder.join(SCHEMA).exists() {
        true => Vec::new(),
        false => vec![(PathBuf::from(SCHEMA), format!("{:#}\n", stack::json_schema()))],
    }
}

/// All of the files of a folder, or none: half a stack would stand in the way of the next `init`. Their names are paths from the folder
/// on, which lead to no other place.
pub(crate) fn create_all(folder: &Path, files: &[(PathBuf, String)]) -> Result<(), Diagnostic> {
    for (place, (name, text)) in files.iter().enumerate() {
        if let Err(problem) = create(folder, name, text) {
            for (made, _) in &files[..place] {
                // A file that cannot be deleted stays; the user sees it.
                let _ = fs::remove_file(folder.join(made));
            }
            return Err(problem);
        }
    }
    Ok(())
}

/// Returns the folder that a new stack goes into.
pub(crate) fn folder(stack: &Path) -> Result<PathBuf, Diagnostic> {
    let folder = match stack.extension() {
        Some(ending) if ending == "toml" => {
            if stack.file_name().is_some_and(|name| name != "stack.toml") {
                let what = format!("a new stack is a file named stack.toml, not {}", stack.display());
                return Err(
                    Diagnostic::error(Code::Usage, what).help("give its folder with `--stack FOLDER`")
                );
            }
            stack.parent().unwrap_or(Path::new("")).to_owned()
        }
        _ => stack.to_owned(),
    };
    Ok(folder.strip_prefix(".").map(Path::to_owned).unwrap_or(folder))
}

/// Writes a file that must not be there yet.
fn create(folder: &Path, name: &Path, text: &str) -> Result<(), Diagnostic> {
    let failed = |error: std::io::Error| {
        let what = format!("cannot write {}: {error}", folder.join(name).display());
        Diagnostic::error(Code::CannotWrite, what)
            .help("choose another folder with `--stack FOLDER`, or fix the cause")
    };
    let path = place(folder, name).map_err(failed)?;
    // Fails when somebody has made it meanwhile, and for a link.
    let mut file = fs::File::create_new(&path).map_err(failed)?;
    file.write_all(text.as_bytes()).map_err(|error| {
        let _ = fs::remove_file(&path);
        failed(error)
    })
}

/// Returns the path of a file in a folder, whose parents are created one by one: each must lie in the folder, through all links.
fn place(folder: &Path, name: &Path) -> std::io::Result<PathBuf> {
    let leads_out = || {
        let what = "its path leads out of the stack's folder";
        std::io::Error::new(std::io::ErrorKind::InvalidInput, what)
    };
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    if !name.components().all(|part| matches!(part, Component::Normal(_))) {
        return Err(leads_out());
    }
    fs::create_dir_all(folder)?;
    let top = fs::canonicalize(folder)?;
    let mut at = top.clone();
    let mut parts = name.components().peekable();
    while let Some(part) = parts.next() {
        at.push(part);
        if parts.peek().is_none() {
            break;
        }
        match fs::create_dir(&at) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => return Err(error),
            _ => at = fs::canonicalize(&at)?,
        }
        if !at.starts_with(&top) {
            return Err(leads_out());
        }
    }
    Ok(at)
}

/// Returns the stack's own values, with those of the user's gcloud that suit the stack, and a message on each.
fn own(ready: &Ready, gcloud: &Gcloud, id: String, exported: Option<String>) -> (Own, Vec<String>) {
    let mut said = Vec::new();
    let project = gcloud.project.as_ref().map(|project| project.value.clone());
    match (&gcloud.project, exported) {
        (Some(project), _) => said.push(format!("project {} from {}", project.value, project.from)),
        (None, Some(project)) => said.push(format!("project {project} from {PROJECT_VARIABLE}")),
        (None, None) => said.push(
            "no project is set in gcloud: without --sandbox, `export GOOGLE_CLOUD_PROJECT=…` first, or write it \
             into [gke]"
                .to_owned(),
        ),
    }
    let own = Own { id, project, location: None };
    let Some(zone) = &gcloud.zone else { return (own, said) };
    let there = Own { location: Some(zone.value.clone()), ..own.clone() };
    if trouble(&ready.own(&there)) > trouble(&ready.own(&own)) {
        said.push(format!(
            "gcloud's zone {} was not used: the stack's GPUs are not known to be available there",
            zone.value
        ));
        return (own, said);
    }
    said.push(format!("zone {} from {}", zone.value, zone.from));
    (there, said)
}

/// Returns how much there is to say about a stack.
fn trouble(text: &str) -> usize {
    let vars = BTreeMap::new();
    let env = |_: &str| Some("project".to_owned());
    match parse_text("stack.toml", text, &Options { env: &env, vars: &vars, helm: None }) {
        Ok(loaded) => loaded.warnings.len(),
        Err(failure) => failure.diagnostics.len(),
    }
}

/// Eight letters and digits that nobody else has: a label's value, so lower case. The standard library seeds its
/// hashers from the operating system's random numbers.
pub(crate) fn id() -> String {
    let mut number = std::hash::RandomState::new().build_hasher().finish();
    let digits = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut id = String::new();
    for place in 0..8_u64 {
        // The first one is a letter.
        let among = if place == 0 { 26 } else { 36 };
        id.push(char::from(digits[usize::try_from(number % among).unwrap_or(0)]));
        number /= among;
    }
    id
}

/// Returns the next steps for a stack of this machine, after the files that were written.
fn next_here(settings: &Settings, files: &[(PathBuf, String)]) -> String {
    let mut text = String::new();
    for (path, _) in files {
        text.push_str(&format!("Wrote {}\n", path.display()));
    }
    let folder = settings.stack.display().to_string();
    let stack = if folder == "." { String::new() } else { format!("--stack {} ", quoted(&folder)) };
    let hosts = files.iter().any(|(_, text)| text.lines().any(|line| line.trim() == "[ssh]"));
    text.push_str("\nNext:\n");
    if hosts {
        text.push_str("  name your hosts in [ssh]; `ssh HOST true` must work without a question\n");
    }
    text.push_str(&format!(
        "  dask-infra {stack}apply    makes the environment, starts Dask and computes with it\n  \
         dask-infra {stack}connect  shows the dashboard and the line for Python\n  \
         dask-infra {stack}destroy  ends and removes everything\n"
    ));
    text
}

fn next(settings: &Settings, files: &[(PathBuf, String)], said: &[String], needs_project: bool) -> String {
    let mut text = String::new();
    for (path, _) in files {
        text.push_str(&format!("Wrote {}\n", path.display()));
    }
    for line in said {
        text.push_str(&format!("  {line}\n"));
    }
    let folder = settings.stack.display().to_string();
    let stack = if folder == "." { String::new() } else { format!("--stack {} ", quoted(&folder)) };
    // A new sandbox has no resources that are managed elsewhere.
    let alone = !files.iter().any(|(_, text)| text.lines().any(|line| line.starts_with("manage = false")));
    // A sandbox has a project of its own; the file is checked the same way.
    let validate = if needs_project { "--sandbox validate" } else { "validate          " };
    text.push_str(&format!("\nNext:\n  dask-infra {stack}{validate}  checks the file\n"));
    if alone {
        text.push_str(&format!(
            "  dask-infra {stack}--sandbox apply     tries everything without a cloud account\n"
        ));
    }
    text.push_str(&format!(
        "  \
         dask-infra {stack}doctor              shows what is missing to run it on Google Cloud\n  \
         dask-infra {stack}plan                shows what apply would do there\n"
    ));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::gcloud::Property;

    fn set(value: &str) -> Option<Property> {
        Some(Property { value: value.to_owned(), from: "a file".to_owned() })
    }

    #[test]
    fn a_zone_without_the_gpus_is_left_out() {
        let ready = Ready::find("rapids-gke").unwrap();
        let gcloud = |zone| Gcloud { project: set("p-1"), zone: set(zone), ..Gcloud::default() };
        let (fits, said) = own(ready, &gcloud("us-central1-f"), "x".to_owned(), None);
        assert_eq!(fits.location.as_deref(), Some("us-central1-f"), "{said:?}");
        let (apart, said) = own(ready, &gcloud("europe-north1-a"), "x".to_owned(), None);
        assert_eq!((apart.project.as_deref(), apart.location), (Some("p-1"), None));
        assert!(said[1].contains("was not used"), "{said:?}");
        let (bare, said) = own(ready, &Gcloud::default(), "x".to_owned(), None);
        assert_eq!((bare.project, bare.location, said.len()), (None, None, 1));
        assert!(said[0].contains("no project is set"), "{said:?}");
        let (_, said) = own(ready, &Gcloud::default(), "x".to_owned(), Some("demo".to_owned()));
        assert_eq!(said, ["project demo from GOOGLE_CLOUD_PROJECT"]);
    }

    #[test]
    fn ids_are_label_values_and_differ() {
        let (one, two) = (id(), id());
        assert_ne!(one, two);
        assert!(one.len() == 8 && one.starts_with(|c: char| c.is_ascii_lowercase()), "{one}");
        assert!(one.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()), "{one}");
    }
}
