//! The Service in front of a scheduler. The operator creates it with `spec` unchanged. It gets the annotations of the scheduler,
//! which the operator also copies to the scheduler's Deployment and Pod. Source: `daskcluster_create_components` in
//! `operator/controller/controller.py` of dask-kubernetes 2026.3.0; seen on it.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use crate::json::{is_false, table, table_schema};
use crate::pod;
use model::address::FieldPath;
use model::schema;

/// How a scheduler is reached: `"ClusterIP"`, or a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DaskService {
    /// The kind of Service.
    pub r#type: ServiceType,
    /// True if a load balancer may be reached from the internet.
    pub public: bool,
    /// Annotations of the Service, which the scheduler's Deployment and Pod get, too.
    pub annotations: BTreeMap<String, String>,
    /// Parts of a ServiceSpec, laid over what the other keys make.
    pub spec: Option<ServiceSpec>,
}

/// The kind of Service in front of a scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
pub enum ServiceType {
    /// Reached from inside the Kubernetes cluster only.
    #[default]
    ClusterIP,
    /// A port on every node.
    NodePort,
    /// A load balancer; inside the VPC network unless it is `public`.
    LoadBalancer,
}

impl ServiceType {
    /// Returns the value of `type` in a ServiceSpec.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClusterIP => "ClusterIP",
            Self::NodePort => "NodePort",
            Self::LoadBalancer => "LoadBalancer",
        }
    }
}

/// Parts of a ServiceSpec.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct ServiceSpec(pub Value);

impl<'de> Deserialize<'de> for ServiceSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        table(deserializer, "parts of a ServiceSpec as a table").map(Self)
    }
}

impl JsonSchema for ServiceSpec {
    fn schema_name() -> Cow<'static, str> {
        "ServiceSpec".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        table_schema("Parts of a ServiceSpec.")
    }
}

/// How a scheduler is exposed, in full.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "DaskServiceTable")]
struct Table {
    /// The kind of Service. Default `ClusterIP`.
    #[serde(default)]
    r#type: ServiceType,
    /// A load balancer that the internet reaches. Default `false`: one inside the VPC network. A Dask scheduler runs
    /// anyone's code.
    #[serde(default, skip_serializing_if = "is_false")]
    public: bool,
    /// Annotations of the Service; the operator gives them to the scheduler's Deployment and Pod, too.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    annotations: BTreeMap<String, String>,
    /// A ServiceSpec, or parts of one, merged over the result of the other keys: `{ loadBalancerSourceRanges = ["10.0.0.0/8"] }`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    spec: Option<ServiceSpec>,
}

impl Serialize for DaskService {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { r#type, public, annotations, spec } = self.clone();
        if !public && annotations.is_empty() && spec.is_none() {
            return r#type.serialize(serializer);
        }
        Table { r#type, public, annotations, spec }.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for DaskService {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = DaskService;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`ClusterIP`, `NodePort`, `LoadBalancer`, or a table with `type`")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<DaskService, E> {
                let known = [ServiceType::ClusterIP, ServiceType::NodePort, ServiceType::LoadBalancer];
                let r#type = known
                    .into_iter()
                    .find(|known| known.as_str() == text)
                    .ok_or_else(|| E::unknown_variant(text, &["ClusterIP", "NodePort", "LoadBalancer"]))?;
                Ok(DaskService { r#type, ..DaskService::default() })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<DaskService, A::Error> {
                let Table { r#type, public, annotations, spec } =
                    Table::deserialize(MapAccessDeserializer::new(map))?;
                Ok(DaskService { r#type, public, annotations, spec })
            }
        }

        deserializer.deserialize_any(Either)
    }
}

impl JsonSchema for DaskService {
    fn schema_name() -> Cow<'static, str> {
        "DaskService".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "How a scheduler is reached: `\"ClusterIP\"`, or a table.",
            "oneOf": [
                { "type": "string", "enum": ["ClusterIP", "NodePort", "LoadBalancer"] },
                generator.subschema_for::<Table>(),
            ],
        })
    }
}

/// The annotation that keeps a load balancer off the internet on GKE. Source: Google's page "Create an internal load balancer".
const INTERNAL_ON_GKE: (&str, &str) = ("networking.gke.io/load-balancer-type", "Internal");

/// Annotations with the same effect on other clouds; other clusters ignore them. Source: pages of the AWS and Azure cloud controllers.
const INTERNAL_ELSEWHERE: [(&str, &str); 2] = [
    ("service.beta.kubernetes.io/aws-load-balancer-internal", "true"),
    ("service.beta.kubernetes.io/azure-load-balancer-internal", "true"),
];

/// GKE's earlier annotation for an internal load balancer.
const INTERNAL_BEFORE: (&str, &str) = ("cloud.google.com/load-balancer-type", "Internal");

/// Returns true if annotations keep a load balancer off the internet.
pub fn is_internal<'a>(annotations: impl IntoIterator<Item = (&'a str, &'a str)>) -> bool {
    let known = || INTERNAL_ELSEWHERE.iter().chain([&INTERNAL_ON_GKE, &INTERNAL_BEFORE]);
    annotations.into_iter().any(|given| known().any(|internal| *internal == given))
}

impl DaskService {
    pub fn of(r#type: ServiceType) -> Self {
        Self { r#type, ..Self::default() }
    }

    /// Returns the annotations of the Service. `gke` is true if GKE creates the load balancer.
    pub fn annotations(&self, gke: bool) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        if self.r#type == ServiceType::LoadBalancer && !self.public {
            let elsewhere = INTERNAL_ELSEWHERE.into_iter().filter(|_| !gke);
            let internal = std::iter::once(INTERNAL_ON_GKE).chain(elsewhere);
            all.extend(internal.map(|(key, value)| (key.to_owned(), value.to_owned())));
        }
        all.extend(self.annotations.clone());
        all
    }

    /// Returns the spec of a cluster's Service, with provenance. The operator finds its ports by these names, and does not add
    /// the selector.
    pub fn body(
        &self,
        cluster: &str,
        path: &FieldPath,
        origin: &FieldPath,
        provenance: &mut Vec<(FieldPath, FieldPath)>,
    ) -> Value {
        let port = |name: &str, number: u32| json!({ "name": name, "protocol": "TCP", "port": number, "targetPort": name });
        let mut body = json!({
            "type": self.r#type.as_str(),
            "selector": { "dask.org/cluster-name": cluster, "dask.org/component": "scheduler" },
            "ports": [port("tcp-comm", 8786), port("http-dashboard", 8787)],
        });
        if let Some(ServiceSpec(given)) = &self.spec {
            let shape = schema::definition("io.k8s.api.core.v1.ServiceSpec");
            pod::strategic_merge(&mut body, given, shape.as_ref(), path, &origin.key("spec"), provenance);
        }
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(value: Value) -> Result<DaskService, String> {
        serde_json::from_value(value).map_err(|error| error.to_string())
    }

    #[test]
    fn short_and_full_forms_are_read_and_written_back() {
        let short = parsed(json!("NodePort")).unwrap();
        assert_eq!(serde_json::to_value(&short).unwrap(), json!("NodePort"));
        let full =
            json!({ "type": "LoadBalancer", "public": true, "spec": { "loadBalancerIP": "10.0.0.1" } });
        assert_eq!(serde_json::to_value(parsed(full.clone()).unwrap()).unwrap(), full);
        assert!(parsed(json!("ExternalName")).unwrap_err().contains("LoadBalancer"));
        assert!(parsed(json!({ "type": "NodePort", "publick": true })).is_err());
    }

    #[test]
    fn a_load_balancer_is_internal_unless_it_is_public() {
        let balancer = DaskService::of(ServiceType::LoadBalancer);
        let keys = |service: &DaskService, gke| service.annotations(gke).into_keys().collect::<Vec<_>>();
        assert_eq!(keys(&balancer, true), ["networking.gke.io/load-balancer-type"]);
        assert_eq!(keys(&balancer, false).len(), 3);
        let all = balancer.annotations(true);
        assert!(is_internal(all.iter().map(|(key, value)| (key.as_str(), value.as_str()))));
        assert!(keys(&DaskService { public: true, ..balancer }, true).is_empty());
        assert!(keys(&DaskService::of(ServiceType::NodePort), true).is_empty());
    }

    #[test]
    fn parts_of_a_spec_are_laid_over_port_by_port() {
        let spec = json!({ "loadBalancerSourceRanges": ["10.0.0.0/8"], "ports": [{ "port": 8786, "nodePort": 30786 }] });
        let service = DaskService { spec: Some(ServiceSpec(spec)), ..DaskService::of(ServiceType::NodePort) };
        let mut provenance = Vec::new();
        let (path, origin) = (FieldPath::keys(["s"]), FieldPath::keys(["service"]));
        let body = service.body("c", &path, &origin, &mut provenance);
        assert_eq!(body["ports"][0]["name"], "tcp-comm");
        assert_eq!((&body["ports"][0]["nodePort"], body["ports"][1].get("nodePort")), (&json!(30786), None));
        assert_eq!(body["loadBalancerSourceRanges"], json!(["10.0.0.0/8"]));
        assert!(provenance.contains(&(
            "s.ports[0].nodePort".parse().unwrap(),
            "service.spec.ports[0].nodePort".parse().unwrap()
        )));
    }
}
