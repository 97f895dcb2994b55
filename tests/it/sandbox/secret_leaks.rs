//! Secrets of several shapes everywhere a user might put them, and a look through every command in every format.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use axum::body::Body;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sandbox::Options;
use sandbox::faults::{FaultEffect, Refuse, Rule};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::sandbox_server::{FAST, SandboxServer, User};

/// Each stands at one place, so that the table says which one came out.
const CANARIES: [(&str, &str); 30] = [
    ("--var", "Can01-var-Qx71"),
    ("${env.…_PASSWORD}", "Can02-env-Qx72"),
    ("env of a scheduler", "Can03-sched-Qx73"),
    ("env, in a URL", "Can04-url-Qx74"),
    ("env, in JSON", "Can05-json-Qx75"),
    ("env, base64", "Can06-base64-Qx76"),
    ("manifest env", "Can07-manifest-Qx77"),
    ("manifest args, --flag value", "Can08-flag-Qx78"),
    ("manifest args, --flag=value", "Can09-flag-Qx79"),
    ("annotation", "Can10-annotation-Qx80"),
    ("ConfigMap data", "Can11-data-Qx81"),
    ("ConfigMap data, in JSON", "Can12-data-Qx82"),
    ("ConfigMap data, private key", "Can13PrivateKeyQx83Qx83Qx83"),
    ("live Secret", "Can14-live-Qx84"),
    ("drift of an env", "Can15-drift-Qx85"),
    ("drift of a data key", "Can16-drift-Qx86"),
    ("live thing to adopt", "Can17-adopt-Qx87"),
    ("--var, in a URL", "Can18-varurl-Qx88"),
    ("--var, without a name", "Can19-nameless-Qx89"),
    ("--var, not declared", "Can20-undeclared-Qx90"),
    ("manifest args, in a URL", "Can21-argurl-Qx91"),
    ("ConfigMap data, userinfo in base64", "Can22-userinfo-Qx92"),
    ("annotation, in JSON", "Can23-annotation-Qx93"),
    ("values of a chart", "Can24-values-Qx94"),
    ("file of values", "Can25-valuesfile-Qx95"),
    ("what helm prints", "Can26-rendered-Qx96"),
    ("token of a kubeconfig", "Can27-token-Qx97"),
    ("kubeconfig, in a URL", "Can28-server-Qx98"),
    ("password of a kubeconfig", "Can29-basic-Qx99"),
    ("proxy of the environment", "Can30-proxy-Qx00"),
];

/// Documented in docs/stacks.md: under a harmless name only the stack's variables tell that a value is a secret, and these
/// two read no stack.
const NOT_PROMISED: [(&str, &str); 3] = [
    ("${env.…_PASSWORD}", "show first.plan -v"),
    ("${env.…_PASSWORD}", "show first.plan --json"),
    ("${env.…_PASSWORD}", "import --out -"),
];

fn canary(name: &str) -> &'static str {
    CANARIES.iter().find(|(known, _)| *known == name).unwrap().1
}

fn stack() -> String {
    format!(
        r#"[stack]
name = "canary"

[gke]
project = "${{env.GOOGLE_CLOUD_PROJECT}}"
location = "us-central1-c"

[vars]
api_token = "change me"
hub = "x-${{env.HUB_PASSWORD}}"
db = "postgres://nobody@db/x"
image = "ghcr.io/dask/dask:2026.3.0-py3.12"

[cluster]
name = "canary"

[node_pool.cpu]
machine_type = "e2-standard-4"

[dask_operator]
version = "2026.3.0"

[dask_cluster.c]
image = "${{var.image}}"
worker = {{ replicas = 1, env = {{ A = "${{var.api_token}}", B = "${{var.hub}}", C = "${{var.db}}" }} }}

[dask_cluster.c.scheduler.env]
DB_PASSWORD = "{sched}"
DB_URL = "postgres://me:{url}@db/x"
CONFIG = '{{"auth": {{"password": "{in_json}"}}}}'
HUB_TOKEN = "{base64}"
HF_TOKEN = {{ secret = "hugging-face", key = "token" }}

[manifest.m]
file = "m.yaml"

[manifest.other]
file = "other.yaml"

[helm_release.r]
chart = "./chart"
namespace = "default"
values_files = ["values.yaml"]
values = {{ password = "{values}", nested = {{ url = "https://me:{values}@x" }} }}

[allow.literal_secrets]
"helm_release.r" = "canaries"
"dask_cluster.c" = "canaries"
"manifest.m" = "canaries"
"manifest.other" = "canaries"
"#,
        values = canary("values of a chart"),
        sched = canary("env of a scheduler"),
        url = canary("env, in a URL"),
        in_json = canary("env, in JSON"),
        base64 = STANDARD.encode(canary("env, base64")),
    )
}

fn manifest() -> String {
    let key = canary("ConfigMap data, private key");
    format!(
        r#"apiVersion: apps/v1
kind: Deployment
metadata: {{ name: web, namespace: default, annotations: {{ example.com/api-token: "{annotation}", example.com/settings: '{{"api_key":"{annotation_json}"}}' }} }}
spec:
  replicas: 1
  selector: {{ matchLabels: {{ app: web }} }}
  template:
    metadata: {{ labels: {{ app: web }} }}
    spec:
      containers:
      - name: web
        image: nginx:1.27
        args: ["--password", "{flag}", "--token={flag_is}", "--db", "postgres://me:{arg_url}@db/x"]
        env:
        - name: DB_PASSWORD
          value: "{env}"
---
apiVersion: v1
kind: ConfigMap
metadata: {{ name: conf, namespace: default }}
data:
  password: "{data}"
  mode: fast
  config.json: '{{"client_secret": "{data_json}"}}'
  docker.json: '{{"auths": {{"registry.example.com": {{"auth": "{userinfo}"}}}}}}'
  id_rsa: |
    -----BEGIN RSA PRIVATE KEY-----
    {key}
    -----END RSA PRIVATE KEY-----
"#,
        annotation = canary("annotation"),
        annotation_json = canary("annotation, in JSON"),
        arg_url = canary("manifest args, in a URL"),
        userinfo = STANDARD.encode(format!("me:{}", canary("ConfigMap data, userinfo in base64"))),
        flag = canary("manifest args, --flag value"),
        flag_is = canary("manifest args, --flag=value"),
        env = canary("manifest env"),
        data = canary("ConfigMap data"),
        data_json = canary("ConfigMap data, in JSON"),
    )
}

const OTHER: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: other, namespace: default }\ndata: { admin_password: changed-1 }\n";

/// A fake `helm`: prints one object or, while there is a file `fails` beside it, its arguments, and fails.
fn helm(folder: &Path) -> PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    let rendered = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "chart", "namespace": "default" },
        "data": { "password": canary("what helm prints") } });
    std::fs::write(folder.join("rendered.json"), rendered.to_string()).unwrap();
    let said = format!(
        "Error: values don't meet the schema: password: {} {} is too short",
        canary("values of a chart"),
        canary("file of values")
    );
    std::fs::write(folder.join("said"), said).unwrap();
    let here = folder.display();
    let script = format!(
        "#!/bin/sh\nif [ \"$1\" = version ]; then echo v4.0.0; elif [ -e '{here}/fails' ]; then cat '{here}/said' >&2; exit 1; \
         else cat '{here}/rendered.json'; fi\n"
    );
    let program = folder.join("helm");
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    program
}

const OUTSIDE: &str =
    "[stack]\nname = \"outside\"\n\n[kubernetes]\nkubeconfig = \"k.yaml\"\n\n[namespace.n]\n";

/// Names a server to which credentials are not sent, so that nothing is waited for.
fn kubeconfig() -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters:\n- name: c\n  cluster: {{ server: \"http://me:{server}@k.example.com\" }}\n\
         contexts:\n- name: a\n  context: {{ cluster: c, user: u }}\nusers:\n- name: u\n  user: {{ token: {token}, password: {password}, username: me }}\n",
        server = canary("kubeconfig, in a URL"),
        token = canary("token of a kubeconfig"),
        password = canary("password of a kubeconfig"),
    )
}

/// Repeats what it was sent, as API servers do.
fn echo() -> Rule {
    let names = ["ConfigMap data", "ConfigMap data, in JSON", "ConfigMap data, private key", "manifest env"];
    let values = names.map(|name| format!("{:?}", canary(name))).join(", ");
    let refuse =
        Refuse { message: Some(format!("data: Invalid value: {values}: too bad")), ..Refuse::with(422) };
    Rule {
        method: Some("PATCH".into()),
        path: "*/configmaps/conf".into(),
        then: FaultEffect::Refuse(refuse),
        ..Rule::default()
    }
}

/// Makes an object as somebody else would.
fn create(served: &SandboxServer, path: &str, object: &Value) {
    let cluster = served.sandbox.clusters().pop().expect("a cluster");
    let request = http::Request::post(path).header("content-type", "application/json");
    let request = request.body(Body::from(object.to_string())).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let answer = runtime.block_on(served.sandbox.kubernetes_router(&cluster).oneshot(request)).unwrap();
    assert!(answer.status().is_success(), "{path}: {}", answer.status());
}

/// Leaked secrets, by command and format.
#[derive(Default)]
struct Table {
    rows: BTreeMap<&'static str, Vec<String>>,
    /// Each that was looked at.
    outputs: Vec<String>,
}

/// The column of an output: the command, or what it is.
fn column(output: &str) -> &str {
    output.split([' ', ':']).next().unwrap_or_default()
}

impl Table {
    fn look(&mut self, output: &str, text: &str) {
        self.outputs.push(output.to_owned());
        for (name, value) in CANARIES {
            let forms = [value.to_owned(), STANDARD.encode(value), value.replace('-', "%2D")];
            if forms.iter().any(|form| text.contains(form.as_str())) {
                self.rows.entry(name).or_default().push(output.to_owned());
            }
        }
    }

    /// In how many outputs each canary stands, by command. `--nocapture` shows it.
    fn print(&self) {
        let mut columns: Vec<&str> = Vec::new();
        for output in &self.outputs {
            if !columns.contains(&column(output)) {
                columns.push(column(output));
            }
        }
        let line = |name: &str, count: &dyn Fn(&str) -> usize| {
            let cells =
                columns.iter().map(|name| format!("{:>width$}", count(name), width = name.len().max(3)));
            println!("{name:<36} {}", cells.collect::<Vec<_>>().join(" "));
        };
        println!(
            "{:<36} {}",
            "canary",
            columns.iter().map(|name| format!("{name:>3}")).collect::<Vec<_>>().join(" ")
        );
        line("(outputs looked at)", &|name| {
            self.outputs.iter().filter(|output| column(output) == name).count()
        });
        for (canary, _) in CANARIES {
            let shown = self.rows.get(canary).map_or(&[][..], Vec::as_slice);
            line(canary, &|name| shown.iter().filter(|output| column(output) == name).count());
            shown.iter().for_each(|output| println!("  {output}"));
        }
    }

    fn run(&mut self, user: &User, words: &[&str]) -> String {
        let vars = [
            format!("api_token={}", canary("--var")),
            format!("db=postgres://me:{}@db/x", canary("--var, in a URL")),
        ];
        let vars = vars.iter().flat_map(|var| ["--var", var]);
        self.run_as(user, words, &words.iter().copied().chain(vars).collect::<Vec<_>>())
    }

    /// The command is `shown` in the table.
    fn run_as(&mut self, user: &User, shown: &[&str], words: &[&str]) -> String {
        let proxy = format!("http://me:{}@127.0.0.1:9", canary("proxy of the environment"));
        let mut command = user.command(words);
        command.env("HUB_PASSWORD", canary("${env.…_PASSWORD}"));
        command.env("HTTPS_PROXY", proxy).env("NO_PROXY", "127.0.0.1,localhost");
        let output = command.output().unwrap();
        let text =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(!text.is_empty() || output.status.success(), "{words:?} says nothing");
        assert_ne!(output.status.code(), Some(101), "{words:?}: {text}");
        self.look(&shown.join(" "), &text);
        text
    }
}

/// Commands that look and change nothing.
pub const LOOKS: [&[&str]; 35] = [
    &["validate"],
    &["validate", "--json"],
    &["plan"],
    &["plan", "-v"],
    &["plan", "--summary"],
    &["plan", "--json"],
    &["plan", "--offline", "-v"],
    &["plan", "--refresh-only"],
    &["plan", "--refresh-only", "--json"],
    &["plan", "--destroy", "-v"],
    &["plan", "--target", "manifest.m", "-v"],
    &["plan", "--replace", "manifest.m", "-v"],
    &["show", "--effective"],
    &["show", "--effective", "-v"],
    &["show", "--effective", "--json"],
    &["status"],
    &["status", "-v"],
    &["status", "--json"],
    &["why", "manifest.m"],
    &["why", "manifest.m", "--json"],
    &["why", "dask_cluster.c", "-v"],
    &["graph"],
    &["graph", "--format", "mermaid"],
    &["doctor"],
    &["doctor", "--json"],
    &["adopt", "manifest.other"],
    &["adopt", "manifest.other", "--json"],
    &["destroy"],
    &["scale", "dask_cluster.c", "2"],
    &["import", "--out", "-"],
    &["logs", "manifest.m"],
    &["logs", "dask_cluster.c", "-v"],
    &["explain", "DI0254"],
    &["explain", "dask_cluster.env"],
    &["explain", "helm_release.values"],
];

fn looks(table: &mut Table, user: &User) {
    for words in LOOKS {
        table.run(user, words);
    }
}

#[test]
fn no_secret_comes_out_of_any_command_in_any_format() {
    let served = SandboxServer::with(Options { scale: FAST, requests: vec![echo()], ..Options::default() });
    let tools = tempfile::tempdir().unwrap();
    let user = User::empty_at(&served.gke).rendering(helm(tools.path()));
    let write = |name: &str, text: &str| std::fs::write(user.path().join(name), text).unwrap();
    write("stack.toml", &stack());
    write("m.yaml", &manifest());
    write("other.yaml", OTHER);
    write(
        "values.yaml",
        &format!("auth: {{ password: {0} }}\nurl: https://me:{0}@x\n", canary("file of values")),
    );
    std::fs::create_dir(user.path().join("chart")).unwrap();
    write("chart/Chart.yaml", "apiVersion: v2\nname: c\nversion: 1.0.0\n");
    let mut table = Table::default();

    // Nothing is there yet, and a saved plan.
    for words in &LOOKS[..15] {
        table.run(&user, words);
    }
    let said = table.run(&user, &["plan", "--out", "first.plan", "--exclude", "manifest.other"]);
    assert!(said.contains("first.plan"), "{said}");
    for words in
        [["show", "first.plan", "-v"], ["show", "first.plan", "--json"], ["apply", "first.plan", "-v"]]
    {
        let said = table.run(&user, &words);
        assert!(words[0] != "apply" || said.contains("too bad"), "the server's words are told: {said}");
    }
    // The server has said no once.
    let said = table.run(&user, &["apply", "--auto-approve", "--exclude", "manifest.other", "--json"]);
    assert!(!said.contains("too bad"), "{said}");

    // Objects that others created and changed.
    let metadata = |name: &str| json!({ "name": name, "namespace": "default" });
    let secret = json!({ "apiVersion": "v1", "kind": "Secret", "metadata": metadata("live"),
        "stringData": { "x": canary("live Secret") } });
    create(&served, "/api/v1/namespaces/default/secrets", &secret);
    let other = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata("other"),
        "data": { "admin_password": canary("live thing to adopt") } });
    create(&served, "/api/v1/namespaces/default/configmaps", &other);
    let before = table.run(&user, &["plan", "--out", "stale.plan"]);
    assert!(!before.is_empty());
    let env = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "web", "image": "nginx:1.27",
        "env": [{ "name": "DB_PASSWORD", "value": canary("drift of an env") }] }] } } } });
    assert_eq!(served.merge("/apis/apps/v1/namespaces/default/deployments/web", &env).0, 200);
    let data = json!({ "data": { "password": canary("drift of a data key") } });
    assert_eq!(served.merge("/api/v1/namespaces/default/configmaps/conf", &data).0, 200);
    let drift = table.run(&user, &["plan", "--refresh-only"]);
    assert!(drift.contains("data.password") && drift.contains("(hidden)"), "the drift is told: {drift}");
    looks(&mut table, &user);
    table.run(&user, &["apply", "stale.plan"]);
    let take = "take:manifest.other";
    for shown in ["-v", "--json"] {
        let said = table.run(&user, &["apply", "--auto-approve", "--allow", take, shown]);
        assert!(!said.contains("DI0306"), "{said}");
    }
    // The records in the cluster.
    let records = served.get("/api/v1/namespaces/dask-infra/configmaps");
    table.look("record", &records.to_string());
    table.look("events", &served.get("/api/v1/events").to_string());

    // Mistakes beside secrets, and secrets as mistakes.
    let good = stack();
    for (name, from, to) in [
        ("a wrong key beside them", "DB_URL =", "DB_URL = 3\nNOPE ="),
        ("a broken line beside them", "CONFIG =", "CONFIG = = "),
        ("a table in the place of text", "DB_PASSWORD = ", "DB_PASSWORD = { x = 1 }\nDB2_PASSWORD = "),
        ("not allowed", "\"dask_cluster.c\" = \"canaries\"", ""),
        ("manifest not allowed", "\"manifest.m\" = \"canaries\"", ""),
        ("a wrong worker", "replicas = 1, env", "replicas = -1, env"),
        ("chart not allowed", "\"helm_release.r\" = \"canaries\"", ""),
        ("a secret as a machine", "\"e2-standard-4\"", "\"${env.HUB_PASSWORD}\""),
        ("a secret as a number", "replicas = 1, env", "replicas = \"${var.api_token}\", env"),
        ("a secret as a version", "\"2026.3.0\"", "\"${var.api_token}\""),
    ] {
        assert!(good.contains(from), "{from}");
        write("stack.toml", &good.replacen(from, to, 1));
        for words in [["validate", "-v"], ["validate", "--json"]] {
            let said = table.run(&user, &words);
            assert!(said.contains("DI0") || said.contains("error"), "{name}: {said}");
        }
    }
    write("stack.toml", &good);
    for (from, to) in [
        ("kind: ConfigMap", "kind: Secret"),
        ("replicas: 1", "replicas: [1"),
        ("mode: fast", "mode: fast\n  mode: slow"),
    ] {
        write("m.yaml", &manifest().replacen(from, to, 1));
        for words in [["validate", "-v"], ["validate", "--json"]] {
            let said = table.run(&user, &words);
            assert!(said.contains("DI0"), "{said}");
        }
    }

    write("m.yaml", &manifest());
    for broken in
        ["auth: { password: [CANARY }\n", "password: |\n  CANARY\n a: [\n", "a: { password: CANARY\n"]
    {
        write("values.yaml", &broken.replace("CANARY", canary("file of values")));
        for words in [["validate", "-v"], ["validate", "--json"]] {
            assert!(table.run(&user, &words).contains("DI0"), "a broken file of values");
        }
    }
    write("values.yaml", &format!("password: {}\n", canary("file of values")));
    std::fs::write(tools.path().join("fails"), "").unwrap();
    for words in [["validate", "-v"], ["validate", "--json"]] {
        assert!(table.run(&user, &words).contains("too short"), "what helm says is told");
    }

    // Arguments that are wrong.
    let (nameless, undeclared) = (canary("--var, without a name"), canary("--var, not declared"));
    let said = table.run_as(&user, &["arguments"], &["validate", "--var", nameless]);
    assert!(said.contains("NAME=VALUE"), "{said}");
    let said = table.run_as(&user, &["arguments"], &["validate", &format!("--var={nameless}")]);
    assert!(said.contains("NAME=VALUE"), "{said}");
    let said = table.run_as(&user, &["arguments"], &["validate", "--var", &format!("nope={undeclared}")]);
    assert!(said.contains("nope"), "{said}");

    // A cluster by kubeconfig.
    let outside = User::empty();
    outside.write(OUTSIDE);
    std::fs::write(outside.path().join("k.yaml"), kubeconfig()).unwrap();
    for words in [
        &["plan"][..],
        &["plan", "-v", "--json"],
        &["plan", "--offline", "-v"],
        &["doctor"],
        &["doctor", "--json"],
        &["status"],
        &["import", "--out", "-"],
        &["show", "--effective", "-v"],
    ] {
        let shown = format!("kubeconfig: {}", words.join(" "));
        table.run_as(&outside, &[&shown], words);
    }

    table.print();
    for (name, output) in NOT_PROMISED {
        let outputs = table.rows.entry(name).or_default();
        outputs.retain(|shown| shown != output);
    }
    table.rows.retain(|_, outputs| !outputs.is_empty());
    assert!(table.rows.is_empty(), "{:#?}", table.rows);
    // A saved plan holds the bodies that it sends: it is a secret file, not an output.
    let saved = std::fs::read_to_string(user.path().join("first.plan")).unwrap();
    assert!(saved.contains(canary("manifest env")), "the canaries were where they are looked for");
    for (name, path, field) in [
        ("drift", "/api/v1/namespaces/default/configmaps/conf", canary("ConfigMap data")),
        ("secret", "/api/v1/namespaces/default/secrets/live", &STANDARD.encode(canary("live Secret"))),
    ] {
        assert!(served.get(path).to_string().contains(field), "{name}: it is live");
    }
}
