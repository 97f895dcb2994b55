//! Ctrl-C.

use super::*;

#[tokio::test(start_paused = true)]
async fn ctrl_c_leaves_waits_and_starts_nothing() {
    let api = Fake::new()
        .on("PATCH /api/v1/namespaces/n/", always(json!({})))
        .on("GET /api/v1/namespaces/n/", always(json!({})));
    let api = Arc::new(api);
    let (sender, interrupt) = watch::channel(0);
    let plan = plan(vec![makes("a", &[]), makes("b", &[0])]);
    let stop = async {
        tokio::time::sleep(Duration::from_secs(20)).await;
        sender.send(1).unwrap();
    };
    let (applied, ()) = futures::join!(run(&plan, &api, interrupt), stop);
    let left = Outcome::InDoubt { message: "created, not yet ready: its phase".into() };
    assert_eq!(applied.outcomes, [left, Outcome::NotStarted]);
    assert!(
        applied.summary.stopped == AbortCause::Interrupted && applied.summary.took < Duration::from_secs(21)
    );
    assert!(applied.events.contains(&Event::Interrupted));
    assert!(!api.records().pop().unwrap().intent, "the outcome is recorded");
}

#[tokio::test(start_paused = true)]
async fn ctrl_c_watches_an_operation_a_moment_longer_and_a_second_one_does_not() {
    for (presses, least, most) in [(1, 25, 27), (2, 20, 21)] {
        let api = Arc::new(
            Fake::new().on("POST", always(operation("RUNNING"))).on(OPERATION, always(operation("RUNNING"))),
        );
        let (sender, interrupt) = watch::channel(0);
        let plan = plan(vec![makes_pool("a", &[])]);
        let stop = async {
            tokio::time::sleep(Duration::from_secs(20)).await;
            sender.send(presses).unwrap();
        };
        let (applied, ()) = futures::join!(run(&plan, &api, interrupt), stop);
        let Outcome::InDoubt { message } = &applied.outcomes[0] else { panic!("{:?}", applied.outcomes) };
        assert_eq!(message.contains("operation-1"), presses == 1, "{message}");
        assert!((least..=most).contains(&applied.summary.took.as_secs()), "{:?}", applied.summary.took);
    }
}
