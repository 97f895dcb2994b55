//! `ttl` and `idle_stop` of a Dask cluster: for each key a CronJob deletes the cluster once it is old enough, or has had no work
//! for long enough. It runs in the Kubernetes cluster, so it does not depend on a user's machine. It may only read and delete
//! that one object, and read its groups.
//!
//! It keeps no state. The scheduler itself reports since when it has been idle, and so notices work between two checks.
//! `/json/counts.json` does not have that time, and `/metrics` needs `prometheus_client` in the image. So the script uses Dask's
//! own protocol, as the operator does.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use crate::dask::api::{self, CLUSTER_LABEL};
use crate::dask::cron_job::{CronJob, rule};
use crate::json::text;
use crate::kind::{Compare, Kind, StopEffect};
use crate::kubernetes::calls::object_change_steps;
use crate::kubernetes::kueue::{gang, workload_of};
use crate::scope::{Scope, allow_client};
use crate::security_defaults;
use crate::short_forms::{seconds, text_or_table};
use crate::status::StatusLine;
use model::address::FieldPath;
use model::resource::{Effect, Facts, Identity, KindId, ObjectId, Readiness, Resource};

/// Seconds after which a CronJob that was not created counts as stuck.
const DEADLINE: u32 = 120;
/// The shortest duration in seconds: two intervals of the schedule.
pub const MIN_SECONDS: u64 = 600;
/// The longest duration in seconds.
pub const MAX_SECONDS: u64 = 365 * 86_400;

/// The environment variable of the script with the duration in seconds.
pub(crate) const SECONDS: &str = "DASK_INFRA_REAPER_SECONDS";
/// The environment variable of a stack's script with what it does, as JSON.
pub(crate) const STACK: &str = "DASK_INFRA_REAPER_STACK";
/// The environment variable of the script with the API path of the cluster's Workload, for a cluster in a queue.
const WORKLOAD: &str = "DASK_INFRA_REAPER_WORKLOAD";

/// The script that runs in the cluster.
pub const SCRIPT: &str = concat!(include_str!("reaper_api.py"), include_str!("reaper.py"));

/// Reasons why a Dask cluster is deleted from inside the Kubernetes cluster: a key of its section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpiryCause {
    /// Its `ttl` is over.
    Ttl,
    /// It has had no tasks for long enough.
    IdleStop,
}

impl ExpiryCause {
    pub const ALL: [Self; 2] = [Self::Ttl, Self::IdleStop];

    pub fn key(self) -> &'static str {
        match self {
            Self::Ttl => "ttl",
            Self::IdleStop => "idle_stop",
        }
    }

    /// Returns the suffix of the names of its objects.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Ttl => "-ttl",
            Self::IdleStop => "-idle",
        }
    }

    /// Returns the maximum length of the name of a Dask cluster with that key. Source: `pkg/apis/batch/validation/validation.go`,
    /// CronJob names have at most 52 characters, as eleven are added for each Job.
    pub fn longest_name(self) -> usize {
        52 - self.suffix().len()
    }

    /// Describes when a CronJob deletes a cluster: `8h after it is created`.
    pub fn clause(self, job: &Resource) -> Option<String> {
        let after = after(job)?;
        Some(match self {
            Self::Ttl => format!("{after} after {}", since(job)),
            Self::IdleStop => format!("after {after} without work"),
        })
    }

    fn of_job(job: &Resource) -> Option<Self> {
        Self::ALL.into_iter().find(|cause| job.origin.last_key() == Some(cause.key()))
    }
}

/// The CronJob that deletes a Dask cluster.
pub const KIND: Kind = Kind {
    rank: 33,
    compare: Compare::Kubernetes(|_| (Effect::InPlace, None)),
    change_steps: |context| object_change_steps(context, KindId::Expiry, Facts::None, DEADLINE),
    readiness: |_, found| {
        let there = found.own_object().is_object();
        Ok(if there { Readiness::Ready } else { Readiness::progressing("not created yet") })
    },
    status_line: |_, found| Ok(last_check_line(&found.own_object()["status"])),
    plan_summary: |resource| {
        let clause = ExpiryCause::of_job(resource).and_then(|cause| cause.clause(resource));
        let acts = effect(resource).unwrap_or("deletes it");
        clause.map(|clause| format!("{acts} {clause}")).into_iter().collect()
    },
    stop_effect: StopEffect::Deletes,
    ..Kind::DEFAULT
};

/// Returns the `status` line: the times of the last check and of the last successful one. A failed check deletes nothing.
fn last_check_line(status: &Value) -> StatusLine {
    let (last, worked) = (&status["lastScheduleTime"], &status["lastSuccessfulTime"]);
    let line = match (last.as_str(), worked.as_str()) {
        (None, _) => "has not looked yet".to_owned(),
        (Some(last), None) => format!("last look {last}, none has worked yet"),
        (Some(last), Some(worked)) => format!("last look {last}, last one that worked {worked}"),
    };
    StatusLine {
        line,
        facts: vec![("last_look", last.clone()), ("last_look_that_worked", worked.clone())],
        ..StatusLine::default()
    }
}

/// A duration after which a CronJob acts: a text, or a table with further keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum After<Table = AfterTable> {
    Time(String),
    Table(Table),
}

/// A table with a duration after which a CronJob acts.
pub trait ExpiryTable {
    /// Returns the duration as it is written.
    fn after(&self) -> &str;
    /// Returns the image of the CronJob.
    fn image(&self) -> Option<&str>;
}

/// After how long a CronJob deletes a Dask cluster, and the image of the CronJob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AfterTable {
    /// How long: `"45m"`, `"8h"`, `"2d"`.
    pub after: String,
    /// An image with Python 3 for the CronJob; for `idle_stop` it also needs `distributed`. Default: the cluster's, which its
    /// nodes have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

impl ExpiryTable for AfterTable {
    fn after(&self) -> &str {
        &self.after
    }

    fn image(&self) -> Option<&str> {
        self.image.as_deref()
    }
}

impl<Table: ExpiryTable> After<Table> {
    /// Returns the duration as it is written.
    pub fn text(&self) -> &str {
        match self {
            Self::Time(after) => after,
            Self::Table(table) => table.after(),
        }
    }

    /// Returns the image of the CronJob.
    pub fn image(&self) -> Option<&str> {
        match self {
            Self::Time(_) => None,
            Self::Table(table) => table.image(),
        }
    }
}

impl<Table: Serialize> Serialize for After<Table> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Time(after) => serializer.serialize_str(after),
            Self::Table(table) => table.serialize(serializer),
        }
    }
}

impl<'de, Table: Deserialize<'de>> Deserialize<'de> for After<Table> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let short = |after: &str| Self::Time(after.to_owned());
        text_or_table(deserializer, "a time or a table with `after`", short, Self::Table)
    }
}

impl<Table: JsonSchema> JsonSchema for After<Table> {
    fn schema_name() -> Cow<'static, str> {
        Table::schema_name().trim_end_matches("Table").to_owned().into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "After how long a CronJob deletes a Dask cluster, or stops the stack.",
            "oneOf": [{ "type": "string" }, generator.subschema_for::<Table>()],
        })
    }
}

/// Lowers a cluster's `ttl` or `idle_stop` to a ServiceAccount, its RBAC and a CronJob.
pub fn lower(
    cluster: &Resource,
    cause: ExpiryCause,
    after: &After,
    groups: &[ObjectId],
    scope: &Scope,
) -> Vec<Resource> {
    let Identity::Object(of) = &cluster.identity else { return Vec::new() };
    let making = ExpiryBuilder {
        cluster,
        cluster_id: of,
        cron_job: CronJob {
            address: cluster.address.clone(),
            origin: cluster.origin.key(cause.key()),
            name: format!("{}{}", of.name, cause.suffix()),
            namespace: of.namespace.as_deref().unwrap_or("default"),
            scope,
        },
        cause,
        time_source: match cause {
            ExpiryCause::Ttl => ExpirySource::Workload(
                gang::name_in_body(&cluster.body).map(|gang| workload_of(of.namespace.as_deref(), &gang)),
            ),
            ExpiryCause::IdleStop => ExpirySource::Scheduler(groups),
        },
    };
    let account = making.cron_job.account();
    let [role, binding] = making.cron_job.rights(making.cron_job.namespace, &making.rules(), &account);
    let job = making.job(after, &binding);
    vec![account, role, binding, job]
}

/// Objects that tell when the time of a cluster begins.
enum ExpirySource<'a> {
    /// The cluster's own creation time; for a cluster in a queue, the Workload with the time of admission.
    Workload(Option<ObjectId>),
    /// The scheduler, and the groups, which show if the scheduler waits for workers.
    Scheduler(&'a [ObjectId]),
}

/// Facts for the objects of one key of a cluster.
struct ExpiryBuilder<'a> {
    cluster: &'a Resource,
    cluster_id: &'a ObjectId,
    cron_job: CronJob<'a>,
    cause: ExpiryCause,
    time_source: ExpirySource<'a>,
}

impl ExpiryBuilder<'_> {
    /// Returns the rules of the script: it may read and delete the one cluster, and read the sources of the time.
    fn rules(&self) -> Vec<Value> {
        let mut rules = vec![rule(&self.cluster_id.gvk, [self.cluster_id.name.as_str()], &["get", "delete"])];
        match &self.time_source {
            ExpirySource::Workload(workload) => rules.extend(
                workload.iter().map(|workload| rule(&workload.gvk, [workload.name.as_str()], &["get"])),
            ),
            ExpirySource::Scheduler(groups) => {
                let names = groups.iter().map(|group| group.name.as_str());
                rules.push(rule(&api::group(), names, &["get"]));
            }
        }
        rules
    }

    fn job(&self, after: &After, binding: &Resource) -> Resource {
        let mut template = json!({ "spec": self.pod(after) });
        let dask = self.cron_job.scope.dask_of(&self.cluster.address);
        let closed = dask.is_some_and(|facts| facts.is_network_restricted);
        if closed && matches!(self.time_source, ExpirySource::Scheduler(_)) {
            allow_client(&mut template["metadata"], &self.cluster_id.name);
        }
        let mut job = self.cron_job.job(&template, [binding]);
        let container = ["spec", "jobTemplate", "spec", "template", "spec", "containers"];
        let path = FieldPath::keys(container).index(0).key("image");
        let from = if after.image().is_some() { &job.origin } else { &self.cluster.origin };
        job.provenance.push((path, from.key("image")));
        job
    }

    /// Returns the environment variables of the script.
    fn env(&self, after: &After) -> Vec<(&'static str, String)> {
        let seconds = seconds(after.text()).unwrap_or_default();
        let mut env =
            vec![("DASK_INFRA_REAPER_PATH", self.cluster_id.path()), (SECONDS, seconds.to_string())];
        match &self.time_source {
            ExpirySource::Workload(workload) => {
                env.extend(workload.iter().map(|workload| (WORKLOAD, workload.path())));
            }
            ExpirySource::Scheduler(groups) => {
                let paths: Vec<String> = groups.iter().map(ObjectId::path).collect();
                let scheduler = api::scheduler_address(&self.cluster_id.name, self.cron_job.namespace);
                env.push(("DASK_INFRA_REAPER_SCHEDULER", scheduler));
                env.push(("DASK_INFRA_REAPER_GROUPS", paths.join(" ")));
            }
        }
        env
    }

    fn pod(&self, after: &After) -> Value {
        let scheduler = &self.cluster.body["spec"]["scheduler"]["spec"];
        let env = self.env(after).into_iter().map(|(name, value)| json!({ "name": name, "value": value }));
        let env: Vec<Value> = env.collect();
        // Importing `distributed` 2026.8.0 takes 50 MiB.
        let memory = match self.cause {
            ExpiryCause::Ttl => "64Mi",
            ExpiryCause::IdleStop => "128Mi",
        };
        let container = json!({
            "name": "reaper",
            "image": after.image().unwrap_or(text(&scheduler["containers"][0]["image"])),
            "imagePullPolicy": "IfNotPresent",
            // Arguments, as the image's entry point prepares Python's environment.
            "args": ["python3", "-c", SCRIPT],
            "env": env,
            "resources": { "requests": { "cpu": "10m", "memory": memory } },
        });
        let beside = json!({ "labelSelector": { "matchLabels": { CLUSTER_LABEL: self.cluster_id.name } },
            "topologyKey": "kubernetes.io/hostname" });
        let mut pod = json!({
            "restartPolicy": "Never",
            "serviceAccountName": self.cron_job.name,
            // Where the cluster's pods run: no node is added for it, none is kept, and the image is there.
            "affinity": { "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [beside] } },
            "tolerations": [{ "operator": "Exists" }],
            "containers": [container],
        });
        security_defaults::apply(&mut pod);
        // It asks the API server.
        pod["automountServiceAccountToken"] = json!(true);
        if let Some(secrets) = scheduler.get("imagePullSecrets") {
            pod["imagePullSecrets"] = secrets.clone();
        }
        pod
    }
}

/// Returns the value of an environment variable that a CronJob gives its script.
fn env_value<'r>(job: &'r Resource, name: &str) -> Option<&'r str> {
    let spec = &job.body["spec"]["jobTemplate"]["spec"]["template"]["spec"];
    let mut env = spec["containers"][0]["env"].as_array()?.iter();
    env.find(|variable| variable["name"] == name)?["value"].as_str()
}

/// Returns true if the time of the cluster begins when its queue admits it.
pub fn is_of_queue(job: &Resource) -> bool {
    env_value(job, WORKLOAD).is_some()
}

/// Returns what the script of a stack's CronJob does.
pub(crate) fn stack_plan(job: &Resource) -> Option<Value> {
    serde_json::from_str(env_value(job, STACK)?).ok()
}

/// Returns true for a CronJob of the stack, and not of one of its Dask clusters.
pub fn is_of_stack(job: &Resource) -> bool {
    job.kind == KindId::Expiry && stack_plan(job).is_some()
}

/// Returns the effect of a stack's CronJob, as words.
pub fn effect(job: &Resource) -> Option<&'static str> {
    let plan = stack_plan(job)?;
    Some(if plan["destroy"] == true { "deletes the GKE cluster" } else { "stops the stack" })
}

/// Returns the event at which the time begins, as words: `it is created`.
fn since(job: &Resource) -> &'static str {
    if is_of_stack(job) {
        "it is created or started"
    } else if is_of_queue(job) {
        "its queue admits it"
    } else {
        "it is created"
    }
}

/// Returns the duration after which a CronJob deletes its cluster: `8h`.
pub fn after(job: &Resource) -> Option<String> {
    seconds_of(job)?.try_into().ok().map(duration_text)
}

/// Returns the same duration in seconds.
pub fn seconds_of(job: &Resource) -> Option<i64> {
    env_value(job, SECONDS)?.parse().ok()
}

/// Returns seconds in the largest unit that needs no other: `8h`.
fn duration_text(seconds: u64) -> String {
    let units = [(86_400, 'd'), (3600, 'h'), (60, 'm')];
    let whole = units.into_iter().find(|(unit, _)| seconds > 0 && seconds.is_multiple_of(*unit));
    whole.map_or_else(|| format!("{seconds}s"), |(unit, name)| format!("{}{name}", seconds / unit))
}

/// Returns the CronJobs among the resources of the stack that delete a Dask cluster, with the reason of each.
pub fn for_cluster<'r>(cluster: &Resource, all: &'r [Resource]) -> Vec<(ExpiryCause, &'r Resource)> {
    let is_cluster = cluster.identity.object().is_some_and(|object| object.gvk == api::cluster());
    let job = |cause: ExpiryCause| {
        let origin = cluster.origin.key(cause.key());
        let job = all.iter().find(|other| other.kind == KindId::Expiry && other.origin == origin)?;
        Some((cause, job))
    };
    ExpiryCause::ALL.into_iter().filter(|_| is_cluster).filter_map(job).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::address::Address;
    use model::resource::Recreation;
    use model::schema;

    #[test]
    fn the_account_of_a_ttl_may_read_and_delete_one_object() {
        let scope = scope();
        let made = lower(&cluster(), ExpiryCause::Ttl, &After::Time("8h".into()), &[], &scope);
        let kinds: Vec<&str> = made.iter().map(|resource| text(&resource.body["kind"])).collect();
        assert_eq!(kinds, ["ServiceAccount", "Role", "RoleBinding", "CronJob"]);
        let rule = json!({
            "apiGroups": ["kubernetes.dask.org"], "resources": ["daskclusters"], "resourceNames": ["d"],
            "verbs": ["get", "delete"],
        });
        assert_eq!(made[1].body["rules"], json!([rule]));
        for resource in &made {
            let shape = crate::kubernetes::object::object_schema(&resource.identity).unwrap();
            assert_eq!(schema::check(&shape, &resource.body), [], "{}", resource.address);
        }
        assert_eq!(after(&made[3]).as_deref(), Some("8h"));
        assert_eq!(for_cluster(&cluster(), &made), [(ExpiryCause::Ttl, &made[3])]);
        let pod = &made[3].body["spec"]["jobTemplate"]["spec"]["template"]["spec"];
        assert_eq!(pod["containers"][0]["image"], "demo:1");
        assert_eq!(pod["imagePullSecrets"][0]["name"], "pull");
        let table = AfterTable { after: "90m".into(), image: Some("python:3.13".into()) };
        let made = lower(&cluster(), ExpiryCause::Ttl, &After::Table(table), &[], &scope);
        let pod = &made[3].body["spec"]["jobTemplate"]["spec"]["template"]["spec"];
        assert_eq!(
            (after(&made[3]).as_deref(), &pod["containers"][0]["image"]),
            (Some("90m"), &json!("python:3.13"))
        );
    }

    #[test]
    fn a_cluster_in_a_queue_may_ask_when_it_was_let_start() {
        let mut queued = cluster();
        let mut metadata = json!({});
        gang::Gang { queue: "gpus", name: "d", count: 2, priority_class: None }.add_labels(&mut metadata);
        queued.body["kind"] = json!("DaskCluster");
        queued.body["metadata"] = metadata;
        let made = lower(&queued, ExpiryCause::Ttl, &After::Time("8h".into()), &[], &scope());
        let rule = json!({
            "apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "resourceNames": ["d"], "verbs": ["get"],
        });
        assert_eq!(made[1].body["rules"][1], rule);
        assert_eq!((after(&made[3]).as_deref(), since(&made[3])), (Some("8h"), "its queue admits it"));
        assert_eq!(
            since(&lower(&cluster(), ExpiryCause::Ttl, &After::Time("8h".into()), &[], &scope())[3]),
            "it is created"
        );
    }

    #[test]
    fn the_account_of_an_idle_stop_may_also_read_the_groups_of_its_cluster() {
        let groups = ["d-default", "d-big"].map(|name| ObjectId {
            gvk: api::group(),
            namespace: Some("n".into()),
            name: name.into(),
        });
        let made = lower(&cluster(), ExpiryCause::IdleStop, &After::Time("30m".into()), &groups, &scope());
        let names: Vec<&str> = made.iter().map(|resource| text(&resource.body["metadata"]["name"])).collect();
        assert_eq!(names, ["d-idle"; 4]);
        let rule = |resource: &str, names: &[&str], verbs: &[&str]| {
            json!({
                "apiGroups": ["kubernetes.dask.org"], "resources": [resource], "resourceNames": names, "verbs": verbs,
            })
        };
        let rules = [
            rule("daskclusters", &["d"], &["get", "delete"]),
            rule("daskworkergroups", &["d-default", "d-big"], &["get"]),
        ];
        assert_eq!(made[1].body["rules"], json!(rules));
        let job = &made[3];
        assert_eq!(
            env_value(job, "DASK_INFRA_REAPER_SCHEDULER"),
            Some("tcp://d-scheduler.n.svc.cluster.local:8786")
        );
        let paths = env_value(job, "DASK_INFRA_REAPER_GROUPS").unwrap();
        let each: Vec<&str> = paths.split(' ').collect();
        assert_eq!(each, groups.iter().map(ObjectId::path).collect::<Vec<String>>());
        assert_eq!((KIND.plan_summary)(job), ["deletes it after 30m without work"]);
        assert_eq!(for_cluster(&cluster(), &made), [(ExpiryCause::IdleStop, job)]);
        for resource in &made {
            let shape = crate::kubernetes::object::object_schema(&resource.identity).unwrap();
            assert_eq!(schema::check(&shape, &resource.body), [], "{}", resource.address);
        }
    }

    fn cluster() -> Resource {
        Resource {
            address: Address::new("dask_cluster.d"),
            identity: Identity::Object(ObjectId {
                gvk: api::cluster(),
                namespace: Some("n".into()),
                name: "d".into(),
            }),
            kind: KindId::DaskCluster,
            body: json!({ "spec": { "scheduler": { "spec": {
                "containers": [{ "image": "demo:1" }], "imagePullSecrets": [{ "name": "pull" }],
            } } } }),
            create_only: Value::Null,
            origin: FieldPath::keys(["dask_cluster", "d"]),
            provenance: Vec::new(),
            depends_on: Vec::new(),
            protect: false,
            recreation: Recreation::Once { timeout: None },
        }
    }

    fn scope() -> Scope {
        use crate::short_forms::DriverInstall;
        use model::resource::{Owner, Target};
        Scope {
            owner: Owner { stack: "s".into(), id: "s".into() },
            target: Target::default(),
            pools: Vec::new(),
            driver: DriverInstall::default(),
            sections: Vec::new(),
            checks: Vec::new(),
            namespaces: Vec::new(),
            zones: 1,
            dask: Vec::new(),
            slurm: None,
            environments: Vec::new(),
            tls: false,
            queues: Vec::new(),
            newer_kueue: false,
            operator_namespace: None,
        }
    }
}
