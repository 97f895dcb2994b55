//! The comparison of a wanted thing with the live one, and prices.

use std::fs;
use std::path::Path;

use model::address::{FieldPath, Segment};
use model::catalog::PriceModel;
use model::prices::cloud_billing::Skus;
use model::prices::{Origin, Prices};
use model::resource::Effect;
use plan::observe::diff;
use serde_json::{Value, json};

use super::check_terminal_safe;
use crate::golden::root;

/// A price list that names its source.
pub fn price_files() -> Vec<Vec<u8>> {
    let head = "date\t2026-11-30\nsource\tmine\nwhat\tname\tus-central1\teurope-west4\n";
    let rows = "fee\tcluster\t0.1\nmachine\te2-standard-*\t0.03/0.01\t/0.02\ngpu\tnvidia-tesla-t4\t\t0.3\ndisk\tpd-ssd\t0.17\n";
    vec![format!("{head}{rows}").into_bytes()]
}

pub fn price_file(bytes: &[u8], _: &Path) -> Result<(), String> {
    match Prices::parse(&String::from_utf8_lossy(bytes)) {
        Ok(prices) => check_prices(&prices),
        Err(_) => Ok(()),
    }
}

/// Pages of the catalogue, and one of contract prices.
pub fn price_pages() -> Vec<Vec<u8>> {
    let page = |name: &str| fs::read(root().join("tests/data/cloud-billing").join(name)).unwrap();
    ["compute-1.json", "compute-2.json", "kubernetes.json", "account.json"].map(page).to_vec()
}

pub fn price_page(bytes: &[u8], _: &Path) -> Result<(), String> {
    let Ok(value) = serde_json::from_slice::<Value>(bytes) else { return Ok(()) };
    let mut skus = Skus::new("us-central1");
    price_pages().iter().take(3).for_each(|page| skus.add_page(&serde_json::from_slice(page).unwrap()));
    skus.add_page(&value);
    skus.add_contract_prices(&value);
    let prices = skus.prices("2026-11-30", "Cloud Billing");
    check_prices(&prices.map_err(|bad| format!("line {} of the list: {}", bad.line, bad.why))?)
}

/// That no price is below zero or endless, and that the source can be shown.
fn check_prices(prices: &Prices) -> Result<(), String> {
    if let Origin::Source(source) = prices.origin() {
        check_terminal_safe(&source)?;
    }
    for machine in ["e2-standard-4", "a2-highgpu-1g", "g2-standard-4"] {
        let price = prices.machine(machine, "us-central1", PriceModel::OnDemand);
        if price.is_some_and(|price| !price.is_finite() || price < 0.0) {
            return Err(format!("{machine} costs {price:?}"));
        }
    }
    Ok(())
}

pub fn pairs() -> Vec<Vec<u8>> {
    let wanted = json!({ "metadata": { "name": "w", "labels": { "a": "b" } }, "spec": { "replicas": 1, "template": { "spec": {
        "containers": [{ "name": "a", "image": "x", "args": ["--token", "y"], "env": [{ "name": "A_TOKEN", "value": "z" }],
            "ports": [{ "containerPort": 80 }], "resources": { "limits": { "cpu": "1", "memory": "1Gi" } } }] } } } });
    let mut live = wanted.clone();
    live["spec"]["replicas"] = json!(3);
    live["metadata"]["managedFields"] = json!([
        { "manager": "dask-infra/s", "operation": "Apply", "fieldsV1": { "f:spec": { "f:replicas": {}, "f:paused": {}, "f:template": {
            "f:spec": { "f:containers": { r#"k:{"name":"a"}"#: { ".": {}, "f:image": {}, "f:args": {},
                "f:env": { r#"k:{"name":"A_TOKEN"}"#: { "f:value": {} } },
                "f:ports": { r#"k:{"containerPort":80,"protocol":"TCP"}"#: { "f:containerPort": {} } } } } } } } } },
        { "manager": "kubectl", "operation": "Update", "time": "2026-01-01T00:00:00Z", "fieldsV1": { "f:spec": { "f:replicas": {} } } },
    ]);
    vec![json!({ "wanted": wanted, "live": live, "set": { "f": ["v:\"a\""] } }).to_string().into_bytes()]
}

pub fn compare(bytes: &[u8], _: &Path) -> Result<(), String> {
    let Ok(value) = serde_json::from_slice::<Value>(bytes) else { return Ok(()) };
    for schema in [model::schema::builtin("apps", "v1", "Deployment"), None] {
        let effect = |_: &FieldPath| (Effect::InPlace, None);
        let compared =
            diff::compare(&value["wanted"], &value["live"], "dask-infra/s", schema.as_ref(), effect);
        for change in &compared.changes {
            if change.before == change.after && change.before.is_some() {
                return Err(format!("{} differs from itself: {:?}", change.path, change.before));
            }
        }
    }
    Ok(())
}

/// Any two values: nothing differs from itself, and what is told as different is all that there is to change.
pub fn any_two() -> Vec<Vec<u8>> {
    let one = json!({ "a": { "b": [1, "x", { "c": null }], "d": {} }, "e": [[], [{ "name": "n", "value": 1.5 }]], "f": true,
        "env": [{ "name": "A", "value": "b" }], "args": ["--x", "y"], "limits": { "cpu": "1", "memory": "1Gi" } });
    let mut other = one.clone();
    other["a"]["b"] = json!([2, "x"]);
    other["limits"]["cpu"] = json!("1000m");
    other["g"] = json!({ "h": [1] });
    vec![json!({ "wanted": one, "live": other }), json!({ "wanted": other, "live": one })]
        .into_iter()
        .map(|pair| pair.to_string().into_bytes())
        .collect()
}

pub fn differ(bytes: &[u8], _: &Path) -> Result<(), String> {
    let Ok(value) = serde_json::from_slice::<Value>(bytes) else { return Ok(()) };
    let (wanted, mut live) = (&value["wanted"], value["live"].clone());
    let effect = |_: &FieldPath| (Effect::InPlace, None);
    let compared = |live: &Value| diff::compare(wanted, live, "dask-infra/s", None, effect).changes;
    if let Some(change) = compared(wanted).first() {
        return Err(format!("{} differs from itself: {:?}", change.path, change.before));
    }
    // A live thing is an object; of no other value is there a place to set a field in.
    if !live.is_object() {
        return Ok(());
    }
    // Objects without managers have no owners, so nothing is released and every difference is set.
    if live.get("metadata").is_some_and(|metadata| metadata.get("managedFields").is_some()) {
        return Ok(());
    }
    for change in compared(&live) {
        let Some(after) = change.after else { return Err(format!("{} is given up", change.path)) };
        put(&mut live, change.path.segments(), after)
            .ok_or_else(|| format!("{} leads nowhere", change.path))?;
    }
    match compared(&live).first() {
        None => Ok(()),
        Some(left) => Err(format!("{} still differs: {:?} {:?}", left.path, left.before, left.after)),
    }
}

fn put(value: &mut Value, path: &[Segment], new: Value) -> Option<()> {
    let Some((first, rest)) = path.split_first() else {
        *value = new;
        return Some(());
    };
    let below = match first {
        Segment::Key(key) if rest.is_empty() => {
            value.as_object_mut()?.entry(key.clone()).or_insert(Value::Null)
        }
        Segment::Key(key) => value.as_object_mut()?.get_mut(key)?,
        Segment::Index(index) => value.as_array_mut()?.get_mut(*index)?,
    };
    put(below, rest, new)
}
