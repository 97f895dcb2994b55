//! The sandbox's Kubernetes API as the real kubectl sees it.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use sandbox::kube::object::Key;
use sandbox::kube::store::{Cluster, DeleteOptions};
use sandbox::kube::{Access, router};
use tokio::sync::watch;

/// A cluster behind a lock, with no controller but those that every answer depends on.
#[derive(Clone)]
pub struct SharedCluster {
    pub cluster: Arc<Mutex<Cluster>>,
    /// Counts its revisions.
    pub changed: Arc<watch::Sender<u64>>,
}

impl Access for SharedCluster {
    fn with<R>(&self, f: impl FnOnce(&mut Cluster, Timestamp) -> R) -> R {
        let now = Timestamp::now();
        let mut cluster = self.cluster.lock().unwrap();
        let out = f(&mut cluster, now);
        cluster.collect(now);
        let revision = cluster.revision();
        // Only a real change may wake watches: they come through here too.
        self.changed.send_if_modified(|seen| std::mem::replace(seen, revision) != revision);
        out
    }

    fn changed(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    fn log(&self, _pod: &serde_json::Value, _container: &str) -> Option<String> {
        Some("one\ntwo\nthree\n".to_owned())
    }
}

/// A served cluster and a folder with its kubeconfig.
pub struct KubernetesServer {
    /// The cluster.
    pub cluster_handle: SharedCluster,
    /// Where the kubeconfig is, and files for clients.
    pub home: tempfile::TempDir,
    server: tokio::task::JoinHandle<()>,
}

impl Drop for KubernetesServer {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl KubernetesServer {
    /// Serves an empty cluster.
    pub async fn start() -> Self {
        let now = Timestamp::now();
        let cluster_handle = SharedCluster {
            cluster: Arc::new(Mutex::new(Cluster::new("test", now))),
            changed: Arc::new(watch::Sender::new(0)),
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = router(cluster_handle.clone());
        let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        let home = tempfile::tempdir().unwrap();
        let config = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: c, cluster: {{server: \"http://{address}\"}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             users: [{{name: u, user: {{token: t}}}}]\n"
        );
        std::fs::write(home.path().join("kubeconfig"), config).unwrap();
        Self { cluster_handle, home, server }
    }

    /// kubectl with these words, not started yet.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command
            .args(args)
            .env("KUBECONFIG", self.home.path().join("kubeconfig"))
            .env("HOME", self.home.path());
        command.env("NO_PROXY", "127.0.0.1").stdin(Stdio::null());
        command
    }

    /// Runs kubectl; the answer is its exit code, stdout and stderr.
    pub async fn run(&self, args: &[&str]) -> (i32, String, String) {
        let mut command = self.command(args);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
    }

    /// Runs kubectl, which must succeed.
    pub async fn ok(&self, args: &[&str]) -> String {
        let (code, stdout, stderr) = self.run(args).await;
        assert_eq!(code, 0, "kubectl {}\n{stdout}{stderr}", args.join(" "));
        stdout
    }

    /// Runs kubectl, which must fail; the answer is what it says on stderr.
    pub async fn refused(&self, args: &[&str]) -> String {
        let (code, stdout, stderr) = self.run(args).await;
        assert_ne!(code, 0, "kubectl {}\n{stdout}{stderr}", args.join(" "));
        stderr
    }

    /// Writes a file for a client; the answer is its path.
    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.home.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

/// Returns true if the tests of kubectl can run; prints that they cannot.
pub fn has_kubectl() -> bool {
    let found = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|folder| Path::new(&folder).join("kubectl").is_file())
    });
    if !found {
        println!("skipped: kubectl is not on the PATH");
    }
    found
}

const DEPLOYMENT: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: "web:1", ports: [{containerPort: 80}]}]
"#;

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_applies_scales_and_deletes_a_deployment() {
    if !has_kubectl() {
        return;
    }
    let served = KubernetesServer::start().await;
    let file = served.file("web.yaml", DEPLOYMENT);
    assert!(served.ok(&["apply", "--server-side", "-f", &file]).await.contains("serverside-applied"));
    let version = ["get", "deploy", "web", "-o", "jsonpath={.metadata.resourceVersion}"];
    let before = served.ok(&version).await;
    served.ok(&["apply", "--server-side", "-f", &file]).await;
    assert_eq!(served.ok(&version).await, before, "an apply that changes nothing moves nothing");

    served.ok(&["scale", "deploy", "web", "--replicas=5"]).await;
    served.ok(&["label", "deploy", "web", "a=b"]).await;
    let refused = served.refused(&["apply", "--server-side", "-f", &file]).await;
    let expected = r#"conflict with "kubectl" with subresource "scale" using apps/v1: .spec.replicas"#;
    assert!(refused.contains(expected), "{refused}");
    served.ok(&["apply", "--server-side", "--force-conflicts", "-f", &file]).await;

    served.ok(&["apply", "-f", &file]).await;
    let newer = served.file("newer.yaml", &DEPLOYMENT.replace("web:1", "web:2"));
    let (code, diff, _) = served.run(&["diff", "-f", &newer]).await;
    assert_eq!(code, 1, "{diff}");
    assert!(diff.contains("+      - image: web:2"), "{diff}");
    served.ok(&["apply", "-f", &newer]).await;
    let yaml = served.ok(&["get", "deploy", "web", "-o", "yaml"]).await;
    for line in
        ["image: web:2", "imagePullPolicy: IfNotPresent", "maxSurge: 25%", "protocol: TCP", "replicas: 3"]
    {
        assert!(yaml.contains(line), "{line} in\n{yaml}");
    }
    assert!(served.ok(&["describe", "deploy", "web"]).await.contains("3 desired"));
    let table = served.ok(&["get", "deploy", "-o", "wide", "-A"]).await;
    assert!(table.contains("UP-TO-DATE") && table.contains("app=web"), "{table}");

    let moved = served.file("moved.yaml", &DEPLOYMENT.replace("app: web", "app: other"));
    let refused = served.refused(&["apply", "-f", &moved]).await;
    assert!(refused.contains("field is immutable"), "{refused}");
    served.ok(&["delete", "deploy", "web"]).await;
    assert!(served.refused(&["get", "deploy", "web"]).await.contains("NotFound"));
}

const DASK: &str = r#"
apiVersion: kubernetes.dask.org/v1
kind: DaskCluster
metadata: {name: d}
spec:
  worker:
    replicas: 2
    spec:
      containers: [{name: worker, image: x, env: }]
  scheduler:
    spec:
      containers: [{name: scheduler, image: x, ports: [{name: tcp-comm, containerPort: 8786}]}]
    service:
      type: ClusterIP
      ports: [{name: tcp-comm, port: 8786, targetPort: tcp-comm}]
"#;

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_meets_custom_resources() {
    if !has_kubectl() {
        return;
    }
    let served = KubernetesServer::start().await;
    assert!(served.refused(&["get", "dsk"]).await.contains("doesn't have a resource type"));
    for crd in model::schema::dask_crds() {
        served.cluster_handle.with(|cluster, now| cluster.create(now, "test", crd.clone())).unwrap();
    }
    let waited =
        ["wait", "--for=condition=Established", "crd/daskclusters.kubernetes.dask.org", "--timeout=5s"];
    served.ok(&waited).await;
    let file = served.file("dask.yaml", DASK);
    served.ok(&["apply", "--server-side", "-f", &file]).await;
    served.ok(&["patch", "dsk", "d", "--type=merge", "-p", r#"{"status":{"phase":"Running"}}"#]).await;
    let table = served.ok(&["get", "dsk"]).await;
    assert!(table.contains("WORKERS") && table.contains("Running"), "{table}");

    let wrong = served.file("wrong.yaml", &DASK.replace("env: ", "bogus: 1"));
    let refused = served.refused(&["apply", "--server-side", "-f", &wrong]).await;
    assert!(
        refused.contains(".spec.worker.spec.containers[0].bogus: field not declared in schema"),
        "{refused}"
    );
    let number = DASK.replace("env: ", r#"resources: {limits: {nvidia.com/gpu: 1}}"#);
    let refused = served.refused(&["apply", "--server-side", "-f", &served.file("n.yaml", &number)]).await;
    assert!(refused.contains("expected string, got &value.valueUnstructured{Value:1}"), "{refused}");

    // A dropped field goes back to the default that the CRD declares.
    let less = served.file("less.yaml", &DASK.replace("    replicas: 2\n", ""));
    served.ok(&["apply", "--server-side", "-f", &less]).await;
    assert_eq!(served.ok(&["get", "dsk", "d", "-o", "jsonpath={.spec.worker.replicas}"]).await, "1");
    served.ok(&["scale", "dsk", "d", "--replicas=4"]).await;
    assert_eq!(served.ok(&["get", "dsk", "d", "-o", "jsonpath={.spec.worker.replicas}"]).await, "4");
    served.ok(&["delete", "crd", "daskclusters.kubernetes.dask.org"]).await;
    assert!(served.refused(&["get", "dsk"]).await.contains("could not find the requested resource"));
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_reads_pods_logs_and_watches() {
    if !has_kubectl() {
        return;
    }
    let served = KubernetesServer::start().await;
    served.ok(&["run", "one", "--image=x", "--labels=a=b"]).await;
    let described = served.ok(&["describe", "pod", "one"]).await;
    let class = described.lines().find(|line| line.starts_with("QoS Class:"));
    assert!(class.is_some_and(|line| line.ends_with("BestEffort")), "{described}");
    assert_eq!(served.ok(&["logs", "one", "--tail=1"]).await, "three\n");
    assert!(
        served
            .ok(&["get", "pods", "-l", "a=b", "--field-selector=status.phase=Pending"])
            .await
            .contains("one")
    );
    assert_eq!(served.ok(&["auth", "can-i", "create", "pods"]).await, "yes\n");
    // `get -w` ends only with the watch, minutes later; the raw watch names its own time.
    let path =
        "/api/v1/namespaces/default/pods?watch=true&timeoutSeconds=2&fieldSelector=metadata.name%3Done";
    let args = ["get", "--raw", path];
    let (mut command, cluster_handle) = (served.command(&args), served.cluster_handle.clone());
    let watched = tokio::task::spawn_blocking(move || {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // Its first event is the present state: from then on it hears.
        let first = lines.next().into_iter();
        cluster_handle
            .with(|cluster, now| {
                cluster.delete(now, &Key::new("", "pods", "default", "one"), &DeleteOptions::default())
            })
            .unwrap();
        let events: Vec<String> = first.chain(lines).map(Result::unwrap).collect();
        (child.wait_with_output().unwrap(), events.concat())
    });
    let (output, stdout) = watched.await.unwrap();
    let (code, stderr) = (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr));
    assert_eq!(code, 0, "{stderr}");
    assert!(
        stdout.contains(r#""type":"ADDED""#) && stdout.contains(r#""type":"DELETED""#),
        "{stdout}{stderr}"
    );

    let namespace = served.file("ns.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: extra}\n");
    served.ok(&["create", "-f", &namespace]).await;
    served.ok(&["run", "two", "--image=x", "-n", "extra"]).await;
    served.ok(&["delete", "namespace", "extra"]).await;
    assert!(served.ok(&["get", "pods", "-A"]).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_reads_a_fresh_cluster() {
    if !has_kubectl() {
        return;
    }
    let served = KubernetesServer::start().await;
    let out = served.ok(&["get", "namespaces"]).await;
    assert!(out.contains("kube-system") && out.contains("Active"), "{out}");
    assert!(served.ok(&["get", "all", "-A"]).await.contains("service/kubernetes"));
}
