//! `[dask_operator]` and `[namespace.NAME]`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{Draft, Found, text};
use kinds::dask;
use kinds::scope::OPERATOR_NAME;
use kinds::section::Manage;
use model::resource::ObjectId;
use model::schema::DASK_GROUP;
use stack::{DaskOperator, Namespace};

/// The default repository of the operator's image.
const IMAGE: &str = "ghcr.io/dask/dask-kubernetes-operator:";

pub(crate) fn import(found: &Found, draft: &mut Draft) {
    operator(found, draft);
    namespaces(found, draft);
}

fn operator(found: &Found, draft: &mut Draft) {
    let mut operators = found
        .objects
        .iter()
        .filter(|(object, live)| object.gvk.kind == "Deployment" && dask::operator::is_operator(live));
    let served = || {
        let definition = |object: &&ObjectId| {
            object.gvk.kind == "CustomResourceDefinition" && object.name.ends_with(DASK_GROUP)
        };
        found.objects.keys().any(|object| definition(&object))
    };
    let Some((object, live)) = operators.next() else {
        if served() {
            draft.unsupported.push(
                "the Dask operator: its definitions exist, but no Deployment with the label \
                 app.kubernetes.io/name=dask-kubernetes-operator was found"
                    .to_owned(),
            );
        }
        return;
    };
    for (other, _) in operators {
        draft.unsupported.push(format!("{other}: a second Dask operator; two operators conflict"));
    }
    let namespace = object.namespace.clone().unwrap_or_default();
    let image = text(&live["spec"]["template"]["spec"]["containers"][0]["image"]);
    let version = image.strip_prefix(IMAGE).unwrap_or_default();
    draft.above("dask_operator", format!("The Dask operator: {object}."));
    crate::gke::owned("dask_operator", live, draft);
    if object.name != OPERATOR_NAME {
        draft.below(
            "dask_operator",
            format!(
                "a stack names its Deployment {OPERATOR_NAME}: adopting it would create a second operator"
            ),
        );
    }
    if !version.is_empty() && version != dask::operator::BUILT_IN_VERSION {
        draft.below(
            "dask_operator",
            format!(
                "a stack manages only release {}: adopting it with that version changes the operator to it",
                dask::operator::BUILT_IN_VERSION
            ),
        );
    }
    draft.stack.dask_operator = Some(DaskOperator {
        version: version.to_owned(),
        namespace: (namespace != "dask-operator").then_some(namespace),
        image: (version.is_empty() && !image.is_empty()).then(|| image.to_owned()),
        manage: Manage::EXTERNAL,
        ..DaskOperator::default()
    });
}

/// Adds sections with `manage = false` for the namespaces of imported Dask objects, except built-in ones and the operator's.
fn namespaces(found: &Found, draft: &mut Draft) {
    let dask = found.objects.keys().filter(|object| object.gvk.group == DASK_GROUP);
    let used: BTreeSet<&String> = dask.filter_map(|object| object.namespace.as_ref()).collect();
    let built_in = |name: &str| name == "default" || name.starts_with("kube-");
    let of_operator = draft.stack.dask_operator.as_ref().map(|operator| operator.namespace().to_owned());
    for name in used.into_iter().filter(|name| !built_in(name) && of_operator.as_ref() != Some(*name)) {
        let live = found
            .objects
            .iter()
            .find(|(object, _)| object.gvk.kind == "Namespace" && object.name == *name)
            .map_or(&Value::Null, |(_, live)| live);
        let section = format!("namespace.{name}");
        crate::gke::owned(&section, live, draft);
        let labels = own(&live["metadata"]["labels"]);
        let annotations = own(&live["metadata"]["annotations"]);
        let namespace = Namespace { labels, annotations, manage: Manage::EXTERNAL, ..Namespace::default() };
        draft.stack.namespace.insert(name.clone(), namespace);
    }
}

/// Returns labels or annotations that users set, without those of the server, of tools and of stacks.
pub(crate) fn own(live: &Value) -> BTreeMap<String, String> {
    let of_tools = |key: &str| {
        let domain = key.split_once('/').map_or("", |(domain, _)| domain);
        let tools = [
            "kubernetes.io",
            "k8s.io",
            "helm.sh",
            "argoproj.io",
            "fluxcd.io",
            "kopf.zalando.org",
            "dask-infra.dev",
        ];
        tools.iter().any(|tool| domain == *tool || domain.ends_with(&format!(".{tool}")))
    };
    let pairs = live.as_object().into_iter().flatten().filter(|(key, _)| !of_tools(key));
    pairs.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
}
