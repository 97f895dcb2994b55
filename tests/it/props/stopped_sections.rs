//! Stopped sections wait: until they are started, an edit of them creates nothing, changes no pool and needs no approval. Once
//! started, they are as the file says.

use std::fmt;

use plan::Mode;
use proptest::prelude::*;
use sandbox::Stockout;
use serde_json::Value;

use super::cases::check;
use super::gke_keys::Keys;
use super::interrupted_commands::{makes_nothing, stopped_pools};
use super::laws::{self, Tally};
use super::player::{Player, paused};
use super::script::{Approvals, Command, Edit, Others, Step};
use super::stacks::{Change, Expiry, POOLS, Section, Slot, Spec, Tweak, Writer};

/// Slots that are edited. Each can be stopped.
const EDITED: [Slot; 3] = [Slot::Pool(1), Slot::Pool(2), Slot::Dask(0)];

/// A pool with a fallback.
const FALLBACK: &str = r#"
[node_pool.more]
machine_type = "n2-standard-4"
nodes = 1
reservation = { name = "some" }
capacity = ["reservation", "spot", "on-demand"]
"#;

/// A lack of machines before the stop.
#[derive(Clone, Debug)]
enum MachineShortage {
    /// The stack has [`FALLBACK`], and GKE no machines for the first options of it.
    Options(Vec<&'static str>),
    /// There are no machines for the pool `extra`: its creation fails.
    Extra,
}

#[derive(Clone, Debug)]
struct Case {
    spec: Spec,
    lacks: Option<MachineShortage>,
    /// False if nothing was applied before the stop.
    begun: bool,
    /// A pool of [`POOLS`] that somebody else has deleted before the stop.
    deleted: Option<usize>,
    /// The slot that is stopped alone; `None` stops the whole stack.
    stopped: Option<Slot>,
    edits: Vec<Change>,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lacks, begun, deleted, stopped, edits, .. } = self;
        writeln!(f, "{}", self.file(&self.spec).stack)?;
        writeln!(f, "lacks: {lacks:?}, begun: {begun}, deleted: {deleted:?}, stopped: {stopped:?}")?;
        write!(f, "edits: {edits:?}")
    }
}

/// The lack of machines, whether anything was applied, the deleted pool, and the slot that is stopped alone.
type InitialState = (Option<MachineShortage>, bool, Option<usize>, Option<Slot>);

/// The sorts of cases. Pools that run may be created or tried again, and what was never created cannot be stopped.
fn sorts() -> [(&'static str, BoxedStrategy<InitialState>); 4] {
    let options = prop::sample::select(vec![vec!["reservation"], vec!["reservation", "spot"]]);
    let lacks =
        prop_oneof![1 => options.prop_map(MachineShortage::Options), 2 => Just(MachineShortage::Extra)];
    let one = prop::sample::select(&EDITED[..]).prop_map(|slot| (None, true, None, Some(slot)));
    [
        ("one section is stopped", one.boxed()),
        ("all is stopped", proptest::bool::weighted(0.8).prop_map(|begun| (None, begun, None, None)).boxed()),
        ("a pool is gone", (1..POOLS.len()).prop_map(|pool| (None, true, Some(pool), None)).boxed()),
        ("machines are missing", lacks.prop_map(|lacks| (Some(lacks), true, None, None)).boxed()),
    ]
}

fn case(before: BoxedStrategy<InitialState>) -> impl Strategy<Value = Case> {
    (spec(), before).prop_flat_map(|(spec, (lacks, begun, deleted, stopped))| {
        let slots = stopped.map_or(EDITED.to_vec(), |slot| vec![slot]);
        // Other objects, of what is stopped alone or of the Dask cluster.
        let other = prop::sample::select(vec![Tweak::Namespace(1), Tweak::Extra]);
        let first = other.prop_map(move |tweak| Change::Tweak(stopped.unwrap_or(Slot::Dask(0)), tweak));
        let edit =
            (prop::sample::select(slots), tweak()).prop_map(|(slot, tweak)| Change::Tweak(slot, tweak));
        let edits = (first, prop::collection::vec(edit, 1..3));
        edits.prop_map(move |(first, more)| Case {
            spec: spec.clone(),
            lacks: lacks.clone(),
            begun,
            deleted,
            stopped,
            edits: std::iter::once(first).chain(more).collect(),
        })
    })
}

/// Everything that can be stopped, in a cluster of the stack's own.
fn spec() -> impl Strategy<Value = Spec> {
    let variants = (0..2usize, any::<bool>(), any::<bool>());
    variants.prop_map(|(variant, labels, extra)| {
        let mut sections: Vec<Section> = EDITED.map(Section::of).to_vec();
        for section in &mut sections {
            (section.variant, section.labels, section.extra) = (variant, labels, extra);
        }
        sections.extend([Slot::Operator, Slot::Namespace(1)].map(Section::of));
        let (regional, autopilot, labels, protect) = Default::default();
        Spec { own_cluster: true, regional, autopilot, keys: Keys::new(), labels, protect, sections }
    })
}

fn tweak() -> impl Strategy<Value = Tweak> {
    prop_oneof![
        1 => Just(Tweak::Variant),
        1 => Just(Tweak::Key),
        1 => Just(Tweak::Namespace(1)),
        1 => Just(Tweak::Extra),
        1 => (1..3u32).prop_map(Tweak::Number),
        1 => prop::sample::select(vec![Writer::File, Writer::Autoscaler]).prop_map(Tweak::Writer),
        2 => Just(Tweak::Labels),
        1 => prop::sample::select(vec![Expiry::Never, Expiry::Ttl, Expiry::IdleTimeout])
            .prop_map(Tweak::Expiry),
        1 => (0..64usize).prop_map(Tweak::Gke),
    ]
}

impl Case {
    fn file(&self, spec: &Spec) -> Edit {
        let mut edit = spec.render();
        if matches!(self.lacks, Some(MachineShortage::Options(_))) {
            edit.stack += FALLBACK;
        }
        edit
    }

    /// The world before the stop.
    async fn before(&self) -> Player {
        let mut player = Player::new();
        let stockouts = match &self.lacks {
            None => Vec::new(),
            Some(MachineShortage::Options(ways)) => {
                let of = |way: &&str| Stockout { way: Some((*way).to_owned()), ..Stockout::forever("more") };
                ways.iter().map(of).collect()
            }
            Some(MachineShortage::Extra) => vec![Stockout::forever("extra")],
        };
        if matches!(self.lacks, Some(MachineShortage::Extra)) {
            // A pool that is created with its cluster would take that along.
            let mut first = self.spec.clone();
            first.edit(&Change::Remove(Slot::Pool(2)));
            player.step(&Step::Edit(first.render())).await;
            player.step(&Step::Apply(Command::default())).await;
        }
        for stockout in stockouts {
            player.harness.sandbox.add_stockout(stockout).unwrap();
        }
        player.step(&Step::Edit(self.file(&self.spec))).await;
        if self.begun {
            player.step(&Step::Apply(Command::default())).await;
            if let Some(pool) = self.deleted {
                let path = format!(
                    "{}/clusters/{}/nodePools/{}",
                    self.spec.parent(),
                    self.spec.cluster(),
                    POOLS[pool]
                );
                player.step(&Step::Others(Others::request("DELETE", path, &Value::Null))).await;
            }
        }
        player
    }

    fn stop(&self) -> Step {
        let target = self.stopped.map(|slot| Section::of(slot).address()).into_iter().collect();
        Step::Stop(Command { target, ..Command::default() })
    }

    fn apply(&self, approval: Approvals) -> Step {
        Step::Apply(Command { approval, retry_capacity: self.lacks.is_some(), ..Command::default() })
    }

    async fn holds(&self, tally: &Tally) -> Result<(), String> {
        let mut player = self.before().await;
        let done = player.step(&self.stop()).await;
        tally.step(&self.stop(), &done);
        makes_nothing(&done).map_err(|why| format!("stop {why}"))?;
        if !self.begun {
            // Nowhere to note it.
            return Ok(());
        }
        let mut spec = self.spec.clone();
        for edit in &self.edits {
            spec.edit(edit);
            player.step(&Step::Edit(self.file(&spec))).await;
            let before = stopped_pools(&player).await;
            let step = self.apply(Approvals::Nothing);
            let done = player.step(&step).await;
            tally.step(&step, &done);
            laws::deletions_are_named(&player, &step, &done)?;
            makes_nothing(&done).map_err(|why| format!("{edit:?} of what is stopped {why}"))?;
            if let Some(why) = done.refused {
                return Err(format!("{edit:?} of what is stopped: {why}"));
            }
            let after = stopped_pools(&player).await;
            for (name, pool) in &before {
                if after.get(name) != Some(pool) {
                    return Err(format!("{edit:?} changes the stopped {name}: {pool} {:?}", after.get(name)));
                }
            }
        }
        for step in [Step::Start(Command::default()), self.apply(Approvals::All)] {
            let done = player.step(&step).await;
            tally.step(&step, &done);
            laws::deletions_are_named(&player, &step, &done)?;
            laws::live_keys_match(&player, &step, &done)?;
        }
        if let Some(MachineShortage::Extra) = self.lacks {
            return Ok(());
        }
        match player.harness.plan(player.stack.as_ref().unwrap(), Mode::Apply).await {
            Ok(plan) if plan.is_empty() => Ok(()),
            Ok(plan) => Err(format!("started again, and there is still {}", laws::actions(&plan).join("; "))),
            Err(why) => Err(format!("started again, and there is no plan: {why}")),
        }
    }
}

#[test]
fn an_edit_of_what_is_stopped_waits_for_its_start() {
    let tally = Tally::default();
    for (sort, before) in sorts() {
        check(sort, 2, case(before).boxed(), |case| paused(case.holds(&tally)));
    }
    tally.demand(2, &["stop: done", "apply: nothing to do", "start: done"]);
}
