//! The kinds that a cluster serves: the built-in ones and those of its CustomResourceDefinitions.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use serde_json::Value;

use super::kinds::{PLAIN, strategy};
use super::object::{Key, is_true, name, namespace, text};
use super::strategy::Strategy;
use model::schema::{self, Schema};

/// The Kubernetes version whose structure is imitated.
pub const MINOR: &str = "36";

/// An extra column of `kubectl get`, from a CRD.
#[derive(Clone, Debug)]
pub struct PrinterColumn {
    /// Header as declared.
    pub name: String,
    /// `string`, `integer`, `date`, …
    pub ty: String,
    /// JSON path below the object, `.spec.replicas`.
    pub path: String,
    /// 0 is always shown, others with `-o wide`.
    pub priority: i64,
}

/// Paths of the scale subresource.
#[derive(Clone, Debug)]
pub struct Scale {
    /// `.spec.replicas`.
    pub spec: String,
    /// `.status.replicas`.
    pub status: String,
    /// The pods' selector in the status, when declared.
    pub selector: Option<String>,
}

/// Where a kind comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Compiled into the server.
    BuiltIn,
    Custom,
}

/// One served (or soon served) version of a kind.
#[derive(Clone, Debug)]
pub struct Kind {
    /// API group, empty for the core group.
    pub group: String,
    /// `v1`.
    pub version: String,
    /// `Deployment`.
    pub kind: String,
    /// `deployments`.
    pub plural: String,
    /// `deployment`.
    pub singular: String,
    /// `deploy`.
    pub short_names: Vec<String>,
    /// `all`.
    pub categories: Vec<String>,
    /// True if objects live in namespaces.
    pub namespaced: bool,
    /// `create`, `get`, …
    pub verbs: Vec<String>,
    /// `status`, `scale`, `log`, …
    pub subresources: Vec<String>,
    /// Its structure; `None` for kinds without any.
    pub schema: Option<Schema>,
    /// The schema as the definition of a custom kind has it.
    pub document: Option<Arc<Value>>,
    /// Built in or from a CRD.
    pub origin: Origin,
    /// True if requests are answered: always for built-in kinds, once Established for custom ones.
    pub served: bool,
    /// Extra columns of a custom kind.
    pub columns: Vec<PrinterColumn>,
    /// Where its replicas lie.
    pub scale: Option<Scale>,
    /// Its behavior that the schema does not have.
    pub strategy: &'static Strategy,
}

impl Kind {
    /// `apps/v1`, or `v1` in the core group.
    pub fn api_version(&self) -> String {
        api_version(&self.group, &self.version)
    }

    pub fn has(&self, subresource: &str) -> bool {
        self.subresources.iter().any(|name| name == subresource)
    }

    /// `deployments.apps`.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// The key of an object of this kind.
    pub fn key(&self, object: &Value) -> Key {
        let namespace = if self.namespaced { namespace(object) } else { "" };
        Key::new(&self.group, &self.plural, namespace, name(object))
    }

    /// Returns true if objects carry `metadata.generation`.
    pub fn counts_generation(&self) -> bool {
        self.origin == Origin::Custom || self.strategy.generation
    }

    /// Returns true if going from `before` to `after` counts as a new generation. For built-in kinds it does when the
    /// spec moved, for custom ones when anything but metadata (and, behind the status subresource, the
    /// status) moved.
    pub fn generation_moves(&self, before: &Value, after: &Value) -> bool {
        self.counts_generation() && self.counted(before) != self.counted(after)
    }

    /// The part of an object whose changes are counted.
    fn counted(&self, object: &Value) -> Value {
        let moves_status = self.origin == Origin::Custom && !self.has("status");
        let is_counted = |name: &str| match name {
            "metadata" | "apiVersion" | "kind" => false,
            "status" => moves_status,
            _ => true,
        };
        let fields = object.as_object().into_iter().flatten().filter(|(name, _)| is_counted(name));
        let mut object: Value = fields.map(|(name, value)| (name.clone(), value.clone())).collect();
        for pointer in self.strategy.no_generation {
            let place =
                pointer.rsplit_once('/').and_then(|(above, name)| Some((object.pointer_mut(above)?, name)));
            if let Some((Value::Object(fields), name)) = place {
                fields.remove(name);
            }
        }
        object
    }
}

/// `apps/v1`, or `v1` in the core group.
pub fn api_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

/// Group and version of `apps/v1` or `v1`.
pub fn split_api_version(text: &str) -> (&str, &str) {
    text.split_once('/').unwrap_or(("", text))
}

/// The built-in kinds, made once.
static BUILT_IN: LazyLock<Vec<Arc<Kind>>> =
    LazyLock::new(|| schema::apis().iter().map(built_in).map(Arc::new).collect());

fn built_in(api: &schema::Api) -> Kind {
    let schema::Api {
        group,
        version,
        kind,
        plural,
        singular,
        short_names,
        categories,
        namespaced,
        verbs,
        subresources,
        ..
    } = api;
    let scale = subresources.iter().any(|name| name == "scale").then(|| Scale {
        spec: ".spec.replicas".to_owned(),
        status: ".status.replicas".to_owned(),
        selector: None,
    });
    Kind {
        group: group.clone(),
        version: version.clone(),
        kind: kind.clone(),
        plural: plural.clone(),
        singular: singular.clone(),
        short_names: short_names.clone(),
        categories: categories.clone(),
        namespaced: *namespaced,
        verbs: verbs.clone(),
        subresources: subresources.clone(),
        schema: schema::builtin(group, version, kind),
        document: None,
        origin: Origin::BuiltIn,
        served: true,
        columns: Vec::new(),
        scale,
        strategy: strategy(group, kind),
    }
}

/// The kinds of one cluster.
#[derive(Clone, Debug, Default)]
pub struct Kinds {
    /// Versions by the name of their CRD, in the CRD's order.
    custom: BTreeMap<String, Vec<Arc<Kind>>>,
}

impl Kinds {
    /// All kinds, built-in ones first.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Kind>> {
        BUILT_IN.iter().chain(self.custom.values().flatten())
    }

    /// A kind by its `apiVersion` and `kind`.
    pub fn by_kind(&self, version: &str, kind: &str) -> Option<Arc<Kind>> {
        let (group, version) = split_api_version(version);
        self.all()
            .find(|known| known.kind == kind && known.group == group && known.version == version)
            .cloned()
    }

    pub fn by_path(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Kind>> {
        self.all()
            .find(|known| known.plural == plural && known.group == group && known.version == version)
            .cloned()
    }

    /// The first version of a resource.
    pub fn by_resource(&self, group: &str, plural: &str) -> Option<Arc<Kind>> {
        self.all().find(|known| known.plural == plural && known.group == group).cloned()
    }

    /// Keeps up with a CRD that was stored or removed; other objects are none of its business.
    pub fn note(&mut self, key: &Key, object: Option<&Value>) {
        if key.group != "apiextensions.k8s.io" || key.resource != "customresourcedefinitions" {
            return;
        }
        match object {
            Some(crd) => drop(self.custom.insert(key.name.clone(), custom(crd))),
            None => drop(self.custom.remove(&key.name)),
        }
    }
}

/// The versions that a CRD declares as served.
fn custom(crd: &Value) -> Vec<Arc<Kind>> {
    let strings = |pointer: &str| -> Vec<String> {
        let list = crd.pointer(pointer).and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let versions = crd.pointer("/spec/versions").and_then(Value::as_array);
    let established = is_true(crd, "Established");
    versions
        .into_iter()
        .flatten()
        .filter(|version| version["served"] == true)
        .map(|version| {
            let declared = |name: &str| version.pointer(&format!("/subresources/{name}"));
            Arc::new(Kind {
                group: text(crd, "/spec/group").to_owned(),
                version: text(version, "/name").to_owned(),
                kind: text(crd, "/spec/names/kind").to_owned(),
                plural: text(crd, "/spec/names/plural").to_owned(),
                singular: match text(crd, "/spec/names/singular") {
                    "" => text(crd, "/spec/names/kind").to_lowercase(),
                    name => name.to_owned(),
                },
                short_names: strings("/spec/names/shortNames"),
                categories: strings("/spec/names/categories"),
                namespaced: text(crd, "/spec/scope") == "Namespaced",
                verbs: ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"]
                    .map(str::to_owned)
                    .to_vec(),
                subresources: ["scale", "status"]
                    .into_iter()
                    .filter(|name| declared(name).is_some())
                    .map(str::to_owned)
                    .collect(),
                schema: version.pointer("/schema/openAPIV3Schema").map(Schema::from_crd),
                document: version.pointer("/schema/openAPIV3Schema").cloned().map(Arc::new),
                origin: Origin::Custom,
                served: established,
                columns: columns(version),
                scale: declared("scale").map(|scale| Scale {
                    spec: text(scale, "/specReplicasPath").to_owned(),
                    status: text(scale, "/statusReplicasPath").to_owned(),
                    selector: scale.get("labelSelectorPath").and_then(Value::as_str).map(str::to_owned),
                }),
                strategy: PLAIN,
            })
        })
        .collect()
}

fn columns(version: &Value) -> Vec<PrinterColumn> {
    let declared = version.get("additionalPrinterColumns").and_then(Value::as_array);
    declared
        .into_iter()
        .flatten()
        .map(|column| PrinterColumn {
            name: text(column, "/name").to_owned(),
            ty: text(column, "/type").to_owned(),
            path: text(column, "/jsonPath").to_owned(),
            priority: column.get("priority").and_then(Value::as_i64).unwrap_or(0),
        })
        .collect()
}
