//! Resources of a section that installs a controller from a chart or manifests: the Dask operator, Kueue.

use serde_json::{Value, json};

use crate::kubernetes::namespace;
use crate::scope::Scope;
use crate::section::Lifecycle;
use model::address::{Address, FieldPath};
use model::resource::{KindId, Resource};

/// Returns the Namespace to create for a controller, as Helm charts do not create theirs. `None` if another section declares it, or
/// for `default`.
pub fn own_namespace(section: &str, namespace: &str, scope: &Scope) -> Option<Resource> {
    let declared = scope.namespace(namespace).is_some();
    (!declared && namespace != "default").then(|| {
        let address = Address::object(section, "Namespace", None, namespace);
        namespace::resource(address, FieldPath::keys([section]), namespace, &Value::Null, scope)
    })
}

/// Returns the namespace and the rendered objects, in order: CRDs first, until they are established, RBAC and Services, the
/// Deployments, then the webhooks.
pub fn in_order(
    section: &str,
    namespace: &str,
    lifecycle: &Lifecycle,
    mut made: Vec<Resource>,
    scope: &Scope,
) -> Vec<Resource> {
    let is_own_namespace = |resource: &Resource| {
        resource.kind == KindId::Namespace
            && resource.identity.object().is_some_and(|object| object.name == namespace)
    };
    let mut own = own_namespace(section, namespace, scope).filter(|_| !made.iter().any(is_own_namespace));
    if let Some(resource) = &mut own {
        resource.depends_on.extend(lifecycle.depends_on.iter().map(Address::new));
        resource.protect = lifecycle.protect;
    }
    let own_namespace_address = own.iter().chain(made.iter().filter(|resource| is_own_namespace(resource)));
    let own_namespace_address: Option<Address> =
        own_namespace_address.map(|resource| resource.address.clone()).next();
    let of = |which: &dyn Fn(&Resource) -> bool| -> Vec<Address> {
        made.iter().filter(|resource| which(resource)).map(|resource| resource.address.clone()).collect()
    };
    let deployments = of(&|resource| resource.kind == KindId::Deployment);
    let before = of(&|resource| resource.kind != KindId::Deployment && !is_webhook(resource));
    for resource in &mut made {
        if resource.identity.object().is_some_and(|object| object.namespace.is_some()) {
            resource.depends_on.extend(own_namespace_address.clone());
        }
        if resource.kind == KindId::Deployment {
            resource.depends_on.extend(before.iter().cloned());
            // Charts leave it to the server; ours, so that a controller without a pod is seen.
            if resource.body["spec"]["replicas"].is_null() {
                resource.body["spec"]["replicas"] = json!(1);
            }
        } else if is_webhook(resource) {
            resource.depends_on.extend(deployments.iter().cloned());
        }
        if resource.kind == KindId::Crd {
            without_descriptions(&mut resource.body);
        }
    }
    own.into_iter().chain(made).collect()
}

/// Returns true for webhooks. They are created last, once the controller answers, and deleted first: an API server refuses writes
/// whose webhook does not answer.
fn is_webhook(resource: &Resource) -> bool {
    let object = resource.identity.object();
    object.is_some_and(|object| object.gvk.group == "admissionregistration.k8s.io")
}

/// Removes the descriptions in a CRD. With them, the CRD of Kueue's Workloads exceeds etcd's limit for an object. The built-in
/// CRDs have no descriptions either.
fn without_descriptions(value: &mut Value) {
    match value {
        Value::Object(table) => {
            table.retain(|key, value| key != "description" || !value.is_string());
            table.values_mut().for_each(without_descriptions);
        }
        Value::Array(items) => items.iter_mut().for_each(without_descriptions),
        _ => {}
    }
}
