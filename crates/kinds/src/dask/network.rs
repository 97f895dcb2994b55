//! NetworkPolicies of Dask clusters: the clients that may connect to their pods. Anybody who can reach a scheduler can run code.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use crate::dask::api::CLUSTER_LABEL;
use crate::json::{table, table_schema};
use crate::kubernetes::object::{gvk, new_object};
use crate::scope::{CLIENT_LABEL_PREFIX, OPERATOR_NAME, Scope};
use model::address::{Address, FieldPath};
use model::resource::{KindId, Recreation, Resource};

/// The label with the name of a namespace. Source: the admission of Kubernetes sets it, since 1.21.
const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// Clients that may connect to the pods of a Dask cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Network {
    /// Every client that the Kubernetes cluster lets through.
    #[default]
    Open,
    /// The pods of the Dask cluster, its operator, and its clients in the stack.
    Closed,
    /// As [`Self::Closed`], and the peers that the section names.
    ClosedBut(NetworkTable),
}

/// Further clients of the pods of a Dask cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkTable {
    /// Peers in Kubernetes' own words: `[{ namespaceSelector = { matchLabels = { team = "a" } } }, { ipBlock = { cidr = "10.0.0.0/8" } }]`.
    pub from: Vec<Peer>,
}

/// A NetworkPolicyPeer.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Peer(pub Value);

impl<'de> Deserialize<'de> for Peer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        table(deserializer, "a NetworkPolicyPeer as a table").map(Self)
    }
}

impl JsonSchema for Peer {
    fn schema_name() -> Cow<'static, str> {
        "NetworkPolicyPeer".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        table_schema("A NetworkPolicyPeer.")
    }
}

impl Serialize for Network {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Open => serializer.serialize_bool(false),
            Self::Closed => serializer.serialize_bool(true),
            Self::ClosedBut(table) => table.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Network {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;

        impl<'de> Visitor<'de> for Either {
            type Value = Network;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false, or a table with `from`")
            }

            fn visit_bool<E: Error>(self, closed: bool) -> Result<Network, E> {
                Ok(if closed { Network::Closed } else { Network::Open })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Network, A::Error> {
                NetworkTable::deserialize(MapAccessDeserializer::new(map)).map(Network::ClosedBut)
            }
        }

        deserializer.deserialize_any(Either)
    }
}

impl JsonSchema for Network {
    fn schema_name() -> Cow<'static, str> {
        "DaskNetwork".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "Who may connect to the pods of a Dask cluster.",
            "oneOf": [{ "type": "boolean" }, generator.subschema_for::<NetworkTable>()],
        })
    }
}

impl Network {
    /// Returns true if no NetworkPolicy is created.
    pub fn is_open(&self) -> bool {
        *self == Self::Open
    }

    /// Returns the peers that the section names.
    pub fn others(&self) -> &[Peer] {
        match self {
            Self::Open | Self::Closed => &[],
            Self::ClosedBut(table) => &table.from,
        }
    }
}

/// Lowers the NetworkPolicy of a cluster; `None` if it is open.
///
/// `kubectl port-forward` and probes need no rule: they come from the pod's node, which is always admitted. Source: the page
/// "Network Policies" of the Kubernetes documentation.
pub fn lower(cluster: &Resource, network: &Network, origin: &FieldPath, scope: &Scope) -> Option<Resource> {
    let object = cluster.identity.object().filter(|_| !network.is_open())?;
    let (name, namespace) = (object.name.as_str(), object.namespace.as_deref().unwrap_or("default"));
    let pods = |labels: Value| json!({ "podSelector": { "matchLabels": labels } });
    let of_namespace = |namespace: Option<&str>, labels: Value| {
        let mut peer = pods(labels);
        peer["namespaceSelector"] = match namespace {
            Some(name) => json!({ "matchLabels": { NAMESPACE_NAME: name } }),
            None => json!({}),
        };
        peer
    };
    let own = json!({ CLUSTER_LABEL: name });
    let client = json!({ format!("{CLIENT_LABEL_PREFIX}{name}"): "true" });
    let mut from = vec![pods(own.clone()), pods(client.clone())];
    let visited_from = scope.dask_of(&cluster.address).into_iter().flat_map(|facts| &facts.client_namespaces);
    from.extend(visited_from.map(|namespace| of_namespace(Some(namespace), client.clone())));
    // It asks the scheduler who may go, and whether it works.
    let operator = json!({ "app.kubernetes.io/name": OPERATOR_NAME });
    from.push(of_namespace(scope.operator_namespace.as_deref(), operator));
    if scope.target.gke.is_some() {
        // GKE's API server reaches pods through these: applies ask the scheduler for its workers, and browsers for its dashboard.
        // Their label is from memory, not looked up; another one costs the numbers in `status`, and `--when-idle`.
        from.push(of_namespace(Some("kube-system"), json!({ "k8s-app": "konnectivity-agent" })));
    }
    let given = from.len();
    from.extend(network.others().iter().map(|Peer(peer)| peer.clone()));
    let spec = json!({
        "podSelector": { "matchLabels": own },
        "policyTypes": ["Ingress"],
        "ingress": [{ "from": from }],
    });
    let api = gvk("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies");
    let address = Address::object(cluster.address.as_str(), &api.kind, Some(namespace), name);
    let metadata = json!({ "name": name, "namespace": namespace, "labels": scope.labels() });
    let (identity, body) = new_object(api, metadata, spec);
    let path = FieldPath::keys(["spec", "ingress"]).index(0).key("from");
    let others =
        (0..network.others().len()).map(|index| (path.index(given + index), origin.key("from").index(index)));
    Some(Resource {
        address,
        identity,
        kind: KindId::Object,
        body,
        create_only: Value::Null,
        provenance: others.collect(),
        origin: origin.clone(),
        depends_on: scope.namespace_dependencies(namespace),
        protect: false,
        recreation: Recreation::Always,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_and_written_back() {
        for text in ["true", "false", r#"{"from":[{"ipBlock":{"cidr":"10.0.0.0/8"}}]}"#] {
            let network: Network = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&network).unwrap(), text);
        }
        assert!(serde_json::from_str::<Network>(r#"{"from":["all"]}"#).is_err());
        assert!(serde_json::from_str::<Network>("\"closed\"").is_err());
    }

    #[test]
    fn the_longest_name_makes_a_label() {
        let (_, name) = CLIENT_LABEL_PREFIX.split_once('/').unwrap();
        assert_eq!(name.len() + 53, 63);
    }
}
