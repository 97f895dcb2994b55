//! Permissions that a stack needs, and the roles that hold them: the one table, for `permissions`, `doctor` and messages about
//! refusals. Pure.
//! Source: IAM's reference of `container.*` permissions and of the predefined roles of Kubernetes Engine; the permissions that
//! the reference pages of the methods name. The permissions of a role are from memory where its page was not at hand.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use kinds::kubernetes::object::gvk;
use kinds::kubernetes::{kueue, provisioning};
use live::Request;
use live::prices::CONTRACT_ROLE;
use model::prices::cloud_billing::BillingAccount;
use model::resource::{Api, Endpoint, External, Gvk, Identity, KindId, Lowered, Method, Resource, Target};

/// One permission.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// A permission of IAM on the project.
    Project(&'static str),
    /// A verb on objects of the Kubernetes API.
    Object { group: String, plural: String, kind: String, verb: &'static str },
}

/// Permissions that a stack needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    pub plan: BTreeSet<Need>,
    /// Permissions for `apply`, including those for `plan`.
    pub apply: BTreeSet<Need>,
}

const READ: &[&str] = &["get", "list"];
const WRITE: &[&str] = &["create", "update", "delete"];

/// Objects that every stack reads or writes: its record, and those that waits read.
const ALWAYS: &[(&str, &str, &[&str], &[&str])] = &[
    ("configmaps", "ConfigMap", READ, WRITE),
    ("namespaces", "Namespace", READ, &["create", "update"]),
    ("nodes", "Node", READ, &[]),
    ("pods", "Pod", READ, &[]),
];

impl Needs {
    /// Returns the permissions for everything in a stack.
    pub fn of_stack(lowered: &Lowered) -> Self {
        Self::of_resources(&lowered.target, &lowered.resources, &lowered.external)
    }

    /// Returns the permissions for the resources that a stack creates in a target, and for the external resources that it relies
    /// on.
    pub fn of_resources(target: &Target, resources: &[Resource], external: &[External]) -> Self {
        let mut needs = Self::default();
        if target.gke.is_some() {
            needs.add_reads(&[
                "container.clusters.get",
                "container.clusters.list",
                "container.operations.list",
            ]);
        }
        if target.endpoint == Endpoint::Dns {
            needs.add_reads(&["container.clusters.connect"]);
        }
        for (plural, kind, read, write) in ALWAYS {
            let gvk = gvk("", "v1", kind, plural);
            needs.add_object(&gvk, read, write);
        }
        resources.iter().for_each(|resource| needs.add_managed(resource));
        external.iter().for_each(|external| needs.add_external(&external.resource));
        needs
    }

    fn add_reads(&mut self, permissions: &[&'static str]) {
        self.plan.extend(permissions.iter().map(|permission| Need::Project(permission)));
        self.add_writes(permissions);
    }

    fn add_writes(&mut self, permissions: &[&'static str]) {
        self.apply.extend(permissions.iter().map(|permission| Need::Project(permission)));
    }

    fn add_object(&mut self, gvk: &Gvk, read: &[&'static str], write: &[&'static str]) {
        let need = |verb: &&'static str| Need::Object {
            group: gvk.group.clone(),
            plural: gvk.plural.clone(),
            kind: gvk.kind.clone(),
            verb,
        };
        self.plan.extend(read.iter().map(need));
        self.apply.extend(read.iter().chain(write).map(need));
    }

    fn add_managed(&mut self, resource: &Resource) {
        self.add_external(resource);
        match &resource.identity {
            Identity::Cluster(_) => self.add_writes(&[
                "container.clusters.create",
                "container.clusters.update",
                "container.clusters.delete",
                "container.operations.get",
                "iam.serviceAccounts.actAs",
            ]),
            Identity::NodePool { .. } => self.add_writes(&[
                "container.clusters.update",
                "container.operations.get",
                "iam.serviceAccounts.actAs",
            ]),
            Identity::Object(object) => {
                self.add_object(&object.gvk, &[], WRITE);
                // RBAC requires these verbs to grant rights that the caller lacks.
                match object.gvk.kind.as_str() {
                    "ClusterRole" | "Role" => self.add_object(&object.gvk, &[], &["escalate"]),
                    "ClusterRoleBinding" | "RoleBinding" => {
                        let role = Gvk {
                            kind: "ClusterRole".to_owned(),
                            plural: "clusterroles".to_owned(),
                            ..object.gvk.clone()
                        };
                        self.add_object(&role, &[], &["bind"]);
                    }
                    _ => {}
                }
            }
            Identity::Check(_) => {
                let (kind, plural) = ("Pod".to_owned(), "pods".to_owned());
                let pod = Gvk { group: String::new(), version: "v1".to_owned(), kind, plural };
                self.add_object(&pod, &[], &["create", "delete", "getLogs"]);
            }
        }
    }

    fn add_external(&mut self, resource: &Resource) {
        match &resource.identity {
            Identity::Cluster(_) | Identity::Check(_) => {}
            Identity::NodePool { .. } => self.add_reads(&["compute.instanceGroupManagers.get"]),
            Identity::Object(object) => {
                self.add_object(&object.gvk, READ, &[]);
                // Nodes are read because a pool that has enough needs no request.
                if resource.kind == KindId::ProvisioningRequest
                    && provisioning::pool_with_options(&resource.body).is_some()
                {
                    self.add_object(&gvk("", "v1", "Node", "nodes"), READ, &[]);
                }
                // Kueue reports the state of the resource in its Workload.
                if kueue::workload::waits(resource) {
                    self.add_object(&kueue::kind("Workload"), READ, &[]);
                }
            }
        }
    }
}

/// IAM's names for objects of a kind, if it has one.
const OBJECTS: &[(&str, &str)] = &[
    ("ClusterRole", "clusterRoles"),
    ("ClusterRoleBinding", "clusterRoleBindings"),
    ("ConfigMap", "configMaps"),
    ("CronJob", "cronJobs"),
    ("CustomResourceDefinition", "customResourceDefinitions"),
    ("DaemonSet", "daemonSets"),
    ("Deployment", "deployments"),
    ("HorizontalPodAutoscaler", "horizontalPodAutoscalers"),
    ("Ingress", "ingresses"),
    ("Job", "jobs"),
    ("LimitRange", "limitRanges"),
    ("Namespace", "namespaces"),
    ("NetworkPolicy", "networkPolicies"),
    ("Node", "nodes"),
    ("PersistentVolume", "persistentVolumes"),
    ("PersistentVolumeClaim", "persistentVolumeClaims"),
    ("Pod", "pods"),
    ("PodDisruptionBudget", "podDisruptionBudgets"),
    ("PodTemplate", "podTemplates"),
    ("ReplicaSet", "replicaSets"),
    ("ResourceQuota", "resourceQuotas"),
    ("Role", "roles"),
    ("RoleBinding", "roleBindings"),
    ("Secret", "secrets"),
    ("Service", "services"),
    ("ServiceAccount", "serviceAccounts"),
    ("StatefulSet", "statefulSets"),
    ("StorageClass", "storageClasses"),
];

impl Need {
    /// Returns IAM's name of the permission.
    pub fn permission(&self) -> String {
        match self {
            Self::Project(permission) => (*permission).to_owned(),
            Self::Object { group, kind, verb, .. } => {
                let known = OBJECTS.iter().find(|(known, _)| known == kind);
                let of_kubernetes = group.is_empty() || group.ends_with(".k8s.io") || !group.contains('.');
                let noun = known.filter(|_| of_kubernetes).map_or("thirdPartyObjects", |(_, noun)| noun);
                format!("container.{noun}.{verb}")
            }
        }
    }
}

/// Returns IAM's names of the needed permissions, without duplicates.
pub fn permissions(needs: &BTreeSet<Need>) -> Vec<String> {
    needs.iter().map(Need::permission).collect::<BTreeSet<String>>().into_iter().collect()
}

/// Returns the request that asks which of these the credentials have on a project.
pub fn test(project: &str, needed: &[String]) -> Request {
    Request {
        api: Api::Projects,
        method: Method::Post,
        path: format!("/v1/projects/{project}:testIamPermissions"),
        body: Some(json!({ "permissions": needed })),
    }
}

/// Returns the permissions that are missing in the answer to `testIamPermissions`.
pub fn missing<'n>(needed: &'n [String], answer: &Value) -> Vec<&'n str> {
    let given: BTreeSet<&str> =
        answer["permissions"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    needed.iter().map(String::as_str).filter(|needed| !given.contains(needed)).collect()
}

/// Returns true for a permission that only the IAM policy of the project grants. Permissions on objects of the cluster can also be
/// granted by RBAC, and `iam.serviceAccounts.actAs` by the policy of the service account.
pub fn is_of_the_project(permission: &str) -> bool {
    permission.starts_with("container.clusters.") || permission.starts_with("container.operations.")
}

/// Lists the permissions in one line, shortened if there are many.
pub fn few(permissions: &[&str]) -> String {
    match permissions {
        [first, second, third, rest @ ..] if rest.len() > 2 => {
            format!("{first}, {second}, {third} and {} more (`dask-infra permissions` lists all)", rest.len())
        }
        all => all.join(", "),
    }
}

/// Returns the commands of an administrator that grant all of these.
pub fn grants(project: &str, permissions: &[&str]) -> String {
    let commands: Vec<String> =
        roles(permissions.iter().copied()).into_iter().map(|role| grant(project, role)).collect();
    commands.join("\n")
}

/// Returns the rules of a ClusterRole that allow what is needed inside a cluster.
pub fn rules(needs: &BTreeSet<Need>) -> Vec<Value> {
    let mut verbs = BTreeMap::<(&str, String), BTreeSet<&str>>::new();
    for need in needs {
        let Need::Object { group, plural, kind: _, verb } = need else { continue };
        let (plural, verb): (_, &[&str]) = match *verb {
            "getLogs" => (format!("{plural}/log"), &["get"]),
            "list" => (plural.clone(), &["list", "watch"]),
            // Server-side apply is a patch.
            "update" => (plural.clone(), &["patch"]),
            verb => (plural.clone(), &[verb][..]),
        };
        verbs.entry((group, plural)).or_default().extend(verb);
    }
    let rule = |((group, plural), verbs): ((&str, String), BTreeSet<&str>)| json!({ "apiGroups": [group], "resources": [plural], "verbs": verbs });
    verbs.into_iter().map(rule).collect()
}

/// A predefined role, and whether it holds a permission.
type Role = (&'static str, fn(&str) -> bool);

/// The roles, from the smallest to the largest.
const ROLES: &[Role] = &[
    ("roles/container.clusterViewer", |permission| {
        ["container.clusters.get", "container.clusters.list"].contains(&permission)
    }),
    ("roles/container.viewer", is_seen),
    ("roles/container.clusterAdmin", |permission| {
        permission.starts_with("container.clusters.") || permission.starts_with("container.operations.")
    }),
    ("roles/container.developer", |permission| {
        let writes_cluster = permission.starts_with("container.clusters.") && !is_seen(permission);
        permission.starts_with("container.") && !writes_cluster && !is_reserved(permission)
    }),
    ("roles/container.admin", |permission| permission.starts_with("container.")),
    ("roles/compute.viewer", |permission| permission.starts_with("compute.")),
    ("roles/iam.serviceAccountUser", |permission| permission == "iam.serviceAccounts.actAs"),
    ("roles/serviceusage.serviceUsageConsumer", |permission| permission == "serviceusage.services.use"),
];

fn is_seen(permission: &str) -> bool {
    let reads = [".get", ".list", ".connect"].iter().any(|end| permission.ends_with(end));
    permission.starts_with("container.") && reads && !permission.starts_with("container.secrets.")
}

/// Returns true if a permission writes what only an administrator may write: roles, their bindings and kinds of objects.
fn is_reserved(permission: &str) -> bool {
    let kinds = ["roles", "roleBindings", "clusterRoles", "clusterRoleBindings", "customResourceDefinitions"];
    let noun = permission.split('.').nth(1).unwrap_or_default();
    kinds.contains(&noun) && !is_seen(permission)
}

/// Returns the smallest role that has a permission.
pub fn role(permission: &str) -> Option<&'static str> {
    ROLES.iter().find(|(_, holds)| holds(permission)).map(|(role, _)| *role)
}

/// Returns the smallest roles that together have all of these permissions.
pub fn roles<'a>(permissions: impl IntoIterator<Item = &'a str> + Clone) -> Vec<&'static str> {
    let least: BTreeSet<&str> = permissions.clone().into_iter().filter_map(role).collect();
    let mut kept: Vec<&Role> = ROLES.iter().filter(|(role, _)| least.contains(role)).collect();
    for (name, holds) in ROLES {
        let mut of_it = permissions.clone().into_iter().filter(|permission| holds(permission));
        let others = || kept.iter().filter(|(other, _)| other != name);
        if of_it.all(|permission| others().any(|(_, holds)| holds(permission))) {
            kept.retain(|(other, _)| other != name);
        }
    }
    kept.into_iter().map(|(role, _)| *role).collect()
}

/// Returns the command that grants the right to read the prices of a billing account.
pub fn grant_on_account(account: &BillingAccount) -> String {
    let id = account.id();
    format!("gcloud billing accounts add-iam-policy-binding {id} --member user:YOU --role {CONTRACT_ROLE}")
}

/// Returns how an administrator grants a role.
pub fn grant(project: &str, role: &str) -> String {
    format!("gcloud projects add-iam-policy-binding {project} --member user:YOU --role {role}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_roles_hold_all() {
        let rows: [(&[&str], &[&str]); 7] = [
            (&["container.clusters.get"], &["roles/container.clusterViewer"]),
            (&["container.clusters.get", "container.pods.list"], &["roles/container.viewer"]),
            (&["container.secrets.get", "container.pods.list"], &["roles/container.developer"]),
            (
                &["container.clusters.create", "container.pods.list", "container.configMaps.create"],
                &["roles/container.clusterAdmin", "roles/container.developer"],
            ),
            (
                &["container.clusters.create", "container.configMaps.create", "container.clusterRoles.bind"],
                &["roles/container.admin"],
            ),
            (
                &["compute.instanceGroupManagers.get", "iam.serviceAccounts.actAs"],
                &["roles/compute.viewer", "roles/iam.serviceAccountUser"],
            ),
            (&[], &[]),
        ];
        for (permissions, expect) in rows {
            assert_eq!(roles(permissions.iter().copied()), expect, "{permissions:?}");
        }
    }

    #[test]
    fn objects_have_the_names_of_iam_and_of_rbac() {
        let object = |group: &str, kind: &str, plural: &str, verb| Need::Object {
            group: group.to_owned(),
            kind: kind.to_owned(),
            plural: plural.to_owned(),
            verb,
        };
        for (need, expect) in [
            (object("apps", "DaemonSet", "daemonsets", "create"), "container.daemonSets.create"),
            (
                object("rbac.authorization.k8s.io", "ClusterRole", "clusterroles", "bind"),
                "container.clusterRoles.bind",
            ),
            (
                object("kubernetes.dask.org", "DaskCluster", "daskclusters", "get"),
                "container.thirdPartyObjects.get",
            ),
            (object("serving.example.com", "Service", "services", "get"), "container.thirdPartyObjects.get"),
        ] {
            assert_eq!(need.permission(), expect);
            assert!(role(expect).is_some(), "{expect}");
        }
        let needs = BTreeSet::from(["get", "list", "update"].map(|verb| object("", "Pod", "pods", verb)));
        let rule =
            json!({ "apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "patch", "watch"] });
        assert_eq!(rules(&needs), [rule]);
    }
}
