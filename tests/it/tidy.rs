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

/// Rooms inside `kinds` and the others that they may use. All may use the files that lie beside them; those use no room, and
/// nobody but `mod.rs`, which has the list, uses the list.
const ROOMS_OF_KINDS: &[(&str, &[&str])] =
    &[("kubernetes", &[]), ("gke", &["kubernetes"]), ("dask", &["kubernetes"])];

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

/// The paths that a `use` tree names, one by one.
fn expand(before: &str, tree: &str, found: &mut Vec<String>) {
    let Some((head, inner)) = tree.split_once('{') else {
        found.push(format!("{before}{}", tree.trim()));
        return;
    };
    let inner = inner.trim_end().strip_suffix('}').unwrap();
    let (mut depth, mut start) = (0, 0);
    for (at, letter) in inner.char_indices().chain([(inner.len(), ',')]) {
        match letter {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                expand(&format!("{before}{}", head.trim()), &inner[start..at], found);
                start = at + 1;
            }
            _ => {}
        }
    }
}

/// Paths from `kinds` on that the code of a file there names, its tests left out. `home` is its room.
fn paths_in_kinds(text: &str, home: Option<&str>) -> Vec<String> {
    let code = text.split("#[cfg(test)]").next().unwrap_or_default();
    let code: Vec<&str> = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let mut found = Vec::new();
    for statement in code.join("\n").split(';') {
        match statement.split_once("use ") {
            Some((_, tree)) if !tree.contains('=') => expand("", tree, &mut found),
            _ => {
                let words = statement.split(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | ':'));
                found.extend(words.filter(|word| word.contains("::")).map(str::to_owned));
            }
        }
    }
    let own = |path: String| match (path.strip_prefix("super::"), home) {
        (Some(rest), Some(home)) => Some(format!("{home}::{rest}")),
        (Some(rest), None) => Some(rest.to_owned()),
        (None, _) => path.strip_prefix("crate::kinds").map(|rest| rest.trim_start_matches(':').to_owned()),
    };
    found.into_iter().filter_map(own).collect()
}

/// The files of `kinds` by the paths of their modules, with the files that they use.
fn files_of_kinds() -> BTreeMap<String, BTreeSet<String>> {
    let sources = sources();
    let module = |path: &Path| {
        let inside = path.strip_prefix(root().join("src/kinds")).ok()?.with_extension("");
        let parts: Vec<String> = inside.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        let room = ROOMS_OF_KINDS.iter().any(|(room, _)| *room == parts[0]);
        Some(parts[..if room { 2 } else { 1 }].join("::"))
    };
    let code = sources.iter().filter(|(path, _)| !path.ends_with("tests.rs"));
    let code: Vec<(String, &str)> =
        code.filter_map(|(path, text)| Some((module(path)?, text.as_str()))).collect();
    let modules: BTreeSet<&str> = code.iter().map(|(module, _)| module.as_str()).collect();
    let file_of = |path: &str| {
        let mut words = path.split("::");
        let first = words.next().unwrap_or_default().to_owned();
        let second = words.next().map(|second| format!("{first}::{second}"));
        second.filter(|both| modules.contains(both.as_str())).unwrap_or(first)
    };
    let mut files: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (module, text) in &code {
        let home = module.split_once("::").map(|(room, _)| room);
        let used = paths_in_kinds(text, home);
        files.entry(module.clone()).or_default().extend(used.iter().map(|path| file_of(path)));
    }
    files
}

/// Imports inside of `kinds` run in one direction.
#[test]
fn kinds_use_only_the_rooms_below_them_and_no_circle_of_files() {
    let mut files = files_of_kinds();
    assert!(files.contains_key("dask::cluster"), "{:?}", files.keys());
    files.remove("mod");
    let mut broken = Vec::new();
    for (module, used) in &files {
        let home = module.split_once("::").map(|(room, _)| room);
        let below: &[&str] =
            ROOMS_OF_KINDS.iter().find(|(room, _)| Some(*room) == home).map_or(&[], |(_, below)| below);
        for other in used.iter().filter(|other| *other != module) {
            let room = other.split_once("::").map(|(room, _)| room);
            // A file inside of a module's own folder says `super` of it.
            let own = room == home || (room.is_none() && !files.contains_key(other) && home.is_some());
            let fits = match room {
                Some(room) => below.contains(&room) || own,
                None => {
                    files.contains_key(other) || (own && !matches!(other.as_str(), "" | "of" | "known_as"))
                }
            };
            if !fits {
                broken.push(format!("kinds::{module} must not use kinds::{other}"));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    // What uses nothing that is left can be no part of a circle.
    while let Some(free) = files
        .iter()
        .find(|(module, used)| used.iter().all(|other| other == *module || !files.contains_key(other)))
    {
        let free = free.0.clone();
        files.remove(&free);
    }
    assert!(files.is_empty(), "these use each other in a circle: {files:?}");
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
