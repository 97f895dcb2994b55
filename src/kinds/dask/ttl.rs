//! `ttl` of a Dask cluster: a CronJob beside it that deletes it when its time is over. It lives in the cluster, so it works
//! when nobody's machine is on, and may read and delete that one object and nothing else.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use super::api::{self, CLUSTER_LABEL};
use crate::address::{Address, FieldPath};
use crate::kinds::json::text;
use crate::kinds::kind::{Compare, Halt, Kind};
use crate::kinds::kubernetes::kueue::{gang, workload_of};
use crate::kinds::kubernetes::object::gvk;
use crate::kinds::kubernetes::requests::object_program;
use crate::kinds::scope::Scope;
use crate::kinds::short::seconds;
use crate::resource::{Effect, Facts, Gvk, Identity, KindId, Life, ObjectId, Readiness, Resource};

/// Seconds until a CronJob that does not come counts as stuck.
const DEADLINE: u32 = 120;
/// Between two looks.
const SCHEDULE: &str = "*/5 * * * *";
/// Seconds until a look ends in any case: before the next one begins.
const LOOK: u32 = 240;
/// The end of the names of what belongs to a ttl.
const SUFFIX: &str = "-ttl";
/// The longest name of a Dask cluster with a ttl. Source: `pkg/apis/batch/validation/validation.go`, CronJob names have
/// at most 52 characters, as eleven are added for each Job.
pub const LONGEST_NAME: usize = 52 - SUFFIX.len();
/// Seconds that a ttl has at least: a few looks.
pub const SHORTEST: u64 = 600;
/// Seconds that it has at most.
pub const LONGEST: u64 = 365 * 86_400;

/// Where the script finds the path of the Workload of a cluster that is in a queue.
const WORKLOAD: &str = "DASK_INFRA_TTL_WORKLOAD";

/// What runs in the cluster.
pub const SCRIPT: &str = include_str!("ttl.py");

/// The CronJob of a ttl.
pub const KIND: Kind = Kind {
    rank: 33,
    compare: Compare::Kubernetes(|_| (Effect::InPlace, None)),
    program: |context| object_program(context, KindId::DaskTtl, Facts::None, DEADLINE),
    readiness: |_, found| {
        let there = found.itself().is_object();
        Ok(if there { Readiness::Ready } else { Readiness::Progressing("not created yet".into()) })
    },
    about: |resource| {
        after(resource)
            .map(|after| format!("deletes it {after} after {}", since(resource)))
            .into_iter()
            .collect()
    },
    halt: Halt::Goes,
    ..Kind::BARE
};

/// How long a Dask cluster lives after it is created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ttl {
    After(String),
    Table(TtlTable),
}

/// How long a Dask cluster lives after it is created, and the image of the CronJob that deletes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TtlTable {
    /// How long after it is created, or after its queue admits it: `"45m"`, `"8h"`, `"2d"`.
    pub after: String,
    /// An image with Python 3 for the CronJob. Default: the cluster's, which its nodes have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

impl Ttl {
    /// As it is written.
    pub fn text(&self) -> &str {
        match self {
            Self::After(after) => after,
            Self::Table(table) => &table.after,
        }
    }

    fn image(&self) -> Option<&str> {
        match self {
            Self::After(_) => None,
            Self::Table(table) => table.image.as_deref(),
        }
    }
}

impl Serialize for Ttl {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::After(after) => serializer.serialize_str(after),
            Self::Table(table) => table.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Ttl {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = Ttl;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time or a table with `after`")
            }

            fn visit_str<E: Error>(self, after: &str) -> Result<Ttl, E> {
                Ok(Ttl::After(after.to_owned()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Ttl, A::Error> {
                TtlTable::deserialize(MapAccessDeserializer::new(map)).map(Ttl::Table)
            }
        }

        deserializer.deserialize_any(Either)
    }
}

impl JsonSchema for Ttl {
    fn schema_name() -> Cow<'static, str> {
        "Ttl".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "How long a Dask cluster lives after it is created.",
            "oneOf": [{ "type": "string" }, generator.subschema_for::<TtlTable>()],
        })
    }
}

/// Account, rights and CronJob for a cluster.
pub fn lower(cluster: &Resource, ttl: &Ttl, scope: &Scope) -> Vec<Resource> {
    let Identity::Object(of) = &cluster.identity else { return Vec::new() };
    let making = Making {
        cluster,
        of,
        name: format!("{}{SUFFIX}", of.name),
        namespace: of.namespace.as_deref().unwrap_or("default"),
        workload: gang::of(&cluster.body).map(|gang| workload_of(of.namespace.as_deref(), &gang)),
        scope,
    };
    let [account, role, binding] = making.rights();
    let job = making.job(ttl, &binding);
    vec![account, role, binding, job]
}

/// What is made for a cluster with a ttl.
struct Making<'a> {
    cluster: &'a Resource,
    of: &'a ObjectId,
    name: String,
    namespace: &'a str,
    /// Of a cluster in a queue the Workload tells when it was admitted.
    workload: Option<ObjectId>,
    scope: &'a Scope,
}

impl Making<'_> {
    fn object(&self, gvk: Gvk, kind: KindId, rest: Value, follows: Vec<Address>) -> Resource {
        let Self { cluster, name, namespace, scope, .. } = self;
        let mut body = json!({
            "apiVersion": gvk.api_version(),
            "kind": gvk.kind,
            "metadata": { "name": name, "namespace": namespace, "labels": scope.labels() },
        });
        for (field, value) in rest.as_object().into_iter().flatten() {
            body[field] = value.clone();
        }
        let namespace = Some((*namespace).to_owned());
        Resource {
            address: Address::object(cluster.address.as_str(), &gvk.kind, namespace.as_deref(), name),
            identity: Identity::Object(ObjectId { gvk, namespace, name: name.clone() }),
            kind,
            body,
            create_only: Value::Null,
            origin: cluster.origin.key("ttl"),
            provenance: Vec::new(),
            follows,
            protect: false,
            life: Life::Kept,
        }
    }

    /// The account, and the right to read and delete the one cluster.
    fn rights(&self) -> [Resource; 3] {
        let rbac = |kind: &str, plural: &str| gvk("rbac.authorization.k8s.io", "v1", kind, plural);
        let before = self.scope.in_namespace(self.namespace);
        let account = self.object(
            gvk("", "v1", "ServiceAccount", "serviceaccounts"),
            KindId::Object,
            // The token is mounted where it is used.
            json!({ "automountServiceAccountToken": false }),
            before.clone(),
        );
        let rule = |of: &ObjectId, verbs: &[&str]| {
            json!({
                "apiGroups": [of.gvk.group], "resources": [of.gvk.plural], "resourceNames": [of.name], "verbs": verbs,
            })
        };
        let workload = self.workload.iter().map(|workload| rule(workload, &["get"]));
        let rules: Vec<Value> = [rule(self.of, &["get", "delete"])].into_iter().chain(workload).collect();
        let role =
            self.object(rbac("Role", "roles"), KindId::Object, json!({ "rules": rules }), before.clone());
        let binding = self.object(
            rbac("RoleBinding", "rolebindings"),
            KindId::Binding,
            json!({
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": self.name },
                "subjects": [{ "kind": "ServiceAccount", "name": self.name, "namespace": self.namespace }],
            }),
            before.iter().chain([&account.address, &role.address]).cloned().collect(),
        );
        [account, role, binding]
    }

    fn job(&self, ttl: &Ttl, binding: &Resource) -> Resource {
        let spec = json!({
            "schedule": SCHEDULE,
            "concurrencyPolicy": "Forbid",
            "successfulJobsHistoryLimit": 1,
            "failedJobsHistoryLimit": 1,
            "jobTemplate": { "spec": {
                // The next look is the next try.
                "backoffLimit": 0,
                "activeDeadlineSeconds": LOOK,
                "template": { "spec": self.pod(ttl) },
            } },
        });
        let follows =
            self.scope.in_namespace(self.namespace).iter().chain([&binding.address]).cloned().collect();
        let api = gvk("batch", "v1", "CronJob", "cronjobs");
        let mut job = self.object(api, KindId::DaskTtl, json!({ "spec": spec }), follows);
        let container = ["spec", "jobTemplate", "spec", "template", "spec", "containers"];
        let place = FieldPath::keys(container).index(0).key("image");
        let from = if ttl.image().is_some() { &job.origin } else { &self.cluster.origin };
        job.provenance.push((place, from.key("image")));
        job
    }

    fn pod(&self, ttl: &Ttl) -> Value {
        let scheduler = &self.cluster.body["spec"]["scheduler"]["spec"];
        let seconds = seconds(ttl.text()).unwrap_or_default();
        let mut env = vec![
            json!({ "name": "DASK_INFRA_TTL_PATH", "value": self.of.path() }),
            json!({ "name": "DASK_INFRA_TTL_SECONDS", "value": seconds.to_string() }),
        ];
        env.extend(
            self.workload.iter().map(|workload| json!({ "name": WORKLOAD, "value": workload.path() })),
        );
        let container = json!({
            "name": "ttl",
            "image": ttl.image().unwrap_or(text(&scheduler["containers"][0]["image"])),
            "imagePullPolicy": "IfNotPresent",
            // Arguments, as the image's entry point prepares Python's environment.
            "args": ["python3", "-c", SCRIPT],
            "env": env,
            "resources": { "requests": { "cpu": "10m", "memory": "64Mi" } },
        });
        let beside = json!({ "labelSelector": { "matchLabels": { CLUSTER_LABEL: self.of.name } },
            "topologyKey": "kubernetes.io/hostname" });
        let mut pod = json!({
            "restartPolicy": "Never",
            "serviceAccountName": self.name,
            "automountServiceAccountToken": true,
            // Where the cluster's pods run: no node is added for it, none is kept, and the image is there.
            "affinity": { "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [beside] } },
            "tolerations": [{ "operator": "Exists" }],
            "containers": [container],
        });
        if let Some(secrets) = scheduler.get("imagePullSecrets") {
            pod["imagePullSecrets"] = secrets.clone();
        }
        pod
    }
}

/// Whether the time of a CronJob's cluster begins when its queue admits it.
pub fn is_of_queue(job: &Resource) -> bool {
    let spec = &job.body["spec"]["jobTemplate"]["spec"]["template"]["spec"];
    let mut env = spec["containers"][0]["env"].as_array().into_iter().flatten();
    env.any(|variable| variable["name"] == WORKLOAD)
}

/// What happens to the cluster of a CronJob when its time begins: `it is created`.
pub fn since(job: &Resource) -> &'static str {
    if is_of_queue(job) { "its queue admits it" } else { "it is created" }
}

/// How long after that the cluster of a CronJob goes: `8h`.
pub fn after(job: &Resource) -> Option<String> {
    let spec = &job.body["spec"]["jobTemplate"]["spec"]["template"]["spec"];
    let seconds: u64 = text(&spec["containers"][0]["env"][1]["value"]).parse().ok()?;
    let units = [(86_400, 'd'), (3600, 'h'), (60, 'm')];
    let whole = units.into_iter().find(|(unit, _)| seconds > 0 && seconds.is_multiple_of(*unit));
    Some(whole.map_or_else(|| format!("{seconds}s"), |(unit, name)| format!("{}{name}", seconds / unit)))
}

/// The CronJob that deletes a Dask cluster, among all things of the stack.
pub fn of<'r>(cluster: &Resource, all: &'r [Resource]) -> Option<&'r Resource> {
    let own = |other: &&Resource| other.kind == KindId::DaskTtl && cluster.origin.contains(&other.origin);
    (cluster.identity.object()?.gvk == api::cluster()).then(|| all.iter().find(own))?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema;

    #[test]
    fn the_account_of_a_ttl_may_read_and_delete_one_object() {
        let (stack, scope) = (Ttl::After("8h".into()), scope());
        let made = lower(&cluster(), &stack, &scope);
        let kinds: Vec<&str> = made.iter().map(|resource| text(&resource.body["kind"])).collect();
        assert_eq!(kinds, ["ServiceAccount", "Role", "RoleBinding", "CronJob"]);
        let rule = json!({
            "apiGroups": ["kubernetes.dask.org"], "resources": ["daskclusters"], "resourceNames": ["d"],
            "verbs": ["get", "delete"],
        });
        assert_eq!(made[1].body["rules"], json!([rule]));
        for resource in &made {
            let shape = crate::kinds::kubernetes::object::object_schema(&resource.identity).unwrap();
            assert_eq!(schema::check(&shape, &resource.body), [], "{}", resource.address);
        }
        assert_eq!(after(&made[3]).as_deref(), Some("8h"));
        assert_eq!(of(&cluster(), &made), made.last());
        let pod = &made[3].body["spec"]["jobTemplate"]["spec"]["template"]["spec"];
        assert_eq!(pod["containers"][0]["image"], "demo:1");
        assert_eq!(pod["imagePullSecrets"][0]["name"], "pull");
        let table = TtlTable { after: "90m".into(), image: Some("python:3.13".into()) };
        let made = lower(&cluster(), &Ttl::Table(table), &scope);
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
        gang::Gang { queue: "gpus", name: "d", count: 2 }.mark(&mut metadata);
        queued.body["kind"] = json!("DaskCluster");
        queued.body["metadata"] = metadata;
        let made = lower(&queued, &Ttl::After("8h".into()), &scope());
        let rule = json!({
            "apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "resourceNames": ["d"], "verbs": ["get"],
        });
        assert_eq!(made[1].body["rules"][1], rule);
        assert_eq!((after(&made[3]).as_deref(), since(&made[3])), (Some("8h"), "its queue admits it"));
        assert_eq!(since(&lower(&cluster(), &Ttl::After("8h".into()), &scope())[3]), "it is created");
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
            follows: Vec::new(),
            protect: false,
            life: Life::Once { follow: None },
        }
    }

    fn scope() -> Scope {
        use crate::kinds::short::DriverInstall;
        use crate::resource::{Endpoint, Owner, Target};
        let target = Target {
            gke: None,
            endpoint: Endpoint::default(),
            hosts: Vec::new(),
            gone: Vec::new(),
            context: None,
            kubeconfig: None,
            simulated: false,
        };
        Scope {
            owner: Owner { stack: "s".into(), id: "s".into() },
            target,
            pools: Vec::new(),
            driver: DriverInstall::default(),
            sections: Vec::new(),
            checks: Vec::new(),
            namespaces: Vec::new(),
            zones: 1,
            dask: Vec::new(),
            slurm: None,
            environments: Vec::new(),
            queues: Vec::new(),
            newer_kueue: false,
        }
    }
}
