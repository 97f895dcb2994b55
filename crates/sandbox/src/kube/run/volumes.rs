//! Volumes and claims: what keeps them from being deleted while they are used, and the phase of claims. Nothing is provisioned: a claim is
//! bound once a Pod that uses it has a node, as with a class that waits for its first consumer, and no volume stands behind it.
//!
//! From memory of `pkg/controller/volume/pvcprotection` and `pvprotection`: a claim is kept by Pods that have a node, also by those that
//! have ended; a volume by the claim that it is bound to.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::object::{
    BOUND, CLAIM_IN_USE, VOLUME_IN_USE, is_deleted, key, list, name, namespace, text,
};
use super::round::Run;
use super::workloads::MANAGER;

/// One round over all claims and volumes.
pub(super) fn run(run: &mut Run<'_>) {
    let claims = run.objects("", "persistentvolumeclaims");
    let used = if claims.is_empty() { BTreeSet::new() } else { used(run) };
    for claim in claims {
        match (is_deleted(claim), used.contains(&(namespace(claim), name(claim)))) {
            (true, false) => can_delete(run, "persistentvolumeclaims", claim, CLAIM_IN_USE),
            (false, true) => bind(run, claim),
            _ => {}
        }
    }
    for volume in run.objects("", "persistentvolumes") {
        let phase = text(volume, "/status/phase");
        if is_deleted(volume) && phase != BOUND {
            can_delete(run, "persistentvolumes", volume, VOLUME_IN_USE);
        } else if matches!(phase, "" | "Pending") {
            run.status(MANAGER, key("", "persistentvolumes", volume), volume, json!({"phase": "Available"}));
        }
    }
}

/// Binds a claim, or lets its volume grow to what it asks for.
fn bind(run: &mut Run<'_>, claim: &Value) {
    let spec = &claim["spec"];
    let status = json!({
        "phase": BOUND, "accessModes": spec["accessModes"],
        "capacity": {"storage": spec["resources"]["requests"]["storage"]},
    });
    run.status(MANAGER, key("", "persistentvolumeclaims", claim), claim, status);
}

/// Claims of Pods that have a node, by namespace and name.
fn used<'a>(run: &Run<'a>) -> BTreeSet<(&'a str, &'a str)> {
    let pods = run.objects("", "pods").into_iter();
    let placed = pods.filter(|pod| !text(pod, "/spec/nodeName").is_empty());
    let claims = placed.flat_map(|pod| {
        let named = |volume: &'a Value| Some(text(volume, "/persistentVolumeClaim/claimName"));
        list(pod, "/spec/volumes").iter().filter_map(named).map(move |claim| (namespace(pod), claim))
    });
    claims.filter(|(_, claim)| !claim.is_empty()).collect()
}

fn can_delete(run: &mut Run<'_>, resource: &'static str, object: &Value, finalizer: &str) {
    let all = list(object, "/metadata/finalizers");
    let left: Vec<&Value> = all.iter().filter(|known| **known != finalizer).collect();
    if left.len() < all.len() {
        run.merge(MANAGER, key("", resource, object), json!({"metadata": {"finalizers": left}}));
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::object::Key;
    use super::super::testing::{World, pool};
    use super::*;

    fn claim() -> Value {
        json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {"name": "data", "namespace": "default"},
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        })
    }

    #[test]
    fn a_claim_goes_once_no_pod_uses_it() {
        let mut world = World::new(vec![pool("p", "e2-standard-4", 1, json!({}))]);
        world.pass(120);
        world.create(claim());
        world.pass(30);
        assert_eq!(
            world.get("", "persistentvolumeclaims", "default", "data")["status"],
            json!({"phase": "Pending"})
        );
        world.create(json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "user", "namespace": "default"},
            "spec": {
                "containers": [{"name": "c", "image": "nginx:1"}],
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
            },
        }));
        world.pass(30);
        let claims = |world: &World| world.names("", "persistentvolumeclaims", "default");
        let status = &world.get("", "persistentvolumeclaims", "default", "data")["status"];
        assert_eq!((&status["phase"], &status["capacity"]["storage"]), (&json!("Bound"), &json!("1Gi")));
        world.delete(&Key::new("", "persistentvolumeclaims", "default", "data"));
        world.pass(60);
        assert_eq!(claims(&world), ["data"], "a Pod uses it");
        world.delete(&Key::new("", "pods", "default", "user"));
        world.pass(60);
        assert!(claims(&world).is_empty());
    }

    #[test]
    fn a_volume_goes_when_it_is_bound_to_nothing() {
        let mut world = World::new(vec![]);
        let volume = world.create(json!({
            "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "disk"},
            "spec": {"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "nfs": {"path": "/", "server": "h"}},
        }));
        assert_eq!(volume["metadata"]["finalizers"], json!([VOLUME_IN_USE]));
        world.pass(1);
        assert_eq!(world.get("", "persistentvolumes", "", "disk")["status"]["phase"], "Available");
        world.delete(&Key::new("", "persistentvolumes", "", "disk"));
        world.pass(1);
        assert!(world.all("", "persistentvolumes").is_empty());
    }
}
