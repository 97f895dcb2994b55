//! The built program: exit codes, streams and help. Behaviour belongs to the cheaper levels.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

const STACK: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/stacks/rapids-gke");

/// The program in an empty environment, in `dir`.
fn program(dir: &Path, line: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dask-infra"));
    command.args(line.split_whitespace()).current_dir(dir).stdin(Stdio::null());
    for name in ["DASK_INFRA_SANDBOX", "DASK_INFRA_GKE_ENDPOINT", "GOOGLE_CLOUD_PROJECT", "NO_COLOR"] {
        command.env_remove(name);
    }
    command
}

struct ProgramOutput {
    code: i32,
    data: String,
    talk: String,
}

fn program_output(output: Output) -> ProgramOutput {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    ProgramOutput {
        code: output.status.code().unwrap_or(-1),
        data: text(output.stdout),
        talk: text(output.stderr),
    }
}

fn run(dir: &Path, line: &str) -> ProgramOutput {
    program_output(program(dir, line).output().unwrap())
}

fn empty() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn help_says_what_to_type_and_how_it_ends() {
    let dir = empty();
    let ProgramOutput { code, data, talk } = run(dir.path(), "--help");
    assert_eq!((code, talk.as_str()), (0, ""));
    for line in ["--sandbox apply", "  0  done, or nothing to do", "143  terminated", "DASK_INFRA_SANDBOX"] {
        assert!(data.contains(line), "{line} is missing in\n{data}");
    }
    for command in ["validate", "plan", "apply", "destroy", "show", "schema", "sandbox", "version"] {
        let ProgramOutput { code, data, .. } = run(dir.path(), &format!("{command} --help"));
        assert_eq!(code, 0, "{command}");
        assert!(data.contains("Usage: dask-infra"), "{data}");
    }
}

#[test]
fn wrong_usage_is_an_error_and_not_a_change() {
    let dir = empty();
    for line in ["", "plan --nope", "frobnicate", "plan --offline --out x", "plan --allow frobnicate:x"] {
        let ProgramOutput { code, data, talk } = run(dir.path(), line);
        assert_eq!((code, data.as_str()), (1, ""), "{line}");
        assert!(talk.contains("Usage: dask-infra") || talk.contains("--help"), "{line}: {talk}");
    }
}

#[test]
fn version_and_schema_are_data() {
    let dir = empty();
    let ProgramOutput { code, data, talk } = run(dir.path(), "version");
    assert_eq!((code, data, talk), (0, format!("dask-infra {}\n", env!("CARGO_PKG_VERSION")), String::new()));
    let version: Value = serde_json::from_str(&run(dir.path(), "version --json").data).unwrap();
    assert_eq!(version["dask-infra"], env!("CARGO_PKG_VERSION"));
    let schema: Value = serde_json::from_str(&run(dir.path(), "schema").data).unwrap();
    assert_eq!(schema["$schema"], "http://json-schema.org/draft-07/schema#");
}

#[test]
fn mistakes_in_the_stack_go_to_stderr_or_into_the_lines() {
    let dir = empty();
    let ProgramOutput { code, data, talk } = run(dir.path(), "validate");
    assert_eq!((code, data.as_str()), (1, ""));
    assert!(talk.contains("DI0001"), "{talk}");
    let ProgramOutput { code, data, talk } = run(dir.path(), "plan --json");
    assert_eq!((code, talk.as_str()), (1, ""));
    let kinds: Vec<Value> = data.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(kinds[0]["type"], "version");
    assert_eq!(kinds[1]["diagnostic"]["code"], "DI0001");
}

#[test]
fn an_offline_plan_needs_nothing_and_counts_everything() {
    let dir = empty();
    let ProgramOutput { code, data, talk } = program_output(
        program(dir.path(), &format!("--stack {STACK} plan --offline --detailed-exitcode"))
            .env("GOOGLE_CLOUD_PROJECT", "demo")
            .output()
            .unwrap(),
    );
    assert_eq!(code, 2, "{talk}");
    assert!(
        data.starts_with("Plan for stack rapids on demo / us-central1-c / rapids-gpu — OFFLINE\noffline: "),
        "{data}"
    );
    assert!(data.contains("\nPlan: 14 to add, 2 checks to run, in 8 sections.\n"), "{data}");
    assert!(!data.contains('\u{1b}'), "no colours into a pipe");
    let coloured = program_output(
        program(dir.path(), &format!("--stack {STACK} plan --offline --color always"))
            .env("GOOGLE_CLOUD_PROJECT", "demo")
            .output()
            .unwrap(),
    );
    assert!(coloured.data.contains("\u{1b}[32m  +"));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is written");
}

#[test]
fn validate_says_that_it_is_valid() {
    let ProgramOutput { code, data, talk } =
        run(empty().path(), &format!("--stack {STACK} --sandbox validate"));
    assert_eq!((code, data.as_str()), (0, "Success! The stack is valid.\n"), "{talk}");
}

#[test]
fn without_a_terminal_approval_is_refused_at_once() {
    let dir = empty();
    let ProgramOutput { code, data, talk } = run(dir.path(), &format!("--stack {STACK} --sandbox=box apply"));
    assert_eq!(code, 3, "{talk}");
    assert!(
        data.starts_with("Plan for stack rapids on sandbox-project / us-central1-c / rapids-gpu — SIMULATED")
    );
    assert!(talk.contains("DI0306") && talk.contains("--auto-approve"), "{talk}");
    let ProgramOutput { code, data, .. } = run(dir.path(), &format!("--stack {STACK} --sandbox=box destroy"));
    assert_eq!(code, 0, "there is nothing to destroy");
    assert!(data.contains("No changes. Nothing to destroy."), "{data}");
}

#[test]
fn a_saved_plan_is_shown_and_belongs_to_its_world() {
    let dir = empty();
    let planned = run(dir.path(), &format!("--stack {STACK} --sandbox=box plan --out p"));
    assert_eq!(planned.code, 0, "{}", planned.talk);
    assert!(planned.data.contains("apply p\n"), "{}", planned.data);
    let shown = run(dir.path(), "show p");
    assert_eq!(shown.code, 0, "{}", shown.talk);
    let (head, _) = planned.data.split_once("\nSaved to p.").unwrap();
    assert_eq!(shown.data.trim_end(), head.trim_end());
    let live = run(dir.path(), "apply p");
    assert_eq!(live.code, 1, "{}", live.talk);
    assert!(live.talk.contains("SIMULATED"), "{}", live.talk);
    std::fs::write(dir.path().join("broken"), "{}").unwrap();
    assert_eq!(run(dir.path(), "show broken").code, 1);
}

#[test]
fn a_sandbox_is_served_until_it_is_told_to_stop() {
    let dir = empty();
    let mut server = program(dir.path(), "sandbox serve --dir box").stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let ready: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    let gke = ready["gke"].as_str().unwrap().to_owned();
    assert!(gke.starts_with("http://127.0.0.1:"), "{ready}");
    assert_eq!(ready["pid"], server.id());

    let environment = run(dir.path(), "sandbox env --dir box");
    assert_eq!(environment.code, 0, "{}", environment.talk);
    assert!(
        environment.data.contains(&format!("export DASK_INFRA_GKE_ENDPOINT={gke}\n")),
        "{}",
        environment.data
    );
    assert!(environment.data.contains("/box/access-token\n"), "{}", environment.data);
    assert_eq!(run(dir.path(), "sandbox reset --dir box").code, 1, "it is in use");
    let planned = run(dir.path(), &format!("--stack {STACK} --sandbox=box plan --detailed-exitcode"));
    assert_eq!(planned.code, 2, "{}", planned.talk);
    let unknown = run(dir.path(), "--sandbox=box sandbox kubeconfig nowhere");
    assert_eq!(unknown.code, 1);
    assert!(unknown.talk.contains("DI0501"), "{}", unknown.talk);

    let killed = Command::new("kill").arg(server.id().to_string()).status().unwrap();
    assert!(killed.success());
    assert_eq!(server.wait().unwrap().code(), Some(0));
    assert_eq!(run(dir.path(), "sandbox env --dir box").code, 1, "nobody serves it now");
    assert_eq!(run(dir.path(), "sandbox reset --dir box").code, 0);
    assert!(!dir.path().join("box/sandbox.redb").exists());
}
