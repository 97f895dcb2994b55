//! `connect` on a real control plane: through the API server and a kubelet's port-forward (KWOK's) to a real Dask
//! scheduler, with a real client of Dask on this side.

#![allow(clippy::unwrap_used, reason = "test code outside of test functions")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::block_in_place;

use crate::real::{Client, ControlPlane, CudaCheck, Dask, Operator, PATIENCE, Part, needs};
use crate::sandbox_server::{CommandOutput, User};

const PARTS: &[Part] = &[Part::Etcd, Part::Kubernetes, Part::Kwok, Part::Operator];

const CRD: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/daskautoscalers.kubernetes.dask.org";
const SCHEDULERS: &str = "/api/v1/namespaces/default/pods?labelSelector=dask.org%2Fcomponent%3Dscheduler";

fn stack(kubeconfig: &Path, rest: &str) -> String {
    let kubeconfig = kubeconfig.display();
    format!(
        "[stack]\nname = \"s\"\n\n[kubernetes]\nkubeconfig = \"{kubeconfig}\"\n\n[dask_operator]\nversion = \"2026.3.0\"\n\n{rest}"
    )
}

fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Applies while the operator comes up as soon as its definitions are there.
async fn apply(user: &User, plane: &ControlPlane) -> Operator {
    let (client, access) = (plane.client(), plane.access().clone());
    let operator = tokio::spawn(async move {
        client.wait(CRD, "Dask's definitions", |crd| crd.to_string().contains("Established")).await;
        Operator::start(&access).await
    });
    run(user, &["apply", "--auto-approve"]).expect(0);
    operator.await.unwrap()
}

fn run(user: &User, words: &[&str]) -> CommandOutput {
    block_in_place(|| user.run(words))
}

/// A `connect` that runs until this value goes.
pub struct ConnectProcess {
    child: Child,
    said: BufReader<ChildStdout>,
}

impl ConnectProcess {
    /// Starts it and reads its first line.
    pub fn start(user: &User, words: &[&str]) -> (ConnectProcess, Value) {
        let mut child = user.command(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let said = BufReader::new(child.stdout.take().unwrap());
        let mut connecting = ConnectProcess { child, said };
        let first = connecting.next();
        (connecting, first)
    }

    /// The next line; it fails with what was said on stderr when there is none.
    fn next(&mut self) -> Value {
        let mut line = String::new();
        block_in_place(|| self.said.read_line(&mut line)).unwrap();
        if line.is_empty() {
            let mut err = String::new();
            std::io::Read::read_to_string(&mut self.child.stderr.take().unwrap(), &mut err).unwrap();
            panic!("connect ended: {err}");
        }
        serde_json::from_str(&line).unwrap()
    }

    /// Lines up to one of this type.
    fn wait_until(&mut self, kind: &str) -> Value {
        loop {
            let line = self.next();
            if line["type"] == *kind {
                return line;
            }
        }
    }

    /// Ctrl-C; its exit code.
    pub fn interrupt(mut self) -> i32 {
        signal(self.child.id(), "INT");
        block_in_place(|| self.child.wait()).unwrap().code().unwrap_or(-1)
    }
}

impl Drop for ConnectProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn signal(pid: u32, name: &str) {
    let sent = Command::new("kill").args(["-s", name, &pid.to_string()]).status().unwrap();
    assert!(sent.success(), "{pid} cannot be sent {name}");
}

/// A real client of Dask, which computes a sum whenever it is asked.
struct DaskClient {
    child: Child,
    ask: ChildStdin,
    said: BufReader<ChildStdout>,
}

/// Connects once. After a break the client of Dask connects again by itself, and what was under way is lost.
const PROGRAM: &str = "
import sys, time
from distributed import Client
client = Client(sys.argv[1], timeout='60s')
for line in sys.stdin:
    for attempt in range(600):
        try:
            print(client.submit(sum, range(int(line)), pure=False).result(timeout=20), flush=True)
            break
        except Exception as error:
            print(repr(error), file=sys.stderr, flush=True)
            time.sleep(0.1)
";

impl DaskClient {
    fn start(address: &str, home: &Path) -> DaskClient {
        let mut command = Command::new(Part::Operator.program("python"));
        command.args(["-c", PROGRAM, address]).env("HOME", home).env("TMPDIR", home);
        // It is here that a client waits for a scheduler that is away.
        command.env("DASK_DISTRIBUTED__COMM__TIMEOUTS__CONNECT", "60s");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let (ask, said) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        DaskClient { child, ask, said }
    }

    fn sum(&mut self, up_to: u32) -> String {
        let mut line = String::new();
        block_in_place(|| {
            writeln!(self.ask, "{up_to}").unwrap();
            self.said.read_line(&mut line).unwrap();
        });
        line.trim().to_owned()
    }
}

impl Drop for DaskClient {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn is_healthy(dashboard: &str) -> bool {
    let http = crate::real::http_client().build().unwrap();
    let health = dashboard.replace("/status", "/health");
    http.get(health).send().await.is_ok_and(|answer| answer.status() == 200)
}

async fn scheduler_pod(client: &Client) -> String {
    let is_ready = |pods: &Value| pods["items"][0]["status"]["conditions"].to_string().contains("\"Ready\"");
    let pods = client.wait(SCHEDULERS, "a scheduler pod", is_ready).await;
    text(&pods, "/items/0/metadata/name").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_of_dask_computes_through_it_and_goes_on_after_a_break() {
    needs!(PARTS);
    let mut plane = ControlPlane::start().await;
    plane.add_node("n1", json!({}), 0).await;
    let mut dask = Dask::start().await;
    plane.restart_kwok(CudaCheck::Passes, &dask.forwards()).await;
    dask.add_workers(&["w"]).await;
    let client = plane.client();
    let user = User::empty();
    let file = user.path().join("stack.toml");
    let cluster = "[dask_cluster.d]\nimage = \"demo:1\"\nworker = { replicas = 0 }\n";
    std::fs::write(file, stack(&plane.access().kubeconfig, cluster)).unwrap();

    // Before there is anything.
    run(&user, &["connect"]).expect(1).says("DI0421").says("dask_cluster.d does not exist").says("apply");
    let _operator = apply(&user, &plane).await;

    // A kubelet's log, through the API server; with -f as a stream that goes on.
    run(&user, &["logs", "d"]).expect(0).says("this container is imitated by KWOK");
    let (following, line) = ConnectProcess::start(&user, &["logs", "d", "-f", "--json"]);
    assert_eq!(text(&line, "/line"), "this container is imitated by KWOK", "{line}");
    drop(following);

    let (mut connecting, there) = ConnectProcess::start(&user, &["connect", "--json"]);
    assert_eq!((text(&there, "/type"), text(&there, "/address")), ("connected", "dask_cluster.d"));
    assert_eq!((text(&there, "/image"), there["simulated"] == false), ("demo:1", true), "{there}");
    let python = Command::new(Part::Operator.program("python")).arg("--version").output().unwrap();
    let python = String::from_utf8_lossy(&python.stdout).trim().replace("Python ", "");
    assert_eq!(text(&there, "/versions/python"), python, "{there}");
    assert!(!text(&there, "/versions/distributed").is_empty(), "{there}");
    let address = text(&there, "/client").to_owned();
    assert_eq!(text(&there, "/python"), format!("Client(\"{address}\")"));
    assert!(is_healthy(text(&there, "/dashboard")).await, "{there}");
    let mut summing = DaskClient::start(&address, user.path());
    assert_eq!(summing.sum(10), "45");

    // The pod goes and another one comes: the local port stays, the client connects again.
    let before = scheduler_pod(&client).await;
    client.delete(&format!("/api/v1/namespaces/default/pods/{before}")).await;
    assert!(text(&connecting.wait_until("gone"), "/why").contains("pod"));
    let after = connecting.wait_until("there");
    assert!(!text(&after, "/pod").ends_with(&before), "{after}");
    assert_eq!(summing.sum(11), "55");
    assert!(is_healthy(text(&there, "/dashboard")).await);

    // The node's end of the connection breaks.
    plane.restart_kwok(CudaCheck::Passes, &dask.forwards()).await;
    assert_eq!(summing.sum(12), "66");

    // Others find it, and may have one of their own on other ports.
    let again = run(&user, &["connect", "d"]).expect(0);
    again.says("dask_cluster.d is connected already on").says(&address);
    let port = address.rsplit(':').next().unwrap();
    let taken = run(&user, &["connect", "--port", port, "--dashboard-port", "1"]);
    taken.expect(1).says("DI0424").says(&format!("port {port} of this machine"));

    assert_eq!(connecting.interrupt(), 0);
    let left = std::fs::read_dir(user.path().join("dask-infra/connect")).unwrap().count();
    assert_eq!(left, 0, "its note is gone");
    assert!(!is_healthy(text(&there, "/dashboard")).await, "its ports are closed");
}

#[tokio::test(flavor = "multi_thread")]
async fn it_goes_on_in_the_background_until_it_is_killed() {
    needs!(PARTS);
    let mut plane = ControlPlane::start().await;
    plane.add_node("n1", json!({}), 0).await;
    let mut dask = Dask::start().await;
    plane.restart_kwok(CudaCheck::Passes, &dask.forwards()).await;
    dask.add_workers(&["w"]).await;
    let user = User::empty();
    let file = user.path().join("stack.toml");
    let cluster = "[dask_cluster.d]\nimage = \"demo:1\"\nworker = { replicas = 0 }\n";
    std::fs::write(file, stack(&plane.access().kubeconfig, cluster)).unwrap();
    // An error in the background is printed here.
    run(&user, &["connect", "--background"]).expect(1).says("DI0421").says("does not exist");
    let operator = apply(&user, &plane).await;

    let said = run(&user, &["connect", "--background", "--json"]).expect(0);
    let there: Value = serde_json::from_str(&said.out).unwrap();
    let pid = there["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok()).unwrap();
    let running = KillOnDrop(pid);
    assert_eq!(there["background"], true);
    let mut summing = DaskClient::start(text(&there, "/client"), user.path());
    assert_eq!(summing.sum(10), "45");
    let again = run(&user, &["connect", "--background"]).expect(0);
    again.says("is connected already").says(&format!("`kill {pid}` ends it"));
    signal(pid, "TERM");
    let begun = Instant::now();
    while is_healthy(text(&there, "/dashboard")).await {
        assert!(begun.elapsed() < PATIENCE, "process {pid} goes on");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    drop((running, operator));
}

/// Ends a process that is nobody's child, whatever happens to the test.
pub struct KillOnDrop(pub u32);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        // It has ended by itself, as it should.
        let _ = Command::new("kill").args(["-9", &self.0.to_string()]).stderr(Stdio::null()).status();
    }
}

const SERVICES: &str = "/api/v1/namespaces/default/services";

/// Gives a load balancer its address, as a cloud does.
async fn balance(client: &Client, service: &str, address: &str) {
    let path = format!("{SERVICES}/{service}");
    client.wait(&path, "the operator's Service", |service| service["spec"]["type"] == "LoadBalancer").await;
    let status = json!({ "status": { "loadBalancer": { "ingress": [{ "ip": address }] } } });
    let merge = "application/merge-patch+json";
    let (code, said) = client.send(reqwest::Method::PATCH, &format!("{path}/status"), merge, &status).await;
    assert_eq!(code, 200, "{said}");
}

/// The real operator creates a Service of each type.
#[tokio::test(flavor = "multi_thread")]
async fn services_come_out_as_the_stack_says() {
    needs!(PARTS);
    let plane = ControlPlane::start().await;
    plane.add_node("n1", json!({}), 0).await;
    let client = plane.client();
    let user = User::empty();
    let clusters = "
[dask_cluster.plain]
image = \"demo:1\"
worker = { replicas = 1 }

[dask_cluster.port]
image = \"demo:1\"
service = { type = \"NodePort\", spec = { ports = [{ port = 8786, nodePort = 30786 }] } }
worker = { replicas = 0 }

[dask_cluster.inside]
image = \"demo:1\"
service = { type = \"LoadBalancer\", annotations = { \"example.org/team\" = \"ml\" } }
worker = { replicas = 1 }

[dask_cluster.outside]
image = \"demo:1\"
service = { type = \"LoadBalancer\", public = true, spec = { loadBalancerSourceRanges = [\"198.51.100.0/24\"] } }
worker = { replicas = 0 }
";
    user.write(stack(&plane.access().kubeconfig, clusters));
    let _operator = {
        let cloud = plane.client();
        let balanced = tokio::spawn(async move {
            cloud.wait(CRD, "Dask's definitions", |crd| crd.to_string().contains("Established")).await;
            loop {
                // The path is not there before the operator is.
                let Ok((200, _)) = cloud.try_get(&format!("{SERVICES}/outside-scheduler")).await else {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                };
                break;
            }
            balance(&cloud, "outside-scheduler", "203.0.113.7").await;
            loop {
                let Ok((200, _)) = cloud.try_get(&format!("{SERVICES}/inside-scheduler")).await else {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                };
                break;
            }
            balance(&cloud, "inside-scheduler", "10.0.0.9").await;
        });
        let operator = apply(&user, &plane).await;
        balanced.await.unwrap();
        operator
    };
    run(&user, &["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    run(&user, &["status"]).expect(0).says("at 10.0.0.9").says("at 203.0.113.7");

    let service = async |name: &str| client.get(&format!("{SERVICES}/{name}-scheduler")).await.1;
    let plain = service("plain").await;
    assert_eq!(text(&plain, "/spec/type"), "ClusterIP");
    assert_eq!(text(&plain, "/spec/selector/dask.org~1cluster-name"), "plain");
    let names = |service: &Value| -> Vec<String> {
        let ports = service["spec"]["ports"].as_array().cloned().unwrap_or_default();
        ports.iter().map(|port| text(port, "/name").to_owned()).collect()
    };
    for name in ["plain", "port", "inside", "outside"] {
        assert_eq!(names(&service(name).await), ["tcp-comm", "http-dashboard"], "{name}");
    }
    let port = service("port").await;
    assert_eq!(
        (text(&port, "/spec/type"), &port["spec"]["ports"][0]["nodePort"]),
        ("NodePort", &json!(30786))
    );
    let internal = "/metadata/annotations/networking.gke.io~1load-balancer-type";
    let inside = service("inside").await;
    assert_eq!((text(&inside, "/spec/type"), text(&inside, internal)), ("LoadBalancer", "Internal"));
    assert_eq!(text(&inside, "/metadata/annotations/example.org~1team"), "ml");
    let outside = service("outside").await;
    assert_eq!((text(&outside, "/spec/type"), text(&outside, internal)), ("LoadBalancer", ""));
    assert_eq!(outside["spec"]["loadBalancerSourceRanges"], json!(["198.51.100.0/24"]));

    // They reach the scheduler's Deployment as well, and no worker.
    let deployments = client.get("/apis/apps/v1/namespaces/default/deployments").await.1;
    let with: Vec<&str> = deployments["items"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|deployment| text(deployment, internal) == "Internal")
        .map(|deployment| text(deployment, "/metadata/name"))
        .collect();
    assert_eq!(with, ["inside-scheduler"]);
}
