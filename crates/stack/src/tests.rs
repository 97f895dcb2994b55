//! Tests for all texts, and for all ways to break a valid one.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use super::schema::{OVERLAY, resolve, shape};
use super::{Options, Stack, check, load, parse_in, parse_text, tree, variables};
use model::address::FieldPath;
use model::diag::{Code, Look, render};
use model::source::Sources;

const READY: &str = include_str!("../../../stacks/rapids-gke/stack.toml");
const EVERYTHING: &str = include_str!("../../../tests/cases/diag-everything/stack.toml");
const GKE_KEYS: [&str; 7] = [
    include_str!("../../../tests/cases/plan-cluster-keys/stack.toml"),
    include_str!("../../../tests/cases/plan-cluster-network-policy/stack.toml"),
    include_str!("../../../tests/cases/plan-pool-keys/stack.toml"),
    include_str!("../../../tests/cases/plan-pool-queued/stack.toml"),
    include_str!("../../../tests/cases/diag-queue-keys/stack.toml"),
    include_str!("../../../tests/cases/plan-provisioning-request/stack.toml"),
    include_str!("../../../tests/cases/plan-stack-idle-stop/stack.toml"),
];

/// Returns the folder with the files that the texts name.
fn folder() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/cases/diag-everything"))
}

fn env(name: &str) -> Option<String> {
    (name == "GOOGLE_CLOUD_PROJECT").then(|| "demo".to_owned())
}

fn with_options<T>(run: impl FnOnce(&Options<'_>) -> T) -> T {
    run(&Options { env: &env, vars: &BTreeMap::new(), helm: None })
}

/// Returns the tree of a text with its references resolved.
fn resolved(text: &str) -> Value {
    let mut sources = Sources::default();
    let file = sources.add("stack.toml", text);
    let mut value = tree::read(&sources, file).value;
    with_options(|options| variables::resolve(&mut value, &sources, options));
    value
}

/// Collects the paths of all values in a tree.
fn paths(value: &Value, path: &FieldPath, all: &mut Vec<FieldPath>) {
    match value {
        Value::Object(table) => {
            for (key, value) in table {
                let path = path.key(key);
                all.push(path.clone());
                paths(value, &path, all);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                let path = path.index(index);
                all.push(path.clone());
                paths(value, &path, all);
            }
        }
        _ => {}
    }
}

fn at<'v>(value: &'v mut Value, path: &FieldPath) -> &'v mut Value {
    use model::address::Segment;
    path.segments().iter().fold(value, |value, segment| match segment {
        Segment::Key(key) => &mut value[key.as_str()],
        Segment::Index(index) => &mut value[*index],
    })
}

/// Checks that the schema check and serde agree. Only the schema check refuses values out of range and unknown keys, which serde
/// cannot refuse in a section with flattened keys. Whether a Dask cluster needs an image depends on the target.
fn agree(value: &Value, what: &str) {
    let mistakes = check::check(value);
    let (ranges, others): (Vec<_>, Vec<_>) = mistakes.iter().partition(|mistake| {
        let cluster = FieldPath::keys(["dask_cluster"]).contains(&mistake.path);
        let alone = [Code::OutOfRange, Code::UnknownKey];
        let alone = alone.into_iter().chain(cluster.then_some(Code::MissingKey)).collect::<Vec<_>>();
        mistake.diagnostic.as_ref().is_some_and(|diagnostic| alone.contains(&diagnostic.code))
    });
    match serde_json::from_value::<Stack>(value.clone()) {
        Ok(_) => {
            assert!(others.is_empty(), "{what}: only the check refuses: {}", others[0].path);
        }
        Err(error) => {
            assert!(!ranges.is_empty() || !others.is_empty(), "{what}: only serde refuses: {error}");
        }
    }
}

#[test]
fn the_check_accepts_what_serde_accepts() {
    for text in [READY, EVERYTHING] {
        let mut good = resolved(text);
        // Variables are any JSON to serde.
        good.as_object_mut().unwrap().remove("vars");
        agree(&good, "as it is");
        let mut all = vec![];
        paths(&good, &FieldPath::root(), &mut all);
        let others = [
            json!(true),
            json!(7),
            json!(-1),
            json!(1.5),
            json!("x"),
            json!([]),
            json!(["x"]),
            json!({}),
            json!({ "x": "y" }),
        ];
        for path in all {
            for other in &others {
                // Serde's structs can be read from lists of their fields; nobody writes that.
                if other.is_array() && !at(&mut good, &path).is_array() {
                    continue;
                }
                let mut broken = good.clone();
                *at(&mut broken, &path) = other.clone();
                agree(&broken, &format!("{path} = {other}"));
            }
            if let Some(table) = at(&mut good.clone(), &path).as_object_mut() {
                table.insert("no-such-key".to_owned(), json!(1));
                let mut broken = good.clone();
                *at(&mut broken, &path) = Value::Object(table.clone());
                agree(&broken, &format!("{path} with another key"));
            }
            let mut broken = good.clone();
            let parent = path.parent().unwrap();
            if let (Some(model::address::Segment::Key(key)), Some(table)) =
                (path.segments().last(), at(&mut broken, &parent).as_object_mut())
            {
                table.remove(key);
                agree(&broken, &format!("without {path}"));
            }
        }
    }
}

#[test]
fn the_case_of_everything_has_every_key() {
    fn visit(schema: &Value, value: &Value, path: &str, missing: &mut Vec<String>) {
        let schema = resolve(shape(), schema);
        if let Some(items) = schema.get("items") {
            value.as_array().into_iter().flatten().for_each(|value| visit(items, value, path, missing));
        }
        for (key, schema) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{key}");
            match value.get(key) {
                Some(value) => visit(schema, value, &path, missing),
                None => missing.push(path),
            }
        }
        if let (Some(members), Some(table)) = (schema.get("additionalProperties"), value.as_object()) {
            // Several sections of one kind have all keys together.
            let missing_in: Vec<Vec<String>> = table
                .values()
                .map(|value| {
                    let mut missing = Vec::new();
                    visit(members, value, path, &mut missing);
                    missing
                })
                .collect();
            let in_all = missing_in.first().into_iter().flatten();
            missing
                .extend(in_all.filter(|key| missing_in.iter().all(|missing| missing.contains(key))).cloned());
        }
    }
    // Keys of clusters and pools exclude each other, so several cases have all of them together.
    let missing_in = [EVERYTHING].into_iter().chain(GKE_KEYS).map(|text| {
        let mut missing = Vec::new();
        visit(shape(), &resolved(text), "", &mut missing);
        missing
    });
    let missing_in: Vec<Vec<String>> = missing_in.collect();
    let mut missing = missing_in[0].clone();
    missing.retain(|key| missing_in.iter().all(|missing| missing.contains(key)));
    // The other targets, and what only hosts have.
    missing
        .retain(|key| ![".kubernetes", ".local", ".ssh", ".slurm", ".environment"].contains(&key.as_str()));
    // Used up before; the cases of `extends` have them.
    missing.retain(|key| !OVERLAY.iter().any(|used| key.ends_with(&format!(".{used}"))));
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn a_stack_written_and_read_again_is_the_same() {
    for text in [READY, EVERYTHING] {
        let stack = with_options(|options| parse_in(folder(), "stack.toml", text, options)).unwrap().stack;
        let written = serde_json::to_value(&stack).unwrap();
        assert_eq!(serde_json::from_value::<Stack>(written).unwrap(), stack);
    }
}

#[test]
fn no_text_is_too_broken_to_be_spoken_of() {
    let cuts = (0..READY.len()).filter(|at| READY.is_char_boundary(*at));
    let cut = cuts.map(|at| READY[..at].to_owned());
    let lines: Vec<&str> = READY.lines().collect();
    let without_line = (0..lines.len()).map(|skip| {
        let kept = lines.iter().enumerate().filter(|(line, _)| *line != skip);
        kept.map(|(_, line)| *line).collect::<Vec<_>>().join("\n")
    });
    let twice = (0..lines.len()).map(|twice| {
        let kept =
            lines.iter().enumerate().flat_map(|(line, text)| vec![*text; 1 + usize::from(line == twice)]);
        kept.collect::<Vec<_>>().join("\r\n")
    });
    let odd = [
        "\u{feff}[stack]\nname = \"x\"",
        "[[[",
        "]",
        "=",
        "a",
        "a.",
        "'''",
        "{}",
        "[a]\n[a]\n[a]\n[a.b]\n[a.b]",
        "ä = 1",
    ];
    for text in cut.chain(without_line).chain(twice).chain(odd.map(str::to_owned)) {
        if let Err(failure) = with_options(|options| parse_text("stack.toml", &text, options)) {
            assert!(!failure.diagnostics.is_empty(), "{text}");
            let said = render(&failure.diagnostics, &failure.sources, Look::PLAIN);
            assert!(said.contains("stack.toml:"), "{said}\n{text}");
            assert!(!said.contains(Code::NotRead.as_str()), "{said}\n{text}");
        }
    }
}

#[test]
fn places_lead_back_to_the_lines() {
    let loaded = with_options(|options| parse_text("stack.toml", READY, options)).unwrap();
    for (path, line) in [
        ("node_pool.default-pool", "[node_pool.default-pool]"),
        ("node_pool.default-pool.machine_type", "machine_type = \"a2-highgpu-2g\""),
        ("node_pool.default-pool.disk_size_gb", "[node_pool.default-pool]"),
        ("dask_cluster.rapids-dask-cluster.worker.gpus", "worker = {"),
        ("gke.project", "project ="),
    ] {
        let location = loaded.sources.locate(&path.parse().unwrap()).unwrap();
        assert!(READY.lines().nth(location.line - 1).unwrap().starts_with(line), "{path} at {location}");
    }
}

#[test]
fn files_that_cannot_be_read_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let code = |path: &Path| {
        let failure = with_options(|options| load(path, options)).unwrap_err();
        let said = render(&failure.diagnostics, &failure.sources, Look::PLAIN);
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        assert!(said.contains(&name), "{said}");
        failure.diagnostics[0].code
    };
    assert_eq!(code(&path.join("none.toml")), Code::StackNotFound);
    assert_eq!(code(path), Code::StackNotFound);
    std::fs::write(path.join("latin.toml"), b"[stack]\nname = \"\xe4\"\n").unwrap();
    assert_eq!(code(&path.join("latin.toml")), Code::NotText);
    std::fs::write(path.join("utf16.toml"), b"\xff\xfe[\0s\0").unwrap();
    assert_eq!(code(&path.join("utf16.toml")), Code::NotText);
    assert_eq!(code(&path.join("latin.toml/below")), Code::StackNotReadable);
    std::fs::write(path.join("stack.toml"), READY).unwrap();
    let loaded = with_options(|options| load(path, options)).unwrap();
    assert_eq!(loaded.stack.cluster.unwrap().name, "rapids-gpu");
}

#[test]
fn variables_keep_their_type_and_can_be_given() {
    let text = EVERYTHING;
    let vars = BTreeMap::from([("size".to_owned(), "4".to_owned())]);
    let loaded =
        parse_in(folder(), "stack.toml", text, &Options { env: &env, vars: &vars, helm: None }).unwrap();
    assert_eq!(loaded.stack.node_pool["system"].size(), super::Nodes::Fixed(4));
    assert_eq!(loaded.stack.dask_cluster["one"].scheduler.keys.env["LOG"].text(), Some("${not a reference}"));
    assert_eq!(loaded.stack.gke.unwrap().project, "demo");
}

#[test]
fn a_program_in_a_pod_has_its_resources_as_an_annotation() {
    let text = include_str!("../../../tests/cases/plan-check-resources/stack.toml");
    let loaded = with_options(|options| parse_text("stack.toml", text, options)).unwrap();
    let lowered = crate::lower::lower(&loaded.stack, true);
    let check = lowered.resources.iter().find(|resource| resource.address.as_str() == "check.etl").unwrap();
    let variables = check.body["spec"]["containers"][0]["env"].as_array().unwrap();
    let name = "DASK_DISTRIBUTED__CLIENT__PRELOAD";
    let preload = variables.iter().find(|variable| variable["name"] == name).unwrap();
    assert!(preload["value"].as_str().unwrap().contains(r#"annotate(resources={\"GPU\":1.0})"#), "{preload}");
}
