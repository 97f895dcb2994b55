//! Connections by the system's OpenSSH, with its configuration, agent, known hosts and jump hosts. Host keys are always checked,
//! and passwords are never asked for.

use std::ffi::OsString;
use std::path::PathBuf;

use serde_json::json;
use tokio::process::Command;

use crate::environment::env_var;
use crate::private_files;
use crate::{ApiError, ErrorClass, Request};
use model::resource::{Host, HostConnection};
use model::shell::{ShellLine, quoted};

/// Options of every connection. Commands within a minute share one connection to a host. A link that is silent for fifteen
/// seconds counts as broken.
const OPTIONS: [&str; 8] = [
    "BatchMode=yes",
    "ConnectTimeout=10",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=3",
    "ControlMaster=auto",
    "ControlPersist=60",
    "ForwardAgent=no",
    "ForwardX11=no",
];

/// The interpreter of the agent if the stack names none.
const PYTHON: &str = "python3";

/// The environment variable with the program to use instead of `ssh`, such as a script that sets a configuration.
const PROGRAM: &str = "DASK_INFRA_SSH";

/// Returns the command that runs a program on a host.
///
/// # Errors
///
/// The connection is not by SSH.
pub(super) fn command(connection: &HostConnection, remote: &str) -> Result<Command, String> {
    let HostConnection::Ssh { address, user, port, identity, .. } = connection else {
        return Err("no way by SSH".to_owned());
    };
    let mut command = Command::new(program());
    command.arg("-T");
    for option in OPTIONS {
        command.args(["-o", option]);
    }
    match sockets() {
        Some(folder) => {
            let mut path = OsString::from("ControlPath=");
            path.push(folder.join("%C"));
            command.arg("-o").arg(path);
        }
        // Each command then connects by itself.
        None => drop(command.args(["-S", "none"])),
    }
    if let Some(user) = user {
        command.args(["-l", user]);
    }
    if let Some(port) = port {
        command.args(["-p", &port.to_string()]);
    }
    if let Some(identity) = identity {
        command.args(["-i", identity]);
    }
    command.arg("--").arg(address).arg(remote);
    Ok(command)
}

/// Returns the shell command that runs the agent on the host. Shells other than bash read text in `'…'` as bash does, up to the
/// next `'`: fish, tcsh and zsh each tried.
pub(super) fn remote(host: &Host, start: &str, nonce: &str) -> String {
    let (python, prologue) = match &host.connection {
        HostConnection::Ssh { python, prologue, .. } => {
            (python.as_deref().unwrap_or(PYTHON), prologue.as_slice())
        }
        HostConnection::Local => (PYTHON, [].as_slice()),
    };
    let python = match python.strip_prefix("~/") {
        Some(rest) => format!("~/{}", quoted(rest)),
        None => quoted(python),
    };
    let runs = format!("exec {python} -I -u -c \"{start}\" {nonce}");
    if prologue.is_empty() {
        return runs;
    }
    let lines: Vec<&str> = prologue.iter().map(String::as_str).chain([runs.as_str()]).collect();
    format!("exec bash -lc {}", quoted(&lines.join("; ")))
}

fn program() -> String {
    env_var(PROGRAM).unwrap_or_else(|| "ssh".to_owned())
}

/// Returns a private folder with a short path for sockets: a socket's path has 107 bytes at most, and SSH adds sixty. `None` if
/// there is none, as when another user created the one below `/tmp` first.
fn sockets() -> Option<PathBuf> {
    let session = env_var("XDG_RUNTIME_DIR").filter(|folder| folder.len() < 30);
    let session = session.map(|folder| PathBuf::from(folder).join("dask-infra"));
    let shared = PathBuf::from(format!("/tmp/dask-infra-{}", private_files::uid()));
    session.into_iter().chain([shared]).find_map(|folder| private_files::create_private_dir(&folder).ok())
}

/// Returns the error for a host that was not reached, from the message of ssh. Source: OpenSSH 9.2, each tried.
pub(super) fn failed(request: &Request, host: &Host, said: &str) -> ApiError {
    // fish underlines what it does not know.
    let says = |line: &&str| line.chars().any(|c| !matches!(c, '^' | '~' | ' '));
    let lines: Vec<&str> = said.lines().map(str::trim).filter(says).collect();
    let last = lines.last().copied().unwrap_or("it said nothing");
    let has = |words: &str| lines.iter().any(|line| line.contains(words));
    let find = |words: &str| lines.iter().find(|line| line.contains(words)).copied();
    let python = match &host.connection {
        HostConnection::Ssh { python: Some(python), .. } => python.trim_start_matches("~/"),
        HostConnection::Ssh { .. } | HostConnection::Local => PYTHON,
    };
    // Messages of bash, dash, zsh, tcsh and fish about a missing program.
    let missing = ["not found", "No such file", "Unknown command", "unknown command"];
    let is_missing = |line: &&&str| line.contains(python) && missing.iter().any(|words| line.contains(words));
    let (ssh, known_as) = ssh_command_line(host);
    let (class, why, remedy) = if has("REMOTE HOST IDENTIFICATION HAS CHANGED") {
        let remedy = format!(
            "ask who runs the host whether its key changed; if so, remove the old one: `ssh-keygen -R {known_as}`"
        );
        (ErrorClass::Untrusted, "its host key is not the one that is known".to_owned(), remedy)
    } else if has("Host key verification failed") {
        let remedy = format!("connect once by hand and compare the key: `{ssh}`");
        (ErrorClass::Untrusted, "its host key is not known".to_owned(), remedy)
    } else if has("Permission denied") {
        let remedy = format!(
            "`{ssh} true` must work without a question: put your key into ssh-agent, or give `user` and `identity`"
        );
        (ErrorClass::Unauthenticated, last.to_owned(), remedy)
    } else if let Some(line) = find("error while loading shared libraries") {
        (ErrorClass::Other, format!("its `{python}` does not run: {line}"), NAME_PYTHON.to_owned())
    } else if lines.iter().any(|line| is_missing(&line)) {
        (ErrorClass::Other, format!("it has no `{python}`"), NAME_PYTHON.to_owned())
    } else if has("invalid literal for int()") {
        let remedy = "let the file do that in interactive shells only: `case $- in *i*) … ;; esac` in bash";
        let why = "a startup file of its shell (such as ~/.bashrc) reads the standard input";
        (ErrorClass::Other, why.to_owned(), remedy.to_owned())
    } else if lines.is_empty() {
        let remedy = format!(
            "`{ssh} true` must succeed: the account may have a shell that lets nobody in (`nologin`), or a startup file of its shell \
             ends it (`exit`)"
        );
        (ErrorClass::Unavailable, last.to_owned(), remedy)
    } else {
        let gone = match host.slurm {
            true => String::new(),
            false => format!(
                "; if the host does not exist any more, `gone = [\"{}\"]` in `[ssh]` gives it up",
                host.name
            ),
        };
        let remedy =
            format!("check the network and `{ssh} true`: what runs there is unknown, not gone{gone}");
        (ErrorClass::Unavailable, last.to_owned(), remedy)
    };
    let message = format!("{host} cannot be used: {why}");
    ApiError { body: Some(json!({ "remedy": remedy })), ..request.failed(class, message) }
}

/// The remedy for a host without a Python that is new enough.
pub(super) const NAME_PYTHON: &str = "install Python 3.8 or later there, on the PATH of a shell that is not a login shell; or name one by \
     its path, or a line of shell that finds it: `{ name = \"…\", python = \"/opt/python3.12/bin/python3\", prologue = [\"module load \
     python\"] }` in `[ssh]`";

/// Returns the command to connect by hand, and the name of the host's key in `known_hosts`.
fn ssh_command_line(host: &Host) -> (ShellLine, String) {
    let mut line = ShellLine::of(&program());
    let HostConnection::Ssh { address, user, port, identity, .. } = &host.connection else {
        return (line.words([host.address()]), quoted(host.address()));
    };
    if let Some(port) = port {
        line = line.words(["-p", &port.to_string()]);
    }
    if let Some(identity) = identity {
        line = line.path("-i", identity);
    }
    line = match user {
        Some(user) => line.words([format!("{user}@{address}")]),
        None => line.words([address]),
    };
    let known_as = match port {
        Some(port) if *port != 22 => format!("[{address}]:{port}"),
        _ => address.clone(),
    };
    (line, quoted(&known_as))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::resource::Api;

    #[test]
    fn the_command_by_hand_reaches_the_same_host() {
        let host = |user: Option<&str>, port, identity: Option<&str>| Host {
            name: "a".into(),
            connection: HostConnection::Ssh {
                address: "n1".into(),
                user: user.map(str::to_owned),
                port,
                identity: identity.map(str::to_owned),
                python: None,
                prologue: Vec::new(),
            },
            slurm: false,
        };
        for (host, ssh, known_as) in [
            (host(None, None, None), "ssh n1", "n1"),
            (host(Some("me"), Some(22), None), "ssh -p 22 me@n1", "n1"),
            (host(Some("me"), Some(2222), Some("~/.ssh/a")), "ssh -p 2222 -i ~/.ssh/a me@n1", "'[n1]:2222'"),
            (host(Some("$(id)"), None, Some("k; id #")), "ssh -i 'k; id #' '$(id)@n1'", "n1"),
        ] {
            let (line, known) = ssh_command_line(&host);
            assert_eq!((line.to_string(), known), (ssh.to_owned(), known_as.to_owned()));
        }
    }

    fn of(python: Option<&str>, prologue: &[&str]) -> Host {
        let prologue = prologue.iter().map(|line| (*line).to_owned()).collect();
        let python = python.map(str::to_owned);
        let connection = HostConnection::Ssh {
            address: "n1".into(),
            user: None,
            port: None,
            identity: None,
            python,
            prologue,
        };
        Host { name: "n1".into(), connection, slurm: false }
    }

    #[test]
    fn a_host_may_have_a_python_and_a_prologue() {
        let line = |host: Host| remote(&host, "print('x')", "7");
        assert_eq!(line(of(None, &[])), "exec python3 -I -u -c \"print('x')\" 7");
        assert_eq!(
            line(of(Some("~/my py/bin/python"), &[])),
            "exec ~/'my py/bin/python' -I -u -c \"print('x')\" 7"
        );
        assert_eq!(
            line(of(Some("/opt/p"), &["module load cuda", "export A=1"])),
            "exec bash -lc 'module load cuda; export A=1; exec /opt/p -I -u -c \"print('\\''x'\\'')\" 7'"
        );
    }

    #[test]
    fn what_ssh_says_tells_what_to_do() {
        let host = of(None, &[]);
        let request = Request::get(Api::Kubernetes, "/version");
        for (said, class, words) in [
            (
                "ssh: connect to host n1 port 22: Connection refused\n",
                ErrorClass::Unavailable,
                "Connection refused",
            ),
            ("a@n1: Permission denied (publickey).\n", ErrorClass::Unauthenticated, "Permission denied"),
            (
                "@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.",
                ErrorClass::Untrusted,
                "not the one",
            ),
            (
                "No ED25519 host key is known for n1\nHost key verification failed.",
                ErrorClass::Untrusted,
                "not known",
            ),
            ("bash: line 1: exec: python3: not found\n", ErrorClass::Other, "no `python3`"),
            (
                "fish: Unknown command: python3\nfish: \nexec python3 -I\n     ^~~~~~^\n",
                ErrorClass::Other,
                "no `python3`",
            ),
            (
                "python3: error while loading shared libraries: libpython3.so: cannot open shared object file: No such file or directory\n",
                ErrorClass::Other,
                "does not run",
            ),
            ("ValueError: invalid literal for int() with base 10: 'x'\n", ErrorClass::Other, "startup file"),
            ("", ErrorClass::Unavailable, "said nothing"),
        ] {
            let error = failed(&request, &host, said);
            assert_eq!(error.class, class, "{said}");
            assert!(error.message.contains(words), "{error}");
            assert!(error.remedy().is_some(), "{said}");
        }
    }
}
