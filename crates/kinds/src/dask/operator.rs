//! The Dask operator: its custom resource definitions, its rights, its Deployment.
//!
//! The objects are those that the operator's own chart renders for release `dask-kubernetes-operator` with
//! default values: same names, rules and arguments. Source: dask-kubernetes 2026.3.0,
//! `operator/deployment/helm/dask-kubernetes-operator`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::json::text;
use crate::kubernetes::bundle::Bundle;
use crate::kubernetes::controller;
use crate::kubernetes::hooks::Hooks;
use crate::kubernetes::object::{bare, gvk};
use crate::scope::{DASK_OPERATOR, OPERATOR_NAME, Scope};
use crate::section::{Lifecycle, Manage, Section, SectionHead};
use model::address::{Address, FieldPath};
use model::resource::{External, Gvk, Identity, KindId, ObjectId, Recreation, Resource, Role};
use model::schema;

/// The release of the Dask operator whose RBAC and CRDs are built into this program.
pub const BUILT_IN_VERSION: &str = "2026.3.0";

/// The Dask operator.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct DaskOperator {
    /// The operator's release: `2026.3.0`.
    pub version: String,
    /// Where it runs. Default `dask-operator`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The controller's image; defaults to the release's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Where its objects come from.
    #[serde(default, skip_serializing_if = "OperatorSource::is_built_in")]
    pub source: OperatorSource,
    /// With `source = "chart"`: the chart, a folder or a `.tgz` relative to the stack file's folder, `"oci://…"`, or
    /// `"dask-kubernetes-operator"` with `repo`. `version` is its version then, and of a folder the image's tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chart: Option<String>,
    /// The address of the chart's repository: `"https://helm.dask.org"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repo: Option<String>,
    /// The chart's values. They override `values_files`.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub values: Map<String, Value>,
    /// YAML files with values, relative to the stack file's folder; later files override earlier ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub values_files: Vec<String>,
    /// `false`: it exists and is managed elsewhere. It is read and relied on, never written or deleted; `version` is
    /// then optional, and compared if given. Default `true`.
    #[serde(default, skip_serializing_if = "Manage::is_managed")]
    pub manage: Manage,
    /// `protect` and `depends_on`.
    #[serde(flatten)]
    pub lifecycle: Lifecycle,
    /// The objects that the chart makes; rendered when the stack is loaded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(skip)]
    pub objects: Vec<Value>,
}

/// Where the operator's objects come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OperatorSource {
    /// dask-infra brings them; nothing is fetched.
    #[default]
    BuiltIn,
    /// The operator's own Helm chart makes them.
    Chart,
}

impl OperatorSource {
    /// Returns true for the default, which `skip_serializing_if` leaves out.
    pub(crate) fn is_built_in(&self) -> bool {
        *self == Self::BuiltIn
    }
}

impl Section for DaskOperator {
    fn head(&self) -> SectionHead<'_> {
        SectionHead {
            manage: self.manage,
            depends_on: &self.lifecycle.depends_on,
            namespace: self.namespace.as_deref(),
        }
    }
}

impl DaskOperator {
    /// Returns true if its chart makes the objects.
    pub fn is_chart(&self) -> bool {
        self.source == OperatorSource::Chart && self.manage.is_managed()
    }

    /// Returns the objects that the chart rendered, with the settings that apply to all of them.
    pub fn bundle(&self) -> Option<Bundle<'_>> {
        self.is_chart().then(|| Bundle {
            section: DASK_OPERATOR,
            key: None,
            namespace: Some(self.namespace()),
            objects: &self.objects,
            known: &[],
            protect: self.lifecycle.protect,
            depends_on: &self.lifecycle.depends_on,
            hooks: Some(Hooks::Ordered),
            other_namespaces: &[],
        })
    }

    pub fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or("dask-operator")
    }
}

/// Sets the chart values for keys of the section, such as the controller's image, unless `values` sets them.
pub fn own_values(section: &Value, values: &mut Map<String, Value>) {
    let image = section["image"].as_str().map(|image| image.rsplit_once(':').unwrap_or((image, "latest")));
    let version = section["version"].as_str().filter(|version| !version.is_empty());
    let own = [("name", image.map(|(name, _)| name)), ("tag", image.map(|(_, tag)| tag).or(version))];
    let Some(said) = values.entry("image").or_insert_with(|| json!({})).as_object_mut() else { return };
    for (key, value) in own {
        if let Some(value) = value.filter(|_| !said.contains_key(key)) {
            said.insert(key.to_owned(), value.into());
        }
    }
}

/// Lowers `[dask_operator]` with a chart, from the resources that the chart rendered.
pub fn lower_chart(section: &DaskOperator, made: Vec<Resource>, scope: &Scope) -> Vec<Resource> {
    controller::in_order(DASK_OPERATOR, section.namespace(), &section.lifecycle, made, scope)
}

/// Lowers `[dask_operator]` without a chart: CRDs first, until they are established, then RBAC, then the Deployment.
pub fn lower(section: &DaskOperator, scope: &Scope) -> Vec<Resource> {
    let maker = OperatorBuilder { section, scope };
    let own = controller::own_namespace(DASK_OPERATOR, section.namespace(), scope);
    let mut resources: Vec<Resource> = own.into_iter().collect();
    resources.extend(schema::dask_crds().iter().map(|crd| maker.crd(crd)));
    resources.push(maker.account());
    resources.push(maker.role());
    resources.push(maker.binding());
    let mut deployment = maker.deployment();
    deployment.depends_on.extend(resources.iter().map(|resource| resource.address.clone()));
    resources.push(deployment);
    for resource in &mut resources {
        resource.depends_on.extend(section.lifecycle.depends_on.iter().map(Address::new));
        resource.protect = section.lifecycle.protect;
    }
    resources
}

/// Returns the external resources of `[dask_operator]` with `manage = false`. The stack needs its Deployment and CRDs; all other
/// objects are spared.
pub fn lower_external(section: &DaskOperator, scope: &Scope) -> Vec<External> {
    let external = |mut resource: Resource| {
        let image = resource.body.pointer("/spec/template/spec/containers/0/image").cloned();
        resource.body = bare(&resource.body);
        if let Some(image) = image.filter(|_| section.image.is_some() || !section.version.is_empty()) {
            let container = json!({ "name": OPERATOR_NAME, "image": image });
            resource.body["spec"]["template"]["spec"]["containers"] = json!([container]);
        }
        let needed = [KindId::Deployment, KindId::Crd].contains(&resource.kind);
        External { resource, role: if needed { Role::Needed } else { Role::Spared } }
    };
    lower(section, scope).into_iter().map(external).collect()
}

/// Returns true if a Deployment is that of a Dask operator, under any name.
pub fn is_operator(live: &Value) -> bool {
    live["metadata"]["labels"]["app.kubernetes.io/name"] == OPERATOR_NAME
}

struct OperatorBuilder<'a> {
    section: &'a DaskOperator,
    scope: &'a Scope,
}

impl OperatorBuilder<'_> {
    fn labels(&self) -> Value {
        let mut labels = self.scope.shared_labels();
        labels["app.kubernetes.io/name"] = json!(OPERATOR_NAME);
        labels["app.kubernetes.io/instance"] = json!(OPERATOR_NAME);
        labels
    }

    fn resource(&self, kind: KindId, gvk: Gvk, name: &str, namespaced: bool, body: Value) -> Resource {
        let namespace = namespaced.then(|| self.section.namespace().to_owned());
        let address = Address::object(DASK_OPERATOR, &gvk.kind, namespace.as_deref(), name);
        let mut depends_on = self.scope.cluster_dependency();
        if let Some(namespace) = &namespace {
            depends_on.push(Address::object(DASK_OPERATOR, "Namespace", None, namespace));
            depends_on.extend(self.scope.namespace(namespace));
        }
        let mut body = body;
        body["apiVersion"] = json!(gvk.api_version());
        body["kind"] = json!(gvk.kind);
        body["metadata"]["name"] = json!(name);
        if let Some(namespace) = &namespace {
            body["metadata"]["namespace"] = json!(namespace);
        }
        let origin = FieldPath::keys([DASK_OPERATOR]);
        Resource {
            address,
            identity: Identity::Object(ObjectId { gvk, namespace, name: name.into() }),
            kind,
            body,
            provenance: vec![(FieldPath::keys(["spec", "template"]), origin.key("version"))],
            origin,
            depends_on,
            protect: false,
            recreation: Recreation::Always,
            create_only: Value::Null,
        }
    }

    fn crd(&self, crd: &Value) -> Resource {
        let name = text(&crd["metadata"]["name"]).to_owned();
        let mut body = json!({ "metadata": { "labels": self.scope.shared_labels() } });
        body["spec"] = crd["spec"].clone();
        let gvk = gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions");
        self.resource(KindId::Crd, gvk, &name, false, body)
    }

    fn account(&self) -> Resource {
        let gvk = gvk("", "v1", "ServiceAccount", "serviceaccounts");
        self.resource(
            KindId::Object,
            gvk,
            OPERATOR_NAME,
            true,
            json!({ "metadata": { "labels": self.labels() } }),
        )
    }

    fn role(&self) -> Resource {
        let gvk = gvk("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles");
        let body = json!({ "metadata": { "labels": self.labels() }, "rules": rules() });
        self.resource(KindId::Object, gvk, &format!("{OPERATOR_NAME}-role-cluster"), false, body)
    }

    fn binding(&self) -> Resource {
        let gvk = gvk("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings");
        let body = json!({
            "metadata": { "labels": self.labels() },
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io",
                "kind": "ClusterRole",
                "name": format!("{OPERATOR_NAME}-role-cluster"),
            },
            "subjects": [{ "kind": "ServiceAccount", "name": OPERATOR_NAME, "namespace": self.section.namespace() }],
        });
        let name = format!("{OPERATOR_NAME}-rolebinding-cluster");
        self.resource(KindId::Binding, gvk, &name, false, body)
    }

    fn deployment(&self) -> Resource {
        let selector =
            json!({ "app.kubernetes.io/name": OPERATOR_NAME, "app.kubernetes.io/instance": OPERATOR_NAME });
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
                        "serviceAccountName": OPERATOR_NAME,
                        // Said as the chart says them, so that going back and forth gives up nothing.
                        "securityContext": {},
                        "containers": [{
                            "name": OPERATOR_NAME,
                            "image": image,
                            "imagePullPolicy": "IfNotPresent",
                            "resources": {},
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
        let mut resource = self.resource(KindId::Deployment, gvk, OPERATOR_NAME, true, body);
        let image: FieldPath = "spec.template.spec.containers[0].image".parse().unwrap_or_default();
        let key = if self.section.image.is_some() { "image" } else { "version" };
        resource.provenance.push((image, resource.origin.key(key)));
        resource
    }
}

/// Returns the chart's RBAC rules, including those that match nothing, so that a plan from chart to section stays empty.
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
                "daskjobs",
                "daskjobs/status",
                "daskautoscalers",
                "daskworkergroups/scale",
            ],
            &["get", "list", "watch", "patch", "create", "delete"],
        ),
        rule(&[""], &["pods", "pods/status"], &["*"]),
        rule(&[""], &["services", "services/status"], &["*"]),
        rule(&["apps"], &["deployments", "deployments/status"], &["*"]),
        rule(&["", "events.k8s.io"], &["events"], &["*"]),
    ])
}
