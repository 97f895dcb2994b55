//! Order of writes of an object on several hosts: workers whose settings change restart on half of the hosts at a time, and new
//! workers start before old ones stop. Each host's agent does the same among its own workers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::Agent;
use super::parts::{Key, comparable_spec, names_of, remove_field, worker_share};
use crate::{ErrorClass, Request};

/// How long the workers of one batch may take, and the interval of reads.
const BATCH_TIMEOUT: Duration = Duration::from_secs(600);
const POLL_INTERVAL: Duration = Duration::from_millis(300);
/// How long workers must be registered to count as stable. A worker whose nanny kills it for its memory is registered for a
/// moment.
const STABLE_FOR: Duration = Duration::from_secs(1);

/// The order of writes of one object.
#[derive(Debug, Default, PartialEq)]
pub(super) struct RolloutOrder {
    /// Hosts that are written first.
    pub(super) now: Vec<String>,
    /// Later batches; empty if everything is written at once.
    pub(super) later: Vec<Vec<String>>,
    /// The scheduler's host, which is always written first, and the `spec.worker` that it keeps until a later batch changes its
    /// workers.
    initial_workers: Option<(String, Value)>,
}

impl RolloutOrder {
    pub(super) fn initial_workers(&self, host: &str) -> Option<&Value> {
        self.initial_workers.as_ref().filter(|(name, _)| name == host).map(|(_, worker)| worker)
    }
}

/// Returns the order of writes; `before` has the parts of the object on the hosts. Empty for adaptive clusters, whose number of
/// workers follows their tasks.
pub(super) fn order(
    body: &Value,
    hosts: &[String],
    leader: Option<&str>,
    before: &[(String, Value)],
) -> RolloutOrder {
    let number = |part: &Value| part["spec"]["worker"]["replicas"].as_u64();
    let Some(whole) = number(body) else { return RolloutOrder::default() };
    let spread = names_of(&body["spec"]["worker"]["hosts"]);
    let wanted = settings(body);
    let part_of = |host: &str| before.iter().find(|(name, _)| name == host).map(|(_, part)| part);
    let left = before.iter().map(|(name, _)| name).filter(|name| !hosts.contains(name));
    let (mut starts, mut restarts, mut ends) = (Vec::new(), Vec::new(), Vec::new());
    for host in hosts.iter().chain(left) {
        let part = part_of(host);
        let old = part.and_then(number).unwrap_or_default();
        let new = if hosts.contains(host) { worker_share(whole, &spread, host) } else { 0 };
        let same = part.is_none_or(|part| settings(part) == wanted);
        match (old, new) {
            (1.., 1..) if !same => restarts.push(host.clone()),
            _ if new > old => starts.push(host.clone()),
            _ if new < old || !hosts.contains(host) => ends.push(host.clone()),
            _ => {}
        }
    }
    restarts.sort_by_key(|host| Some(host.as_str()) != leader);
    let size = (restarts.len() / 2).max(1);
    let mut turns = vec![starts];
    turns.extend(restarts.chunks(size).map(<[String]>::to_vec));
    turns.retain(|turn| !turn.is_empty());
    if turns.is_empty() {
        // The successors are already running.
        return RolloutOrder::default();
    }
    let now = turns.remove(0);
    turns.extend(Some(ends).filter(|ends| !ends.is_empty()));
    if turns.is_empty() {
        return RolloutOrder::default();
    }
    let waits = leader.filter(|leader| turns.iter().flatten().any(|host| host == leader));
    let kept = waits.and_then(|leader| Some((leader.to_owned(), part_of(leader)?["spec"]["worker"].clone())));
    RolloutOrder { now, later: turns, initial_workers: kept }
}

/// Returns the settings whose change restarts workers.
fn settings(part: &Value) -> Value {
    let mut settings = comparable_spec(part);
    remove_field(&mut settings, "hosts");
    remove_field(&mut settings["worker"], "hosts");
    settings
}

/// A write to a host of a later batch.
pub(super) type HostWrite = (String, Arc<Agent>, Request);

/// Running rollouts, by object. No caller waits for them: their results are reported in the status of the object.
#[derive(Default)]
pub(super) struct Rollouts(Arc<Mutex<BTreeMap<Key, Rollout>>>);

enum Rollout {
    Running(AbortHandle),
    /// The rollout stopped before the remaining hosts were written, and why.
    Stopped(String),
}

impl Rollouts {
    fn all(&self) -> MutexGuard<'_, BTreeMap<Key, Rollout>> {
        // Nothing that holds it can panic half way.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the rollout of an object that is written again.
    pub(super) fn end(&self, key: &Key) {
        if let Some(Rollout::Running(task)) = self.all().remove(key) {
            task.abort();
        }
    }

    /// Starts the rollout of an object. `written` are the hosts that were already written; `look` reads the object on a host.
    pub(super) fn begin(
        &self,
        key: Key,
        look: Request,
        written: Vec<(String, Arc<Agent>)>,
        later: Vec<Vec<HostWrite>>,
    ) {
        let (all, own) = (Arc::clone(&self.0), key.clone());
        let mut turns = self.all();
        let task = tokio::spawn(async move {
            let taken = write_batches(&look, written, later).await;
            let mut turns = all.lock().unwrap_or_else(PoisonError::into_inner);
            match taken {
                Ok(()) => drop(turns.remove(&own)),
                Err(why) => drop(turns.insert(own, Rollout::Stopped(why))),
            }
        });
        turns.insert(key, Rollout::Running(task.abort_handle()));
    }

    /// Adds the state of the rollout to the status of an object.
    pub(super) fn add_status(&self, key: &Key, status: &mut Value) {
        match self.all().get(key) {
            Some(Rollout::Running(_)) => status["converging"] = json!(true),
            Some(Rollout::Stopped(why)) => status["message"] = json!(why),
            None => {}
        }
    }
}

/// Writes the later batches one after the other. Each waits until the workers of the batch before it are as desired, `written` first.
///
/// # Errors
/// The reason why the rollout stopped.
async fn write_batches(
    look: &Request,
    written: Vec<(String, Arc<Agent>)>,
    later: Vec<Vec<HostWrite>>,
) -> Result<(), String> {
    let mut before = written;
    for turn in later {
        for (host, agent) in &before {
            settled(host, agent, look).await?;
        }
        let sent = turn.iter().map(|(host, agent, request)| async move { (host, agent.send(request).await) });
        for (host, answer) in join_all(sent).await {
            match answer {
                Err(error) if error.class != ErrorClass::NotFound => return Err(format!("{host}: {error}")),
                _ => {}
            }
        }
        before = turn.into_iter().map(|(host, agent, _)| (host, agent)).collect();
    }
    Ok(())
}

/// Waits until the workers of a host are as desired.
async fn settled(host: &str, agent: &Arc<Agent>, look: &Request) -> Result<(), String> {
    let end = Instant::now() + BATCH_TIMEOUT;
    let mut since = None;
    loop {
        let part = match agent.send(look).await {
            Ok(part) => part,
            Err(error) if error.class == ErrorClass::NotFound => return Ok(()),
            Err(error) => return Err(format!("{host}: {error}")),
        };
        let status = &part["status"];
        let workers = |count: &str| status["workers"][count].as_u64().unwrap_or_default();
        let wanted = part["spec"]["worker"]["replicas"].as_u64().unwrap_or_default();
        let has_more = workers("present") > wanted;
        let usual =
            if has_more { "workers that are no longer wanted go on" } else { "its workers did not register" };
        let said = status["message"].as_str().unwrap_or(usual);
        let rests = status["converging"] != true;
        let is_up = rests && workers("registered") >= wanted && workers("changed") == 0 && !has_more;
        since = is_up.then(|| since.unwrap_or_else(Instant::now));
        if since.is_some_and(|since| since.elapsed() >= STABLE_FOR || wanted == 0) {
            return Ok(());
        }
        let failed = workers("running") < wanted || workers("changed") > 0 || has_more;
        if rests && !is_up && failed {
            return Err(format!("{host}: {said}"));
        }
        if Instant::now() > end {
            return Err(format!("{host}: {said}"));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(hosts: &[&str], replicas: u64, memory: u64) -> Value {
        json!({ "spec": {
            "hosts": ["a", "b", "c", "d"], "scheduler": { "on": "a" },
            "worker": { "replicas": replicas, "hosts": hosts, "memory": memory },
        } })
    }

    #[test]
    fn half_of_the_hosts_restart_at_a_time_and_nobody_goes_before_who_takes_over() {
        let all = ["a", "b", "c", "d"].map(str::to_owned);
        let live = |hosts: &[&str], replicas: u64| -> Vec<(String, Value)> {
            let names = hosts.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
            let part = |name: &String| (name.clone(), object(hosts, worker_share(replicas, &names, name), 1));
            all.iter().map(part).collect()
        };
        let turns = |before: &[(String, Value)], after: &Value| {
            let RolloutOrder { now, later, initial_workers: kept } = order(after, &all, Some("a"), before);
            (now.join(" "), later.iter().map(|turn| turn.join(" ")).collect::<Vec<_>>().join(", "), kept)
        };
        let row = |now: &str, later: &str| (now.to_owned(), later.to_owned(), None);
        let four = live(&["a", "b", "c", "d"], 4);
        // Nothing has to wait: the same, more, fewer, other settings on one host.
        for after in [object(&["a", "b", "c", "d"], 4, 1), object(&["a", "b", "c", "d"], 8, 1)] {
            assert_eq!(turns(&four, &after), row("", ""));
        }
        assert_eq!(turns(&four, &object(&["a", "b", "c", "d"], 1, 1)), row("", ""));
        assert_eq!(turns(&live(&["b"], 4), &object(&["b"], 4, 2)), row("", ""));
        assert_eq!(turns(&[], &object(&["a", "b"], 4, 2)), row("", ""));
        // Other settings.
        assert_eq!(turns(&four, &object(&["a", "b", "c", "d"], 4, 2)), row("a b", "c d"));
        assert_eq!(turns(&live(&["b", "c", "a"], 3), &object(&["b", "c", "a"], 3, 2)), row("a", "b, c"));
        // Other hosts.
        assert_eq!(turns(&live(&["b", "c"], 2), &object(&["d"], 2, 1)), row("d", "b c"));
        assert_eq!(turns(&live(&["b", "c"], 2), &object(&["c", "d"], 2, 2)), row("d", "c, b"));
        let (now, later, kept) = turns(&live(&["a"], 2), &object(&["b"], 2, 1));
        let worker =
            |hosts: &[&str], replicas, memory| object(hosts, replicas, memory)["spec"]["worker"].clone();
        assert_eq!(
            (now.as_str(), later.as_str(), kept),
            ("b", "a", Some(("a".to_owned(), worker(&["a"], 2, 1))))
        );
        let (now, later, kept) = turns(&live(&["a"], 2), &object(&["a", "b"], 2, 2));
        assert_eq!(
            (now.as_str(), later.as_str(), kept),
            ("b", "a", Some(("a".to_owned(), worker(&["a"], 2, 1))))
        );
        // A host that is left, by a Dask cluster that restarts or has others to take over.
        let left = |memory: u64| {
            let mut fewer = object(&["a"], 1, memory);
            fewer["spec"]["hosts"] = json!(["a"]);
            order(&fewer, &all[..1], Some("a"), &live(&["a", "b"], 2)[..2])
        };
        assert_eq!(left(1), RolloutOrder::default());
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!((left(2).now, left(2).later), (names(&["a"]), vec![names(&["b"])]));
        // A number that nobody sets here.
        let mut adapts = object(&["b"], 1, 2);
        adapts["spec"]["worker"] = json!({ "adapt": {}, "hosts": ["b"] });
        assert_eq!(turns(&four, &adapts), row("", ""));
    }
}
