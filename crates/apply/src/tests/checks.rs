//! Checks: a pod runs, its log is read, and it is deleted.

use super::*;

fn pod_world(phase: &'static str, log: &'static str) -> Fake {
    // The pod is there until it is deleted. A failure is looked at twice.
    let looks = if phase == "failed" { 2 } else { 1 };
    let mut found = vec![Ok(json!({"phase": phase})); looks];
    found.push(Err((ErrorClass::NotFound, "pods \"check\" not found")));
    Fake::new()
        .on("PATCH /api/v1/namespaces/n/pods/check", always(json!({})))
        .on("DELETE /api/v1/namespaces/n/pods/check", always(json!({"metadata": {"uid": "u"}})))
        .on("GET /api/v1/namespaces/n/pods/check", in_turn(found))
        .on("GET /api/v1/namespaces/n/pods/check/log", always(json!(log)))
}

#[tokio::test(start_paused = true)]
async fn a_check_that_passes_is_recorded_and_leaves_no_pod() {
    let world = || pod_world("ready", "x\nTest PASSED\nDone\n");
    let kept = Identity::Object(object("ConfigMap", "configmaps", "kept"));
    let kept = change("kept", kept, Action::Keep, Vec::new(), &[]);
    let (applied, api) = quiet(vec![check("check.gpu"), kept], world()).await;
    assert_eq!(applied.outcomes[0], Outcome::Done);
    let passes = BTreeMap::from([(Identity::Check(Address::new("check.gpu")), "d".to_owned())]);
    // Noted at once: a kill after it must not make the check run among what took its GPUs.
    let [intent, noted, outcome] = &api.records()[..] else { panic!() };
    assert_eq!((intent.intent, intent.completed.len()), (true, 0));
    assert_eq!((noted.intent, &noted.completed), (true, &passes));
    assert_eq!((outcome.intent, &outcome.completed), (false, &passes));
    // Where nothing is managed nothing is recorded.
    let (applied, api) = quiet(vec![check("check.gpu")], world()).await;
    assert_eq!((&applied.outcomes[..], api.records().len()), (&[Outcome::Done][..], 0));
    assert!(api.writes().contains(&"DELETE /api/v1/namespaces/n/pods/check".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_an_interrupted_check_left_behind_is_read_to_its_end() {
    let mut change = check("check.gpu");
    if let Step::Call(call) = &mut change.steps[0] {
        call.body = Some(json!({"metadata": {"resourceVersion": "1"}}).into());
    }
    let ours = json!({"phase": "ready", "metadata": {"uid": "u", "managedFields": [{"manager": "dask-infra/s", "operation": "Apply"}]}});
    let gone = Err((ErrorClass::NotFound, "pods \"check\" not found"));
    let api = pod_world("ready", "")
        .on(
            "PATCH /api/v1/namespaces/n/pods/check",
            refuses(ErrorClass::Conflict, "the object has been modified"),
        )
        .on("GET /api/v1/namespaces/n/pods/check", in_turn(vec![Ok(ours.clone()), Ok(ours), gone]))
        .on("GET /api/v1/namespaces/n/pods/check/log", always(json!("Test PASSED")));
    let (applied, api) = quiet(vec![change], api).await;
    assert_eq!(applied.outcomes, [Outcome::Done]);
    assert!(api.writes().contains(&"DELETE /api/v1/namespaces/n/pods/check".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn a_check_that_fails_shows_its_log_and_leaves_no_pod() {
    for (phase, code) in [("ready", Code::CheckFailed.as_str()), ("failed", Code::NotReady.as_str())] {
        let api = pod_world(phase, "allocating\nTest FAILED\n");
        let (applied, api) = quiet(vec![check("check.gpu"), makes("a", &[0])], api).await;
        let (found, message) = applied.failure(0);
        assert_eq!(found, code);
        assert!(message.ends_with("ends with:\nallocating\nTest FAILED"), "{message}");
        let log = Event::Log { change: 0, lines: vec!["allocating".into(), "Test FAILED".into()] };
        assert!(applied.events.contains(&log));
        assert_eq!(applied.outcomes[1], Outcome::Skipped { because: Address::new("check.gpu") });
        let deleted = "DELETE /api/v1/namespaces/n/pods/check";
        assert!(api.writes().iter().any(|title| title == deleted), "{:?}", api.writes());
    }
}

#[tokio::test(start_paused = true)]
async fn ctrl_c_during_a_check_deletes_its_pod() {
    let api = Fake::new()
        .on("PATCH /api/v1/namespaces/n/pods/check", always(json!({})))
        .on("GET /api/v1/namespaces/n/pods/check", always(json!({})))
        .on("DELETE /api/v1/namespaces/n/pods/check", always(json!({})));
    let api = Arc::new(api);
    let (sender, interrupt) = watch::channel(0);
    let plan = plan(vec![check("check.gpu")]);
    let stop = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        sender.send(1).unwrap();
    };
    let (applied, ()) = futures::join!(run(&plan, &api, interrupt), stop);
    assert!(matches!(applied.outcomes[..], [Outcome::InDoubt { .. }]));
    assert!(api.writes().contains(&"DELETE /api/v1/namespaces/n/pods/check".to_owned()));
    assert!(applied.summary.took < Duration::from_secs(20));
}
