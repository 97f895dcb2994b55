//! Pools with several ways to be had, against a sandbox that has machines by some of them: the real program ends on the first
//! way that has some, and leaves nothing of the others. 200 drawn cases in this process, of which every fiftieth is also the
//! program's; `DASK_INFRA_SEED=N` draws others.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use apply::Outcome;
use plan::Mode;
use sandbox::faults::{FaultEffect, Refuse, Rule};
use sandbox::{Options, Quota, Sandbox, Stockout};
use serde_json::{Value, json};

use crate::props::harness::{Harness, Stack};
use crate::props::player::paused;
use crate::sandbox_server::{FAST, SandboxServer, User};

const ZONES: [&str; 3] = ["us-central1-a", "us-central1-b", "us-central1-c"];
const WAYS: [&str; 3] = ["reservation", "on-demand", "spot"];
const APPLY: [&str; 2] = ["apply", "--auto-approve"];
const CLUSTER: &str = "/v1/projects/demo/locations/us-central1-c/clusters/c";

/// A stack with a pool that is tried by these ways in these zones.
fn stack(ways: &[&str], zones: &[&str]) -> String {
    let list = |words: &[&str]| words.iter().map(|word| format!("{word:?}")).collect::<Vec<_>>().join(", ");
    let reservation = if ways.contains(&"reservation") { "reservation = { name = \"t4s\" }\n" } else { "" };
    format!(
        "[stack]\nname = \"s\"\n[gke]\nproject = \"demo\"\nlocation = \"us-central1-c\"\n[cluster]\nname = \"c\"\n\
         [node_pool.system]\nmachine_type = \"e2-standard-2\"\nnodes = 1\n\
         [node_pool.gpu]\nmachine_type = \"n1-standard-4\"\naccelerator = \"nvidia-tesla-t4\"\nnodes = 2\n{reservation}\
         zones = [{}]\ncapacity = [{}]\n",
        list(zones),
        list(ways)
    )
}

fn no_machines(way: &str, zone: &str) -> Stockout {
    Stockout { way: Some(way.to_owned()), zone: Some(zone.to_owned()), ..Stockout::forever("gpu") }
}

fn served(stockouts: Vec<Stockout>) -> SandboxServer {
    SandboxServer::with(Options { scale: FAST, stockouts, ..Options::default() })
}

fn pools(served: &SandboxServer) -> Vec<Value> {
    pools_in(&served.sandbox)
}

fn pools_in(sandbox: &Sandbox) -> Vec<Value> {
    let reply = sandbox.gke_request("GET", &format!("{CLUSTER}/nodePools"), "", b"").unwrap();
    reply.body["nodePools"].as_array().cloned().unwrap_or_default()
}

/// The way and the zone of the one pool `gpu`.
fn pool_option(served: &SandboxServer) -> Option<(&'static str, Value)> {
    pool_option_in(&served.sandbox)
}

fn pool_option_in(sandbox: &Sandbox) -> Option<(&'static str, Value)> {
    let all = pools_in(sandbox);
    let mut names: Vec<&str> = all.iter().filter_map(|pool| pool["name"].as_str()).collect();
    names.sort_unstable();
    let gpu = all.iter().find(|pool| pool["name"] == "gpu");
    assert_eq!(names, if gpu.is_some() { vec!["gpu", "system"] } else { vec!["system"] });
    let gpu = gpu?;
    assert_eq!(gpu["status"], "RUNNING", "{gpu:#}");
    let config = &gpu["config"];
    let way = match () {
        () if gpu["queuedProvisioning"]["enabled"] == true => "queued",
        () if config["flexStart"] == true => "flex-start",
        () if config["spot"] == true => "spot",
        () if config["reservationAffinity"]["consumeReservationType"] == "SPECIFIC_RESERVATION" => {
            "reservation"
        }
        () => "on-demand",
    };
    Some((way, gpu["locations"].clone()))
}

/// A number that follows from the seed and a word.
fn chance(word: &str) -> u64 {
    let seed = std::env::var("DASK_INFRA_SEED").unwrap_or_default();
    let digest = blake3::hash(format!("{seed} {word}").as_bytes());
    u64::from_le_bytes(digest.as_bytes()[..8].try_into().unwrap())
}

/// A drawn ladder, and which of its ways have machines.
struct GeneratedLadder {
    ways: Vec<&'static str>,
    zones: &'static [&'static str],
    stockouts: Vec<Stockout>,
    /// Where it must end: the way, and its zones.
    end: Option<(&'static str, Value)>,
}

impl GeneratedLadder {
    fn number(number: u32) -> Self {
        let draw = |word: &str, of: u64| chance(&format!("{number} {word}")) % of;
        let first = usize::try_from(draw("ways", 3)).unwrap();
        let mut ways = WAYS[first..].to_vec();
        if draw("waits", 3) == 0 {
            ways.push(if draw("how", 2) == 0 { "flex-start" } else { "queued" });
        }
        let zones = &ZONES[..usize::try_from(draw("zones", 3)).unwrap() + 1];
        let lacks = |way: &str, zone: &str| draw(&format!("{way} {zone}"), 10) < 7;
        let each = || ways.iter().flat_map(|way| zones.iter().map(move |zone| (*way, *zone)));
        let stockouts =
            each().filter(|(way, zone)| lacks(way, zone)).map(|(way, zone)| no_machines(way, zone)).collect();
        let end = each().find_map(|(way, zone)| match way {
            "flex-start" | "queued" => Some((way, json!(zones))),
            way => (!lacks(way, zone)).then(|| (way, json!([zone]))),
        });
        println!("{number}: {ways:?} in {zones:?}: {end:?}");
        Self { ways, zones, stockouts, end }
    }

    fn stack(&self) -> String {
        stack(&self.ways, self.zones)
    }

    /// Every way and zone is told of.
    fn tells_all(&self, said: &str) {
        let each = self.ways.iter().flat_map(|way| self.zones.iter().map(move |zone| (way, zone)));
        for (way, zone) in each {
            assert!(said.contains(*way) && said.contains(&format!("{zone}: ")), "{way} {zone}: {said}");
        }
    }
}

#[test]
fn two_hundred_end_on_the_first_way_that_has_machines_and_leave_nothing_of_the_others() {
    let workers: Vec<_> = (0..2)
        .map(|worker| {
            std::thread::spawn(move || {
                paused(async {
                    // The base that all cases share, built once.
                    let base = Harness::empty();
                    let cluster = Stack::of(stack(&WAYS, &ZONES).split("[node_pool.gpu]").next().unwrap());
                    let plan = base.plan(&cluster, Mode::Apply).await.unwrap();
                    let first = base.apply(&cluster, &plan, Vec::new(), None).await.summary.unwrap();
                    assert!(first.outcomes.iter().all(|(_, outcome, _)| *outcome == Outcome::Done));
                    for number in (worker..200).step_by(2) {
                        check_fallback(&base, &GeneratedLadder::number(number)).await;
                    }
                });
            })
        })
        .collect();
    for worker in workers {
        worker.join().unwrap();
    }
}

async fn check_fallback(base: &Harness, drawn: &GeneratedLadder) {
    let (harness, stack) = (base.copy(), Stack::of(&drawn.stack()));
    for stockout in &drawn.stockouts {
        harness.sandbox.add_stockout(stockout.clone()).unwrap();
    }
    let plan = harness.plan(&stack, Mode::Apply).await.unwrap();
    let summary = harness.apply(&stack, &plan, Vec::new(), None).await.summary.unwrap();
    let (_, outcome, _) = summary.outcomes.last().unwrap();
    match (outcome, &drawn.end) {
        (Outcome::Done, Some(_)) => {}
        (Outcome::Failed { message, .. }, None) => {
            assert!(message.contains("has no machines by any way of `capacity`"), "{message}");
            drawn.tells_all(message);
        }
        (other, end) => panic!("{other:?} in place of {end:?}"),
    }
    assert_eq!(pool_option_in(&harness.sandbox), drawn.end);
    let next = harness.plan(&stack, Mode::Apply).await.unwrap();
    assert_eq!(next.has_nothing_to_do(), drawn.end.is_some());
}

#[test]
fn it_ends_on_the_first_way_that_has_machines_and_leaves_nothing_of_the_others() {
    for number in (0..200).step_by(50) {
        let drawn = GeneratedLadder::number(number);
        let served = served(drawn.stockouts.clone());
        let user = User::at(&served, drawn.stack());
        let said = user.run(&APPLY);
        if drawn.end.is_some() {
            said.expect(0);
            user.run(&["plan", "--detailed-exitcode"]).expect(0);
        } else {
            let said = said.expect(1).says("has no machines by any way of `capacity`");
            drawn.tells_all(&format!("{}{}", said.out, said.err));
            user.run(&["plan", "--detailed-exitcode"]).expect(2).says("1 to add");
        }
        assert_eq!(pool_option(&served), drawn.end, "{number}");
    }
}

#[test]
fn killed_between_two_ways_and_run_again_it_converges() {
    let ways = ["on-demand", "spot"];
    let zones = &ZONES[..2];
    for moment in ["trying on-demand in us-central1-b", "trying spot in us-central1-a"] {
        let stockouts = [
            no_machines("on-demand", ZONES[0]),
            no_machines("on-demand", ZONES[1]),
            no_machines("spot", ZONES[0]),
        ];
        let served = served(stockouts.to_vec());
        let user = User::at(&served, stack(&ways, zones));
        let mut child = user.command(&APPLY).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let seen = lines.any(|said| said.is_ok_and(|said| said.contains(moment)));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(seen, "{moment} was never said");
        user.run(&APPLY).expect(0);
        assert_eq!(pool_option(&served), Some(("spot", json!([ZONES[1]]))));
        user.run(&["plan", "--detailed-exitcode"]).expect(0);
    }
}

#[test]
fn a_pool_that_an_interrupted_apply_left_without_machines_gives_way() {
    let served = served(vec![no_machines("on-demand", ZONES[2])]);
    let user = User::at(&served, stack(&["on-demand", "spot"], &ZONES[2..]));
    let mut child = user.command(&APPLY).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.any(|said| said.is_ok_and(|said| said.contains("node_pool.gpu: creat"))));
    // Killed while GKE works on it, which goes on and finds no machines.
    loop {
        let made = pools(&served).into_iter().find(|pool| pool["name"] == "gpu");
        if made.is_some() {
            break;
        }
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
    user.run(&APPLY).expect(0);
    assert_eq!(pool_option(&served), Some(("spot", json!([ZONES[2]]))));
    user.run(&["plan", "--detailed-exitcode"]).expect(0);
}

#[test]
fn it_stays_on_the_way_that_works_until_it_is_told_to_try_again() {
    let once = Stockout { times: Some(1), ..no_machines("on-demand", ZONES[2]) };
    let served = served(vec![once]);
    let user = User::at(&served, stack(&["on-demand", "spot"], &ZONES[2..]));
    // The saved plan holds the requests that are sent.
    user.run(&["plan", "-v", "--out", "p.plan"])
        .expect(0)
        .says("without machines by on-demand in us-central1-c");
    user.run(&["apply", "p.plan"]).expect(0).says("no machines by on-demand in us-central1-c");
    assert_eq!(pool_option(&served), Some(("spot", json!([ZONES[2]]))));
    user.run(&["plan", "--detailed-exitcode"])
        .expect(0)
        .says("DI0386")
        .says("no machines when it was created: on-demand")
        .says("--retry-capacity");
    user.run(&["status"]).expect(0);
    user.run(&["plan", "--retry-capacity", "--detailed-exitcode"]).expect(2).says("1 to replace");
    user.run(&["apply", "--auto-approve", "--retry-capacity"]).expect(3).says("replace:node_pool.gpu");
    let again = ["apply", "--auto-approve", "--retry-capacity", "--allow", "replace:node_pool.gpu"];
    user.run(&again).expect(0);
    assert_eq!(pool_option(&served), Some(("on-demand", json!([ZONES[2]]))));
    let plan = user.run(&["plan", "--detailed-exitcode", "--retry-capacity"]).expect(0);
    assert!(!plan.out.contains("DI0386"), "{}", plan.out);
}

#[test]
fn a_number_that_is_the_autoscalers_is_not_scaled() {
    let served = served(vec![no_machines("spot", ZONES[2])]);
    let user = User::at(&served, stack(&["spot", "queued"], &ZONES[2..]));
    user.run(&APPLY).expect(0);
    assert_eq!(pool_option(&served), Some(("queued", json!([ZONES[2]]))));
    user.run(&["scale", "node_pool.gpu", "1", "--auto-approve"])
        .expect(1)
        .says("GKE's autoscaler sets their number");
    user.run(&["status"]).expect(0);
}

#[test]
fn a_way_without_quota_is_passed_over() {
    let limits = [("NVIDIA_T4_GPUS".to_owned(), 0), ("PREEMPTIBLE_NVIDIA_T4_GPUS".to_owned(), 4)];
    let gke_quota = Quota { limits: limits.into_iter().collect(), ..Quota::default() };
    let served = SandboxServer::with(Options { scale: FAST, gke_quota, ..Options::default() });
    let user = User::at(&served, stack(&["on-demand", "spot"], &ZONES[2..]));
    user.run(&APPLY).expect(0).says("no machines by on-demand in us-central1-c").says("NVIDIA_T4_GPUS");
    assert_eq!(pool_option(&served), Some(("spot", json!([ZONES[2]]))));
    user.run(&["plan", "--detailed-exitcode"]).expect(0);
    user.run(&["destroy", "--auto-approve"]).expect(0);
}

#[test]
fn the_ready_stack_is_applied_and_destroyed() {
    let served = served(vec![Stockout { way: Some("on-demand".to_owned()), ..Stockout::forever("workers") }]);
    let user = User::with_stack("ladder", Some(&served.gke));
    user.run(&APPLY).expect(0).says("no machines by on-demand in us-central1-b");
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("its machines are spot in us-central1-c");
    user.run(&["destroy", "--auto-approve"]).expect(0);
    user.run(&["destroy", "--auto-approve"]).expect(0).says("Nothing to destroy");
}

/// GKE's error for a reservation that is used up is no reason to retry for ten minutes.
#[test]
fn a_reservation_that_is_used_up_gives_way() {
    let message = "Reservation does not have enough resources for the request: specific reservation \"t4s\" is insufficient for node \
                   pool \"gpu\" at zone \"us-central1-c\": required 2 and short of 2 VM count of machine type n1-standard-4.";
    let refused = Refuse { code: 429, reason: None, message: Some(message.to_owned()) };
    let rule = Rule { path: "*/nodePools".to_owned(), then: FaultEffect::Refuse(refused), ..Rule::default() };
    let requests = vec![Rule { method: Some("POST".to_owned()), ..rule }];
    let served = SandboxServer::with(Options { scale: FAST, requests, ..Options::default() });
    let user = User::at(&served, stack(&["reservation", "spot"], &ZONES[2..]));
    user.run(&APPLY).expect(0).says("no machines by reservation t4s in us-central1-c");
    assert_eq!(pool_option(&served), Some(("spot", json!([ZONES[2]]))));
    user.run(&["plan", "--detailed-exitcode"]).expect(0);
}

#[test]
fn a_pool_that_starts_again_into_a_shortage_goes_on_with_the_next_way() {
    let refused = Stockout { times: Some(1), ..no_machines("on-demand", ZONES[0]) };
    let served = served(vec![]);
    let user = User::at(&served, stack(&["on-demand", "spot"], &ZONES[..1]));
    user.run(&APPLY).expect(0);
    assert_eq!(pool_option(&served).unwrap().0, "on-demand");
    user.run(&["stop", "node_pool.gpu", "--auto-approve"]).expect(0);
    served.sandbox.add_stockout(refused).unwrap();
    user.run(&["start", "--auto-approve"]).expect(0).says("no machines by on-demand");
    assert_eq!(pool_option(&served).unwrap().0, "spot");
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("DI0386");
}
