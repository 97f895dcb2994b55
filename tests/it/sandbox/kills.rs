//! The real program killed with SIGKILL at moments that nobody chose, against a served sandbox, and run
//! again. `DASK_INFRA_KILLS=N` kills so often, `DASK_INFRA_SEED=N` at other moments.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use sandbox::Options;
use serde_json::{Value, json};

use crate::sandbox_server::{FAST, SandboxServer, User};

/// Kills when nobody says how many.
const KILLS: usize = 4;

/// A number that follows from the seed and a word.
fn chance(word: &str) -> u64 {
    let seed = std::env::var("DASK_INFRA_SEED").unwrap_or_default();
    let digest = blake3::hash(format!("{seed} {word}").as_bytes());
    u64::from_le_bytes(digest.as_bytes()[..8].try_into().unwrap())
}

/// How a killed run was.
#[derive(Debug)]
struct KilledRun {
    /// True if it had ended before it was killed.
    over: bool,
    /// The last line that it said.
    last: String,
}

/// Runs the program and kills it after so many lines and moments. Moments are requests' times, not
/// clock times: the more it has to say, the later.
fn kill(user: &User, words: &[&str], lines: u64, moments: u64) -> KilledRun {
    let mut child = user.command(words).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let said = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut last = String::new();
    for (count, line) in (1..).zip(said.map_while(Result::ok)) {
        last = line;
        if count >= lines {
            std::thread::sleep(std::time::Duration::from_millis(moments));
            break;
        }
    }
    child.kill().unwrap();
    let over = child.wait().unwrap().code().is_some();
    KilledRun { over, last }
}

fn names(served: &SandboxServer) -> Vec<String> {
    let reply = served.sandbox.gke_request("GET", "/v1/projects/demo/locations/-/clusters", "", b"").unwrap();
    let clusters = reply.body["clusters"].as_array().cloned().unwrap_or_default();
    let name = |value: &Value| value["name"].as_str().unwrap_or_default().to_owned();
    let pools = clusters.iter().flat_map(|cluster| {
        let pools = cluster["nodePools"].as_array().cloned().unwrap_or_default();
        pools.into_iter().map(|pool| format!("{}/{}", name(cluster), name(&pool)))
    });
    let mut names: Vec<String> = clusters.iter().map(name).chain(pools).collect();
    names.sort();
    names
}

#[test]
fn killed_at_any_moment_and_run_again_it_converges() {
    let kills = std::env::var("DASK_INFRA_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(KILLS);
    let options = Options { scale: FAST, ..Options::default() };
    let served = SandboxServer::with(options);
    let theirs = json!({ "cluster": { "name": "theirs", "initialNodeCount": 1 } }).to_string();
    let clusters = "/v1/projects/demo/locations/us-central1-c/clusters";
    assert_eq!(served.sandbox.gke_request("POST", clusters, "", theirs.as_bytes()).unwrap().code, 200);
    let user = User::with_ready_stack(Some(&served.gke));
    let mut table: BTreeMap<String, usize> = BTreeMap::new();
    for number in 0..kills {
        // An apply of nothing or of a half-made stack, then a destroy of a whole or half-gone one.
        let (verb, longest) = if number % 2 == 0 { ("apply", 60) } else { ("destroy", 30) };
        let lines = chance(&format!("lines {number}")) % longest + 1;
        let moments = chance(&format!("moments {number}")) % 40;
        let killed = kill(&user, &[verb, "--auto-approve"], lines, moments);
        let ended = if killed.over { "over before" } else { "killed" };
        println!("{number}: {verb} {ended} after {lines} lines: {}", killed.last);
        *table.entry(format!("{verb} {ended}")).or_default() += 1;
        user.run(&[verb, "--auto-approve"]).expect(0);
        let left = names(&served);
        match verb {
            "apply" => {
                user.run(&["plan", "--detailed-exitcode"]).expect(0).says("The stack is up to date.");
                let status: Value =
                    serde_json::from_str(&user.run(&["status", "--json"]).expect(0).out).unwrap();
                assert_eq!(status["ready"], true, "{status:#}");
                let made = ["rapids-gpu", "rapids-gpu/default-pool", "rapids-gpu/scheduler-pool"];
                let all: Vec<&str> = made.into_iter().chain(["theirs", "theirs/default-pool"]).collect();
                assert_eq!(left, all);
            }
            _ => {
                user.run(&["destroy", "--auto-approve"]).expect(0).says("Nothing to destroy");
                assert_eq!(left, ["theirs", "theirs/default-pool"]);
            }
        }
    }
    println!("{table:?}");
}
