//! Checks of sections that belong together, and of references between sections.

use std::collections::BTreeSet;

use crate::rules::Context;
use crate::rules::names::is_object_name;
use crate::sections::Placed;
use crate::{Cluster, Stack};
use kinds::kubernetes::bundle::{self, Kinds, Object};
use kinds::scope::{DASK_OPERATOR, KUEUE};
use model::address::FieldPath;
use model::diag::{Code, Diagnostic, listed, nearest};

/// Checks that the file has exactly one of `[gke]`, `[kubernetes]`, `[local]`, `[ssh]` and `[slurm]`.
pub(crate) fn one_target(context: &mut Context<'_>) {
    let all = targets(context.stack);
    let path = |name: &str| FieldPath::keys([name]);
    let broken = all.iter().any(|(name, _)| context.is_doubtful(&path(name)));
    let given: Vec<&str> = all.iter().filter(|(_, there)| *there).map(|(name, _)| *name).collect();
    match given.as_slice() {
        [] if !broken => context.say(
            Diagnostic::error(Code::Target, "the stack has no target")
                .at_value(FieldPath::keys(["stack"]), "this stack")
                .help(
                    "add `[gke]` with `project` and `location`, `[kubernetes]` with the `context` of an existing \
                     cluster, `[local]` for processes on this machine, `[ssh]` for processes on other hosts, or `[slurm]` for jobs",
                ),
        ),
        [one, other, ..] => context.say(
            Diagnostic::error(Code::Target, "the stack has two targets")
                .at_value(path(one), "one")
                .at_value(path(other), "the other")
                .help(
                    "keep `[gke]` to create a cluster, `[kubernetes]` to use an existing one, `[local]` for \
                     processes on this machine, `[ssh]` for processes on other hosts, or `[slurm]` for jobs",
                ),
        ),
        _ => {}
    }
}

/// Returns the sections that define a target, each with true if the stack has it.
fn targets(stack: &Stack) -> [(&'static str, bool); 5] {
    [
        ("gke", stack.gke.is_some()),
        ("kubernetes", stack.kubernetes.is_some()),
        ("local", stack.local.is_some()),
        ("ssh", stack.ssh.is_some()),
        ("slurm", stack.slurm.is_some()),
    ]
}

pub(crate) fn has_two_targets(stack: &Stack) -> bool {
    targets(stack).iter().filter(|(_, there)| *there).count() > 1
}

/// Checks that the sections of GKE are complete.
pub(crate) fn sections_have_what_they_need(context: &mut Context<'_>) {
    let stack = context.stack;
    // That these sections are not for hosts is said by itself.
    if stack.is_on_hosts() {
        return;
    }
    let has = |context: &Context<'_>, section: &str, there: bool| {
        there || context.is_doubtful(&FieldPath::keys([section]))
    };
    let gke = has(context, "gke", stack.gke.is_some());
    let cluster = has(context, "cluster", stack.cluster.is_some());
    let pools = stack.node_pool.values().any(|pool| pool.manage.is_managed())
        || context.doubt.sections.iter().any(|path| top_is(path, "node_pool"));
    let mut need = |section: FieldPath, needed: &str, why: &str, help: &str| {
        let message = format!("`[{section}]` needs `[{needed}]`");
        let finding = Diagnostic::error(Code::SectionNeedsSection, message).at_value(section, why);
        let gone = context.gone(&FieldPath::keys(needed.split('.').take(1)));
        context.say(finding.with(gone).help(help));
    };
    if let Some(name) = stack.node_pool.keys().next().filter(|_| !cluster) {
        let pool = FieldPath::keys(["node_pool", name]);
        need(
            pool,
            "cluster",
            "needs a cluster",
            "add `[cluster]` with a `name`; on an existing cluster (`[kubernetes]`) node pools are managed \
             elsewhere",
        );
    }
    if stack.cluster.is_some() && !gke && stack.kubernetes.is_some() {
        let help = "`[kubernetes]` is an existing cluster; use `[gke]` instead to create one";
        need(FieldPath::keys(["cluster"]), "gke", "needs a target", help);
    }
    // Without pools the missing cluster was not said yet.
    if stack.gke.is_some() && !cluster && stack.node_pool.is_empty() {
        need(FieldPath::keys(["gke"]), "cluster", "needs a cluster", "add `[cluster]` with a `name`");
    }
    let own_pools = |cluster: &Cluster| cluster.manage.is_managed() && !cluster.autopilot;
    if stack.cluster.as_ref().is_some_and(own_pools) && !pools {
        let help = "GKE creates no cluster without nodes: add `[node_pool.NAME]` with a `machine_type`";
        need(FieldPath::keys(["cluster"]), "node_pool.NAME", "has no nodes", help);
    }
}

/// Checks that a budget limits something.
pub(crate) fn budget_limits_something(context: &mut Context<'_>) {
    let stack = context.stack;
    let budget = FieldPath::keys(["budget"]);
    let elsewhere = targets(stack).iter().any(|(name, there)| *there && *name != "gke");
    if stack.budget.is_none()
        || stack.gke.is_some()
        || !elsewhere
        || context.is_doubtful(&FieldPath::keys(["gke"]))
    {
        return;
    }
    let finding = Diagnostic::error(Code::SectionNeedsSection, "`[budget]` needs `[gke]`");
    let gone = context.gone(&FieldPath::keys(["gke"]));
    let help = "remove it: only what a stack creates on Google Cloud has a price";
    context.say(finding.at_value(budget, "limits nothing").with(gone).help(help));
}

fn top_is(path: &FieldPath, section: &str) -> bool {
    FieldPath::keys([section]).contains(path)
}

/// Checks that `depends_on` names sections of this file.
pub(crate) fn dependencies_exist(context: &mut Context<'_>) {
    let all = context.stack.sections();
    let sections: BTreeSet<String> = all.iter().map(|placed| placed.path.to_string()).collect();
    for Placed { path, section, .. } in all {
        for (index, address) in section.depends_on().iter().enumerate() {
            let place = path.key("depends_on").index(index);
            dependency(context, &sections, &path, place, address);
        }
    }
}

fn dependency(
    context: &mut Context<'_>,
    sections: &BTreeSet<String>,
    section: &FieldPath,
    place: FieldPath,
    address: &str,
) {
    let target = address.split('/').next().unwrap_or_default();
    let broken = context.is_doubtful(&target.parse().unwrap_or_default());
    if target == section.to_string() {
        let message = format!("`{target}` depends on itself");
        context.say_of_value(
            Diagnostic::error(Code::UnknownAddress, message).at_value(place, "").help("remove it"),
        );
    } else if !sections.contains(target) && !broken {
        let message = format!("unknown address `{address}`");
        let gone = context.gone(&target.parse().unwrap_or_default());
        let ending = |known: &&str| known.split_once('.').is_some_and(|(_, name)| name == target);
        let known = || sections.iter().map(String::as_str);
        let help = match known().find(ending).or_else(|| nearest(target, known())) {
            _ if gone.is_some() => format!("restore `[{target}]`, or remove this reference"),
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("this file has {}", listed(known(), "and")),
        };
        let finding =
            Diagnostic::error(Code::UnknownAddress, message).at_value(place, "not in this file").with(gone);
        context.say_of_value(finding.help(help));
    }
}

/// Checks that `pool` and `prefer_pool` name node pools of this file.
pub(crate) fn pools_exist(context: &mut Context<'_>) {
    let mut references: Vec<(FieldPath, &str)> = Vec::new();
    for pod in context.pods() {
        let (pool, prefer) = (pod.path.key("pool"), pod.path.key("prefer_pool"));
        references.extend(pod.keys.pool.as_deref().map(|name| (pool, name)));
        references.extend(pod.keys.prefer_pool.as_deref().map(|name| (prefer, name)));
    }
    for (path, check) in context.checks() {
        references.extend(check.pool.as_deref().map(|name| (path.key("pool"), name)));
    }
    let stack = context.stack;
    // That an Autopilot cluster has none is said by another rule.
    if stack.cluster.as_ref().is_some_and(|cluster| cluster.autopilot) {
        return;
    }
    for (place, name) in references {
        let pools = context.keys("node_pool", stack.node_pool.keys());
        let section = FieldPath::keys(["node_pool", name]);
        if pools.contains(&name) || context.is_doubtful(&section) {
            continue;
        }
        let message = format!("there is no node pool `{name}`");
        let gone = context.gone(&section);
        let by_live_name =
            context.stack.node_pool.iter().find(|(_, pool)| pool.name.as_deref() == Some(name));
        let help = if gone.is_some() {
            format!("restore `[node_pool.{name}]`, or remove this reference")
        } else if let Some((key, _)) = by_live_name {
            format!("pools are named by their key: `{key}`")
        } else if let Some(near) = nearest(name, pools.iter().copied()) {
            format!("did you mean `{near}`? This file has {}", listed(pools.iter().copied(), "and"))
        } else if context.stack.kubernetes.is_some() {
            "on an existing cluster (`[kubernetes]`) node pools are managed elsewhere: remove the key"
                .to_owned()
        } else if pools.is_empty() {
            format!("add `[node_pool.{name}]` with a `machine_type`")
        } else {
            format!("this file has {}", listed(pools.iter().copied(), "and"))
        };
        let finding =
            Diagnostic::error(Code::UnknownPool, message).at_value(place, "no such pool").with(gone);
        context.say_of_value(finding.help(help));
    }
}

/// Checks that a namespace is `default` or has a section.
pub(crate) fn namespaces_are_declared(context: &mut Context<'_>) {
    let stack = context.stack;
    let mut declared: BTreeSet<&str> =
        stack.namespace.iter().map(|(key, namespace)| namespace.name.as_deref().unwrap_or(key)).collect();
    let kinds = Kinds::of(&stack.bundles());
    let objects: Vec<Object<'_>> = bundle::objects(&stack.bundles()).collect();
    let made = objects.iter().filter(|object| object.kind() == "Namespace");
    declared.extend(made.filter_map(|object| object.value["metadata"]["name"].as_str()));
    // Every cluster has these.
    declared.extend(["kube-system", "kube-public", "kube-node-lease"]);
    declared.extend(stack.dask_operator.as_ref().map(super::super::DaskOperator::namespace));
    declared.extend(stack.kueue.as_ref().map(super::super::Kueue::namespace));
    let mut used: Vec<(FieldPath, &str)> = Vec::new();
    for (key, queue) in &stack.queue {
        let list = FieldPath::keys(["queue", key, "namespaces"]);
        used.extend(
            queue.namespaces.iter().enumerate().map(|(index, name)| (list.index(index), name.as_str())),
        );
    }
    for Placed { row, path, section, .. } in stack.sections() {
        // The operator's own is made with it.
        let given = section.given_namespace().filter(|_| row.name != DASK_OPERATOR && row.name != KUEUE);
        used.extend(given.map(|namespace| (path.key("namespace"), namespace)));
    }
    for (key, release) in &stack.helm_release {
        let section = FieldPath::keys(["helm_release", key]);
        let others = release.other_namespaces.iter().enumerate();
        used.extend(
            others.map(|(index, name)| (section.key("other_namespaces").index(index), name.as_str())),
        );
    }
    for object in &objects {
        let (group, version) = object.group_version();
        let namespaced = kinds.api(group, version, object.kind()).is_some_and(|api| api.namespaced);
        // Objects of charts are reported at the section that names the chart.
        let told = namespaced && !object.bundle.is_chart();
        let namespace = object.value["metadata"]["namespace"].as_str().filter(|_| told);
        let place = object.origin().key("metadata").key("namespace");
        used.extend(namespace.map(|namespace| (place, namespace)));
    }
    for (place, namespace) in used {
        let broken = context.is_doubtful(&FieldPath::keys(["namespace", namespace]));
        if namespace == "default" || declared.contains(namespace) || broken || !is_object_name(namespace) {
            continue;
        }
        let message = format!("the stack does not create the namespace `{namespace}`");
        let help = match nearest(namespace, declared.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("add `[namespace.{namespace}]`, unless it is created elsewhere"),
        };
        context.say(Diagnostic::warning(Code::NamespaceNotDeclared, message).at_value(place, "").help(help));
    }
}
