//! A real control plane of our own: etcd, the API server, the controller-manager, the scheduler, and KWOK
//! in the place of kubelets.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use reqwest::Method;
use serde_json::{Value, json};

use super::client::Client;
use super::egress_proxy::EgressProxy;
use super::kwok::{self, CudaCheck, Forward};
use super::parts::Part;
use super::process_group::{ProcessGroup, free_ports};

/// Longest wait for something to come up or to come about. An idle machine needs a tenth of it.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// How often a start is tried when a port was taken by somebody else in between.
const ATTEMPTS: usize = 3;

/// The file that an audited API server writes, in its folder.
const AUDIT_LOG: &str = "audit.log";

/// Where kubelets, here KWOK, say that their nodes live.
const NODE_LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";

/// How to reach the API server, as a cluster administrator.
#[derive(Clone, Debug)]
pub struct Access {
    /// `https://127.0.0.1:PORT`.
    pub server: String,
    /// A bearer token in the group `system:masters`.
    pub token: String,
    /// Certificates that the server's own one is checked against.
    pub ca_pem: String,
    /// All of it as a file, for clients that want one.
    pub kubeconfig: PathBuf,
}

impl Access {
    /// Reads a kubeconfig that is JSON and has one cluster, as the sandbox prints it.
    pub fn read(kubeconfig: PathBuf) -> Access {
        let config: Value = serde_json::from_slice(&fs::read(&kubeconfig).unwrap()).unwrap();
        let text = |pointer: &str| config.pointer(pointer).and_then(Value::as_str).unwrap().to_owned();
        let ca = BASE64.decode(text("/clusters/0/cluster/certificate-authority-data")).unwrap();
        Access {
            server: text("/clusters/0/cluster/server"),
            token: text("/users/0/user/token"),
            ca_pem: String::from_utf8(ca).unwrap(),
            kubeconfig,
        }
    }
}

/// How much of a control plane runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// All of it, with KWOK.
    Whole,
    /// With nodes, and the API server's proxy leads to pods.
    Reachable,
    /// The whole, and the API server notes each request and who asked.
    Audited,
    /// Parts that the API itself needs: namespaces, garbage collection, service accounts. No other object
    /// is touched by anybody, so answers can be compared.
    WithoutNodes,
}

/// A running control plane, empty but for what it makes itself: no nodes, no custom resources.
pub struct ControlPlane {
    access: Access,
    /// How long it took to come up.
    pub started_in: Duration,
    kubelet_port: u16,
    etcd: u16,
    proxy: Option<EgressProxy>,
    processes: ProcessGroup,
}

impl ControlPlane {
    /// Starts everything and waits until it works. A CUDA check passes, no port is forwarded.
    pub async fn start() -> ControlPlane {
        ControlPlane::start_as(Extent::Whole).await
    }

    /// Starts everything, with an API server that reaches the pods' forwarded ports by itself, too: its proxy for
    /// Services and pods works. A running runtime must stay.
    pub async fn start_with_a_way_to_pods() -> ControlPlane {
        ControlPlane::start_as(Extent::Reachable).await
    }

    /// Starts everything, with an API server that notes each request.
    pub async fn start_audited() -> ControlPlane {
        ControlPlane::start_as(Extent::Audited).await
    }

    /// Starts the API server with those controllers only that namespaces and owner references need.
    pub async fn start_without_nodes() -> ControlPlane {
        ControlPlane::start_as(Extent::WithoutNodes).await
    }

    async fn start_as(extent: Extent) -> ControlPlane {
        let mut said = String::new();
        for _ in 0..ATTEMPTS {
            match ControlPlane::try_start(extent).await {
                Ok(plane) => return plane,
                Err(problem) if problem.contains("address already in use") => said = problem,
                Err(problem) => panic!("{problem}"),
            }
        }
        panic!("no free port in {ATTEMPTS} attempts: {said}");
    }

    async fn try_start(extent: Extent) -> Result<ControlPlane, String> {
        let begun = Instant::now();
        let mut processes = ProcessGroup::new();
        let [etcd, etcd_peers, secure, kubelet_port] = free_ports();
        let pair = rcgen::KeyPair::generate().unwrap();
        let key = pair.serialize_pem();
        let token = blake3::hash(key.as_bytes()).to_hex().to_string();
        processes.write("service-accounts.key", &key);
        processes.write("service-accounts.pub", pair.public_key_pem());
        processes.write("tokens.csv", format!("{token},admin,admin,\"system:masters\"\n"));
        start_etcd(&mut processes, etcd, etcd_peers);
        let proxy = (extent == Extent::Reachable).then(|| EgressProxy::start(&processes));
        let audit = (extent == Extent::Audited).then(|| audit_policy(&processes));
        start_api_server(&mut processes, etcd, secure, (proxy.as_ref(), audit.as_deref()));
        let access = access(&mut processes, secure, token, begun).await?;
        let client = Client::new(&access);
        wait_until(&mut processes, begun, "the API server is not ready", async || {
            client.try_get("/readyz").await.is_ok_and(|(status, _)| status == 200)
        })
        .await?;
        start_controllers(&mut processes, &access, extent);
        if extent != Extent::WithoutNodes {
            let certified =
                rcgen::generate_simple_self_signed(["localhost".into(), "127.0.0.1".into()]).unwrap();
            processes.write("kubelet.crt", certified.cert.pem());
            processes.write("kubelet.key", certified.signing_key.serialize_pem());
            start_kwok(&mut processes, &access, kubelet_port, CudaCheck::Passes, &[]);
        }
        // The controller-manager makes it; pods need it.
        wait_until(&mut processes, begun, "no default service account", async || {
            let account = client.try_get("/api/v1/namespaces/default/serviceaccounts/default").await;
            account.is_ok_and(|(status, _)| status == 200)
        })
        .await?;
        if extent != Extent::WithoutNodes {
            kwok_listens(&mut processes, kubelet_port, begun).await?;
        }
        Ok(ControlPlane { access, started_in: begun.elapsed(), kubelet_port, etcd, proxy, processes })
    }

    /// How to reach it.
    pub fn access(&self) -> &Access {
        &self.access
    }

    /// A client with all rights, for this test's runtime.
    pub fn client(&self) -> Client {
        Client::new(&self.access)
    }

    /// The address of etcd, which also takes JSON.
    pub fn etcd(&self) -> String {
        format!("http://127.0.0.1:{}", self.etcd)
    }

    /// The process group of everything in it.
    pub fn group(&self) -> i32 {
        self.processes.group()
    }

    /// The scratch folder of everything in it.
    pub fn folder(&self) -> &Path {
        self.processes.folder()
    }

    /// `PATCH`, `LIST` and such, and the path, of each request that came from a program so far, by what it calls itself.
    /// Only of a control plane that is audited.
    pub fn requests_of(&self, program: &str) -> Vec<String> {
        let log = fs::read_to_string(self.folder().join(AUDIT_LOG)).unwrap();
        let events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let of_program = events.filter(|event| {
            event["userAgent"].as_str().is_some_and(|agent| agent.starts_with(&format!("{program}/")))
        });
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        of_program
            .map(|event| format!("{} {}", text(&event["verb"]).to_uppercase(), text(&event["requestURI"])))
            .collect()
    }

    /// Starts KWOK again with another fate for CUDA checks and other forwarded ports. Pods that reached
    /// their end keep it.
    pub async fn restart_kwok(&mut self, check: CudaCheck, forwards: &[Forward]) {
        self.processes.end("kwok");
        // The new one would leave the nodes alone until the leases of the old one lapse, 40 s later.
        let (status, said) = self.client().delete(NODE_LEASES).await;
        assert_eq!(status, 200, "{said}");
        start_kwok(&mut self.processes, &self.access, self.kubelet_port, check, forwards);
        if let Some(proxy) = &self.proxy {
            proxy.set_forwards(forwards);
        }
        kwok_listens(&mut self.processes, self.kubelet_port, Instant::now()).await.unwrap();
    }

    /// Makes a node as GKE would register it; KWOK makes it Ready. `gpus` of 0 leaves the resource out.
    pub async fn add_node(&self, name: &str, labels: Value, gpus: u32) {
        let mut resources =
            json!({ "cpu": "12", "memory": "64Gi", "pods": "110", "ephemeral-storage": "100Gi" });
        if gpus > 0 {
            resources["nvidia.com/gpu"] = json!(gpus.to_string());
        }
        let node = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": { "name": name, "labels": labels },
            "status": { "capacity": resources, "allocatable": resources },
        });
        let (status, said) =
            self.client().send(Method::POST, "/api/v1/nodes", "application/json", &node).await;
        assert_eq!(status, 201, "{said}");
    }
}

/// Waits for `done`, no longer than [`PATIENCE`] since `begun`, and not for a process that has ended.
async fn wait_until(
    processes: &mut ProcessGroup,
    begun: Instant,
    what: &str,
    done: impl AsyncFn() -> bool,
) -> Result<(), String> {
    while !done().await {
        if let Some(ended) = processes.ended() {
            return Err(ended);
        }
        if begun.elapsed() > PATIENCE {
            return Err(format!("{what} after {} s", PATIENCE.as_secs()));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

async fn kwok_listens(processes: &mut ProcessGroup, port: u16, begun: Instant) -> Result<(), String> {
    let address = ("127.0.0.1", port);
    wait_until(processes, begun, "KWOK does not listen", async || {
        tokio::net::TcpStream::connect(address).await.is_ok()
    })
    .await
}

/// A program that collects garbage when its heap is five times what lives, not twice: an API server that lives for some
/// seconds takes a fifth less of the processor (3.9 s in place of 4.8 s, Kubernetes 1.36).
fn program(part: Part, name: &str) -> Command {
    let mut command = Command::new(part.program(name));
    command.env("GOGC", "400").env("GOMEMLIMIT", "1GiB");
    command
}

fn start_etcd(processes: &mut ProcessGroup, port: u16, peers: u16) {
    let (url, peer) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peers}"));
    let mut command = program(Part::Etcd, "etcd");
    command.args(["--data-dir", "etcd", "--unsafe-no-fsync", "--log-level", "warn"]);
    command.args(["--listen-client-urls", &url, "--advertise-client-urls", &url]);
    command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
    command.args(["--initial-cluster", &format!("default={peer}")]);
    processes.start("etcd", &mut command);
}

/// One line a request, when it comes in.
fn audit_policy(processes: &ProcessGroup) -> PathBuf {
    let policy = json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["ResponseStarted", "ResponseComplete", "Panic"],
        "rules": [{ "level": "Metadata" }],
    });
    processes.write("audit.json", policy.to_string())
}

fn start_api_server(
    processes: &mut ProcessGroup,
    etcd: u16,
    port: u16,
    (proxy, audit): (Option<&EgressProxy>, Option<&Path>),
) {
    let mut command = program(Part::Kubernetes, "kube-apiserver");
    command.args(["--etcd-servers", &format!("http://127.0.0.1:{etcd}")]);
    command.args(["--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1"]);
    // It would try, in vain and for ever, to put a loopback address into the Endpoints of `kubernetes`.
    command.args(["--endpoint-reconciler-type", "none"]);
    command.args(["--secure-port", &port.to_string(), "--cert-dir", "certs"]);
    command.args(["--token-auth-file", "tokens.csv", "--authorization-mode", "RBAC"]);
    command.args(["--service-account-key-file", "service-accounts.pub"]);
    command.args(["--service-account-signing-key-file", "service-accounts.key"]);
    command.args(["--service-account-issuer", "https://kubernetes.default.svc"]);
    // GKE's API server has it: Pods that ask for GPUs tolerate the taint of GPU nodes.
    command.args(["--enable-admission-plugins", "ExtendedResourceToleration"]);
    // The installer of the NVIDIA driver is a privileged pod.
    command.args(["--service-cluster-ip-range", "10.96.0.0/16", "--allow-privileged=true"]);
    if let Some(proxy) = proxy {
        command.arg("--egress-selector-config-file").arg(proxy.configuration());
    }
    if let Some(policy) = audit {
        command.arg("--audit-policy-file").arg(policy).args(["--audit-log-path", AUDIT_LOG]);
    }
    processes.start("kube-apiserver", &mut command);
}

fn start_controllers(processes: &mut ProcessGroup, access: &Access, extent: Extent) {
    let mut command = program(Part::Kubernetes, "kube-controller-manager");
    command.arg("--kubeconfig").arg(&access.kubeconfig);
    command.args(["--service-account-private-key-file", "service-accounts.key"]);
    command.args(["--root-ca-file", "certs/apiserver.crt"]);
    // Hundreds of namespaces, and of Pods of DaemonSets, are made at once.
    command.args(["--leader-elect=false", "--secure-port=0", "--kube-api-qps=500", "--kube-api-burst=1000"]);
    if extent == Extent::WithoutNodes {
        command.arg("--controllers=namespace-controller,garbage-collector-controller,serviceaccount-controller,root-ca-certificate-publisher-controller");
        processes.start("kube-controller-manager", &mut command);
        return;
    }
    processes.start("kube-controller-manager", &mut command);
    let mut command = program(Part::Kubernetes, "kube-scheduler");
    command.arg("--kubeconfig").arg(&access.kubeconfig);
    command.args(["--leader-elect=false", "--secure-port=0"]);
    processes.start("kube-scheduler", &mut command);
}

fn start_kwok(
    processes: &mut ProcessGroup,
    access: &Access,
    port: u16,
    check: CudaCheck,
    forwards: &[Forward],
) {
    let stages = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/real/kwok.yaml");
    let ours = processes.write("kwok.yaml", kwok::configuration(processes.folder(), check, forwards));
    let mut command = program(Part::Kwok, "kwok");
    command.arg("--config").arg(stages).arg("--config").arg(ours);
    command.arg("--kubeconfig").arg(&access.kubeconfig);
    // Leases are what keeps a node alive in the eyes of the node controller: without them it is lost after 40 s.
    command.args(["--manage-all-nodes=true", "--node-lease-duration-seconds=40"]);
    command.args(["--node-ip=127.0.0.1", "--node-name=localhost", &format!("--node-port={port}")]);
    command.arg(format!("--server-address=127.0.0.1:{port}"));
    command.args(["--tls-cert-file=kubelet.crt", "--tls-private-key-file=kubelet.key"]);
    // It would read ~/.kwok otherwise.
    command.env("HOME", processes.folder()).env("KWOK_WORKDIR", processes.folder());
    processes.start("kwok", &mut command);
}

/// Waits for the certificate that the API server makes for itself, and writes the kubeconfig.
async fn access(
    processes: &mut ProcessGroup,
    port: u16,
    token: String,
    begun: Instant,
) -> Result<Access, String> {
    let path = processes.folder().join("certs/apiserver.crt");
    wait_until(processes, begun, "the API server has no certificate", async || {
        fs::read_to_string(&path).is_ok_and(|pem| pem.ends_with("-----END CERTIFICATE-----\n"))
    })
    .await?;
    let ca_pem = fs::read_to_string(&path).map_err(|error| error.to_string())?;
    let server = format!("https://127.0.0.1:{port}");
    // JSON is YAML, and every client's parser takes it.
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "real",
        "contexts": [{ "name": "real", "context": { "cluster": "real", "user": "admin" } }],
        "clusters": [{ "name": "real", "cluster": {
            "server": server, "certificate-authority-data": BASE64.encode(&ca_pem),
        } }],
        "users": [{ "name": "admin", "user": { "token": token } }],
    });
    let kubeconfig = processes.write("kubeconfig", format!("{kubeconfig:#}\n"));
    Ok(Access { server, token, ca_pem, kubeconfig })
}
