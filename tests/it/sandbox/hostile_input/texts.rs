//! Texts that users and their tools write: stacks, manifests, charts, kubeconfigs, command lines, addresses, flags.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dask_infra::report::Reporter as _;
use live::KubeconfigAccess;
use live::kube::Kubernetes;
use model::address::{Address, FieldPath};
use model::diag::{Code, Diagnostic};
use model::quantity::Quantity;
use model::secrets;
use model::source::Sources;
use sandbox::backing::Backing;
use sandbox::faults::file as faults;
use serde_json::{Value, json};
use stack::charts::{Helm, Render, Rendered, Trouble};
use stack::effective::Effective;
use stack::lower::{check, lower};
use stack::{Options as Load, parse_in};

use super::{check_messages, check_terminal_safe, rendered_output};
use crate::golden::root;

pub fn env(name: &str) -> Option<String> {
    ["GOOGLE_CLOUD_PROJECT", "HF_TOKEN", "X"].contains(&name).then(|| format!("value of {name}"))
}

pub fn load(folder: &Path, text: &str) -> Result<(), String> {
    load_with(folder, text, None)
}

fn load_with(folder: &Path, text: &str, helm: Option<&Helm<'_>>) -> Result<(), String> {
    let vars = BTreeMap::new();
    match parse_in(folder, "stack.toml", text, &Load { env: &env, vars: &vars, helm }) {
        Err(failure) => check_messages(&failure.diagnostics, &failure.sources),
        Ok(loaded) => {
            check_messages(&loaded.warnings, &loaded.sources)?;
            let lowered = lower(&loaded.stack, true);
            check_messages(&check(&lowered.resources, &loaded.sources), &loaded.sources)?;
            let effective = Effective::new(&loaded.stack, &loaded.sources, &lowered);
            if effective.toml(true).is_empty() { Err("nothing is effective".into()) } else { Ok(()) }
        }
    }
}

fn files(folder: &Path, ending: &str) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut names: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    names.sort();
    for name in names {
        if name.is_dir() {
            found.extend(files(&name, ending));
        } else if name.extension().is_some_and(|end| end == ending)
            && fs::metadata(&name).unwrap().len() < 6000
        {
            found.push(fs::read(&name).unwrap());
        }
    }
    found
}

pub fn stacks() -> Vec<Vec<u8>> {
    let cases = files(&root().join("tests/cases"), "toml");
    let own = [
        "a.b.c = 1\nstack.name = \"s\"\nstack.\"id\" = 'x'\n[kubernetes]\ncontext = \"k\"\n",
        "[stack]\nname = \"s\"\n\n[kubernetes]\ncontext = \"k\"\n\n[namespace]\nn.labels.\"a/b\" = \"c\"\nm = { labels.x = \"y\" }\n",
        "[stack]\nname = \"${var.a}\"\n\n[vars]\na = \"${var.b}\"\nb = \"${var.a}${env.X}\"\n\n[kubernetes]\ncontext = \"k\"\n",
    ];
    let own = own.map(|text| text.as_bytes().to_vec());
    own.into_iter().chain(ready_stacks()).chain(cases.into_iter().step_by(4)).collect()
}

pub fn ready_stacks() -> Vec<Vec<u8>> {
    files(&root().join("stacks"), "toml")
}

pub fn stack(bytes: &[u8], folder: &Path) -> Result<(), String> {
    std::str::from_utf8(bytes).map_or(Ok(()), |text| load(folder, text))
}

pub fn manifests() -> Vec<Vec<u8>> {
    let own =
        [
            "apiVersion: v1\nkind: Secret\nmetadata: { name: a, labels: text, annotations: text }\ndata: text\nstringData: { a: b }\n",
            "apiVersion: v1\nkind: Secret\nmetadata: { name: a, labels: [a] }\ndata: [a]\nstringData: { a: b }\nspec: text\n",
            "apiVersion: v1\nkind: ConfigMap\nmetadata: &m\n  name: a\n  labels: { <<: &l { a: b }, c: d }\ndata:\n  <<: *l\n  x: !!str 1\n",
            "&a [*a]\n",
            "apiVersion: v1\nkind: List\nitems:\n- &a\n  apiVersion: v1\n  kind: ConfigMap\n  metadata: { name: a }\n- <<: *a\n  metadata: { name: b }\n",
        ]
        .map(|text| text.as_bytes().to_vec());
    let cases = files(&root().join("tests/cases"), "yaml");
    own.into_iter().chain([bomb().into_bytes()]).chain(cases).collect()
}

/// Nine lists of nine aliases to the one before: 9^9 items, were they all made.
fn bomb() -> String {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..9 {
        text.push_str(&format!("a{level}: &a{level} [{}]\n", vec![format!("*a{}", level - 1); 9].join(", ")));
    }
    text
}

pub fn manifest(bytes: &[u8], folder: &Path) -> Result<(), String> {
    fs::write(folder.join("m.yaml"), bytes).unwrap();
    load(
        folder,
        "[stack]\nname = \"m\"\n\n[kubernetes]\ncontext = \"kind\"\n\n[manifest.m]\nfile = \"m.yaml\"\n",
    )
}

pub fn paths() -> Vec<Vec<u8>> {
    [
        "node_pool.a100.labels.\"a/b\"",
        "spec.containers[0].env[12].value",
        "dask_cluster.c/Service/default/x",
        "",
        "a[b",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

pub fn path(bytes: &[u8], _: &Path) -> Result<(), String> {
    let text = String::from_utf8_lossy(bytes);
    let path: FieldPath = text.parse().unwrap();
    let again: FieldPath = path.to_string().parse().unwrap();
    let address = Address::new(text.clone());
    if !address.ends_with(&text) || !text.starts_with(address.section()) {
        return Err("an address does not end with itself".into());
    }
    if again == path { Ok(()) } else { Err(format!("{path} does not come back")) }
}

pub fn words() -> Vec<Vec<u8>> {
    let mut seeds: Vec<Vec<u8>> =
        ["500m", "1.5Gi", "1e3", "-0.1k", "12E", "us-central1-c:nvidia-tesla-t4:2", "us-central1:a100=3"]
            .map(|text| text.as_bytes().to_vec())
            .to_vec();
    seeds.push(b"[[stockout]]\nlocation = \"us-central1-c\"\nmachine_type = \"a2-highgpu-1g\"\nfor = \"10m\"\n\n[[request]]\npath = \"x\"\nstatus = 503\n".to_vec());
    seeds
}

pub fn word(bytes: &[u8], _: &Path) -> Result<(), String> {
    let text = String::from_utf8_lossy(bytes);
    let number = Quantity::parse(&text);
    if number.is_some() && text.trim().is_empty() {
        return Err("an empty quantity is a number".into());
    }
    let _ = (faults::stockout_flag(&text), faults::quota_flag(&text));
    match faults::parse(&text) {
        Ok(_) => Ok(()),
        Err(problems) => {
            let outside = problems.iter().find(|problem| problem.at.end > text.len());
            outside.map_or(Ok(()), |problem| Err(format!("{:?} is outside of the file", problem.at)))
        }
    }
}

pub fn texts() -> Vec<Vec<u8>> {
    let mut seeds = files(&root().join("tests/cases/diag-literal-secrets"), "toml");
    seeds.extend(files(&root().join("tests/cases/diag-literal-secrets-manifest"), "yaml"));
    seeds.push(b"name: PASSWORD value: \"}\nvalue: s\npassword: |\n  a\n  b\npasswords: [a, b]\n".to_vec());
    seeds.push(br#"{"auths":{"r":{"auth":"bWU6eA==","identitytoken":"x"}}}"#.to_vec());
    seeds.push(br#"{"env":[{"name":"DB_PASSWORD","value":"abc"}],"url":"https://a:b@c/?token=d","x":"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.abc"}"#.to_vec());
    seeds
}

pub fn text(bytes: &[u8], _: &Path) -> Result<(), String> {
    let text = String::from_utf8_lossy(bytes);
    if secrets::starred(&text, &secrets::Secrets::default()).len() != text.len() {
        return Err("stars take another room".into());
    }
    let once = secrets::masked(&json!({ "a": [text] }));
    let twice = secrets::masked(&once);
    if twice != once {
        return Err(format!("a second look hides more: {once} is {twice}"));
    }
    Ok(())
}

const RELEASE: &str = "[stack]\nname = \"h\"\n\n[kubernetes]\ncontext = \"kind\"\n\n[helm_release.r]\nchart = \"./chart\"\nnamespace = \"n\"\n";

pub fn values() -> Vec<Vec<u8>> {
    let mut seeds = files(&root().join("tests/charts"), "yaml");
    seeds.push(bomb().into_bytes());
    seeds.push(b"image: { tag: &t 1.0, repository: x }\nenv:\n- { name: DB_PASSWORD, value: *t }\nscheduler: &s { a: null }\nworker: { <<: *s }\n".to_vec());
    seeds
}

/// A file of values, for a chart that shows all that it is given.
pub fn value_file(bytes: &[u8], folder: &Path) -> Result<(), String> {
    fs::write(folder.join("values.yaml"), bytes).unwrap();
    let helm = |render: &Render| {
        let shown = json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "given" },
            "data": { "values": Value::Object(render.values.clone()).to_string() } });
        Ok(Rendered { text: shown.to_string(), again: shown.to_string() })
    };
    load_with(
        folder,
        &format!("{RELEASE}values_files = [\"values.yaml\"]\nvalues = {{ a = 1 }}\n"),
        Some(&helm),
    )
}

/// The output of `helm template`, and its error when it fails.
pub fn rendered(bytes: &[u8], folder: &Path) -> Result<(), String> {
    let text = String::from_utf8_lossy(bytes).into_owned();
    let helm = |_: &Render| Ok(Rendered { text: text.clone(), again: text.to_uppercase() });
    load_with(folder, RELEASE, Some(&helm))?;
    let helm = |_: &Render| Err(Trouble::Said(text.clone()));
    load_with(folder, RELEASE, Some(&helm))
}

pub fn kubeconfigs() -> Vec<Vec<u8>> {
    let authority = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let authority = STANDARD.encode(authority.cert.pem());
    let file = |user: &str, server: &str| {
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: a\nclusters:\n- name: c\n  cluster:\n    server: {server}\n    \
             certificate-authority-data: {authority}\ncontexts:\n- name: a\n  context: {{ cluster: c, user: u, namespace: n }}\n\
             users:\n- name: u\n  user:\n    {user}\n"
        )
    };
    [
        file("token: abc", "https://127.0.0.1:6443"),
        file("{ username: me, password: abc }", "http://example.com"),
        file("tokenFile: token", "https://me:abc@localhost:1/x"),
        file(
            "exec: { apiVersion: client.authentication.k8s.io/v1, command: no-such-program, args: [a] }",
            "https://[::1]:1",
        ),
        file("auth-provider: { name: gcp, config: { cmd-path: no-such-program } }", "https://127.0.0.1"),
    ]
    .map(String::into_bytes)
    .to_vec()
}

/// Both readers: the program's own, and that of the sandbox for a real API server.
pub fn kubeconfig(bytes: &[u8], folder: &Path) -> Result<(), String> {
    let path = folder.join("k.yaml");
    fs::write(&path, bytes).unwrap();
    let access = KubeconfigAccess { path: Some(path.clone()), context: None }.pinned();
    for doubt in access.insecure_access() {
        says(&doubt.to_string())?;
    }
    // A program that a file names is not run here.
    if access.references().programs.is_empty() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        if let Err(why) = runtime.block_on(Kubernetes::kubeconfig(&access)) {
            says(&why)?;
            if !why.contains("k.yaml") {
                return Err(format!("no place: {why}"));
            }
        }
    }
    match Backing::new(&path) {
        Ok(_) => Ok(()),
        Err(why) if why.to_string().contains("k.yaml") => says(&why.to_string()),
        Err(why) => Err(format!("no place: {why}")),
    }
}

fn says(words: &str) -> Result<(), String> {
    let told = Diagnostic::error(Code::FileNotRead, words);
    rendered_output(|human| human.diagnostics(&[told], &Sources::default())).map(drop)
}

pub fn lines() -> Vec<Vec<u8>> {
    [
        "plan\n--target\nnode_pool.a\n--exclude\nmanifest.b/ConfigMap/x\n--json",
        "apply\n--allow\ndelete:node_pool.a\n--replace\ndask_cluster.c\n--auto-approve\n-v",
        "scale\ndask_cluster.c\n2\n--var\na=b\n--stack=x",
        "connect\ndask_cluster.c\n--port\n8787",
        "logs\nmanifest.m\n--since\n10m\n--tail=5",
        "sandbox\nserve\n--quota\nNVIDIA_T4_GPUS=1\n--stockout=us-central1-c:x:2",
        "-chdir=x\nplan\n-out=y",
        "--sandbox=b\nstatus\n--color\nnever\n--watch",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

/// A command line, a word in each line.
pub fn line(bytes: &[u8], _: &Path) -> Result<(), String> {
    use std::os::unix::ffi::OsStringExt as _;
    let words = bytes.split(|byte| *byte == b'\n').map(|word| OsString::from_vec(word.to_vec()));
    let Some(text) = dask_infra::cli::parse_error([OsString::from("dask-infra")].into_iter().chain(words))
    else {
        return Ok(());
    };
    // Colours are the parser's own.
    check_terminal_safe(&anstream::adapter::strip_str(&text).to_string())
}
