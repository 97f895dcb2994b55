//! The Dask operator: its custom resource definitions, its rights, its Deployment.
//!
//! The objects are those that the operator's own chart renders for release `dask-kubernetes-operator` with
//! default values: same names, rules and arguments. Source: dask-kubernetes 2026.3.0,
//! `operator/deployment/helm/dask-kubernetes-operator`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Scope, gvk, is_false, namespace, object, workload};
use crate::address::{Address, FieldPath};
use crate::resource::{Gvk, Identity, Life, ObjectId, Resource, Role, Theirs};
use crate::schema;

/// The Dask operator.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DaskOperator {
    /// The operator's release: `2026.3.0`.
    pub version: String,
    /// Where it runs. Default `dask-operator`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The controller's image; the release's own when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// `false`: it exists and others own it. It is read and relied on, never written or deleted; then `version` is
    /// not needed, and compared when it is given. Default `true`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manage: Option<bool>,
    /// Refuses to delete it, also in `destroy`.
    #[serde(default, skip_serializing_if = "is_false")]
    pub protect: bool,
    /// Addresses that must be done before this one, beyond what is inferred.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
}

/// The name of everything that the operator needs.
pub const NAME: &str = "dask-kubernetes-operator";

/// The address of the section.
pub const SECTION: &str = "dask_operator";

impl DaskOperator {
    /// Whether the stack makes and changes it.
    pub fn is_managed(&self) -> bool {
        self.manage != Some(false)
    }

    /// The namespace it runs in.
    pub fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or("dask-operator")
    }
}

/// What `[dask_operator]` becomes: definitions first and established, rights, then the Deployment.
pub fn lower(section: &DaskOperator, scope: &Scope) -> Vec<Resource> {
    let maker = Maker { section, scope };
    let mut resources = Vec::new();
    let namespace = section.namespace();
    let declared = scope.namespace(namespace).is_some();
    if !declared && namespace != "default" {
        let address = Address::object(SECTION, "Namespace", None, namespace);
        let origin = FieldPath::keys([SECTION]);
        resources.push(namespace::resource(address, origin, namespace, &Value::Null, scope));
    }
    resources.extend(schema::dask_crds().iter().map(|definition| maker.definition(definition)));
    resources.push(maker.account());
    resources.push(maker.role());
    resources.push(maker.binding());
    let mut deployment = maker.deployment();
    deployment.follows.extend(resources.iter().map(|resource| resource.address.clone()));
    resources.push(deployment);
    for resource in &mut resources {
        resource.follows.extend(section.depends_on.iter().map(Address::new));
        resource.protect = section.protect;
    }
    resources
}

/// What `[dask_operator]` with `manage = false` relies on, its Deployment and definitions, and what belongs to it
/// and is left alone.
pub fn read(section: &DaskOperator, scope: &Scope) -> Vec<Theirs> {
    let of_others = |mut resource: Resource| {
        let image = resource.body.pointer("/spec/template/spec/containers/0/image").cloned();
        resource.body = super::bare(&resource.body);
        if let Some(image) = image.filter(|_| section.image.is_some() || !section.version.is_empty()) {
            let container = json!({ "name": NAME, "image": image });
            resource.body["spec"]["template"]["spec"]["containers"] = json!([container]);
        }
        let needed = [workload::DEPLOYMENT.name, object::DEFINITION.name].contains(&resource.kind.as_str());
        Theirs { resource, role: if needed { Role::Needed } else { Role::Spared } }
    };
    lower(section, scope).into_iter().map(of_others).collect()
}

/// Whether a Deployment is the operator's, whatever the Helm release is called.
pub fn is_operator(live: &Value) -> bool {
    live["metadata"]["labels"]["app.kubernetes.io/name"] == NAME
}

struct Maker<'a> {
    section: &'a DaskOperator,
    scope: &'a Scope,
}

impl Maker<'_> {
    fn labels(&self) -> Value {
        let mut labels = self.scope.shared_labels();
        labels["app.kubernetes.io/name"] = json!(NAME);
        labels["app.kubernetes.io/instance"] = json!(NAME);
        labels
    }

    fn resource(&self, kind: &str, gvk: Gvk, name: &str, namespaced: bool, body: Value) -> Resource {
        let namespace = namespaced.then(|| self.section.namespace().to_owned());
        let address = Address::object(SECTION, &gvk.kind, namespace.as_deref(), name);
        let mut follows = self.scope.inside();
        if let Some(namespace) = &namespace {
            follows.push(Address::object(SECTION, "Namespace", None, namespace));
            follows.extend(self.scope.namespace(namespace));
        }
        let mut body = body;
        body["apiVersion"] = json!(gvk.api_version());
        body["kind"] = json!(gvk.kind);
        body["metadata"]["name"] = json!(name);
        if let Some(namespace) = &namespace {
            body["metadata"]["namespace"] = json!(namespace);
        }
        let origin = FieldPath::keys([SECTION]);
        Resource {
            address,
            identity: Identity::Object(ObjectId { gvk, namespace, name: name.into() }),
            kind: kind.into(),
            body,
            origins: vec![(FieldPath::keys(["spec", "template"]), origin.key("version"))],
            origin,
            follows,
            protect: false,
            life: Life::Kept,
            initial: Value::Null,
        }
    }

    fn definition(&self, definition: &Value) -> Resource {
        let name = super::text(&definition["metadata"]["name"]).to_owned();
        let mut body = json!({ "metadata": { "labels": self.scope.shared_labels() } });
        body["spec"] = definition["spec"].clone();
        let gvk = gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions");
        self.resource(object::DEFINITION.name, gvk, &name, false, body)
    }

    fn account(&self) -> Resource {
        let gvk = gvk("", "v1", "ServiceAccount", "serviceaccounts");
        self.resource(object::PLAIN.name, gvk, NAME, true, json!({ "metadata": { "labels": self.labels() } }))
    }

    fn role(&self) -> Resource {
        let gvk = gvk("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles");
        let body = json!({ "metadata": { "labels": self.labels() }, "rules": rules() });
        self.resource(object::PLAIN.name, gvk, &format!("{NAME}-role-cluster"), false, body)
    }

    fn binding(&self) -> Resource {
        let gvk = gvk("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings");
        let body = json!({
            "metadata": { "labels": self.labels() },
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": format!("{NAME}-role-cluster"),
            },
            "subjects": [{ "kind": "ServiceAccount", "name": NAME, "namespace": self.section.namespace() }],
        });
        let name = format!("{NAME}-rolebinding-cluster");
        self.resource(object::BINDING.name, gvk, &name, false, body)
    }

    fn deployment(&self) -> Resource {
        let selector = json!({ "app.kubernetes.io/name": NAME, "app.kubernetes.io/instance": NAME });
        let version = &self.section.version;
        let image = self.section.image.clone();
        let image = image.unwrap_or_else(|| format!("ghcr.io/dask/dask-kubernetes-operator:{version}"));
        let body = json!({
            "metadata": { "labels": self.labels() },
            "spec": {
                "replicas": 1,
                "strategy": { "type": "Recreate" },
                "selector": { "matchLabels": selector },
                "template": {
                    "metadata": { "labels": selector },
                    "spec": {
                        "serviceAccountName": NAME,
                        "containers": [{
                            "name": NAME,
                            "image": image,
                            "imagePullPolicy": "IfNotPresent",
                            "args": ["--liveness=http://0.0.0.0:8080/healthz", "--all-namespaces"],
                            "livenessProbe": {
                                "httpGet": { "path": "/healthz", "port": 8080 },
                                "timeoutSeconds": 5,
                            },
                            "securityContext": {
                                "allowPrivilegeEscalation": false,
                                "capabilities": { "drop": ["ALL"] },
                                "readOnlyRootFilesystem": true,
                                "runAsNonRoot": true,
                                "runAsUser": 1000,
                            },
                        }],
                    },
                },
            },
        });
        let gvk = gvk("apps", "v1", "Deployment", "deployments");
        let mut resource = self.resource(workload::DEPLOYMENT.name, gvk, NAME, true, body);
        let image: FieldPath = "spec.template.spec.containers[0].image".parse().unwrap_or_default();
        let key = if self.section.image.is_some() { "image" } else { "version" };
        resource.origins.push((image, resource.origin.key(key)));
        resource
    }
}

/// The chart's rules, those that match nothing included: the plan between chart and section stays empty.
fn rules() -> Value {
    let rule = |groups: &[&str], resources: &[&str], verbs: &[&str]| json!({ "apiGroups": groups, "resources": resources, "verbs": verbs });
    json!([
        rule(&["kopf.dev"], &["clusterkopfpeerings"], &["list", "watch", "patch", "get"]),
        rule(&["apiextensions.k8s.io"], &["customresourcedefinitions"], &["list", "watch"]),
        rule(&[""], &["namespaces"], &["list", "watch"]),
        rule(
            &["admissionregistration.k8s.io/v1", "admissionregistration.k8s.io/v1beta1"],
            &["validatingwebhookconfigurations", "mutatingwebhookconfigurations"],
            &["create", "patch"],
        ),
        rule(
            &["kubernetes.dask.org"],
            &[
                "daskclusters",
                "daskworkergroups",
                "daskworkergroups/scale",
                "daskjobs",
                "daskjobs/status",
                "daskautoscalers",
            ],
            &["get", "list", "watch", "patch", "create", "delete"],
        ),
        rule(&[""], &["pods", "pods/status"], &["*"]),
        rule(&[""], &["services", "services/status"], &["*"]),
        rule(&["apps"], &["deployments", "deployments/status"], &["*"]),
        rule(&["", "events.k8s.io"], &["events"], &["*"]),
    ])
}
