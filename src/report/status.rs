//! The live state of a stack: rows for people, one JSON object for programs.

use serde_json::{Value, json};

use super::human::cost::RunningCost;
use super::human::style::{Tint, paint, push_line, strip_controls, wrap};
use kinds::kubernetes::why::shortened;
use kinds::status::StatusLine;
use model::address::Address;
use model::resource::{Identity, Owner, Progress, Target};

/// The state of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// It works.
    Ready,
    /// Not ready yet; with what it waits for.
    Waiting(Progress),
    /// Capacity was requested and is not available yet; with what is missing, and since when.
    Queued(String),
    /// It will not become ready by itself; with the reason.
    Failed(String),
    /// It does not exist.
    Absent,
    /// `stop` has deleted or scaled it down; with who did it and when.
    Stopped(String),
    /// It could not be read; with the reason.
    Unknown(String),
}

impl State {
    pub fn word(&self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Waiting(_) => "waiting",
            Self::Queued(_) => "queued",
            Self::Failed(_) => "failed",
            Self::Absent => "absent",
            Self::Stopped(_) => "stopped",
            Self::Unknown(_) => "unknown",
        }
    }

    /// Returns the reason for the state, if there is one.
    pub fn why(&self) -> Option<String> {
        match self {
            Self::Waiting(progress) => Some(progress.to_string()),
            Self::Ready
            | Self::Absent
            | Self::Queued(_)
            | Self::Failed(_)
            | Self::Unknown(_)
            | Self::Stopped(_) => self.brief().map(str::to_owned),
        }
    }

    /// Returns the reason as `why` does, without the details of pods if those are shown `below`.
    pub fn why_above(&self, below: bool) -> Option<String> {
        if below { self.brief().map(str::to_owned) } else { self.why() }
    }

    fn brief(&self) -> Option<&str> {
        match self {
            Self::Ready | Self::Absent => None,
            Self::Waiting(Progress { what: why, .. })
            | Self::Queued(why)
            | Self::Failed(why)
            | Self::Unknown(why)
            | Self::Stopped(why) => Some(why),
        }
    }

    fn tint(&self) -> Tint {
        match self {
            Self::Ready => Tint::Add,
            Self::Waiting(_) | Self::Queued(_) | Self::Unknown(_) => Tint::Change,
            Self::Failed(_) => Tint::Remove,
            Self::Absent | Self::Stopped(_) => Tint::Dim,
        }
    }

    /// Returns the rank of a state. In a section of several objects, the state of the highest rank is shown.
    fn gravity(&self) -> u8 {
        match self {
            Self::Ready => 0,
            Self::Stopped(_) => 1,
            Self::Absent => 2,
            Self::Queued(_) | Self::Waiting(_) => 3,
            Self::Unknown(_) => 4,
            Self::Failed(_) => 5,
        }
    }
}

/// One resource of the stack.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The address in the stack.
    pub address: Address,
    /// The identity in the API.
    pub identity: Identity,
    /// The state.
    pub state: State,
    /// Its status line.
    pub said: StatusLine,
}

/// The live state of a stack.
#[derive(Clone, Debug, PartialEq)]
pub struct Status {
    /// The owner of the resources.
    pub owner: Owner,
    pub target: Target,
    /// The resources of the stack, in the order of creation.
    pub rows: Vec<Row>,
    /// The cost of what exists.
    pub cost: RunningCost,
}

impl Status {
    /// Returns true if everything is ready.
    pub fn is_ready(&self) -> bool {
        self.rows.iter().all(|row| row.state == State::Ready)
    }

    /// Returns true if everything is ready or stopped.
    pub fn is_ready_or_stopped(&self) -> bool {
        self.rows.iter().all(|row| matches!(row.state, State::Ready | State::Stopped(_)))
    }

    /// Returns true if everything is ready, stopped or failed, so that time alone changes nothing more.
    pub fn is_over(&self) -> bool {
        self.rows.iter().all(|row| matches!(row.state, State::Ready | State::Stopped(_) | State::Failed(_)))
    }

    pub fn has_failed(&self) -> bool {
        self.rows.iter().any(|row| matches!(row.state, State::Failed(_)))
    }

    /// Returns the resources that are new or whose state differs from `before`.
    pub fn changes(&self, before: &Self) -> Vec<Changed> {
        let was = |row: &Row| before.rows.iter().find(|other| other.identity == row.identity);
        let other = |row: &&Row| was(row).is_none_or(|was| was.state != row.state);
        let changed = |row: &Row| Changed {
            address: row.address.clone(),
            identity: row.identity.clone(),
            state: row.state.clone(),
        };
        self.rows.iter().filter(other).map(changed).collect()
    }

    /// Returns the JSON for programs.
    pub fn json(&self) -> Value {
        let Self { owner, target, rows, cost } = self;
        let rows = rows.iter().map(|Row { address, identity, state, said }| {
            let facts: serde_json::Map<String, Value> =
                said.facts.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
            let pending = said.pending.iter().map(|pending| {
                json!({ "namespace": pending.namespace, "pod": pending.pod, "why": pending.why })
            });
            json!({
                "address": address, "identity": identity.to_string(), "state": state.word(), "why": state.why(),
                "facts": facts, "pending": pending.collect::<Vec<_>>(),
            })
        });
        json!({
            "stack": owner.stack, "target": target.to_string(), "simulated": target.simulated,
            "ready": self.is_ready(), "things": rows.collect::<Vec<_>>(), "running_cost": cost.json(),
        })
    }

    /// Returns the text for people: one line per section, or per object if `every` is set.
    pub fn text(&self, every: bool, width: usize) -> String {
        let Self { owner, target, rows, cost } = self;
        let mut text = wrap("", &format!("Stack {} on {target} — {}", owner.stack, target.label()), width);
        text.push('\n');
        let lines = lines(rows, every);
        let column =
            lines.iter().map(|line| line.name.chars().count()).max().unwrap_or_default().min(width / 2);
        for line in &lines {
            line.write(&mut text, column, width);
        }
        let ready = lines.iter().filter(|line| *line.state == State::Ready).count();
        let absent = lines.iter().filter(|line| *line.state == State::Absent).count();
        let stopped = lines.iter().filter(|line| matches!(line.state, State::Stopped(_))).count();
        let total = match (lines.len(), absent) {
            (all, 0) if stopped > 0 => format!("{ready} of {all} are ready, {stopped} stopped."),
            (all, absent) if stopped > 0 => {
                let verb = if absent == 1 { "does" } else { "do" };
                format!("{ready} of {all} are ready, {stopped} stopped, {absent} {verb} not exist.")
            }
            (0, _) => "The stack is empty.".to_owned(),
            (all, absent) if all == absent => "Nothing exists yet.".to_owned(),
            (1, _) if ready == 1 => "It is ready.".to_owned(),
            (all, _) if all == ready => format!("All {all} are ready."),
            (1, 0) => "It is not ready.".to_owned(),
            (all, 0) => format!("{ready} of {all} are ready."),
            (all, 1) => format!("{ready} of {all} are ready, 1 does not exist."),
            (all, absent) => format!("{ready} of {all} are ready, {absent} do not exist."),
        };
        text.push_str(&format!("\n{}\n", paint(Tint::Bold, &total)));
        if let Some(cost) = cost.shown() {
            text.push_str(&wrap("", &cost, width));
        }
        text
    }
}

/// A thing whose state has changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Changed {
    pub address: Address,
    pub identity: Identity,
    pub state: State,
}

impl Changed {
    /// As one line, which names the moment.
    pub fn shown(&self, json: bool, moment: jiff::Timestamp) -> String {
        let Self { address, identity, state } = self;
        let moment = moment.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        if json {
            let line = json!({
                "time": moment, "type": "state", "address": address, "identity": identity.to_string(),
                "state": state.word(), "why": state.why(),
            });
            return format!("{line}\n");
        }
        // `queued since …` says it already.
        let why = state.why().as_deref().map(strip_controls).unwrap_or_default();
        let said = match (state, why.as_str()) {
            (_, "") => state.word().to_owned(),
            (State::Queued(_) | State::Stopped(_), why) => why.to_owned(),
            (_, why) => format!("{}: {why}", state.word()),
        };
        format!("{moment}  {address}  {said}\n")
    }
}

/// A row or several of one section.
struct Line<'r> {
    name: &'r str,
    state: &'r State,
    says: Vec<String>,
    pending: Vec<(&'r str, &'r str)>,
}

fn lines(rows: &[Row], every: bool) -> Vec<Line<'_>> {
    let mut lines: Vec<Line<'_>> = Vec::new();
    let mut counts: Vec<(usize, usize)> = Vec::new();
    for row in rows {
        let name = if every { row.address.as_str() } else { row.address.section() };
        let pending = row
            .said
            .pending
            .iter()
            .map(|pending| (pending.pod.as_str(), pending.why.as_deref().unwrap_or("no reason given")));
        let ready = usize::from(row.state == State::Ready);
        let place = lines.iter().position(|line| line.name == name);
        let place = place.unwrap_or_else(|| {
            lines.push(Line { name, state: &row.state, says: Vec::new(), pending: Vec::new() });
            counts.push((0, 0));
            lines.len() - 1
        });
        let line = &mut lines[place];
        if row.state.gravity() > line.state.gravity() {
            line.state = &row.state;
        }
        line.says.extend(Some(row.said.line.clone()).filter(|said| !said.is_empty()));
        line.pending.extend(pending);
        counts[place] = (counts[place].0 + ready, counts[place].1 + 1);
    }
    for (line, (ready, all)) in lines.iter_mut().zip(counts) {
        if all > 1 {
            line.says.insert(0, format!("{ready} of {all} objects ready"));
        }
    }
    lines
}

impl Line<'_> {
    fn write(&self, text: &mut String, column: usize, width: usize) {
        let pad = column.saturating_sub(self.name.chars().count());
        let state = format!("{:7}", self.state.word());
        let first = format!(
            "  {}  {}{}  ",
            paint(self.state.tint(), &state),
            paint(Tint::Bold, self.name),
            " ".repeat(pad)
        );
        let said = strip_controls(&self.says.join("; "));
        if said.is_empty() {
            push_line(text, &first);
        } else {
            text.push_str(&wrap(&first, &said, width));
        }
        // Reasons of pods are printed once, below.
        if let Some(why) = self.state.why_above(!self.pending.is_empty()) {
            text.push_str(&wrap("           ", &format!("{}{}", self.intro(), strip_controls(&why)), width));
        }
        let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
        for (pod, why) in &self.pending {
            let why = shortened(why);
            match reasons.iter_mut().find(|(reason, _)| *reason == why) {
                Some((_, pods)) => pods.push(pod),
                None => reasons.push((why, vec![pod])),
            }
        }
        for (why, pods) in reasons {
            let names = match pods.as_slice() {
                [one] => format!("pod {one}"),
                few if few.len() <= 3 => format!("{} pods ({})", few.len(), few.join(", ")),
                many => format!("{} pods ({}, …)", many.len(), many[0]),
            };
            text.push_str(&wrap("           ", &strip_controls(&format!("{names}: {why}")), width));
        }
    }

    fn intro(&self) -> &'static str {
        match self.state {
            State::Unknown(_) => "cannot be read: ",
            State::Waiting(_)
            | State::Queued(_)
            | State::Failed(_)
            | State::Ready
            | State::Absent
            | State::Stopped(_) => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kinds::status::Pending;
    use model::prices::Sum;

    fn row(address: &str, state: State, line: &str) -> Row {
        let said = StatusLine { line: line.to_owned(), ..StatusLine::default() };
        Row { address: Address::new(address), identity: Identity::Check(Address::new(address)), state, said }
    }

    fn status(rows: Vec<Row>) -> Status {
        let owner = Owner { stack: "s".to_owned(), id: "i".to_owned() };
        let target = Target { context: Some("lab".to_owned()), simulated: true, ..Target::default() };
        Status { owner, target, rows, cost: RunningCost::default() }
    }

    #[test]
    fn sections_have_one_line_and_the_gravest_state() {
        let waits =
            Progress { what: "1 of 3 workers ready".to_owned(), blocked_by: Some("no node".to_owned()) };
        let mut workers = row("dask_cluster.d", State::Waiting(waits), "Running");
        let pending = |pod: &str| Pending {
            namespace: "n".to_owned(),
            pod: pod.to_owned(),
            why: Some("unschedulable: no GPUs. preemption: none".to_owned()),
            unscheduled: true,
        };
        workers.said.pending = vec![pending("w-1"), pending("w-2")];
        let cluster = row("cluster", State::Ready, "RUNNING");
        let mut status = status(vec![
            cluster,
            row("op/A/x", State::Ready, ""),
            row("op/B/y", State::Failed("it crashed".to_owned()), ""),
            workers,
            row("check.c", State::Absent, ""),
        ]);
        let sum = Sum { usd: 1.1, unknown: ["a9-giga".to_owned()].into(), spot: false };
        let (region, date) = ("us-central1".to_owned(), "2026-07-30".to_owned());
        status.cost = RunningCost { sum, region, date, origin: model::prices::Origin::List };
        let text = anstream::adapter::strip_str(&status.text(false, 80)).to_string();
        let expected = "Stack s on context lab of the kubeconfig — SIMULATED\n\n\
            \x20 ready    cluster         RUNNING\n\
            \x20 failed   op              1 of 2 objects ready\n\
            \x20          it crashed\n\
            \x20 waiting  dask_cluster.d  Running\n\
            \x20          1 of 3 workers ready\n\
            \x20          2 pods (w-1, w-2): unschedulable: no GPUs.\n\
            \x20 absent   check.c\n\
            \n1 of 4 are ready, 1 does not exist.\n\
            Running cost: at least $1.10/h, at least $26 a day (list prices of us-central1,\n\
            2026-07-30, with boot disks, without traffic); price unknown: a9-giga\n";
        assert_eq!(text, expected);
        let json = status.json();
        assert_eq!(
            (json["ready"].clone(), json["things"][3]["pending"][0]["pod"].clone()),
            (json!(false), json!("w-1"))
        );
    }

    #[test]
    fn the_total_says_what_there_is() {
        for (rows, total) in [
            (vec![], "The stack is empty."),
            (vec![row("a", State::Absent, "")], "Nothing exists yet."),
            (vec![row("a", State::Ready, "")], "It is ready."),
        ] {
            assert!(status(rows).text(false, 80).contains(total));
        }
    }
}
