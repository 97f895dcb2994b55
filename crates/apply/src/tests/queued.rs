//! Capacity that was requested and is not available: the apply ends without an error.

use super::*;

const POOL: &str = "GET /v1/projects/p/locations/l/clusters/c/nodePools/a";

/// Returns a change that is awaited for at most a minute, and two successors.
fn row() -> Vec<Change> {
    let identity = Identity::NodePool { cluster: cluster(), pool: "a".into() };
    let steps = vec![wait(&identity, Until::Ready, 60)];
    let first = change("a", identity, Action::Update, steps, &[]);
    vec![first, makes("b", &[0]), makes("c", &[1])]
}

fn queued() -> Value {
    json!({ "phase": "queued" })
}

#[tokio::test(start_paused = true)]
async fn what_is_queued_is_left_waiting_and_what_follows_waits_with_it() {
    let (applied, api) = quiet(row(), Fake::new().on(POOL, always(queued()))).await;
    let message = "node pool a: queued since then: machines".to_owned();
    let behind = || Outcome::Waits { because: Address::new("a") };
    assert_eq!(applied.outcomes, [Outcome::Queued { message }, behind(), behind()]);
    assert!(applied.summary.took >= ApplyOptions::CAPACITY, "{:?}", applied.summary.took);
    assert!(!api.writes().iter().any(|write| write.contains(CONFIG)), "{:?}", api.writes());
}

#[tokio::test(start_paused = true)]
async fn time_in_a_queue_counts_against_no_deadline() {
    // More than a minute of looks, three seconds apart.
    let mut replies = vec![Ok(queued()); 60];
    replies.push(Ok(ready()));
    let changes = row().into_iter().take(1).collect();
    let (applied, _) = quiet(changes, Fake::new().on(POOL, in_turn(replies))).await;
    assert_eq!(applied.outcomes, [Outcome::Done]);
    assert!(applied.summary.took > Duration::from_secs(60), "{:?}", applied.summary.took);
    // Once out of the queue, a start without progress times out.
    let mut replies = vec![Ok(queued()); 60];
    replies.push(Ok(json!({ "phase": "starting" })));
    let changes = row().into_iter().take(1).collect();
    let (applied, _) = quiet(changes, Fake::new().on(POOL, in_turn(replies))).await;
    assert!(matches!(&applied.outcomes[..], [Outcome::TimedOut { .. }]), "{:?}", applied.outcomes);
}
