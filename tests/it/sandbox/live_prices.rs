//! `--prices live` and `--prices billingAccounts/ID` against a stand-in for Google's Cloud Billing API on loopback.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::Request;
use http::{StatusCode, header};
use serde_json::{Value, json};

use crate::sandbox_server::{CommandOutput, ON_GKE, SandboxServer, User};

const PAGES: [&str; 3] = [
    include_str!("../../data/cloud-billing/compute-1.json"),
    include_str!("../../data/cloud-billing/compute-2.json"),
    include_str!("../../data/cloud-billing/kubernetes.json"),
];
const ACCOUNT: &str = include_str!("../../data/cloud-billing/account.json");
const ACCOUNT_NAME: &str = "billingAccounts/012345-6789AB-CDEF01";

type Answer = (StatusCode, &'static str, String);

/// A stand-in for the Cloud Billing API: answers in turn, the last one again and again, and what was asked.
struct CloudBilling {
    url: String,
    answers: Arc<Mutex<Vec<Answer>>>,
    asked: Arc<Mutex<Vec<String>>>,
    _runtime: tokio::runtime::Runtime,
}

impl CloudBilling {
    fn new(answers: Vec<Answer>) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (answers, asked) = (Arc::new(Mutex::new(answers)), Arc::<Mutex<Vec<String>>>::default());
        let (left, log) = (Arc::clone(&answers), Arc::clone(&asked));
        let answer = move |request: Request| {
            assert!(!request.headers().contains_key(header::AUTHORIZATION), "a stand-in gets no credentials");
            log.lock().unwrap().push(request.uri().to_string());
            let mut left = left.lock().unwrap();
            let (status, media, body) = if left.len() > 1 { left.remove(0) } else { left[0].clone() };
            async move { (status, [(header::CONTENT_TYPE, media)], body) }
        };
        runtime.spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await });
        Self { url, answers, asked, _runtime: runtime }
    }

    /// Starts with the recorded pages.
    fn with_pages() -> Self {
        Self::new(PAGES.iter().map(|page| found(page)).collect())
    }

    /// Answers otherwise from now on, and forgets what was asked.
    fn answer(&self, answers: Vec<Answer>) {
        *self.answers.lock().unwrap() = answers;
        self.asked.lock().unwrap().clear();
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

fn found(body: &str) -> Answer {
    (StatusCode::OK, "application/json", body.to_owned())
}

fn refused(status: StatusCode, error: &Value) -> Answer {
    (status, "application/json", json!({ "error": error }).to_string())
}

/// A user with a cluster and two nodes in us-central1, whose cache is in its folder.
fn user(served: &SandboxServer, billing: &CloudBilling) -> User {
    let stack = ON_GKE.replace("e2-standard-8\"", "e2-standard-8\"\nnodes = 2");
    let user = User::at(served, stack);
    let cache = user.path().join("cache");
    user.set("DASK_INFRA_BILLING_ENDPOINT", billing.url.clone().into()).set("XDG_CACHE_HOME", cache)
}

fn kept(user: &User) -> PathBuf {
    user.path().join("cache/dask-infra/prices-stand-in-us-central1.tsv")
}

/// Two nodes for 0.268 with a disk for 1.4 cents, and the fee.
const SUM: &str = "Cost: $0.66/h as planned";
const SOURCE: &str = "(Cloud Billing)";

fn summary(said: &CommandOutput) -> Value {
    let mut last = said.out.lines().rev().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    last.find(|line| line["type"] == "change_summary").unwrap()
}

/// Fails unless this was said, wherever its lines were wrapped.
#[track_caller]
fn assert_said(said: &CommandOutput, text: &str) {
    let all = format!("{}\n{}", said.out, said.err);
    let words: Vec<&str> = all.split_whitespace().filter(|word| *word != "|").collect();
    assert!(words.join(" ").contains(text), "no {text:?} in:\n{all}");
}

#[test]
fn prices_are_read_once_kept_privately_and_used_as_a_file() {
    let (served, billing) = (SandboxServer::fast(), CloudBilling::with_pages());
    let user = user(&served, &billing);
    user.run(&["plan", "--prices", "live"]).expect(0).says(SUM).says("prices of us-central1, ").says(SOURCE);
    let asked = billing.asked();
    assert_eq!(asked.len(), 3, "{asked:?}");
    assert!(asked[1].contains("pageToken=page+two"), "{asked:?}");
    let mode = fs::metadata(kept(&user)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // From here on nobody is asked.
    billing.answer(vec![(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", String::new())]);
    let said = user.run(&["plan", "--prices", "live", "--json"]).expect(0);
    let cost = &summary(&said)["cost"];
    assert_eq!(
        (&cost["prices_from"], &cost["after"]["usd_per_hour"]),
        (&json!("Cloud Billing"), &json!(0.6635))
    );
    user.run(&["plan", "--prices", "live", "--offline"]).expect(0).says(SUM).says(SOURCE);
    let file = kept(&user).display().to_string();
    user.run(&["plan", "--prices", &file]).expect(0).says(SUM).says(SOURCE);
    user.run(&["plan", "--prices", "live", "--out", "p"]).expect(0);
    // The plan has its prices; neither the API nor the file is needed any more.
    fs::remove_file(kept(&user)).unwrap();
    user.run(&["apply", "p"]).expect(0).says(SUM).says(SOURCE);
    assert_eq!(billing.asked(), Vec::<String>::new());
    billing.answer(PAGES.iter().map(|page| found(page)).collect());
    let said = user.run(&["status", "--prices", "live"]).expect(0);
    said.says("Running cost: $0.66/h").says(SOURCE);
    let said = user.run(&["status", "--prices", "live", "--json"]).expect(0);
    let status: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(status["running_cost"]["prices_from"], "Cloud Billing");
    user.run(&["plan", "--prices", "live", "--detailed-exitcode"]).expect(0).says("unchanged");
    assert_eq!(billing.asked().len(), 3);
}

#[test]
fn broken_and_old_kept_prices_are_read_again() {
    let (served, billing) = (SandboxServer::fast(), CloudBilling::with_pages());
    let user = user(&served, &billing);
    let read_again = |what: &str| {
        billing.answer(PAGES.iter().map(|page| found(page)).collect());
        user.run(&["plan", "--prices", "live"]).expect(0).says(SUM).says(SOURCE);
        assert_eq!(billing.asked().len(), 3, "{what}");
        fs::read_to_string(kept(&user)).unwrap()
    };
    let text = read_again("nothing is kept");
    let old = old(&text);
    for (what, text) in [
        ("broken", "date\tnever\n".to_owned()),
        ("empty", String::new()),
        ("old", old),
        ("of another region", text.replace("us-central1", "us-east1")),
        ("of another source", text.replace("Cloud Billing\n", "my own\n")),
    ] {
        fs::write(kept(&user), text).unwrap();
        assert!(!read_again(what).contains("my own"), "{what}");
    }
}

/// The same prices, of another day.
fn old(text: &str) -> String {
    let dated =
        |line: &str| if line.starts_with("date\t") { "date\t2026-01-02".to_owned() } else { line.to_owned() };
    text.lines().map(dated).collect::<Vec<_>>().join("\n") + "\n"
}

/// An answer that is none, and 429, are tried again; then kept prices of any age do, with their day.
#[test]
fn without_an_answer_older_prices_are_used_with_their_day() {
    let (served, billing) = (SandboxServer::fast(), CloudBilling::with_pages());
    let user = user(&served, &billing);
    let slow = refused(
        StatusCode::TOO_MANY_REQUESTS,
        &json!({ "code": 429, "status": "RESOURCE_EXHAUSTED", "message": "Quota exceeded for quota metric 'Requests' and limit 'Requests per minute'" }),
    );
    let pages = PAGES.iter().map(|page| found(page));
    billing.answer([slow].into_iter().chain(pages).collect());
    user.run(&["plan", "--prices", "live"]).expect(0).says(SUM);
    assert_eq!(billing.asked().len(), 4);
    fs::write(kept(&user), old(&fs::read_to_string(kept(&user)).unwrap())).unwrap();
    let page = (StatusCode::OK, "text/html", "<html>Sign in</html>".to_owned());
    billing.answer(vec![page]);
    let said = user.run(&["plan", "--prices", "live"]).expect(0).says(SUM);
    let said = said
        .says("DI0391")
        .says("those of 2026-01-02 are used")
        .says("us-central1, 2026-01-02 (Cloud Billing)");
    assert!(said.err.contains("warning"), "{}", said.err);
    user.run(&["plan", "--prices", "live", "--offline"]).expect(0).says("those of 2026-01-02 are used");
    fs::remove_file(kept(&user)).unwrap();
    let said = user.run(&["plan", "--prices", "live"]).expect(1);
    said.says("DI0391").says("prices of Cloud Billing cannot be read").says("without `--prices`");
    let said = user.run(&["plan", "--prices", "live", "--offline"]).expect(1);
    said.says("DI0391").says("none of us-central1 are kept");
}

#[test]
fn a_refusal_names_the_right_or_the_api_that_is_missing() {
    let disabled = refused(
        StatusCode::FORBIDDEN,
        &json!({ "code": 403, "status": "PERMISSION_DENIED",
            "message": "Cloud Billing API has not been used in project 123456 before or it is disabled.",
            "details": [{ "@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "SERVICE_DISABLED",
                "metadata": { "service": "cloudbilling.googleapis.com", "consumer": "projects/123456" } }] }),
    );
    let served = SandboxServer::fast();
    let billing = CloudBilling::new(vec![disabled]);
    let user = user(&served, &billing);
    let said = user.run(&["apply", "--auto-approve", "--prices", "live"]).expect(1).says("DI0391");
    said.says("gcloud services enable cloudbilling.googleapis.com --project 123456");
    assert!(served.sandbox.clusters().is_empty());
    assert_eq!(billing.asked().len(), 1, "a refusal is not tried again");

    let denied = json!({ "code": 403, "status": "PERMISSION_DENIED", "message": "The caller does not have permission" });
    let pages = PAGES.iter().map(|page| found(page));
    billing.answer(pages.chain([refused(StatusCode::FORBIDDEN, &denied)]).collect());
    let said = user.run(&["plan", "--prices", ACCOUNT_NAME]).expect(1);
    assert_said(
        &said,
        "permission billing.billingAccountPrices.list is missing on billingAccounts/012345-6789AB-CDEF01",
    );
    assert_said(
        &said,
        "gcloud billing accounts add-iam-policy-binding 012345-6789AB-CDEF01 --member user:YOU --role roles/billing.viewer",
    );
}

#[test]
fn prices_of_a_billing_account_are_those_of_its_contract() {
    let (served, billing) = (SandboxServer::fast(), CloudBilling::with_pages());
    let user = user(&served, &billing);
    billing.answer(PAGES.iter().map(|page| found(page)).chain([found(ACCOUNT)]).collect());
    // The fee is 0.08, a machine 0.24 and its disk 1.2 cents.
    let said = user.run(&["plan", "--prices", ACCOUNT_NAME]).expect(0).says("Cost: $0.58/h as planned");
    assert_said(&said, "(Cloud Billing, billingAccounts/012345-6789AB-CDEF01)");
    let asked = billing.asked();
    assert!(asked[3].starts_with("/v1beta/billingAccounts/012345-6789AB-CDEF01/skus/-/prices?"), "{asked:?}");
    // They are not those of the list, nor kept as those.
    assert!(!kept(&user).exists());
    user.run(&["plan", "--prices", ACCOUNT_NAME]).expect(0).says("$0.58/h");
    assert_eq!(billing.asked().len(), 4);
    user.run(&["plan", "--prices", "billingAccounts/mine"]).expect(1).says("gcloud billing accounts list");
}

#[test]
fn permissions_have_the_right_on_the_billing_account() {
    let user = User::empty();
    user.write(ON_GKE);
    let said = user.run(&["permissions", "--prices", ACCOUNT_NAME]).expect(0);
    said.says("--prices needs billing.billingAccountPrices.list on billingAccounts/012345-6789AB-CDEF01")
        .says("gcloud billing accounts add-iam-policy-binding 012345-6789AB-CDEF01");
    let said = user.run(&["permissions", "--prices", ACCOUNT_NAME, "--format", "json"]).expect(0);
    let all: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(all["prices"]["permissions"], json!(["billing.billingAccountPrices.list"]));
    let said = user.run(&["permissions", "--prices", "live"]).expect(0);
    assert!(!said.out.contains("--prices"), "{}", said.out);
}

#[test]
fn a_machine_without_a_sku_has_no_price() {
    let (served, billing) = (SandboxServer::fast(), CloudBilling::with_pages());
    let user = user(&served, &billing);
    user.edit("e2-standard-8", "t2d-standard-8");
    let said = user.run(&["plan", "--prices", "live"]).expect(0);
    said.says("at least $0.13/h").says("price unknown: t2d-standard-8");
    user.run(&["plan", "--prices", "live", "--budget", "10/h"]).expect(3).says("DI0348");
    user.edit("us-central1-c", "europe-north2-a");
    billing.answer(PAGES.iter().map(|page| found(page)).collect());
    user.run(&["plan", "--prices", "live"]).expect(1).says("none of the region europe-north2");
}

#[test]
fn a_sandbox_has_no_prices_and_a_stand_in_is_on_this_machine() {
    let served = SandboxServer::fast();
    let user = User::at(&served, ON_GKE);
    let said = user.run(&["plan", "--prices", "live"]).expect(1).says("DI0391");
    assert_said(&said, "demo / us-central1-c / c is a sandbox, which has no prices");
    assert_said(&said, "or give a file of prices: `--prices FILE`");
    user.run(&["validate", "--prices", "live"]).expect(0);
    let user = user.set("DASK_INFRA_BILLING_ENDPOINT", "https://cloudbilling.example.com".into());
    user.run(&["plan", "--prices", "live"]).expect(1).says("DI0009").says("DASK_INFRA_BILLING_ENDPOINT");
    // What Google does not bill has no prices to read.
    let elsewhere = User::empty();
    elsewhere.write("[stack]\nname = \"s\"\n\n[kubernetes]\ncontext = \"lab\"\n\n[namespace.a]\n");
    elsewhere.run(&["plan", "--offline", "--prices", "live"]).expect(0);
}
