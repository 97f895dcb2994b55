//! Certificates of Dask clusters on hosts, as clients and strangers meet them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::sandbox_server::entries_below;

/// The certificates that `connect` names, as Dask's configuration.
pub(crate) fn tls_configuration(connected: &Value) -> Vec<(String, String)> {
    let comm = "DASK_DISTRIBUTED__COMM__";
    let names = [
        ("tls_ca_file", "TLS__CA_FILE"),
        ("tls_client_cert", "TLS__CLIENT__CERT"),
        ("tls_client_key", "TLS__CLIENT__KEY"),
    ];
    let value = |option: &str| connected["security"][option].as_str().map(str::to_owned);
    names.iter().filter_map(|(option, name)| Some((format!("{comm}{name}"), value(option)?))).collect()
}

/// Computes with a scheduler, or says why not.
pub(crate) fn computes(python: &Path, at: &str, variables: &[(String, String)]) -> Result<String, String> {
    let program = "import sys\nfrom distributed import Client\nwith Client(sys.argv[1], timeout=5) as client:\n    \
                   print(client.submit(sum, [40, 5]).result())\n";
    let mut command = Command::new(python);
    let asked = command.args(["-c", program, at]).envs(variables.iter().cloned()).output().unwrap();
    match asked.status.success() {
        true => Ok(String::from_utf8_lossy(&asked.stdout).trim().to_owned()),
        false => Err(String::from_utf8_lossy(&asked.stderr).into_owned()),
    }
}

/// A worker that gives up after three seconds.
pub(crate) fn late_worker(python: &Path, at: &str, folder: &Path) -> Command {
    let mut worker = Command::new(python);
    worker.args([
        "-m",
        "distributed.cli.dask_worker",
        at,
        "--name",
        "late",
        "--death-timeout",
        "3",
        "--no-nanny",
    ]);
    worker.args(["--host", "127.0.0.1", "--dashboard-address", "127.0.0.1:0"]);
    worker.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    worker
}

/// A client computes with a scheduler by the files that `connect` names; without them nobody computes with it or works for it.
pub(crate) fn strangers_are_refused(python: &Path, connected: &Value) {
    let at = connected["client"].as_str().unwrap();
    let plain = at.replace("tls://", "tcp://");
    assert_ne!(at, plain);
    let folder = tempfile::tempdir().unwrap();
    let worker = late_worker(python, &plain, folder.path()).spawn().unwrap();
    for at in [at, &plain] {
        computes(python, at, &[]).unwrap_err();
    }
    let ended = String::from_utf8_lossy(&worker.wait_with_output().unwrap().stderr).into_owned();
    assert!(ended.contains(&plain) && !ended.contains("Registered to"), "{ended}");
    assert_eq!(computes(python, at, &tls_configuration(connected)), Ok("45".to_owned()));
}

/// Keys below a folder are in files that only this user can read, and in no other file there or in `others`. No process has one in its
/// arguments or variables.
pub(crate) fn keys_are_kept(state: &Path, others: &[&Path]) {
    let files = |folder: &Path| entries_below(folder).into_iter().filter(|path| path.is_file());
    let read = |path: &Path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
    let mut keys = Vec::new();
    for file in files(state) {
        let text = read(&file);
        if text.contains("PRIVATE KEY") {
            let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
            assert_eq!(file.file_name().unwrap(), "key.pem", "{}", file.display());
            assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700), "{}", file.display());
            keys.push(text.lines().nth(1).unwrap().to_owned());
        }
    }
    assert!(!keys.is_empty());
    let processes = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path());
    let told = processes.flat_map(|process| ["cmdline", "environ"].map(|file| process.join(file)));
    for file in told.chain(others.iter().flat_map(|folder| files(folder))) {
        let text = read(&file);
        assert!(!keys.iter().any(|key| text.contains(key)), "{}", file.display());
    }
}
