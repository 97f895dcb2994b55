//! What other projects put into CI scripts: layers, who may do IO, who may print, sizes, documentation.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Modules and those that they may use beside themselves. Nothing else.
const LAYERS: &[(&str, &[&str])] = &[
    ("address", &[]),
    ("secrets", &[]),
    ("schema", &["address"]),
    ("catalog", &["schema"]),
    ("source", &["address", "secrets"]),
    ("diag", &["address", "secrets", "source"]),
    ("record", &["address", "resource"]),
    ("resource", &["address", "record", "secrets"]),
    ("kinds", &["address", "catalog", "record", "resource", "schema", "secrets"]),
    ("stack", &["address", "catalog", "diag", "kinds", "record", "resource", "schema", "secrets", "source"]),
    ("import", &["address", "catalog", "diag", "kinds", "resource", "schema", "secrets", "stack"]),
    ("plan", &["address", "catalog", "diag", "kinds", "record", "resource", "schema", "secrets", "source"]),
    ("live", &["address", "record", "resource", "secrets"]),
    ("apply", &["address", "diag", "kinds", "live", "plan", "record", "resource", "secrets"]),
    ("report", &["address", "apply", "diag", "kinds", "plan", "record", "resource", "secrets", "source"]),
    ("sandbox", &["address", "catalog", "schema"]),
];

/// The module that a file belongs to: `src/kinds/mod.rs` and `src/diag.rs` are `kinds` and `diag`.
fn module(path: &Path) -> String {
    let inside = path.strip_prefix(root().join("src")).unwrap();
    let first = inside.components().next().unwrap().as_os_str().to_string_lossy().into_owned();
    first.trim_end_matches(".rs").to_owned()
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn sources() -> Vec<(PathBuf, String)> {
    fn walk(folder: &Path, found: &mut Vec<(PathBuf, String)>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(&path, found);
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    let mut found = Vec::new();
    walk(&root().join("src"), &mut found);
    found.sort();
    found
}

/// Modules that a text names after `crate::`, one by one or in braces.
fn used(text: &str) -> BTreeSet<String> {
    let word =
        |text: &str| -> String { text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect() };
    let mut used = BTreeSet::new();
    let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    for line in code {
        for after in line.split("crate::").skip(1) {
            match after.strip_prefix('{') {
                Some(list) => used.extend(list.split(',').map(|item| word(item.trim()))),
                None => drop(used.insert(word(after))),
            }
        }
    }
    used.remove("");
    used
}

#[test]
fn modules_use_only_the_layers_above_them() {
    let mut broken = Vec::new();
    for (path, text) in sources() {
        let module = module(&path);
        let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| *name == module) else { continue };
        let known: Vec<&str> = LAYERS.iter().map(|(name, _)| *name).chain(["cli"]).collect();
        for other in used(&text) {
            if other != module && known.contains(&other.as_str()) && !allowed.contains(&other.as_str()) {
                broken.push(format!("{}: {module} must not use {other}", path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// The module of the sandbox that a file is: `kube/store.rs` is `kube::store`, `kube/mod.rs` is `kube`.
fn room_of_the_sandbox(path: &Path) -> Option<Vec<String>> {
    let inside = path.strip_prefix(root().join("src/sandbox")).ok()?.with_extension("");
    let mut room: Vec<String> = inside.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let last = room.last()?;
    if last.ends_with("tests") || last == "testing" {
        return None;
    }
    room.pop_if(|last| last == "mod");
    Some(room)
}

/// The paths of a tree of imports: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn paths(tree: &str) -> Vec<String> {
    let Some((before, rest)) = tree.split_once('{') else { return vec![tree.trim().to_owned()] };
    let (mut parts, mut depth) = (vec![String::new()], 0);
    for letter in rest.rfind('}').map_or(rest, |end| &rest[..end]).chars() {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        match (letter, depth) {
            (',', 0) => parts.push(String::new()),
            _ => parts.last_mut().unwrap().push(letter),
        }
    }
    parts.iter().flat_map(|part| paths(part)).map(|path| format!("{}{path}", before.trim())).collect()
}

/// Where a path leads that a module of the sandbox names.
fn resolve(room: &[String], path: &str) -> Option<Vec<String>> {
    let mut place = room.to_vec();
    let mut parts = path.split("::").peekable();
    match *parts.peek()? {
        "crate" => {
            parts.next();
            parts.next_if_eq(&"sandbox")?;
            place.clear();
        }
        "super" => {
            while parts.next_if_eq(&"super").is_some() {
                place.pop();
            }
        }
        "self" => drop(parts.next()),
        _ => {}
    }
    place.extend(parts.map(str::to_owned));
    Some(place)
}

/// Inside the sandbox, imports run one way: no file is reached from itself.
#[test]
fn the_files_of_the_sandbox_import_no_circle() {
    let files: BTreeMap<Vec<String>, String> =
        sources().into_iter().filter_map(|(path, text)| Some((room_of_the_sandbox(&path)?, text))).collect();
    let used = |room: &Vec<String>, text: &String| -> BTreeSet<Vec<String>> {
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let code = lines.collect::<Vec<_>>().join(" ");
        let trees = code.split("use ").skip(1).filter_map(|rest| rest.split_once(';'));
        let imported = trees.flat_map(|(tree, _)| paths(tree));
        let words = code.split(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | ':'));
        let is_path = |word: &&str| ["super::", "crate::"].iter().any(|start| word.starts_with(start));
        let named = words.filter(is_path).filter(|word| !word.ends_with("::"));
        let places = imported.chain(named.map(str::to_owned)).filter_map(|path| resolve(room, &path));
        let known = places.filter_map(|place| {
            (0..=place.len()).rev().map(|end| place[..end].to_vec()).find(|room| files.contains_key(room))
        });
        known.filter(|other| other != room).collect()
    };
    let mut open: BTreeMap<Vec<String>, BTreeSet<Vec<String>>> =
        files.iter().map(|(room, text)| (room.clone(), used(room, text))).collect();
    loop {
        let done: Vec<Vec<String>> = open
            .iter()
            .filter(|(_, others)| others.iter().all(|other| !open.contains_key(other)))
            .map(|(room, _)| room.clone())
            .collect();
        if done.is_empty() {
            break;
        }
        open.retain(|room, _| !done.contains(room));
    }
    let left: Vec<String> = open.keys().map(|room| room.join("::")).collect();
    assert!(files.len() > 80 && left.is_empty(), "in a circle, or above one: {left:?}");
}

/// Every module of the library has its layer.
#[test]
fn every_module_has_a_layer() {
    let layered: BTreeSet<&str> =
        LAYERS.iter().map(|(name, _)| *name).chain(["cli", "lib", "main"]).collect();
    let modules: BTreeSet<String> = sources().iter().map(|(path, _)| module(path)).collect();
    let missing: Vec<&String> = modules.iter().filter(|name| !layered.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "without a layer: {missing:?}");
}

#[test]
fn only_live_and_sandbox_reach_the_network_and_only_live_knows_client_types() {
    let mut broken = Vec::new();
    for (path, text) in sources() {
        let module = module(&path);
        let network = ["reqwest::", "TcpListener", "TcpStream", "UnixStream", "hyper_util::"];
        if !matches!(module.as_str(), "live" | "sandbox") && network.iter().any(|word| text.contains(word)) {
            broken.push(format!("{}: network", path.display()));
        }
        let file = path.strip_prefix(root().join("src")).unwrap().to_string_lossy().into_owned();
        for (client, home) in [("kube::", "live/kube.rs"), ("google_cloud_auth::", "live/credentials.rs")] {
            let uses = text.lines().any(|line| {
                let line = line.trim_start();
                !line.starts_with("//")
                    && line.match_indices(client).any(|(at, _)| {
                        !line[..at].ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | ':'))
                    })
            });
            if uses && file != home && module != "sandbox" {
                broken.push(format!("{file}: {client} belongs to {home}"));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// The pure middle has no clock and no environment.
#[test]
fn the_middle_is_pure() {
    let mut broken = Vec::new();
    for (path, text) in sources() {
        let pure = [
            "address", "catalog", "diag", "import", "kinds", "plan", "resource", "schema", "secrets",
            "source",
        ];
        if !pure.contains(&module(&path).as_str()) {
            continue;
        }
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for word in ["SystemTime", "Instant::now", "Timestamp::now", "std::env::var", "tokio::"] {
            if code.contains(word) && !path.ends_with("tests.rs") {
                broken.push(format!("{}: {word}", path.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// A file that grows past this is a meeting place of several things: split it. The one table of codes is one thing.
#[test]
fn no_file_grows_too_long() {
    let long = |path: &Path, text: &str| text.lines().count() > 800 && !path.ends_with("diag/codes.rs");
    let long: Vec<String> = sources()
        .iter()
        .filter(|(path, text)| long(path, text))
        .map(|(path, _)| path.display().to_string())
        .collect();
    assert!(long.is_empty(), "over 800 lines: {long:?}");
}

/// Every code of the table is used, and every kind is documented in the architecture page.
#[test]
fn every_code_is_used() {
    let all: String = sources()
        .iter()
        .filter(|(path, _)| !path.ends_with("codes.rs"))
        .map(|(_, text)| text.as_str())
        .collect();
    let unused: Vec<String> = dask_infra::diag::Code::all()
        .iter()
        .map(|entry| format!("{:?}", entry.code))
        .filter(|name| !all.contains(&format!("Code::{name}")))
        .collect();
    assert!(unused.is_empty(), "codes that nothing says: {unused:?}");
}

/// Nothing of the machine it was written on, and no registry's host, goes into the repository.
#[test]
fn no_machine_paths() {
    let listed = std::process::Command::new("git").args(["ls-files"]).current_dir(root()).output();
    let Ok(listed) = listed else { return };
    let mut broken = Vec::new();
    for file in String::from_utf8_lossy(&listed.stdout).lines() {
        let Ok(text) = fs::read_to_string(root().join(file)) else { continue };
        for word in [
            concat!("/ro", "ot/."),
            concat!("/wo", "rk/main"),
            concat!("/wo", "rk/shared"),
            concat!("proxy.gol", "ang.org"),
        ] {
            if text.contains(word) {
                broken.push(format!("{file}: {word}"));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}
