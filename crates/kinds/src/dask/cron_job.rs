//! A CronJob that runs a script, with the ServiceAccount and the RBAC of the script.

use serde_json::{Value, json};

use crate::kubernetes::object::gvk;
use crate::scope::Scope;
use model::address::{Address, FieldPath};
use model::resource::{Gvk, Identity, KindId, ObjectId, Recreation, Resource};

/// The schedule of the checks.
const SCHEDULE: &str = "*/5 * * * *";
/// The timeout of a check in seconds: it ends before the next one begins.
const CHECK_TIMEOUT: u32 = 240;

/// Returns the kind CronJob.
pub(super) fn api() -> Gvk {
    gvk("batch", "v1", "CronJob", "cronjobs")
}

/// Returns a rule of a Role for objects of one kind.
pub(super) fn rule<'n>(of: &Gvk, names: impl IntoIterator<Item = &'n str>, verbs: &[&str]) -> Value {
    let names: Vec<&str> = names.into_iter().collect();
    json!({ "apiGroups": [of.group], "resources": [of.plural], "resourceNames": names, "verbs": verbs })
}

/// A CronJob and its account, which have the same name and namespace.
pub(super) struct CronJob<'a> {
    /// The section.
    pub address: Address,
    /// The path of the key that asks for it.
    pub origin: FieldPath,
    pub name: String,
    pub namespace: &'a str,
    pub scope: &'a Scope,
}

impl CronJob<'_> {
    fn object(
        &self,
        gvk: Gvk,
        kind: KindId,
        namespace: &str,
        rest: Value,
        depends_on: Vec<Address>,
    ) -> Resource {
        let Self { address, origin, name, namespace: _, scope } = self;
        let mut body = json!({
            "apiVersion": gvk.api_version(),
            "kind": gvk.kind,
            "metadata": { "name": name, "namespace": namespace, "labels": scope.labels() },
        });
        for (field, value) in rest.as_object().into_iter().flatten() {
            body[field] = value.clone();
        }
        Resource {
            address: Address::object(address.as_str(), &gvk.kind, Some(namespace), name),
            identity: Identity::Object(ObjectId {
                gvk,
                namespace: Some(namespace.to_owned()),
                name: name.clone(),
            }),
            kind,
            body,
            create_only: Value::Null,
            origin: origin.clone(),
            provenance: Vec::new(),
            depends_on,
            protect: false,
            recreation: Recreation::Always,
        }
    }

    /// Returns the ServiceAccount.
    pub fn account(&self) -> Resource {
        self.object(
            gvk("", "v1", "ServiceAccount", "serviceaccounts"),
            KindId::Object,
            self.namespace,
            // The token is mounted where it is used.
            json!({ "automountServiceAccountToken": false }),
            self.scope.namespace_dependencies(self.namespace),
        )
    }

    /// Returns a Role with rules in a namespace, and its RoleBinding to the account.
    pub fn rights(&self, namespace: &str, rules: &[Value], account: &Resource) -> [Resource; 2] {
        let rbac = |kind: &str, plural: &str| gvk("rbac.authorization.k8s.io", "v1", kind, plural);
        let before = self.scope.namespace_dependencies(namespace);
        let role = self.object(
            rbac("Role", "roles"),
            KindId::Object,
            namespace,
            json!({ "rules": rules }),
            before.clone(),
        );
        let binding = self.object(
            rbac("RoleBinding", "rolebindings"),
            KindId::Binding,
            namespace,
            json!({
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": self.name },
                "subjects": [{ "kind": "ServiceAccount", "name": self.name, "namespace": self.namespace }],
            }),
            before.iter().chain([&account.address, &role.address]).cloned().collect(),
        );
        [role, binding]
    }

    /// Returns the CronJob for a template of its Pods. It comes after `rights`.
    pub fn job<'r>(&self, template: &Value, rights: impl IntoIterator<Item = &'r Resource>) -> Resource {
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
        let mut depends_on = self.scope.namespace_dependencies(self.namespace);
        depends_on.extend(rights.into_iter().map(|right| right.address.clone()));
        self.object(api(), KindId::Expiry, self.namespace, json!({ "spec": spec }), depends_on)
    }
}
