//! A second user of the machine, and what they try on a Dask cluster of the first: each way in of the security review that needs no more
//! than an account.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, chown, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde_json::{Value, json};

use crate::hosts::slurm::{Login, python};
use crate::hosts::tls::{late_worker, tls_configuration};
use crate::sandbox_server::entries_in;

/// `nobody`.
const UID: u32 = 65534;

/// Looks at all files below folders, and at all processes, for words; tells what it can write and enter, too.
const LOOKS: &str = r#"
import json, os, socket, stat, sys
asked = json.load(sys.stdin)
words = [word.encode() for word in asked["words"]]
found = {"seen": 0, "entered": [], "written": [], "told": [], "connected": []}
def told(path):
    try:
        with open(path, "rb") as file:
            text = file.read()
        return any(word in text for word in words)
    except OSError:
        return False
for root in asked["roots"]:
    for folder, folders, files in os.walk(root):
        found["seen"] += len(folders) + len(files)
        for name in folders + files:
            path = os.path.join(folder, name)
            status = os.lstat(path)
            if status.st_uid == os.getuid() or stat.S_ISLNK(status.st_mode):
                continue
            if os.access(path, os.W_OK):
                found["written"].append(path)
            if stat.S_ISDIR(status.st_mode) and os.access(path, os.R_OK | os.X_OK):
                found["entered"].append(path)
            elif stat.S_ISREG(status.st_mode) and told(path):
                found["told"].append(path)
            elif stat.S_ISSOCK(status.st_mode) and socket.socket(socket.AF_UNIX).connect_ex(path) == 0:
                found["connected"].append(path)
for process in filter(str.isdigit, os.listdir("/proc")):
    for file in ("cmdline", "environ"):
        if told("/proc/%s/%s" % (process, file)):
            found["told"].append("/proc/%s/%s" % (process, file))
print(json.dumps(found))
"#;

/// Does all of it once before it becomes the other user, who may not read this Python. Connects to everything that listens, with each set
/// of certificates; with those that are right it must come in, or it proves nothing. Runs schedulers of its own, which nobody joins.
const CONNECTS: &str = r#"
import asyncio, json, os, sys
from distributed import Client, Scheduler, Security, Worker
from distributed.core import rpc
asked = json.loads(sys.stdin.readline())
def security(ca, own):
    return Security(tls_ca_file=ca + "/ca.pem", require_encryption=True, **{
        "tls_%s_%s" % (role, key): own + "/%s.pem" % key for role in ("client", "worker", "scheduler") for key in ("cert", "key")})
async def came_in(what, coroutine):
    try:
        await asyncio.wait_for(coroutine, 4)
        return what
    except (Exception, asyncio.CancelledError):
        return None
async def asks(at, keys):
    async with rpc(at, connection_args=(keys or Security()).get_connection_args("client"), timeout=3) as link:
        await link.identity()
async def computes(at, keys):
    async with Client(at, security=keys, timeout=3, asynchronous=True) as client:
        return await client.submit(sum, [40, 5])
async def joins(at, keys):
    async with Worker(at, security=keys, name="of-another", nthreads=0, dashboard=False, local_directory=asked["folder"]):
        pass
async def main():
    at, right, own = asked["at"], security(asked["right"], asked["right"]), security(asked["own"], asked["own"])
    traps = [await Scheduler(port=0, host="127.0.0.1", dashboard_address="127.0.0.1:0", security=keys) for keys in (own, None)]
    async with Client(at, security=right, timeout=10, asynchronous=True) as client:
        workers = (await client.scheduler.identity(n_workers=-1))["workers"]
    known = [at] + list(workers) + [one["nanny"] for one in workers.values() if one.get("nanny")]
    async def works():
        return [await came_in("asks", asks(known[-1], right)), await came_in("computes", computes(at, right)), await came_in("joins", joins(at, right))]
    await works()
    os.setgroups([]); os.setgid(asked["uid"]); os.setuid(asked["uid"])
    os.chdir(asked["folder"])
    control = await works()
    print(json.dumps([trap.address for trap in traps]), flush=True)
    tries = []
    for name, keys in [("none", None), ("own", own), ("own, and their authority", security(asked["right"], asked["own"]))]:
        for one in known:
            for address in (one, one.replace("tls://", "tcp://")):
                tries.append(came_in(["asks", address, name], asks(address, keys)))
        for address in (at, at.replace("tls://", "tcp://")):
            tries.append(came_in(["computes", address, name], computes(address, keys)))
            tries.append(came_in(["joins", address, name], joins(address, keys)))
    found = list(filter(None, await asyncio.gather(*tries)))
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    joined = sum(len(trap.workers) for trap in traps)
    print(json.dumps({"works": control, "known": len(known), "in": found, "joined": joined}), flush=True)
    os._exit(0)
asyncio.run(main())
"#;

/// Folders that schedulers, workers and nannies of the first user import from and that others can write or exchange.
const IMPORTS: &str = r#"
import json, sys
from distributed import Client
def planted():
    import importlib.util, os, stat, sys
    def is_open(path):
        status = os.stat(path)
        free = status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX
        above = os.path.dirname(path)
        return status.st_uid not in (0, os.getuid()) or free or (above != path and is_open(above))
    others = [path for path in map(os.path.realpath, sys.path) if os.path.isdir(path) and is_open(path)]
    return others + (["planted"] if importlib.util.find_spec("dask_infra_planted") else [])
with Client(sys.argv[1]) as client:
    said = [client.run_on_scheduler(planted)] + list(client.run(planted).values()) + list(client.run(planted, nanny=True).values())
print(json.dumps(said))
"#;

pub(crate) struct SecondUser {
    /// Theirs.
    folder: tempfile::TempDir,
    /// For everybody, as `/tmp` is.
    shared: tempfile::TempDir,
    /// Jobs and processes that look like those of the first user.
    forged: Vec<(Option<String>, Child)>,
}

fn given(path: &Path, mode: u32) {
    chown(path, Some(UID), Some(UID)).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// Certificates that look like those of a Dask cluster.
fn own_certificates(folder: &Path) {
    let named = |name: &str| {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params
    };
    let mut authority = named("dask-infra authority of a Dask cluster");
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let signs = KeyPair::generate().unwrap();
    let signed = authority.self_signed(&signs).unwrap().pem();
    let mut own = named("dask-infra Dask cluster");
    own.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let key = KeyPair::generate().unwrap();
    let certificate = own.signed_by(&key, &Issuer::new(authority, signs)).unwrap().pem();
    for (name, text) in [("ca.pem", signed), ("cert.pem", certificate), ("key.pem", key.serialize_pem())] {
        fs::write(folder.join(name), text).unwrap();
        given(&folder.join(name), 0o600);
    }
}

impl SecondUser {
    /// Comes before the first user's first command, and plants what Dask and this program would make. `None` where this process may not
    /// act as somebody else.
    pub(crate) fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            let _ = writeln!(std::io::stderr(), "skipped: only root can act as a second user of the machine");
            return None;
        }
        let (folder, shared) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        given(folder.path(), 0o755);
        fs::set_permissions(shared.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        own_certificates(folder.path());
        for name in ["dask-scratch-space", "dask-infra-scratch-0", "state/dask-infra"] {
            let planted = shared.path().join(name);
            fs::create_dir_all(&planted).unwrap();
            fs::write(planted.join("dask_infra_planted.py"), "").unwrap();
            given(&planted, 0o777);
        }
        fs::create_dir(shared.path().join("linked")).unwrap();
        symlink(folder.path(), shared.path().join("linked/dask-infra")).unwrap();
        Some(Self { folder, shared, forged: Vec::new() })
    }

    /// Where temporary files of everybody lie.
    pub(crate) fn shared(&self) -> PathBuf {
        self.shared.path().to_owned()
    }

    /// A program as this user.
    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.uid(UID).gid(UID).current_dir(self.folder.path());
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", self.folder.path());
        command
    }

    /// State folders that this user made first are nobody's to use.
    pub(crate) fn made_state_folders(&self, login: &Login) {
        for (name, why) in [("state", "belongs to another user"), ("linked", "is a symbolic link")] {
            let mut command = login.user.command(&["plan"]);
            command.env("XDG_STATE_HOME", self.shared.path().join(name));
            command.env("SLURM_CONF", login.cluster.configuration());
            crate::sandbox_server::CommandOutput::of(&command.output().unwrap()).expect(1).says(why);
        }
    }

    /// Looks at the first user's files and processes. `secrets` are words that nobody else may read.
    pub(crate) fn looks(&self, roots: &[&Path], secrets: &[&str]) {
        for root in roots {
            // Temporary folders of tests are closed as a whole, which would prove nothing.
            fs::set_permissions(root, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let shared = self.shared();
        let roots: Vec<&Path> = roots.iter().copied().chain([shared.as_path()]).collect();
        let mut look = self.command("/usr/bin/env");
        look.args(["python3", "-c", LOOKS]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut look = look.spawn().unwrap();
        let words = [secrets, &["PRIVATE KEY"]].concat();
        let asked = json!({ "roots": roots, "words": words });
        look.stdin.take().unwrap().write_all(asked.to_string().as_bytes()).unwrap();
        let output = look.wait_with_output().unwrap();
        let mut found: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(found["seen"].take().as_u64().unwrap() > 2);
        let own = self.folder.path().display().to_string();
        assert!(!found.to_string().contains(&own), "{found}");
        for what in ["entered", "written", "told", "connected"] {
            let mut some: Vec<Value> = found[what].as_array().unwrap().clone();
            // Of the stack's own folder, and what the test made here.
            some.retain(|path| {
                let path = path.as_str().unwrap();
                !path.ends_with("/.dask-infra") && !path.ends_with("/state") && !path.ends_with("/linked")
            });
            assert_eq!(some, Vec::<Value>::new(), "{what}: {found}");
        }
    }

    /// Connects to and joins what the first user runs, and waits for the first user's workers with schedulers of its own.
    pub(crate) fn connects(&self, connected: &Value) {
        let right = tempfile::tempdir().unwrap();
        given(right.path(), 0o700);
        for (option, name) in
            [("tls_ca_file", "ca.pem"), ("tls_client_cert", "cert.pem"), ("tls_client_key", "key.pem")]
        {
            fs::copy(connected["security"][option].as_str().unwrap(), right.path().join(name)).unwrap();
            given(&right.path().join(name), 0o600);
        }
        let mut tries = Command::new(python());
        tries.args(["-c", CONNECTS]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let said = tempfile::NamedTempFile::new().unwrap();
        tries.stderr(said.reopen().unwrap());
        tries.env("TMPDIR", self.folder.path()).env("DASK_DISTRIBUTED__LOGGING__DISTRIBUTED", "critical");
        let mut tries = tries.spawn().unwrap();
        let mut asks = tries.stdin.take().unwrap();
        let asked = json!({
            "uid": UID, "folder": self.folder.path(), "at": connected["client"], "right": right.path(),
            "own": self.folder.path(),
        });
        writeln!(asks, "{asked}").unwrap();
        let mut says = BufReader::new(tries.stdout.take().unwrap());
        let mut line = String::new();
        says.read_line(&mut line).unwrap();
        let traps: Vec<String> = serde_json::from_str(&line)
            .unwrap_or_else(|_| panic!("{}", fs::read_to_string(said.path()).unwrap()));
        // Jobs that were to join a scheduler whose port somebody else has by now.
        let of_workers: Vec<_> = tls_configuration(connected)
            .into_iter()
            .map(|(name, value)| (name.replace("CLIENT", "WORKER"), value))
            .chain([("DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION".to_owned(), "True".to_owned())])
            .collect();
        let folder = tempfile::tempdir().unwrap();
        let workers: Vec<Child> = traps
            .iter()
            .map(|at| {
                let mut worker = late_worker(&python(), at, folder.path());
                worker.args(["--protocol", "tls"]).envs(of_workers.clone()).spawn().unwrap()
            })
            .collect();
        for worker in workers {
            let ended = worker.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&ended.stderr).into_owned();
            assert!(said.contains(&traps[0]) || said.contains(&traps[1]), "{said}");
            assert!(!said.contains("Registered to"), "{said}");
        }
        writeln!(asks).unwrap();
        line.clear();
        says.read_line(&mut line).unwrap();
        let found: Value = serde_json::from_str(&line)
            .unwrap_or_else(|_| panic!("{}", fs::read_to_string(said.path()).unwrap()));
        tries.wait().unwrap();
        assert_eq!(found["works"], json!(["asks", "computes", "joins"]), "{found}");
        assert!(found["known"].as_u64().unwrap() > 2, "{found}");
        assert_eq!((&found["in"], &found["joined"]), (&json!([]), &json!(0)), "{found}");
    }

    /// Nothing of the first user's imports what others planted.
    pub(crate) fn is_not_imported(&self, connected: &Value) {
        let mut asks = Command::new(python());
        asks.args(["-c", IMPORTS, connected["client"].as_str().unwrap()]).envs(tls_configuration(connected));
        let said = asks.output().unwrap();
        assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
        let said: Vec<Vec<String>> = serde_json::from_slice(&said.stdout).unwrap();
        assert!(said.len() > 2 && said.iter().all(Vec::is_empty), "{said:?}");
    }

    /// Submits a job and starts a process with the names and marks of a worker, which SLURM tells everybody.
    pub(crate) fn forges(&mut self, login: &Login, worker: &str) {
        let slurm = |program: &str, words: &[&str]| {
            let mut command = self.command(program);
            let said = command.args(words).env("SLURM_CONF", login.cluster.configuration()).output().unwrap();
            assert!(said.status.success(), "{}", String::from_utf8_lossy(&said.stderr));
            String::from_utf8(said.stdout).unwrap().trim().to_owned()
        };
        let comment = slurm("squeue", &["-h", "-n", worker, "-o", "%k"]);
        let mark = comment.split(' ').nth(1).unwrap().to_owned();
        let sleeps = ["--chdir=/", "-o", "/dev/null", "-n1", "--mem=10", "-t", "10", "--wrap", "sleep 300"];
        let words = [&["--parsable", "-J", worker, "--comment", &comment][..], &sleeps].concat();
        let job = slurm("sbatch", &words);
        let process = self.command("sleep").arg("300").env("DASK_INFRA_PROCESS", &mark).spawn().unwrap();
        self.forged.push((Some(job), process));
        // A program that runs as root for whoever starts it. It asks for a password, and waits.
        let mut command = self.command("su");
        let asks = command.env("DASK_INFRA_PROCESS", &mark).stdin(Stdio::piped()).stderr(Stdio::piped());
        let Ok(mut process) = asks.stdout(Stdio::null()).spawn() else { return };
        if process.stderr.as_mut().unwrap().read(&mut [0]).is_ok_and(|read| read == 1) {
            self.forged.push((None, process));
        } else {
            println!("there is no `su` that asks for a password");
            process.wait().unwrap();
        }
    }

    /// Asserts that all that the second user made is as it was.
    pub(crate) fn assert_untouched(&mut self, login: &Login) {
        for (job, mut process) in self.forged.drain(..) {
            let ended = process.try_wait().unwrap();
            let _ = process.kill();
            let _ = process.wait();
            assert_eq!(ended, None);
            let Some(job) = job else { continue };
            let state = login.cluster.says("squeue", &["-h", "-t", "all", "-j", &job, "-o", "%T"]);
            login.cluster.says("scancel", &[&job]);
            assert_eq!(state.trim(), "RUNNING");
        }
        for folder in ["dask-scratch-space", "dask-infra-scratch-0", "state/dask-infra"] {
            let inside = entries_in(&self.shared.path().join(folder));
            assert_eq!(inside, [self.shared.path().join(folder).join("dask_infra_planted.py")]);
        }
    }
}

impl Drop for SecondUser {
    fn drop(&mut self) {
        for (_, process) in &mut self.forged {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
