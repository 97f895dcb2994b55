//! The ready stacks in `stacks/`, which are built into the program so that `init` needs no clone of the repository, and the
//! changes that `init` makes to them.

use super::reference::sentences;

#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// Its folder in `stacks/`.
    pub name: &'static str,
    /// Its files by name, `stack.toml` first.
    pub files: &'static [(&'static str, &'static str)],
}

/// Builds a ready stack from its folder and files.
macro_rules! ready {
    ($name:literal: $($file:literal),+) => {
        Ready { name: $name, files: &[$(($file, include_str!(concat!("../../../stacks/", $name, "/", $file)))),+] }
    };
}

/// The stacks that `init --from` writes. They are the files of the folder `stacks`; a test compares the two.
pub const READY: &[Ready] = &[
    // The recommended one.
    ready!("rapids-gke-lean": "stack.toml"),
    ready!("autopilot": "stack.toml"),
    ready!("dask-autoscaled": "stack.toml"),
    ready!("dask-groups": "stack.toml"),
    ready!("dask-job": "stack.toml"),
    ready!("dask-notebook": "stack.toml"),
    ready!("helm-gpu": "stack.toml"),
    ready!("ladder": "stack.toml"),
    ready!("local": "stack.toml"),
    ready!("on-existing-gke": "stack.toml"),
    ready!("queued-a100": "stack.toml"),
    ready!("rapids-gke": "stack.toml"),
    ready!("slurm": "stack.toml"),
    ready!("ssh": "stack.toml"),
];

/// The path of the schema for editors, relative to the stack's folder.
pub const SCHEMA: &str = ".dask-infra/stack.schema.json";

/// Values for a user's own copy of a ready stack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// `[stack] id`.
    pub id: String,
    /// `[gke] project`, when it is known.
    pub project: Option<String>,
    /// `[gke] location`, when it is known.
    pub location: Option<String>,
}

impl Ready {
    /// Returns the ready stack of a name.
    pub fn find(name: &str) -> Option<&'static Self> {
        READY.iter().find(|ready| ready.name == name)
    }

    /// Returns the first sentence of the stack's comment.
    pub fn about(&self) -> String {
        let lines = self.text().lines().skip_while(|line| line.starts_with("#:"));
        let comment: Vec<&str> = lines
            .take_while(|line| line.starts_with('#'))
            .map(|line| line.trim_start_matches('#').trim())
            .filter(|line| !line.is_empty())
            .collect();
        let comment = comment.join(" ");
        sentences(&comment).first().map(|sentence| (*sentence).to_owned()).unwrap_or_default()
    }

    /// Returns its `stack.toml` unchanged.
    pub fn text(&self) -> &'static str {
        self.files.first().map_or("", |(_, text)| text)
    }

    /// Returns its `stack.toml` for a user: with an id, and with project and location if they are known.
    pub fn own(&self, own: &Own) -> String {
        let mut text = String::new();
        let mut section = "";
        for line in self.text().lines() {
            if line.starts_with('[') {
                section = line.trim_matches(['[', ']']);
            }
            let key = line.split('=').next().unwrap_or_default().trim();
            let given = match (section, key) {
                ("gke", "project") => own.project.as_deref(),
                ("gke", "location") => own.location.as_deref(),
                _ => None,
            };
            match given {
                _ if line.starts_with("#:schema") => text.push_str(&format!("#:schema {SCHEMA}")),
                Some(value) => text.push_str(&with_value(line, value)),
                None => text.push_str(line),
            }
            text.push('\n');
            if (section, key) == ("stack", "name") {
                let id = format!("id = \"{}\"", own.id);
                text.push_str(&format!("{id:38} # distinguishes stacks of the same name; keep it\n"));
            }
        }
        text
    }
}

/// Returns the line with another value. Its comment stays in the same column if possible.
fn with_value(line: &str, value: &str) -> String {
    let key = line.split('=').next().unwrap_or_default();
    // No value of a ready stack has this character.
    let comment = line.find('#').filter(|at| !line[..*at].ends_with('{'));
    let said = format!("{key}= \"{value}\"");
    match comment {
        Some(at) => format!("{said:at$}{}{}", if said.len() >= at { " " } else { "" }, &line[at..]),
        None => said,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use super::*;
    use crate::{Options, parse_text};

    #[test]
    fn every_ready_stack_is_carried_with_all_its_files() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../stacks");
        let mut names: Vec<String> = Vec::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let ready = Ready::find(&name).unwrap_or_else(|| panic!("{name} is not in READY"));
            for file in std::fs::read_dir(&path).unwrap() {
                let file = file.unwrap().path();
                let file_name = file.file_name().unwrap().to_string_lossy().into_owned();
                let carried = ready.files.iter().find(|(name, _)| *name == file_name);
                let carried = carried.unwrap_or_else(|| panic!("{name}/{file_name} is not in READY"));
                assert_eq!(carried.1, std::fs::read_to_string(&file).unwrap());
            }
            names.push(name);
        }
        assert_eq!(names.len(), READY.len());
        assert!(READY.iter().all(|ready| ready.files[0].0 == "stack.toml"));
    }

    #[test]
    fn a_stack_of_ones_own_says_what_is_known_and_keeps_its_comments() {
        let ready = Ready::find("rapids-gke").unwrap();
        let own = Own {
            id: "k3x9a2b7".to_owned(),
            project: Some("a-project-with-a-long-name-indeed".to_owned()),
            location: Some("europe-west4-b".to_owned()),
        };
        let text = ready.own(&own);
        let vars = BTreeMap::new();
        let loaded =
            parse_text("stack.toml", &text, &Options { env: &|_| None, vars: &vars, helm: None }).unwrap();
        assert_eq!(loaded.stack.stack.id.as_deref(), Some("k3x9a2b7"));
        let gke = loaded.stack.gke.unwrap();
        assert_eq!((gke.project, gke.location), (own.project.unwrap(), own.location.unwrap()));
        assert!(text.contains("\nlocation = \"europe-west4-b\"            # a zone;"), "{text}");
        assert!(text.starts_with("#:schema .dask-infra/"), "{text}");
        let bare = ready.own(&Own { id: "x".to_owned(), ..Own::default() });
        assert_eq!(bare.lines().count(), ready.text().lines().count() + 1, "only the id is new");
        assert!(bare.contains("${env.GOOGLE_CLOUD_PROJECT}"));
        assert!(ready.about().starts_with("RAPIDS on GKE"), "{}", ready.about());
    }
}
