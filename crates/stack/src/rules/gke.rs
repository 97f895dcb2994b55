//! Checks of the `api` tables of GKE's sections.

use serde_json::{Map, Value};

use crate::rules::Context;
use kinds::gke::field::{Field, covers};
use kinds::gke::{api, cluster, node_pool};
use model::address::FieldPath;
use model::diag::{Code, Diagnostic};
use model::schema::{self, GkeChange, Message, ProblemKind, gke_field};

/// Checks that `api` sets no field that another key or dask-infra sets.
pub(crate) fn api_fields_are_free(context: &mut Context<'_>) {
    let stack = context.stack;
    if let Some(section) = &stack.cluster {
        let at = FieldPath::keys(["cluster"]);
        fields(
            context,
            Message::Cluster,
            &at,
            &section.api,
            keys(Message::Cluster, cluster::FIELDS, section),
        );
    }
    for (key, section) in &stack.node_pool {
        let at = FieldPath::keys(["node_pool", key]);
        fields(
            context,
            Message::NodePool,
            &at,
            &section.api,
            keys(Message::NodePool, node_pool::FIELDS, section),
        );
    }
}

/// Returns the keys that a section sets, with their paths in the API.
fn keys<S>(message: Message, rows: &[Field<S>], section: &S) -> Vec<(&'static str, FieldPath)> {
    let said = rows.iter().filter(|row| (row.from_section)(section).is_some());
    let places = |row: &'_ Field<S>| {
        let key = row.key;
        covers(message, row, section).into_iter().map(move |path| (key, path))
    };
    said.flat_map(places).collect()
}

fn fields(
    context: &mut Context<'_>,
    message: Message,
    section: &FieldPath,
    given: &Map<String, Value>,
    said: Vec<(&'static str, FieldPath)>,
) {
    let mut body = Value::Null;
    for (field, place) in api::merge_into_body(&mut body, message, given, section) {
        let first = field.segments().iter().take(1).cloned().collect::<FieldPath>().to_string();
        if let (Message::Cluster, "nodePools" | "nodeConfig" | "initialNodeCount") = (message, first.as_str())
        {
            let what = format!("`{first}` is not set by a cluster: its node pools are sections");
            let problem = Diagnostic::error(Code::GkeSetsField, what).at_key(place, "here");
            context.say(problem.help("write `[node_pool.NAME]`"));
            continue;
        }
        if (message, field.to_string().as_str()) == (Message::Cluster, "autopilot.enabled")
            && field.find(&body).is_some_and(|on| *on == true)
            && context.stack.cluster.as_ref().is_some_and(|cluster| cluster.manage.is_managed())
        {
            let problem = Diagnostic::error(Code::SaidTwice, "`autopilot` is a key of the section");
            context.say(problem.at_value(place, "here").help("write `autopilot = true` in `[cluster]`"));
            continue;
        }
        if field == FieldPath::keys(["name"]) {
            let problem = Diagnostic::error(Code::SaidTwice, "`name` is a key of the section");
            context.say(problem.at_key(place, "here").help(format!("write `name` in `[{section}]`")));
            continue;
        }
        if gke_field(message, &field.to_string()).is_some_and(|found| found.change == GkeChange::Output) {
            let problem = Diagnostic::error(Code::GkeSetsField, format!("`{field}` is set by GKE alone"));
            context.say(problem.at_key(place, "here").help("remove it"));
            continue;
        }
        let key = said.iter().find(|(_, path)| path.contains(&field) || field.contains(path));
        if let Some((key, _)) = key {
            let what = format!("`{key}` and `api` both set `{field}`");
            let problem = Diagnostic::error(Code::SaidTwice, what).at_value(section.key(key), "here");
            context.say(problem.at_value(place, "and here").help("remove one of the two"));
        }
    }
    let name = match message {
        Message::Cluster => "Cluster",
        Message::NodePool => "NodePool",
    };
    let shape = schema::gke::message(name).filter(|_| !given.is_empty());
    for problem in shape.iter().flat_map(|shape| schema::check(shape, &body)) {
        let below = problem.path.segments();
        let place = section.key("api").segments().iter().chain(below).cloned().collect::<FieldPath>();
        let what = format!("`api` does not fit the API's {name}: {problem}");
        let finding = Diagnostic::error(Code::Schema, what);
        context.say(match problem.kind {
            ProblemKind::UnknownField { .. } => finding.at_key(place, "here"),
            _ => finding.at_value(place, "here"),
        });
    }
}
