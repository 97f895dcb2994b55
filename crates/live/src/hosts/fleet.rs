//! Several hosts as one API. An object on several hosts is written once: the fleet divides its workers among the hosts, and
//! merges what the hosts return. If a host does not answer, its part is unknown, and reading the object fails.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::join_all;
use serde_json::{Value, json};

use super::parts::{
    Key, apply_managers, cluster_part, deletion, host_preconditions, key_of, leader, leader_part,
    leader_values, merge_parts, names_of, part, parts_of_manager, remove_field, uid_on, worker_share,
};
use super::rollout::{self, Rollouts};
use super::{Agent, CERTIFICATES, FolderHosts, certificates};
use crate::kube::ByteStream;
use crate::shape::ApiPath;
use crate::{ApiError, ErrorClass, MANAGER, Request};
use model::resource::{Host, HostConnection, Method};

/// The path of records, up to the stack's id.
const RECORDS: &str = "/api/v1/namespaces/dask-infra/configmaps/dask-infra-";

/// The path of the API of objects on hosts.
const HOSTS_API: &str = "/apis/hosts.dask-infra.dev/v1";

/// The plural of Secrets. Every host has the stack's Secrets.
const SECRETS: &str = "secrets";

/// The annotation of a check's pod with the host that its program runs on.
const HOST_ANNOTATION: &str = "hosts.dask-infra.dev/on";

/// The hosts of a stack.
pub struct Fleet {
    agents: Vec<(String, Arc<Agent>)>,
    /// Hosts that are no longer in the stack file, and still have to be emptied.
    removed: Mutex<Vec<(String, Arc<Agent>)>>,
    /// Names of hosts that no longer exist: nothing is read there.
    gone: Vec<String>,
    folder_hosts: FolderHosts,
    /// Identities of objects on several hosts, by kind and name.
    identities: Mutex<BTreeMap<Key, SharedIdentity>>,
    rollouts: Rollouts,
    /// The errors of skipped hosts; `None` if unreachable hosts are an error.
    skipped: Mutex<Option<BTreeMap<String, ApiError>>>,
    /// True for `[local]` and `[slurm]`, which have a single host, so that objects are not divided. Otherwise the first host
    /// keeps records and locks.
    is_single_host: bool,
}

/// The identity of an object on several hosts. It lasts as long as any of its parts exists: hosts delete their parts at different
/// times, and a remaining part is not another object.
struct SharedIdentity {
    /// The uid of the part that was seen first.
    uid: String,
    /// The uids of all parts that were seen.
    parts: BTreeSet<String>,
}

/// A write of an object on several hosts.
struct Write<'a> {
    request: &'a Request,
    path: &'a str,
    /// The query of its request.
    query: &'a str,
    body: Value,
    hosts: Vec<String>,
    /// The parts of the object before the write, by host.
    before: Vec<(String, Value)>,
    /// Values that only the scheduler's host knows.
    leader_values: Vec<(&'static str, Value)>,
    /// Hosts that the object leaves only after other objects have left them.
    still_used: BTreeSet<String>,
}

impl<'a> Write<'a> {
    fn of(request: &'a Request) -> Self {
        let (path, words) = request.path.split_once('?').unwrap_or((&request.path, ""));
        let body = request.body.clone().unwrap_or_default();
        let hosts = names_of(&body["spec"]["hosts"]);
        Self {
            request,
            path,
            query: words,
            body,
            hosts,
            before: Vec::new(),
            leader_values: Vec::new(),
            still_used: BTreeSet::new(),
        }
    }

    fn has(&self, host: &str) -> bool {
        self.hosts.iter().any(|name| name == host)
    }

    fn ours(&self) -> Vec<(String, Value)> {
        parts_of_manager(self.query, &self.before)
    }

    fn part(&self, host: &str) -> Request {
        let mut part = part(&self.body, host);
        for (field, value) in &self.leader_values {
            part["spec"][*field] = value.clone();
        }
        Request { body: Some(part), ..self.request.clone() }
    }

    /// Returns the request to the scheduler's host. It keeps the workers on that host unchanged if they are in a later batch.
    fn leader_request(&self, host: &str, kept: Option<&Value>) -> Request {
        let mut begins = self.part(host);
        if let (Some(worker), Some(body)) = (kept, begins.body.as_mut()) {
            body["spec"]["worker"] = worker.clone();
        }
        begins
    }

    /// Returns the request that removes the object from a host, if the host has it.
    fn removal_request(&self, host: &str, base: &Value) -> Option<Request> {
        if self.still_used.contains(host) {
            // It goes with the last of them.
            return self.unconditional_request(host);
        }
        let body = Some(json!({ "leaves": true }));
        let delete =
            Request { path: self.path.to_owned(), method: Method::Delete, body, ..self.request.clone() };
        deletion(&delete, host, &self.before, base)
    }

    /// Returns the request to a host of a later batch.
    fn delayed_request(&self, host: &str, base: &Value) -> Option<Request> {
        if !self.has(host) {
            return self.removal_request(host, base);
        }
        self.unconditional_request(host)
    }

    /// Returns the write to a host without `resourceVersion`, as the host may change its part meanwhile.
    fn unconditional_request(&self, host: &str) -> Option<Request> {
        let mut part = self.part(host);
        remove_field(&mut part.body.as_mut()?["metadata"], "resourceVersion");
        Some(part)
    }
}

impl Fleet {
    pub fn of(hosts: &[Host], gone: Vec<String>) -> Option<Self> {
        let is_single_host =
            hosts.first().is_some_and(|host| host.connection == HostConnection::Local || host.slurm);
        hosts.first()?;
        let folder_hosts = FolderHosts::default();
        let agent = |host: &Host| Arc::new(Agent::new(host.clone(), Arc::clone(&folder_hosts)));
        let agents = hosts.iter().map(|host| (host.name.clone(), agent(host))).collect();
        Some(Self {
            agents,
            removed: Mutex::default(),
            gone,
            folder_hosts,
            identities: Mutex::default(),
            rollouts: Rollouts::default(),
            skipped: Mutex::default(),
            is_single_host,
        })
    }

    /// Adds hosts, as [`LiveApi::add_hosts`](crate::LiveApi::add_hosts) does.
    pub fn add_hosts(&self, hosts: &[Host]) -> bool {
        let mut removed = self.removed_hosts();
        let before = removed.len();
        let agents = &self.agents;
        for host in hosts.iter().filter(|host| !self.is_single_host && !self.gone.contains(&host.name)) {
            let mut known = agents.iter().chain(removed.iter());
            if !known.any(|(name, _)| *name == host.name) {
                removed.push((
                    host.name.clone(),
                    Arc::new(Agent::new(host.clone(), Arc::clone(&self.folder_hosts))),
                ));
            }
        }
        removed.len() > before
    }

    /// Skips unreachable hosts from now on, for commands that only read.
    pub fn skip_unreachable(&self) {
        *self.skipped_hosts() = Some(BTreeMap::new());
    }

    /// Returns the errors of skipped hosts.
    pub fn skip_errors(&self) -> Vec<ApiError> {
        self.skipped_hosts().iter().flatten().map(|(_, error)| error.clone()).collect()
    }

    fn skipped_hosts(&self) -> MutexGuard<'_, Option<BTreeMap<String, ApiError>>> {
        // Nothing that holds it can panic half way.
        self.skipped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn removed_hosts(&self) -> MutexGuard<'_, Vec<(String, Arc<Agent>)>> {
        // Nothing that holds it can panic half way.
        self.removed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the hosts of the file, then those that left it.
    fn all(&self) -> Vec<(String, Arc<Agent>)> {
        self.agents.iter().chain(self.removed_hosts().iter()).cloned().collect()
    }

    fn record_host(&self) -> &Arc<Agent> {
        // There is one at least.
        &self.agents[0].1
    }

    /// Sends a request to the hosts that it concerns.
    ///
    /// # Errors
    ///
    /// As [`Agent::send`], with the name of the host.
    pub async fn send(&self, request: &Request) -> Result<Value, ApiError> {
        let path = request.path.split('?').next().unwrap_or_default();
        let api_path = ApiPath::parse(path);
        if let Some(ApiPath { plural: "clusters" | "jobs", name: Some(name), .. }) = api_path
            && request.method == Method::Delete
            && !request.path.contains("dryRun=")
        {
            certificates::forget_for_clients(&self.record_host().host, name);
        }
        if self.is_single_host {
            return self.record_host().send(request).await;
        }
        let Some(api_path) = api_path.filter(|api_path| is_shared(api_path.plural)) else {
            return self.send_to_record_host(request).await;
        };
        match (request.method, api_path.name, api_path.subresource) {
            (Method::Get, None, _) => self.list(request, api_path.plural).await,
            (_, Some(name), below) if api_path.plural == "pods" => self.pod(request, name, below).await,
            (Method::Get, Some(name), Some(CERTIFICATES)) => {
                self.certificates(request, &format!("{HOSTS_API}/{}/{name}", api_path.plural)).await
            }
            (Method::Get, Some(_), _) => {
                self.whole(self.send_to_each(|_| Some(request.clone())).await?).ok_or_else(|| absent(request))
            }
            (Method::Delete, Some(_), _) => {
                let parts = self.send_to_each(|_| Some(Request::get(request.api, path))).await?;
                let meant = request.body.as_ref().map(|body| &body["preconditions"]["uid"]);
                let is_meant = |(host, part): &&(String, Value)| {
                    meant.and_then(Value::as_str).is_none_or(|meant| self.is_part_of(meant, host, part))
                };
                // Nothing is deleted without the part that was seen: the first host tells that it is another one.
                let Some((_, base)) = parts.iter().find(is_meant) else {
                    let asked = self.send_to_each(|host| Some(host_preconditions(request, host))).await;
                    return match (parts.is_empty(), asked) {
                        (false, Ok(_)) | (true, _) => Err(absent(request)),
                        (false, Err(error)) => Err(error),
                    };
                };
                let base = base.clone();
                let answers = self.send_to_each(|host| deletion(request, host, &parts, &base)).await?;
                answers.into_iter().next().map(|(_, answer)| answer).ok_or_else(|| absent(request))
            }
            (_, Some(_), Some("scale")) => self.scale(request).await,
            (_, Some(_), _) => self.apply(request).await,
            _ => self.send_to_record_host(request).await,
        }
    }

    /// Returns the certificates that the scheduler's host has for its Dask cluster.
    async fn certificates(&self, request: &Request, path: &str) -> Result<Value, ApiError> {
        let look = Request::get(request.api, path);
        let parts = self.send_to_each(|_| Some(look.clone())).await?;
        let leader = leader_part(&parts).and_then(|part| leader(part, &names_of(&part["spec"]["hosts"])));
        let leader = leader.ok_or_else(|| absent(request))?;
        self.send_to(&leader, &Request::get(request.api, format!("{path}/{CERTIFICATES}"))).await
    }

    /// Copies the certificates of a Dask cluster from the scheduler's host to its other hosts.
    async fn share_certificates(
        &self,
        request: &Request,
        leader: Option<&str>,
        object: (&str, &str),
    ) -> Result<(), ApiError> {
        let (plural, name) = object;
        let found = self.certificates(request, &format!("{HOSTS_API}/{plural}/{name}")).await?;
        for (_, agent) in self.all().iter().filter(|(host, _)| Some(host.as_str()) != leader) {
            agent.certificates.keep(plural, name, found.clone());
        }
        Ok(())
    }

    async fn send_to_record_host(&self, request: &Request) -> Result<Value, ApiError> {
        let (record_host, _) = &self.agents[0];
        let answer = self.send_to(record_host, request).await;
        let stack = request.path.strip_prefix(RECORDS).filter(|_| request.method == Method::Get);
        if let (Some(stack), Err(error)) = (stack, &answer)
            && error.class == ErrorClass::NotFound
            && let Some(previous) = self.previous_record_host(request, stack).await?
        {
            return Err(record_host_moved(request, &previous, record_host));
        }
        answer
    }

    /// Returns the record host of the last apply, if it was another one: environments list all hosts, with the record host first.
    async fn previous_record_host(&self, request: &Request, stack: &str) -> Result<Option<String>, ApiError> {
        let manager = format!("{MANAGER}/{stack}");
        let look = Request::get(request.api, format!("{HOSTS_API}/environments"));
        let lists = self.send_to_each(|_| Some(look.clone())).await?;
        let items = lists.iter().filter_map(|(_, list)| list["items"].as_array()).flatten();
        let ours = items.filter(|item| apply_managers(item).contains(manager.as_str()));
        let record_hosts = ours.filter_map(|item| names_of(&item["spec"]["hosts"]).into_iter().next());
        let mut moved = record_hosts
            .filter(|record_host| *record_host != self.agents[0].0 && !self.gone.contains(record_host));
        Ok(moved.next())
    }

    async fn send_to(&self, name: &str, request: &Request) -> Result<Value, ApiError> {
        let all = self.all();
        let Some((_, agent)) = all.iter().find(|(host, _)| host == name) else { return Err(absent(request)) };
        agent.send(request).await.map_err(|error| named(error, name))
    }

    /// Sends to each host the request that `asked` returns for its name, at the same time, and returns the responses of the hosts that
    /// have the object. Hosts that do not answer are left out where the stack skips or removes them, and an error otherwise.
    async fn send_to_each(
        &self,
        asked: impl Fn(&str) -> Option<Request>,
    ) -> Result<Vec<(String, Value)>, ApiError> {
        let skipped_hosts: BTreeSet<String> =
            self.skipped_hosts().iter().flatten().map(|(name, _)| name.clone()).collect();
        let all = self.all().into_iter().filter(|(name, _)| !skipped_hosts.contains(name));
        let asked = all.filter_map(|(name, agent)| asked(&name).map(|asked| (name, agent, asked)));
        let answers = join_all(asked.map(|(name, agent, request)| async move {
            let answer = agent.send(&request).await;
            (name, answer)
        }));
        let (mut found, mut missed) = (Vec::new(), Vec::new());
        for (name, answer) in answers.await {
            let left = !self.agents.iter().any(|(known, _)| *known == name);
            match answer {
                Ok(answer) => found.push((name, answer)),
                Err(error) if error.class == ErrorClass::NotFound => {}
                // It has another name now.
                Err(error) if left && error.same_host().is_some() => {}
                Err(error) if left => missed.push((name.clone(), left_behind(error, &name))),
                Err(error) => missed.push((name.clone(), named(error, &name))),
            }
        }
        let mut skipped_hosts = self.skipped_hosts();
        if let Some(skipped_hosts) = skipped_hosts.as_mut() {
            skipped_hosts.extend(missed);
            // An object that no reachable host has may be on a skipped one.
            return match skipped_hosts.values().next().filter(|_| found.is_empty()) {
                Some(error) => Err(error.clone()),
                None => Ok(found),
            };
        }
        combined(missed.into_iter().map(|(_, error)| error)).map_or(Ok(found), Err)
    }

    async fn list(&self, request: &Request, plural: &str) -> Result<Value, ApiError> {
        let lists = self.send_to_each(|_| Some(request.clone())).await?;
        let Some((_, first)) = lists.first() else { return Err(absent(request)) };
        let mut whole = first.clone();
        let mut names: Vec<(String, Vec<(String, Value)>)> = Vec::new();
        let mut items = Vec::new();
        for (host, list) in &lists {
            for item in list["items"].as_array().into_iter().flatten() {
                if matches!(plural, "pods" | "strangers") {
                    items.push(item.clone());
                    continue;
                }
                let name = item["metadata"]["name"].as_str().unwrap_or_default();
                match names.iter_mut().find(|(known, _)| known == name) {
                    Some((_, parts)) => parts.push((host.clone(), item.clone())),
                    None => names.push((name.to_owned(), vec![(host.clone(), item.clone())])),
                }
            }
        }
        items.extend(names.into_iter().filter_map(|(_, parts)| self.whole(parts)));
        whole["items"] = Value::Array(items);
        Ok(whole)
    }

    /// Sends a request about a process to its host, whose name is part of the process's name.
    async fn pod(&self, request: &Request, name: &str, below: Option<&str>) -> Result<Value, ApiError> {
        if request.method == Method::Patch {
            let body = request.body.as_ref();
            let on = body.and_then(|body| body["metadata"]["annotations"][HOST_ANNOTATION].as_str());
            let known = self.agents.iter().map(|(host, _)| host.as_str()).find(|host| Some(*host) == on);
            return self.send_to(known.unwrap_or(&self.agents[0].0), request).await;
        }
        match self.host_of(request, name, below).await? {
            Some(host) => self.send_to(&host, request).await,
            None => Err(absent(request)),
        }
    }

    async fn host_of(
        &self,
        request: &Request,
        name: &str,
        below: Option<&str>,
    ) -> Result<Option<String>, ApiError> {
        let path = request.path.split('?').next().unwrap_or_default();
        let path = below.and_then(|below| path.strip_suffix(&format!("/{below}"))).unwrap_or(path);
        debug_assert!(path.ends_with(name));
        // One that ended is only known as such.
        let ended = if request.path.contains("previous=true") { "?previous=true" } else { "" };
        let look = Request::get(request.api, format!("{path}{ended}"));
        let found = match self.send_to_each(|_| Some(look.clone())).await {
            // A read of the other hosts' share fails too when a host is missing.
            Err(_) if self.some_are_skipped() => return Ok(None),
            found => found?,
        };
        Ok(found.into_iter().next().map(|(host, _)| host))
    }

    /// Returns true if some hosts were skipped, but not all.
    fn some_are_skipped(&self) -> bool {
        let all = self.all().len();
        self.skipped_hosts().as_ref().is_some_and(|skipped_hosts| (1..all).contains(&skipped_hosts.len()))
    }

    /// Applies an object. The scheduler's host is written first, because workers on other hosts connect to it. If workers on
    /// several hosts restart, or workers on one host take over from workers on another, the hosts are written in batches.
    async fn apply(&self, request: &Request) -> Result<Value, ApiError> {
        let mut write = Write::of(request);
        if write.body["kind"] == "Secret" {
            write.hosts = self.agents.iter().map(|(name, _)| name.clone()).collect();
        }
        let known = |name: &&String| self.agents.iter().any(|(host, _)| host == *name);
        if let Some(unknown) = write.hosts.iter().find(|name| !known(name)) {
            return Err(
                request.failed(ErrorClass::Invalid, format!("{unknown} is not among the hosts of the stack"))
            );
        }
        if !write.query.contains("dryRun=") {
            write.before = self.send_to_each(|_| Some(Request::get(request.api, write.path))).await?;
            self.rollouts.end(&key_of(&write.body));
            self.add_cluster_to_hosts(&write).await?;
        }
        let first = leader(&write.body, &write.hosts);
        let order = rollout::order(&write.body, &write.hosts, first.as_deref(), &write.ours());
        let mut parts = Vec::new();
        if let Some(first) = &first {
            let begins =
                |host: &str| (host == first).then(|| write.leader_request(host, order.initial_workers(host)));
            parts.extend(self.send_to_each(begins).await?);
            let Some((_, part)) = parts.first() else { return Err(absent(request)) };
            write.leader_values = leader_values(&write.body, part);
            // Groups may be on hosts that are not among those of the Dask cluster.
            if self.all().len() > 1
                && !write.query.contains("dryRun=")
                && let Some((plural, name)) = certificates::tls_cluster(request)
            {
                self.share_certificates(request, Some(first.as_str()), (&plural, &name)).await?;
            }
        }
        let waits = |host: &str| order.later.iter().flatten().any(|name| name == host);
        let is_next = |host: &str| write.has(host) && first.as_deref() != Some(host) && !waits(host);
        parts.extend(self.send_to_each(|host| is_next(host).then(|| write.part(host))).await?);
        write.still_used = self.used_by_groups(&write).await?;
        let base = parts.first().map(|(_, part)| part.clone()).unwrap_or_default();
        if order.later.is_empty() {
            let leaving =
                |host: &str| if write.has(host) { None } else { write.removal_request(host, &base) };
            self.send_to_each(leaving).await?;
            return self.whole(parts).ok_or_else(|| absent(request));
        }
        let all = self.all();
        let step = |name: &String| {
            let (_, agent) = all.iter().find(|(host, _)| host == name)?;
            Some((name.clone(), Arc::clone(agent), write.delayed_request(name, &base)?))
        };
        let steps = order.later.iter().map(|turn| turn.iter().filter_map(step).collect()).collect();
        let begun = all.iter().filter(|(host, _)| order.now.contains(host)).cloned().collect();
        let look = Request::get(request.api, write.path);
        self.rollouts.begin(key_of(&write.body), look, begun, steps);
        let waiting = |(host, _): &&(String, Value)| waits(host) && first.as_ref() != Some(host);
        parts.extend(write.before.iter().filter(waiting).cloned());
        self.whole(parts).ok_or_else(|| absent(request))
    }

    /// Returns the hosts that a Dask cluster leaves while its groups still use them, as the groups move later.
    async fn used_by_groups(&self, write: &Write<'_>) -> Result<BTreeSet<String>, ApiError> {
        if write.body["kind"] != "Cluster" {
            return Ok(BTreeSet::new());
        }
        let before = write.ours();
        let leaves = |host: &str| !write.has(host) && before.iter().any(|(name, _)| name == host);
        let look = Request::get(write.request.api, format!("{HOSTS_API}/workergroups"));
        let lists = self.send_to_each(|host| leaves(host).then(|| look.clone())).await?;
        let name = &write.body["metadata"]["name"];
        let is_used = |list: &Value| {
            list["items"].as_array().into_iter().flatten().any(|group| group["spec"]["cluster"] == *name)
        };
        Ok(lists.into_iter().filter(|(_, list)| is_used(list)).map(|(host, _)| host).collect())
    }

    /// Writes the Dask cluster's part, without workers, to hosts that only its new group uses. The group may come before the
    /// cluster's own change, so that its workers can take over data from the cluster's workers.
    async fn add_cluster_to_hosts(&self, write: &Write<'_>) -> Result<(), ApiError> {
        let is_new = |host: &String| !write.before.iter().any(|(name, _)| name == host);
        let cluster = write.body["spec"]["cluster"].as_str();
        let Some(cluster) = cluster.filter(|_| write.hosts.iter().any(is_new)) else { return Ok(()) };
        let request = write.request;
        let path = format!("{HOSTS_API}/clusters/{cluster}");
        let all = self.send_to_each(|_| Some(Request::get(request.api, path.as_str()))).await?;
        let parts = parts_of_manager(write.query, &all);
        let Some(base) = leader_part(&parts) else { return Ok(()) };
        let has = |parts: &[(String, Value)], host: &str| {
            parts.iter().any(|(name, part)| name == host && part["metadata"]["deletionTimestamp"].is_null())
        };
        let comes = |host: &str| write.has(host) && !has(&parts, host);
        if let Some((host, _)) = all.iter().find(|(host, _)| comes(host) && has(&all, host)) {
            let message = format!(
                "{host} has a Dask cluster {cluster} of another stack: give one of the two another `name`"
            );
            return Err(request.failed(ErrorClass::Invalid, message));
        }
        if base["spec"]["scheduler"]["protocol"] == certificates::TLS {
            self.share_certificates(request, base["spec"]["host"].as_str(), ("clusters", cluster)).await?;
        }
        // Fields of other managers are not taken over here, even if the change of the group is forced.
        let words: Vec<&str> = write.query.split('&').filter(|word| !word.starts_with("force=")).collect();
        let path = format!("{path}?{}", words.join("&"));
        let begins = |host: &str| Request {
            path: path.clone(),
            body: Some(cluster_part(base, host)),
            ..request.clone()
        };
        self.send_to_each(|host| comes(host).then(|| begins(host))).await?;
        Ok(())
    }

    /// Merges the parts into one object; `None` if there are none.
    fn whole(&self, parts: Vec<(String, Value)>) -> Option<Value> {
        let secret = (parts.first()?.1["kind"] == "Secret").then(|| self.is_on_all(&parts));
        let uids: Vec<(String, String)> =
            parts.iter().map(|(host, part)| (host.clone(), uid_on(host, part))).collect();
        let mut unread = names_of(&parts.first()?.1["spec"]["hosts"]);
        unread.retain(|name| self.skipped_hosts().iter().flatten().any(|(skipped, _)| skipped == name));
        let mut object = merge_parts(parts)?;
        if let Some(is_on_all) = secret {
            remove_field(&mut object, "spec");
            for entry in object["metadata"]["managedFields"].as_array_mut().into_iter().flatten() {
                remove_field(&mut entry["fieldsV1"], "f:spec");
            }
            if !is_on_all {
                // Some host lacks it, or has other values: it is written again.
                object["data"] = json!({});
            }
        }
        if !unread.is_empty() {
            object["status"]["unasked"] = json!(unread);
        }
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let (uid, versions) = (text("uid"), text("resourceVersion"));
        let hosts: BTreeSet<&str> =
            versions.split(',').filter_map(|pair| Some(pair.split_once('=')?.0)).collect();
        let own = uids.into_iter().filter(|(host, _)| hosts.contains(host.as_str())).map(|(_, uid)| uid);
        let own: BTreeSet<String> = own.collect();
        let key = key_of(&object);
        self.rollouts.add_status(&key, &mut object["status"]);
        let mut identities = self.identities();
        match identities.get_mut(&key).filter(|known| !known.parts.is_disjoint(&own)) {
            Some(known) => {
                known.parts.extend(own);
                object["metadata"]["uid"] = json!(known.uid);
            }
            None => drop(identities.insert(key, SharedIdentity { uid, parts: own })),
        }
        Some(object)
    }

    /// Returns true if the parts of all readable hosts have the same values.
    fn is_on_all(&self, parts: &[(String, Value)]) -> bool {
        let skipped_hosts = self.skipped_hosts();
        let is_known = |name: &String| skipped_hosts.as_ref().is_none_or(|missed| !missed.contains_key(name));
        let same = |name: &String| {
            parts.iter().any(|(host, part)| host == name && part["data"] == parts[0].1["data"])
        };
        self.agents.iter().map(|(name, _)| name).filter(|name| is_known(name)).all(same)
    }

    fn is_part_of(&self, uid: &str, host: &str, part: &Value) -> bool {
        let own = uid_on(host, part);
        let identities = self.identities();
        let known = identities.get(&key_of(part)).filter(|known| known.uid == uid);
        uid == own || known.is_some_and(|known| known.parts.contains(&own))
    }

    fn identities(&self) -> MutexGuard<'_, BTreeMap<(String, String), SharedIdentity>> {
        // Nothing that holds it can panic half way.
        self.identities.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn scale(&self, request: &Request) -> Result<Value, ApiError> {
        let path = request.path.split('?').next().unwrap_or_default();
        let path = path.strip_suffix("/scale").unwrap_or(path);
        let look = Request::get(request.api, path);
        let found = self.send_to_each(|_| Some(look.clone())).await?;
        let Some((_, live)) = found.first() else { return Err(absent(&look)) };
        let hosts = names_of(&live["spec"]["worker"]["hosts"]);
        let whole = request.body.clone().unwrap_or_default();
        let number = whole["spec"]["replicas"].as_u64().unwrap_or_default();
        let of = |host: &str| {
            let mut body = whole.clone();
            body["spec"]["replicas"] = json!(worker_share(number, &hosts, host));
            Request { body: Some(body), ..request.clone() }
        };
        let has_it = |host: &str| found.iter().any(|(name, _)| name == host);
        let answers = self.send_to_each(|host| has_it(host).then(|| of(host))).await?;
        let Some((_, mut answer)) = answers.into_iter().next() else { return Err(absent(request)) };
        answer["spec"]["replicas"] = json!(number);
        Ok(answer)
    }

    /// Follows a log on the host that has it.
    ///
    /// # Errors
    ///
    /// As [`Agent::follow`].
    pub async fn follow(&self, request: Request) -> Result<ByteStream, ApiError> {
        let path = request.path.split('?').next().unwrap_or_default().to_owned();
        let api_path = ApiPath::parse(&path).filter(|_| !self.is_single_host);
        let host = match api_path.as_ref().and_then(|api_path| Some((api_path.name?, api_path.subresource))) {
            Some((name, below)) => {
                self.host_of(&request, name, below).await?.ok_or_else(|| absent(&request))?
            }
            None => self.agents[0].0.clone(),
        };
        let agent = self.all().into_iter().find(|(name, _)| *name == host).map(|(_, agent)| agent);
        agent.ok_or_else(|| absent(&request))?.follow(request).await
    }
}

fn is_shared(plural: &str) -> bool {
    matches!(
        plural,
        "pods" | "environments" | "files" | "clusters" | "workergroups" | "jobs" | "strangers" | SECRETS
    )
}

fn absent(request: &Request) -> ApiError {
    request.failed(ErrorClass::NotFound, "no host has it")
}

fn named(mut error: ApiError, host: &str) -> ApiError {
    if !error.message.contains(host) {
        error.message = format!("{host}: {}", error.message);
    }
    error
}

/// Combines the errors of several hosts into the first one, with the messages and remedies of the others.
fn combined(errors: impl Iterator<Item = ApiError>) -> Option<ApiError> {
    errors.reduce(|mut all, error| {
        if all.status.is_some() || error.status.is_some() {
            return all;
        }
        let remedies: Vec<&str> = [&all, &error].into_iter().filter_map(ApiError::remedy).collect();
        if !remedies.is_empty() {
            all.body = Some(json!({ "remedy": remedies.join("\n") }));
        }
        all.message = format!("{}; {}", all.message, error.message);
        all
    })
}

/// Returns the error for another record host than at the last apply: its record and lock are missing there, so the stack's
/// resources are unknown and others may apply it.
fn record_host_moved(request: &Request, previous: &str, record_host: &str) -> ApiError {
    let message = format!(
        "the home of this stack was {previous} when it was applied, and would be {record_host}, which has no record of it"
    );
    let remedy = format!(
        "keep it with `home = \"{previous}\"` in `[ssh]`, and {previous} in `hosts`. To move it, destroy the stack as it was and apply it \
         with the new home; if {previous} does not exist any more, say so: `gone = [\"{previous}\"]`"
    );
    ApiError { body: Some(json!({ "remedy": remedy })), ..request.failed(ErrorClass::Other, message) }
}

/// Adds the name of the host, which is no longer in the file, and the remedy to an error.
fn left_behind(error: ApiError, host: &str) -> ApiError {
    let mut error = named(error, host);
    let remedy = error.remedy().map(|remedy| format!("{remedy}. ")).unwrap_or_default();
    let remedy = format!(
        "{remedy}{host} is not in `[ssh]` any more, and has to be emptied; if it does not exist any more, say so: \
         `gone = [\"{host}\"]` in `[ssh]`"
    );
    error.body = Some(json!({ "remedy": remedy }));
    error
}

#[cfg(test)]
mod tests {
    use super::super::parts::tests::live;
    use super::*;

    #[test]
    fn an_object_is_itself_as_long_as_any_host_has_its_part() {
        let fleet = Fleet {
            agents: Vec::new(),
            removed: Mutex::default(),
            gone: Vec::new(),
            folder_hosts: FolderHosts::default(),
            identities: Mutex::default(),
            rollouts: Rollouts::default(),
            skipped: Mutex::default(),
            is_single_host: false,
        };
        let on = |host: &str, uid: &str| {
            let (host, mut part) = live(host, 1);
            part["kind"] = json!("DaskCluster");
            part["metadata"]["uid"] = json!(uid);
            (host, part)
        };
        let seen =
            |parts: &[(String, Value)]| fleet.whole(parts.to_vec()).unwrap()["metadata"]["uid"].clone();
        assert_eq!(seen(&[on("a", "2"), on("b", "1")]), "b=1");
        // The scheduler's host is done first.
        assert_eq!(seen(&[on("a", "2")]), "b=1");
        assert!(fleet.is_part_of("b=1", "a", &on("a", "2").1));
        assert!(!fleet.is_part_of("b=1", "a", &on("a", "3").1));
        assert_eq!(seen(&[on("b", "4"), on("a", "2")]), "b=1");
        // Nothing of it is left.
        assert_eq!(seen(&[on("a", "5")]), "a=5");
        assert!(!fleet.is_part_of("b=1", "a", &on("a", "5").1));
    }
}
