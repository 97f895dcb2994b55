//! Comparison: what a server gives back for what was sent is no difference, whatever the order of lists that have none and
//! however values are spelled; and after another manager's edit exactly its field differs. Objects are generated from
//! schemas; the sandbox is the server, and for a sample the real API server.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::body::Body;
use jiff::SignedDuration;
use kinds::comparison::Comparison;
use model::address::{FieldPath, Segment};
use model::resource::Effect;
use model::schema::{self, List, Schema, Type};
use plan::observe::diff::{compare, set_by_others};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use sandbox::{Clock, Options, Sandbox, Scale};
use serde_json::{Map, Value, json};
use tower::ServiceExt as _;

use crate::props::cases;
use crate::real::{Client, ControlPlane, Part, needs};

const MANAGER: &str = "dask-infra/s";
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// Spellings of one quantity in each row.
const QUANTITIES: [&[&str]; 5] = [
    &["1", "1000m", "1.0", "1e0"],
    &["8Gi", "8192Mi"],
    &["500m", "0.5"],
    &["2G", "2000M", "2e9"],
    &["1m", "0.001"],
];
/// Spellings of one duration in each row.
const DURATIONS: [&[&str]; 3] = [&["1h", "60m", "3600s", "1h0m0s"], &["90s", "1m30s"], &["1m", "60s"]];
/// As plain text each of these is a value of its own.
const WORDS: [&str; 7] = ["1", "1000m", "1h", "60m", "8Gi", "true", "word"];

/// A kind, and where its objects are.
struct KindCase {
    api_version: &'static str,
    kind: &'static str,
    path: &'static str,
    schema: Schema,
    /// The generator of objects.
    objects: BoxedStrategy<Value>,
}

/// A definition with everything that a schema can say of how values are told apart.
fn definition() -> Value {
    let item = json!({ "type": "object", "required": ["port"], "properties": {
        "port": { "type": "integer" }, "protocol": { "type": "string", "default": "TCP" }, "word": { "type": "string" },
        "amount": { "x-kubernetes-int-or-string": true, "pattern": QUANTITY },
    } });
    let spec = json!({ "type": "object", "properties": {
        "keyed": { "type": "array", "items": item, "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["port", "protocol"] },
        "set": { "type": "array", "items": { "type": "string" }, "x-kubernetes-list-type": "set" },
        "atomic": { "type": "array", "items": { "type": "object", "properties": {
            "a": { "type": "string" }, "b": { "type": "integer", "default": 3 },
        } } },
        "whole": { "type": "object", "x-kubernetes-map-type": "atomic",
            "properties": { "a": { "type": "string" }, "b": { "type": "boolean" } } },
        "labels": { "type": "object", "additionalProperties": { "type": "string" } },
        "amount": { "x-kubernetes-int-or-string": true, "pattern": QUANTITY },
        "either": { "x-kubernetes-int-or-string": true },
        "every": { "type": "string", "format": "duration" },
        "word": { "type": "string", "default": "word" },
        "level": { "type": "string", "enum": ["low", "high"], "default": "low" },
        "on": { "type": "boolean", "default": true },
        "number": { "type": "number" },
        "whatever": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
        "resources": { "type": "object", "properties": {
            "limits": { "type": "object", "additionalProperties": { "type": "string" } },
        } },
    } });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "things.example.com" },
        "spec": {
            "group": "example.com", "scope": "Namespaced",
            "names": { "kind": "Thing", "listKind": "ThingList", "plural": "things", "singular": "thing" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": {
                "type": "object", "properties": { "spec": spec },
            } } }],
        },
    })
}

fn last(path: &FieldPath, at: usize) -> &str {
    let segments = path.segments();
    match segments.len().checked_sub(at).and_then(|place| segments.get(place)) {
        Some(Segment::Key(key)) => key,
        _ => "",
    }
}

/// Returns the equal spellings of a value at a place. Written here once more: the program's own rules are under test.
fn spellings(schema: Option<&Schema>, path: &FieldPath) -> Option<&'static [&'static [&'static str]]> {
    let amount = matches!((last(path, 3), last(path, 2)), ("resources", "limits" | "requests"))
        || last(path, 1) == "sizeLimit" && last(path, 2) == "emptyDir";
    let ty = schema.map_or(Type::Any, Schema::ty);
    let patterned = schema.is_some_and(|schema| schema.pattern() == Some(QUANTITY));
    let timed = schema.is_some_and(|schema| schema.format() == Some("duration"));
    match ty {
        Type::Quantity => Some(&QUANTITIES),
        Type::IntOrString if patterned => Some(&QUANTITIES),
        Type::String | Type::Any if amount => Some(&QUANTITIES),
        Type::String if timed => Some(&DURATIONS),
        _ => None,
    }
}

/// Values of a schema.
fn values(schema: &Schema, path: &FieldPath) -> BoxedStrategy<Value> {
    if let Some(rows) = spellings(Some(schema), path) {
        return select(rows.concat()).prop_map(|text| json!(text)).boxed();
    }
    match schema.ty() {
        Type::Boolean => any::<bool>().prop_map(Value::from).boxed(),
        Type::Integer => (1..=9).prop_map(|number| json!(number)).boxed(),
        Type::Number => prop_oneof![(1..=9).prop_map(|number| json!(number)), Just(json!(1.5))].boxed(),
        Type::IntOrString => {
            prop_oneof![(1..=9).prop_map(|number| json!(number)), Just(json!("10%"))].boxed()
        }
        Type::String | Type::Quantity => match schema.enum_values() {
            found if !found.is_empty() => select(found).prop_map(Value::from).boxed(),
            _ if schema.format() == Some("date-time") => Just(json!("2026-01-01T00:00:00Z")).boxed(),
            _ if schema.format() == Some("byte") => Just(json!("YQ==")).boxed(),
            _ if schema.format() == Some("int-or-string") => Just(json!("80")).boxed(),
            _ => select(&WORDS[..]).prop_map(Value::from).boxed(),
        },
        Type::Any => select(&WORDS[..]).prop_map(Value::from).boxed(),
        Type::Object if schema.property_names().is_empty() => {
            let amounts = json!({ "inner": { "resources": { "limits": { "cpu": "1" } } }, "word": "1000m" });
            select(vec![json!({}), json!({ "a": "1" }), amounts]).boxed()
        }
        Type::Object => fields(schema, path, &[]),
        Type::Map => {
            let Some(inner) = schema.values() else { return Just(json!({})).boxed() };
            let names = match last(path, 1) {
                "limits" | "requests" => vec!["cpu", "memory", "nvidia.com/gpu"],
                _ => vec!["a", "b.c/d", "e"],
            };
            let entry = names.into_iter().map(|name| {
                let value = prop::option::of(values(&inner, &path.key(name)));
                value.prop_map(move |value| (name.to_owned(), value)).boxed()
            });
            entry.collect::<Vec<_>>().prop_map(object).boxed()
        }
        Type::List => {
            let Some(items) = schema.items() else { return Just(json!([])).boxed() };
            let kind = schema.list();
            let shape = items.clone();
            let list = prop::collection::vec(values(&items, &path.index(0)), 0..=3);
            list.prop_map(move |list| Value::Array(distinct(list, &kind, &shape))).boxed()
        }
    }
}

fn object(fields: Vec<(String, Option<Value>)>) -> Value {
    Value::Object(fields.into_iter().filter_map(|(name, value)| Some((name, value?))).collect())
}

/// Objects with all that is required, some of the rest, and always those that are named.
fn fields(schema: &Schema, path: &FieldPath, always: &[&str]) -> BoxedStrategy<Value> {
    let required = schema.required();
    let depth = path.segments().len();
    let weight = if depth > 6 { 0.08 } else { 0.35 };
    let entries = schema.property_names().into_iter().filter_map(|name| {
        let inner = schema.property(&name)?;
        let needed = required.contains(&name) || always.contains(&name.as_str());
        let value = values(&inner, &path.key(&name));
        let value =
            if needed { value.prop_map(Some).boxed() } else { prop::option::weighted(weight, value).boxed() };
        Some(value.prop_map(move |value| (name.clone(), value)).boxed())
    });
    entries.collect::<Vec<_>>().prop_map(object).boxed()
}

/// Each item of a set, and each key of a keyed list, once.
fn distinct(list: Vec<Value>, kind: &List, items: &Schema) -> Vec<Value> {
    let mut seen = Vec::new();
    let key = |item: &Value| match kind {
        List::Atomic => Value::Null,
        List::Set => item.clone(),
        List::Map(keys) => keys
            .iter()
            .map(|key| {
                let default = || items.property(key).and_then(|field| field.default());
                item.get(key).cloned().or_else(default).unwrap_or_default()
            })
            .collect(),
    };
    let fresh = |item: &Value| {
        let key = key(item);
        let new = *kind == List::Atomic || !seen.contains(&key);
        seen.push(key);
        new
    };
    list.into_iter().filter(fresh).collect()
}

/// Returns an equal value in another form: unordered lists rotated, spellings changed, as `turns` says.
fn respelled(value: &Value, schema: Option<&Schema>, path: &FieldPath, turns: usize) -> Value {
    match value {
        Value::Object(map) => {
            let child =
                |key: &str| schema.and_then(|schema| schema.property(key).or_else(|| schema.values()));
            let inner = |(key, value): (&String, &Value)| {
                (key.clone(), respelled(value, child(key).as_ref(), &path.key(key), turns))
            };
            Value::Object(map.iter().map(inner).collect::<Map<_, _>>())
        }
        Value::Array(list) => {
            let items = schema.and_then(Schema::items);
            let inner = |item: &Value| respelled(item, items.as_ref(), &path.index(0), turns);
            let mut list: Vec<Value> = list.iter().map(inner).collect();
            if schema.is_some_and(|schema| schema.list() != List::Atomic) && !list.is_empty() {
                let by = turns % list.len();
                list.rotate_left(by);
            }
            Value::Array(list)
        }
        Value::String(text) => {
            let rows = spellings(schema, path).unwrap_or_default();
            let row = rows.iter().find(|row| row.contains(&text.as_str()));
            row.map_or_else(|| value.clone(), |row| json!(row[turns % row.len()]))
        }
        other => other.clone(),
    }
}

/// Another value for a leaf.
fn different_value(value: &Value, schema: Option<&Schema>, path: &FieldPath) -> Option<Value> {
    if spellings(schema, path).is_some_and(|rows| rows == &QUANTITIES[..]) {
        return Some(json!("7"));
    }
    let enums = schema.map(Schema::enum_values).unwrap_or_default();
    match value {
        Value::Bool(on) => Some(json!(!on)),
        Value::Number(number) => Some(json!(number.as_i64()? + 1)),
        Value::String(_) if spellings(schema, path).is_some() => Some(json!("7h")),
        Value::String(text) if !enums.is_empty() => {
            enums.into_iter().find(|other| other != text).map(Value::from)
        }
        Value::String(text) if text == "1" => Some(json!("1000m")),
        Value::String(text) if text == "1h" => Some(json!("60m")),
        Value::String(text) if text == "10%" => Some(json!("11%")),
        Value::String(_) => Some(json!("other")),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn place<'v>(value: &'v mut Value, path: &FieldPath) -> Option<&'v mut Value> {
    path.segments().iter().try_fold(value, |value, segment| match segment {
        Segment::Key(key) => value.get_mut(key),
        Segment::Index(index) => value.get_mut(index),
    })
}

/// The schema of a place, and whether it is a key by which items are told apart.
fn shape_at(schema: &Schema, path: &FieldPath) -> (Option<Schema>, bool) {
    let (mut at, mut keys, mut is_key) = (Some(schema.clone()), Vec::new(), false);
    for segment in path.segments() {
        let Some(here) = at else { return (None, false) };
        is_key = false;
        at = match segment {
            Segment::Key(key) => {
                is_key = keys.contains(key);
                keys.clear();
                here.property(key).or_else(|| here.values())
            }
            Segment::Index(_) => {
                if let List::Map(names) = here.list() {
                    keys = names;
                }
                here.items()
            }
        };
    }
    (at, is_key)
}

/// Kubernetes' own kinds with the places that stay valid whatever stands there.
fn service() -> BoxedStrategy<Value> {
    let port =
        (select(vec![53, 80, 443]), prop::option::of(select(vec!["TCP", "UDP"])), prop::option::of(1..=9));
    prop::collection::vec(port, 1..=4)
        .prop_map(|ports| {
            let mut seen = Vec::new();
            let mut list = Vec::new();
            for (number, (port, protocol, target)) in ports.into_iter().enumerate() {
                let key = (port, protocol.unwrap_or("TCP"));
                if seen.contains(&key) {
                    continue;
                }
                seen.push(key);
                let mut item = json!({ "name": format!("p{number}"), "port": port });
                protocol.iter().for_each(|protocol| item["protocol"] = json!(protocol));
                target.iter().for_each(|target: &i32| item["targetPort"] = json!(target));
                list.push(item);
            }
            json!({ "spec": { "selector": { "app": "a" }, "ports": list } })
        })
        .boxed()
}

fn deployment() -> BoxedStrategy<Value> {
    let amount = || select(QUANTITIES[1].iter().chain(QUANTITIES[3]).copied().collect::<Vec<_>>());
    let cpu = || select(QUANTITIES[0].iter().chain(QUANTITIES[2]).copied().collect::<Vec<_>>());
    let env = prop::collection::btree_map(select(vec!["A", "B", "C"]), select(&WORDS[..]), 0..=3);
    let ports = prop::collection::btree_set((select(vec![53, 80]), select(vec!["", "TCP", "UDP"])), 0..=3);
    let container = (env, ports, prop::option::of(cpu()), prop::option::of(amount()), any::<bool>());
    let pod = (prop::collection::vec(container, 1..=2), prop::option::of(amount()), 0..=2, any::<bool>());
    pod.prop_map(|(containers, size, replicas, tolerates)| {
        let containers: Vec<Value> = containers
            .into_iter()
            .enumerate()
            .map(|(number, (env, ports, cpu, memory, limited))| {
                let mut seen = Vec::new();
                let mut list = Vec::new();
                for (port, protocol) in ports {
                    let key = (port, if protocol.is_empty() { "TCP" } else { protocol });
                    if !seen.contains(&key) {
                        seen.push(key);
                        let mut item = json!({ "containerPort": port });
                        if !protocol.is_empty() {
                            item["protocol"] = json!(protocol);
                        }
                        list.push(item);
                    }
                }
                let env: Vec<Value> =
                    env.into_iter().map(|(name, value)| json!({ "name": name, "value": value })).collect();
                let mut requests = json!({});
                cpu.iter().for_each(|cpu| requests["cpu"] = json!(cpu));
                memory.iter().for_each(|memory| requests["memory"] = json!(memory));
                let part = if limited { "limits" } else { "requests" };
                json!({
                    "name": format!("c{number}"), "image": "demo:1", "env": env, "ports": list,
                    "resources": { part: requests },
                })
            })
            .collect();
        let mut spec = json!({ "containers": containers });
        if let Some(size) = size {
            spec["volumes"] = json!([{ "name": "v", "emptyDir": { "sizeLimit": size } }]);
        }
        if tolerates {
            spec["tolerations"] = json!([{ "key": "a", "operator": "Exists" }, { "key": "b", "value": "1" }]);
        }
        json!({ "spec": {
            "replicas": replicas, "selector": { "matchLabels": { "app": "a" } },
            "template": { "metadata": { "labels": { "app": "a" } }, "spec": spec },
        } })
    })
    .boxed()
}

fn sorts() -> Vec<KindCase> {
    let thing = Schema::from_crd(&definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]);
    let whole = |schema: &Schema, always: &'static [&'static str]| {
        let path = FieldPath::keys(["spec"]);
        let spec = fields(&schema.property("spec").unwrap(), &path, always);
        spec.prop_map(|spec| json!({ "spec": spec })).boxed()
    };
    let dask = |kind| schema::dask(kind).unwrap();
    let (cluster, group) = (dask("DaskCluster"), dask("DaskWorkerGroup"));
    let built_in = |group, version, kind| schema::builtin(group, version, kind).unwrap();
    let hard = prop::collection::btree_map(
        select(vec!["limits.cpu", "requests.memory"]),
        select(QUANTITIES.concat()),
        1..=2,
    );
    let data = prop::collection::btree_map(select(vec!["a", "b"]), select(&WORDS[..]), 0..=2);
    let sort =
        |api_version, kind, path, schema, objects| KindCase { api_version, kind, path, schema, objects };
    vec![
        sort(
            "example.com/v1",
            "Thing",
            "/apis/example.com/v1/namespaces/default/things",
            thing.clone(),
            whole(&thing, &[]),
        ),
        sort(
            "kubernetes.dask.org/v1",
            "DaskCluster",
            "/apis/kubernetes.dask.org/v1/namespaces/default/daskclusters",
            cluster.clone(),
            whole(&cluster, &[]),
        ),
        sort(
            "kubernetes.dask.org/v1",
            "DaskWorkerGroup",
            "/apis/kubernetes.dask.org/v1/namespaces/default/daskworkergroups",
            group.clone(),
            whole(&group, &[]),
        ),
        sort(
            "v1",
            "Service",
            "/api/v1/namespaces/default/services",
            built_in("", "v1", "Service"),
            service(),
        ),
        sort(
            "apps/v1",
            "Deployment",
            "/apis/apps/v1/namespaces/default/deployments",
            built_in("apps", "v1", "Deployment"),
            deployment(),
        ),
        sort(
            "v1",
            "ResourceQuota",
            "/api/v1/namespaces/default/resourcequotas",
            built_in("", "v1", "ResourceQuota"),
            hard.prop_map(|hard| json!({ "spec": { "hard": hard } })).boxed(),
        ),
        sort(
            "v1",
            "ConfigMap",
            "/api/v1/namespaces/default/configmaps",
            built_in("", "v1", "ConfigMap"),
            data.prop_map(|data| json!({ "data": data })).boxed(),
        ),
    ]
}

#[derive(Clone, Debug)]
struct Case {
    sort: usize,
    body: Value,
    /// How it is said otherwise.
    turns: usize,
    /// Which of its fields another manager changes.
    edit: Index,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#}\nsaid otherwise {} times, edit at {:?}", self.body, self.turns, self.edit)
    }
}

fn generated_case(sorts: &[KindCase]) -> BoxedStrategy<Case> {
    let of = sorts.iter().enumerate().map(|(place, sort)| {
        let KindCase { api_version, kind, .. } = sort;
        let head = json!({ "apiVersion": api_version, "kind": kind });
        let labels = prop::collection::btree_map(select(vec!["a", "b"]), select(&WORDS[..]), 0..=2);
        (sort.objects.clone(), labels, 0_usize..=5, any::<Index>())
            .prop_map(move |(mut body, labels, turns, edit)| {
                for (key, value) in head.as_object().unwrap() {
                    body[key] = value.clone();
                }
                body["metadata"] = json!({ "labels": labels });
                Case { sort: place, body, turns, edit }
            })
            .boxed()
    });
    proptest::strategy::Union::new(of.collect::<Vec<_>>()).boxed()
}

/// Sends a request: method, path, media type, body.
type Send<'a> = dyn Fn(&str, &str, &str, &Value) -> (u16, Value) + 'a;

static NAMES: AtomicU32 = AtomicU32::new(0);

fn compare_live(sort: &KindCase, body: &Value, live: &Value, with_schema: bool) -> Comparison {
    let schema = with_schema.then_some(&sort.schema);
    compare(body, live, MANAGER, schema, |_| (Effect::InPlace, None))
}

fn changes(compared: &Comparison) -> Vec<String> {
    let text = |value: &Option<Value>| value.as_ref().map_or("-".to_owned(), Value::to_string);
    compared
        .changes
        .iter()
        .map(|change| format!("{}: {} -> {}", change.path, text(&change.before), text(&change.after)))
        .collect()
}

/// The progress of one case; both are false if the server refused it.
#[derive(Clone, Copy, Debug, Default)]
struct CaseResult {
    sent: bool,
    edited: bool,
}

fn run_case(case: &Case, sorts: &[KindCase], send: &Send<'_>) -> Result<CaseResult, String> {
    let sort = &sorts[case.sort];
    let name = format!("o{}", NAMES.fetch_add(1, Ordering::Relaxed));
    let mut body = case.body.clone();
    body["metadata"]["name"] = json!(name);
    body["metadata"]["namespace"] = json!("default");
    let path = format!("{}/{name}", sort.path);
    let (code, live) =
        send("PATCH", &format!("{path}?fieldManager=dask-infra%2Fs"), "application/apply-patch+yaml", &body);
    if code >= 300 {
        return Ok(CaseResult::default());
    }
    let done = |tried: Result<bool, String>| {
        send("DELETE", &path, "application/json", &json!({}));
        tried.map(|edited| CaseResult { sent: true, edited })
    };
    let found = changes(&compare_live(sort, &body, &live, true));
    if !found.is_empty() {
        return done(Err(format!("what was sent differs from what came back: {found:?}\nlive {live:#}")));
    }
    // The definition of a custom kind is not always known.
    let found =
        changes(&compare_live(sort, &body, &live, sort.api_version == "v1" || sort.api_version == "apps/v1"));
    if !found.is_empty() {
        return done(Err(format!("without its schema it differs: {found:?}\nlive {live:#}")));
    }
    let otherwise = respelled(&body, Some(&sort.schema), &FieldPath::root(), case.turns);
    let found = changes(&compare_live(sort, &otherwise, &live, true));
    if !found.is_empty() {
        return done(Err(format!("said otherwise it differs: {found:?}\nas {otherwise:#}\nlive {live:#}")));
    }
    done(check_foreign_edit(case, sort, &body, &path, live, send))
}

/// `path=value`, where a path may have `=` in a key.
fn parse_relied_field(line: &str) -> (FieldPath, Value) {
    let parse = |(at, _)| {
        let path = line[..at].parse::<FieldPath>().unwrap();
        Some((path, serde_json::from_str(&line[at + 1..]).ok()?))
    };
    line.match_indices('=').find_map(parse).unwrap()
}

/// Another manager's edit of one field that we compare. Whether the server took it.
fn check_foreign_edit(
    case: &Case,
    sort: &KindCase,
    body: &Value,
    path: &str,
    live: Value,
    send: &Send<'_>,
) -> Result<bool, String> {
    let relied_on = compare_live(sort, body, &live, true).fingerprint_input;
    let places: Vec<(FieldPath, Value)> = std::str::from_utf8(relied_on.as_bytes())
        .unwrap()
        .lines()
        .skip(1)
        .map(parse_relied_field)
        .filter_map(|(place, value)| {
            let (shape, is_key) = shape_at(&sort.schema, &place);
            let of_name = place.segments().first() == Some(&Segment::Key("metadata".into()))
                && place.segments().get(1) != Some(&Segment::Key("labels".into()));
            let other = different_value(&value, shape.as_ref(), &place)?;
            (!is_key && !of_name).then_some((place, other))
        })
        .collect();
    if places.is_empty() {
        return Ok(false);
    }
    let (at, other) = &places[case.edit.index(places.len())];
    let mut theirs = live;
    let Some(found) = place(&mut theirs, at) else {
        return Err(format!("`{at}` was compared and does not exist"));
    };
    *found = other.clone();
    let (code, answer) = send("PUT", &format!("{path}?fieldManager=other"), "application/json", &theirs);
    if code >= 300 {
        return Ok(false);
    }
    let differ = compare_live(sort, body, &answer, true);
    let exactly = matches!(&differ.changes[..], [one] if one.path == *at
        && one.drift.as_ref().is_some_and(|(manager, _)| manager == "other"));
    if !exactly {
        return Err(format!(
            "another manager changed `{at}` to {other}: {:?}\nlive {answer:#}",
            changes(&differ)
        ));
    }
    check_foreign_fields(sort, body, path, at, send)?;
    Ok(true)
}

/// A field that another manager set and the stack no longer sets is reported as foreign, however late the rest is
/// applied.
fn check_foreign_fields(
    sort: &KindCase,
    body: &Value,
    path: &str,
    at: &FieldPath,
    send: &Send<'_>,
) -> Result<(), String> {
    let mut less = body.clone();
    let (Some(above), Some(key)) = (at.parent(), at.last_key()) else { return Ok(()) };
    let Some(fields) = place(&mut less, &above).and_then(Value::as_object_mut) else { return Ok(()) };
    fields.remove(key);
    let (code, mut live) = send(
        "PATCH",
        &format!("{path}?fieldManager=dask-infra%2Fs&force=true"),
        "application/apply-patch+yaml",
        &less,
    );
    if code >= 300 {
        return Ok(());
    }
    for entry in live["metadata"]["managedFields"].as_array_mut().into_iter().flatten() {
        if entry["manager"] == MANAGER {
            entry["time"] = json!("2100-01-01T00:00:00Z");
        }
    }
    // With an atomic list around it, ours took it out.
    if !live["metadata"]["managedFields"].to_string().contains("\"other\"") {
        return Ok(());
    }
    let told = set_by_others(&less, &Value::Null, &live, MANAGER, Some(&sort.schema));
    match told.iter().any(|field| field.path == *at) {
        true => Ok(()),
        false => Err(format!("`{at}` is another manager's, and not told: {told:?}\nlive {live:#}")),
    }
}

/// Tries so many cases; so large a part of them must have been objects that the server takes.
fn all(name: &str, default: u32, send: &Send<'_>) {
    let sorts = sorts();
    let (sent, taken, all) = (AtomicU32::new(0), AtomicU32::new(0), AtomicU32::new(0));
    cases::check(name, default, generated_case(&sorts), |case: &Case| {
        let tried = run_case(case, &sorts, send)?;
        all.fetch_add(1, Ordering::Relaxed);
        sent.fetch_add(u32::from(tried.sent), Ordering::Relaxed);
        taken.fetch_add(u32::from(tried.edited), Ordering::Relaxed);
        Ok(())
    });
    let [sent, taken, all] = [sent, taken, all].map(AtomicU32::into_inner);
    println!("{name}: {sent} of {all} objects and {taken} edits were taken by the server");
    assert!(sent * 10 >= all * 6, "only {sent} of {all} objects were taken");
    assert!(taken * 10 >= all * 3, "only {taken} edits of {all} were taken");
}

/// Puts the definitions onto a server.
fn define(send: &Send<'_>) {
    for body in schema::dask_crds().iter().chain([&definition()]) {
        let path = format!(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{}",
            body["metadata"]["name"].as_str().unwrap()
        );
        let (code, answer) =
            send("PATCH", &format!("{path}?fieldManager=test"), "application/apply-patch+yaml", body);
        assert!(code < 300, "{answer}");
    }
}

#[test]
fn what_the_sandbox_gives_back_is_what_was_sent() {
    let start = "2026-11-21T09:00:00Z".parse().unwrap();
    let scale = Scale { time_scale: 600.0 };
    let sandbox =
        Sandbox::open(Options { scale, clock: Clock::Manual(start), ..Options::default() }).unwrap();
    let body = json!({ "cluster": { "name": "c", "initialNodeCount": 1 } }).to_string();
    let path = "/v1/projects/demo/locations/us-central1-c/clusters";
    assert!(sandbox.gke_request("POST", path, "", body.as_bytes()).unwrap().code < 300);
    let pass = || (0..80).for_each(|_| sandbox.advance(SignedDuration::from_millis(250)).unwrap());
    pass();
    let router = sandbox.kubernetes_router(&sandbox.clusters().pop().unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let send = |method: &str, path: &str, media: &str, body: &Value| {
        let request = http::Request::builder().method(method).uri(path).header("content-type", media);
        let request = request.body(Body::from(body.to_string())).unwrap();
        runtime.block_on(async {
            let response = router.clone().oneshot(request).await.unwrap();
            let status = response.status().as_u16();
            let bytes = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
            (status, serde_json::from_slice(&bytes).unwrap_or_default())
        })
    };
    define(&send);
    pass();
    all("comparison", 300, &send);
}

#[tokio::test(flavor = "multi_thread")]
async fn real_what_the_api_server_gives_back_is_what_was_sent() {
    needs!(Part::CONTROL_PLANE);
    let plane = ControlPlane::start().await;
    let client: Client = plane.client();
    let handle = tokio::runtime::Handle::current();
    tokio::task::block_in_place(|| {
        let send = |method: &str, path: &str, media: &str, body: &Value| {
            let method = method.parse().unwrap();
            handle.block_on(client.send(method, path, media, body))
        };
        define(&send);
        for sort in sorts() {
            let served = client.wait(sort.path, "the kind is served", |list| list["items"].is_array());
            handle.block_on(served);
        }
        all("comparison on a real API server", 150, &send);
    });
}
