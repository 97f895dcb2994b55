//! Objects from YAML, of manifests or charts, and the kinds that they can have.

use serde_json::Value;

use crate::json::text;
use crate::kubernetes::hooks::{self, HookPlacement, Hooks};
use crate::kubernetes::kueue;
use model::address::{Address, FieldPath, Segment};
use model::schema::{self, Api, DASK_GROUP};

/// Objects from YAML: those of a manifest or of a chart.
#[derive(Clone, Copy, Debug)]
pub struct Bundle<'a> {
    /// The section's name.
    pub section: &'static str,
    /// The section's key; `None` for sections without keys.
    pub key: Option<&'a str>,
    /// The namespace of objects without one.
    pub namespace: Option<&'a str>,
    /// The objects of the files, in their order.
    pub objects: &'a [Value],
    /// CRDs that are installed outside the stack, to check objects of their kinds.
    pub known: &'a [Value],
    /// True if deletion and replacement are refused.
    pub protect: bool,
    /// Addresses that all of its objects depend on.
    pub depends_on: &'a [String],
    /// The treatment of hooks, if the objects are a chart's.
    pub hooks: Option<Hooks>,
    /// Namespaces besides the release's own in which a chart may create objects.
    pub other_namespaces: &'a [String],
}

impl<'a> Bundle<'a> {
    /// Returns the path of the section in the stack file.
    pub fn path(&self) -> FieldPath {
        FieldPath::keys(std::iter::once(self.section).chain(self.key))
    }

    /// Returns the section's address.
    pub fn address(&self) -> Address {
        self.key.map_or_else(|| Address::new(self.section), |key| Address::of(self.section, key))
    }

    /// Returns true if the objects are a chart's.
    pub fn is_chart(&self) -> bool {
        self.hooks.is_some()
    }

    /// Returns the objects that are applied, in the order of the files.
    pub fn objects(self) -> impl Iterator<Item = Object<'a>> {
        self.all().filter(|object| {
            !matches!(object.placement(), HookPlacement::LeftOut | HookPlacement::Refused(_))
        })
    }

    /// Returns all objects, including hooks that a stack does not apply.
    pub fn all(self) -> impl Iterator<Item = Object<'a>> {
        self.objects.iter().enumerate().map(move |(index, value)| Object { bundle: self, index, value })
    }
}

/// An object of a manifest or of a chart.
#[derive(Clone, Copy, Debug)]
pub struct Object<'a> {
    /// The bundle that contains it.
    pub bundle: Bundle<'a>,
    /// Its index in the section.
    pub index: usize,
    /// The object as it is in the file.
    pub value: &'a Value,
}

impl<'a> Object<'a> {
    /// Returns its origin: `manifest.NAME.objects[3]`, whose positions are in the files.
    pub fn origin(&self) -> FieldPath {
        let keys = std::iter::once(self.bundle.section).chain(self.bundle.key).chain(["objects"]);
        let keys = keys.map(|key| Segment::Key(key.to_owned()));
        keys.chain([Segment::Index(self.index)]).collect()
    }

    /// Returns its position in the order of an apply. An object of a manifest is never a hook.
    pub fn placement(&self) -> HookPlacement<'a> {
        self.bundle.hooks.map_or(HookPlacement::Plain, |hooks| hooks::placement(self.value, hooks))
    }

    /// Returns the group and version of its kind.
    pub fn group_version(&self) -> (&'a str, &'a str) {
        group_version(text(&self.value["apiVersion"]))
    }

    pub fn kind(&self) -> &'a str {
        text(&self.value["kind"])
    }

    pub fn name(&self) -> &'a str {
        text(&self.value["metadata"]["name"])
    }

    /// Returns the namespace of a namespaced object.
    pub fn namespace(&self) -> &'a str {
        let given = self.value["metadata"]["namespace"].as_str().or(self.bundle.namespace);
        given.unwrap_or("default")
    }
}

/// Returns the group and version of an `apiVersion`.
pub fn group_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// Returns all objects of all sections, in the order of the file.
pub fn objects<'a>(bundles: &[Bundle<'a>]) -> impl Iterator<Item = Object<'a>> {
    bundles.iter().copied().flat_map(Bundle::objects)
}

/// The kinds that a stack's manifests may use: built-in ones, Dask's, and those of CRDs in the files.
pub struct Kinds<'a> {
    custom: Vec<Custom<'a>>,
}

/// A kind of a CRD in the files.
pub(crate) struct Custom<'a> {
    api: Api,
    crd: &'a Value,
    /// The CRD's own address if the stack applies it.
    pub(crate) address: Option<Address>,
}

impl<'a> Kinds<'a> {
    /// Creates the kinds of these sections.
    pub fn of(bundles: &[Bundle<'a>]) -> Self {
        let is_definition = |value: &Value| value["kind"] == "CustomResourceDefinition";
        let applied = objects(bundles).filter(|object| is_definition(object.value)).map(|object| {
            let section = object.bundle.address();
            let address = Address::object(section.as_str(), object.kind(), None, object.name());
            (object.value, Some(address))
        });
        let known = bundles.iter().flat_map(|bundle| bundle.known);
        let known = known.filter(|value| is_definition(value)).map(|value| (value, None));
        let custom = applied.chain(known).flat_map(|(crd, address)| {
            let one = move |api| Custom { api, crd, address: address.clone() };
            Api::from_crd(crd).into_iter().map(one)
        });
        Self { custom: custom.collect() }
    }

    /// Returns a kind that a CRD in the files defines.
    pub(crate) fn custom(&self, group: &str, version: &str, kind: &str) -> Option<&Custom<'a>> {
        let same = |custom: &&Custom<'_>| {
            let Api { group: of, version: at, kind: name, .. } = &custom.api;
            (of.as_str(), at.as_str(), name.as_str()) == (group, version, kind)
        };
        self.custom.iter().find(same)
    }

    /// Returns the API of a kind; `None` if no CRD or schema has it.
    pub fn api(&self, group: &str, version: &str, kind: &str) -> Option<&Api> {
        let dask = || {
            schema::dask_apis()
                .iter()
                .find(|api| (&*api.group, &*api.version, &*api.kind) == (group, version, kind))
        };
        let custom = || self.custom(group, version, kind).map(|custom| &custom.api);
        let kueue = || {
            let same = |api: &&Api| (&*api.group, &*api.version, &*api.kind) == (group, version, kind);
            kueue::apis().iter().find(same)
        };
        // Definitions in the files come first: they may be newer than those of the cluster.
        let served = || {
            let same = |api: &&Api| (&*api.group, &*api.version, &*api.kind) == (group, version, kind);
            schema::served_apis().iter().find(same)
        };
        let gke = || self.installed(group, version, kind).map(|installed| &installed.api);
        schema::api(group, version, kind)
            .or_else(dask)
            .or_else(custom)
            .or_else(served)
            .or_else(kueue)
            .or_else(gke)
    }

    /// Returns a kind that GKE installs in its clusters, if no CRD of the stack has it.
    pub fn installed(&self, group: &str, version: &str, kind: &str) -> Option<&'static schema::Installed> {
        let same = |known: &&schema::Installed| {
            (&*known.api.group, &*known.api.version, &*known.api.kind) == (group, version, kind)
        };
        schema::installed().iter().find(same).filter(|_| self.custom(group, version, kind).is_none())
    }

    /// Returns the schema of a kind.
    pub fn schema(&self, group: &str, version: &str, kind: &str) -> Option<schema::Schema> {
        if group == DASK_GROUP {
            return schema::dask(kind);
        }
        let custom = || {
            let Custom { crd, .. } = self.custom(group, version, kind)?;
            let versions = crd["spec"]["versions"].as_array()?;
            let found = versions.iter().find(|found| found["name"] == version)?;
            Some(schema::Schema::from_crd(&found["schema"]["openAPIV3Schema"]))
        };
        schema::builtin(group, version, kind).or_else(custom).or_else(|| schema::served(group, version, kind))
    }

    /// Returns all kinds by name, with their `apiVersion`.
    pub fn all(&self) -> impl Iterator<Item = &Api> {
        let known = schema::apis().iter().chain(schema::dask_apis()).chain(schema::served_apis());
        let gke = schema::installed().iter().map(|installed| &installed.api);
        known.chain(self.custom.iter().map(|custom| &custom.api)).chain(gke)
    }
}
