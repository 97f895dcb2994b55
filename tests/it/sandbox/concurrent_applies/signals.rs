//! The second signal ends an apply within a second, wherever it is and whatever does not answer.

use proptest::prelude::*;

use super::*;
use crate::props::cases::check;

/// Answers until one request, which is under way for ever; so are all that follow on the same path.
struct HangingApi {
    store: Arc<Mutex<Store>>,
    left: Mutex<usize>,
    stuck: Mutex<Option<String>>,
}

impl LiveApi for HangingApi {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Value, ApiError>> {
        let mut left = self.left.lock().unwrap();
        let mut stuck = self.stuck.lock().unwrap();
        if *left == 0 && stuck.is_none() {
            *stuck = Some(request.path.clone());
        }
        *left = left.saturating_sub(1);
        if stuck.as_ref() == Some(&request.path) {
            let late = request.unanswered("no answer in time");
            // The limit of the clients.
            return async move {
                tokio::time::sleep(Duration::from_secs(30)).await;
                Err(late)
            }
            .boxed();
        }
        let answer = self.store.lock().unwrap().answer(&request);
        async move {
            tokio::time::sleep(Duration::from_millis(20)).await;
            answer
        }
        .boxed()
    }
}

#[derive(Clone, Debug)]
struct Case {
    /// The request that hangs.
    hangs: usize,
    /// Milliseconds to the first signal, and from there to the second.
    first: u64,
    second: u64,
    /// True if another process has the lock.
    locked: bool,
    destroys: bool,
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}

fn case() -> BoxedStrategy<Case> {
    let moment = prop_oneof![0..400_u64, 0..40_000_u64];
    (0..40_usize, moment.clone(), moment, any::<bool>(), any::<bool>())
        .prop_map(|(hangs, first, second, locked, destroys)| Case { hangs, first, second, locked, destroys })
        .boxed()
}

async fn ends_in_time(case: &Case) -> Result<(), String> {
    let Case { hangs, first, second, locked, destroys } = case.clone();
    let store = Arc::new(Mutex::new(Store::default()));
    let before = Job::apply(&[("a", "1"), ("b", "1")]);
    alone(&store, 7, &before).await;
    if locked {
        let request = Request::get(model::resource::Api::Kubernetes, RECORD);
        let mut live = store.lock().unwrap().answer(&request).unwrap();
        let entry = serde_json::json!({
            "holder": { "who": "other", "pid": 9 }, "since": "2026-11-22T10:00:00Z", "renewed": 1, "seconds": 15,
        });
        live["metadata"]["annotations"]["dask-infra.dev/lock"] = Value::String(entry.to_string());
        store.lock().unwrap().put(RECORD, live);
    }
    let job = match destroys {
        true => Job { mode: Mode::Destroy, ..before },
        false => Job::apply(&[("a", "2"), ("c", "1")]),
    };
    let api = Arc::new(HangingApi { store, left: Mutex::new(hangs), stuck: Mutex::default() });
    // The program listens from the moment at which the plan is agreed to: until then a signal ends it as usual.
    let agreed = planned(&DirectApi(Arc::clone(&api.store)), &job).await.unwrap();
    let (sender, interrupt) = watch::channel(0);
    let start = Instant::now();
    let signals = async {
        tokio::time::sleep(Duration::from_millis(first)).await;
        sender.send_replace(1);
        tokio::time::sleep(Duration::from_millis(second)).await;
        sender.send_replace(2);
        std::future::pending::<()>().await;
    };
    let ended = tokio::select! {
        ended = apply_approved(Arc::<HangingApi>::clone(&api), 1, agreed, job, interrupt) => ended,
        () = signals => unreachable!(),
    };
    let (took, most) = (start.elapsed(), Duration::from_millis(first + second + 1000));
    if took > most {
        let stuck = api.stuck.lock().unwrap().clone();
        return Err(format!("it ended {:?} too late ({ended:?}); {stuck:?} hung", took - most));
    }
    Ok(())
}

#[test]
fn the_second_signal_ends_an_apply_within_a_second() {
    check("stop within a second", 300, case(), |case| paused(ends_in_time(case)));
}

#[test]
fn a_signal_while_another_has_the_lock_ends_it_at_once() {
    // The first one is enough: nothing was begun.
    let case = Case { hangs: usize::MAX, first: 3000, second: 0, locked: true, destroys: false };
    paused(ends_in_time(&case)).unwrap();
}
