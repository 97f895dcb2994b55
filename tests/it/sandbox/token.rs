//! A sandbox that stands before a real API server answers only to who knows the token of its folder. What is real here is
//! another sandbox's cluster.

use axum::body::Body;
use sandbox::{Options, Sandbox};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::sandbox_server::{CommandOutput, FAST, SandboxServer, User};

const CLUSTERS: &str = "/v1/projects/demo/locations/us-central1-c/clusters";

/// A cluster, once it has an address, and its kubeconfig.
fn with_cluster(sandbox: &Sandbox) -> Value {
    let body = json!({ "cluster": { "name": "c", "initialNodeCount": 1 } }).to_string();
    let request = http::Request::post(CLUSTERS).header("content-type", "application/json");
    let request = request.body(Body::from(body)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let answer = sandbox.gke_router().oneshot(request).await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.status());
        loop {
            let cluster = sandbox.clusters().pop();
            if let Some(found) = cluster.and_then(|cluster| sandbox.kubeconfig(&cluster)) {
                return found;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
}

fn write(user: &User, name: &str, text: &str) -> String {
    std::fs::write(user.path().join(name), text).unwrap();
    user.path().join(name).display().to_string()
}

/// A command without the variables that name a token.
fn without_token(user: &User, words: &[&str]) -> CommandOutput {
    let mut command = user.command(words);
    command.env_remove("DASK_INFRA_SANDBOX_TOKEN_FILE");
    CommandOutput::of(&command.output().unwrap())
}

#[test]
fn before_a_real_server_only_who_knows_the_token_is_answered() {
    let real = SandboxServer::fast();
    let behind = with_cluster(&real.sandbox);
    assert_eq!(real.sandbox.token(), None, "a simulated one asks for nothing");
    let folder = tempfile::tempdir().unwrap();
    let user = User::empty();
    let kubeconfig = write(&user, "real.kubeconfig", &behind.to_string());
    let options = Options {
        scale: FAST,
        kubernetes: Some(kubeconfig.into()),
        dir: Some(folder.path().join("box")),
        ..Options::default()
    };
    let served = SandboxServer::with(options);
    let given = with_cluster(&served.sandbox);
    let token = served.sandbox.token().unwrap().to_owned();
    assert_eq!(given["users"][0]["user"]["token"], *token);
    let kept = folder.path().join("box/access-token");
    assert_eq!(std::fs::read_to_string(&kept).unwrap().trim(), token);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(std::fs::metadata(&kept).unwrap().permissions().mode() & 0o777, 0o600);
    }

    // The Kubernetes API, by kubeconfig.
    let stack = |kubeconfig: &str| {
        format!("[stack]\nname = \"s\"\n\n[kubernetes]\nkubeconfig = \"{kubeconfig}\"\n\n[namespace.team]\n")
    };
    write(&user, "good", &given.to_string());
    write(&user, "bad", &given.to_string().replace(&token, "sandbox"));
    write(&user, "stack.toml", &stack("bad"));
    for words in [["plan", "--json"].as_slice(), &["apply", "--auto-approve"], &["destroy", "--auto-approve"]]
    {
        user.run(words).expect(1).says("DI0601");
    }
    write(&user, "stack.toml", &stack("good"));
    user.run(&["apply", "--auto-approve"]).expect(0).says("1 added");
    user.run(&["plan", "--detailed-exitcode"]).expect(0);

    // GKE, and the cluster that it names.
    let there = User::empty_at(&served.gke);
    let gke = "[stack]\nname = \"t\"\n\n[gke]\nproject = \"demo\"\nlocation = \"us-central1-c\"\n\n[cluster]\nname = \"c\"\nmanage = false\n\n[namespace.more]\n";
    write(&there, "stack.toml", gke);
    without_token(&there, &["plan"]).expect(1).says("asks for the token in its folder");
    there.run(&["apply", "--auto-approve"]).expect(0).says("1 added");
    let said = without_token(&there, &["sandbox", "kubeconfig", "c", "--dir", "nowhere"]);
    assert_eq!(said.code, 1);

    // The configurations of `sandbox env` and `sandbox kubeconfig` have the token.
    let dir = folder.path().join("box").display().to_string();
    let env = user.run(&["sandbox", "env", "--dir", &dir]).expect(0).out;
    assert!(env.contains(&format!("export DASK_INFRA_SANDBOX_TOKEN_FILE={}\n", kept.display())), "{env}");
    assert_eq!(std::fs::read_to_string(&kept).unwrap().trim(), token, "it stays");
    let mut command = user.command(&["sandbox", "kubeconfig", "c", "--dir", &dir]);
    let written =
        CommandOutput::of(&command.env("GOOGLE_CLOUD_PROJECT", "demo").output().unwrap()).expect(0).out;
    let written: Value = serde_json::from_str(&written).unwrap();
    assert_eq!(written["users"][0]["user"]["token"], *token);
    without_token(
        &user,
        &[
            &format!("--sandbox={dir}"),
            "import",
            "--project",
            "demo",
            "--location",
            "us-central1-c",
            "--cluster",
            "c",
            "--out",
            "-",
        ],
    )
    .expect(0);
}
