//! The two servers, reached in the same way.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures::stream::{self, StreamExt as _};
use jiff::Timestamp;
use reqwest::Method;
use sandbox::kube::store::Cluster;
use sandbox::kube::{Access as _, protobuf, router};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::normalizer::{Normalizer, keep};
use super::script::{Case, Read, Step, fill};
use crate::clients::kubectl::SharedCluster;
use crate::real::{ControlPlane, PATIENCE};

/// Normalised answers of each case.
pub type Answers = BTreeMap<String, Vec<Value>>;

/// Cases that run at the same time.
const AT_ONCE: usize = 8;

/// Returns the sandbox's answers to all cases.
pub async fn sandbox(cases: &[Case]) -> Answers {
    let cluster = Arc::new(Mutex::new(Cluster::new("contract", Timestamp::now())));
    let cluster = SharedCluster { cluster, changed: Arc::new(watch::Sender::new(0)) };
    let store = Store::SharedCluster(cluster.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move { axum::serve(listener, router(cluster)).await.unwrap() });
    let http = crate::real::http_client().build().unwrap();
    let ours = Server { http, base, token: "any".to_owned(), store };
    ours.prepare(cases).await;
    let answers = ours.run(cases).await;
    server.abort();
    answers
}

/// Returns the real API server's answers to all cases.
pub async fn real(cases: &[Case]) -> Answers {
    let plane = ControlPlane::start_without_nodes().await;
    let access = plane.access();
    let roots = reqwest::Certificate::from_pem_bundle(access.ca_pem.as_bytes()).unwrap();
    let http = crate::real::http_client().tls_certs_only(roots).build().unwrap();
    let store = Store::Etcd(plane.etcd());
    let theirs = Server { http, base: access.server.clone(), token: access.token.clone(), store };
    theirs.prepare(cases).await;
    theirs.wait_for_accounts(cases).await;
    theirs.run(cases).await
}

struct Server {
    http: reqwest::Client,
    base: String,
    token: String,
    store: Store,
}

/// Where a server keeps its objects.
enum Store {
    SharedCluster(SharedCluster),
    /// The address of etcd's gateway.
    Etcd(String),
}

/// A response.
struct Response {
    code: u16,
    media: String,
    warnings: Vec<String>,
    text: String,
    bytes: Vec<u8>,
}

impl Response {
    /// The body; protobuf as the JSON that it stands for.
    fn value(&self) -> Value {
        match protobuf::read(&self.bytes) {
            Ok(value) => value,
            Err(_) => parse(&self.text),
        }
    }
}

impl Server {
    async fn run(&self, cases: &[Case]) -> Answers {
        // A compaction would cut off what others are about to read.
        let (last, first): (Vec<&Case>, Vec<&Case>) = cases.iter().partition(|case| case.compacts());
        let run = async |case: &Case| (case.name.clone(), self.case(case).await);
        let mut answers: Answers =
            stream::iter(first.into_iter().map(run)).buffer_unordered(AT_ONCE).collect().await;
        for case in last {
            answers.insert(case.name.clone(), self.case(case).await);
        }
        answers
    }

    /// The Dask operator's definitions, and for each case a namespace in which pods may be made.
    async fn prepare(&self, cases: &[Case]) {
        let crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        for crd in model::schema::dask_crds() {
            self.plain("POST", crds, crd).await;
        }
        for case in cases {
            let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": case.name}});
            self.plain("POST", "/api/v1/namespaces", &body).await;
        }
        self.wait_until("/apis/kubernetes.dask.org/v1/daskclusters", 200, "").await;
        self.wait_until("/apis/kubernetes.dask.org/v1/daskworkergroups", 200, "").await;
    }

    /// Waits for the service accounts that a controller adds to each namespace, and that pods need.
    async fn wait_for_accounts(&self, cases: &[Case]) {
        for case in cases {
            let core = format!("/api/v1/namespaces/{}", case.name);
            self.wait_until(&format!("{core}/serviceaccounts/default"), 200, "").await;
            self.wait_until(&format!("{core}/configmaps/kube-root-ca.crt"), 200, "").await;
        }
    }

    /// Forgets what was before now, so that reading on from before it fails.
    async fn compact(&self) {
        let url = match &self.store {
            Store::SharedCluster(cluster) => return cluster.with(|cluster, _| cluster.compact()),
            Store::Etcd(url) => url,
        };
        let post = async |path: &str, body: Value| -> Value {
            let sent = self.http.post(format!("{url}{path}")).body(body.to_string()).send().await.unwrap();
            parse(&sent.text().await.unwrap())
        };
        let answer = post("/v3/kv/range", json!({"key": "AA==", "range_end": "AA==", "limit": 1})).await;
        let revision = answer["header"]["revision"].clone();
        assert!(revision.is_string(), "{answer}");
        let answer = post("/v3/kv/compaction", json!({"revision": revision, "physical": true})).await;
        assert!(answer.get("header").is_some(), "{answer}");
    }

    async fn plain(&self, method: &str, path: &str, body: &Value) {
        let headers = [("content-type".to_owned(), "application/json".to_owned())];
        let Response { code, text, .. } = self.send(method, path, &headers, body.to_string()).await;
        assert_eq!(code, 201, "{path}: {text}");
    }

    async fn wait_until(&self, path: &str, code: u16, with: &str) {
        let begun = Instant::now();
        loop {
            let came = self.send("GET", path, &[], String::new()).await;
            if came.code == code && came.text.contains(with) {
                return;
            }
            assert!(
                begun.elapsed() < PATIENCE,
                "{path}: {} instead of {code} {with}: {}",
                came.code,
                came.text
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn case(&self, case: &Case) -> Vec<Value> {
        let mut normalizer = Normalizer::default();
        let (mut said, mut kept) = (Vec::new(), Vec::new());
        for step in &case.steps {
            let Step { method, path, headers, read, keep: names, .. } = step;
            if *read == Read::Compaction {
                self.compact().await;
                said.push(Value::Null);
                continue;
            }
            let path = fill(path, &said);
            if let Read::Until(code, with) = read {
                self.wait_until(&path, *code, with).await;
                said.push(Value::Null);
                continue;
            }
            let came = self.ready(method, &path, headers, &step.bytes(&said)).await;
            let mut body = match read {
                Read::Events => came.text.lines().map(parse).filter(is_due).collect(),
                Read::Outcome => Value::Null,
                _ => came.value(),
            };
            keep_named(&mut body, names);
            let mut answer = json!({"step": format!("{method} {}", step.path), "code": came.code, "type": came.media,
                "body": normalizer.answer(&body)});
            if !came.warnings.is_empty() {
                answer["warnings"] = json!(came.warnings);
            }
            said.push(body);
            kept.push(answer);
        }
        kept
    }

    /// A busy API server asks clients to come again until the watch cache of a new kind is filled: when that is depends on the machine,
    /// and not on the case. Source: `apiserver/pkg/storage/cacher/ready.go` of Kubernetes 1.36.
    async fn ready(&self, method: &str, path: &str, headers: &[(String, String)], body: &[u8]) -> Response {
        let begun = Instant::now();
        loop {
            let came = self.send(method, path, headers, body).await;
            if came.code != 429
                || !came.text.contains("storage is (re)initializing")
                || begun.elapsed() > PATIENCE
            {
                return came;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(String, String)],
        body: impl Into<Vec<u8>>,
    ) -> Response {
        let method = Method::from_bytes(method.as_bytes()).unwrap();
        let mut request = self.http.request(method, format!("{}{path}", self.base)).bearer_auth(&self.token);
        request = request.header("user-agent", "contract/1.0");
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let response = request.body(body.into()).send().await.unwrap();
        let code = response.status().as_u16();
        let text = |name: &str| -> Vec<String> {
            let values = response.headers().get_all(name).iter();
            values.map(|value| value.to_str().unwrap().to_owned()).collect()
        };
        let media = text("content-type").pop().unwrap_or_default();
        let media = media.split(';').next().unwrap_or_default().to_owned();
        let warnings = text("warning");
        let bytes = response.bytes().await.unwrap().to_vec();
        Response { code, media, warnings, text: String::from_utf8_lossy(&bytes).into_owned(), bytes }
    }
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

/// Returns true if an event comes in every run; other bookmarks come at any time.
fn is_due(event: &Value) -> bool {
    event["type"] != "BOOKMARK" || event.pointer("/object/metadata/annotations").is_some()
}

fn keep_named(body: &mut Value, names: &[String]) {
    if !names.is_empty() {
        keep(body, names);
    }
}
