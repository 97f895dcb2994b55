//! `why`: explains why something in the stack is pending, waits or would be replaced, and how to fix it.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::cli::Exit;
use crate::cli::commands::plan::parallelism;
use crate::cli::commands::status::row;
use crate::cli::completion_values;
use crate::cli::session::{Link, PlanRequest, Session, block_on};
use crate::cli::settings::{Failure, Format, Settings};
use crate::report::status::State;
use crate::report::why::{Planned, Thing, Why};
use apply::ApplyOptions;
use kinds::dask;
use kinds::gke::placement::Pools;
use kinds::kind::PodSource;
use kinds::kubernetes::pod_state::{ContainerState, PodState};
use kinds::kubernetes::pods::selected;
use kinds::kubernetes::why as judge;
use kinds::kubernetes::why::{PodContext, Pool};
use live::{LiveApi, probe};
use model::address::{Address, FieldPath};
use model::diag::Code;
use model::resource::{Api, Effect, FieldChange, Identity, KindId, Query, Resource, World, manager_text};
use plan::{Action, Change, Mode, Note, Plan};
use stack::rules::nodes_for_gpus;

/// Shown below the options.
pub const EXAMPLES: &str = "Examples:\n  \
    dask-infra why dask_cluster.rapids        why workers are pending, and how to fix it\n  \
    dask-infra why rapids.group.large         any unique ending works\n  \
    dask-infra why node_pool.a100 --json | jq '.causes[].cures'\n\
    \n\
    Reads only: the resource, its pods, their events, the logs of crashing pods, and a plan of the stack. \
    Exits with 0 even when something is wrong; see `well` of `--json`.";

/// Options of `why`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// A section of the stack, or an object of one
    #[arg(value_name = "ADDRESS", add = completion_values::addresses())]
    address: String,
    /// Print JSON: one object
    #[arg(long)]
    json: bool,
    /// Requests at a time
    #[arg(long, value_name = "N", default_value_t = ApplyOptions::PARALLELISM, value_parser = parallelism)]
    parallelism: usize,
}

/// Lines of a log that are shown.
const TAIL: usize = 10;

/// Explains the state of a section or object.
pub fn why(settings: &Settings, args: &Args) -> Exit {
    settings.show(Format::Text, |reporter| {
        let session = Session::load(settings)?;
        let found: Vec<Resource> = session.find(&args.address)?.into_iter().cloned().collect();
        let answer = block_on(async {
            let link = session.connect(settings)?;
            link.api().skip_unreachable_hosts();
            let answer = find_causes(settings, &session, &link, &found, args.parallelism).await?;
            reporter.diagnostics(&session.skipped_hosts(&link), session.sources());
            link.close().await?;
            Ok(answer)
        })?;
        Ok(if args.json {
            format!("{:#}\n", answer.json())
        } else {
            answer.text(settings.is_verbose(), settings.screen().data_look().width, settings.program())
        })
    })
}

async fn find_causes(
    settings: &Settings,
    session: &Session,
    link: &Link,
    found: &[Resource],
    parallelism: usize,
) -> Result<Why, Failure> {
    let world = session.world(link, parallelism).await?;
    let (api, lowered) = (link.api(), session.lowered());
    let stopped = plan::stop::stopped(&lowered.resources, &lowered.external, &world);
    let mut looking = CauseSearch {
        api: &*api,
        session,
        program: settings.program(),
        pools: pools(session, &world),
        new_nodes: Pools::of(&lowered.resources, &lowered.external, &lowered.capacity_options),
        events: BTreeMap::new(),
        answer: Why::default(),
    };
    for resource in found {
        let row = row(looking.api, resource, &lowered.owner, &world, &stopped).await;
        let place = session.sources().locate(&resource.origin).map(|place| place.to_string());
        let (state, line) = (row.state, row.said.line);
        let unhandled = row.said.unhandled.then_some(&state);
        looking.thing(resource, unhandled, world.find(&resource.identity)).await;
        let address = resource.address.clone();
        looking.answer.things.push(Thing { address, state, line, place });
    }
    let mut answer = looking.answer;
    let request = PlanRequest { parallelism, ..PlanRequest::new(Mode::Apply) };
    if !api.skipped_hosts().is_empty() {
        answer.notes.push("no plan can be made without all hosts".to_owned());
        return Ok(answer);
    }
    match session.plan(link, &request).await {
        Ok(plan) => planned(session, found, &plan, &mut answer),
        Err(failure) => {
            let first = failure.diagnostics().first().map(|problem| problem.message.clone());
            answer.notes.push(format!("no plan can be made: {}", first.unwrap_or_default()));
        }
    }
    Ok(answer)
}

/// Returns the pools of the stack with their live state.
fn pools(session: &Session, world: &World) -> Vec<Pool> {
    let lowered = session.lowered();
    let external = lowered.external.iter().map(|external| &external.resource);
    let all = lowered.resources.iter().chain(external);
    let locate =
        |path: &FieldPath| session.sources().locate(path).map(|place| place.to_string()).unwrap_or_default();
    all.filter_map(|resource| {
        let scaled = (kinds::of(resource.kind).scale_target)(resource, &lowered.resources)?;
        let pool = Pool::of(resource, &scaled, &locate)?;
        let key = resource.address.as_str().strip_prefix("node_pool.");
        let live = world.pools.get(&pool.name).cloned().unwrap_or_default();
        Some(Pool { needed: key.and_then(|key| nodes_for_gpus(session.stack(), key)), live, ..pool })
    })
    .collect()
}

struct CauseSearch<'a> {
    api: &'a dyn LiveApi,
    session: &'a Session,
    program: &'a str,
    pools: Vec<Pool>,
    /// The new nodes of the pools.
    new_nodes: Option<Pools<'a>>,
    /// Of each namespace that was asked for.
    events: BTreeMap<String, Vec<Value>>,
    answer: Why,
}

impl CauseSearch<'_> {
    /// `unhandled`: the state of a resource that its operator has not taken up.
    async fn thing(&mut self, resource: &Resource, unhandled: Option<&State>, live: Option<&Value>) {
        let Some(live) =
            live.cloned().or_else(|| matches!(resource.identity, Identity::Check(_)).then(Value::default))
        else {
            return;
        };
        if let Identity::NodePool { pool, .. } = &resource.identity {
            let pool = self.pools.iter().find(|known| known.name == *pool);
            if let Some(cause) = pool.and_then(|pool| judge::of_pool(pool, self.program)) {
                self.answer.because(resource.address.to_string(), cause);
            }
            return;
        }
        if let Some(State::Waiting(what)) = unhandled {
            let operator = self.session.stack().dask_operator.as_ref();
            let namespace = operator.map_or("dask-operator", |operator| operator.namespace());
            self.answer.because(resource.address.to_string(), dask::why::unhandled(&what.what, namespace));
        }
        let named = match (kinds::of(resource.kind).pods)(resource) {
            PodSource::Known(query) => Some(query),
            PodSource::FromObject(_) | PodSource::None => None,
        };
        // The message of an environment already includes the end of its log.
        let named = named.filter(|_| resource.kind != KindId::Environment);
        let Some(query) = selected(&live).or(named) else { return };
        // Pods that may not be read add no cause; the state already says that something waits.
        let answer = probe(self.api, &query).await.unwrap_or_default();
        let pods: Vec<Value> = dask::why::own_pods(resource, &answer).into_iter().cloned().collect();
        self.pools.iter_mut().for_each(|pool| pool.needs(&pods));
        for pod in &pods {
            self.pod(resource, pod).await;
        }
    }

    async fn pod(&mut self, resource: &Resource, pod: &Value) {
        let state = PodState(pod);
        if state.is_ready() {
            return;
        }
        let name = state.name();
        let (_, target) = self.session.owner_and_target();
        if target.is_on_hosts() {
            if state.phase() == "Succeeded" {
                return;
            }
            let log = self.log_of(state).await;
            let cause = match (pod["status"].get("slurm"), resource.kind) {
                (Some(job), _) => kinds::hosts::slurm::cause(job, log, self.program),
                (None, KindId::HostJob) if kinds::hosts::job::is_program(pod) => {
                    kinds::hosts::job::ended(pod, log, self.program, &resource.address)
                }
                (None, _) => kinds::hosts::workers::ended(log, self.program),
            };
            self.answer.because(format!("process {name}"), cause);
            return;
        }
        let events = self.events_of(state.namespace(), name).await;
        let log = self.log_of(state).await;
        let sources = self.session.sources();
        let part: FieldPath = dask::why::part_of(resource, pod);
        let place = |key: &str| {
            let at = sources.locate(&part.key(key)).map(|place| place.to_string());
            at.unwrap_or_else(|| part.to_string())
        };
        let lowered = self.session.lowered();
        let is_scaled = (kinds::of(resource.kind).scale_target)(resource, &lowered.resources).is_some();
        let around = PodContext {
            events: &events,
            log: log.as_deref(),
            pools: &self.pools,
            refusal: &|pod| self.new_nodes.as_ref()?.refusal_of(pod),
            position: &place,
            has_keys: self.session.stack().pods().iter().any(|pod| pod.path == part),
            program: self.program,
            workers_address: is_scaled.then(|| resource.address.section()),
        };
        if let Some(cause) = judge::of_pod(pod, &around) {
            self.answer.because(format!("pod {name}"), cause);
        }
    }

    async fn events_of(&mut self, namespace: &str, pod: &str) -> Vec<Value> {
        if !self.events.contains_key(namespace) {
            let query =
                Query { api: Api::Kubernetes, path: format!("/api/v1/namespaces/{namespace}/events") };
            // Without rights to read events the pod's own words must do.
            let found = probe(self.api, &query).await.unwrap_or_default();
            let list = found["items"].as_array().cloned().unwrap_or_default();
            self.events.insert(namespace.to_owned(), list);
        }
        let all = self.events.get(namespace).map(Vec::as_slice).unwrap_or_default();
        all.iter().filter(|event| event["involvedObject"]["name"] == pod).cloned().collect()
    }

    /// Returns the end of the log of the container that ended last.
    async fn log_of(&self, pod: PodState<'_>) -> Option<String> {
        let crashes = |one: &ContainerState<'_>| {
            one.waiting().is_some_and(|(reason, _)| reason == "CrashLoopBackOff") && one.last().is_some()
        };
        let container = pod.containers().find(|one| one.terminated().is_some() || crashes(one))?;
        let previous = if container.terminated().is_some() { "" } else { "&previous=true" };
        let path = format!(
            "/api/v1/namespaces/{}/pods/{}/log?container={}&tailLines={TAIL}{previous}",
            pod.namespace(),
            pod.name(),
            container.name()
        );
        let log = probe(self.api, &Query { api: Api::Kubernetes, path }).await.ok()?;
        let lines: Vec<&str> = log.as_str()?.lines().collect();
        Some(lines[lines.len().saturating_sub(TAIL)..].join("\n"))
    }
}

/// Adds to the answer the changes that the plan makes to the resources, and its notes about them.
fn planned(session: &Session, found: &[Resource], plan: &Plan, answer: &mut Why) {
    let asked = |address: &Address| found.iter().any(|resource| resource.address == *address);
    let does = |change: &&Change| change.action != Action::Keep && asked(&change.address);
    for change in plan.changes.iter().filter(does) {
        let action = match change.action {
            Action::Keep => continue,
            Action::Create => "create",
            Action::Update => "update",
            Action::Replace => "replace",
            Action::Delete => "delete",
            Action::Forget => "release",
            Action::Run => "run",
        };
        let resource = found.iter().find(|resource| resource.address == change.address);
        let field = |field: &FieldChange| field_text(session, resource, change.action, field);
        let before = plan.predecessors(change).filter_map(|place| plan.changes.get(place));
        answer.planned.push(Planned {
            address: change.address.clone(),
            action,
            reason: change.why(),
            fields: change.fields.iter().map(field).collect(),
            after: before
                .filter(|other| other.action != Action::Keep)
                .map(|other| other.address.clone())
                .collect(),
        });
    }
    // That it is not ready stands above, with its cause.
    let is_news = |note: &&Note| note.code != Code::Unready.as_str();
    let notes = plan.notes.iter().filter(|note| asked(&note.address)).filter(is_news);
    answer.notes.extend(notes.map(|note| format!("{} ({})", note.message, note.code)));
}

/// `spec.worker.replicas: 2 -> 3 (stack.toml:12:5)`, and what changing it does.
fn field_text(session: &Session, resource: Option<&Resource>, action: Action, field: &FieldChange) -> String {
    let FieldChange { path, before: _, after: _, effect, note, drift, secret: _ } = field;
    let (before, after) = field.shown();
    let value = |value: Option<Value>| value.map_or_else(|| "not set".to_owned(), |value| value.to_string());
    let place = resource.and_then(|resource| session.sources().locate(&resource.origin_of(path)));
    let place = place.map(|place| format!(" ({place})")).unwrap_or_default();
    let (_, target) = session.owner_and_target();
    let on_host = target.is_on_hosts();
    let does = match effect {
        // Of what is replaced as a whole nothing rolls.
        Effect::Rolling if action == Action::Replace => "part of the replacement",
        Effect::InPlace => "in place",
        Effect::Rolling if on_host => "its workers are restarted",
        Effect::Rolling => "its pods or nodes are recreated",
        Effect::Replace => "forces replacement",
        Effect::Ignored => "has no effect",
        Effect::Unknown => "its effect is not known",
    };
    let rolls = *effect == Effect::Rolling && action == Action::Replace;
    let note = note.as_ref().filter(|_| !rolls).map(|note| format!("; {note}")).unwrap_or_default();
    let drift = drift.as_ref().map(|(who, when)| format!("; changed by {} at {when}", manager_text(who)));
    let drift = drift.unwrap_or_default();
    format!("{path}: {} -> {}{place}: {does}{note}{drift}", value(before), value(after))
}
