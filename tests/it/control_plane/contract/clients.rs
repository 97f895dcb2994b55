//! Real clients at work on a real API server, through a proxy that notes the shape of every request.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, Response, header};
use serde_json::json;
use tokio::task::block_in_place;

use super::shapes::RequestParts;
use crate::control_plane::helm_as_client::chart;
use crate::real::{Access, ControlPlane, Operator, PATIENCE, Part};
use crate::sandbox_server::User;

pub type Shapes = BTreeSet<String>;

/// A proxy between a client and the API server that records requests.
struct Proxy {
    http: reqwest::Client,
    access: Access,
    /// The client that is running.
    client: Mutex<&'static str>,
    seen: Mutex<Shapes>,
}

async fn forward(State(proxy): State<Arc<Proxy>>, request: Request<Body>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    let text = |name: header::HeaderName| {
        parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    };
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let sent = RequestParts {
        method: parts.method.as_str(),
        path,
        accept: text(header::ACCEPT),
        content_type: text(header::CONTENT_TYPE),
        body: &body,
    };
    proxy.seen.lock().unwrap().insert(format!("{} {}", proxy.client.lock().unwrap(), sent.shape()));
    let mut on = proxy.http.request(parts.method.clone(), format!("{}{path}", proxy.access.server));
    for (name, value) in &parts.headers {
        let own = [header::HOST, header::AUTHORIZATION, header::CONTENT_LENGTH, header::CONNECTION];
        if !own.contains(name) {
            on = on.header(name, value);
        }
    }
    let answer = on.bearer_auth(&proxy.access.token).body(body).send().await.unwrap();
    let mut answer = Response::<reqwest::Body>::from(answer).map(Body::new);
    answer.headers_mut().remove(header::TRANSFER_ENCODING);
    answer
}

/// Everything that the clients below send, and which commands failed.
pub async fn record() -> (Shapes, Vec<String>) {
    let plane = ControlPlane::start().await;
    plane.add_node("node-0", json!({}), 2).await;
    let access = plane.access().clone();
    let roots = reqwest::Certificate::from_pem_bundle(access.ca_pem.as_bytes()).unwrap();
    let http = crate::real::http_client().tls_certs_only(roots).build().unwrap();
    let seen = Mutex::default();
    let proxy = Arc::new(Proxy { http, access, client: Mutex::new("kubectl"), seen });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let app = axum::Router::new().fallback(forward).with_state(proxy.clone());
    let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });

    let user = User::empty();
    let kubeconfig = user.path().join("kubeconfig");
    let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": format!("http://{address}")}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "users": [{"name": "u", "user": {"token": "t"}}]});
    std::fs::write(&kubeconfig, config.to_string()).unwrap();
    let clients = Clients { home: user.path().to_owned(), kubeconfig, failed: Mutex::default() };

    block_in_place(|| clients.kubectl());
    *proxy.client.lock().unwrap() = "helm";
    block_in_place(|| clients.helm());
    *proxy.client.lock().unwrap() = "dask-infra";
    clients.engine(&user, &plane).await;
    server.abort();
    (std::mem::take(&mut *proxy.seen.lock().unwrap()), clients.failed.into_inner().unwrap())
}

struct Clients {
    home: PathBuf,
    kubeconfig: PathBuf,
    /// Failed commands: a client that fails early sends less than it would.
    failed: Mutex<Vec<String>>,
}

/// Commands for kubectl, one a line; `FILE` is an object of the file of that name.
const KUBECTL: &str = "
version
api-resources
get nodes -o wide
create namespace n
create configmap c -n n --from-literal=a=b
create secret generic s -n n --from-literal=a=b
create deployment d -n n --image=demo:1 --replicas=1
create serviceaccount a -n n
create role r -n n --verb=get --resource=pods
create rolebinding b -n n --role=r --serviceaccount=n:a
create job j -n n --image=demo:1
create -f dask.json
apply -f dask.json
apply -f map.json
apply -f map.json
apply -f map2.json
apply -f deployment.json
apply -f deployment2.json
apply --server-side -f map.json --force-conflicts
apply --server-side -f cluster.json
apply --server-side --dry-run=server -f cluster.json
apply -f cluster.json
diff -f cluster2.json
diff --server-side -f map2.json --force-conflicts
replace -f map2.json
get configmaps -n n
get configmaps -A -o wide
get configmap c -n n -o yaml
get configmaps -n n -l a=b
get pods -n n --field-selector=status.phase=Running --chunk-size=1
get daskclusters -n n -o json
get daskclusters -n n
get all -n n
describe deployment d -n n
describe configmap c -n n
explain pod.spec.containers
explain daskcluster.spec.worker
explain pod.spec --output=plaintext-openapiv2
label configmap c -n n x=y
annotate configmap c -n n x=y
patch configmap c -n n -p {\"data\":{\"a\":\"c\"}}
patch configmap c -n n --type=json -p [{\"op\":\"remove\",\"path\":\"/data/a\"}]
patch daskcluster k -n n --type=merge -p {\"spec\":{\"worker\":{\"replicas\":3}}}
scale deployment d -n n --replicas=2
scale daskcluster k -n n --replicas=2
set image deployment/d -n n demo=demo:2
rollout status deployment/d -n n --timeout=60s
rollout restart deployment/d -n n
rollout history deployment/d -n n
expose deployment d -n n --port=80
autoscale deployment d -n n --min=1 --max=2
wait --for=condition=Available deployment/d -n n --timeout=60s
auth can-i create pods
auth whoami
cordon node-0
uncordon node-0
delete configmap c -n n
delete daskcluster k -n n
delete deployment d -n n
delete secrets --all -n n
delete -f map.json
delete namespace n
delete -f dask.json
";

impl Clients {
    fn command(&self, program: &Path, words: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(words).current_dir(&self.home).stdin(Stdio::null());
        command.env("KUBECONFIG", &self.kubeconfig).env("HOME", &self.home).env("NO_PROXY", "127.0.0.1");
        command
    }

    fn run(&self, program: &Path, words: &[&str]) {
        let output = self.command(program, words).output().unwrap();
        // A diff that finds something ends with 1.
        let differs = words[0] == "diff" && output.status.code() == Some(1);
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        if !(output.status.success() || differs) {
            self.failed.lock().unwrap().push(format!("{} {words:?}\n{said}", program.display()));
        }
    }

    fn kubectl(&self) {
        let crds: Vec<_> = model::schema::dask_crds().to_vec();
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "namespace": "n"},
            "data": {"a": "b"}});
        let container = json!({"name": "c", "image": "demo:1"});
        let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "web", "namespace": "n"},
            "spec": {"selector": {"matchLabels": {"app": "a"}}, "template":
                {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [container]}}}});
        let spec = json!({"containers": [container]});
        let service = json!({"type": "ClusterIP", "selector": {"a": "b"},
            "ports": [{"name": "tcp-comm", "protocol": "TCP", "port": 8786, "targetPort": "tcp-comm"}]});
        let cluster = json!({"apiVersion": "kubernetes.dask.org/v1", "kind": "DaskCluster",
            "metadata": {"name": "k", "namespace": "n"},
            "spec": {"worker": {"replicas": 1, "spec": spec}, "scheduler": {"spec": spec, "service": service}}});
        let (mut map2, mut deployment2, mut cluster2) = (map.clone(), deployment.clone(), cluster.clone());
        map2["data"]["a"] = json!("c");
        deployment2["spec"]["replicas"] = json!(2);
        cluster2["spec"]["worker"]["replicas"] = json!(2);
        let list = json!({"apiVersion": "v1", "kind": "List", "items": crds});
        for (name, object) in [
            ("dask", list),
            ("map", map),
            ("map2", map2),
            ("deployment", deployment),
            ("deployment2", deployment2),
            ("cluster", cluster),
            ("cluster2", cluster2),
        ] {
            std::fs::write(self.home.join(format!("{name}.json")), object.to_string()).unwrap();
        }
        for line in KUBECTL.lines().filter(|line| !line.is_empty()) {
            let words: Vec<&str> = line.split(' ').collect();
            self.run(Path::new("kubectl"), &words);
            if line.starts_with("create -f") {
                // Between creation and the first status kubectl gives up on `conditions: null`.
                let wait = ["wait", "--for=condition=Established", "crd", "--all"];
                let begun = Instant::now();
                while !self.command(Path::new("kubectl"), &wait).output().unwrap().status.success() {
                    assert!(begun.elapsed() < PATIENCE, "the definitions are not established");
                }
            }
        }
        self.watch();
    }

    /// `get -w` ends when it is killed; its first line says that the watch is there.
    fn watch(&self) {
        let words = ["get", "configmaps", "-A", "-w"];
        let mut child = self.command(Path::new("kubectl"), &words).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
        assert!(lines.next().is_some());
        self.run(Path::new("kubectl"), &["create", "configmap", "later"]);
        assert!(lines.any(|line| line.is_ok_and(|line| line.contains("later"))));
        child.kill().unwrap();
        child.wait().unwrap();
    }

    fn helm(&self) {
        let chart = chart().display().to_string();
        let helm = Part::Helm.program("helm");
        let place = ["-n", "helm", "--timeout=2m"];
        let with = |words: &[&'static str]| [words, &place[..2]].concat();
        let install =
            ["install", "dask", &chart, "--create-namespace", "--wait", place[0], place[1], place[2]];
        self.run(&helm, &install);
        self.run(&helm, &with(&["list"]));
        self.run(&helm, &with(&["status", "dask"]));
        let upgrade = ["upgrade", "dask", &chart, "--set", "podAnnotations.a=b", "--wait"];
        self.run(&helm, &[&upgrade[..], &place].concat());
        self.run(&helm, &with(&["history", "dask"]));
        self.run(&helm, &[&["rollback", "dask", "1", "--wait"][..], &place].concat());
        self.run(&helm, &[&["uninstall", "dask", "--wait"][..], &place].concat());
    }

    async fn engine(&self, user: &User, plane: &ControlPlane) {
        let kubeconfig = self.kubeconfig.display();
        let stack = |rest: &str| {
            format!(
                "[stack]\nname = \"real\"\n\n[kubernetes]\nkubeconfig = \"{kubeconfig}\"\n\n[namespace.team]\n\n[dask_operator]\nversion = \"2026.3.0\"\n{rest}"
            )
        };
        let write = |rest: &str| user.write(stack(rest));
        let run = |words: &[&str], code: i32| block_in_place(|| drop(user.run(words).expect(code)));
        // Definitions that a client before made by hand are not taken over without a word.
        let deleted: Vec<&str> = ["delete", "crd", "--all"].to_vec();
        block_in_place(|| {
            let direct = Clients {
                home: self.home.clone(),
                kubeconfig: plane.access().kubeconfig.clone(),
                failed: Mutex::default(),
            };
            direct.run(Path::new("kubectl"), &deleted);
        });
        write("");
        run(&["plan"], 0);
        run(&["apply", "--auto-approve"], 0);
        let operator = Operator::start(plane.access()).await;
        write("\n[dask_cluster.d]\nimage = \"demo:1\"\nworker = { replicas = 1 }\n");
        run(&["apply", "--auto-approve"], 0);
        run(&["plan", "--detailed-exitcode"], 0);
        write("\n[dask_cluster.d]\nimage = \"demo:1\"\nworker = { replicas = 2 }\n");
        run(&["apply", "--auto-approve"], 0);
        tokio::time::timeout(Duration::from_secs(300), async {
            run(&["destroy", "--auto-approve", "--allow", "delete:dask_operator"], 0);
        })
        .await
        .unwrap();
        drop(operator);
    }
}
