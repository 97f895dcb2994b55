//! Lowers sections to resources. Each kind's file lowers its own section; this module passes it the facts about other sections.

use std::collections::BTreeSet;

use super::{Check, DaskCluster, Kueue, Queue, Sources, Ssh, Stack};
use kinds::dask::stack_expiry::{self, StackFacts};
use kinds::gke::enums::WorkloadMetadata;
use kinds::kind::StopEffect;
use kinds::scope::{DaskFacts, QueueFacts, Scope};
use kinds::section::{external_sections, managed};
use kinds::short_forms::Nodes;
use model::address::{Address, Segment};
use model::diag::{Code, Diagnostic};
use model::resource::{
    CapacityOptions, ClusterName, External, Identity, KindId, Owner, Resource, Role, Target,
};
use model::schema;

pub use model::resource::Lowered;

/// Lowers a stack to its resources. `simulated` is true if requests go to the sandbox and not to Google Cloud.
pub fn lower(stack: &Stack, simulated: bool) -> Lowered {
    let scope = scope(stack, simulated);
    let mut resources = Vec::new();
    if let (Some(section), Some(name)) = (&stack.cluster, &scope.target.gke) {
        if section.manage.is_managed() {
            resources.push(kinds::gke::cluster::lower(section, name, &scope));
        }
        resources.extend(
            managed(&stack.node_pool)
                .map(|(key, pool)| kinds::gke::node_pool::lower(key, pool, name, &scope)),
        );
    }
    resources.extend(
        managed(&stack.namespace)
            .map(|(key, section)| kinds::kubernetes::namespace::lower(key, section, &scope)),
    );
    let driver = stack.gpu_driver.as_ref().filter(|driver| driver.manage.is_managed());
    resources.extend(driver.and_then(|section| kinds::gke::gpu_driver::lower(section, &scope)));
    resources.extend(stack.check.iter().flat_map(|(key, section)| {
        let cluster = stack.cluster_of_check(section);
        let (mut check, files) = kinds::dask::check::lower(key, section, cluster, &scope);
        let code = section.code(cluster, &check.origin).filter(|_| scope.target.is_on_hosts());
        let on_hosts = code.and_then(|code| kinds::hosts::files::lower(&mut check, &code, &scope));
        std::iter::once(check).chain(files).chain(on_hosts)
    }));
    let made = kinds::kubernetes::manifest::lower(&stack.bundles(), &scope);
    let (operator, others) = of_section(kinds::scope::DASK_OPERATOR, made);
    let (kueue, others) = of_section(kinds::scope::KUEUE, others);
    match stack.dask_operator.as_ref().filter(|operator| operator.manage.is_managed()) {
        Some(section) if section.is_chart() => {
            resources.extend(kinds::dask::operator::lower_chart(section, operator, &scope));
        }
        Some(section) => resources.extend(kinds::dask::operator::lower(section, &scope)),
        None => {}
    }
    if let Some(section) = stack.kueue.as_ref().filter(|section| section.manage.is_managed()) {
        resources.extend(kinds::kubernetes::kueue::install::lower(section, kueue, &scope));
    }
    resources.extend(kinds::kubernetes::kueue::queue::lower_all(&stack.queue, &scope));
    resources.extend(kinds::env::lower(&needed(stack), &scope));
    let environments = stack.environment.iter();
    resources.extend(
        environments.flat_map(|(key, section)| kinds::hosts::environment::lower(key, section, &scope)),
    );
    let clusters = stack.dask_cluster.iter();
    resources.extend(clusters.flat_map(|(key, section)| match scope.target.is_on_hosts() {
        true => kinds::hosts::cluster::lower(key, section, &scope),
        false => kinds::dask::cluster::lower(key, section, &scope),
    }));
    resources.extend(managed(&stack.dask_job).flat_map(|(key, section)| match scope.target.is_on_hosts() {
        true => kinds::hosts::job::lower(key, section, like(stack, section), &scope),
        false => kinds::dask::job::lower(key, section, like(stack, section), &scope),
    }));
    resources.extend(stack.provisioning_request.iter().flat_map(|(key, section)| {
        let job = section.job.as_deref().and_then(|job| Some((job, stack.job.get(job)?)));
        kinds::kubernetes::provisioning::lower(key, section, job, &scope)
    }));
    resources.extend(stack.job.iter().map(|(key, section)| {
        let request = stack.request_of(key).map(|(key, request)| request.requested(key));
        kinds::kubernetes::job::lower(key, section, request.as_ref(), &scope)
    }));
    resources.extend(stack.notebook.iter().flat_map(|(key, section)| {
        let like = section.like.as_ref().and_then(|like| stack.dask_cluster.get(like));
        kinds::dask::notebook::lower(key, section, like, &scope)
    }));
    // Accounts, ConfigMaps, Secrets and claims of the stack's own manifests come before the pods that name them.
    let made_by_files = kinds::kubernetes::manifest::ManifestIndex::of(&others);
    resources.iter_mut().for_each(|resource| made_by_files.order(resource));
    resources.extend(others);
    kinds::kubernetes::helm_release::add_provenance(&stack.helm_release, &mut resources);
    let expiry = expiry(stack, &resources, &scope);
    resources.extend(expiry);
    let external = external(stack, &scope);
    let capacity_options = capacity_options(stack, &scope);
    let Scope { owner, target, .. } = scope;
    Lowered { owner, target, resources: resources.into(), external, capacity_options }
}

/// Lowers `ttl` and `idle_stop` of the stack, which stop its other resources.
fn expiry(stack: &Stack, resources: &[Resource], scope: &Scope) -> Vec<Resource> {
    let stops = resources.iter().filter_map(|resource| {
        let object = resource.identity.object()?;
        match kinds::of(resource.kind).stop_effect {
            StopEffect::Deletes => Some((object, false)),
            StopEffect::DeletesWhile(_) => Some((object, true)),
            StopEffect::Nothing | StopEffect::Empties(_) => None,
        }
    });
    let causes = stack.stack.expirations().map(|(cause, _)| cause).collect();
    let facts = StackFacts { home: expiry_pool(stack), stops: stops.collect(), causes, resources };
    let on_cluster = stack.stack.expirations().filter(|_| !scope.target.is_on_hosts());
    on_cluster.flat_map(|(cause, after)| stack_expiry::lower(cause, after, &facts, scope)).collect()
}

/// Returns the live name of the pool for the CronJobs of the stack: one that always has a node, on which also kube-dns runs, and whose
/// Pods have an identity. Without Spot if possible.
pub(crate) fn expiry_pool(stack: &Stack) -> Option<&str> {
    let always = managed(&stack.node_pool).filter(|(_, pool)| match pool.nodes {
        Some(Nodes::Fixed(nodes)) => nodes > 0,
        Some(Nodes::Autoscaled { min, .. }) => min > 0,
        None => pool.queued != Some(true),
    });
    // GKE taints nodes with GPUs beside others.
    let is_mixed = managed(&stack.node_pool).any(|(_, pool)| pool.gpus().is_none());
    let usable = always.filter(|(_, pool)| pool.gpus().is_none() || !is_mixed).filter(|(_, pool)| {
        let identity = pool.workload_metadata != Some(WorkloadMetadata::Gce);
        pool.taints.is_empty() && pool.flex_start != Some(true) && identity
    });
    let pool = usable.min_by_key(|(_, pool)| pool.spot);
    pool.map(|(key, pool)| pool.live_name(key))
}

/// Splits objects from YAML into those of a section and all others.
fn of_section(section: &str, objects: Vec<Resource>) -> (Vec<Resource>, Vec<Resource>) {
    objects.into_iter().partition(|resource| resource.address.section() == section)
}

/// Returns the capacity options of the pools that have several.
fn capacity_options(stack: &Stack, scope: &Scope) -> Vec<CapacityOptions> {
    let Some(cluster) = &scope.target.gke else { return Vec::new() };
    let pools = managed(&stack.node_pool);
    pools
        .filter_map(|(key, pool)| kinds::gke::node_pool::capacity_options(key, pool, cluster, scope))
        .collect()
}

/// Returns the variables that the created pods need from the environment of whoever applies the stack.
fn needed(stack: &Stack) -> Vec<kinds::env::NeededVariable<'_>> {
    let sections = stack.sections();
    let own = sections.iter().filter(|placed| !placed.is_inner);
    let mut all: Vec<_> = own.flat_map(|placed| placed.section.environment(&placed.path)).collect();
    for (_, job) in managed(&stack.dask_job) {
        all.extend(job.copied_environment(like(stack, job)));
    }
    all
}

/// Returns the key of the pool that a check runs on.
fn pool_of_check(stack: &Stack, check: &Check) -> Option<String> {
    let like = stack.cluster_of_check(check).filter(|_| check.is_like_worker());
    like.map_or_else(|| check.pool.clone(), |(_, like)| like.worker.keys.pool.clone())
}

/// Returns the section that a job copies.
fn like<'a>(stack: &'a Stack, section: &super::DaskJob) -> Option<&'a DaskCluster> {
    section.like.as_ref().and_then(|like| stack.dask_cluster.get(like))
}

/// Returns the external resources that sections with `manage = false` depend on.
fn external(stack: &Stack, scope: &Scope) -> Vec<External> {
    let mut needed = Vec::new();
    if let (Some(section), Some(name)) = (&stack.cluster, &scope.target.gke) {
        needed.extend(
            (!section.manage.is_managed()).then(|| kinds::gke::cluster::lower_external(section, name, scope)),
        );
        let pools = external_sections(&stack.node_pool);
        needed.extend(pools.map(|(key, pool)| kinds::gke::node_pool::lower_external(key, pool, name, scope)));
    }
    let driver = stack.gpu_driver.as_ref().filter(|driver| !driver.manage.is_managed());
    needed.extend(driver.and_then(|section| kinds::gke::gpu_driver::lower_external(section, scope)));
    let namespaces = external_sections(&stack.namespace);
    needed.extend(
        namespaces.map(|(key, section)| kinds::kubernetes::namespace::lower_external(key, section, scope)),
    );
    let queues = external_sections(&stack.queue);
    needed.extend(
        queues
            .flat_map(|(key, section)| kinds::kubernetes::kueue::queue::lower_external(key, section, scope)),
    );
    // On a host nothing is of others.
    let clusters = stack.dask_cluster.iter().filter(|_| !scope.target.is_on_hosts());
    needed.extend(
        clusters.flat_map(|(key, section)| kinds::dask::cluster::lower_external(key, section, scope)),
    );
    let jobs = external_sections(&stack.dask_job).filter(|_| !scope.target.is_on_hosts());
    needed.extend(jobs.flat_map(|(key, section)| {
        kinds::dask::job::lower_external(key, section, like(stack, section), scope)
    }));
    let mut external: Vec<External> =
        needed.into_iter().map(|resource| External { resource, role: Role::Needed }).collect();
    let operator = stack.dask_operator.iter().filter(|operator| !operator.manage.is_managed());
    external.extend(operator.flat_map(|section| kinds::dask::operator::lower_external(section, scope)));
    let kueue = stack.kueue.iter().filter(|section| !section.manage.is_managed());
    external
        .extend(kueue.flat_map(|section| kinds::kubernetes::kueue::install::lower_external(section, scope)));
    external
}

/// Returns the facts that sections may use about other sections.
pub fn scope(stack: &Stack, simulated: bool) -> Scope {
    let cluster = stack.gke.as_ref().zip(stack.cluster.as_ref());
    let target = Target {
        gke: cluster.map(|(gke, cluster)| ClusterName {
            project: gke.project.clone(),
            location: gke.location.clone(),
            cluster: cluster.name.clone(),
        }),
        endpoint: stack.cluster.as_ref().and_then(|cluster| cluster.endpoint).unwrap_or_default(),
        hosts: stack.hosts(),
        gone: stack.ssh.as_ref().map(Ssh::gone).unwrap_or_default(),
        context: stack.kubernetes.as_ref().and_then(|kubernetes| kubernetes.context.clone()),
        kubeconfig: stack.kubernetes.as_ref().and_then(|kubernetes| kubernetes.kubeconfig.clone()),
        simulated,
    };
    Scope {
        owner: owner(stack),
        target,
        pools: stack.node_pool.iter().map(|(key, pool)| pool.facts(key)).collect(),
        driver: stack.gpu_driver.as_ref().map(|driver| driver.install).unwrap_or_default(),
        sections: stack
            .sections()
            .iter()
            .filter(|placed| !placed.is_inner)
            .map(|placed| Address::new(placed.path.to_string()))
            .collect(),
        queues: stack
            .queue
            .iter()
            .map(|(key, queue)| QueueFacts {
                key: key.clone(),
                name: queue.live_name(key).to_owned(),
                namespaces: waiting_in(stack, key, queue),
                manages_priorities: queue.manage.is_managed(),
            })
            .collect(),
        operator_namespace: stack.dask_operator.as_ref().map(|section| section.namespace().to_owned()),
        newer_kueue: stack.kueue.as_ref().is_some_and(Kueue::is_newer),
        checks: stack
            .check
            .iter()
            // Clusters wait for checks of their pools; those of a cluster come after it.
            .filter(|(_, check)| check.is_of_pool())
            .map(|(key, check)| (Address::of("check", key), pool_of_check(stack, check)))
            .collect(),
        namespaces: stack
            .namespace
            .iter()
            .map(|(key, section)| {
                (section.name.clone().unwrap_or_else(|| key.clone()), Address::of("namespace", key))
            })
            .collect(),
        zones: zones(stack),
        dask: stack.dask_cluster.iter().map(|(key, section)| dask_facts(stack, key, section)).collect(),
        slurm: stack.slurm.as_ref().map(|slurm| slurm.keys.clone()),
        environments: stack
            .environment
            .iter()
            .map(|(key, section)| section.facts(key, &owner(stack)))
            .collect(),
        tls: stack.speaks_tls(),
    }
}

fn dask_facts(stack: &Stack, key: &str, section: &DaskCluster) -> DaskFacts {
    let name = section.live_name(key).to_owned();
    let hosts = stack.hosts();
    let scheduler = match hosts.is_empty() {
        false => kinds::hosts::cluster::scheduler_address(section, &hosts, stack.speaks_tls()),
        true => kinds::dask::api::scheduler_address(&name, section.namespace()),
    };
    let on =
        stack.ssh.as_ref().and_then(|_| kinds::hosts::cluster::scheduler_host(&section.scheduler, &hosts));
    let on = on.map(|host| host.name.clone());
    let (image, environment) = (section.image.clone(), section.environment.clone());
    let config = section.config.clone();
    let closed = !section.network_policy.is_open();
    let visited_from = visited_from(stack, key, section);
    DaskFacts {
        key: key.to_owned(),
        name,
        image,
        config,
        spills: section.has_cudf_spill(),
        is_network_restricted: closed,
        client_namespaces: visited_from,
        scheduler,
        environment,
        scheduler_host: on,
    }
}

/// Namespaces, beyond its own, with notebooks and checks of a Dask cluster.
fn visited_from(stack: &Stack, key: &str, section: &DaskCluster) -> BTreeSet<String> {
    let is = |named: &Option<String>| named.as_deref() == Some(key);
    let notebooks = stack.notebook.values().filter(|notebook| is(&notebook.like));
    let notebooks = notebooks.map(|notebook| notebook.namespace().to_owned());
    let checks = stack.check.values();
    let checks = checks.filter(|check| stack.cluster_of_check(check).is_some_and(|(of, _)| of == key));
    let checks = checks.map(|check| check.namespace.clone().unwrap_or_else(|| "default".to_owned()));
    let expiry = stack.stack.idle_stop.iter().map(|_| model::record::NAMESPACE.to_owned());
    notebooks.chain(checks).chain(expiry).filter(|namespace| namespace != section.namespace()).collect()
}

/// Returns the namespaces with work that waits in a queue.
fn waiting_in(stack: &Stack, key: &str, queue: &Queue) -> BTreeSet<String> {
    let mut namespaces: BTreeSet<String> = queue.namespaces.iter().cloned().collect();
    let is = |named: &Option<String>| named.as_deref() == Some(key);
    let clusters = stack.dask_cluster.values();
    let clusters =
        clusters.filter(|section| is(&section.queue) || section.group.values().any(|group| is(&group.queue)));
    namespaces.extend(clusters.map(|section| section.namespace().to_owned()));
    let jobs = stack.dask_job.values().filter(|section| is(&section.queue));
    namespaces.extend(jobs.map(|section| section.namespace().to_owned()));
    let jobs = stack.job.values().filter(|section| is(&section.queue));
    namespaces.extend(jobs.map(|section| section.namespace().to_owned()));
    namespaces
}

/// Returns the owner of everything that the stack creates.
pub fn owner(stack: &Stack) -> Owner {
    let id = stack.stack.id.clone().unwrap_or_else(|| stack.stack.name.clone());
    Owner { stack: stack.stack.name.clone(), id }
}

/// Returns the number of zones of the cluster's nodes: by default, GKE uses three zones for a regional cluster.
fn zones(stack: &Stack) -> u32 {
    let given = stack.cluster.as_ref().map_or(0, |cluster| cluster.zones.len());
    let regional = stack.gke.as_ref().is_some_and(|gke| gke.location.matches('-').count() == 1);
    match u32::try_from(given) {
        Ok(0) | Err(_) if regional => 3,
        Ok(0) | Err(_) => 1,
        Ok(zones) => zones,
    }
}

/// Checks the bodies of Kubernetes objects against the schemas of their kinds, without a server.
pub fn check(resources: &[Resource], sources: &Sources) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    for resource in resources {
        // Definitions are data of a release and checked by a test.
        if resource.kind == KindId::Crd {
            continue;
        }
        // Looked at when they are read, with the lines of their own files.
        let came_as_text = |segment: &Segment| *segment == Segment::Key("objects".to_owned());
        if resource.origin.segments().iter().skip(1).any(came_as_text) {
            continue;
        }
        let identity = match &resource.identity {
            Identity::Check(_) => Identity::Object(kinds::dask::check::pod(&resource.body)),
            other => other.clone(),
        };
        if identity.object().is_some() {
            for (path, what) in kinds::kubernetes::name_rules::refused(&resource.body) {
                let what = format!("{}: {what}", resource.address);
                let span = sources.span(&resource.origin_of(&path));
                found.push(Diagnostic::error(Code::Schema, what).at(span, "from here"));
            }
        }
        let Some(shape) = kinds::kubernetes::object::object_schema(&identity) else { continue };
        for problem in schema::check(&shape, &resource.body) {
            let what = format!("{}: {problem}", resource.address);
            let span = sources.span(&resource.origin_of(&problem.path));
            found.push(Diagnostic::error(Code::Schema, what).at(span, "from here"));
        }
    }
    found
}
