//! Idle waits for a scheduler before anything is changed.

use super::*;
use model::resource::KindId;

const PODS: &str = "GET /api/v1/namespaces/n/pods";
const COUNTS: &str = "GET /api/v1/namespaces/n/services/d-scheduler:http-dashboard/proxy/json/counts.json";
const DELETE: &str = "DELETE /apis/kubernetes.dask.org/v1/namespaces/n/daskclusters/d";

fn running() -> Value {
    json!({ "items": [{ "status": { "containerStatuses": [{ "state": { "running": {} } }] } }] })
}

fn tasks(processing: u64) -> Value {
    json!({ "tasks": processing, "processing": processing, "workers": 1 })
}

/// Deletes a cluster when it is idle.
fn goes(deadline: u32) -> Change {
    let gvk = kinds::dask::api::cluster();
    let object = ObjectId { gvk, namespace: Some("n".into()), name: "d".into() };
    let (path, identity) = (object.path(), Identity::Object(object));
    let name = KindId::DaskCluster;
    let idle = kinds::dask::idle_wait::wait(name, &identity, &Value::Null, deadline).unwrap();
    let steps = vec![Step::Await(idle), call(Api::Kubernetes, Method::Delete, &path, json!({}))];
    change("dask_cluster.d", identity, Action::Delete, steps, &[])
}

fn messages(events: &[Event]) -> Vec<&str> {
    events
        .iter()
        .filter_map(|event| match event {
            Event::Waiting { message, .. } => Some(message.as_str()),
            _ => None,
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn what_has_work_is_left_alone_and_the_rest_goes_on() {
    let busy = in_turn(vec![Ok(tasks(2)), Ok(tasks(0)), Ok(tasks(1)), Ok(tasks(0))]);
    let api = Fake::new()
        .on("PATCH /api/v1/namespaces/n/", always(json!({})))
        .on(PODS, always(running()))
        .on(COUNTS, busy)
        .on(DELETE, always(json!({})))
        .on("GET /api/v1/namespaces/n/configmaps", always(ready()));
    let (applied, api) = quiet(vec![goes(3600), makes("a", &[])], api).await;
    assert_eq!(applied.outcomes, [Outcome::Done, Outcome::Done]);
    let said = messages(&applied.events);
    assert!(said.contains(&"its scheduler is busy: 2 tasks running"), "{said:?}");
    assert!(said.contains(&"its scheduler is idle, for less than 5 s so far"), "{said:?}");
    assert!(said.contains(&"its scheduler is busy: 1 task running"), "{said:?}");
    let titles = api.titles();
    let at = |title: &str| titles.iter().position(|asked| asked == title).unwrap();
    assert!(at(&format!("PATCH {CONFIG}a")) < at(DELETE), "{titles:?}");
    let asked = titles.iter().filter(|title| *title == COUNTS).count();
    assert!(asked > 6, "it is asked again until it has been idle for a while: {asked}");
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_ends_or_is_interrupted_has_changed_nothing() {
    let api = || Fake::new().on(PODS, always(running())).on(COUNTS, always(tasks(3)));
    let (applied, api_after) = quiet(vec![goes(60), makes("a", &[0])], api()).await;
    let Outcome::TimedOut { message } = &applied.outcomes[0] else { panic!("{:?}", applied.outcomes) };
    assert!(message.contains("is not idle after 60 s: its scheduler is busy: 3 tasks running"), "{message}");
    assert_eq!(applied.outcomes[1], Outcome::Skipped { because: Address::new("dask_cluster.d") });
    assert!(
        !api_after.writes().iter().any(|write| !write.contains("dask-infra-s")),
        "{:?}",
        api_after.writes()
    );

    let (sender, interrupt) = watch::channel(0);
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(20)).await;
        sender.send(1).unwrap();
        // The channel stays open as long as anybody may press.
        std::future::pending::<()>().await;
    });
    let api = Arc::new(api());
    let applied = run(&plan(vec![goes(3600)]), &api, interrupt).await;
    assert_eq!(applied.outcomes, [Outcome::NotStarted]);
    assert!(!api.writes().contains(&DELETE.to_owned()), "{:?}", api.writes());
}

#[tokio::test(start_paused = true)]
async fn a_scheduler_that_cannot_be_asked_is_told_of() {
    let with = |answer: Answer| Fake::new().on(PODS, always(running())).on(COUNTS, answer);
    let status = |message: &'static str| -> Answer {
        Box::new(move |request, _| {
            let body = Some(json!({ "kind": "Status", "message": message }));
            Err(ApiError { body, ..refused(request, ErrorClass::NotFound, message) })
        })
    };
    for (answer, expect) in [
        (status("services \"d-scheduler\" not found"), "Service n/d-scheduler does not exist"),
        (refuses(ErrorClass::NotFound, "404"), "it serves no /json/counts.json"),
        (refuses(ErrorClass::Denied, "cannot get services/proxy"), "cannot get services/proxy"),
    ] {
        let (applied, api) = quiet(vec![goes(60)], with(answer)).await;
        let (code, message) = applied.failure(0);
        assert_eq!(code, Code::SchedulerNotAsked.as_str(), "{message}");
        assert!(message.contains(expect), "{message}");
        assert!(!api.titles().iter().any(|title| title == DELETE));
    }
    // It may answer yet.
    let silent = in_turn(vec![Err((ErrorClass::Unavailable, "no endpoints")), Ok(tasks(0))]);
    let (applied, _) = quiet(vec![goes(60)], with(silent).on(DELETE, always(json!({})))).await;
    assert_eq!(applied.outcomes, [Outcome::Done]);
    assert!(messages(&applied.events)[0].contains("the tasks of its scheduler"), "{:?}", applied.events);
}

#[tokio::test(start_paused = true)]
async fn without_a_running_scheduler_there_is_no_work() {
    let pending = json!({ "items": [{ "status": { "phase": "Pending" } }] });
    let api = Fake::new().on(PODS, always(pending)).on(DELETE, always(json!({})));
    let (applied, api) = quiet(vec![goes(60)], api).await;
    assert_eq!(applied.outcomes, [Outcome::Done]);
    assert!(!api.titles().iter().any(|title| title == COUNTS));
}
