//! Stacks of cases, planned: `tests/cases/plan-*/stack.toml` against a world. The world is what applying `before.toml` left
//! (nothing when there is none), with `live.json` merged over it by identity. `options.json` may ask for more.

#![allow(dead_code, clippy::unwrap_used, reason = "`cases` and `it` take a part each")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use model::address::{Address, FieldPath};
use model::diag::{self, Look};
use model::record::Stop;
use model::resource::{Identity, Seen, World};
use model::secrets::env_values::EnvValues;
use model::source::{Sources, Span};
use plan::{Approval, ApprovalVerb, Inputs, Mode, Plan, Selection, StopRequest, plan};
use serde::Deserialize;
use serde_json::json;
use stack::disk::Trust;
use stack::lower::{Lowered, lower};
use stack::{Options, load_with, parse_in};

use crate::charts;
use crate::golden::{cases, root};
use crate::overlay::{overlay, share};
use crate::world::settled;

/// The `options.json` of a case.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Asked {
    pub destroy: bool,
    pub allow: Vec<String>,
    pub replace: Vec<String>,
    pub target: Vec<String>,
    pub exclude: Vec<String>,
    pub refresh_only: bool,
    pub without_record: bool,
    /// Addresses that no apply has seen ready.
    pub half_made: Vec<String>,
    pub retarget: bool,
    pub retry_capacity: bool,
    pub also_applied_by: Option<String>,
    pub applied_instead_by: Option<String>,
    /// The thing, the number, and whether the stack file keeps it.
    pub scale: Option<(String, u32, bool)>,
    pub when_idle: Option<u32>,
    /// The arguments of `stop`: none means all.
    pub stop: Option<Vec<String>>,
    pub start: bool,
    /// The target is Google's own, not the sandbox's.
    pub for_google: bool,
    /// Variables of the environment in which the plan is made.
    pub environment: BTreeMap<String, String>,
}

/// Reads a stack file, with the charts that are kept beside it.
pub fn read(path: &Path) -> Option<(Lowered, Sources)> {
    let text = fs::read_to_string(path).ok()?;
    let vars = BTreeMap::new();
    let env = |name: &str| (name == "GOOGLE_CLOUD_PROJECT").then(|| "demo".to_owned());
    let name = path.file_name()?.to_string_lossy().into_owned();
    let helm = charts::recorded(path.parent()?, path.file_stem()?.to_str()?);
    let options = Options { env: &env, vars: &vars, helm: Some(&helm) };
    let loaded = match parse_in(path.parent()?, &name, &text, &options) {
        Ok(loaded) => loaded,
        Err(failure) => panic!("{}", diag::render(&failure.diagnostics, &failure.sources, Look::PLAIN)),
    };
    Some((lower(&loaded.stack, true), loaded.sources))
}

/// Reads a stack file with another number at one place.
fn read_with(path: &Path, place: &FieldPath, number: u32) -> (Lowered, Sources) {
    let vars = BTreeMap::new();
    let env = |name: &str| (name == "GOOGLE_CLOUD_PROJECT").then(|| "demo".to_owned());
    let options = Options { env: &env, vars: &vars, helm: None };
    let loaded = load_with(path, &options, &[(place.clone(), json!(number))], Trust::Repository).unwrap();
    let mut sources = Sources::default();
    let file = sources.add("stack.toml", fs::read_to_string(path).unwrap());
    if let Some(span) = loaded.sources.written(place) {
        sources.record(place, None, Span { file, ..span });
    }
    (lower(&loaded.stack, true), sources)
}

fn approval(text: &str) -> Approval {
    let (verb, address) = text.split_once(':').unwrap();
    let verb = ApprovalVerb::OF_CHANGES.into_iter().find(|known| known.as_str() == verb).unwrap();
    Approval { verb, address: Address::new(address) }
}

/// Everything that a plan is made from.
pub fn inputs<'a>(wanted: Lowered, sources: &'a Sources, world: &'a World, asked: &Asked) -> Inputs<'a> {
    let mode = if asked.destroy { Mode::Destroy } else { Mode::Apply };
    // By it they are found when the record is lost.
    let objects = wanted.resources.iter().filter(|one| matches!(one.identity, Identity::Object(_)));
    for object in objects {
        let label = &object.body["metadata"]["labels"]["app.kubernetes.io/managed-by"];
        assert!(label.is_string(), "{} has no label", object.address);
    }
    let mut inputs = Inputs {
        approved: asked.allow.iter().map(|text| approval(text)).collect(),
        replace: asked.replace.iter().map(Address::new).collect(),
        selection: Selection {
            targets: asked.stop.clone().unwrap_or_else(|| asked.target.clone()),
            excludes: asked.exclude.clone(),
        },
        allow_retarget: asked.retarget,
        retry_capacity: asked.retry_capacity,
        idle_wait_seconds: asked.when_idle,
        ..Inputs::of(wanted, mode, world, sources)
    };
    inputs.stop_state.request = match (&asked.stop, asked.start) {
        (Some(_), _) => StopRequest::Stop(Stop {
            by: "bob@desk".into(),
            since: "2026-11-23T18:00:00Z".into(),
            section: None,
        }),
        (None, true) => StopRequest::Start,
        (None, false) => StopRequest::Leave,
    };
    inputs
}

/// A plan or why there is none, and the sources that it speaks of.
pub type Planned = (Result<Plan, Vec<diag::Diagnostic>>, Sources);

/// A case, ready to be planned.
pub struct Case {
    pub asked: Asked,
    pub world: World,
    pub wanted: Lowered,
    pub sources: Sources,
}

impl Case {
    pub fn read(folder: &Path) -> Self {
        let asked: Asked = fs::read_to_string(folder.join("options.json"))
            .map_or_else(|_| Asked::default(), |text| serde_json::from_str(&text).unwrap());
        let mut world =
            read(&folder.join("before.toml")).map_or_else(World::empty, |(before, _)| settled(&before));
        for (manager, instead) in [(&asked.also_applied_by, false), (&asked.applied_instead_by, true)] {
            if let Some(manager) = manager {
                share(&mut world, manager, instead);
            }
        }
        let (mut wanted, sources) = read(&folder.join("stack.toml")).unwrap();
        wanted.target.simulated = !asked.for_google;
        let bodies = wanted.resources.iter().map(|resource| &resource.body);
        world.env_values = EnvValues::read(bodies, |name| asked.environment.get(name).cloned());
        if let Seen::Live(objects) = &mut world.objects {
            objects.values_mut().for_each(|live| *live = world.env_values.filled(live));
        }
        if let Ok(text) = fs::read_to_string(folder.join("live.json")) {
            overlay(&mut world, &serde_json::from_str(&text).unwrap());
        }
        for entry in world.record.iter_mut().flat_map(|record| &mut record.inventory) {
            entry.ready = Some(!asked.half_made.contains(&entry.address.to_string()));
        }
        if asked.without_record {
            world.record = None;
        }
        Self { asked, world, wanted, sources }
    }

    pub fn plan(self, folder: &Path) -> Planned {
        let Self { asked, world, wanted, sources } = self;
        let Some((address, number, kept)) = &asked.scale else {
            return (plan(inputs(wanted, &sources, &world, &asked)), sources);
        };
        let address = Address::new(address);
        let found = wanted.resources.iter().find(|resource| resource.address == address).unwrap();
        let scaled = &(kinds::of(found.kind).scale_target)(found, &wanted.resources).unwrap();
        let (wanted, scaled_sources) = read_with(&folder.join("stack.toml"), &scaled.origin, *number);
        let asked = Asked { target: vec![address.to_string()], ..Asked::default() };
        let wish = plan::scale::ScaleRequest {
            address: &address,
            target: scaled,
            replicas: *number,
            persist: *kept,
        };
        (plan::scale::scale(inputs(wanted, &scaled_sources, &world, &asked), &wish), sources)
    }
}

/// Plans the stack of a case.
pub fn planned(folder: &Path) -> Planned {
    Case::read(folder).plan(folder)
}

/// The plans of all cases, once for all tests that look at each: it takes a while. `None` where drift alone is asked for.
static PLANNED: LazyLock<Vec<(PathBuf, Option<Planned>)>> = LazyLock::new(|| {
    let planned = |folder: PathBuf| {
        let case = Case::read(&folder);
        let made = (!case.asked.refresh_only).then(|| case.plan(&folder));
        (folder, made)
    };
    cases("plan-").into_iter().map(planned).collect()
});

/// The plans of the cases, each with its name.
pub fn planned_cases() -> impl Iterator<Item = (String, &'static Plan)> {
    PLANNED.iter().filter_map(|(folder, made)| {
        let (Ok(plan), _) = made.as_ref()? else { return None };
        Some((folder.file_name()?.to_string_lossy().into_owned(), plan))
    })
}

/// The stack of the RAPIDS guide, `stacks/rapids-gke`.
pub fn ready() -> (Lowered, Sources) {
    read(&root().join("stacks/rapids-gke/stack.toml")).unwrap()
}

/// The plan of [`ready`] against a world.
pub fn ready_plan(world: &World) -> Plan {
    let (wanted, sources) = ready();
    plan(inputs(wanted, &sources, world, &Asked::default())).unwrap()
}
