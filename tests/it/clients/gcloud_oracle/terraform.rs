//! Terraform's provider as a judge: what a stack plans for a configuration of `google_container_cluster` or
//! `google_container_node_pool` must be what the provider sends for it.
//!
//! `terraform.toml` has the configurations, written by hand after the subjects of the provider's acceptance tests: a stack,
//! and the body that its expand functions make of the same arguments. What differs stands in `terraform-differences.toml`,
//! in classes with a reason; that list may only shrink.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::differences::{self, KnownDifferences};
use super::intents::{Intent, IntentPlan, writes};
use super::{Request, Tally, planned};

/// Fewer would be a loss.
const LEAST: usize = 45;

pub static PLANNED: LazyLock<Vec<(Intent, IntentPlan)>> =
    LazyLock::new(|| planned(include_str!("terraform.toml")));

/// Returns the provider's request: one, as it creates nothing else.
fn sent(intent: &Intent) -> Request {
    let thing = intent.terraform.clone();
    match intent.exists {
        true => Request::new("POST", "clusters/c/nodePools", json!({ "nodePool": thing })),
        false => Request::new("POST", "clusters", json!({ "cluster": with_pool(thing) })),
    }
}

/// GKE makes a pool of a cluster's own number of nodes and their config. Source: googleapis `cluster_service.proto`,
/// `Cluster.initial_node_count` and `node_config`: in place of which `node_pools` are said.
fn with_pool(mut cluster: Map<String, Value>) -> Map<String, Value> {
    let (nodes, config) = (cluster.remove("initialNodeCount"), cluster.remove("nodeConfig"));
    cluster
        .entry("nodePools")
        .or_insert_with(|| json!([{ "name": "default-pool", "initialNodeCount": nodes, "config": config }]));
    cluster
}

/// `DASK_INFRA_INTENT=WORD` takes the configurations whose name holds the word.
#[test]
fn terraforms_provider_sends_the_same_for_the_same_configuration() {
    assert!(PLANNED.len() >= LEAST, "{} configurations", PLANNED.len());
    let word = std::env::var("DASK_INFRA_INTENT").unwrap_or_default();
    let known = KnownDifferences::read(include_str!("terraform-differences.toml"));
    let chosen: Vec<_> = PLANNED.iter().filter(|(intent, _)| intent.name.contains(&word)).collect();
    let mut tally = Tally::new(&known);
    for (intent, made) in &chosen {
        match made {
            Ok((before, plan)) => {
                let ours = writes(plan, before.as_ref());
                let found = differences::compare(&intent.name, &ours, &[sent(intent)], "terraform");
                tally.add(&intent.name, &known, &found, &[]);
            }
            Err(why) => tally.wrong.push(format!("{}: {why}", intent.name)),
        }
    }
    tally.conclude(chosen.len(), &known, "terraform-differences.toml", word.is_empty());
}
