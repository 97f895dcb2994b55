//! Dry runs of a plan on a real API server: what its policies, quotas and rules refuse stands in the plan, with its line.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::block_in_place;

use crate::real::{Client, ControlPlane, PATIENCE, Part, needs};
use crate::sandbox_server::{CommandOutput, User};

const ADMISSION: &str = "/apis/admissionregistration.k8s.io/v1";
const TEAM: &str = "/api/v1/namespaces/team";

const STACK: &str = r#"[stack]
name = "s"

[kubernetes]
kubeconfig = "KUBECONFIG"

[namespace.team]

[manifest.all]
file = "all.yaml"
"#;

/// The objects before the plan.
const FIRST: &str = "\
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata:
  name: urgent
value: 10
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: kept
  namespace: team
data:
  a: one
";

/// Objects that the server refuses for five reasons, warns about, and accepts.
const SECOND: &str = "\
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata:
  name: urgent
value: 20
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: kept
  namespace: team
data:
  a: two
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: late
  namespace: team
data:
  a: one
---
apiVersion: v1
kind: Service
metadata:
  name: web
  namespace: team
spec:
  selector:
    app: web
  ports:
    - port: 80
---
apiVersion: v1
kind: Service
metadata:
  name: odd
  namespace: team
  labels:
    owner: ann
spec:
  selector:
    app: odd
  ports:
    - port: 70000
      targetPort: web
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: one
  namespace: team
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: two
  namespace: team
---
apiVersion: v1
kind: LimitRange
metadata:
  name: unheard
  namespace: team
spec:
  limits:
    - type: Pod
      max:
        cpu: \"1\"
";

fn run(user: &User, words: &[&str]) -> CommandOutput {
    block_in_place(|| user.run(words))
}

fn policy(name: &str, resource: &str, expression: &str, message: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": name },
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": { "resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": [resource],
            }] },
            "validations": [{ "expression": expression, "message": message }],
        },
    })
}

fn binding(name: &str, action: &str) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": { "name": name },
        "spec": { "policyName": name, "validationActions": [action] },
    })
}

async fn make(client: &Client, collection: &str, object: &Value) {
    let path = format!("{collection}/{}", object["metadata"]["name"].as_str().unwrap());
    let (status, said) = client.apply(&path, "platform", object).await;
    assert_eq!(status, 201, "{said}");
}

/// A policy that denies Services without an owner, one that warns of ServiceAccounts, no room for ConfigMaps, and a webhook for
/// LimitRanges that nobody serves.
async fn platform(client: &Client) {
    let policies = format!("{ADMISSION}/validatingadmissionpolicies");
    let bindings = format!("{ADMISSION}/validatingadmissionpolicybindings");
    let owned = "has(object.metadata.labels) && 'owner' in object.metadata.labels";
    // The one that only warns comes first: the server hears of policies in their order, so that where the other one denies,
    // this one is in effect too.
    make(client, &policies, &policy("accounts", "serviceaccounts", "false", "accounts are counted")).await;
    make(client, &bindings, &binding("accounts", "Warn")).await;
    make(client, &policies, &policy("owners", "services", owned, "each Service has an owner")).await;
    make(client, &bindings, &binding("owners", "Deny")).await;
    make(client, &format!("{TEAM}/resourcequotas"), &quota("0")).await;
    let hook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": { "name": "limits" },
        "webhooks": [{
            "name": "limits.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None", "timeoutSeconds": 1,
            "clientConfig": { "url": "https://127.0.0.1:1/limits" },
            "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["limitranges"] }],
        }],
    });
    make(client, &format!("{ADMISSION}/validatingwebhookconfigurations"), &hook).await;
    for resource in ["services", "configmaps", "limitranges"] {
        until(client, resource, Answer::Refused).await;
    }
}

fn quota(config_maps: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": "small" },
        "spec": { "hard": { "count/configmaps": config_maps } },
    })
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Answer {
    Accepted,
    Refused,
}

/// Waits until the server accepts or refuses a new object: it hears of policies, quotas and webhooks a moment after they are written.
async fn until(client: &Client, resource: &str, wanted: Answer) {
    let mut object = match resource {
        "services" => json!({ "kind": "Service", "spec": { "ports": [{ "port": 80 }] } }),
        "configmaps" => json!({ "kind": "ConfigMap" }),
        "limitranges" => json!({ "kind": "LimitRange" }),
        other => unreachable!("no object for {other}"),
    };
    object["apiVersion"] = json!("v1");
    object["metadata"] = json!({ "name": "probe" });
    let path = format!("{TEAM}/{resource}?dryRun=All");
    let mut last = Value::Null;
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        let (status, said) = client.send(Method::POST, &path, "application/json", &object).await;
        let answer = if status < 400 { Answer::Accepted } else { Answer::Refused };
        // A quota without numbers refuses in other words.
        if answer == wanted && !said.to_string().contains("status unknown") {
            return;
        }
        last = said;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{resource}: not {wanted:?}: {last}");
}

async fn versions(client: &Client) -> Vec<Value> {
    let mut found = Vec::new();
    let paths =
        ["configmaps", "services", "serviceaccounts", "limitranges"].map(|name| format!("{TEAM}/{name}"));
    for path in paths.into_iter().chain(["/apis/scheduling.k8s.io/v1/priorityclasses".to_owned()]) {
        let list = client.get(&path).await.1;
        let of = |item: &Value| json!([item["metadata"]["uid"], item["metadata"]["resourceVersion"]]);
        found.extend(list["items"].as_array().unwrap().iter().map(of));
    }
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_says_what_the_server_will_refuse() {
    needs!(Part::CONTROL_PLANE);
    let plane = ControlPlane::start().await;
    let client = plane.client();
    let user = User::empty();
    let manifest = user.path().join("all.yaml");
    std::fs::write(&manifest, FIRST).unwrap();
    user.write(STACK.replace("KUBECONFIG", &plane.access().kubeconfig.to_string_lossy()));
    let first = run(&user, &["plan"]).expect(0);
    let first = first.says("Not tried on the API server: 1 object (the plan creates namespace team)");
    drop(first);
    run(&user, &["apply", "--auto-approve"]).expect(0).says("3 added");
    platform(&client).await;

    std::fs::write(&manifest, SECOND).unwrap();
    let before = versions(&client).await;
    let plan = run(&user, &["plan"]).expect(1);
    println!("{}\n{}", plan.out, plan.err);
    let place = |text: &str| plan.err.find(text).unwrap_or_else(|| panic!("no {text:?} in\n{}", plan.err));
    let found = [
        ("PriorityClass urgent: value: Forbidden", "all.yaml:5:8"),
        ("ConfigMap team/late: exceeded quota: small", "all.yaml:15:1"),
        ("Service team/web: ValidatingAdmissionPolicy 'owners'", "all.yaml:23:1"),
        ("Service team/odd: spec.ports[0].port: Invalid value: 70000", "all.yaml:45:13"),
    ];
    let words = plan.err.split_whitespace().filter(|word| *word != "|").collect::<Vec<_>>().join(" ");
    let mut last = 0;
    for (what, line) in found {
        assert!(words.contains(what), "no {what:?} in\n{}", plan.err);
        assert!(place(line) > last, "{line} is not in the order of the file:\n{}", plan.err);
        last = place(line);
    }
    assert_eq!(words.matches("error[DI0436]").count(), found.len(), "{}", plan.err);
    assert_eq!(words.matches("warning[DI0437]").count(), 1, "{}", plan.err);
    assert!(words.contains("ServiceAccount team/one and 1 more object: Validation failed"), "{}", plan.err);
    let out = plan.out.split_whitespace().collect::<Vec<_>>().join(" ");
    let silent =
        "Not tried on the API server: 1 object (admission webhook limits.example.com does not answer)";
    assert!(out.contains(silent), "{}", plan.out);

    run(&user, &["plan", "--out", "p.plan"]).expect(1);
    let late = run(&user, &["apply", "p.plan"]).expect(1).says("(all.yaml:").says("DI0436");
    drop(late.says("`--skip-dry-run` goes on"));
    run(&user, &["apply", "--auto-approve"]).expect(1).says("DI0436");
    assert_eq!(versions(&client).await, before, "nothing was written");
    run(&user, &["plan", "--skip-dry-run"]).expect(0);
    run(&user, &["plan", "--offline"]).expect(0);

    // What is left when all of it is mended.
    client.delete(&format!("{ADMISSION}/validatingwebhookconfigurations/limits")).await;
    // A quota is raised and not deleted: for 30 s the server may go by one that it read itself and that is gone since
    // (`liveLookupCache` of its quota admission).
    client.apply(&format!("{TEAM}/resourcequotas/small"), "platform", &quota("100")).await;
    until(&client, "configmaps", Answer::Accepted).await;
    until(&client, "limitranges", Answer::Accepted).await;
    let mended = SECOND
        .replace("value: 20", "value: 10")
        .replace(
            "  name: web\n  namespace: team\n",
            "  name: web\n  namespace: team\n  labels: { owner: ann }\n",
        )
        .replace("port: 70000", "port: 81");
    std::fs::write(&manifest, mended).unwrap();
    run(&user, &["apply", "--auto-approve"]).expect(0).says("6 added, 1 changed");
    run(&user, &["plan", "--detailed-exitcode"]).expect(0);
}
