//! Secrets that come from the environment of whoever applies (`{ secret = "env:NAME" }`): written into the cluster, told
//! apart, and seen nowhere.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::sandbox::secret_leaks::LOOKS;
use crate::sandbox_server::{CommandOutput, ON_GKE, SandboxServer, User};

const STACK: &str = r#"
[dask_operator]
version = "2026.3.0"

[dask_cluster.c]
image = "ghcr.io/dask/dask:2026.3.0-py3.12"
worker = { replicas = 1, env = { HF_TOKEN = { secret = "env:HUB_TOKEN" } } }

[manifest.m]
file = "m.yaml"

[manifest.other]
file = "other.yaml"
"#;

const MANIFEST: &str = "apiVersion: v1\nkind: Secret\nmetadata: { name: web, namespace: default }\n\
    stringData: { harmless: \"env:PLAIN\" }\n";
const OTHER: &str =
    "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: other, namespace: default }\ndata: { a: b }\n";

const OWN: &str = "/api/v1/namespaces/default/secrets/s-env";
const WEB: &str = "/api/v1/namespaces/default/secrets/web";

const FIRST: &str = "Given01-hub-Qx91";
const SECOND: &str = "Given02-hub-Qx92";
const PLAIN: &str = "Given03-plain-Qx93";
const BY_HAND: &str = "Given04-hand-Qx94";

struct LeakCheck {
    served: SandboxServer,
    user: User,
    looked_at: usize,
}

impl LeakCheck {
    /// Runs the program with the token, or without one, and looks through all that it says.
    #[track_caller]
    fn run(&mut self, token: Option<&str>, words: &[&str]) -> CommandOutput {
        let mut command = self.user.command(words);
        command.env_remove("HUB_TOKEN").env("PLAIN", PLAIN);
        if let Some(token) = token {
            command.env("HUB_TOKEN", token);
        }
        let said = CommandOutput::of(&command.output().unwrap());
        self.look(&words.join(" "), &format!("{}{}", said.out, said.err));
        said
    }

    #[track_caller]
    fn look(&mut self, what: &str, text: &str) {
        self.looked_at += 1;
        for canary in [FIRST, SECOND, PLAIN, BY_HAND] {
            for form in [canary.to_owned(), STANDARD.encode(canary), STANDARD.encode(canary)[..12].to_owned()]
            {
                assert!(!text.contains(&form), "{form} in {what}:\n{text}");
            }
        }
    }

    fn live(&self, path: &str, key: &str) -> Value {
        self.served.get(path)["data"][key].clone()
    }

    fn file(&mut self, name: &str) {
        let text = std::fs::read_to_string(self.user.path().join(name)).unwrap();
        assert!(text.contains("HUB_TOKEN"), "{name} says where it comes from");
        self.look(name, &text);
    }
}

fn start() -> LeakCheck {
    let served = SandboxServer::fast();
    let user = User::at(&served, format!("{ON_GKE}{STACK}"));
    for (name, text) in [("m.yaml", MANIFEST), ("other.yaml", OTHER)] {
        std::fs::write(user.path().join(name), text).unwrap();
    }
    LeakCheck { served, user, looked_at: 0 }
}

fn encoded(text: &str) -> Value {
    STANDARD.encode(text).into()
}

#[test]
fn a_secret_of_the_environment_is_written_and_told_apart_and_never_shown() {
    let mut at = start();
    // Commands that need no value do not ask for one.
    at.run(None, &["validate"]).expect(0);
    at.run(None, &["plan", "--offline"]).expect(0);
    for words in [&["plan"][..], &["apply", "--auto-approve"], &["plan", "--out", "p"]] {
        let said = at.run(None, words).expect(1).says("DI0110").says("HUB_TOKEN");
        said.says("stack.toml:19");
    }
    at.run(Some(""), &["plan"]).expect(1).says("DI0110");

    // A saved plan has no value in it, and holds for one value.
    at.run(Some(FIRST), &["plan", "-v", "--out", "p"]).expect(0).says("HUB_TOKEN");
    at.file("p");
    at.run(Some(SECOND), &["apply", "p"]).expect(4).says("the environment variable `HUB_TOKEN`");
    at.run(None, &["apply", "p"]).expect(1).says("DI0110").says("HUB_TOKEN");
    assert!(at.served.sandbox.clusters().is_empty(), "nothing was begun");
    at.run(Some(FIRST), &["apply", "p", "-v"]).expect(0);
    assert_eq!(at.live(OWN, "HUB_TOKEN"), encoded(FIRST));
    assert_eq!(at.live(WEB, "harmless"), encoded(PLAIN));
    let cluster = at.served.get("/apis/kubernetes.dask.org/v1/namespaces/default/daskclusters/c");
    let reference = &cluster["spec"]["worker"]["spec"]["containers"][0]["env"][0]["valueFrom"];
    assert_eq!(*reference, json!({ "secretKeyRef": { "name": "s-env", "key": "HUB_TOKEN" } }));

    // An equal value is no change, another one is.
    at.run(Some(FIRST), &["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    let changed = at.run(Some(SECOND), &["plan", "--detailed-exitcode"]).expect(2);
    let changed = changed.says("data.HUB_TOKEN").says("only an apply sends values");
    let words: Vec<&str> = changed.out.split_whitespace().collect();
    let words = words.join(" ");
    assert!(words.contains("\"(sensitive value)\" -> \"(sensitive value)\""), "{words}");
    assert!(words.contains("running Pods keep the old value"), "{words}");
    at.run(Some(FIRST), &["plan", "--out", "kept"]).expect(0);
    at.run(Some(SECOND), &["plan", "--out", "p"]).expect(0);
    at.file("p");
    for token in [Some(FIRST), Some(SECOND)] {
        for words in LOOKS {
            at.run(token, words);
        }
    }
    for words in [["show", "p", "-v"], ["show", "p", "--json"]] {
        at.run(None, &words).expect(0);
    }
    at.run(Some(FIRST), &["apply", "p"]).expect(4);
    assert_eq!(at.live(OWN, "HUB_TOKEN"), encoded(FIRST));
    at.run(Some(SECOND), &["apply", "p", "--json"]).expect(0);
    assert_eq!(at.live(OWN, "HUB_TOKEN"), encoded(SECOND));
    at.run(Some(SECOND), &["plan", "--detailed-exitcode"]).expect(0);

    // A foreign edit is reverted, and reported without its value.
    at.served.merge(OWN, &json!({ "data": { "HUB_TOKEN": encoded(BY_HAND) } }));
    at.run(Some(SECOND), &["plan", "--refresh-only"])
        .expect(2)
        .says("data.HUB_TOKEN")
        .says("(sensitive value)");
    at.run(Some(SECOND), &["plan", "--refresh-only", "--json"]).expect(2);
    at.run(Some(SECOND), &["apply", "--auto-approve", "-v"]).expect(0).says("1 changed");
    assert_eq!(at.live(OWN, "HUB_TOKEN"), encoded(SECOND));

    // An API that sends back what it was sent.
    let records = at.served.get("/api/v1/namespaces/dask-infra/configmaps").to_string();
    at.look("record", &records);
    at.look("events", &at.served.get("/api/v1/events").to_string());

    // Gone from the file, gone from the cluster; a destroy needs no value.
    at.user.edit("env = { HF_TOKEN = { secret = \"env:HUB_TOKEN\" } }", "env = {}");
    let allow = ["--allow", "replace:dask_cluster.c", "--allow", "delete:stack"];
    let words = [&["apply", "--auto-approve"][..], &allow].concat();
    at.run(None, &words).expect(0);
    assert_eq!(at.served.get(OWN)["kind"], "Status");
    at.run(None, &["plan", "--destroy", "-v"]).expect(0);
    at.run(None, &["destroy", "--auto-approve"]).expect(0);
    assert!(at.looked_at > 80, "{}", at.looked_at);
}
