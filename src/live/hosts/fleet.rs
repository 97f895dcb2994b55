//! Several hosts behind one API. An object that lives on several of them is written once: its workers are shared out, and
//! what the hosts tell is put together again. What one host does not tell is unknown, so a look at all fails with it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::join_all;
use serde_json::{Value, json};

use super::{Agent, Places};
use crate::live::kube::BytesAsTheyCome;
use crate::live::shape::Place;
use crate::live::{ApiError, Class, Request};
use crate::resource::{Host, Method, Reach};

/// Says on which host a program of its own runs.
const ON: &str = "hosts.dask-infra.dev/on";

/// The hosts of a stack.
pub struct Fleet {
    agents: Vec<(String, Arc<Agent>)>,
    /// Those that left its file, and still have to be emptied.
    former: Mutex<Vec<(String, Arc<Agent>)>>,
    /// Names of those that are not looked for.
    gone: Vec<String>,
    places: Places,
    /// Of objects on several hosts, by kind and name.
    identities: Mutex<BTreeMap<(String, String), Identity>>,
    /// Records and locks are kept on the first; objects of a stack of `[local]` or `[slurm]` are not shared out.
    is_local: bool,
}

/// What an object on several hosts is told apart by. It holds as long as any of its parts is there: hosts delete theirs at their own
/// pace, and the next one's part is not another object.
struct Identity {
    /// That of its first part, when it was first seen.
    uid: String,
    /// Those of all parts that were seen.
    parts: BTreeSet<String>,
}

impl Fleet {
    pub fn of(hosts: &[Host], gone: Vec<String>) -> Option<Self> {
        let is_local = hosts.first().is_some_and(|host| host.way == Reach::Here || host.slurm);
        hosts.first()?;
        let places = Places::default();
        let agent = |host: &Host| Arc::new(Agent::of(host.clone(), Arc::clone(&places)));
        let agents = hosts.iter().map(|host| (host.name.clone(), agent(host))).collect();
        Some(Self { agents, former: Mutex::default(), gone, places, identities: Mutex::default(), is_local })
    }

    /// As [`LiveApi::visits`](crate::live::LiveApi::visits).
    pub fn visits(&self, hosts: &[Host]) -> bool {
        let mut former = self.former();
        let before = former.len();
        let agents = &self.agents;
        for host in hosts.iter().filter(|host| !self.is_local && !self.gone.contains(&host.name)) {
            let mut known = agents.iter().chain(former.iter());
            if !known.any(|(name, _)| *name == host.name) {
                former.push((host.name.clone(), Arc::new(Agent::of(host.clone(), Arc::clone(&self.places)))));
            }
        }
        former.len() > before
    }

    fn former(&self) -> MutexGuard<'_, Vec<(String, Arc<Agent>)>> {
        // Nothing that holds it can panic half way.
        self.former.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those of the file, then those that left it.
    fn all(&self) -> Vec<(String, Arc<Agent>)> {
        self.agents.iter().chain(self.former().iter()).cloned().collect()
    }

    fn home(&self) -> &Arc<Agent> {
        // There is one at least.
        &self.agents[0].1
    }

    /// Sends one request to the hosts that it is about.
    ///
    /// # Errors
    /// As [`Agent::send`], with the name of the host.
    pub async fn send(&self, request: &Request) -> Result<Value, ApiError> {
        if self.is_local {
            return self.home().send(request).await;
        }
        let path = request.path.split('?').next().unwrap_or_default();
        let place = Place::of_path(path);
        let Some(place) = place.filter(|place| is_shared(place.plural)) else {
            return self.home_answers(request).await;
        };
        match (request.method, place.name, place.subresource) {
            (Method::Get, None, _) => self.list(request, place.plural).await,
            (_, Some(name), below) if place.plural == "pods" => self.pod(request, name, below).await,
            (Method::Get, Some(_), _) => {
                self.whole(self.everywhere(|_| Some(request.clone())).await?).ok_or_else(|| absent(request))
            }
            (Method::Delete, Some(_), _) => {
                let parts = self.everywhere(|_| Some(Request::get(request.api, path))).await?;
                let meant = request.body.as_ref().map(|body| &body["preconditions"]["uid"]);
                let is_meant = |(host, part): &&(String, Value)| {
                    meant.and_then(Value::as_str).is_none_or(|meant| self.is_part_of(meant, host, part))
                };
                // Nothing is deleted without the part that was seen: the first host tells that it is another one.
                let Some((_, base)) = parts.iter().find(is_meant) else {
                    let asked = self.everywhere(|host| Some(conditions_of(request, host))).await;
                    return match (parts.is_empty(), asked) {
                        (false, Ok(_)) | (true, _) => Err(absent(request)),
                        (false, Err(error)) => Err(error),
                    };
                };
                let base = base.clone();
                let answers = self.delete(request, &parts, &base).await?;
                answers.into_iter().next().map(|(_, answer)| answer).ok_or_else(|| absent(request))
            }
            (_, Some(_), Some("scale")) => self.scale(request).await,
            (_, Some(_), _) => self.apply(request).await,
            _ => self.home_answers(request).await,
        }
    }

    async fn home_answers(&self, request: &Request) -> Result<Value, ApiError> {
        self.on(&self.agents[0].0, request).await
    }

    async fn on(&self, name: &str, request: &Request) -> Result<Value, ApiError> {
        let all = self.all();
        let Some((_, agent)) = all.iter().find(|(host, _)| host == name) else { return Err(absent(request)) };
        agent.send(request).await.map_err(|error| named(error, name))
    }

    /// The answers of all hosts that have it.
    async fn everywhere(
        &self,
        asked: impl Fn(&str) -> Option<Request>,
    ) -> Result<Vec<(String, Value)>, ApiError> {
        let asked =
            self.all().into_iter().filter_map(|(name, agent)| asked(&name).map(|asked| (name, agent, asked)));
        let answers = join_all(asked.map(|(name, agent, request)| async move {
            let answer = agent.send(&request).await;
            (name, answer)
        }));
        let mut found = Vec::new();
        for (name, answer) in answers.await {
            let left = !self.agents.iter().any(|(known, _)| *known == name);
            match answer {
                Ok(answer) => found.push((name, answer)),
                Err(error) if error.class == Class::NotFound => {}
                // It has another name now.
                Err(error) if left && error.same_host().is_some() => {}
                Err(error) if left => return Err(left_behind(error, &name)),
                Err(error) => return Err(named(error, &name)),
            }
        }
        Ok(found)
    }

    async fn list(&self, request: &Request, plural: &str) -> Result<Value, ApiError> {
        let lists = self.everywhere(|_| Some(request.clone())).await?;
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

    /// A process is on one host: names of processes have the host's in them.
    async fn pod(&self, request: &Request, name: &str, below: Option<&str>) -> Result<Value, ApiError> {
        if request.method == Method::Patch {
            let body = request.body.as_ref();
            let on = body.and_then(|body| body["metadata"]["annotations"][ON].as_str());
            let known = self.agents.iter().map(|(host, _)| host.as_str()).find(|host| Some(*host) == on);
            return self.on(known.unwrap_or(&self.agents[0].0), request).await;
        }
        match self.host_of(request, name, below).await? {
            Some(host) => self.on(&host, request).await,
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
        let look = Request::get(request.api, path);
        let found = self.everywhere(|_| Some(look.clone())).await?;
        Ok(found.into_iter().next().map(|(host, _)| host))
    }

    /// The host with the scheduler first: the others' workers look for it.
    async fn apply(&self, request: &Request) -> Result<Value, ApiError> {
        let body = request.body.clone().unwrap_or_default();
        let hosts = names_of(&body["spec"]["hosts"]);
        let known = |name: &&String| self.agents.iter().any(|(host, _)| host == *name);
        if let Some(unknown) = hosts.iter().find(|name| !known(name)) {
            return Err(
                request.failed(Class::Invalid, format!("{unknown} is not among the hosts of the stack"))
            );
        }
        let first = leader(&body, &hosts);
        // What only the scheduler's own host knows.
        let mut told = Vec::new();
        let of = |host: &str, told: &[(&str, Value)]| {
            let mut part = part(&body, host);
            for (field, value) in told {
                part["spec"][*field] = value.clone();
            }
            Request { body: Some(part), ..request.clone() }
        };
        let mut parts = Vec::new();
        if let Some(first) = &first {
            parts.extend(self.everywhere(|host| (host == first).then(|| of(host, &[]))).await?);
            let Some((_, part)) = parts.first() else { return Err(absent(request)) };
            let scheduler = &part["status"]["scheduler"];
            // The address of an interface.
            if !body["spec"]["scheduler"]["interface"].is_null() && scheduler["host"].is_string() {
                told.push(("reach", scheduler["host"].clone()));
            }
            // Ports that it chose, while there is somebody to connect to.
            if body["spec"].get("program").is_some() && scheduler["port"].is_u64() {
                let ports = json!({ "port": scheduler["port"], "dashboardPort": scheduler["dashboardPort"] });
                told.push(("ports", ports));
            }
        }
        let others = |host: &str| hosts.iter().any(|name| name == host) && first.as_deref() != Some(host);
        parts.extend(self.everywhere(|host| others(host).then(|| of(host, &told))).await?);
        if !request.path.contains("dryRun=") {
            // Hosts that it left.
            let path = request.path.split('?').next().unwrap_or_default();
            let left_it = |host: &str| !hosts.iter().any(|name| name == host);
            let look = Request::get(request.api, path);
            let there = self.everywhere(|host| left_it(host).then(|| look.clone())).await?;
            let left =
                Request { path: path.to_owned(), method: Method::Delete, body: None, ..request.clone() };
            if let Some((_, base)) = parts.first() {
                self.delete(&left, &there, base).await?;
            }
        }
        self.whole(parts).ok_or_else(|| absent(request))
    }

    /// One object of what hosts have of it; `None` when none has any.
    fn whole(&self, parts: Vec<(String, Value)>) -> Option<Value> {
        let uids: Vec<(String, String)> =
            parts.iter().map(|(host, part)| (host.clone(), uid_on(host, part))).collect();
        let mut object = merged(parts)?;
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let (uid, versions) = (text("uid"), text("resourceVersion"));
        let hosts: BTreeSet<&str> =
            versions.split(',').filter_map(|pair| Some(pair.split_once('=')?.0)).collect();
        let own = uids.into_iter().filter(|(host, _)| hosts.contains(host.as_str())).map(|(_, uid)| uid);
        let own: BTreeSet<String> = own.collect();
        let key = key_of(&object);
        let mut identities = self.identities();
        match identities.get_mut(&key).filter(|known| !known.parts.is_disjoint(&own)) {
            Some(known) => {
                known.parts.extend(own);
                object["metadata"]["uid"] = json!(known.uid);
            }
            None => drop(identities.insert(key, Identity { uid, parts: own })),
        }
        Some(object)
    }

    fn is_part_of(&self, uid: &str, host: &str, part: &Value) -> bool {
        let own = uid_on(host, part);
        let identities = self.identities();
        let known = identities.get(&key_of(part)).filter(|known| known.uid == uid);
        uid == own || known.is_some_and(|known| known.parts.contains(&own))
    }

    fn identities(&self) -> MutexGuard<'_, BTreeMap<(String, String), Identity>> {
        // Nothing that holds it can panic half way.
        self.identities.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Deletes these parts of an object, as they were seen, but for those that others made: a stack on other hosts of the same
    /// user may have one of that name.
    async fn delete(
        &self,
        request: &Request,
        parts: &[(String, Value)],
        base: &Value,
    ) -> Result<Vec<(String, Value)>, ApiError> {
        let own: Vec<&(String, Value)> = parts.iter().filter(|(_, part)| is_of_one(part, base)).collect();
        self.everywhere(|host| {
            let (_, part) = own.iter().find(|(name, _)| name == host)?;
            let mut own = conditions_of(request, host);
            own.body.get_or_insert_with(|| json!({}))["preconditions"]["uid"] =
                part["metadata"]["uid"].clone();
            Some(own)
        })
        .await
    }

    async fn scale(&self, request: &Request) -> Result<Value, ApiError> {
        let path = request.path.split('?').next().unwrap_or_default();
        let path = path.strip_suffix("/scale").unwrap_or(path);
        let look = Request::get(request.api, path);
        let found = self.everywhere(|_| Some(look.clone())).await?;
        let Some((_, live)) = found.first() else { return Err(absent(&look)) };
        let hosts = names_of(&live["spec"]["worker"]["hosts"]);
        let whole = request.body.clone().unwrap_or_default();
        let number = whole["spec"]["replicas"].as_u64().unwrap_or_default();
        let of = |host: &str| {
            let mut body = whole.clone();
            body["spec"]["replicas"] = json!(share(number, &hosts, host));
            Request { body: Some(body), ..request.clone() }
        };
        let has_it = |host: &str| found.iter().any(|(name, _)| name == host);
        let answers = self.everywhere(|host| has_it(host).then(|| of(host))).await?;
        let Some((_, mut answer)) = answers.into_iter().next() else { return Err(absent(request)) };
        answer["spec"]["replicas"] = json!(number);
        Ok(answer)
    }

    /// A log as it grows, from the host that has it.
    ///
    /// # Errors
    /// As [`Agent::follow`].
    pub async fn follow(&self, request: Request) -> Result<BytesAsTheyCome, ApiError> {
        let path = request.path.split('?').next().unwrap_or_default().to_owned();
        let place = Place::of_path(&path).filter(|_| !self.is_local);
        let host = match place.as_ref().and_then(|place| Some((place.name?, place.subresource))) {
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
    matches!(plural, "pods" | "environments" | "clusters" | "workergroups" | "jobs" | "strangers")
}

fn absent(request: &Request) -> ApiError {
    request.failed(Class::NotFound, "no host has it")
}

fn named(mut error: ApiError, host: &str) -> ApiError {
    if !error.message.contains(host) {
        error.message = format!("{host}: {}", error.message);
    }
    error
}

/// The same for a host that is not in the file any more.
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

fn names_of(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The host that speaks for an object: the one of the scheduler, else the first.
fn leader(object: &Value, hosts: &[String]) -> Option<String> {
    let on = object["spec"]["scheduler"]["on"].as_str().map(str::to_owned);
    on.or_else(|| hosts.first().cloned())
}

/// What of a number is a host's: the first hosts have one more where it does not divide.
fn share(number: u64, hosts: &[String], host: &str) -> u64 {
    let Some(index) = hosts.iter().position(|name| name == host) else { return 0 };
    let (index, count) = (index as u64, hosts.len() as u64);
    number / count + u64::from(index < number % count)
}

/// What of an object is a host's.
fn part(body: &Value, host: &str) -> Value {
    let mut part = body.clone();
    part["spec"]["host"] = json!(host);
    if let Some(number) = body["spec"]["worker"]["replicas"].as_u64() {
        let hosts = names_of(&body["spec"]["worker"]["hosts"]);
        part["spec"]["worker"]["replicas"] = json!(share(number, &hosts, host));
    }
    own_identity(&mut part["metadata"], host);
    part
}

/// `node1=UID`.
fn uid_on(host: &str, part: &Value) -> String {
    format!("{host}={}", part["metadata"]["uid"].as_str().unwrap_or_default())
}

/// Its kind and name.
fn key_of(object: &Value) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&object["kind"]), text(&object["metadata"]["name"]))
}

/// Whether two parts are of one object: who applied the one applied the other.
fn is_of_one(part: &Value, base: &Value) -> bool {
    let (one, other) = (appliers(part), appliers(base));
    one.is_empty() && other.is_empty() || !one.is_disjoint(&other)
}

fn appliers(part: &Value) -> BTreeSet<&str> {
    let entries = part["metadata"]["managedFields"].as_array().into_iter().flatten();
    entries
        .filter(|entry| entry["operation"] == "Apply")
        .filter_map(|entry| entry["manager"].as_str())
        .collect()
}

/// The conditions of a deletion that are a host's.
fn conditions_of(request: &Request, host: &str) -> Request {
    let mut own = request.clone();
    if let Some(conditions) = own.body.as_mut().and_then(|body| body.get_mut("preconditions")) {
        own_identity(conditions, host);
    }
    own
}

/// Of `node1=V,node2=W` what a host knows; a value without hosts is the same everywhere.
fn own_identity(metadata: &mut Value, host: &str) {
    for field in ["uid", "resourceVersion"] {
        let Some(text) = metadata[field].as_str().filter(|text| text.contains('=')) else { continue };
        let own = text.split(',').filter_map(|pair| pair.split_once('=')).find(|(name, _)| *name == host);
        match own.map(|(_, value)| value.to_owned()) {
            Some(own) => metadata[field] = json!(own),
            None => {
                if let Some(fields) = metadata.as_object_mut() {
                    fields.remove(field);
                }
            }
        }
    }
}

/// One object of what hosts have of it; `None` when none has any.
fn merged(mut parts: Vec<(String, Value)>) -> Option<Value> {
    let hosts = names_of(&parts.first()?.1["spec"]["hosts"]);
    let first = leader(&parts.first()?.1, &hosts);
    let rank = |name: &String| (Some(name) != first.as_ref(), hosts.iter().position(|host| host == name));
    parts.sort_by_key(|(name, _)| rank(name));
    let base = parts.first()?.1.clone();
    parts.retain(|(_, part)| is_of_one(part, &base));
    let whole: u64 = parts.iter().filter_map(|(_, part)| part["spec"]["worker"]["replicas"].as_u64()).sum();
    let (base_name, base) = parts.first()?.clone();
    let terms = |part: &Value| {
        let mut spec = part["spec"].clone();
        own_fields().for_each(|field| without(&mut spec, field));
        without(&mut spec["worker"], "replicas");
        spec
    };
    let wanted = terms(&base);
    // A host that has it on other terms is one that does not have it: the next apply writes it there, too.
    let same: Vec<&String> = hosts
        .iter()
        .filter(|host| parts.iter().any(|(name, part)| name == *host && terms(part) == wanted))
        .collect();
    let mut object = base.clone();
    own_fields().for_each(|field| without(&mut object["spec"], field));
    object["spec"]["hosts"] = json!(same);
    if object["spec"]["worker"].is_object() && object["spec"]["worker"].get("adapt").is_none() {
        object["spec"]["worker"]["replicas"] = json!(whole);
    }
    let versions: Vec<String> = parts
        .iter()
        .map(|(name, part)| {
            format!("{name}={}", part["metadata"]["resourceVersion"].as_str().unwrap_or_default())
        })
        .collect();
    object["metadata"]["resourceVersion"] = json!(versions.join(","));
    object["metadata"]["uid"] = json!(uid_on(&base_name, &base));
    for entry in object["metadata"]["managedFields"].as_array_mut().into_iter().flatten() {
        own_fields().for_each(|field| without(&mut entry["fieldsV1"]["f:spec"], &format!("f:{field}")));
    }
    object["status"] = status(&parts);
    Some(object)
}

/// What stands in the part of a host only: which it is, and what the scheduler's host told.
fn own_fields() -> impl Iterator<Item = &'static str> {
    ["host", "reach", "ports"].into_iter()
}

fn without(object: &mut Value, field: &str) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove(field);
    }
}

/// What hosts tell of their parts, as one: whatever is missing somewhere is missing.
fn status(parts: &[(String, Value)]) -> Value {
    let Some((_, base)) = parts.first() else { return Value::Null };
    let mut status = base["status"].clone();
    if status["phase"].is_string() {
        let worst = ["Failed", "Stuck", "Making"]
            .into_iter()
            .find_map(|phase| parts.iter().find(|(_, part)| part["status"]["phase"] == phase));
        if let Some((_, part)) = worst {
            status["phase"] = part["status"]["phase"].clone();
        }
    }
    if status["workers"].is_object() {
        for count in ["running", "present", "registered", "wanted", "changed"] {
            if status["workers"][count].is_null() {
                continue;
            }
            let sum: u64 =
                parts.iter().filter_map(|(_, part)| part["status"]["workers"][count].as_u64()).sum();
            status["workers"][count] = json!(sum);
        }
        status["converging"] = json!(parts.iter().any(|(_, part)| part["status"]["converging"] == true));
    }
    if status["boot"].is_string() && parts.iter().any(|(_, part)| part["status"]["boot"].is_null()) {
        status["boot"] = Value::Null;
    }
    if let Some((name, part)) = parts.iter().find(|(_, part)| part["status"]["adapter"]["running"] == false) {
        status["adapter"] = part["status"]["adapter"].clone();
        let said = part["status"]["adapter"]["message"].as_str().unwrap_or("it was not started");
        status["adapter"]["message"] = json!(format!("{name}: {said}"));
    }
    if matches!(status["jobStatus"].as_str(), Some("Successful" | "Failed")) {
        // Hosts without the program clean up by themselves when its scheduler has gone, and what they wait for does not come.
        status["converging"] = base["status"]["converging"].clone();
        status["followed"] = json!(parts.iter().any(|(_, part)| part["status"]["followed"] == true));
    }
    if status["phase"] == "Ready" {
        // What is not pinned may be another version on each host.
        let ready = parts.iter().filter(|(_, part)| part["status"]["phase"] == "Ready");
        status["onHosts"] =
            ready.map(|(name, part)| (name.clone(), part["status"]["versions"].clone())).collect();
        return status;
    }
    for field in ["message", "plugin", "skew", "unlike"] {
        let said = parts.iter().find_map(|(name, part)| Some((name, part["status"][field].as_str()?)));
        if let Some((name, text)) = said {
            status[field] = json!(format!("{name}: {text}"));
        }
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn workers_are_shared_out_evenly() {
        let names = hosts(&["a", "b", "c"]);
        for (number, shares) in [(0, [0, 0, 0]), (2, [1, 1, 0]), (3, [1, 1, 1]), (7, [3, 2, 2])] {
            let found: Vec<u64> = names.iter().map(|name| share(number, &names, name)).collect();
            assert_eq!(found, shares, "{number}");
        }
        assert_eq!(share(5, &names, "elsewhere"), 0);
    }

    fn wanted() -> Value {
        json!({
            "metadata": { "name": "work", "uid": "b=1", "resourceVersion": "b=7,a=8" },
            "spec": {
                "hosts": ["a", "b"], "scheduler": { "on": "b", "port": 1 },
                "worker": { "replicas": 3, "hosts": ["a", "b"], "threads": 1 },
            },
        })
    }

    fn live(host: &str, registered: u64) -> (String, Value) {
        let mut part = part(&wanted(), host);
        part["metadata"]["uid"] = json!("1");
        part["metadata"]["managedFields"] = json!([{ "fieldsV1": { "f:spec": { "f:host": {}, "f:hosts": {}, "f:ports": { "f:port": {} } } } }]);
        part["spec"]["ports"] = json!({ "port": 1, "dashboardPort": 2 });
        part["status"] = json!({
            "converging": false, "scheduler": { "running": host == "b" },
            "workers": { "running": 1, "present": 1, "registered": registered },
        });
        (host.to_owned(), part)
    }

    #[test]
    fn what_is_taken_apart_is_put_together_again() {
        let one = part(&wanted(), "a");
        assert_eq!((&one["spec"]["worker"]["replicas"], &one["spec"]["host"]), (&json!(2), &json!("a")));
        assert_eq!(one["metadata"], json!({ "name": "work", "resourceVersion": "8" }));
        assert_eq!(part(&wanted(), "b")["metadata"]["uid"], "1");
        let whole = merged(vec![live("a", 2), live("b", 1)]).unwrap();
        assert_eq!(whole["spec"], wanted()["spec"]);
        assert_eq!(whole["metadata"]["uid"], "b=1");
        assert_eq!(whole["metadata"]["resourceVersion"], "b=7,a=8");
        assert_eq!(whole["metadata"]["managedFields"][0]["fieldsV1"], json!({ "f:spec": { "f:hosts": {} } }));
        assert_eq!(whole["status"]["workers"], json!({ "running": 2, "present": 2, "registered": 3 }));
        assert_eq!(whole["status"]["scheduler"]["running"], true);
        let stale = |host: &str, changed: u64| {
            let mut one = live(host, 1);
            one.1["status"]["workers"]["changed"] = json!(changed);
            one
        };
        let whole = merged(vec![stale("a", 2), stale("b", 1)]).unwrap();
        assert_eq!(whole["status"]["workers"]["changed"], 3);
    }

    #[test]
    fn an_object_is_itself_as_long_as_any_host_has_its_part() {
        let fleet = Fleet {
            agents: Vec::new(),
            former: Mutex::default(),
            gone: Vec::new(),
            places: Places::default(),
            identities: Mutex::default(),
            is_local: false,
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

    #[test]
    fn an_environment_tells_its_versions_by_host() {
        let on = |host: &str, dask: &str| {
            let mut one = live(host, 0);
            one.1["status"] = json!({ "phase": "Ready", "versions": { "dask": dask } });
            one
        };
        let whole = merged(vec![on("a", "2026.8.0"), on("b", "2026.3.0")]).unwrap();
        let expect = json!({ "a": { "dask": "2026.8.0" }, "b": { "dask": "2026.3.0" } });
        assert_eq!(whole["status"]["onHosts"], expect);
        let mut stays = on("b", "2026.3.0");
        stays.1["status"] = json!({ "phase": "Stuck", "message": "no permission" });
        let mut goes = on("a", "2026.8.0");
        goes.1["status"] = json!({ "phase": "Removing" });
        let whole = merged(vec![goes, stays]).unwrap();
        assert_eq!(whole["status"], json!({ "phase": "Stuck", "message": "b: no permission" }));
    }

    #[test]
    fn a_host_without_its_part_or_with_another_one_is_missing() {
        let alone = merged(vec![live("b", 1)]).unwrap();
        assert_eq!(
            (&alone["spec"]["hosts"], &alone["spec"]["worker"]["replicas"]),
            (&json!(["b"]), &json!(1))
        );
        let mut other = live("a", 2);
        other.1["spec"]["worker"]["threads"] = json!(4);
        other.1["status"]["message"] = json!("no");
        let whole = merged(vec![other, live("b", 1)]).unwrap();
        assert_eq!(whole["spec"]["hosts"], json!(["b"]));
        assert_eq!(whole["status"]["message"], "a: no");
        assert_eq!(merged(Vec::new()), None);
        // Another stack has one of the same name on a host.
        let by = |manager: &str, (host, mut part): (String, Value)| {
            part["metadata"]["managedFields"] = json!([{ "operation": "Apply", "manager": manager }]);
            (host, part)
        };
        let whole = merged(vec![by("theirs", live("a", 2)), by("ours", live("b", 1))]).unwrap();
        assert_eq!((&whole["spec"]["hosts"], &whole["metadata"]["uid"]), (&json!(["b"]), &json!("b=1")));
    }
}
