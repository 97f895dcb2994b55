//! Checks that other projects put into CI scripts: layers, who may do IO, who may print, sizes, documentation.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Modules of `model` and those of it that they may use beside themselves.
const LAYERS: &[(&str, &[&str])] = &[
    ("address", &[]),
    ("quantity", &[]),
    ("secrets", &[]),
    ("shell", &[]),
    ("versions", &[]),
    ("schema", &["address", "quantity"]),
    ("catalog", &["schema"]),
    ("prices", &["catalog"]),
    ("accrued_cost", &["prices"]),
    ("source", &["address", "secrets"]),
    ("diag", &["address", "secrets", "source"]),
    ("record", &["accrued_cost", "address", "resource"]),
    ("resource", &["address", "record", "secrets"]),
    ("images", &["resource"]),
];

/// Rooms inside `kinds` and the others that they may use. All may use the files that lie beside them; those use no room, and
/// nobody but `mod.rs`, which has the list, uses the list.
const ROOMS_OF_KINDS: &[(&str, &[&str])] = &[
    ("kubernetes", &[]),
    ("gke", &["kubernetes"]),
    ("dask", &["kubernetes"]),
    ("hosts", &["kubernetes", "dask"]),
];

/// Parts of `sandbox/kube` and what of the rest of it they may use: what a kind is knows no store, and controllers work on the
/// store as anybody does, without the side of it that answers requests.
const PARTS_OF_KUBE: &[(&str, &[&str])] = &[
    ("kinds", &["age", "names", "numbers", "object", "status", "strategy"]),
    ("run", &["object", "status", "store"]),
];

/// Folders and files of `plan` that each of its folders must not use. `observe`, `order` and `review` know nothing of a plan in the
/// making; `propose` knows neither the steps of changes nor their order.
const PARTS_OF_PLAN: &[(&str, &[&str])] = &[
    ("observe", &["make", "order", "planner", "propose", "review", "steps"]),
    ("order", &["make", "planner", "propose", "steps"]),
    ("propose", &["make", "order", "steps"]),
    ("review", &["make", "planner", "steps"]),
];

/// Crates that read no clock, no environment and no disk, and do not depend on what reaches the network.
const PURE: [&str; 6] = ["model", "fit", "kinds", "stack", "import", "plan"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Adds every source file below a folder, with its text.
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

fn sources() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    walk(&root().join("src"), &mut found);
    for krate in crates() {
        walk(&root().join("crates").join(krate).join("src"), &mut found);
    }
    found.sort();
    found
}

/// The crates of the workspace below `crates`.
fn crates() -> BTreeSet<String> {
    let names = fs::read_dir(root().join("crates")).unwrap();
    names.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
}

/// Returns the path of the module that a file is: `src/cli/mod.rs` is `dask_infra::cli`, `crates/kinds/src/json.rs` is `kinds::json`.
fn path_of(file: &Path) -> Vec<String> {
    let inside = file.strip_prefix(root()).unwrap().with_extension("");
    let mut path: Vec<String> = inside.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    match path[0].as_str() {
        "src" => "dask_infra".clone_into(&mut path[0]),
        _ => drop(path.extract_if(..3, |part| matches!(part.as_str(), "crates" | "src")).count()),
    }
    path.pop_if(|last| matches!(last.as_str(), "mod" | "lib"));
    path
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

/// Returns the module that a path names. A path that begins with none of these words is below the module, or foreign.
fn resolve(from: &[String], path: &str, crates: &BTreeSet<String>) -> Vec<String> {
    let mut place = from.to_vec();
    let mut parts = path.split("::").peekable();
    match parts.peek() {
        Some(&"crate") => {
            parts.next();
            place.truncate(1);
        }
        Some(&first) if crates.contains(first) => place.clear(),
        Some(&"super") => {
            while parts.next_if_eq(&"super").is_some() {
                place.pop();
            }
        }
        Some(&"self") => drop(parts.next()),
        _ => {}
    }
    place.extend(parts.map(str::to_owned));
    place
}

/// The modules that the code of a module names, in imports over however many lines and in paths.
fn named_modules(from: &[String], text: &str, crates: &BTreeSet<String>) -> BTreeSet<Vec<String>> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = lines.collect::<Vec<_>>().join(" ");
    let trees = code.split("use ").skip(1).filter_map(|rest| rest.split_once(';'));
    let imported = trees.flat_map(|(tree, _)| paths(tree));
    let words = code.split(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | ':'));
    let words = words.filter(|word| word.contains("::") && !word.ends_with("::")).map(str::to_owned);
    imported.chain(words).map(|path| resolve(from, &path, crates)).collect()
}

/// The files of the library by the paths of their modules, with the files that their code names.
fn imports(tests: Tests) -> BTreeMap<Vec<String>, BTreeSet<Vec<String>>> {
    let crates = crates();
    let is_test = |path: &[String]| path.iter().any(|part| part.ends_with("tests") || part == "testing");
    let files: BTreeMap<Vec<String>, String> =
        sources().into_iter().map(|(file, text)| (path_of(&file), text)).collect();
    let files = files.iter().filter(|(path, _)| tests == Tests::In || !is_test(path));
    let files: BTreeMap<&Vec<String>, &str> = files
        .map(|(path, text)| match tests {
            Tests::In => (path, text.as_str()),
            Tests::Out => (path, text.split("#[cfg(test)]\nmod tests {").next().unwrap()),
        })
        .collect();
    let file_of = |place: Vec<String>| {
        (1..=place.len()).rev().map(|end| place[..end].to_vec()).find(|path| files.contains_key(path))
    };
    let used = |path: &Vec<String>, text: &str| -> BTreeSet<Vec<String>> {
        named_modules(path, text, &crates)
            .into_iter()
            .filter_map(file_of)
            .filter(|other| other != path)
            .collect()
    };
    files.iter().map(|(path, text)| ((*path).clone(), used(path, text))).collect()
}

/// True to count the code of tests.
#[derive(Clone, Copy, PartialEq)]
enum Tests {
    In,
    Out,
}

/// Every module of `model` has its layer and uses those above it; `report` does not use `cli`. Cargo checks the crates.
#[test]
fn modules_use_only_the_layers_above_them() {
    let (mut broken, cli) = (Vec::new(), ["dask_infra", "cli"].map(str::to_owned));
    for (path, used) in imports(Tests::In) {
        let mut not = |other: &str| broken.push(format!("{} must not use {other}", path.join("::")));
        match path.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["model", module, ..] => {
                let Some((_, allowed)) = LAYERS.iter().find(|(name, _)| name == module) else {
                    not("anything: it has no layer");
                    continue;
                };
                let others = used.iter().filter(|other| other[0] == "model").filter_map(|other| other.get(1));
                others
                    .filter(|other| *other != module && !allowed.contains(&other.as_str()))
                    .for_each(|other| not(other));
            }
            ["dask_infra", "report", ..] if used.iter().any(|other| other.starts_with(&cli)) => not("cli"),
            _ => {}
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Imports inside of `kinds` run from room to room as the table says.
#[test]
fn kinds_use_only_the_rooms_below_them() {
    let mut broken = Vec::new();
    let imports = imports(Tests::Out);
    let inside = imports.iter().filter(|(path, _)| path[0] == "kinds" && path.len() > 1);
    for (path, used) in inside {
        let room = |path: &[String]| ROOMS_OF_KINDS.iter().find(|(room, _)| path[1] == **room);
        let home = room(path);
        for other in used.iter().filter(|other| other[0] == "kinds") {
            let fits = match (other.len(), other.get(1).and_then(|_| room(other))) {
                (1, _) => false,
                (_, None) => true,
                (_, Some((there, _))) => {
                    home.is_some_and(|(here, below)| here == there || below.contains(there))
                }
            };
            if !fits {
                broken.push(format!("{} must not use {}", path.join("::"), other.join("::")));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Parts of `sandbox/kube` and of `plan` keep to what the tables say.
#[test]
fn parts_keep_their_walls() {
    let mut broken = Vec::new();
    let mut seen = BTreeSet::new();
    for (path, used) in imports(Tests::Out) {
        let (room, file) = match path.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["sandbox", "kube", part, ..] => ("kube", (*part).to_owned()),
            ["plan", file, ..] => ("plan", (*file).to_owned()),
            _ => continue,
        };
        for other in &used {
            let fits = match (room, other.iter().map(String::as_str).collect::<Vec<_>>().as_slice()) {
                ("kube", ["sandbox", "kube", there, ..]) => {
                    let part = PARTS_OF_KUBE.iter().find(|(part, _)| *part == file);
                    part.is_none_or(|(part, may)| there == part || may.contains(there))
                }
                ("plan", ["plan", there, ..]) => {
                    let part = PARTS_OF_PLAN.iter().find(|(part, _)| *part == file);
                    part.is_none_or(|(_, not)| !not.contains(there))
                }
                _ => true,
            };
            if !fits {
                broken.push(format!("{} must not use {}", path.join("::"), other.join("::")));
            }
        }
        seen.insert(file);
    }
    let named = PARTS_OF_PLAN.iter().map(|(part, _)| part).chain(PARTS_OF_KUBE.iter().map(|(part, _)| part));
    broken.extend(named.filter(|name| !seen.contains(**name)).map(|name| format!("{name}: no such part")));
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// No file is reached from itself. What the file of a folder names of the files in it is their list; in these rooms not even
/// that may close a circle.
#[test]
fn no_file_imports_a_circle() {
    let strict = ["kinds", "sandbox"];
    let mut open = imports(Tests::Out);
    assert!(open.len() > 400, "{} files", open.len());
    for (path, used) in open.iter_mut().filter(|(path, _)| !strict.contains(&path[0].as_str())) {
        used.retain(|other| !other.starts_with(path));
    }
    // A file that uses none of the rest is in no cycle.
    loop {
        let still: BTreeSet<Vec<String>> = open.keys().cloned().collect();
        open.retain(|_, used| used.iter().any(|other| still.contains(other)));
        if open.len() == still.len() {
            break;
        }
    }
    let left: Vec<String> = open.keys().map(|path| path.join("::")).collect();
    assert!(left.is_empty(), "in a circle, or above one: {left:?}");
}

#[test]
fn only_live_and_sandbox_reach_the_network_and_only_live_knows_client_types() {
    let mut broken = Vec::new();
    for (path, text) in sources() {
        let module = path_of(&path).swap_remove(0);
        let network = ["reqwest::", "TcpListener", "TcpStream", "UnixStream", "hyper_util::"];
        if !matches!(module.as_str(), "live" | "sandbox") && network.iter().any(|word| text.contains(word)) {
            broken.push(format!("{}: network", path.display()));
        }
        let file = path_of(&path).join("::");
        for (client, home) in [("kube::", "live::kube"), ("google_cloud_auth::", "live::credentials::google")]
        {
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

/// The pure middle has no clock, no environment and no disk, but for the one file that reads stacks.
#[test]
fn the_middle_is_pure() {
    let mut broken = Vec::new();
    for krate in PURE {
        let manifest = fs::read_to_string(root().join("crates").join(krate).join("Cargo.toml")).unwrap();
        for client in ["tokio", "futures", "hyper", "reqwest", "kube", "axum", "live", "sandbox", "apply"] {
            let depends =
                |line: &str| line.strip_prefix(client).is_some_and(|rest| rest.starts_with(['.', ' ']));
            if manifest.lines().any(depends) {
                broken.push(format!("{krate} depends on {client}"));
            }
        }
    }
    for (path, text) in sources() {
        let module = path_of(&path);
        if !PURE.iter().any(|name| module.first().is_some_and(|first| first == name))
            || module == ["stack", "disk"]
        {
            continue;
        }
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for word in [
            "SystemTime",
            "Instant::now",
            "Timestamp::now",
            "std::env::var",
            "tokio::",
            "std::fs",
            ".is_file()",
            ".is_dir()",
            "canonicalize(",
            "read_dir(",
            ".exists()",
        ] {
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

/// Adverbs, prepositions and participles that have named files here.
const NO_NOUNS: &str = "about adapted again along amiss anew apart attached away beside booked confined drained given going \
    gone handled held here hearing inside installed listed lowered made mentioned named own packed \
    refused registered said served still there told waiting";

#[test]
fn files_are_named_by_nouns() {
    let stem = |path: &Path| path.file_stem().unwrap().to_str().unwrap().to_owned();
    let broken: Vec<PathBuf> = sources()
        .into_iter()
        .map(|(path, _)| path)
        .filter(|path| NO_NOUNS.split_whitespace().any(|word| word == stem(path)))
        .collect();
    assert!(broken.is_empty(), "a noun or a verb of the field is easier to find: {broken:?}");
}

/// Doc comments begin with the thing, or with a verb in the third person.
#[test]
fn doc_comments_name_the_thing() {
    let riddles = ["What ", "Whether ", "Who ", "Whose ", "Of those", "The same"];
    let mut broken = Vec::new();
    for (path, text) in sources() {
        let mut before = "";
        for (at, line) in text.lines().enumerate() {
            let line = line.trim_start();
            let begins = |comment: &str| riddles.iter().any(|word| comment.trim_start().starts_with(word));
            let comment = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
            // The first line of a comment; what follows may go on with a sentence.
            if !before.starts_with("///") && !before.starts_with("//!") && comment.is_some_and(begins) {
                broken.push(format!("{}:{}: {line}", path.display(), at + 1));
            }
            before = line;
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Every code of the table is used.
#[test]
fn every_code_is_used() {
    let all: String = sources()
        .iter()
        .filter(|(path, _)| !path.ends_with("codes.rs"))
        .map(|(_, text)| text.as_str())
        .collect();
    let unused: Vec<String> = model::diag::Code::all()
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

/// A test that a change does not wait for names those that hold its promise on every change.
#[test]
fn ignored_tests_name_what_runs_on_every_change() {
    let mut files = Vec::new();
    walk(&root().join("tests/it"), &mut files);
    let mut runs = BTreeSet::new();
    let mut ignored = Vec::new();
    for (path, text) in &files {
        let module = path.file_stem().unwrap().to_string_lossy();
        for test in text.split("\n#[test]").flat_map(|part| part.split("\n#[tokio::test")) {
            let Some((attributes, rest)) = test.split_once("fn ") else { continue };
            let name = rest.split('(').next().unwrap_or_default();
            let Some((_, reason)) = attributes.split_once("#[ignore") else {
                runs.insert(format!("{module}::{name}"));
                continue;
            };
            let reason = reason.split('"').nth(1).unwrap_or_default();
            ignored.push((format!("{module}::{name}"), module.clone(), reason));
        }
    }
    let holds = |module: &str, word: &str| match word.contains("::") {
        true => runs.contains(word),
        false => runs.contains(&format!("{module}::{word}")),
    };
    let mut broken = Vec::new();
    for (name, module, reason) in ignored {
        let words = reason.strip_prefix("nightly: ").unwrap_or_default().split([' ', ',']);
        let named: Vec<&str> = words.filter(|word| word.contains('_')).collect();
        if named.is_empty() || !named.iter().all(|word| holds(&module, word)) {
            broken.push(format!("{name}: {reason}"));
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}
