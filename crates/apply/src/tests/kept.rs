//! Resources that a plan keeps: half created ones that apply waits for, and ready ones that it only checks.

use super::*;

fn kept(name: &str, until: Until) -> Change {
    let mut change = makes(name, &[]);
    change.action = Action::Keep;
    change.steps = vec![wait(&change.identity, until, 60)];
    change
}

fn warnings(applied: &Applied) -> Vec<&str> {
    let warning = |event: &'_ Event| matches!(event, Event::Warning { .. });
    let all = applied.events.iter().filter(|event| warning(event));
    all.filter_map(|event| if let Event::Warning { message } = event { Some(message.as_str()) } else { None })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn what_may_be_half_made_is_waited_for_to_the_end() {
    let waits = || json!({ "phase": "starting" });
    let half = || in_turn(vec![Ok(waits()), Ok(waits()), Ok(ready())]);
    let api = Fake::new().on("GET /api/v1/namespaces/n/", half());
    let (applied, api) = quiet(vec![kept("a", Until::Ready)], api).await;
    assert_eq!(applied.outcomes, [Outcome::Done]);
    // Nothing is written but that it has been seen ready.
    assert_eq!(api.writes(), ["PATCH /api/v1/namespaces/dask-infra/configmaps/dask-infra-s"]);
    let [record] = &api.records()[..] else { panic!() };
    assert_eq!((record.intent, record.inventory[0].ready), (false, Some(true)));

    let api = Fake::new().on("GET /api/v1/namespaces/n/", always(waits()));
    let (applied, api) = quiet(vec![kept("a", Until::Ready)], api).await;
    assert!(matches!(&applied.outcomes[..], [Outcome::TimedOut { .. }]), "{:?}", applied.outcomes);
    assert_eq!(api.records()[0].inventory[0].ready, Some(false));
}

#[tokio::test(start_paused = true)]
async fn what_was_ready_before_holds_up_nothing() {
    let patched = || Fake::new().on("PATCH /api/v1/namespaces/n/", always(json!({})));
    let looks: [(&str, Answer); 4] = [
        ("is not ready now: its phase", always(json!({ "phase": "starting" }))),
        ("it fell over", always(json!({ "phase": "failed" }))),
        ("cannot be read", refuses(ErrorClass::Denied, "no")),
        ("no answer", refuses(ErrorClass::Unavailable, "no")),
    ];
    for (words, answer) in looks {
        let api = patched()
            .on("GET /api/v1/namespaces/n/", always(ready()))
            .on("GET /api/v1/namespaces/n/configmaps/a", answer);
        let (applied, _) = quiet(vec![kept("a", Until::StillReady), makes("b", &[0])], api).await;
        assert_eq!(applied.outcomes, [Outcome::Done, Outcome::Done], "{words}");
        let told = warnings(&applied);
        assert!(matches!(told[..], [told] if told.contains(words)), "{words}: {told:?}");
    }
    let api = patched().on("GET /api/v1/namespaces/n/", always(ready()));
    let (applied, _) = quiet(vec![kept("a", Until::StillReady), makes("b", &[0])], api).await;
    assert_eq!((applied.outcomes.len(), warnings(&applied)), (2, Vec::new()));
}

#[test]
fn what_the_record_says_of_readiness_follows_fates() {
    use plan::Progress;
    use record::inventory;

    use model::record::Entry;
    let before = |ready| {
        let identity = makes("a", &[]).identity;
        [Entry {
            address: Address::new("a"),
            identity,
            kind: KindId::Object.into(),
            set: Value::Null,
            ready,
            took: None,
        }]
    };
    let update = Change { action: Action::Update, ..makes("a", &[]) };
    let rows = [
        (update.clone(), Progress::Open, Some(true), Some(false)),
        (update.clone(), Progress::Done, Some(false), Some(true)),
        (update, Progress::Untouched, Some(false), Some(false)),
        (kept("a", Until::Ready), Progress::Open, None, Some(false)),
        (kept("a", Until::Ready), Progress::Untouched, Some(false), Some(false)),
        (kept("a", Until::Ready), Progress::Done, Some(false), Some(true)),
        // It was only looked at, which changes nothing of what is known.
        (kept("a", Until::StillReady), Progress::Open, Some(true), Some(true)),
    ];
    for (change, progress, then, now) in rows {
        let plan = plan(vec![change]);
        assert_eq!(inventory(&plan, &before(then), |_| progress)[0].ready, now, "{progress:?} {then:?}");
    }
}
