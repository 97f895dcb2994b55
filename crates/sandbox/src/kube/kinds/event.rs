//! Events. Source: `printEvent` in `pkg/printers/internalversion/printers.go`; field selectors,
//! `AddFieldLabelConversionsForEvent` in `pkg/apis/core/v1/conversion.go`, without its list of fields.

use jiff::Timestamp;
use serde_json::Value;

use super::super::age::since;
use super::super::object::text;
use super::super::strategy::Cell::{At, Of, Text};
use super::super::strategy::{Selectable, Strategy, column, wide};

pub const STRATEGIES: &[Strategy] = &[
    Strategy {
        columns: &[
            column("Last Seen", At(last_seen)),
            column("Type", Text("/type")),
            column("Reason", Text("/reason")),
            column("Object", Of(target)),
            wide("Subobject", Text("/involvedObject/fieldPath")),
            wide("Source", Of(source)),
            column("Message", Of(|event| text(event, "/message").trim().to_owned())),
            wide("First Seen", At(first_seen)),
            wide("Count", Of(count)),
            wide("Name", Text("/metadata/name")),
        ],
        selectable: Selectable::Any,
        ..Strategy::of("", "Event")
    },
    Strategy { selectable: Selectable::Any, ..Strategy::of("events.k8s.io", "Event") },
];

/// The first of these texts that is there.
fn first<'e>(event: &'e Value, pointers: [&str; 2]) -> &'e str {
    pointers.into_iter().map(|pointer| text(event, pointer)).find(|text| !text.is_empty()).unwrap_or_default()
}

fn first_seen(event: &Value, now: Timestamp) -> String {
    since(first(event, ["/firstTimestamp", "/eventTime"]), now)
}

fn last_seen(event: &Value, now: Timestamp) -> String {
    match first(event, ["/series/lastObservedTime", "/lastTimestamp"]) {
        "" => first_seen(event, now),
        last => since(last, now),
    }
}

fn target(event: &Value) -> String {
    let kind = text(event, "/involvedObject/kind").to_lowercase();
    match text(event, "/involvedObject/name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    }
}

fn source(event: &Value) -> String {
    let component = first(event, ["/source/component", "/reportingComponent"]);
    match first(event, ["/source/host", "/reportingInstance"]) {
        "" => component.to_owned(),
        host => format!("{component}, {host}"),
    }
}

fn count(event: &Value) -> String {
    let count = event.pointer("/series/count").or_else(|| event.get("count")).and_then(Value::as_i64);
    count.unwrap_or(1).to_string()
}
