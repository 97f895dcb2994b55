//! Less sight, never more action: when answers of a world are refused, broken, late, or of something else than the
//! API, the result is an error, a question, or exactly the plan of whole sight. Never another plan.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use plan::{Mode, Plan};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::cases::check;
use super::harness::{Flags, Layer};
use super::player::{Player, paused};
use super::script::{Command, Script, Step};
use super::stacks::{self, Change, Spec};

/// A faulty reply in place of a good one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Unauthorized,
    Forbidden,
    /// `404 page not found`.
    NoPath,
    NoPage,
    /// A page with 200.
    Portal,
    /// JSON that is cut.
    Cut,
    Empty,
    NoObject,
    Null,
    Redirect,
    Unavailable,
    /// Never.
    Silence,
    /// A page of a list, and no next one.
    HalfList,
    /// GKE cannot list some zones.
    MissingZones,
}

const FAULTS: [Fault; 14] = [
    Fault::Unauthorized,
    Fault::Forbidden,
    Fault::NoPath,
    Fault::NoPage,
    Fault::Portal,
    Fault::Cut,
    Fault::Empty,
    Fault::NoObject,
    Fault::Null,
    Fault::Redirect,
    Fault::Unavailable,
    Fault::Silence,
    Fault::HalfList,
    Fault::MissingZones,
];

/// Which answers are struck.
#[derive(Clone, Debug)]
enum FaultedAnswers {
    /// Some of those that are asked for, by number.
    Some(Vec<(usize, Fault)>),
    /// All of one API, or both.
    All(Option<bool>, Fault),
}

/// Before the command that is looked at, and how its sight is lessened.
#[derive(Clone, Debug)]
struct Case {
    script: Script,
    destroy: bool,
    sights: Vec<FaultedAnswers>,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { script, destroy, sights } = self;
        write!(f, "{script}\n# destroy: {destroy}, struck: {sights:?}")
    }
}

fn faulted_answers() -> impl Strategy<Value = FaultedAnswers> {
    let one = || (0..64usize, select(&FAULTS[..]));
    prop_oneof![
        3 => one().prop_map(|one| FaultedAnswers::Some(vec![one])),
        3 => prop::collection::vec(one(), 2..12).prop_map(FaultedAnswers::Some),
        2 => (prop::option::of(any::<bool>()), select(&FAULTS[..])).prop_map(|(api, fault)| FaultedAnswers::All(api, fault)),
    ]
}

fn case() -> impl Strategy<Value = Case> {
    let edits = prop::collection::vec(stacks::change(), 0..3);
    let deeds = prop::collection::vec(stacks::external_change(), 0..3);
    let sights = prop::collection::vec(faulted_answers(), 24);
    (stacks::spec(), proptest::bool::weighted(0.85), deeds, edits, any::<bool>(), sights).prop_map(
        |(spec, applied, deeds, edits, destroy, sights)| Case {
            script: setup_script(spec, applied, &deeds, &edits),
            destroy,
            sights,
        },
    )
}

fn setup_script(mut spec: Spec, applied: bool, deeds: &[stacks::ExternalChange], edits: &[Change]) -> Script {
    let mut steps: Vec<Step> = stacks::platform(&spec).into_iter().map(Step::Others).collect();
    steps.push(Step::Edit(spec.render()));
    if applied {
        steps.push(Step::Apply(Command::default()));
        steps.extend(deeds.iter().flat_map(|deed| deed.requests(&spec)).map(Step::Others));
    }
    edits.iter().for_each(|change| spec.edit(change));
    steps.push(Step::Edit(spec.render()));
    Script { about: String::new(), steps, ..Script::default() }
}

/// Stands before the APIs: notes what is asked, and strikes.
#[derive(Clone, Default)]
struct FaultyApi {
    asked: Arc<Mutex<Vec<String>>>,
    by_target: Arc<BTreeMap<String, Fault>>,
    all: Option<(Option<bool>, Fault)>,
}

impl FaultyApi {
    fn of(asked: &[String], struck: &FaultedAnswers) -> Self {
        match struck {
            FaultedAnswers::All(api, fault) => Self { all: Some((*api, *fault)), ..Self::default() },
            FaultedAnswers::Some(some) => {
                let named = some.iter().map(|(at, fault)| (asked[at % asked.len()].clone(), *fault));
                Self { by_target: Arc::new(named.collect()), ..Self::default() }
            }
        }
    }

    fn layer(&self) -> Layer {
        let eyes = self.clone();
        Arc::new(move |gke: bool, inner: Router| {
            let eyes = eyes.clone();
            Router::new().fallback(move |request: Request<Body>| {
                let (eyes, inner) = (eyes.clone(), inner.clone());
                async move { eyes.answer(gke, inner, request).await }
            })
        })
    }

    async fn answer(&self, gke: bool, inner: Router, request: Request<Body>) -> Response<Body> {
        assert_eq!(request.method(), "GET", "a plan writes nothing");
        let target = request.uri().to_string();
        let fault = match self.all {
            Some((api, fault)) if api.is_none_or(|api| api == gke) => Some(fault),
            _ => self.by_target.get(&target).copied(),
        };
        self.asked.lock().unwrap().push(target);
        let good = inner.oneshot(request).await.unwrap();
        match fault {
            None => good,
            Some(fault) => faulty_response(gke, fault, good).await,
        }
    }
}

async fn faulty_response(gke: bool, fault: Fault, good: Response<Body>) -> Response<Body> {
    let answer = |status: u16, kind: &str, body: Vec<u8>| {
        let builder = Response::builder().status(StatusCode::from_u16(status).unwrap());
        builder.header(header::CONTENT_TYPE, kind).body(Body::from(body)).unwrap()
    };
    let refusal = |code: u16, google: &str, reason: &str| {
        let body = if gke {
            json!({ "error": { "code": code, "message": "no", "status": google } })
        } else {
            json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": "no" })
        };
        answer(code, "application/json", body.to_string().into_bytes())
    };
    let page = b"<!DOCTYPE html><html><body>Sign in</body></html>".to_vec();
    match fault {
        Fault::Unauthorized => refusal(401, "UNAUTHENTICATED", "Unauthorized"),
        Fault::Forbidden => refusal(403, "PERMISSION_DENIED", "Forbidden"),
        Fault::Unavailable => refusal(503, "UNAVAILABLE", "ServiceUnavailable"),
        Fault::NoPath => answer(404, "text/plain; charset=utf-8", b"404 page not found\n".to_vec()),
        Fault::NoPage => answer(404, "text/html", page),
        Fault::Portal => answer(200, "text/html", page),
        Fault::Empty => answer(200, "application/json", Vec::new()),
        Fault::NoObject => answer(200, "application/json", b"{}".to_vec()),
        Fault::Null => answer(200, "application/json", b"null".to_vec()),
        Fault::Redirect => answer(302, "text/html", Vec::new()),
        Fault::Silence => {
            tokio::time::sleep(Duration::from_secs(3600)).await;
            answer(200, "text/plain", Vec::new())
        }
        Fault::Cut => {
            let body = good.into_body().collect().await.unwrap().to_bytes();
            answer(200, "application/json", body[..body.len() / 2].to_vec())
        }
        Fault::HalfList | Fault::MissingZones => {
            let status = good.status().as_u16();
            let body = good.into_body().collect().await.unwrap().to_bytes();
            let mut value: Value = serde_json::from_slice(&body).unwrap_or_default();
            if let Some(items) = value.get_mut("items").and_then(Value::as_array_mut) {
                items.truncate(items.len() / 2);
                value["metadata"]["continue"] = json!("gone");
            } else if let Some(clusters) = value.get_mut("clusters").and_then(Value::as_array_mut) {
                clusters.clear();
                value["missingZones"] = json!(["us-central1-c"]);
            } else {
                return answer(status, "application/json", body.to_vec());
            }
            answer(status, "application/json", value.to_string().into_bytes())
        }
    }
}

/// Returns a plan's changes as they are sent, without texts that are only shown.
fn actions(plan: &Plan) -> Value {
    let mut plan = serde_json::to_value(plan).unwrap();
    let plan = plan.as_object_mut().unwrap();
    // Notes say what is not known; times are of the making.
    for told in ["notes", "incomplete", "made", "created", "time", "made_at"] {
        plan.remove(told);
    }
    Value::Object(std::mem::take(plan))
}

/// An error, the same plan, or one that does nothing more and asks for an approval of what it could not see.
fn check_no_more_actions(whole: &Plan, less: &Plan) -> Result<&'static str, String> {
    if actions(whole) == actions(less) {
        return Ok("the same plan");
    }
    let asks = less.missing_approvals(&[]);
    let blind = asks.iter().any(|approval| approval.address.as_str() == "others.unseen");
    let ours = |plan: &Plan| {
        let ours = plan.changes.iter().filter(|change| !change.foreign);
        ours.map(|change| format!("{:?} {:?}", change.action, change.identity)).collect::<Vec<_>>()
    };
    if blind && ours(whole) == ours(less) {
        return Ok("a question");
    }
    // Without a record what left the file is looked for; what may not be listed is told.
    let (less_ours, whole_ours) = (ours(less), ours(whole));
    let told = less.incomplete && less.notes.iter().any(|note| note.code == "DI0359");
    if told && less_ours.iter().all(|change| whole_ours.contains(change)) {
        return Ok("less, and told");
    }
    Err(format!("another plan:\n{}\ninstead of\n{}", brief(less), brief(whole)))
}

fn brief(plan: &Plan) -> String {
    let lines = plan.changes.iter().map(|change| format!("  {:?} {}", change.action, change.address));
    lines.collect::<Vec<_>>().join("\n")
}

async fn holds(case: &Case, tally: &Mutex<BTreeMap<&'static str, u32>>) -> Result<(), String> {
    let mut player = Player::new();
    for step in &case.script.steps {
        player.step(step).await;
    }
    let Some(stack) = player.stack.take() else { return Ok(()) };
    let mode = if case.destroy { Mode::Destroy } else { Mode::Apply };
    let flags = Flags::default();
    let count = |what| *tally.lock().unwrap().entry(what).or_default() += 1;
    let eyes = FaultyApi::default();
    let Ok(whole) = player.harness.plan_through(&stack, mode, &flags, &eyes.layer()).await else {
        count("no plan with whole sight");
        return Ok(());
    };
    let asked = eyes.asked.lock().unwrap().clone();
    for struck in &case.sights {
        let eyes = FaultyApi::of(&asked, struck);
        match player.harness.plan_through(&stack, mode, &flags, &eyes.layer()).await {
            Err(_) => count("an error"),
            Ok(less) => {
                count(check_no_more_actions(&whole, &less).map_err(|why| format!("{struck:?}: {why}"))?);
            }
        }
    }
    Ok(())
}

#[test]
fn less_sight_is_never_more_action() {
    let tally = Mutex::default();
    check("less sight", 8, case().boxed(), |case: &Case| paused(holds(case, &tally)));
    println!("{:?}", tally.lock().unwrap());
    let whole = tally.lock().unwrap();
    assert!(whole.get("an error").is_some_and(|errors| *errors > 0), "no sight was lessened: {whole:?}");
}
