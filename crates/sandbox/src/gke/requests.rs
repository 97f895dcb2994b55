//! From a request to an answer.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::errors::{Code, Refusal};
use super::operations::Operation;
use super::path::{self, ClusterId, Target};
use super::settings::Settings;
use super::shape::{self, Enums};
use super::state::Gke;
use super::{compute, lists, places, versions};

/// A request, as much of it as GKE looks at.
#[derive(Clone, Copy, Debug)]
pub struct Request<'r> {
    /// `GET`.
    pub method: &'r str,
    /// `/v1/projects/…`, still percent-encoded.
    pub path: &'r str,
    /// The part after the question mark.
    pub query: &'r str,
    /// The body, empty for none.
    pub body: &'r [u8],
}

/// An answer with a JSON body.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// HTTP code.
    pub code: u16,
    /// The body to send.
    pub body: Value,
}

/// Which version of the API is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Surface {
    V1,
    V1Beta1,
}

impl Surface {
    fn of(path: &str) -> Self {
        if path.starts_with("/v1beta1/") { Self::V1Beta1 } else { Self::V1 }
    }

    /// Returns the prefix of links.
    pub(super) fn base(self) -> &'static str {
        match self {
            Self::V1 => "https://container.googleapis.com/v1",
            Self::V1Beta1 => "https://container.googleapis.com/v1beta1",
        }
    }
}

/// The parameters of a handler.
pub(super) struct Context<'c> {
    pub now: Timestamp,
    pub settings: &'c Settings,
    pub surface: Surface,
    /// The prefix of links.
    pub base: &'static str,
    pub enums: Enums,
}

/// A message and its name, so that it can be written as the client asked.
pub(super) type Answer = Result<(&'static str, Value), Refusal>;

impl Gke {
    /// Answers a request. Events that are due by `now` happen first.
    pub fn handle(&mut self, now: Timestamp, settings: &Settings, request: Request<'_>) -> Reply {
        self.tick(now, settings);
        let surface = Surface::of(request.path);
        // `$alt=json;enum-encoding=int`, percent-encoded or not.
        let numbers = request.query.replace("%3D", "=").replace("%3d", "=").contains("enum-encoding=int");
        let context = Context {
            now,
            settings,
            surface,
            base: surface.base(),
            enums: if numbers { Enums::Numbers } else { Enums::Names },
        };
        match self.answer(&context, request) {
            Ok((message, body)) => Reply { code: 200, body: shape::write(message, body, context.enums) },
            Err(refusal) => {
                let number = self.next();
                Reply { code: refusal.code.http(), body: refusal.body(number) }
            }
        }
    }

    fn answer(&mut self, context: &Context<'_>, request: Request<'_>) -> Answer {
        let Request { method, path, .. } = request;
        let Some(target) = path::parse(path) else {
            return Err(Refusal::new(Code::NotFound, format!("The requested URL {path} was not found.")));
        };
        self.admit_to_pools(&target)?;
        let body = Body(request.body);
        match (method, target) {
            ("GET", Target::Clusters { project, location }) => {
                self.list_clusters(context, &project, &location)
            }
            ("POST", Target::Clusters { project, location }) => {
                self.create_cluster(context, &project, &location, body.read("CreateClusterRequest")?)
            }
            ("GET", Target::Cluster { id, verb: None }) => self.get_cluster(context, &id),
            ("PUT", Target::Cluster { id, verb: None }) => {
                self.update_cluster(context, &id, body.read("UpdateClusterRequest")?)
            }
            ("DELETE", Target::Cluster { id, verb: None }) => self.delete_cluster(context, &id),
            ("POST", Target::Cluster { id, verb: Some(verb) }) => {
                self.cluster_verb(context, &id, &verb, body)
            }
            ("GET", Target::Cluster { id, verb: Some(verb) }) if verb == "fetchClusterUpgradeInfo" => {
                self.require(&id)?;
                Ok(("ClusterUpgradeInfo", json!({})))
            }
            ("GET", Target::Keys { id }) => {
                self.require(&id)?;
                Ok(("GetJSONWebKeysResponse", json!({ "keys": [] })))
            }
            ("GET", Target::Pools { id }) => self.list_pools(context, &id),
            ("POST", Target::Pools { id }) => {
                self.create_pool(context, &id, body.read("CreateNodePoolRequest")?)
            }
            ("GET", Target::Pool { id, pool, verb: None }) => self.get_pool(context, &id, &pool),
            ("PUT", Target::Pool { id, pool, verb: None }) => {
                self.update_pool(context, &id, &pool, body.read("UpdateNodePoolRequest")?)
            }
            ("DELETE", Target::Pool { id, pool, verb: None }) => self.delete_pool(context, &id, &pool),
            ("POST", Target::Pool { id, pool, verb: Some(verb) }) => {
                self.pool_verb(context, &id, &pool, &verb, body)
            }
            ("GET", Target::Pool { id, pool, verb: Some(verb) }) if verb == "fetchNodePoolUpgradeInfo" => {
                self.require_pool(&id, &pool)?;
                Ok(("NodePoolUpgradeInfo", json!({})))
            }
            ("GET", Target::Operations { project, location }) => {
                Ok(self.list_operations(context, &project, &location))
            }
            ("GET", Target::Operation { project, location, name, verb: None }) => {
                self.get_operation(context, &project, &location, &name)
            }
            ("POST", Target::Operation { project, location, name, verb: Some(verb) }) if verb == "cancel" => {
                self.cancel_operation(&project, &location, &name)
            }
            ("GET", Target::ServerConfig { location, .. }) => {
                super::checks::location(&location)?;
                Ok(("ServerConfig", versions::server_config()))
            }
            ("GET", Target::UsableSubnetworks { project }) => Ok(("", compute::usable_subnetworks(&project))),
            ("GET", Target::Service { project, service }) => Ok(("", compute::service(&project, &service))),
            ("GET", Target::InstanceGroup { project, zone, name, manager }) => {
                Ok(("", self.instance_group(&project, &zone, &name, manager)?))
            }
            ("GET", Target::Places { project, regions, name: Some(name) }) => {
                let mut body = compute::place(&project, regions, &name)?;
                if regions {
                    body["quotas"] = self.quotas(&project, Some(&name), &context.settings.quota);
                }
                Ok(("", body))
            }
            ("GET", Target::Places { project, regions, name: None }) => {
                Ok(("", lists::places(&project, regions, request.query)?))
            }
            ("GET", Target::Collection { project, place, collection }) => {
                Ok(("", self.listed(&project, &place, collection, request.query)?))
            }
            ("GET", Target::Offer { project, zone, name, machine }) => {
                Ok(("", compute::offer(&project, &zone, &name, machine)?))
            }
            ("GET", Target::ComputeProject { project }) => {
                let quotas = self.quotas(&project, None, &context.settings.quota);
                Ok(("", compute::project(&project, &quotas)))
            }
            ("POST", Target::Project { verb: Some(verb), .. }) if verb == "testIamPermissions" => {
                Ok(("", json!({ "permissions": body.raw()?["permissions"] })))
            }
            ("GET", Target::Policy { project, name, verb: Some(verb) }) if verb == "getEffectivePolicy" => {
                Ok(("", compute::policy(&project, &name)))
            }
            (method, _) => Err(Refusal::new(
                Code::Unimplemented,
                format!("{method} {path} is a part of the API that the sandbox does not serve."),
            )),
        }
    }

    fn list_operations(&self, context: &Context<'_>, project: &str, location: &str) -> (&'static str, Value) {
        let list: Vec<Value> = self
            .operations
            .values()
            .filter(|operation| {
                let ClusterId { project: known, location: place, .. } = &operation.cluster;
                known == project && (location == "-" || place == location)
            })
            .map(|operation| operation.render(context.now, context.base))
            .collect();
        ("ListOperationsResponse", list_of("operations", list))
    }

    fn find_operation(&self, project: &str, location: &str, name: &str) -> Result<&Operation, Refusal> {
        let found = self.operations.get(name).filter(|operation| {
            operation.cluster.project == project && operation.cluster.location == location
        });
        found.ok_or_else(|| {
            let word = places::word(location);
            Refusal::not_found(format!("projects/{project}/{word}/{location}/operations/{name}"))
        })
    }

    fn get_operation(&self, context: &Context<'_>, project: &str, location: &str, name: &str) -> Answer {
        let operation = self.find_operation(project, location, name)?;
        Ok(("Operation", operation.render(context.now, context.base)))
    }

    /// Only rolling operations can be canceled, and those of the sandbox are not.
    fn cancel_operation(&self, project: &str, location: &str, name: &str) -> Answer {
        let operation = self.find_operation(project, location, name)?;
        let kind = operation.kind.name();
        Err(Refusal::new(
            Code::FailedPrecondition,
            format!("Operation {name} of type {kind} cannot be cancelled."),
        ))
    }
}

/// The fields of an update but those that only say where it goes.
pub(super) fn changes<'u>(update: &'u Value, addressing: &[&str]) -> Vec<(&'u str, &'u Value)> {
    let fields = update.as_object().into_iter().flatten().map(|(key, value)| (key.as_str(), value));
    fields.filter(|(key, _)| !addressing.contains(key)).collect()
}

/// A list as proto3 JSON shows it: no field for an empty one.
pub(super) fn list_of(key: &str, items: Vec<Value>) -> Value {
    let mut map = Map::new();
    if !items.is_empty() {
        map.insert(key.to_owned(), Value::Array(items));
    }
    Value::Object(map)
}

/// A request body that is read once its message is known.
#[derive(Clone, Copy)]
pub(super) struct Body<'r>(&'r [u8]);

impl Body<'_> {
    /// The canonical form of the body as the message `name`.
    pub fn read(self, name: &str) -> Result<Value, Refusal> {
        shape::read(name, &self.raw()?).map_err(Refusal::bad_body)
    }

    /// The body as it was sent, for messages of other services.
    fn raw(self) -> Result<Value, Refusal> {
        if self.0.iter().all(u8::is_ascii_whitespace) {
            return Ok(json!({}));
        }
        let body: Value = serde_json::from_slice(self.0).map_err(|error| {
            Refusal::invalid(format!("Invalid JSON payload received. Parsing failed: {error}."))
        })?;
        if !body.is_object() {
            return Err(Refusal::invalid("Invalid JSON payload received. The body must be an object."));
        }
        Ok(body)
    }
}
