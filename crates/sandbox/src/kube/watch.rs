//! Watches: what a client is told of the changes of a collection.

use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, Stream};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::access::Access;
use super::call::Call;
use super::read::versioned;

use super::scheme::Kind;
use super::selector::Selector;
use super::status::Status;
use super::store::{Change, Cluster};
use super::table::{self, Include};

/// How often an idle watch that allows it gets a bookmark.
const BOOKMARK: Duration = Duration::from_secs(60);

/// The API server ends watches after this long when the client names no time.
const LONGEST: Duration = Duration::from_secs(1800);

/// In what form objects are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Whole,
    Metadata,
    Table(Include),
}

/// A running watch.
#[derive(Clone, Debug)]
pub struct Watch {
    kind: std::sync::Arc<Kind>,
    namespace: String,
    selector: Selector,
    form: Form,
    bookmarks: bool,
    /// The client has seen everything up to here.
    seen: u64,
    /// When to end.
    lasts: Duration,
    /// Lines to send before anything else.
    first: Vec<Value>,
}

impl Watch {
    /// Starts a watch: from a version on, or with the present state when none is named.
    pub fn start(cluster: &Cluster, call: &Call<'_>) -> Result<Self, Status> {
        let Call { kind, place, request, now } = *call;
        let selector = call.selector()?;
        let form = match (request.wants_table(), request.wants_metadata()) {
            (true, _) => Form::Table(Include::parse(request.param("includeObject"))),
            (false, true) => Form::Metadata,
            (false, false) => Form::Whole,
        };
        let from = match request.param("resourceVersion") {
            None | Some("" | "0") => None,
            Some(text) => Some(text.parse::<u64>().map_err(|_| {
                Status::bad_request(format!("resourceVersion: Invalid value: {text:?}: must be a number"))
            })?),
        };
        let seconds = request.param("timeoutSeconds").and_then(|text| text.parse().ok());
        let mut watch = Self {
            kind: kind.clone(),
            namespace: place.namespace.clone(),
            selector,
            form,
            bookmarks: request.flag("allowWatchBookmarks"),
            seen: from.unwrap_or_else(|| cluster.revision()),
            lasts: seconds.filter(|seconds| *seconds > 0).map_or(LONGEST, Duration::from_secs),
            first: Vec::new(),
        };
        let initial = request.param("sendInitialEvents").map(|_| request.flag("sendInitialEvents"));
        if initial.unwrap_or(from.is_none()) {
            watch.present(cluster, now, initial == Some(true));
        } else if cluster.changes_since(watch.seen).is_none() {
            let message = format!("too old resource version: {} ({})", watch.seen, cluster.horizon());
            watch.first.push(json!({"type": "ERROR", "object": Status::expired(message).body()}));
            watch.lasts = Duration::ZERO;
        }
        Ok(watch)
    }

    /// Tells of every object that is there, and where that ends when the client asked for it.
    fn present(&mut self, cluster: &Cluster, now: Timestamp, mark_end: bool) {
        self.seen = cluster.revision();
        let objects: Vec<Value> = cluster
            .list(&self.kind.group, &self.kind.plural)
            .filter(|(key, object)| self.covers(&key.namespace) && self.selector.matches(object))
            .map(|(_, object)| object.clone())
            .collect();
        for object in objects {
            let event = self.event("ADDED", &object, now);
            self.first.push(event);
        }
        if mark_end && self.bookmarks {
            let mut bookmark = self.bookmark();
            bookmark["object"]["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
            self.first.push(bookmark);
        }
    }

    fn covers(&self, namespace: &str) -> bool {
        self.namespace.is_empty() || self.namespace == namespace
    }

    /// The events since the last call.
    pub fn advance(&mut self, cluster: &Cluster, now: Timestamp) -> Vec<Value> {
        let Some(changes) = cluster.changes_since(self.seen) else {
            self.lasts = Duration::ZERO;
            let message = format!("too old resource version: {} ({})", self.seen, cluster.horizon());
            return vec![json!({"type": "ERROR", "object": Status::expired(message).body()})];
        };
        let changes: Vec<Change> = changes
            .filter(|change| {
                change.key.group == self.kind.group
                    && change.key.resource == self.kind.plural
                    && self.covers(&change.key.namespace)
            })
            .cloned()
            .collect();
        self.seen = self.seen.max(cluster.revision());
        changes.iter().filter_map(|change| self.told(change, now)).collect()
    }

    /// Returns the event of a change for this client: an object that comes into the selection is added to it, one
    /// that leaves is deleted.
    fn told(&mut self, change: &Change, now: Timestamp) -> Option<Value> {
        let selected = |object: &Option<std::sync::Arc<Value>>| {
            object.as_ref().filter(|object| self.selector.matches(object)).cloned()
        };
        let (before, after) = (selected(&change.before), selected(&change.after));
        let (ty, object) = match (before, after) {
            (None, None) => return None,
            (None, Some(after)) => ("ADDED", after.as_ref().clone()),
            (Some(_), Some(after)) => ("MODIFIED", after.as_ref().clone()),
            (Some(before), None) => {
                let mut last = before.as_ref().clone();
                last["metadata"]["resourceVersion"] = json!(change.revision.to_string());
                ("DELETED", last)
            }
        };
        Some(self.event(ty, &object, now))
    }

    fn event(&mut self, ty: &str, object: &Value, now: Timestamp) -> Value {
        let object = versioned(&self.kind, object);
        let object = match self.form {
            Form::Whole => object,
            Form::Metadata => table::partial(&object),
            Form::Table(include) => {
                let metadata = json!({"resourceVersion": object["metadata"]["resourceVersion"]});
                table::table(&self.kind, &[&object], &metadata, include, now)
            }
        };
        json!({"type": ty, "object": object})
    }

    fn bookmark(&self) -> Value {
        let metadata = json!({"resourceVersion": self.seen.to_string()});
        let object = match self.form {
            Form::Table(_) => json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1",
                "metadata": {"resourceVersion": self.seen.to_string()}, "columnDefinitions": [], "rows": [
                    {"cells": [], "object": {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
                        "metadata": metadata}}]}),
            Form::Metadata => {
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata})
            }
            Form::Whole => {
                json!({"kind": self.kind.kind, "apiVersion": self.kind.api_version(), "metadata": metadata})
            }
        };
        json!({"type": "BOOKMARK", "object": object})
    }
}

fn lines(events: &[Value]) -> Bytes {
    let mut text = String::new();
    for event in events {
        text += &event.to_string();
        text.push('\n');
    }
    Bytes::from(text)
}

/// The body of a watch: one JSON event a line, until its time is over or the client goes.
pub fn stream<A: Access>(
    access: A,
    mut watch: Watch,
) -> impl Stream<Item = Result<Bytes, std::convert::Infallible>> {
    let changed = access.changed();
    let first = std::mem::take(&mut watch.first);
    let deadline = tokio::time::Instant::now() + watch.lasts;
    stream::unfold(
        (access, watch, changed, first),
        move |(access, mut watch, mut changed, first)| async move {
            if !first.is_empty() {
                return Some((Ok(lines(&first)), (access, watch, changed, Vec::new())));
            }
            loop {
                // An error was the last event.
                if watch.lasts.is_zero() {
                    return None;
                }
                let events = access.with(|cluster, now| watch.advance(cluster, now));
                if !events.is_empty() {
                    return Some((Ok(lines(&events)), (access, watch, changed, Vec::new())));
                }
                let idle = tokio::time::Instant::now() + BOOKMARK;
                tokio::select! {
                    moved = changed.changed() => {
                        // The cluster is gone: so is the watch.
                        moved.ok()?;
                    }
                    () = tokio::time::sleep_until(deadline) => return None,
                    () = tokio::time::sleep_until(idle) => {
                        if watch.bookmarks {
                            let bookmark = watch.bookmark();
                            return Some((Ok(lines(&[bookmark])), (access, watch, changed, Vec::new())));
                        }
                    }
                }
            }
        },
    )
}
