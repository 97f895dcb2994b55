//! Further groups of workers of a Dask cluster on a host.

use serde_json::{Value, json};

use crate::dask::api::GROUP_LABEL;
use crate::dask::cluster::DaskCluster;
use crate::dask::group::{DaskGroup, address};
use crate::hosts::{api, files, workers};
use crate::kind::{Compare, Kind, PodSource, address_in};
use crate::kubernetes::object::pods_labelled;
use crate::scope::Scope;
use model::address::{Address, FieldPath};
use model::resource::{Effect, Identity, KindId, Recreation, Resource};

pub const KIND: Kind = Kind {
    rank: 61,
    compare: Compare::Kubernetes(effect),
    change_steps: |context| workers::change_steps(context, KindId::HostGroup),
    find_defect: workers::find_defect,
    readiness: |wait, found| Ok(workers::readiness(wait, found.own_object())),
    status_line: |_, found| Ok(workers::status_line(found.own_object())),
    plan_summary: |resource| vec![workers::about(&resource.body["spec"]["worker"])],
    pods,
    scale_target: workers::scaled,
    rolling_effect: workers::RESTART_EFFECT,
    retires_gracefully: true,
    address: |object| address_in("dask_cluster", object),
    ..Kind::DEFAULT
};

/// Lowers `[dask_cluster.X.group.KEY]` on a host to a resource.
pub(crate) fn lower(
    of: &Resource,
    cluster_name: &str,
    cluster: &DaskCluster,
    key: &str,
    section: &DaskGroup,
    scope: &Scope,
) -> Resource {
    let name = section.live_name(cluster_name, key);
    let api = api::group();
    let origin = of.origin.key("group").key(key);
    let environment = section.environment.as_deref().or(cluster.environment.as_deref());
    let mut depends_on = vec![of.address.clone()];
    depends_on.extend(workers::dependencies(environment, scope));
    depends_on.extend(workers::secret_dependency([&section.keys.env], scope));
    depends_on.extend(section.lifecycle.depends_on.iter().map(Address::new));
    let mut provenance = workers::provenance(&origin, &section.process);
    provenance.push((FieldPath::keys(["spec", "environment"]), origin.key("environment")));
    let worker = FieldPath::keys(["spec", "worker"]);
    let table = of.origin.key("config");
    provenance.extend(cluster.config.process_provenance(&section.keys.env, &worker, &table));
    let mut spec = json!({
        "cluster": cluster_name,
        "environment": workers::environment(environment, scope),
        "worker": workers::body(
            section.replicas.most(),
            &section.keys,
            (&section.process, &section.device_memory),
            &cluster.config,
            &section.resources,
            scope,
        ),
    });
    let code = cluster.code.at(&of.origin);
    files::add(&mut spec, &code);
    files::add_folder(&mut spec["worker"], code.folder());
    provenance.extend(files::provenance(&code, &[("worker", None)]));
    workers::add_slurm_options(&mut spec["worker"], section.slurm.as_ref(), scope);
    if let Some(names) = scope.target.host_names() {
        let hosts = workers::hosts_of(&section.hosts, &names);
        spec["worker"]["hosts"] = json!(hosts);
        spec["hosts"] = json!(hosts);
    }
    Resource {
        address: address(&of.address, key),
        identity: api::identity(&api, &name),
        kind: KindId::HostGroup,
        body: json!({
            "apiVersion": api.api_version(), "kind": api.kind,
            "metadata": { "name": name, "labels": scope.labels() },
            "spec": spec,
        }),
        create_only: Value::Null,
        provenance,
        origin,
        depends_on,
        protect: section.lifecycle.protect,
        recreation: Recreation::Always,
    }
}

fn effect(path: &FieldPath) -> (Effect, Option<&'static str>) {
    if FieldPath::keys(["spec", "cluster"]).contains(path) {
        return (Effect::Replace, Some("a group belongs to the cluster it was created for"));
    }
    // The remaining field is the environment.
    let rolls = (Effect::Rolling, Some(workers::RESTART_NOTE));
    workers::effect(path).unwrap_or(rolls)
}

fn pods(resource: &Resource) -> PodSource {
    let Identity::Object(object) = &resource.identity else { return PodSource::None };
    PodSource::Known(pods_labelled(Some(api::NAMESPACE), [(GROUP_LABEL, object.name.as_str())]))
}
