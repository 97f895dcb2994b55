//! Requests that the lock lets through, and effects on the record under it.

use super::*;
use crate::lock::{Holder, IfMissing, Liveness, Lock, LockError, LockOptions};

const HERE: &str = "GET /api/v1/namespaces/dask-infra/configmaps/dask-infra-s";
const WRITTEN: &str = "PATCH /api/v1/namespaces/dask-infra/configmaps/dask-infra-s";

fn paused() -> Duration {
    thread_local!(static FIRST: Instant = Instant::now());
    FIRST.with(Instant::elapsed)
}

fn lock(api: &Arc<Fake>, clock: fn() -> Duration) -> Arc<Lock> {
    let holder = Holder { who: "ann".into(), pid: 7, process: None };
    let now = || jiff::Timestamp::UNIX_EPOCH;
    let options = LockOptions { holder, liveness: |_| Liveness::Unknown, force: false, now, clock };
    let owner = Owner { stack: "s".into(), id: "i".into() };
    Arc::new(Lock::new(Arc::<Fake>::clone(api), &owner, options))
}

/// Applies under a lock that is held from the start.
async fn run_locked(plan: &Plan, api: &Arc<Fake>, lock: Arc<Lock>) -> Applied {
    lock.take(IfMissing::Create).await.unwrap();
    let (_sender, interrupt) = watch::channel(0);
    let kinds: Kinds = |_| &KIND;
    let options = ApplyOptions {
        now: || jiff::Timestamp::UNIX_EPOCH,
        kinds,
        lock: Some(lock),
        ..ApplyOptions::new(interrupt)
    };
    let mut events = Vec::new();
    let summary = apply(plan, Arc::<Fake>::clone(api), options, |event| events.push(event)).await;
    let outcomes = summary.outcomes.iter().map(|(_, outcome, _)| outcome.clone()).collect();
    Applied { outcomes, events, summary }
}

fn moved() -> Result<Value, (ErrorClass, &'static str)> {
    Err((ErrorClass::Conflict, "the object has been modified"))
}

/// Returns the ConfigMap with the lock of another holder.
fn of_bob() -> Value {
    let entry = r#"{"holder":{"who":"bob","pid":8},"since":"1970-01-01T00:00:09Z","renewed":0,"seconds":15}"#;
    json!({"metadata": {"resourceVersion": "9", "uid": "u", "annotations": {"dask-infra.dev/lock": entry}},
        "binaryData": {"record": ""}})
}

#[tokio::test(start_paused = true)]
async fn a_change_that_runs_sends_nothing_more_once_the_lock_is_lost() {
    let object = object("ConfigMap", "configmaps", "a");
    let identity = Identity::Object(object.clone());
    let steps = vec![
        call(Api::Kubernetes, Method::Delete, &object.path(), json!({})),
        wait(&identity, Until::Gone, 60),
        call(Api::Kubernetes, Method::Patch, &object.path(), json!({"metadata": {}})),
    ];
    // The lock, the intent, and then another one's lock: a renewal meets it while the deletion is waited for.
    let api = Fake::new()
        .on("DELETE /api/v1/namespaces/n/", always(json!({})))
        .on("GET /api/v1/namespaces/n/configmaps/a", in_turn(leaves_after(8)))
        .on("PATCH /api/v1/namespaces/n/", always(json!({})))
        .on(
            HERE,
            in_turn(vec![Err((ErrorClass::NotFound, "no")), Err((ErrorClass::NotFound, "no")), Ok(of_bob())]),
        )
        .on(WRITTEN, in_turn(vec![Ok(json!({})), Ok(json!({})), moved()]));
    let api = Arc::new(api);
    let plan = plan(vec![change("a", identity, Action::Replace, steps, &[])]);
    let applied = run_locked(&plan, &api, lock(&api, paused)).await;
    assert!(matches!(&applied.outcomes[0], Outcome::InDoubt { .. }), "{:?}", applied.outcomes);
    assert_eq!(applied.summary.stopped, AbortCause::LockLost);
    assert!(!api.writes().contains(&format!("PATCH {CONFIG}a")), "{:?}", api.writes());
    let told =
        |event: &Event| matches!(event, Event::Warning { message } if message.contains("bob, process 8"));
    assert!(applied.events.iter().any(told), "{:?}", applied.events);
    // The record is the other one's: it is not written again, and nothing is given back.
    let last = api.writes().iter().rposition(|write| write == WRITTEN).unwrap();
    assert!(!api.writes()[last + 1..].iter().any(|write| write.contains("dask-infra")), "{:?}", api.writes());
}

/// Returns replies with which the object exists for `looks` reads, and is then gone.
fn leaves_after(looks: usize) -> Vec<Result<Value, (ErrorClass, &'static str)>> {
    let mut replies = vec![Ok(json!({"metadata": {"uid": "u"}})); looks * 8];
    replies.push(Err((ErrorClass::NotFound, "gone")));
    replies
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_while_the_lock_could_not_be_renewed() {
    // A sleep of the machine: its clock leaps, tokio's does not.
    use std::sync::atomic::{AtomicU64, Ordering};
    static SLEPT: AtomicU64 = AtomicU64::new(0);
    let api = Arc::new(Fake::new());
    let lock = lock(&api, || paused() + Duration::from_secs(SLEPT.load(Ordering::SeqCst)));
    lock.take(IfMissing::Create).await.unwrap();
    let guard = WriteGuard::new(Arc::<Fake>::clone(&api) as Arc<dyn LiveApi>, Some(Arc::clone(&lock)));
    let write = || Request { api: Api::Gke, method: Method::Post, path: "/v1/x".into(), body: None };
    let sent = |api: &Fake| api.writes().iter().filter(|title| *title == "POST /v1/x").count();
    for (slept, passes) in [(0, true), (9, true), (11, false), (3600, false)] {
        SLEPT.store(slept, Ordering::SeqCst);
        let before = sent(&api);
        let refused = guard.send(write()).await.unwrap_err();
        assert_eq!(sent(&api) > before, passes, "{slept}: {refused}");
        assert_eq!(refused.class == ErrorClass::LockUnsure, !passes, "{slept}: {refused}");
        // Reads pass: they change nothing.
        assert_eq!(
            guard.send(Request::get(Api::Gke, "/v1/x")).await.unwrap_err().class,
            ErrorClass::NotFound
        );
    }
    // One renewal, and it goes on.
    let renewing = tokio::time::timeout(Duration::from_secs(7), lock.renew()).await;
    assert!(renewing.is_err());
    guard.send(write()).await.unwrap_err();
    assert_eq!(sent(&api), 3);
}

/// The last change of a host deletes a folder of gigabytes, so the host answers nothing else for long.
#[tokio::test(start_paused = true)]
async fn a_record_goes_although_its_lock_could_not_be_renewed_while_the_last_change_ran() {
    use std::sync::atomic::{AtomicBool, Ordering};
    static LONG: AtomicBool = AtomicBool::new(false);
    static GONE: AtomicBool = AtomicBool::new(false);
    let object = object("ConfigMap", "configmaps", "a");
    let steps = vec![call(Api::Kubernetes, Method::Delete, &object.path(), json!({}))];
    let namespace =
        json!({"metadata": {"uid": "u", "managedFields": [{"manager": "dask-infra", "operation": "Apply"}]}});
    let kept = |reply: Value| -> Answer {
        Box::new(move |request, _| match GONE.load(Ordering::SeqCst) {
            false => Ok(reply.clone()),
            true => Err(refused(request, ErrorClass::Conflict, "gone")),
        })
    };
    // It goes at once, and the answers are lost for so long that a renewal comes in between.
    let slow: Answer = Box::new(|request, before| {
        GONE.store(true, Ordering::SeqCst);
        let class = if before < 5 { ErrorClass::Lost } else { ErrorClass::NotFound };
        Err(refused(request, class, "no"))
    });
    let api = Fake::new()
        .on(
            "GET /apis",
            always(json!({"kind": "APIGroupList", "groups": [{"name": "apps", "versions": []}]})),
        )
        .on("GET /api/v1", always(json!({"kind": "APIResourceList", "resources": []})))
        .on("GET /api/v1/namespaces/dask-infra", always(namespace))
        .on("GET /api/v1/namespaces/dask-infra/configmaps", always(json!({"items": []})))
        .on(HERE, in_turn(vec![Err((ErrorClass::NotFound, "no"))]))
        .on(WRITTEN, kept(json!({"metadata": {"uid": "c", "resourceVersion": "7"}})))
        .on("DELETE /api/v1/namespaces/dask-infra", slow)
        .on("DELETE /api/v1/namespaces/dask-infra/", in_turn(vec![Err((ErrorClass::NotFound, "no"))]))
        .on(
            "DELETE /api/v1/namespaces/n/",
            Box::new(|_, _| {
                LONG.store(true, Ordering::SeqCst);
                Ok(json!({}))
            }),
        );
    let api = Arc::new(api);
    let clock = || paused() + Duration::from_secs(if LONG.load(Ordering::SeqCst) { 16 } else { 0 });
    let plan = plan(vec![change("a", Identity::Object(object), Action::Delete, steps, &[])]);
    let applied = run_locked(&plan, &api, lock(&api, clock)).await;
    assert_eq!(applied.outcomes, [Outcome::Done], "{:?}", applied.events);
    let warned = |event: &&Event| matches!(event, Event::Warning { .. });
    assert_eq!(applied.events.iter().find(warned), None);
    assert_eq!(applied.summary.stopped, AbortCause::None);
    let gone = api.titles().iter().position(|title| title == "DELETE /api/v1/namespaces/dask-infra").unwrap();
    assert!(api.titles()[gone..].iter().any(|title| title == WRITTEN), "{:?}", api.titles());
}

#[tokio::test(start_paused = true)]
async fn the_lock_of_a_cluster_that_is_recreated_goes_with_it() {
    let identity = Identity::Cluster(cluster());
    let path = format!("/v1/{}", cluster().path());
    let parent = path.rsplit_once('/').unwrap().0.to_owned();
    let steps = vec![
        call(Api::Gke, Method::Delete, &path, json!({})),
        wait(&identity, Until::Gone, 600),
        call(Api::Gke, Method::Post, &parent, json!({"cluster": {"name": "c"}})),
    ];
    // Going takes minutes, in which nobody answers inside.
    let gone = "GET /v1/projects/p/locations/l/clusters/c";
    let away = Err((ErrorClass::Unavailable, "connection refused"));
    let api = Fake::new()
        .on("DELETE /v1/", always(json!({})))
        .on("POST /v1/", always(json!({})))
        .on(gone, in_turn(leaves_after(5)))
        .on(WRITTEN, in_turn(vec![Ok(json!({})), away]));
    let api = Arc::new(api);
    let plan = plan(vec![change("cluster", identity, Action::Replace, steps, &[])]);
    let applied = run_locked(&plan, &api, lock(&api, paused)).await;
    assert_eq!(applied.outcomes, [Outcome::Done], "{:?}", applied.events);
    assert_eq!(applied.summary.stopped, AbortCause::None);
    assert!(applied.summary.took > Duration::from_secs(60), "{:?}", applied.summary.took);
}

#[tokio::test(start_paused = true)]
async fn the_intent_comes_before_the_first_write_to_gke() {
    let api = Fake::new()
        .on("POST /v1/", always(json!({})))
        .on("GET /v1/projects/p/locations/l/clusters/c/nodePools/a", always(ready()));
    let (applied, api) = quiet(vec![makes_pool("a", &[])], api).await;
    assert_eq!(applied.outcomes, [Outcome::Done]);
    let pools = "POST /v1/projects/p/locations/l/clusters/c/nodePools".to_owned();
    assert_eq!(api.writes(), [WRITTEN.to_owned(), pools, WRITTEN.to_owned()]);
    let [intent, outcome] = &api.records()[..] else { panic!() };
    assert_eq!((intent.intent, outcome.intent), (true, false));

    // When it cannot be written, nothing is.
    let api = Fake::new().on("PATCH /api/v1/namespaces/dask-infra", refuses(ErrorClass::Denied, "no"));
    let (applied, api) = quiet(vec![makes_pool("a", &[])], api).await;
    assert_eq!(applied.failure(0).0, Code::RecordNotWritten.as_str());
    assert!(!api.writes().iter().any(|title| title.starts_with("POST")), "{:?}", api.writes());
}

#[tokio::test(start_paused = true)]
async fn whoever_lost_the_lock_deletes_no_part_of_the_record() {
    let old = Record { version: Record::VERSION, stack: "s".into(), id: "i".into(), ..Record::default() };
    let mut packed = live::record::pack_in(&old, 40);
    let (_, mut first) = packed.pop().unwrap();
    first["metadata"]["resourceVersion"] = json!("5");
    assert!(!packed.is_empty());
    for lost in [true, false] {
        let parts = packed.clone();
        let part: Answer = Box::new(move |request, _| {
            let found = parts.iter().find(|(place, _)| request.path == place.path());
            found.map(|(_, body)| body.clone()).ok_or_else(|| refused(request, ErrorClass::NotFound, "no"))
        });
        let last = if lost { of_bob() } else { first.clone() };
        let written = if lost { moved() } else { Ok(json!({})) };
        let api = Fake::new()
            .on("PATCH /api/v1/namespaces/n/", always(json!({})))
            .on("GET /api/v1/namespaces/n/", always(ready()))
            .on("DELETE /api/v1/namespaces/dask-infra/", always(json!({})))
            .on(HERE, in_turn(vec![Ok(first.clone()), Ok(first.clone()), Ok(last)]))
            .on("GET /api/v1/namespaces/dask-infra/configmaps/dask-infra-s.", part)
            .on(WRITTEN, in_turn(vec![Ok(json!({})), written]));
        let api = Arc::new(api);
        let applied = run_locked(&plan(vec![makes("a", &[])]), &api, lock(&api, paused)).await;
        let deleted = api.writes().iter().filter(|title| title.starts_with("DELETE")).count();
        assert_eq!(deleted, if lost { 0 } else { packed.len() }, "{:?} {:?}", api.writes(), applied.outcomes);
        assert_eq!(applied.outcomes[0] == Outcome::Done, !lost, "{:?}", applied.outcomes);
    }
}

#[tokio::test(start_paused = true)]
async fn what_another_apply_of_the_stack_made_is_not_taken_for_done() {
    let of = |extra: Value| {
        let mut live = json!({"phase": "ready", "metadata": {"uid": "u9", "resourceVersion": "4",
            "managedFields": [{"manager": "dask-infra/s", "operation": "Apply"}]}});
        live["metadata"].as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        live
    };
    // With other content perhaps: what is wanted is said to it, and to nothing else of that name.
    let api = Fake::new()
        .on("PATCH /api/v1/namespaces/n/", in_turn(vec![moved(), Ok(json!({}))]))
        .on("GET /api/v1/namespaces/n/", always(of(json!({}))));
    let (applied, api) = quiet(vec![makes("a", &[])], api).await;
    assert_eq!(applied.outcomes, [Outcome::Done]);
    let asked = api.asked.lock().unwrap().clone();
    let again =
        asked.iter().rfind(|request| request.writes() && request.path.contains("/n/configmaps")).unwrap();
    assert_eq!(again.body.as_ref().unwrap()["metadata"], json!({"name": "a", "uid": "u9"}));

    // On its way out: it is made when that is gone.
    let going = of(json!({"deletionTimestamp": "2026-11-22T10:00:00Z"}));
    let api = Fake::new()
        .on("PATCH /api/v1/namespaces/n/", in_turn(vec![moved(), moved(), Ok(json!({}))]))
        .on("GET /api/v1/namespaces/n/", in_turn(vec![Ok(going.clone()), Ok(going), Ok(ready())]));
    let (applied, api) = quiet(vec![makes("a", &[])], api).await;
    assert_eq!(applied.outcomes, [Outcome::Done]);
    let made = api.writes().iter().filter(|title| title.contains("/n/configmaps")).count();
    assert_eq!(made, 3);

    // GKE has no condition to put on a write: the plan is not the plan any more.
    let external = json!({"status": "RUNNING", "config": {"resourceLabels": {LABEL_ID: "i"}}});
    let api = Fake::new()
        .on("POST", refuses(ErrorClass::AlreadyExists, "exists"))
        .on("GET /v1/projects/p/locations/l/clusters/c/nodePools/a", always(external));
    let (applied, _) = quiet(vec![makes_pool("a", &[])], api).await;
    assert_eq!(applied.failure(0).0, Code::ChangedByOthers.as_str());
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_nobody_can_look_into_goes_without_a_lock() {
    for (unseen, begins) in [(true, true), (false, false)] {
        let identity = Identity::Cluster(cluster());
        let path = format!("/v1/{}", cluster().path());
        let steps = vec![call(Api::Gke, Method::Delete, &path, json!({}))];
        let mut plan = plan(vec![change("cluster", identity, Action::Delete, steps, &[])]);
        plan.target.gke = Some(cluster());
        plan.notes.extend(unseen.then(|| plan::Note {
            code: Code::DeletedUnread.as_str().into(),
            address: Address::new("cluster"),
            message: String::new(),
        }));
        let live = json!({"name": "c", "status": "RUNNING", "endpoint": "10.0.0.2"});
        let api = Fake::new()
            .on("GET /v1/", always(live))
            .on("GET /api/", in_turn(vec![Err((ErrorClass::Unavailable, "connection refused")); 100]));
        let api = Arc::new(api);
        let lock = lock(&api, paused);
        let (_keep, interrupt) = watch::channel(0);
        let again = async { Ok::<Plan, ()>(plan.clone()) };
        let begun = acquire(&plan, &*api, &lock, &interrupt, again).await;
        assert_eq!(begun.is_ok(), begins, "{unseen}");
    }
}

/// No error means "no lock needed": whatever the API answers, nothing starts without the lock.
#[tokio::test(start_paused = true)]
async fn without_the_lock_nothing_is_begun() {
    let object = object("ConfigMap", "configmaps", "a");
    let identity = Identity::Object(object.clone());
    let steps = vec![call(Api::Kubernetes, Method::Patch, &object.path(), json!({"metadata": {}}))];
    let plan = plan(vec![change("a", identity, Action::Update, steps, &[])]);
    let running = || always(json!({"name": "c", "status": "RUNNING", "endpoint": "127.0.0.1:1"}));
    for class in [
        ErrorClass::Denied,
        ErrorClass::Unauthenticated,
        ErrorClass::Unavailable,
        ErrorClass::Throttled,
        ErrorClass::Unreadable,
        ErrorClass::TooLarge,
        ErrorClass::Invalid,
        ErrorClass::Other,
    ] {
        for (title, inside) in [(HERE, true), ("GET /v1/", false)] {
            let mut api = Fake::new();
            if inside {
                api = api.on("GET /v1/", running());
            }
            let api = Arc::new(api.on(title, refuses(class, "no")));
            let (_sender, interrupt) = watch::channel(0);
            let again = async { Err::<Plan, &str>("planned without the lock") };
            let begun = acquire(&plan, &*api, &lock(&api, paused), &interrupt, again).await;
            let refused = matches!(begun, Err(AcquireError::Lock(LockError::Failed(_))));
            assert!(refused, "{class:?} of {title}: {begun:?}");
            assert_eq!(api.writes(), Vec::<String>::new(), "{class:?} of {title}");
        }
    }
}
