//! `docs/gke-fields.md`: every field of the GKE API, the key of the stack file that sets it, and the effect of changing it.

use std::fmt::Write as _;

use kinds::gke::field::{Field, RuleSource};
use kinds::gke::{cluster, node_pool};
use model::address::FieldPath;
use model::resource::Effect;
use model::schema::{GkeChange, GkeField, Message, gke_fields};

const HEAD: &str = "\
# Fields of the GKE API

<!-- Written from schemas/gke-fields.tsv and the sections by `UPDATE_GOLDEN=1 cargo test`; do not edit. -->

Every field of `Cluster` and `NodePool` of the v1 API. *Key* is the key of the section; a field without one is set under \
`api`, by the API's own names:

```toml
[cluster.api.addonsConfig]
gcsFuseCsiDriverConfig = { enabled = true }

[node_pool.workers.api.config]
kubeletConfig = { cpuManagerPolicy = \"static\" }
```

*Change* is what changing the field does: *in place*; *rolls nodes*: GKE recreates the pool's nodes; *replaces*: the pool, \
or the cluster, is deleted and created again, which needs approval; *unknown*: GKE accepts the change and \
nobody has \
documented what it does to nodes. Fields that GKE alone sets are answers.

*Sources*: `proto` the published interface of August 2026; `tf` Terraform's provider 7.46; `kcc` Config Connector; `gcloud` \
requests of gcloud 528; `real` answers of the service, versions 1.33 to 1.36. What changing a field does is \
certain where \
the interface, gcloud or an operation of the service says so, and general knowledge elsewhere.
";

/// Returns the whole page.
pub fn fields() -> String {
    let mut page = HEAD.to_owned();
    let cluster: Vec<(&str, &RuleSource)> = keys(cluster::FIELDS);
    let pool: Vec<(&str, &RuleSource)> = keys(node_pool::FIELDS);
    table(&mut page, "Cluster", Message::Cluster, &cluster);
    table(&mut page, "NodePool", Message::NodePool, &pool);
    page
}

fn keys<S>(rows: &'static [Field<S>]) -> Vec<(&'static str, &'static RuleSource)> {
    rows.iter().map(|row| (row.key, &row.rule)).collect()
}

fn table(page: &mut String, title: &str, message: Message, keys: &[(&str, &RuleSource)]) {
    let _ = writeln!(
        page,
        "\n## `{title}`\n\n| field | key | change | GKE's default | needs, excludes | sources |"
    );
    page.push_str("| --- | --- | --- | --- | --- | --- |\n");
    for field in gke_fields().iter().filter(|field| field.message == message) {
        let place: FieldPath = field.place().parse().unwrap_or_default();
        let row = keys.iter().filter(|(_, rule)| rule.path().contains(&place));
        let row = row.max_by_key(|(_, rule)| rule.path().segments().len());
        let own = row.and_then(|(_, ruled)| match ruled {
            RuleSource::Explicit(rule) => Some(rule),
            RuleSource::FromSchema(_) => None,
        });
        let key = match (row, field.change) {
            // A table of the file may have fewer fields than the API's.
            (Some((key, RuleSource::FromSchema(path))), _)
                if path.parse::<FieldPath>().is_ok_and(|path| path != place) =>
            {
                format!("`{key}`, `api`")
            }
            (Some((key, _)), _) => format!("`{key}`"),
            (None, GkeChange::Output) => String::new(),
            (None, _) => "`api`".to_owned(),
        };
        let change = own.map_or_else(|| change(field), |rule| effect(&rule.effect));
        let note =
            if field.note.is_empty() || own.is_some() { String::new() } else { format!(": {}", field.note) };
        let GkeField { path, default, conflicts, sources, .. } = field;
        let default = field.absent().or(default.strip_prefix("yes: ")).unwrap_or("");
        let _ = writeln!(
            page,
            "| `{path}` | {key} | {change}{note} | {} | {} | {sources} |",
            cell(default),
            cell(conflicts)
        );
    }
    if message == Message::Cluster {
        let below =
            |field: &&GkeField| field.message == Message::NodePool && field.path.starts_with("config.");
        let count = gke_fields().iter().filter(below).count();
        let _ = writeln!(
            page,
            "| `nodeConfig.*` ({count} fields, those of `config` of a pool) | `[node_pool.NAME]` | none: used at creation | \
             those of the first pool, in every answer | deprecated; not together with `nodePools` | gcloud,real,proto |"
        );
    }
}

fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;").replace('*', "\\*")
}

fn change(field: &GkeField) -> &'static str {
    match field.change {
        GkeChange::InPlace => "in place",
        GkeChange::RollsNodes => "rolls nodes",
        GkeChange::Replaces => "replaces",
        GkeChange::OnlyAtCreation => "replaces: set only at creation",
        GkeChange::Unknown => "unknown",
        GkeChange::Output => "GKE sets it",
    }
}

fn effect(effect: &Effect) -> &'static str {
    match effect {
        Effect::InPlace => "in place",
        Effect::Rolling => "rolls nodes",
        Effect::Replace => "replaces",
        Effect::Ignored => "none: used at creation",
        Effect::Unknown => "unknown",
    }
}
