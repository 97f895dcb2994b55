//! The sandbox's Kubernetes API as the real kubectl sees it.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use dask_infra::sandbox::kube::router;
use dask_infra::sandbox::kube::store::Cluster;
use jiff::Timestamp;
use tokio::sync::watch;

/// A cluster behind a lock, with the wall clock.
#[derive(Clone)]
struct Held {
    cluster: Arc<Mutex<Cluster>>,
    changed: Arc<watch::Sender<u64>>,
}

impl dask_infra::sandbox::kube::Access for Held {
    fn with<R>(&self, f: impl FnOnce(&mut Cluster, Timestamp) -> R) -> R {
        let now = Timestamp::now();
        let mut cluster = self.cluster.lock().unwrap();
        let out = f(&mut cluster, now);
        cluster.collect(now);
        self.changed.send_replace(cluster.revision());
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
struct Served {
    held: Held,
    home: tempfile::TempDir,
    server: tokio::task::JoinHandle<()>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Served {
    async fn start() -> Self {
        let now = Timestamp::now();
        let held = Held {
            cluster: Arc::new(Mutex::new(Cluster::new("test", now))),
            changed: Arc::new(watch::Sender::new(0)),
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = router(held.clone());
        let server = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        let home = tempfile::tempdir().unwrap();
        let config = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
             clusters: [{{name: c, cluster: {{server: \"http://{address}\"}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\n\
             users: [{{name: u, user: {{token: t}}}}]\n"
        );
        std::fs::write(home.path().join("kubeconfig"), config).unwrap();
        Self { held, home, server }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command
            .args(args)
            .env("KUBECONFIG", self.home.path().join("kubeconfig"))
            .env("HOME", self.home.path());
        command.env("NO_PROXY", "127.0.0.1").stdin(Stdio::null());
        command
    }

    /// Runs kubectl; the answer is its exit code, stdout and stderr.
    async fn run(&self, args: &[&str]) -> (i32, String, String) {
        let mut command = self.command(args);
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
    }

    /// Runs kubectl, which must succeed.
    async fn ok(&self, args: &[&str]) -> String {
        let (code, stdout, stderr) = self.run(args).await;
        assert_eq!(code, 0, "kubectl {}\n{stdout}{stderr}", args.join(" "));
        stdout
    }

    /// Runs kubectl, which must fail; the answer is what it says on stderr.
    async fn refused(&self, args: &[&str]) -> String {
        let (code, stdout, stderr) = self.run(args).await;
        assert_ne!(code, 0, "kubectl {}\n{stdout}{stderr}", args.join(" "));
        stderr
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.home.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

fn has_kubectl() -> bool {
    let found = std::env::var_os("PATH").is_some_and(|path| {
        std::env::split_paths(&path).any(|folder| Path::new(&folder).join("kubectl").is_file())
    });
    if !found {
        println!("skipped: kubectl is not on the PATH");
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "serves until it is stopped, for trying things out by hand"]
async fn serve_by_hand() {
    let served = Served::start().await;
    for crd in dask_infra::schema::dask_crds() {
        served.held.cluster.lock().unwrap().create(Timestamp::now(), "test", crd.clone()).unwrap();
    }
    std::fs::copy(served.home.path().join("kubeconfig"), "/tmp/kt/kubeconfig").unwrap();
    std::future::pending::<()>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_reads_a_fresh_cluster() {
    if !has_kubectl() {
        return;
    }
    let served = Served::start().await;
    let out = served.ok(&["get", "namespaces"]).await;
    assert!(out.contains("kube-system") && out.contains("Active"), "{out}");
}
