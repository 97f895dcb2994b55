//! Stands in for `crate::schema` until that module lands; goes away with the merge.

use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};

#[derive(Clone, Debug)]
pub struct Schema(Arc<Value>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    Object,
    Map,
    List,
    String,
    Integer,
    Number,
    Boolean,
    Quantity,
    IntOrString,
    Any,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum List {
    Atomic,
    Set,
    Map(Vec<String>),
}

#[derive(Clone, Debug)]
pub struct Api {
    pub group: String,
    pub version: String,
    pub kind: String,
    pub plural: String,
    pub singular: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub namespaced: bool,
    pub verbs: Vec<String>,
    pub subresources: Vec<String>,
}

static APIS: LazyLock<Vec<Api>> = LazyLock::new(|| {
    let api = |group: &str, kind: &str, plural: &str, namespaced: bool, subresources: &[&str]| Api {
        group: group.to_owned(),
        version: "v1".to_owned(),
        kind: kind.to_owned(),
        plural: plural.to_owned(),
        singular: kind.to_lowercase(),
        short_names: Vec::new(),
        categories: Vec::new(),
        namespaced,
        verbs: ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
            .map(str::to_owned)
            .to_vec(),
        subresources: subresources.iter().map(|name| (*name).to_owned()).collect(),
    };
    vec![
        api("", "ConfigMap", "configmaps", true, &[]),
        api("", "Event", "events", true, &[]),
        api("", "Namespace", "namespaces", false, &["status", "finalize"]),
        api("", "Node", "nodes", false, &["status"]),
        api("", "Pod", "pods", true, &["status", "log", "binding"]),
        api("", "Secret", "secrets", true, &[]),
        api("", "Service", "services", true, &["status"]),
        api("", "ServiceAccount", "serviceaccounts", true, &[]),
        api(
            "apiextensions.k8s.io",
            "CustomResourceDefinition",
            "customresourcedefinitions",
            false,
            &["status"],
        ),
        api("apps", "DaemonSet", "daemonsets", true, &["status"]),
        api("apps", "Deployment", "deployments", true, &["status", "scale"]),
        api("apps", "ReplicaSet", "replicasets", true, &["status", "scale"]),
        api("batch", "Job", "jobs", true, &["status"]),
        api("coordination.k8s.io", "Lease", "leases", true, &[]),
        api("rbac.authorization.k8s.io", "ClusterRole", "clusterroles", false, &[]),
        api("rbac.authorization.k8s.io", "ClusterRoleBinding", "clusterrolebindings", false, &[]),
    ]
});

pub fn apis() -> &'static [Api] {
    &APIS
}

pub fn builtin(_group: &str, _version: &str, _kind: &str) -> Option<Schema> {
    None
}

impl Schema {
    pub fn from_crd(schema: &Value) -> Self {
        Self(Arc::new(schema.clone()))
    }
    fn sub(value: &Value) -> Self {
        Self(Arc::new(value.clone()))
    }
    pub fn ty(&self) -> Type {
        if self.0["x-kubernetes-int-or-string"] == true {
            return Type::IntOrString;
        }
        match self.0["type"].as_str().unwrap_or_default() {
            "object" if self.0.get("properties").is_some() => Type::Object,
            "object" => Type::Map,
            "array" => Type::List,
            "string" => Type::String,
            "integer" => Type::Integer,
            "number" => Type::Number,
            "boolean" => Type::Boolean,
            _ => Type::Any,
        }
    }
    pub fn property(&self, name: &str) -> Option<Self> {
        self.0.get("properties")?.get(name).map(Self::sub)
    }
    pub fn property_names(&self) -> Vec<String> {
        self.0["properties"].as_object().into_iter().flat_map(|map| map.keys().cloned()).collect()
    }
    pub fn values(&self) -> Option<Self> {
        self.0.get("additionalProperties").filter(|value| value.is_object()).map(Self::sub)
    }
    pub fn items(&self) -> Option<Self> {
        self.0.get("items").map(Self::sub)
    }
    pub fn list(&self) -> List {
        match self.0["x-kubernetes-list-type"].as_str() {
            Some("set") => List::Set,
            Some("map") => List::Map(
                self.0["x-kubernetes-list-map-keys"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_str)
                    .map(str::to_owned)
                    .collect(),
            ),
            _ => List::Atomic,
        }
    }
    pub fn atomic_map(&self) -> bool {
        self.0["x-kubernetes-map-type"] == "atomic"
    }
    pub fn required(&self) -> Vec<String> {
        let list = self.0["required"].as_array();
        list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    }
    pub fn default(&self) -> Option<Value> {
        self.0.get("default").cloned()
    }
    pub fn nullable(&self) -> bool {
        self.0["nullable"] == json!(true)
    }
    pub fn preserves_unknown(&self) -> bool {
        self.0["x-kubernetes-preserve-unknown-fields"] == json!(true)
    }
    pub fn enum_values(&self) -> Vec<String> {
        let list = self.0["enum"].as_array();
        list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    }
}
