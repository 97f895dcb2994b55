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
use crate::dask::expiry::{self, After, CHECK_TIMEOUT, ExpiryCause, ExpiryTable, SCHEDULE};
use crate::kubernetes::object::gvk;
use crate::scope::{OPERATOR_NAME, POOL_LABEL, Scope, allow_client};
use crate::security_defaults;
use crate::short_forms::seconds;
use model::address::{Address, FieldPath};
use model::record::{NAMESPACE, Record};
use model::resource::{Gvk, Identity, KindId, ObjectId, Recreation, Resource};

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
    let builder = Builder { cause, after, facts, scope, name: name(cause, scope) };
    let account = builder.account();
    let roles: Vec<Resource> =
        builder.roles().into_iter().flat_map(|role| builder.bound(role, &account)).collect();
    let job = builder.job(&roles);
    [account].into_iter().chain(roles).chain([job]).collect()
}

fn name(cause: ExpiryCause, scope: &Scope) -> String {
    format!("{}-stack{}", scope.owner.stack, cause.suffix())
}

struct Builder<'a> {
    cause: ExpiryCause,
    after: &'a StackAfter,
    facts: &'a StackFacts<'a>,
    scope: &'a Scope,
    name: String,
}

impl Builder<'_> {
    fn object(
        &self,
        gvk: Gvk,
        kind: KindId,
        namespace: &str,
        rest: Value,
        depends_on: Vec<Address>,
    ) -> Resource {
        let mut body = json!({
            "apiVersion": gvk.api_version(),
            "kind": gvk.kind,
            "metadata": { "name": self.name, "namespace": namespace, "labels": self.scope.labels() },
        });
        for (field, value) in rest.as_object().into_iter().flatten() {
            body[field] = value.clone();
        }
        let origin = FieldPath::keys(["stack", self.cause.key()]);
        let section = Address::of("stack", self.cause.key());
        let id = ObjectId { gvk, namespace: Some(namespace.to_owned()), name: self.name.clone() };
        Resource {
            address: Address::object(section.as_str(), &id.gvk.kind, Some(namespace), &self.name),
            identity: Identity::Object(id),
            kind,
            body,
            create_only: Value::Null,
            origin,
            provenance: Vec::new(),
            depends_on,
            protect: false,
            recreation: Recreation::Always,
        }
    }

    fn account(&self) -> Resource {
        self.object(
            gvk("", "v1", "ServiceAccount", "serviceaccounts"),
            KindId::Object,
            NAMESPACE,
            // The token is mounted where it is used.
            json!({ "automountServiceAccountToken": false }),
            self.scope.namespace_dependencies(NAMESPACE),
        )
    }

    /// Returns the CronJobs of the stack, its own one last.
    fn jobs(&self) -> Vec<ObjectId> {
        let others = self.facts.causes.iter().filter(|cause| **cause != self.cause);
        let job = |cause: &ExpiryCause| ObjectId {
            gvk: gvk("batch", "v1", "CronJob", "cronjobs"),
            namespace: Some(NAMESPACE.to_owned()),
            name: name(*cause, self.scope),
        };
        others.chain([&self.cause]).map(job).collect()
    }

    /// Returns a Role for each namespace with something to delete or to read.
    fn roles(&self) -> Vec<Resource> {
        let mut rules: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        for (namespace, by_kind) in self.names_by_kind(self.facts.stops.iter().map(|(object, _)| *object)) {
            let rules = rules.entry(namespace).or_default();
            rules.extend(by_kind.into_iter().map(|(gvk, names)| rule(gvk, &names, &["get", "delete"])));
        }
        let groups = self.groups();
        for (namespace, by_kind) in self.names_by_kind(groups.iter().flat_map(|(_, groups)| groups)) {
            let rules = rules.entry(namespace).or_default();
            rules.extend(by_kind.into_iter().map(|(gvk, names)| rule(gvk, &names, &["get"])));
        }
        let (record, jobs) = (Record::object(&self.scope.owner.stack), self.jobs());
        let own = rules.entry(NAMESPACE).or_default();
        own.push(rule(&record.gvk, &BTreeSet::from([record.name.as_str()]), &["get", "patch"]));
        let names = jobs.iter().map(|job| job.name.as_str()).collect();
        own.push(rule(&jobs[0].gvk, &names, &["get", "patch", "delete"]));
        if self.after.destroys() {
            // Records of other stacks in the cluster.
            own.push(json!({ "apiGroups": [record.gvk.group], "resources": [record.gvk.plural], "verbs": ["list"] }));
        }
        let role = |(namespace, rules): (&str, Vec<Value>)| {
            self.object(
                gvk("rbac.authorization.k8s.io", "v1", "Role", "roles"),
                KindId::Object,
                namespace,
                json!({ "rules": rules }),
                self.scope.namespace_dependencies(namespace),
            )
        };
        rules.into_iter().map(role).collect()
    }

    /// Groups objects by namespace and kind.
    fn names_by_kind<'o>(
        &self,
        objects: impl Iterator<Item = &'o ObjectId>,
    ) -> BTreeMap<&'o str, BTreeMap<&'o Gvk, BTreeSet<&'o str>>> {
        let mut found: BTreeMap<&str, BTreeMap<&Gvk, BTreeSet<&str>>> = BTreeMap::new();
        for object in objects {
            let namespace = object.namespace.as_deref().unwrap_or("default");
            found.entry(namespace).or_default().entry(&object.gvk).or_default().insert(&object.name);
        }
        found
    }

    /// Returns a Role and its RoleBinding.
    fn bound(&self, role: Resource, account: &Resource) -> [Resource; 2] {
        let namespace =
            role.identity.object().and_then(|object| object.namespace.clone()).unwrap_or_default();
        let mut depends_on = self.scope.namespace_dependencies(&namespace);
        depends_on.extend([account.address.clone(), role.address.clone()]);
        let binding = self.object(
            gvk("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings"),
            KindId::Binding,
            &namespace,
            json!({
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": self.name },
                "subjects": [{ "kind": "ServiceAccount", "name": self.name, "namespace": NAMESPACE }],
            }),
            depends_on,
        );
        [role, binding]
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
        let Self { scope, facts, .. } = self;
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
            "record": Record::object(&scope.owner.stack).path(),
            "delete": facts.stops.iter().map(|(object, runs)| json!({ "path": object.path(), "runs": runs })).collect::<Vec<_>>(),
            "clusters": self.groups().into_iter().map(cluster).collect::<Vec<_>>(),
            "cluster": gke.map(model::resource::ClusterName::path),
            "pools": pools,
            "home": facts.home,
            "destroy": self.after.destroys(),
        })
    }

    fn job(&self, roles: &[Resource]) -> Resource {
        let mut template = json!({ "spec": self.pod() });
        if self.cause == ExpiryCause::IdleStop {
            let closed = self.scope.dask.iter().filter(|dask| dask.is_network_restricted);
            closed.for_each(|dask| allow_client(&mut template["metadata"], &dask.name));
        }
        let spec = json!({
            "schedule": SCHEDULE,
            "concurrencyPolicy": "Forbid",
            "successfulJobsHistoryLimit": 1,
            "failedJobsHistoryLimit": 1,
            "jobTemplate": { "spec": {
                // The next look is the next try.
                "backoffLimit": 0,
                "activeDeadlineSeconds": CHECK_TIMEOUT,
                "template": template,
            } },
        });
        let mut depends_on = self.scope.namespace_dependencies(NAMESPACE);
        depends_on.extend(roles.iter().map(|role| role.address.clone()));
        self.object(
            gvk("batch", "v1", "CronJob", "cronjobs"),
            KindId::Expiry,
            NAMESPACE,
            json!({ "spec": spec }),
            depends_on,
        )
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
            "serviceAccountName": self.name,
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

fn rule(gvk: &Gvk, names: &BTreeSet<&str>, verbs: &[&str]) -> Value {
    json!({ "apiGroups": [gvk.group], "resources": [gvk.plural], "resourceNames": names, "verbs": verbs })
}
