//! Every order, up to so many switches and accidents.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use futures::future::LocalBoxFuture;
use live::record;
use model::resource::Identity;
use serde_json::json;

use super::*;
use crate::props::cases::count;

/// Orders tried of each scenario when nobody says how many; all that there are within the bounds are fewer.
const ORDERS: u32 = 1500;
/// How long a process sleeps: longer than its lock holds, and than another waits for it.
const SLEEP: Duration = Duration::from_secs(40);

/// The next event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Move {
    /// The oldest request of a process is done and answered.
    Answer(usize),
    /// It is done, and its answer is lost.
    LoseAnswer(usize),
    /// It never arrives.
    LoseRequest(usize),
    /// The process dies after its request was sent, and that is done.
    Die(usize),
    /// It is answered, and the process sleeps before it does anything else.
    Sleep(usize),
}

impl Move {
    fn of(self) -> usize {
        match self {
            Self::Answer(who)
            | Self::LoseAnswer(who)
            | Self::LoseRequest(who)
            | Self::Die(who)
            | Self::Sleep(who) => who,
        }
    }

    fn is_accident(self) -> bool {
        !matches!(self, Self::Answer(_))
    }
}

struct PendingRequest {
    request: Request,
    /// How many locks had been written when it was sent.
    locks: usize,
    answer: oneshot::Sender<Result<Value, ApiError>>,
}

/// The state that both processes and the chooser of moves share.
#[derive(Default)]
struct Board {
    store: Arc<Mutex<Store>>,
    asked: Mutex<[VecDeque<PendingRequest>; 2]>,
    /// Holders of the lock, in order.
    locks: Mutex<Vec<u64>>,
    wrong: Mutex<Vec<String>>,
    wrote: Mutex<[bool; 2]>,
}

impl Board {
    /// Does a request, and looks whether it was one that must not be.
    fn perform(&self, who: usize, request: &Request, locks_then: usize) -> Result<Value, ApiError> {
        let mut store = self.store.lock().unwrap();
        let (before, me) = (store.holder(), who as u64 + 1);
        let answer = store.answer(request);
        let locks = self.locks.lock().unwrap().len();
        if request.writes() && answer.is_ok() {
            let title = request.title();
            // Whoever wants the lock makes its namespace.
            let beside = request.path.starts_with(RECORD)
                || (request.method == Method::Patch
                    && request.path.starts_with("/api/v1/namespaces/dask-infra?"));
            if let Some(holder) = before.filter(|holder| *holder != me) {
                if request.path.starts_with(RECORD) && store.holder() == Some(holder) {
                    self.wrong(format!("{me} wrote the record under the lock of {holder}: {title}"));
                } else if locks_then == locks && !beside {
                    self.wrong(format!("{me} sent {title} after {holder} had the lock"));
                }
            }
            if !request.path.contains("dask-infra") || request.path.contains("fieldManager=dask-infra/s") {
                self.wrote.lock().unwrap()[who] = true;
            }
        }
        if let Some(holder) = store.holder().filter(|holder| Some(*holder) != before) {
            self.locks.lock().unwrap().push(holder);
        }
        answer
    }

    fn wrong(&self, what: String) {
        self.wrong.lock().unwrap().push(what);
    }
}

/// One process's connection.
struct ProcessApi {
    board: Arc<Board>,
    who: usize,
}

impl LiveApi for ProcessApi {
    fn send(&self, request: Request) -> BoxFuture<'_, Result<Value, ApiError>> {
        let locks = self.board.locks.lock().unwrap().len();
        if !is_shared(&request) {
            let answer = self.board.perform(self.who, &request, locks);
            return async move { answer }.boxed();
        }
        let (answer, answered) = oneshot::channel();
        let lost = request.unanswered("nobody answers");
        self.board.asked.lock().unwrap()[self.who].push_back(PendingRequest { request, locks, answer });
        async move { answered.await.unwrap_or(Err(lost)) }.boxed()
    }
}

/// A process that can be made to sleep or to die.
struct ProcessFuture {
    work: Option<LocalBoxFuture<'static, ApplyEnd>>,
    state: Arc<Mutex<(State, Option<Waker>)>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Awake,
    Asleep,
    Dead,
}

impl Future for ProcessFuture {
    type Output = Option<ApplyEnd>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let state = {
            let mut state = self.state.lock().unwrap();
            state.1 = Some(context.waker().clone());
            state.0
        };
        match state {
            State::Dead => {
                self.work = None;
                Poll::Ready(None)
            }
            State::Asleep => Poll::Pending,
            State::Awake => self.work.as_mut().unwrap().poll_unpin(context).map(Some),
        }
    }
}

/// How many switches and accidents there may be.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    switches: usize,
    accidents: usize,
}

/// Everything that was decided, and out of how much.
#[derive(Clone, Debug, Default)]
struct Decisions {
    taken: Vec<(usize, usize)>,
    moves: Vec<Move>,
}

/// One run.
struct RunResult {
    decided: Decisions,
    ended: [Option<ApplyEnd>; 2],
    board: Arc<Board>,
}

fn moves(asked: &[VecDeque<PendingRequest>; 2], last: usize, left: Bounds) -> Vec<Move> {
    let mut found = Vec::new();
    let waiting: Vec<usize> = [last, 1 - last].into_iter().filter(|who| !asked[*who].is_empty()).collect();
    for (number, who) in waiting.iter().enumerate() {
        // To go on with the one that went last is free; so is to go over when that one asks nothing.
        if number > 0 && left.switches == 0 {
            break;
        }
        found.push(Move::Answer(*who));
    }
    if left.accidents > 0
        && let Some(who) = waiting.first()
    {
        found.push(Move::Sleep(*who));
        found.push(Move::LoseRequest(*who));
        if asked[*who][0].request.writes() {
            found.push(Move::LoseAnswer(*who));
            found.push(Move::Die(*who));
        }
    }
    found
}

/// Runs two jobs with what is decided beforehand, and the first choice from there on.
async fn run(jobs: &[Job; 2], start: &Store, choices: &[usize], bounds: Bounds) -> RunResult {
    let store = Arc::new(Mutex::new(start.clone()));
    let board = Arc::new(Board { store, ..Board::default() });
    let states: [_; 2] = std::array::from_fn(|_| Arc::new(Mutex::new((State::Awake, None::<Waker>))));
    let (_keep, interrupt) = watch::channel(0);
    let bodies = [0, 1].map(|who| {
        let line: Arc<dyn LiveApi> = Arc::new(ProcessApi { board: Arc::clone(&board), who });
        let work = process(line, who as u32 + 1, jobs[who].clone(), interrupt.clone());
        ProcessFuture { work: Some(work.boxed_local()), state: Arc::clone(&states[who]) }
    });
    let [first, second] = bodies;
    let over: Arc<Mutex<[bool; 2]>> = Arc::default();
    let note = |who: usize| {
        let over = Arc::clone(&over);
        move |ended: Option<ApplyEnd>| {
            over.lock().unwrap()[who] = true;
            ended
        }
    };
    let set = |who: usize, to: State| {
        let mut state = states[who].lock().unwrap();
        state.0 = to;
        if let Some(waker) = state.1.take() {
            waker.wake();
        }
    };
    let mut decided = Decisions::default();
    let decide = async {
        let (mut left, mut last) = (bounds, 0);
        let mut wakes: [Option<Instant>; 2] = [None, None];
        loop {
            // The clock moves only when both processes wait for something.
            tokio::time::sleep(Duration::from_millis(1)).await;
            for who in [0, 1] {
                if wakes[who].is_some_and(|at| Instant::now() >= at) {
                    wakes[who] = None;
                    set(who, State::Awake);
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
            if *over.lock().unwrap() == [true, true] {
                break;
            }
            let options = moves(&board.asked.lock().unwrap(), last, left);
            if options.is_empty() {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
            let number = choices.get(decided.taken.len()).copied().unwrap_or(0);
            let chosen = options[number];
            decided.taken.push((number, options.len()));
            decided.moves.push(chosen);
            let who = chosen.of();
            let both = board.asked.lock().unwrap().iter().all(|asked| !asked.is_empty());
            if who != last && both {
                left.switches -= 1;
            }
            left.accidents -= usize::from(chosen.is_accident());
            last = who;
            let PendingRequest { request, locks, answer } =
                board.asked.lock().unwrap()[who].pop_front().unwrap();
            let done = (chosen != Move::LoseRequest(who)).then(|| board.perform(who, &request, locks));
            let _gone = match (chosen, done) {
                (Move::Answer(_) | Move::Sleep(_), Some(done)) => answer.send(done),
                _ => answer.send(Err(request.unanswered("connection reset"))),
            };
            match chosen {
                Move::Die(_) => {
                    set(who, State::Dead);
                    board.asked.lock().unwrap()[who].clear();
                }
                Move::Sleep(_) => {
                    set(who, State::Asleep);
                    wakes[who] = Some(Instant::now() + SLEEP);
                }
                Move::Answer(_) | Move::LoseAnswer(_) | Move::LoseRequest(_) => {}
            }
            assert!(decided.moves.len() < 2000, "it does not end");
        }
    };
    let (first, second) = (first.map(note(0)), second.map(note(1)));
    let (first, second, ()) = futures::join!(first, second, decide);
    RunResult { decided, ended: [first, second], board }
}

/// The next choices in the order of trying, or none.
fn next_choices(taken: &[(usize, usize)]) -> Option<Vec<usize>> {
    let at = taken.iter().rposition(|(number, of)| number + 1 < *of)?;
    let mut choices: Vec<usize> = taken[..at].iter().map(|(number, _)| *number).collect();
    choices.push(taken[at].0 + 1);
    Some(choices)
}

type World = BTreeMap<String, Value>;

/// Returns the state after these jobs run one after the other.
fn serial(start: &Store, order: &[(u32, &Job)]) -> World {
    paused(async {
        let store = Arc::new(Mutex::new(start.clone()));
        for (pid, job) in order {
            alone(&store, *pid, job).await;
        }

        store.lock().unwrap().stack_objects()
    })
}

/// Everything that must hold when both have ended.
async fn holds(jobs: &[Job; 2], serials: &[World], ran: &RunResult) -> Vec<String> {
    let RunResult { board, ended, .. } = ran;
    let mut wrong = board.wrong.lock().unwrap().clone();
    let ours = board.store.lock().unwrap().stack_objects();
    let plain = DirectApi(Arc::clone(&board.store));
    let place = model::record::Record::object("s");
    let found = record::fetch(&plain, &place, live::retry::RetryPolicy::Read).await.unwrap();
    let stored = match found {
        record::StoredRecord::Absent | record::StoredRecord::OnlyLock => None,
        record::StoredRecord::Record(stored) => Some(stored.record),
    };
    let known: BTreeSet<String> = match stored {
        None => BTreeSet::new(),
        Some(Err(why)) => {
            wrong.push(format!("the record is broken: {why}"));
            BTreeSet::new()
        }
        Some(Ok(record)) => {
            let path = |identity: &Identity| match identity {
                Identity::Object(object) => Some(object.path()),
                _ => None,
            };
            record.inventory.iter().filter_map(|entry| path(&entry.identity)).collect()
        }
    };
    for path in ours.keys().filter(|path| !known.contains(*path)) {
        wrong.push(format!("{path} is there and the record does not know it"));
    }
    let wrote = *board.wrote.lock().unwrap();
    let quiet = [0, 1].iter().all(|who| match &ended[*who] {
        None => false,
        Some(ended) => ended.is_done() || !ended.has_begun(),
    });
    if quiet && !serials.contains(&ours) {
        wrong.push(format!("no order of the two leaves {ours:?}; {wrote:?} wrote"));
    }
    // Whatever happened, a destroy by somebody with the first stack file leaves nothing.
    tokio::time::sleep(SLEEP).await;
    for round in 0..2 {
        let destroy = Job { mode: Mode::Destroy, ..jobs[0].clone() };
        let destroyed = alone(&board.store, 9 + round, &destroy).await;
        if let ApplyEnd::Refused(why) = destroyed {
            wrong.push(format!("it cannot be destroyed: {why}"));
        }
    }
    let store = board.store.lock().unwrap();
    for path in store.marked_objects() {
        wrong.push(format!("{path} is left after a destroy"));
    }
    wrong
}

/// Tries all orders of a scenario within bounds; says how many there were.
fn explore(name: &str, jobs: [Job; 2], start: &Store, bounds: Bounds) {
    let serials = [
        serial(start, &[(1, &jobs[0]), (2, &jobs[1])]),
        serial(start, &[(2, &jobs[1]), (1, &jobs[0])]),
        serial(start, &[(1, &jobs[0])]),
        serial(start, &[(2, &jobs[1])]),
    ];
    let (most, mut tried, mut choices) = (count(ORDERS), 0, Some(Vec::new()));
    while let Some(these) = choices.filter(|_| tried < most) {
        let (ran, wrong) = paused(async {
            let ran = run(&jobs, start, &these, bounds).await;
            let wrong = holds(&jobs, &serials, &ran).await;
            (ran, wrong)
        });
        tried += 1;
        let RunResult { decided, ended, .. } = ran;
        assert!(wrong.is_empty(), "{name}:\n{}\n{:?}\n{ended:?}", wrong.join("\n"), decided.moves);
        choices = next_choices(&decided.taken);
    }
    println!("{name}: {tried} orders with at most {bounds:?}");
}

/// Returns the store after an undisturbed apply.
fn store_after(job: &Job) -> Store {
    paused(async {
        let store = Arc::new(Mutex::new(Store::default()));
        assert!(alone(&store, 7, job).await.is_done());

        store.lock().unwrap().clone()
    })
}

const SWITCHES: Bounds = Bounds { switches: 2, accidents: 0 };
const ACCIDENT: Bounds = Bounds { switches: 1, accidents: 1 };

#[test]
fn two_commits_of_one_stack_leave_what_one_after_the_other_leaves() {
    let start = store_after(&Job::apply(&[("a", "1")]));
    let jobs = || [Job::apply(&[("a", "1"), ("b", "1")]), Job::apply(&[("a", "2")])];
    explore("two commits", jobs(), &start, SWITCHES);
    explore("two commits, an accident", jobs(), &start, ACCIDENT);
}

#[test]
fn two_first_applies_leave_what_one_after_the_other_leaves() {
    let jobs = || [Job::apply(&[("a", "1")]), Job::apply(&[("a", "2"), ("b", "2")])];
    explore("two first applies", jobs(), &Store::default(), SWITCHES);
    explore("two first applies, an accident", jobs(), &Store::default(), ACCIDENT);
}

#[test]
fn an_apply_and_a_destroy_leave_what_one_after_the_other_leaves() {
    let start = store_after(&Job::apply(&[("a", "1"), ("b", "1")]));
    let jobs = || [Job::destroy(&[("a", "1"), ("b", "1")]), Job::apply(&[("b", "2"), ("c", "2")])];
    explore("apply and destroy", jobs(), &start, SWITCHES);
    explore("apply and destroy, an accident", jobs(), &start, ACCIDENT);
}

#[test]
fn what_others_put_beside_the_record_outlives_it() {
    let mut start = store_after(&Job::apply(&[("a", "1")]));
    let (token, theirs) =
        ("/api/v1/namespaces/dask-infra/secrets/ci-token", json!({ "metadata": { "name": "ci-token" } }));
    start.put(token, theirs);
    paused(async {
        let store = Arc::new(Mutex::new(start));
        assert!(alone(&store, 1, &Job::destroy(&[("a", "1")])).await.is_done());
        let store = store.lock().unwrap();
        assert!(store.at(token).is_some() && store.at(RECORD).is_none());
        assert!(store.stack_objects().is_empty());
    });
}

#[test]
fn a_record_that_cannot_be_used_is_told_with_its_cure_before_anything_is_done() {
    let stack = [("a", "1")];
    let healthy = store_after(&Job::apply(&stack));
    type Damage = fn(&mut Value);
    let damages: [(&str, Damage); 4] = [
        ("digest", |live| live["data"]["digest"] = json!("0000000000000000")),
        ("not valid base64", |live| live["binaryData"]["record"] = json!("?")),
        ("not a part", |live| live["data"]["parts"] = json!("dask-infra-other unrelated")),
        ("not a part", |live| {
            live["data"]["parts"] = json!("dask-infra-s.0123456789abcdef-2/../../secrets/x");
        }),
    ];
    for (says, damage) in damages {
        let mut broken = healthy.clone();
        let mut live = broken.at(RECORD).unwrap().clone();
        damage(&mut live);
        broken.put(RECORD, live);
        let other = "/api/v1/namespaces/dask-infra/configmaps/dask-infra-other";
        broken.put(other, json!({ "metadata": { "name": "dask-infra-other" } }));
        let store = Arc::new(Mutex::new(broken));
        for job in [Job::apply(&[("a", "2")]), Job::destroy(&stack)] {
            let before = store.lock().unwrap().stack_objects();
            let ApplyEnd::Refused(why) = paused(alone(&store, 1, &job)) else { panic!("{says}: it goes on") };
            // Lines are broken where they are full.
            let why = why.replace("  |", " ").split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(why.contains(says) && why.contains("delete configmap dask-infra-s"), "{why}");
            assert_eq!(store.lock().unwrap().stack_objects(), before);
        }
        // The cure.
        let request = Request {
            api: model::resource::Api::Kubernetes,
            method: Method::Delete,
            path: RECORD.into(),
            body: None,
        };
        store.lock().unwrap().answer(&request).unwrap();
        assert!(paused(alone(&store, 1, &Job::destroy(&stack))).is_done());
        let store = store.lock().unwrap();
        assert!(store.stack_objects().is_empty() && store.at(other).is_some());
    }
}
