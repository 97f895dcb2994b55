//! The flavors of a queue, as they change the pods that start from it.

use std::collections::BTreeSet;

use super::kind;
use crate::json::text;
use fit::{PodRequirements, Toleration};
use model::address::FieldPath;
use model::resource::{ObjectId, Resource};
use serde_json::Value;

/// Returns the forms that a pod of a LocalQueue may have when Kueue starts it: with the node labels and tolerations of one flavor
/// for each group of resources that it requests, except for flavors that its own node selector excludes. `None` if the stack does not
/// have the queue or one of its flavors.
/// Source: `podset.FromAssignment` and the flavor assigner of Kueue 0.15.0.
pub fn started_forms(
    pod: &PodRequirements,
    queue: &str,
    resources: &[Resource],
) -> Option<Vec<PodRequirements>> {
    let find = |of: &str, namespace: Option<&str>, name: &str| {
        let id = ObjectId { gvk: kind(of), namespace: namespace.map(str::to_owned), name: name.to_owned() };
        resources.iter().find(|resource| resource.identity.object() == Some(&id))
    };
    let local = find("LocalQueue", Some(&pod.namespace), queue)?;
    let queue = find("ClusterQueue", None, text(&local.body["spec"]["clusterQueue"]))?;
    let requested: BTreeSet<String> =
        pod.requests.iter().map(|request| request.resource.name().to_owned()).collect();
    let suits = |flavor: &Resource| {
        let mut labels = flavor.body["spec"]["nodeLabels"].as_object().into_iter().flatten();
        labels.all(|(key, value)| pod.node_selector.get(key).is_none_or(|own| own == text(value)))
    };
    let mut forms = vec![pod.clone()];
    for group in list(&queue.body["spec"]["resourceGroups"]) {
        if !list(&group["coveredResources"]).any(|resource| requested.contains(text(resource))) {
            continue;
        }
        let flavors: Vec<&Resource> = list(&group["flavors"])
            .map(|flavor| find("ResourceFlavor", None, text(&flavor["name"])))
            .collect::<Option<_>>()?;
        let with_flavors = |form: &PodRequirements| {
            let suitable = flavors.iter().filter(|flavor| suits(flavor));
            suitable.map(|flavor| with_flavor(form, &flavor.body["spec"])).collect::<Option<Vec<_>>>()
        };
        forms = forms.iter().map(with_flavors).collect::<Option<Vec<_>>>()?.concat();
    }
    Some(forms)
}

/// Returns a pod with the node labels and tolerations of a flavor; `None` if its tolerations are invalid.
fn with_flavor(pod: &PodRequirements, spec: &Value) -> Option<PodRequirements> {
    let mut pod = pod.clone();
    let labels = spec["nodeLabels"].as_object().into_iter().flatten();
    pod.node_selector.extend(labels.map(|(key, value)| (key.clone(), text(value).to_owned())));
    pod.tolerations.extend(Toleration::read_all(&spec["tolerations"], &FieldPath::root()).ok()?);
    Some(pod)
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}
