//! The record around an apply.

use super::*;

#[tokio::test(start_paused = true)]
async fn things_are_made_in_order_between_two_records() {
    let api = Fake::new()
        .on("PATCH /api/v1/namespaces/n/", always(json!({})))
        .on("GET /api/v1/namespaces/n/", in_turn(vec![Ok(json!({})), Ok(ready())]));
    let (applied, api) = quiet(vec![makes("a", &[]), makes("b", &[0])], api).await;
    assert_eq!(applied.outcomes, [Outcome::Done, Outcome::Done]);
    let record = "PATCH /api/v1/namespaces/dask-infra/configmaps/dask-infra-s";
    let (a, b) = (format!("PATCH {CONFIG}a"), format!("PATCH {CONFIG}b"));
    assert_eq!(api.writes(), [record, &a, &b, record]);
    let [intent, outcome] = &api.records()[..] else { panic!() };
    assert_eq!((intent.intent, outcome.intent, outcome.revision), (true, false, 1));
    let ready = |record: &Record| record.inventory.iter().map(|entry| entry.ready).collect::<Vec<_>>();
    assert_eq!((ready(intent), ready(outcome)), (vec![Some(false); 2], vec![Some(true); 2]));
    assert_eq!(outcome.inventory.len(), 2);
    let waits = applied.events.iter().filter(|event| matches!(event, Event::Waiting { .. }));
    assert_eq!(waits.count(), 2, "{:?}", applied.events);
}

#[tokio::test(start_paused = true)]
async fn what_took_long_to_make_is_noted_with_its_time_until_it_is_made_again() {
    let api = Fake::new()
        .on("PATCH /api/v1/namespaces/n/", always(json!({})))
        .on("GET /api/v1/namespaces/n/configmaps/quick", always(ready()))
        .on(
            "GET /api/v1/namespaces/n/configmaps/slow",
            in_turn(vec![Ok(json!({})); 20].into_iter().chain([Ok(ready())]).collect()),
        );
    let (applied, api) = quiet(vec![makes("quick", &[]), makes("slow", &[])], api).await;
    let (_, _, slow) = applied.summary.outcomes[1];
    assert!(slow.as_secs() >= 10, "{slow:?}");
    let outcome = api.records().pop().unwrap();
    let took = |record: &Record| record.inventory.iter().map(|entry| entry.took).collect::<Vec<_>>();
    assert_eq!(took(&outcome), [None, Some(u32::try_from(slow.as_secs()).unwrap())]);

    let (_, mut stored) = live::record::pack(&outcome).pop().unwrap();
    stored["metadata"]["resourceVersion"] = json!("5");
    let kept = |name| Change { action: Action::Update, ..makes(name, &[]) };
    let api = Fake::new()
        .on("PATCH /api/v1/namespaces/n/", always(json!({})))
        .on("GET /api/v1/namespaces/n/", always(ready()))
        .on("GET /api/v1/namespaces/dask-infra/configmaps/", always(stored));
    let (_, api) = quiet(vec![kept("quick"), kept("slow")], api).await;
    for record in api.records() {
        assert_eq!(took(&record), took(&outcome), "{record:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_namespace_of_records_is_made_when_it_is_missing() {
    let missing = Err((ErrorClass::NotFound, "namespaces \"dask-infra\" not found"));
    let api = Fake::new()
        .on("PATCH /api/v1/namespaces/n/", always(json!({})))
        .on("GET /api/v1/namespaces/n/", always(ready()))
        .on("PATCH /api/v1/namespaces/dask-infra", always(json!({})))
        .on("PATCH /api/v1/namespaces/dask-infra/configmaps", in_turn(vec![missing, Ok(json!({}))]));
    let (applied, api) = quiet(vec![makes("a", &[])], api).await;
    assert_eq!(applied.outcomes, [Outcome::Done]);
    assert!(api.writes().contains(&"PATCH /api/v1/namespaces/dask-infra".to_owned()), "{:?}", api.writes());
}

#[tokio::test(start_paused = true)]
async fn a_record_that_cannot_be_written_stops_all_writes_inside() {
    let api = Fake::new().on("PATCH /api/v1/namespaces/dask-infra", refuses(ErrorClass::Denied, "no"));
    let (applied, api) = quiet(vec![makes("a", &[]), makes("b", &[])], api).await;
    assert_eq!(applied.failure(0).0, Code::RecordNotWritten.as_str());
    assert_eq!(applied.outcomes[1], Outcome::Skipped { because: Address::new("a") });
    assert!(!api.titles().iter().any(|title| title.contains("/namespaces/n/")), "{:?}", api.titles());
}

#[tokio::test(start_paused = true)]
async fn an_outcome_that_cannot_be_recorded_is_a_warning() {
    let record = in_turn(vec![Ok(json!({})), Err((ErrorClass::Denied, "no"))]);
    let api = Fake::new()
        .on("PATCH /api/v1/namespaces/n/", always(json!({})))
        .on("GET /api/v1/namespaces/n/", always(ready()))
        .on("PATCH /api/v1/namespaces/dask-infra/configmaps", record);
    let (applied, _) = quiet(vec![makes("a", &[])], api).await;
    assert_eq!(applied.outcomes, [Outcome::Done]);
    assert!(matches!(applied.events.last(), Some(Event::Warning { .. })));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_recorded_in_a_cluster_that_is_deleted() {
    let identity = Identity::Cluster(cluster());
    let path = format!("/v1/{}", cluster().path());
    let steps = vec![call(Api::Gke, Method::Delete, &path, json!({})), wait(&identity, Until::Gone, 60)];
    let (applied, api) =
        quiet(vec![change("cluster", identity, Action::Delete, steps, &[])], Fake::new()).await;
    assert_eq!(applied.outcomes, [Outcome::Done]);
    assert!(!api.titles().iter().any(|title| title.contains("dask-infra")), "{:?}", api.titles());
}

#[test]
fn what_may_have_been_set_is_both_old_and_new() {
    use plan::Progress;
    use record::inventory;

    use model::record::Entry;
    let pool = makes_pool("a", &[]);
    let identity = pool.identity.clone();
    let mut plan = plan(vec![Change { action: Action::Update, ..pool }]);
    Arc::make_mut(&mut plan.desired)[0].body =
        json!({"config": {"labels": {"a": "1", "c": "1"}, "tags": ["x", "y"]}});
    let set = json!({"config": {"labels": {"a": "0", "b": "1"}, "tags": ["x", "z"]}});
    let before = [Entry {
        address: Address::new("a"),
        identity,
        kind: KindId::Object.into(),
        set: set.clone(),
        ready: None,
        took: None,
    }];
    let both = json!({"config": {"labels": {"a": "1", "b": "1", "c": "1"}, "tags": ["x", "y", "z"]}});
    let rows =
        [(Progress::Open, both), (Progress::Done, plan.desired[0].body.clone()), (Progress::Untouched, set)];
    for (progress, expected) in rows {
        assert_eq!(inventory(&plan, &before, |_| progress)[0].set, expected, "{progress:?}");
    }
}
