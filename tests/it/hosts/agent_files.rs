//! The user's own code on a host: the agent alone writes, looks at and removes folders of files. Nothing is reached through links.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::hosts::agent::{Agent, HOSTS, Setting, cluster, pretended, script};
use crate::real::free_ports;
use crate::sandbox_server::{entries_in, on_path, wait_until};

const PATH: &str = "/apis/hosts.dask-infra.dev/v1/files/s-code";
const ONE: &str = "00000000000000a1";
const TWO: &str = "00000000000000b2";

/// Files by path, with their texts; an executable one has `x` at its end.
fn code(digest: &str, files: &[(&str, &str)]) -> Value {
    let content = |text: &str| {
        let (text, executable) = text.strip_suffix(" x").map_or((text, false), |text| (text, true));
        json!({ "executable": executable, "base64": STANDARD.encode(text) })
    };
    let listed: Value = files.iter().map(|(path, text)| ((*path).to_owned(), json!(text))).collect();
    let content: Value = files.iter().map(|(path, text)| ((*path).to_owned(), content(text))).collect();
    json!({ "metadata": { "name": "s-code" }, "spec": { "digest": digest, "files": listed, "content": content } })
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn files_are_written_whole_and_again_when_somebody_changed_them() {
    if !on_path("python3", "--version") {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let mut agent = Agent::start(state.path());
    let body = code(ONE, &[("train.py", "one"), ("lib/run", "run x")]);
    let written = agent.apply(PATH, "", &body).1;
    assert_eq!(written["status"]["phase"], "Ready", "{written}");
    assert_eq!(written["spec"].get("content"), None, "contents are not sent back");
    let folder = agent.folder().join("files").join(ONE);
    assert_eq!(fs::read_to_string(folder.join("lib/run")).unwrap(), "run");
    assert_eq!(
        [mode(&folder), mode(&folder.join("train.py")), mode(&folder.join("lib/run"))],
        [0o700, 0o600, 0o700]
    );
    // What processes write there is theirs.
    fs::write(folder.join("result.txt"), "result").unwrap();
    assert_eq!(agent.get(PATH).1["status"]["phase"], "Ready");
    let other = state.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("run"), "theirs").unwrap();
    let change = |what: &str| match what {
        "text" => fs::write(folder.join("train.py"), "edited").unwrap(),
        "mode" => fs::set_permissions(folder.join("train.py"), fs::Permissions::from_mode(0o700)).unwrap(),
        "gone" => fs::remove_file(folder.join("train.py")).unwrap(),
        "link" => {
            fs::remove_file(folder.join("train.py")).unwrap();
            symlink(other.join("run"), folder.join("train.py")).unwrap();
        }
        "folder" => {
            fs::remove_dir_all(folder.join("lib")).unwrap();
            symlink(&other, folder.join("lib")).unwrap();
        }
        "whole" => {
            fs::remove_dir_all(&folder).unwrap();
            symlink(&other, &folder).unwrap();
        }
        _ => unreachable!(),
    };
    for what in ["text", "mode", "gone", "link", "folder", "whole"] {
        change(what);
        let seen = agent.get(PATH).1;
        assert_eq!(seen["status"]["phase"], "Failed", "{what}: {seen}");
        assert!(seen["status"]["message"].is_string());
        assert_eq!(agent.apply(PATH, "", &body).1["status"]["phase"], "Ready", "{what}");
        assert_eq!(fs::read_to_string(folder.join("train.py")).unwrap(), "one");
        assert_eq!(
            fs::read_to_string(other.join("run")).unwrap(),
            "theirs",
            "{what}: written through a link"
        );
    }
    agent.delete(PATH);
    wait_until("the folder is removed", || !folder.exists());
    assert!(other.join("run").exists());
    fs::remove_dir_all(&other).unwrap();
    wait_until("nothing is left", || entries_in(state.path()).is_empty());
}

#[test]
fn no_file_is_written_outside_of_its_folder() {
    if !on_path("python3", "--version") {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let mut agent = Agent::start(state.path());
    for path in ["../out", "/etc/out", "a/../../out", "a//b", "."] {
        let (status, said) = agent.apply(PATH, "", &code(ONE, &[(path, "text")]));
        assert_eq!(status, 422, "{path}: {said}");
    }
    let (status, _) = agent.apply(PATH, "", &code("../../out", &[("a", "text")]));
    assert_eq!(status, 422);
    assert!(!agent.folder().join("files").exists(), "nothing is left");
}

#[test]
fn a_folder_stays_as_long_as_something_names_it() {
    if !on_path("python3", "--version") {
        return;
    }
    let (state, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut agent = Agent::start(state.path());
    agent.with_environment(&pretended(home.path()));
    agent.apply(PATH, "", &code(ONE, &[("train.py", "one")]));
    let ports = free_ports::<2>();
    let of = |digest: &str| {
        let mut body = cluster(1, ports);
        body["spec"]["files"] = json!(digest);
        body
    };
    let path = format!("{HOSTS}/clusters/c");
    agent.apply(&path, "", &of(ONE));
    agent.wait_until_settled("clusters/c", 1);
    let folder = |digest: &str| agent_folder(&agent).join(digest);
    let [one, two] = [folder(ONE), folder(TWO)];
    let (_, note) = agent.note("c-worker-0");
    let pid = note["internal"]["process"]["pid"].as_u64().unwrap();
    assert_eq!(fs::read_link(format!("/proc/{pid}/cwd")).unwrap(), one);
    let variables = fs::read(format!("/proc/{pid}/environ")).unwrap();
    let expect = format!("PYTHONPATH={}", one.display());
    assert!(variables.split(|byte| *byte == 0).any(|one| one == expect.as_bytes()));
    // The section has other files, and its Dask cluster does not have them yet.
    agent.apply(PATH, "", &code(TWO, &[("train.py", "two")]));
    assert!(one.exists() && two.exists());
    agent.apply(&path, "", &of(TWO));
    agent.wait_until_settled("clusters/c", 1);
    wait_until("what nothing names is removed", || !one.exists());
    assert!(two.exists());
    // A link in place of a folder that goes: only the link is removed.
    let kept = home.path().join("kept");
    fs::create_dir(&kept).unwrap();
    fs::write(kept.join("file"), "").unwrap();
    fs::remove_dir_all(&two).unwrap();
    symlink(&kept, &two).unwrap();
    agent.delete(PATH);
    agent.destroy();
    wait_until("nothing is left", || entries_in(state.path()).is_empty());
    assert!(kept.join("file").exists());
}

#[test]
fn what_a_process_wrote_beside_its_files_stays() {
    if !on_path("python3", "--version") {
        return;
    }
    let (state, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut agent = Agent::start(state.path());
    agent.with_environment(&pretended(home.path()));
    let path = format!("{HOSTS}/clusters/c");
    let ports = free_ports::<2>();
    for digest in [ONE, TWO] {
        agent.apply(PATH, "", &code(digest, &[("train.py", digest)]));
        let mut body = cluster(1, ports);
        body["spec"]["files"] = json!(digest);
        agent.apply(&path, "", &body);
        agent.wait_until_settled("clusters/c", 1);
        let folder = agent_folder(&agent).join(digest);
        // Compiled modules are no results.
        fs::create_dir(folder.join("__pycache__")).unwrap();
        fs::write(folder.join("__pycache__/train.pyc"), "").unwrap();
    }
    let [one, two] = [ONE, TWO].map(|digest| agent_folder(&agent).join(digest));
    wait_until("a folder without results is removed", || !one.exists());
    fs::write(two.join("model.pt"), "weights").unwrap();
    agent.delete(PATH);
    agent.destroy();
    wait_until("the rest is removed", || !agent.folder().join("objects").exists());
    assert_eq!(fs::read_to_string(two.join("model.pt")).unwrap(), "weights");
}

fn agent_folder(agent: &Agent) -> std::path::PathBuf {
    agent.folder().join("files")
}

#[test]
fn a_process_without_its_folders_says_so() {
    if !on_path("python3", "--version") {
        return;
    }
    let (state, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut agent = Agent::start(state.path());
    agent.with_environment(&pretended(home.path()));
    let path = format!("{HOSTS}/clusters/c");
    let mut body = cluster(1, free_ports::<2>());
    body["spec"]["files"] = json!(ONE);
    agent.apply(&path, "", &body);
    let is_told = |words: &'static str| {
        move |_: u64, live: &Value| {
            live["status"]["message"].as_str().is_some_and(|said| said.contains(words))
        }
    };
    agent.wait_until(&path, is_told("the files of its section are not on this host"));
    body["spec"].as_object_mut().unwrap().remove("files");
    body["spec"]["scheduler"]["workingDir"] = json!("/nowhere/at/all");
    agent.apply(&path, "", &body);
    agent.wait_until(&path, is_told("there is no folder /nowhere/at/all"));
    agent.destroy();
}

/// The lines of the site come first and may set a path; the user's files are before it, and the job works in their folder.
#[test]
fn jobs_of_slurm_find_the_files_after_the_lines_of_the_site() {
    if !on_path("python3", "--version") {
        return;
    }
    let (state, home, tools) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for (name, text) in [("sbatch", "echo 1"), ("squeue", ""), ("scancel", "")] {
        script(&tools.path().join(name), &format!("#!/bin/sh\n{text}\n"));
    }
    let mut agent =
        Agent::start_with(state.path(), &Setting { path: Some(tools.path()), ..Setting::default() });
    agent.with_environment(&pretended(home.path()));
    agent.apply(PATH, "", &code(ONE, &[("train.py", "one")]));
    let mut body = cluster(1, free_ports::<2>());
    body["spec"]["files"] = json!(ONE);
    let told = home.path().join("told");
    let site = ["export PYTHONPATH=/site", "cd /"];
    body["spec"]["worker"]["slurm"] = json!({ "directives": [], "prologue": site });
    body["spec"]["worker"]["env"] = json!({ "PYTHONPATH": "/own" });
    let path = format!("{HOSTS}/clusters/c");
    agent.apply(&path, "", &body);
    agent.wait_until(&path, |_, live| live["status"]["converging"] == false);
    let file = agent.folder().join("scripts/c-worker-0.sh");
    let text = fs::read_to_string(&file).unwrap();
    let (lines, last) = text.trim_end().rsplit_once('\n').unwrap();
    assert!(last.starts_with("exec "), "{text}");
    // In place of the worker: where it would run, and what it would import from.
    let shown = format!("{lines}\nprintf '%s %s' \"$PWD\" \"$PYTHONPATH\" > {}\n", told.display());
    script(&home.path().join("job"), &shown);
    let variables = [("TMPDIR", home.path())];
    let run = Command::new("sh").arg(home.path().join("job")).envs(variables).status().unwrap();
    assert!(run.success());
    let folder = agent.folder().join("files").join(ONE).display().to_string();
    assert_eq!(fs::read_to_string(&told).unwrap(), format!("{folder} {folder}:/site"));
    assert!(lines.contains("export PYTHONPATH=/own"), "{text}");
    agent.delete(&path);
    agent.delete(PATH);
    agent.delete(&format!("{HOSTS}/environments/main"));
    wait_until("nothing is left", || entries_in(state.path()).is_empty());
}

/// The installer of an environment sees its local packages beside its file, and an edit of their code is another environment.
#[test]
fn environments_are_made_of_local_packages() {
    if !on_path("python3", "--version") {
        return;
    }
    let (state, home, tools) =
        (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let python = pretended(home.path());
    let uv = format!(
        "#!/bin/sh\necho \"$*\" >> {home}/calls\ncat ../lib/a.py ./pyproject.toml >> {home}/calls\n\
         at=$UV_PROJECT_ENVIRONMENT; mkdir -p \"$at/bin\" && cp {python} \"$at/bin/python\"\n",
        home = home.path().display(),
        python = python.display()
    );
    script(&tools.path().join("uv"), &uv);
    let mut agent =
        Agent::start_with(state.path(), &Setting { path: Some(tools.path()), ..Setting::default() });
    let path = format!("{HOSTS}/environments/main");
    let make = |agent: &mut Agent, digest: &str, sources: &str| {
        let files = json!({ "pyproject.toml": "[project]\n", "uv.lock": "version = 1\n" });
        let sources = json!({ "digest": sources, "base": "app", "project": true });
        let spec = json!({ "digest": digest, "files": files, "sources": sources });
        agent.apply(&path, "", &json!({ "metadata": { "name": "main" }, "spec": spec }));
        agent.wait_until(&path, |_, live| live["status"]["phase"] != "Making")["status"].clone()
    };
    let absent = make(&mut agent, "e0", ONE);
    assert!(absent["message"].as_str().unwrap().contains("are not on this host"), "{absent}");
    agent.apply(PATH, "", &code(ONE, &[("lib/a.py", "one\n"), ("app/setup.py", "")]));
    assert_eq!(make(&mut agent, "e1", ONE)["phase"], "Ready");
    let said = fs::read_to_string(home.path().join("calls")).unwrap();
    assert!(said.starts_with("sync --locked --no-editable --no-dev --project "), "{said}");
    assert!(said.ends_with("one\n[project]\n"), "{said}");
    agent.apply(PATH, "", &code(TWO, &[("lib/a.py", "two\n")]));
    assert_eq!(make(&mut agent, "e2", TWO)["phase"], "Ready");
    assert!(fs::read_to_string(home.path().join("calls")).unwrap().ends_with("two\n[project]\n"));
    let folder = agent_folder(&agent).join(ONE);
    wait_until("what no environment names is removed", || !folder.exists());
    agent.delete(PATH);
    agent.delete(&path);
    wait_until("nothing is left", || entries_in(state.path()).is_empty());
}
