//! `ttl` and `idle_stop` of `[stack]`: a CronJob that stops the whole stack, also while the user's machine is off. It deletes what
//! `dask-infra stop` deletes and empties the node pools of the stack, or deletes the GKE cluster.
//!
//! Its Kubernetes rights are a Role in each namespace with something to delete. It changes node pools with the identity of its
//! ServiceAccount, by GKE's workload identity; the stack cannot grant that right, as it is one of the project.
//!
//! The script notes the stop in an annotation of the record, with the record's digest. So the next plan knows that the stack is
//! stopped, and every later write of the record makes the note void.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::dask::api;
use crate::dask::cron_job::{self, CronJob, rule};
use crate::dask::expiry::{self, After, ExpiryCause, ExpiryTable};
use crate::scope::{OPERATOR_NAME, POOL_LABEL, Scope, allow_client};
use crate::security_defaults;
use crate::short_forms::seconds;
use model::address::{Address, FieldPath};
use model::record::{NAMESPACE, Record};
use model::resource::{Gvk, KindId, ObjectId, Resource};

/// The script that runs in the cluster.
pub const SCRIPT: &str = concat!(include_str!("reaper_api.py"), include_str!("stack_expiry.py"));

/// The image of a CronJob in a stack without `[dask_operator]`: it has `distributed`, as the operator asks schedulers, too.
const IMAGE: &str = "ghcr.io/dask/dask-kubernetes-operator:2026.3.0";

/// After how long a CronJob stops a stack.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StackAfterTable {
    /// How long: `"45m"`, `"8h"`, `"2d"`.
    pub after: String,
    /// True to delete the GKE cluster, with everything in it. Default `false`: its node pools are emptied.
    #[serde(default, skip_serializing_if = "crate::json::is_false")]
    pub destroy: bool,
    /// An image with Python 3 for the CronJob; for `idle_stop` it also needs `distributed`. Default: the Dask operator's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

impl ExpiryTable for StackAfterTable {
    fn after(&self) -> &str {
        &self.after
    }

    fn image(&self) -> Option<&str> {
        self.image.as_deref()
    }
}

/// After how long a CronJob stops a stack: a text or a table.
pub type StackAfter = After<StackAfterTable>;

impl StackAfter {
    /// Returns true if the GKE cluster is deleted.
    pub fn destroys(&self) -> bool {
        matches!(self, Self::Table(StackAfterTable { destroy: true, .. }))
    }
}

/// Facts of a stack for its CronJobs.
pub struct StackFacts<'a> {
    /// The live name of the pool whose nodes the CronJobs run on, if the stack has pools.
    pub home: Option<&'a str>,
    /// The objects to delete, each with true if it ends by itself.
    pub stops: Vec<(&'a ObjectId, bool)>,
    /// The reasons for which the stack has CronJobs.
    pub causes: Vec<ExpiryCause>,
    /// The resources of the stack.
    pub resources: &'a [Resource],
}

/// Returns true if Pods of a stack's CronJobs use Google's APIs, with the right to do so.
pub fn uses_google(job: &Resource) -> bool {
    expiry::stack_plan(job).is_some_and(|plan| plan["cluster"].is_string())
}

/// Returns the commands that grant a CronJob the right to change node pools: a role of the project with the least permissions for it,
/// and a binding of the CronJob's own account. Both hold for all clusters of the project: an account of a name is one, whatever cluster
/// it is in.
pub fn grants(job: &Resource, project: &str) -> [String; 2] {
    let plan = expiry::stack_plan(job).unwrap_or_default();
    let account = job.identity.object().map(|object| object.name.as_str()).unwrap_or_default();
    let (role, more) = match plan["destroy"] == true {
        true => ("daskInfraDestroy", ",container.clusters.delete"),
        false => ("daskInfraStop", ""),
    };
    let number = format!("$(gcloud projects describe {project} --format='value(projectNumber)')");
    [
        format!(
            "gcloud iam roles create {role} --project {project} \
             --permissions container.clusters.get,container.clusters.update,container.operations.get{more}"
        ),
        format!(
            "gcloud projects add-iam-policy-binding {project} --role projects/{project}/roles/{role} --condition None \
             --member \"principal://iam.googleapis.com/projects/{number}/locations/global/workloadIdentityPools/\
             {project}.svc.id.goog/subject/ns/{NAMESPACE}/sa/{account}\""
        ),
    ]
}

/// Lowers a stack's `ttl` or `idle_stop` to a ServiceAccount, its RBAC and a CronJob.
pub fn lower(cause: ExpiryCause, after: &StackAfter, facts: &StackFacts<'_>, scope: &Scope) -> Vec<Resource> {
    let cron_job = CronJob {
        address: Address::of("stack", cause.key()),
        origin: FieldPath::keys(["stack", cause.key()]),
        name: name(cause, scope),
        namespace: NAMESPACE,
        scope,
    };
    let builder = Builder { cron_job, cause, after, facts };
    let account = builder.cron_job.account();
    let rules = builder.rules();
    let rights =
        rules.iter().flat_map(|(namespace, rules)| builder.cron_job.rights(namespace, rules, &account));
    let rights: Vec<Resource> = rights.collect();
    let job = builder.job(&rights);
    [account].into_iter().chain(rights).chain([job]).collect()
}

/// Returns the name of a CronJob of the stack.
fn name(cause: ExpiryCause, scope: &Scope) -> String {
    format!("{}-stack{}", scope.owner.stack, cause.suffix())
}

struct Builder<'a> {
    cron_job: CronJob<'a>,
    cause: ExpiryCause,
    after: &'a StackAfter,
    facts: &'a StackFacts<'a>,
}

impl Builder<'_> {
    /// Returns the CronJobs of the stack, its own one last.
    fn jobs(&self) -> Vec<ObjectId> {
        let others = self.facts.causes.iter().filter(|cause| **cause != self.cause);
        let job = |cause: &ExpiryCause| ObjectId {
            gvk: cron_job::api(),
            namespace: Some(NAMESPACE.to_owned()),
            name: name(*cause, self.cron_job.scope),
        };
        others.chain([&self.cause]).map(job).collect()
    }

    /// Returns the rules of the script by namespace.
    fn rules(&self) -> BTreeMap<String, Vec<Value>> {
        let (record, jobs, groups) = (self.record(), self.jobs(), self.groups());
        let mut rules = BTreeMap::new();
        add_rules(&mut rules, self.facts.stops.iter().map(|(object, _)| *object), &["get", "delete"]);
        add_rules(&mut rules, groups.iter().flat_map(|(_, groups)| groups), &["get"]);
        add_rules(&mut rules, [&record], &["get", "patch"]);
        add_rules(&mut rules, &jobs, &["get", "patch", "delete"]);
        if self.after.destroys() {
            // Records of other stacks in the cluster.
            let list = json!({ "apiGroups": [record.gvk.group], "resources": [record.gvk.plural], "verbs": ["list"] });
            rules.entry(NAMESPACE.to_owned()).or_default().push(list);
        }
        rules
    }

    fn record(&self) -> ObjectId {
        Record::object(&self.cron_job.scope.owner.stack)
    }

    /// Returns the Dask clusters that are asked for their idle time, each with its groups.
    fn groups(&self) -> Vec<(&ObjectId, Vec<ObjectId>)> {
        let of_cause = self.facts.resources.iter().filter(|_| self.cause == ExpiryCause::IdleStop);
        let clusters = of_cause.filter(|resource| resource.kind == KindId::DaskCluster);
        let groups_of = |cluster: &ObjectId| {
            let of_it = |group: &&ObjectId| group.namespace == cluster.namespace;
            let groups = self.facts.resources.iter().filter(|resource| {
                resource.kind == KindId::DaskGroup
                    && resource.body["spec"]["cluster"] == cluster.name.as_str()
            });
            let groups = groups.filter_map(|group| group.identity.object()).filter(of_it).cloned();
            [api::default_group(cluster)].into_iter().chain(groups).collect()
        };
        clusters
            .filter_map(|cluster| cluster.identity.object())
            .map(|cluster| (cluster, groups_of(cluster)))
            .collect()
    }

    /// Returns what the script does.
    fn plan(&self) -> Value {
        let (scope, facts) = (self.cron_job.scope, self.facts);
        let cluster = |(cluster, groups): (&ObjectId, Vec<ObjectId>)| {
            let namespace = cluster.namespace.as_deref().unwrap_or("default");
            json!({
                "path": cluster.path(),
                "scheduler": api::scheduler_address(&cluster.name, namespace),
                "groups": groups.iter().map(ObjectId::path).collect::<Vec<_>>(),
            })
        };
        let pools: Vec<&str> =
            facts.resources.iter().filter_map(|resource| resource.identity.pool()).collect();
        let asks_google = !pools.is_empty() || self.after.destroys();
        let gke = scope.target.gke.as_ref().filter(|_| asks_google);
        json!({
            "key": self.cause.key(),
            "id": scope.owner.id,
            "manager": scope.owner.field_manager(),
            "jobs": self.jobs().iter().map(ObjectId::path).collect::<Vec<_>>(),
            "record": self.record().path(),
            "delete": facts.stops.iter().map(|(object, runs)| json!({ "path": object.path(), "runs": runs })).collect::<Vec<_>>(),
            "clusters": self.groups().into_iter().map(cluster).collect::<Vec<_>>(),
            "cluster": gke.map(model::resource::ClusterName::path),
            "pools": pools,
            "home": facts.home,
            "destroy": self.after.destroys(),
        })
    }

    fn job(&self, rights: &[Resource]) -> Resource {
        let mut template = json!({ "spec": self.pod() });
        if self.cause == ExpiryCause::IdleStop {
            let closed = self.cron_job.scope.dask.iter().filter(|dask| dask.is_network_restricted);
            closed.for_each(|dask| allow_client(&mut template["metadata"], &dask.name));
        }
        self.cron_job.job(&template, rights)
    }

    fn image(&self) -> String {
        let operator = self.facts.resources.iter().find(|resource| {
            let name = resource.identity.object().map(|object| object.name.as_str());
            resource.kind == KindId::Deployment && name == Some(OPERATOR_NAME)
        });
        let image =
            operator.and_then(|operator| operator.body.pointer("/spec/template/spec/containers/0/image"));
        self.after.image().or(image.and_then(Value::as_str)).unwrap_or(IMAGE).to_owned()
    }

    fn pod(&self) -> Value {
        let seconds = seconds(self.after.text()).unwrap_or_default().to_string();
        // The entry point of the operator's image is the operator; others prepare Python's environment.
        let start = if self.after.image().is_some() { "args" } else { "command" };
        let container = json!({
            "name": "reaper",
            "image": self.image(),
            "imagePullPolicy": "IfNotPresent",
            start: ["python3", "-c", SCRIPT],
            "env": [{ "name": expiry::STACK, "value": self.plan().to_string() }, { "name": expiry::SECONDS, "value": seconds }],
            "resources": { "requests": { "cpu": "10m", "memory": "128Mi" } },
        });
        let mut pod = json!({
            "restartPolicy": "Never",
            "serviceAccountName": self.cron_job.name,
            // The last calls are sent while its own node is drained.
            "terminationGracePeriodSeconds": 60,
            "containers": [container],
        });
        if let Some(home) = self.facts.home {
            pod["nodeSelector"] = json!({ POOL_LABEL: home });
            pod["tolerations"] = json!([{ "operator": "Exists" }]);
            // Google's resolver, too: the cluster's own may have no node any more.
            pod["dnsConfig"] = json!({ "nameservers": ["169.254.169.254"] });
        }
        security_defaults::apply(&mut pod);
        // It asks the API server.
        pod["automountServiceAccountToken"] = json!(true);
        pod
    }
}

/// Adds a rule for each kind of the objects, in the namespaces of the objects.
fn add_rules<'o>(
    rules: &mut BTreeMap<String, Vec<Value>>,
    objects: impl IntoIterator<Item = &'o ObjectId>,
    verbs: &[&str],
) {
    let mut names: BTreeMap<(&str, &Gvk), BTreeSet<&str>> = BTreeMap::new();
    for object in objects {
        let namespace = object.namespace.as_deref().unwrap_or("default");
        names.entry((namespace, &object.gvk)).or_default().insert(&object.name);
    }
    for ((namespace, gvk), names) in names {
        rules.entry(namespace.to_owned()).or_default().push(rule(gvk, names, verbs));
    }
}
