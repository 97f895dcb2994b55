//! How the agent of a host runs workers: devices, processes, interfaces and folders, with a stand-in for Dask.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use model::versions::{PROGRAM, Skew, Versions, skew};
use serde_json::{Value, json};

use crate::hosts::agent::{Agent, HOSTS, Setting, asked, cluster, pretended, script};
use crate::sandbox::hostile_input::mutation::Rng;
use crate::sandbox_server::{entries_in, on_path, wait_until};

/// Versions compare in Rust as in Python, with the same words.
#[test]
fn versions_are_compared_alike_in_both_languages() {
    if !on_path("python3", "--version") {
        return;
    }
    let mut rng = Rng::new(15);
    let packages = ["python", "dask", "distributed", "msgpack", "cloudpickle", "numpy", "pandas"];
    let found = ["2026.8.0", "2026.3.0", "1.2.4", "1.1.0", "2.0", "3.11.7", "3.11.9", "3.12.1"];
    let cases: Vec<Vec<(String, Versions)>> = (0..400)
        .map(|_| {
            let side = |rng: &mut Rng, at: usize| {
                let some = packages.iter().filter_map(|package| {
                    let version = found.get(rng.below(found.len() + 1))?;
                    Some(((*package).to_owned(), (*version).to_owned()))
                });
                (format!("side{at}"), some.collect())
            };
            (0..rng.below(7)).map(|at| side(&mut rng, at)).collect()
        })
        .collect();
    let program = format!(
        "{PROGRAM}\nimport json, sys\nfor sides in json.load(sys.stdin):\n    print(json.dumps(skew(sides)))\n"
    );
    let mut python = Command::new("python3")
        .args(["-c", &program])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    python.stdin.take().unwrap().write_all(json!(cases).to_string().as_bytes()).unwrap();
    let said = String::from_utf8(python.wait_with_output().unwrap().stdout).unwrap();
    let said: Vec<(Vec<String>, Vec<String>)> =
        said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(said.len(), cases.len());
    let mut broken = 0;
    for (sides, (breaks, differs)) in cases.iter().zip(said) {
        broken += usize::from(!breaks.is_empty());
        // In Python versions of a package come in the order of the sides, too.
        assert_eq!(skew(sides), Skew { breaks, differs }, "{sides:?}");
    }
    assert!(broken > 50 && broken < cases.len(), "{broken}");
    // A patch of Python, another msgpack: both work together. Another numpy may not.
    let of = |versions: &[(&str, &str)]| -> Versions {
        versions.iter().map(|(name, version)| ((*name).to_owned(), (*version).to_owned())).collect()
    };
    let two = |one: &[(&str, &str)], other: &[(&str, &str)]| {
        skew(&[("a".to_owned(), of(one)), ("b".to_owned(), of(other))])
    };
    let same =
        two(&[("python", "3.11.7"), ("msgpack", "1.2.4")], &[("python", "3.11.9"), ("msgpack", "1.1.0")]);
    assert_eq!(same, Skew::default());
    let other = two(&[("python", "3.11.7"), ("numpy", "2.1.0")], &[("python", "3.12.1"), ("numpy", "2.2.0")]);
    assert_eq!(other.breaks, ["python 3.11.7 on a, 3.12.1 on b"]);
    assert_eq!(other.differs, ["numpy 2.1.0 on a, 2.2.0 on b"]);
}

/// Files become environments by the tool that they are for. Conda is not here, and uv need not be: both are stand-ins, which note how
/// they were called and make a Python that is not Dask's.
#[test]
fn files_make_environments() {
    if !on_path("python3", "--version") {
        return;
    }
    let (state, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let python = pretended(home.path());
    let tools = home.path().join("tools");
    fs::create_dir(&tools).unwrap();
    let tool = format!(
        "#!/bin/sh\nname=$(basename \"$0\")\necho \"$name $*\" >> {home}/calls\n\
         for word in \"$@\"; do case \"$word\" in\n  */requirements.txt) cat \"$word\" >> {home}/calls ;;\n  \
         */environment.yml) cat \"$word\" >> {home}/calls ;;\n  \
         *.files) cat \"$word\"/* >> {home}/calls ;;\nesac; done\n\
         at=$UV_PROJECT_ENVIRONMENT; mkdir -p \"$at/bin\" && cp {python} \"$at/bin/python\"\n\
         [ ! -e {home}/stale ] || {{ echo 'hint: To update the lockfile, run `uv lock`.' >&2; exit 1; }}\n",
        home = home.path().display(),
        python = python.display()
    );
    // Where the machine's own uv and conda are not.
    let shell = format!("export HOME={}", home.path().display());
    let setting = Setting { path: Some(&tools), shell: &shell, ..Setting::default() };
    let path = format!("{HOSTS}/environments/main");
    let calls = || fs::read_to_string(home.path().join("calls")).unwrap_or_default();
    let mut agent = Agent::start_with(state.path(), &setting);
    let make = |agent: &mut Agent, digest: &str, files: Value| {
        let body = json!({ "metadata": { "name": "main" }, "spec": { "digest": digest, "files": files } });
        agent.apply(&path, "", &body);
        agent.wait_until(&path, |_, live| live["status"]["phase"] != "Making")["status"].clone()
    };
    let conda = json!({ "environment.yml": "dependencies: [dask]\n" });
    let failed = make(&mut agent, "c0", conda.clone());
    assert!(
        failed["message"].as_str().unwrap().contains("neither micromamba nor mamba nor conda"),
        "{failed}"
    );
    // Where its installer puts it, which is not on the PATH of a shell that is not interactive.
    let usual = home.path().join("miniconda3/bin");
    fs::create_dir_all(&usual).unwrap();
    script(&usual.join("conda"), &tool);
    assert_eq!(make(&mut agent, "c00", conda.clone())["phase"], "Ready");
    fs::remove_file(usual.join("conda")).unwrap();
    fs::remove_file(home.path().join("calls")).unwrap();
    for name in ["uv", "conda"] {
        script(&tools.join(name), &tool);
    }
    assert_eq!(make(&mut agent, "c1", conda)["phase"], "Ready");
    let said = calls();
    assert!(said.contains("conda env create --quiet --prefix ") && said.contains("[dask]"), "{said}");
    let ready = make(&mut agent, "r1", json!({ "requirements.txt": "toolz==1.0.0\n" }));
    assert_eq!(ready["versions"]["distributed"], "2026.8.0");
    assert!(calls().contains("uv venv --quiet ") && calls().contains("toolz==1.0.0"), "{}", calls());
    let project = json!({ "pyproject.toml": "[project]\n", "uv.lock": "version = 1\n" });
    assert_eq!(make(&mut agent, "p1", project.clone())["phase"], "Ready");
    assert!(calls().contains("uv sync --locked --no-install-project --no-dev --project "), "{}", calls());
    assert!(calls().ends_with("[project]\nversion = 1\n"), "{}", calls());
    fs::write(home.path().join("stale"), "").unwrap();
    let failed = make(&mut agent, "p2", project);
    assert!(
        failed["message"].as_str().unwrap().contains("uv.lock is not that of pyproject.toml"),
        "{failed}"
    );
    agent.delete(&path);
    wait_until("nothing is left", || entries_in(state.path()).is_empty());
}

/// The option of a command that an agent noted.
fn option(note: &Value, name: &str) -> Option<String> {
    let command = note["spec"]["containers"][0]["command"].as_array().unwrap();
    let at = command.iter().position(|word| word == name)?;
    command[at + 1].as_str().map(str::to_owned)
}

/// No GPU is here: `nvidia-smi` and `dask cuda worker` are stand-ins, and what is held is who gets which device.
#[test]
fn no_two_workers_have_one_gpu() {
    if !on_path("python3", "--version") {
        return;
    }
    let (state, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let python = pretended(home.path());
    let ports = crate::real::free_ports::<2>();
    let mut wanted = cluster(2, ports);
    wanted["spec"]["worker"]["gpus"] = json!(1);
    wanted["spec"]["worker"]["cudaOptions"] = json!(["--rmm-pool-size", "0.8", "--rmm-async"]);
    wanted["spec"]["worker"]["resources"] = json!({ "MEM": 2.5, "GPU": 1.0 });
    let path = format!("{HOSTS}/clusters/c");
    let setting = Setting { path: Some(home.path()), ..Setting::default() };
    let mut agent = Agent::start_with(state.path(), &setting);
    agent.with_environment(&python);
    // Without any nothing begins.
    script(&home.path().join("nvidia-smi"), "#!/bin/sh\nexit 9\n");
    let (status, refused) = agent.apply(&path, "", &wanted);
    let said = refused["message"].as_str().unwrap();
    assert_eq!(
        (status, said.contains("asks for 2 GPUs") && said.contains("nothing was started")),
        (422, true),
        "{said}"
    );
    assert!(!agent.folder().join("objects/pods").exists());
    let smi = "#!/bin/sh\n[ \"$1\" = --query-gpu=uuid ] && printf 'GPU-a\\nGPU-b\\nGPU-c\\n'\n";
    script(&home.path().join("nvidia-smi"), smi);
    agent.apply(&path, "", &wanted);
    agent.wait_until(&path, |_, live| live["status"]["workers"]["registered"] == 2);
    let gpus_of = |agent: &Agent, pod: &str| agent.note(pod).1["internal"]["gpus"].clone();
    let both = [gpus_of(&agent, "c-worker-0"), gpus_of(&agent, "c-worker-1")];
    assert_eq!(both, [json!(["GPU-a"]), json!(["GPU-b"])]);
    let log = fs::read_to_string(agent.folder().join("logs/c-worker-1.log")).unwrap();
    // One of three GPUs comes with a third of the memory.
    let limit = "--memory-limit 0.3333";
    for part in [
        "devices GPU-b",
        "-m dask cuda worker tcp://",
        "--rmm-pool-size 0.8 --rmm-async",
        limit,
        "--resources GPU=1.0,MEM=2.5",
    ] {
        assert!(log.contains(part), "{part}: {log}");
    }
    // More than there are, in a group beside it and by its number.
    let group = |gpus: u32| {
        json!({ "metadata": { "name": "c-more" }, "spec": {
        "cluster": "c", "environment": { "name": "main", "digest": "d1" },
        "worker": { "replicas": 1, "threads": 1, "gpus": gpus },
    } })
    };
    let more = format!("{HOSTS}/workergroups/c-more");
    let (status, refused) = agent.apply(&more, "", &group(2));
    assert!(status == 422 && refused["message"].as_str().unwrap().contains("beside 2"), "{refused}");
    assert_eq!(agent.apply(&more, "", &group(1)).0, 200);
    agent.wait_until_settled("workergroups/c-more", 1);
    assert_eq!(gpus_of(&agent, "c-more-worker-0"), json!(["GPU-c"]));
    let scale = json!({ "spec": { "replicas": 3 } });
    assert_eq!(agent.ask("PUT", &format!("{path}/scale"), Some(&scale)).0, 422);
    // A group that goes gives its GPU to the one that comes: both in one change.
    assert_eq!(agent.ask("DELETE", &more, None).0, 200);
    agent.wait_until(&more, |status, _| status == 404);
    // One worker with two: two processes, with names of their own.
    wanted["spec"]["worker"]["gpus"] = json!(2);
    wanted["spec"]["worker"]["replicas"] = json!(1);
    agent.apply(&path, "", &wanted);
    let seen = agent.wait_until(&path, |_, live| {
        live["status"]["converging"] == false && live["status"]["workers"]["registered"] == 1
    });
    assert_eq!(seen["status"]["workers"]["running"], 1);
    assert!(home.path().join("workers/c-worker-0-1").exists());
    let own = gpus_of(&agent, "c-worker-0");
    assert_eq!(own.as_array().unwrap().len(), 2, "{own}");
    // Each of its processes has a third, too, unless the section says how much.
    assert_eq!(option(&agent.note("c-worker-0").1, "--memory-limit").as_deref(), Some("0.3333"));
    wanted["spec"]["worker"]["memory"] = json!(1_000_000_000);
    agent.apply(&path, "", &wanted);
    agent.wait_until(&path, |_, live| {
        live["status"]["converging"] == false && live["status"]["workers"]["registered"] == 1
    });
    let command = agent.note("c-worker-0").1["spec"]["containers"][0]["command"].clone();
    let limits = command.as_array().unwrap().iter().filter(|word| *word == "--memory-limit").count();
    assert_eq!(limits, 1, "{command}");
    agent.destroy();
    assert_eq!(entries_in(state.path()), Vec::<PathBuf>::new());
}

#[test]
fn workers_run_as_they_are_told() {
    if !on_path("python3", "--version") {
        return;
    }
    let (state, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let python = pretended(home.path());
    let mut agent = Agent::start(state.path());
    agent.with_environment(&python);
    let ports = crate::real::free_ports::<2>();
    let mut wanted = cluster(1, ports);
    wanted["spec"]["scheduler"] = json!({ "interface": "lo", "port": ports[0], "dashboardPort": ports[1] });
    let scratch = home.path().join("scratch");
    let worker = json!({
        "replicas": 1, "threads": 2, "processes": 2, "interface": "lo", "localDirectory": scratch,
    });
    wanted["spec"]["worker"] = worker.clone();
    let path = format!("{HOSTS}/clusters/c");
    agent.apply(&path, "", &wanted);
    let failed = agent.wait_until(&path, |_, live| live["status"]["converging"] == false);
    let said = failed["status"]["message"].as_str().unwrap();
    assert!(said.contains("there is no folder"), "{said}");
    fs::create_dir(&scratch).unwrap();
    agent.apply(&path, "", &wanted);
    let seen = agent.wait_until(&path, |_, live| live["status"]["workers"]["registered"] == 1);
    assert_eq!(seen["status"]["scheduler"]["address"], format!("tcp://127.0.0.1:{}", ports[0]));
    let (_, note) = agent.note("c-worker-0");
    for (name, value) in [("--nworkers", "2"), ("--nthreads", "2"), ("--host", "127.0.0.1")] {
        assert_eq!(option(&note, name).as_deref(), Some(value), "{name}");
    }
    let own = PathBuf::from(option(&note, "--local-directory").unwrap());
    assert_eq!(own.parent(), Some(scratch.as_path()));
    assert!(own.is_dir());
    // Both of its processes are retired, and its folder goes with it.
    wanted["spec"]["worker"]["nanny"] = json!(false);
    wanted["spec"]["worker"]["processes"] = json!(1);
    agent.apply(&path, "", &wanted);
    agent.wait_until(&path, |_, live| {
        live["status"]["converging"] == false && live["status"]["workers"]["registered"] == 1
    });
    assert!(!own.exists());
    assert!(asked(home.path(), "RETIRE").is_empty() || !home.path().join("workers/c-worker-0-0").exists());
    assert!(
        agent.note("c-worker-0").1["spec"]["containers"][0]["command"].to_string().contains("--no-nanny")
    );
    // An interface that is not there.
    wanted["spec"]["worker"]["interface"] = json!("nope0");
    agent.apply(&path, "", &wanted);
    let failed = agent.wait_until(&path, |_, live| {
        live["status"]["converging"] == false && live["status"]["workers"]["running"] == 0
    });
    let said = failed["status"]["message"].as_str().unwrap();
    assert!(said.contains("no network interface nope0") && said.contains("lo"), "{said}");
    agent.destroy();
    assert_eq!(entries_in(&scratch), Vec::<PathBuf>::new());
    assert_eq!(entries_in(state.path()), Vec::<PathBuf>::new());
}

#[test]
fn limits_above_the_memory_of_the_host_are_told() {
    if !on_path("python3", "--version") {
        return;
    }
    let (state, home) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let python = pretended(home.path());
    let mut agent = Agent::start(state.path());
    agent.with_environment(&python);
    let mut wanted = cluster(2, crate::real::free_ports::<2>());
    let path = format!("{HOSTS}/clusters/c");
    let memory = |agent: &mut Agent, wanted: &Value| {
        agent.apply(&path, "", wanted);
        let seen = agent.wait_until(&path, |_, live| {
            live["status"]["converging"] == false && live["status"]["workers"]["registered"] == 2
        });
        seen["status"]["memory"].as_str().unwrap_or_default().to_owned()
    };
    // Without a limit of its own, each worker has a share of the host.
    assert_eq!(memory(&mut agent, &wanted), "");
    wanted["spec"]["worker"]["memory"] = json!(1 << 20);
    assert_eq!(memory(&mut agent, &wanted), "");
    // A pebibyte for each of two workers.
    wanted["spec"]["worker"]["memory"] = json!(1_u64 << 50);
    let told = memory(&mut agent, &wanted);
    assert!(told.contains("may use 2097152.0 GiB of memory together"), "{told}");
    assert!(told.contains("and the host has "), "{told}");
    agent.destroy();
}
