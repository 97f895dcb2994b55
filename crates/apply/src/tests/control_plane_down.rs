//! A control plane that GKE works on.

use super::*;

const OPERATIONS: &str = "GET /v1/projects/p/locations/l/operations";
const CLUSTER: &str = "GET /v1/projects/p/locations/l/clusters/c";
const WRITES: &str = "PATCH /api/v1/namespaces/n/configmaps/a";

fn upgrades() -> Value {
    json!({ "operations": [{ "name": "operation-9", "operationType": "UPGRADE_MASTER", "status": "RUNNING",
        "targetLink": "https://x/v1/projects/1/zones/l/clusters/c" }] })
}

/// Fails so many times, then succeeds.
fn fails(times: usize, class: ErrorClass, status: Option<u16>, body: Option<Value>) -> Answer {
    Box::new(move |request, before| match before < times {
        true => Err(ApiError { status, body: body.clone(), ..refused(request, class, "no") }),
        false => Ok(ready()),
    })
}

fn waited_on(applied: &Applied) -> Vec<&str> {
    let told = applied.events.iter().filter_map(|event| match event {
        Event::Waiting { operation, .. } => operation.as_deref(),
        _ => None,
    });
    told.collect()
}

#[tokio::test(start_paused = true)]
async fn a_control_plane_that_gke_upgrades_is_waited_for() {
    let away = || fails(45, ErrorClass::Unavailable, None, None);
    let api = || Fake::new().on("GET /api/v1/namespaces/n/configmaps/a", always(ready())).on(WRITES, away());
    let start = Instant::now();
    let (applied, _) = quiet(vec![makes("a", &[])], api().on(OPERATIONS, always(upgrades()))).await;
    assert_eq!(applied.outcomes, [Outcome::Done]);
    assert!(start.elapsed() > Duration::from_secs(240), "{:?}", start.elapsed());
    assert!(waited_on(&applied).contains(&"operation-9"), "{:?}", applied.events);
    // Without any work of GKE, two minutes are enough.
    let start = Instant::now();
    let running = json!({ "status": "RUNNING" });
    let (applied, _) = quiet(vec![makes("a", &[])], api().on(CLUSTER, always(running))).await;
    assert!(
        matches!(applied.outcomes[0], Outcome::Failed { .. } | Outcome::InDoubt { .. }),
        "{:?}",
        applied.outcomes
    );
    assert!(start.elapsed() < Duration::from_secs(200), "{:?}", start.elapsed());
}

#[tokio::test(start_paused = true)]
async fn work_on_a_control_plane_is_waited_for_a_quarter_of_an_hour() {
    let away = fails(usize::MAX, ErrorClass::Unavailable, None, None);
    let start = Instant::now();
    let api = Fake::new().on(WRITES, away).on(OPERATIONS, always(upgrades()));
    let (applied, _) = quiet(vec![makes("a", &[])], api).await;
    assert_eq!(applied.failure(0).0, Code::NoAnswer.as_str());
    let minutes = start.elapsed().as_secs() / 60;
    assert!((15..=18).contains(&minutes), "{minutes}");
}

#[tokio::test(start_paused = true)]
async fn a_new_cluster_may_refuse_tokens_for_a_while() {
    let refuses = || fails(5, ErrorClass::Unauthenticated, Some(401), None);
    let api =
        || Fake::new().on("GET /api/v1/namespaces/n/configmaps/a", always(ready())).on(WRITES, refuses());
    let made = |when: jiff::Timestamp| json!({ "status": "RUNNING", "createTime": when.to_string() });
    let new = always(made(jiff::Timestamp::now()));
    let (applied, _) = quiet(vec![makes("a", &[])], api().on(CLUSTER, new)).await;
    assert_eq!(applied.outcomes, [Outcome::Done]);
    let old = always(made(jiff::Timestamp::UNIX_EPOCH));
    let (applied, _) = quiet(vec![makes("a", &[])], api().on(CLUSTER, old)).await;
    assert_eq!(applied.failure(0).0, Code::Credentials.as_str());
}

#[tokio::test(start_paused = true)]
async fn an_unnamed_precondition_is_tried_again_while_an_operation_runs() {
    let body =
        json!({ "error": { "code": 400, "status": "FAILED_PRECONDITION", "message": "a new wording" } });
    let refuses = |times| fails(times, ErrorClass::Invalid, Some(400), Some(body.clone()));
    let pool = "GET /v1/projects/p/locations/l/clusters/c/nodePools/a";
    let api = Fake::new().on(pool, always(ready())).on("POST", refuses(6)).on(OPERATIONS, always(upgrades()));
    let (applied, _) = quiet(vec![makes_pool("a", &[])], api).await;
    assert_eq!(applied.outcomes, [Outcome::Done]);
    assert!(waited_on(&applied).contains(&"operation-9"), "{:?}", applied.events);
    let api = Fake::new().on(pool, always(ready())).on("POST", refuses(6));
    let (applied, _) = quiet(vec![makes_pool("a", &[])], api).await;
    assert_eq!(applied.failure(0).0, Code::Refused.as_str());
}
