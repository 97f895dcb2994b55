//! A kubelet of processes beside the control plane: it starts the command of a pod's container, and tells the API
//! server how that ended. A pod's address, its logs and the way to its ports are KWOK's.
//!
//! Pods have a network each and find schedulers by name; processes share one and have no names. So a scheduler is told ports that are
//! free here, and whoever looks for it finds these.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use super::client::Client;
use super::control_plane::ControlPlane;
use super::dask::DASHBOARD;
use super::kwok::{self, Forward};
use super::operator::TCP_COMM;
use super::parts::Part;
use super::process_group::{ProcessGroup, free_ports};

/// The node whose pods run; KWOK ends no pod there.
const NODE: &str = "computes";

/// How long a process has to end after SIGTERM. A pod's default is 30 s.
const GRACE: Duration = Duration::from_secs(10);

const PODS: &str = "/api/v1/namespaces/default/pods";

/// Runs what is bound to its node in the namespace `default`, until it is dropped.
pub struct Kubelet {
    pods: Arc<Mutex<Pods>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

struct Pods {
    processes: ProcessGroup,
    /// Where KWOK reads logs.
    logs: PathBuf,
    /// The ports of a scheduler, by the name of its cluster.
    schedulers: BTreeMap<String, [u16; 2]>,
    /// The uids of pods that were started.
    started: BTreeSet<String>,
    /// Pods that were asked to end, and the time of the request.
    ending: BTreeMap<String, Instant>,
}

impl Kubelet {
    /// Adds its node, and has the ports of all pods lead to the scheduler of `cluster`: KWOK knows them by number only.
    pub async fn start(plane: &mut ControlPlane, cluster: &str) -> Kubelet {
        let [comm, dashboard] = free_ports();
        let forwards = [Forward { pod: TCP_COMM, host: comm }, Forward { pod: DASHBOARD, host: dashboard }];
        plane.restart_kwok(kwok::CudaCheck::Passes, &forwards).await;
        plane.add_node(NODE, json!({}), 0).await;
        let logs = plane.folder().to_owned();
        let schedulers = BTreeMap::from([(cluster.to_owned(), [comm, dashboard])]);
        let pods = Pods {
            processes: ProcessGroup::new(),
            logs,
            schedulers,
            started: BTreeSet::new(),
            ending: BTreeMap::new(),
        };
        let (pods, stop) = (Arc::new(Mutex::new(pods)), Arc::new(AtomicBool::new(false)));
        let (access, shared, stopped) = (plane.access().clone(), Arc::clone(&pods), Arc::clone(&stop));
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let client = runtime.block_on(async { Client::new(&access) });
            while !stopped.load(Ordering::Relaxed) {
                let (_, list) =
                    runtime.block_on(client.get(&format!("{PODS}?fieldSelector=spec.nodeName%3D{NODE}")));
                let ended = shared.lock().unwrap().follow(list["items"].as_array().unwrap());
                for (path, status) in ended {
                    let media = "application/merge-patch+json";
                    let (code, said) = runtime.block_on(client.send(Method::PATCH, &path, media, &status));
                    // It may have been deleted meanwhile.
                    assert!([200, 404].contains(&code), "{said}");
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        Kubelet { pods, stop, thread: Some(thread) }
    }

    /// Pods whose processes run.
    pub fn running(&self) -> Vec<String> {
        self.pods.lock().unwrap().processes.names()
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().unwrap().join();
        assert!(ended.is_ok() || std::thread::panicking(), "the kubelet failed");
    }
}

impl Pods {
    /// Starts and ends what the list says, and returns how others ended, each with the path where that is told.
    fn follow(&mut self, list: &[Value]) -> Vec<(String, Value)> {
        let is_wanted = |pod: &&Value| pod["metadata"]["deletionTimestamp"].is_null();
        let wanted: BTreeMap<&str, &Value> = list
            .iter()
            .filter(is_wanted)
            .map(|pod| (pod["metadata"]["name"].as_str().unwrap(), pod))
            .collect();
        for name in self.processes.names() {
            if !wanted.contains_key(name.as_str()) {
                self.end(name);
            }
        }
        for (name, pod) in &wanted {
            let uid = pod["metadata"]["uid"].as_str().unwrap();
            if pod["status"]["phase"] == "Running" && self.started.insert(uid.to_owned()) {
                self.run(name, pod);
            }
        }
        let ended = self.processes.take_ended();
        self.ending.retain(|name, _| ended.iter().all(|(gone, _)| gone != name));
        let of_pod = |(name, code): (String, i32)| Some((wanted.get(name.as_str())?, name, code));
        ended.into_iter().filter_map(of_pod).map(|(pod, name, code)| self.told(pod, &name, code)).collect()
    }

    fn end(&mut self, name: String) {
        let Some(asked) = self.ending.get(&name) else {
            self.processes.signal(&name, "TERM");
            self.ending.insert(name, Instant::now());
            return;
        };
        if asked.elapsed() > GRACE {
            self.processes.signal(&name, "KILL");
        }
    }

    fn run(&mut self, name: &str, pod: &Value) {
        let container = &pod["spec"]["containers"][0];
        self.say(container, "");
        let variables = container["env"].as_array().into_iter().flatten().map(|variable| {
            let value = variable["value"].as_str().expect("a variable with a value, not from elsewhere");
            (variable["name"].as_str().unwrap(), self.found(value))
        });
        let variables: Vec<(&str, String)> = variables.collect();
        // As a kubelet does with `$(NAME)`.
        let given = |word: &Value| {
            let with =
                |text: String, (name, value): &(&str, String)| text.replace(&format!("$({name})"), value);
            variables.iter().fold(word.as_str().unwrap().to_owned(), with)
        };
        let words = ["command", "args"].into_iter().filter_map(|key| container[key].as_array()).flatten();
        let mut words: Vec<String> = words.map(given).collect();
        let labels = &pod["metadata"]["labels"];
        if labels["dask.org/component"] == "scheduler" {
            let cluster = labels["dask.org/cluster-name"].as_str().unwrap();
            let [comm, dashboard] = *self.schedulers.entry(cluster.to_owned()).or_insert_with(free_ports);
            words.extend(["--host", "127.0.0.1", "--port"].map(str::to_owned));
            words.extend([
                comm.to_string(),
                "--dashboard-address".to_owned(),
                format!("127.0.0.1:{dashboard}"),
            ]);
        }
        let programs = Part::Operator.program("");
        let mut command = Command::new(programs.join(&words[0]));
        command.args(&words[1..]).env_clear().envs(variables);
        let path = format!("{}:/usr/bin:/bin", programs.display());
        command.env("PATH", path).env("HOME", self.processes.folder()).env("TMPDIR", self.processes.folder());
        self.processes.start(name, &mut command);
    }

    /// A text with the addresses of schedulers in the place of their names.
    fn found(&mut self, text: &str) -> String {
        let Some((cluster, _)) =
            text.strip_prefix("tcp://").and_then(|rest| rest.split_once("-scheduler.default.svc"))
        else {
            return text.to_owned();
        };
        let [comm, _] = self.schedulers.entry(cluster.to_owned()).or_insert_with(free_ports);
        format!("tcp://127.0.0.1:{comm}")
    }

    fn say(&self, container: &Value, said: &str) {
        let name = container["name"].as_str().unwrap();
        if kwok::PROGRAMS.contains(&name) {
            kwok::say(&self.logs, name, said);
        }
    }

    /// Gives a container's output to KWOK and its exit code to the API server. A kubelet would start it again where
    /// its pod wants that; here its pod ends, and whoever owns that makes another one.
    fn told(&self, pod: &Value, name: &str, code: i32) -> (String, Value) {
        let container = &pod["spec"]["containers"][0];
        self.say(container, &self.processes.said(name));
        let (phase, reason) = if code == 0 { ("Succeeded", "Completed") } else { ("Failed", "Error") };
        let status = json!({ "phase": phase, "containerStatuses": [{
            "name": container["name"], "image": container["image"], "imageID": "", "ready": false, "started": false, "restartCount": 0,
            "state": { "terminated": { "exitCode": code, "reason": reason } },
        }] });
        (format!("{PODS}/{name}/status"), json!({ "status": status }))
    }
}
