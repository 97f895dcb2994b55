//! Clusters: create, read, delete, and the verbs that change one setting.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::errors::{Code, Refusal};
use super::ids::{hex, project_number, uuid};
use super::operations::{Effect, Kind, Operation, Scope, Status};
use super::path::ClusterId;
use super::requests::{Answer, Body, Context, Surface, list_of};
use super::settings::{ClusterLimit, Endpoints, Settings};
use super::state::{Cluster, Gke, Phase, Pool, PoolPhase};
use super::{autopilot, beta, checks, defaults, derived_fields, places, pools, state, versions};
use crate::clock::Scale;
use crate::kube::object::{fill, text};

/// The control plane of a new cluster answers after this much of the service's time, in seconds.
const CONTROL_PLANE_SECONDS: f64 = 150.0;
/// And its first nodes exist after this much.
const FIRST_NODES_SECONDS: f64 = 200.0;

impl Gke {
    /// The cluster, or GKE's 404.
    pub(super) fn require(&self, id: &ClusterId) -> Result<&Cluster, Refusal> {
        self.clusters.get(id).ok_or_else(|| Refusal::not_found(id.link()))
    }

    /// Starts an operation and gives its message.
    pub(super) fn start(
        &mut self,
        context: &Context<'_>,
        id: &ClusterId,
        kind: Kind,
        scope: Scope,
        (nodes, surge): (u32, u32),
        effect: Effect,
    ) -> (&'static str, Value) {
        // A roll shows its goal from the start, and nodes change while it runs; all else shows when done.
        let effect = if kind == Kind::UpgradeNodes {
            self.put_bodies(id, effect, context.now, &context.settings.scale);
            self.renew(id, &scope, context.now);
            Effect::Phase
        } else {
            effect
        };
        let number = self.next();
        let name = format!(
            "operation-{}-{}",
            context.now.as_millisecond(),
            uuid(&["operation", &id.to_string(), &number.to_string()])
        );
        let operation = Operation {
            name: name.clone(),
            kind,
            cluster: id.clone(),
            scope,
            start: context.now,
            due: context.settings.due(kind, context.now, nodes, surge),
            status: Status::Running,
            effect,
            nodes,
            number: project_number(&id.project),
            doom: None,
        };
        let rendered = operation.render(context.now, context.base);
        self.touch_operation(&name);
        self.touch(id);
        self.operations.insert(name, operation);
        ("Operation", rendered)
    }

    pub(super) fn create_cluster(
        &mut self,
        context: &Context<'_>,
        project: &str,
        location: &str,
        request: Value,
    ) -> Answer {
        checks::location(location)?;
        let mut body = request["cluster"].clone();
        let name = text(&body, "/name").to_owned();
        checks::name("cluster", &name)?;
        let id = ClusterId::new(project, location, &name);
        if self.clusters.contains_key(&id) {
            return Err(Refusal::exists(id.link()));
        }
        self.can_add_cluster(context.settings.cluster_limit)?;
        checks::zones(&body, &id)?;
        autopilot::check_place(&body, &id)?;
        let (version, channel) = version_of(&body)?;
        let wanted = first_pools(&mut body)?;
        defaults::cluster(&mut body, &id, version, channel);
        for key in ["initialClusterVersion", "currentMasterVersion"] {
            body[key] = json!(version);
        }
        body["createTime"] = json!(context.now.to_string());
        body["initialNodeCount"] = wanted.first().map_or(json!(0), |pool| pool["initialNodeCount"].clone());
        let wanted = prepared(wanted, &body, &id, version, context.now)?;
        let counts: Vec<(&Value, u32)> = wanted.iter().map(|pool| (pool, pools::nodes_of(pool))).collect();
        self.check_quota(&id, &counts, &context.settings.quota)?;
        let nodes = counts.iter().map(|(_, nodes)| nodes).sum();
        let grow_at = context.settings.scale.after(context.now, FIRST_NODES_SECONDS);
        let members = wanted.into_iter().map(|pool| pools::new_pool(pool, &id, grow_at));
        let mut members: Vec<Pool> = members.collect();
        if autopilot::is_on(&body) {
            members.iter_mut().for_each(autopilot::empty);
        }
        let control_plane = context.settings.scale.after(context.now, CONTROL_PLANE_SECONDS);
        let cluster = Cluster {
            id: id.clone(),
            phase: Phase::Provisioning { control_plane },
            endpoint: None,
            body,
            pools: members,
            revision: 0,
            label_revision: 0,
            trouble: None,
        };
        self.clusters.insert(id.clone(), cluster);
        Ok(self.start(context, &id, Kind::CreateCluster, Scope::Cluster, (nodes, 1), Effect::Phase))
    }

    fn can_add_cluster(&self, cluster_limit: ClusterLimit) -> Result<(), Refusal> {
        let (ClusterLimit::One, Some(other)) = (cluster_limit, self.clusters.keys().next()) else {
            return Ok(());
        };
        Err(Refusal::new(
            Code::FailedPrecondition,
            format!(
                "This sandbox has one real API server behind its clusters, and {} uses it: delete that \
                 cluster first, or serve another sandbox.",
                other.link()
            ),
        ))
    }

    pub(super) fn get_cluster(&self, context: &Context<'_>, id: &ClusterId) -> Answer {
        let cluster = self.require(id)?;
        Ok(("Cluster", self.render_cluster(cluster, context.settings, context.surface)))
    }

    pub(super) fn list_clusters(&self, context: &Context<'_>, project: &str, location: &str) -> Answer {
        if location != "-" {
            checks::location(location)?;
        }
        let list: Vec<Value> = self
            .clusters
            .values()
            .filter(|cluster| {
                cluster.id.project == project && (location == "-" || cluster.id.location == location)
            })
            .map(|cluster| self.render_cluster(cluster, context.settings, context.surface))
            .collect();
        Ok(("ListClustersResponse", list_of("clusters", list)))
    }

    pub(super) fn delete_cluster(&mut self, context: &Context<'_>, id: &ClusterId) -> Answer {
        self.require(id)?;
        self.admit(id, &Scope::Cluster)?;
        let mut nodes = 0;
        if let Some(cluster) = self.clusters.get_mut(id) {
            cluster.phase = Phase::Stopping;
            for pool in &mut cluster.pools {
                pool.phase = PoolPhase::Stopping;
                pool.grow_at = None;
                nodes += pool.present.values().sum::<u32>();
            }
        }
        Ok(self.start(context, id, Kind::DeleteCluster, Scope::Cluster, (nodes, 1), Effect::Phase))
    }

    pub(super) fn cluster_verb(
        &mut self,
        context: &Context<'_>,
        id: &ClusterId,
        verb: &str,
        body: Body<'_>,
    ) -> Answer {
        let cluster = self.require(id)?;
        let mut after = cluster.body.clone();
        match verb {
            "setResourceLabels" => {
                let request = body.read("SetLabelsRequest")?;
                check_fingerprint(cluster, text(&request, "/labelFingerprint"))?;
                after["resourceLabels"] = request.get("resourceLabels").cloned().unwrap_or(json!({}));
            }
            "setMaintenancePolicy" => {
                let request = body.read("SetMaintenancePolicyRequest")?;
                after["maintenancePolicy"] = request.get("maintenancePolicy").cloned().unwrap_or(json!({}));
            }
            // Certificates and passwords are not part of the message.
            "startIpRotation" => drop(body.read("StartIPRotationRequest")?),
            "completeIpRotation" => drop(body.read("CompleteIPRotationRequest")?),
            "setMasterAuth" => drop(body.read("SetMasterAuthRequest")?),
            "setLegacyAbac" => {
                after["legacyAbac"] = switch(body.read("SetLegacyAbacRequest")?["enabled"] == true);
            }
            "setNetworkPolicy" => {
                after["networkPolicy"] = body.read("SetNetworkPolicyRequest")?["networkPolicy"].clone();
            }
            "setAddons" => {
                let mut addons = body.read("SetAddonsConfigRequest")?["addonsConfig"].clone();
                fill(&mut addons, &after["addonsConfig"]);
                after["addonsConfig"] = addons;
            }
            "setLogging" => {
                after["loggingService"] = body.read("SetLoggingServiceRequest")?["loggingService"].clone();
            }
            "setMonitoring" => {
                after["monitoringService"] =
                    body.read("SetMonitoringServiceRequest")?["monitoringService"].clone();
            }
            "setLocations" => {
                let request = body.read("SetLocationsRequest")?;
                let update = json!({ "update": { "desiredLocations": request["locations"] } });
                return self.update_cluster(context, id, update);
            }
            "updateMaster" => {
                let request = body.read("UpdateMasterRequest")?;
                let update = json!({ "update": { "desiredMasterVersion": request["masterVersion"] } });
                return self.update_cluster(context, id, update);
            }
            _ => {
                return Err(Refusal::new(
                    Code::Unimplemented,
                    format!("clusters:{verb} is a part of the API that the sandbox does not serve."),
                ));
            }
        }
        derived_fields::updated(&mut after, &cluster.body);
        self.admit(id, &Scope::Cluster)?;
        let effect = Effect::Bodies { cluster: Some(after), pools: Vec::new() };
        Ok(self.start(context, id, Kind::UpdateCluster, Scope::Cluster, (0, 1), effect))
    }

    /// The Cluster message as a GET shows it.
    pub(super) fn render_cluster(&self, cluster: &Cluster, settings: &Settings, surface: Surface) -> Value {
        let id = &cluster.id;
        let mut body = cluster.body.clone();
        let busy = self.operations.values().any(|op| op.is_running() && op.cluster == *id);
        let status = match cluster.phase {
            Phase::Provisioning { .. } => "PROVISIONING",
            Phase::Running if busy => "RECONCILING",
            Phase::Running if settings.degraded => "DEGRADED",
            Phase::Running => "RUNNING",
            Phase::Stopping => "STOPPING",
            Phase::Error => "ERROR",
        };
        body["status"] = json!(status);
        if let Some(trouble) = &cluster.trouble {
            body["statusMessage"] = json!(trouble);
            body["conditions"] = pools::conditions(trouble);
        }
        if settings.degraded && cluster.trouble.is_none() {
            body["conditions"] = missing_permissions();
        }
        body["selfLink"] = json!(format!("{}/{}", surface.base(), id.link()));
        body["id"] = json!(hex(&["id", &id.to_string()], 64));
        body["location"] = json!(id.location);
        // Of a regional cluster, too.
        body["zone"] = json!(id.location);
        body["etag"] = json!(etag(cluster));
        body["labelFingerprint"] = json!(fingerprint(cluster));
        body["maintenancePolicy"]["resourceVersion"] =
            json!(hex(&["maintenance", &body["maintenancePolicy"].to_string()], 8));
        self.render_pools(cluster, &mut body, surface);
        render_endpoint(cluster, settings, &mut body);
        beta::cluster(&mut body, id, surface);
        body
    }

    fn render_pools(&self, cluster: &Cluster, body: &mut Value, surface: Surface) {
        let nodes: u32 = cluster.pools.iter().flat_map(|pool| pool.present.values()).sum();
        if nodes > 0 {
            body["currentNodeCount"] = json!(nodes);
        }
        if let Some(used) = pools::range_utilization(cluster) {
            body["ipAllocationPolicy"]["defaultPodIpv4RangeUtilization"] = json!(used);
        }
        let rendered: Vec<Value> =
            cluster.pools.iter().map(|pool| self.render_pool(cluster, pool, surface)).collect();
        let versions = rendered.iter().map(|pool| text(pool, "/version"));
        let lowest = versions.min_by(|left, right| versions::compare(left, right));
        body["currentNodeVersion"] = json!(lowest.unwrap_or(text(body, "/currentMasterVersion")));
        if let Some(first) = rendered.first() {
            body["nodeConfig"] = first["config"].clone();
        }
        let groups: Vec<Value> = rendered
            .iter()
            .filter_map(|pool| pool["instanceGroupUrls"].as_array())
            .flatten()
            .cloned()
            .collect();
        // A cluster keeps naming the group of its first pool after that is gone.
        body["instanceGroupUrls"] = match groups.as_slice() {
            [] => json!([pools::group_link(
                &cluster.id,
                places::default_zones(&cluster.id.location).first().map_or("", String::as_str),
                &pools::prefix(&cluster.id, "default-pool"),
            )]),
            _ => Value::Array(groups),
        };
        if rendered.is_empty() {
            body.as_object_mut().map(|map| map.remove("nodePools"));
        } else {
            body["nodePools"] = Value::Array(rendered);
        }
    }

    /// Ends an operation: its effect becomes true, or its failure stays.
    pub(super) fn end(&mut self, operation: Operation, now: Timestamp, settings: &Settings) {
        let Operation { name, kind, cluster: id, scope, effect, doom, .. } = operation;
        // A cluster is not done before somebody listens for it.
        let waits = self.clusters.get(&id).is_some_and(|cluster| cluster.endpoint.is_none());
        if kind == Kind::CreateCluster && waits {
            return;
        }
        let failure = match (kind, doom) {
            (_, Some(why)) => {
                self.fail(&id, kind, &scope, &why);
                Some(why)
            }
            (Kind::DeleteCluster, None) => {
                self.clusters.remove(&id);
                None
            }
            (_, None) => self.apply(&id, kind, &scope, effect, now, settings),
        };
        if let Some(operation) = self.operations.get_mut(&name) {
            operation.status = Status::Done(operation.due.max(operation.start), failure);
            // The bodies are in the cluster now.
            operation.effect = Effect::Phase;
        }
        self.touch_operation(&name);
        self.touch(&id);
    }

    /// Records that an operation fails. A cluster or a pool that was not created stays with its error and without machines.
    /// One that was not deleted runs as before, and an update has no effect.
    fn fail(&mut self, id: &ClusterId, kind: Kind, scope: &Scope, why: &str) {
        let Some(cluster) = self.clusters.get_mut(id) else { return };
        cluster.revision += 1;
        match kind {
            Kind::CreateCluster | Kind::CreateNodePool => {
                for pool in cluster.pools.iter_mut().filter(|pool| scope.holds(&pool.name)) {
                    pool.phase = PoolPhase::Running;
                    pool.trouble = Some(why.to_owned());
                    pool.grow_at = None;
                    pool.present.values_mut().for_each(|present| *present = 0);
                }
                if kind == Kind::CreateCluster {
                    cluster.phase = Phase::Error;
                    cluster.trouble = Some(why.to_owned());
                }
            }
            Kind::DeleteCluster | Kind::DeleteNodePool => {
                for pool in cluster.pools.iter_mut().filter(|pool| scope.holds(&pool.name)) {
                    pool.phase = PoolPhase::Running;
                }
                if kind == Kind::DeleteCluster {
                    cluster.phase = Phase::Running;
                }
            }
            Kind::UpgradeMaster
            | Kind::UpgradeNodes
            | Kind::UpdateCluster
            | Kind::SetNodePoolManagement
            | Kind::SetNodePoolSize => {}
        }
    }

    /// Gives the cluster and its pools what an operation brings.
    fn put_bodies(&mut self, id: &ClusterId, effect: Effect, now: Timestamp, scale: &Scale) {
        let Some(cluster) = self.clusters.get_mut(id) else { return };
        cluster.revision += 1;
        let Effect::Bodies { cluster: body, pools } = effect else { return };
        if let Some(body) = body {
            if body["resourceLabels"] != cluster.body["resourceLabels"] {
                cluster.label_revision += 1;
            }
            cluster.body = body;
        }
        for (name, body) in pools {
            if let Some(pool) = cluster.pools.iter_mut().find(|pool| pool.name == name) {
                pools::replace(pool, body, now, scale);
            }
        }
    }

    /// New nodes have the image of their version and a new certificate.
    fn renew(&mut self, id: &ClusterId, scope: &Scope, now: Timestamp) {
        let pools = self.clusters.get_mut(id).map(|cluster| &mut cluster.pools);
        for pool in pools.into_iter().flatten().filter(|pool| scope.holds(&pool.name)) {
            defaults::renew(&mut pool.body, now);
        }
    }

    fn apply(
        &mut self,
        id: &ClusterId,
        kind: Kind,
        scope: &Scope,
        effect: Effect,
        now: Timestamp,
        settings: &Settings,
    ) -> Option<String> {
        self.put_bodies(id, effect, now, &settings.scale);
        let cluster = self.clusters.get_mut(id)?;
        match (kind, scope) {
            (Kind::CreateCluster, _) => {
                for pool in &mut cluster.pools {
                    pool.phase = PoolPhase::Running;
                }
                let trouble = cluster.pools.iter().find_map(|pool| pool.trouble.clone());
                cluster.phase = if trouble.is_some() { Phase::Error } else { Phase::Running };
                cluster.trouble.clone_from(&trouble);
                trouble
            }
            (Kind::DeleteNodePool, Scope::Pool(name)) => {
                cluster.pools.retain(|pool| pool.name != *name);
                None
            }
            (Kind::CreateNodePool | Kind::SetNodePoolSize, Scope::Pool(name)) => {
                let pool = cluster.pools.iter_mut().find(|pool| pool.name == *name)?;
                pool.phase = PoolPhase::Running;
                pool.trouble.clone()
            }
            _ => None,
        }
    }
}

/// The condition of a cluster whose nodes run as an account without roles, as in new organizations; its text is from memory.
fn missing_permissions() -> Value {
    json!([{
        "code": "NODE_SERVICE_ACCOUNT_MISSING_PERMISSIONS", "canonicalCode": "PERMISSION_DENIED",
        "message": "Node service account is missing permissions.",
    }])
}

fn switch(on: bool) -> Value {
    if on { json!({ "enabled": true }) } else { json!({}) }
}

/// The first pools of a cluster with their defaults.
fn prepared(
    mut pools: Vec<Value>,
    cluster: &Value,
    id: &ClusterId,
    version: &str,
    now: Timestamp,
) -> Result<Vec<Value>, Refusal> {
    for at in 0..pools.len() {
        let plain = pools[..at].iter().any(|pool| !defaults::has_gpu(pool));
        let pool = &mut pools[at];
        pools::prepare(pool, cluster, id, plain, now);
        checks::pool(pool, id, state::channel(cluster), version)?;
    }
    if pools.iter().all(|pool| pools::nodes_of(pool) == 0) {
        return Err(Refusal::invalid("Cluster.initial_node_count must be greater than zero"));
    }
    Ok(pools)
}

/// The first pools of a new cluster: those listed, or one made from the older shorthand.
fn first_pools(body: &mut Value) -> Result<Vec<Value>, Refusal> {
    let Some(map) = body.as_object_mut() else { return Ok(Vec::new()) };
    let listed = map.remove("nodePools");
    let count = map.remove("initialNodeCount");
    let config = map.remove("nodeConfig");
    match listed {
        Some(Value::Array(pools)) if !pools.is_empty() => {
            if count.is_some() || config.is_some() {
                return Err(Refusal::invalid(
                    "Cluster.initial_node_count or node_config must not be set when node_pools are given.",
                ));
            }
            let mut names: Vec<&str> = pools.iter().map(|pool| text(pool, "/name")).collect();
            names.sort_unstable();
            if let Some(pair) = names.windows(2).find(|pair| pair[0] == pair[1]) {
                return Err(Refusal::invalid(format!("Node pool \"{}\" is listed more than once.", pair[0])));
            }
            Ok(pools)
        }
        _ => {
            let Some(count) = count else {
                return Err(Refusal::invalid("Cluster.initial_node_count must be greater than zero."));
            };
            let mut pool = json!({ "name": "default-pool", "initialNodeCount": count });
            if let Some(config) = config {
                pool["config"] = config;
            }
            Ok(vec![pool])
        }
    }
}

/// Version and channel of a new cluster.
fn version_of(body: &Value) -> Result<(&'static str, &'static str), Refusal> {
    let asked = text(body, "/initialClusterVersion");
    let channel = match (text(body, "/releaseChannel/channel"), body["releaseChannel"].is_object()) {
        ("", false) if matches!(asked, "" | "-" | "latest") => "REGULAR",
        ("", false) => versions::channel_for(asked).unwrap_or("UNSPECIFIED"),
        // An empty message, or UNSPECIFIED in it, is the wish for no channel.
        ("", true) => "UNSPECIFIED",
        ("RAPID", _) => "RAPID",
        ("STABLE", _) => "STABLE",
        ("EXTENDED", _) => "EXTENDED",
        _ => "REGULAR",
    };
    match versions::resolve(asked, channel) {
        Some(version) => Ok((version, channel)),
        None => Err(Refusal::invalid(format!("Master version \"{asked}\" is unsupported."))),
    }
}

/// The certificate and the addresses, once the control plane has one.
fn render_endpoint(cluster: &Cluster, settings: &Settings, body: &mut Value) {
    use base64::Engine as _;
    let Some(endpoint) = &cluster.endpoint else { return };
    let authority = base64::engine::general_purpose::STANDARD.encode(&settings.authority);
    body["endpoint"] = json!(cluster.shown_endpoint(settings.endpoints));
    body["controlPlaneEndpointsConfig"]["dnsEndpointConfig"]["endpoint"] =
        json!(cluster.dns_name(settings.endpoints));
    // Where somebody listens, both addresses lead there.
    let private = match settings.endpoints {
        Endpoints::Served => endpoint.as_str(),
        Endpoints::InProcess => "10.128.0.2",
    };
    fill(
        body,
        &json!({
            "masterAuth": { "clientCertificateConfig": {}, "clusterCaCertificate": authority },
            "privateClusterConfig": { "privateEndpoint": private, "publicEndpoint": endpoint },
            "controlPlaneEndpointsConfig": { "ipEndpointsConfig": {
                "privateEndpoint": private, "publicEndpoint": endpoint,
            }},
        }),
    );
}

fn etag(cluster: &Cluster) -> String {
    uuid(&["etag", &cluster.id.to_string(), &cluster.revision.to_string()])
}

fn fingerprint(cluster: &Cluster) -> String {
    hex(&["labels", &cluster.id.to_string(), &cluster.label_revision.to_string()], 8)
}

pub(super) fn cluster_etag(cluster: &Cluster, sent: &str) -> Result<(), Refusal> {
    checks::etag(&etag(cluster), sent)
}

fn check_fingerprint(cluster: &Cluster, sent: &str) -> Result<(), Refusal> {
    let current = fingerprint(cluster);
    let ours = sent.len() == current.len() && sent.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !ours || sent == current {
        return Ok(());
    }
    Err(Refusal::new(
        Code::FailedPrecondition,
        // The wording: crossplane-contrib/provider-gcp issue 477, hashicorp/terraform-provider-google issue 5608.
        format!(
            "Labels could not be set due to fingerprint mismatch; try again with the proper fingerprint: \
             incorrect fingerprint supplied was \"{sent}\", the expected one is \"{current}\"."
        ),
    ))
}

impl Pool {
    /// Machines that exist or are wanted, whichever is more.
    pub(super) fn nodes(&self) -> u32 {
        self.sizes.values().sum::<u32>().max(self.present.values().sum())
    }
}
