//! Checks of schedulers' Services: they lead to the scheduler, by ports that the operator finds, and are not reachable from the
//! internet.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::rules::Context;
use crate::rules::manifests::finding;
use crate::{Cluster, DaskCluster, ServiceType};
use kinds::dask::service::{ServiceSpec, is_internal};
use kinds::kubernetes::bundle;
use model::address::FieldPath;
use model::diag::{Code, Diagnostic};
use model::schema::{self, ProblemKind};

/// The names of the ports that the operator looks up.
const PORTS: [&str; 2] = ["tcp-comm", "http-dashboard"];

/// The Service of a scheduler that a user wrote.
struct Written<'a> {
    service: &'a Value,
    /// Its place.
    path: FieldPath,
    /// The cluster's name.
    cluster: &'a str,
    /// Labels that the scheduler's pod has.
    labels: BTreeMap<&'a str, &'a str>,
    /// Names of the ports of the scheduler's pod.
    pod_ports: Vec<&'a str>,
}

/// Checks that the Service of a Dask cluster selects its scheduler, and has the port names that the operator looks up.
pub(crate) fn services_lead_to_schedulers(context: &mut Context<'_>) {
    let stack = context.stack;
    for (key, cluster) in &stack.dask_cluster {
        if cluster.service.spec.is_none() {
            continue;
        }
        let path = FieldPath::keys(["dask_cluster", key, "service", "spec"]);
        let service = cluster.service.body(cluster.live_name(key), &path, &path, &mut Vec::new());
        let given = cluster.scheduler.keys.pod.as_ref().map(|pod| &pod.0).unwrap_or(&Value::Null);
        let mut pod_ports = names_of_ports(given);
        pod_ports.extend(PORTS);
        let own = cluster.labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let labels = own.chain(reserved(cluster.live_name(key))).collect();
        let cluster = cluster.live_name(key);
        look(context, &Written { service: &service, path, cluster, labels, pod_ports });
    }
    for object in bundle::objects(&stack.bundles()) {
        let (spec, spec_path) = match object.kind() {
            "DaskCluster" => (&object.value["spec"], object.origin().key("spec")),
            "DaskJob" => {
                let path = object.origin().key("spec").key("cluster").key("spec");
                (&object.value["spec"]["cluster"]["spec"], path)
            }
            _ => continue,
        };
        let scheduler = &spec["scheduler"];
        if !scheduler["service"].is_object() {
            continue;
        }
        let pairs = |value: &'_ Value| value.as_object().cloned().unwrap_or_default();
        let own = [pairs(&object.value["metadata"]["labels"]), pairs(&scheduler["metadata"]["labels"])];
        let own = own.iter().flatten().map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()));
        let path = spec_path.key("scheduler").key("service");
        let written = Written {
            service: &scheduler["service"],
            path,
            cluster: object.name(),
            labels: own.chain(reserved(object.name())).collect(),
            pod_ports: names_of_ports(&scheduler["spec"]),
        };
        look(context, &written);
    }
}

/// Returns the labels that the operator adds.
fn reserved(cluster: &str) -> [(&str, &str); 3] {
    [
        ("dask.org/cluster-name", cluster),
        ("dask.org/component", "scheduler"),
        ("sidecar.istio.io/inject", "false"),
    ]
}

fn names_of_ports(pod: &Value) -> Vec<&str> {
    let containers = pod["containers"].as_array().into_iter().flatten();
    let ports = containers.filter_map(|container| container["ports"].as_array()).flatten();
    ports.filter_map(|port| port["name"].as_str()).collect()
}

/// Checks that `spec` of a section's Service fits a ServiceSpec of Dask's definitions.
pub(crate) fn services_fit_their_schema(context: &mut Context<'_>) {
    let shape = || {
        let scheduler = schema::dask("DaskCluster")?.property("spec")?.property("scheduler")?;
        scheduler.property("service")
    };
    let Some(shape) = shape() else { return };
    for (key, cluster) in &context.stack.dask_cluster {
        let Some(ServiceSpec(given)) = &cluster.service.spec else { continue };
        let path = FieldPath::keys(["dask_cluster", key, "service", "spec"]);
        for problem in schema::check(&shape, given) {
            // Missing fields come from the Service that this is merged over.
            if !matches!(problem.kind, ProblemKind::MissingField(_)) {
                context.say(finding(context, &problem, given, &shape, &path, false));
            }
        }
    }
}

fn look(context: &mut Context<'_>, written: &Written<'_>) {
    selector(context, written);
    ports(context, written);
}

fn selector(context: &mut Context<'_>, Written { service, path, cluster, labels, .. }: &Written<'_>) {
    for (key, value) in [("dask.org/cluster-name", *cluster), ("dask.org/component", "scheduler")] {
        if service["selector"][key] != value {
            let place = path.key("selector").key(key);
            let what = format!("the Service does not select the scheduler: `{key}` is not `{value}`");
            let help = format!("write `{key}: {value}`; the operator adds nothing");
            context.say(Diagnostic::error(Code::DaskService, what).at_value(place, "").help(help));
        }
    }
    let others = service["selector"].as_object().into_iter().flatten();
    for (key, value) in others.filter(|(key, _)| !key.starts_with("dask.org/c")) {
        if value.as_str().is_none_or(|value| labels.get(key.as_str()) != Some(&value)) {
            let what = format!(
                "the Service selects nothing: no pod of the scheduler has the label `{key}` with this value"
            );
            let help =
                "remove it from the selector, or give the cluster the label: the operator copies its labels";
            let place = path.key("selector").key(key);
            context.say(Diagnostic::error(Code::DaskService, what).at_value(place, "").help(help));
        }
    }
}

fn ports(context: &mut Context<'_>, Written { service, path, cluster, pod_ports, .. }: &Written<'_>) {
    let list = || service["ports"].as_array().into_iter().flatten();
    // The operator takes a port of the Service's own name, too.
    let service_name = format!("{cluster}-scheduler");
    for name in PORTS {
        let count = list().filter(|port| port["name"] == name || port["name"] == *service_name).count();
        if count == 1 {
            continue;
        }
        let (what, help) = match count {
            0 => (
                format!("the Service has no port `{name}`, which the operator looks up by this name"),
                format!("add `- {{ name: {name}, protocol: TCP, port: …, targetPort: {name} }}`"),
            ),
            _ => (
                format!(
                    "the operator finds {count} ports for `{name}` and uses none: `{service_name}` counts, too"
                ),
                format!("keep the port `{name}` and rename the other"),
            ),
        };
        context.say(Diagnostic::error(Code::DaskService, what).at_key(path.key("ports"), "").help(help));
    }
    for (place, port) in list().enumerate() {
        let path = path.key("ports").index(place);
        let named = port["targetPort"].as_str().filter(|name| name.parse::<u16>().is_err());
        if let Some(name) = named.filter(|name| !pod_ports.is_empty() && !pod_ports.contains(name)) {
            let what = format!("the scheduler's containers have no port `{name}`");
            let help = format!("they have {}", model::diag::listed(pod_ports.iter().copied(), "and"));
            context.say(
                Diagnostic::error(Code::DaskService, what).at_value(path.key("targetPort"), "").help(help),
            );
        }
        let number = port["nodePort"].as_u64();
        if let Some(number) = number.filter(|number| !(30000..=32767).contains(number)) {
            let what = format!("`nodePort` {number} is outside 30000 to 32767, the range of API servers");
            let help = "the operator would retry forever: omit it to have one chosen";
            context.say(
                Diagnostic::warning(Code::DaskService, what).at_value(path.key("nodePort"), "").help(help),
            );
        }
    }
}

/// Warns of schedulers that are reachable from the internet: anyone can run code on them.
pub(crate) fn schedulers_are_not_public(context: &mut Context<'_>) {
    let what = "anyone who can reach this scheduler can run code in the cluster, and it is on the internet";
    let stack = context.stack;
    for (key, cluster) in &stack.dask_cluster {
        let path = FieldPath::keys(["dask_cluster", key, "service"]);
        let service = &cluster.service;
        if !service.public {
            continue;
        }
        context.say(if service.r#type == ServiceType::LoadBalancer {
            let ranges = service.spec.as_ref().map(|spec| &spec.0["loadBalancerSourceRanges"]);
            let help = match ranges.and_then(Value::as_array) {
                Some(_) => "only addresses in `loadBalancerSourceRanges` can reach it: keep them few",
                None => {
                    "`dask-infra connect` needs no load balancer; without `public` it is internal to the VPC \
                     network; `spec = { loadBalancerSourceRanges = [\"198.51.100.0/24\"] }` restricts access"
                }
            };
            Diagnostic::warning(Code::PublicScheduler, what).at_value(path.key("public"), "").help(help)
        } else {
            let what = format!("a {} is not public", service.r#type.as_str());
            let finding =
                Diagnostic::error(Code::PublicScheduler, what).at_value(path.key("public"), "has no effect");
            finding.help("`public` belongs to `type = \"LoadBalancer\"`: remove it")
        });
    }
    for object in bundle::objects(&stack.bundles()).filter(|object| object.kind() == "DaskCluster") {
        let scheduler = &object.value["spec"]["scheduler"];
        let annotations = [&object.value["metadata"]["annotations"], &scheduler["metadata"]["annotations"]];
        let all = annotations.into_iter().filter_map(Value::as_object).flatten();
        let all = all.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()));
        if scheduler["service"]["type"] != "LoadBalancer" || is_internal(all) {
            continue;
        }
        let place = object.origin().key("spec").key("scheduler").key("service").key("type");
        let help = "the annotation `networking.gke.io/load-balancer-type: Internal` under `spec.scheduler.metadata` keeps \
                    it inside the VPC network; `dask-infra connect` needs no load balancer";
        context.say(Diagnostic::warning(Code::PublicScheduler, what).at_value(place, "").help(help));
    }
}

/// Reports a NetworkPolicy that nothing enforces, and a Service whose clients it blocks.
pub(crate) fn policies_are_followed(context: &mut Context<'_>) {
    let stack = context.stack;
    if stack.is_on_hosts() {
        return;
    }
    let closed: Vec<(FieldPath, &DaskCluster)> = stack
        .dask_cluster
        .iter()
        .filter(|(_, cluster)| cluster.manage.is_managed() && !cluster.network_policy.is_open())
        .map(|(key, cluster)| (FieldPath::keys(["dask_cluster", key]), cluster))
        .collect();
    let jobs = stack.dask_job.iter().filter(|(_, job)| {
        job.manage.is_managed() && job.network_policy.as_ref().is_some_and(|own| !own.is_open())
    });
    let jobs = jobs.map(|(key, _)| FieldPath::keys(["dask_job", key]));
    let idle = stack.cluster.as_ref().is_some_and(|cluster| !enforces_policies(cluster));
    for path in closed.iter().map(|(path, _)| path.clone()).chain(jobs).filter(|_| idle) {
        let what = "nothing enforces this network policy: `[cluster]` has neither `dataplane_v2` nor `network_policy`";
        let help = "`dataplane_v2 = true` in `[cluster]` does, for a cluster that is created with it; `network_policy = true` \
                    there can be switched on later";
        let finding = Diagnostic::warning(Code::NetworkPolicyIdle, what);
        context.say(finding.at_value(path.key("network_policy"), "has no effect").help(help));
    }
    for (path, cluster) in closed {
        let kind = cluster.service.r#type;
        if kind == ServiceType::ClusterIP || !cluster.network_policy.others().is_empty() {
            continue;
        }
        let what =
            format!("no client reaches this {}: `network_policy` admits none from outside", kind.as_str());
        let help = "name the addresses of its clients: `network_policy = { from = [{ ipBlock = { cidr = \"10.0.0.0/8\" } }] }`";
        let finding = Diagnostic::warning(Code::NetworkPolicyIdle, what);
        context.say(finding.at_value(path.key("service"), "").help(help));
    }
}

/// Returns true if GKE enforces NetworkPolicies in a cluster, or may do so: an external cluster, and `networkConfig` or
/// `networkPolicy` under `api`, count as enforcing.
fn enforces_policies(cluster: &Cluster) -> bool {
    let says = |field: &str| cluster.api.contains_key(field);
    !cluster.manage.is_managed()
        || cluster.autopilot
        || cluster.dataplane_v2 == Some(true)
        || cluster.network_policy == Some(true)
        || says("networkConfig")
        || says("networkPolicy")
}
