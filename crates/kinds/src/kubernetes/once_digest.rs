//! Digests of run-once resources, which show whether one has changed since it was created.

use serde_json::Value;

use crate::kubernetes::equality;
use crate::kubernetes::object::object_schema;
use crate::kubernetes::pod_code;
use crate::{driver_path, pod_defaults, security_defaults};
use model::address::{FieldPath, Segment};
use model::record::Completions;
use model::resource::{Recreation, Resource};

/// Returns the digest of the fields of a resource's own section, without those copied from other sections and without the
/// defaults of its pods. Values that mean the same have the same digest, however they are written.
pub fn digest(resource: &Resource) -> String {
    let schema = object_schema(&resource.identity).and_then(|schema| schema.property("spec"));
    digest_of(&equality::canonical(&own_spec(resource, Excluded::All), schema.as_ref()))
}

/// The pod defaults that a digest does not include.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Excluded {
    All,
    /// The security defaults, as in digests made before sections set the driver's path.
    Security,
    DriverPath,
    None,
}

/// Returns true if a recorded digest matches the resource. Also accepts digests of older versions, which hashed the raw text or
/// included defaults that a user had written out. Otherwise such a resource would run again.
pub fn matches_digest(made: &str, resource: &Resource) -> bool {
    let schema = object_schema(&resource.identity).and_then(|schema| schema.property("spec"));
    let known = |excluded: Excluded| {
        let own = own_spec(resource, excluded);
        made == digest_of(&own) || made == digest_of(&equality::canonical(&own, schema.as_ref()))
    };
    [Excluded::All, Excluded::Security, Excluded::DriverPath, Excluded::None].into_iter().any(known)
}

/// Replaces digests of older versions with current ones. From then on, values can be written differently without a rerun.
pub fn renew(completed: &mut Completions, desired: &[Resource]) {
    for resource in desired.iter().filter(|resource| matches!(resource.recreation, Recreation::Once { .. })) {
        if let Some(made) =
            completed.get_mut(&resource.identity).filter(|made| matches_digest(made, resource))
        {
            *made = digest(resource);
        }
    }
}

fn own_spec(resource: &Resource, excluded: Excluded) -> Value {
    let mut body = resource.body.clone();
    match excluded {
        Excluded::All => pod_defaults::remove(&mut body),
        Excluded::Security => security_defaults::remove(&mut body),
        Excluded::DriverPath => driver_path::remove(&mut body),
        Excluded::None => {}
    }
    let copied = resource.provenance.iter().filter(|(_, origin)| !resource.origin.contains(origin));
    // A section that a job copies may have code later, so a job is the same with and without it.
    let is_code = |path: &&FieldPath| path.find(&resource.body).is_some_and(pod_code::is_item);
    let (code, others): (Vec<_>, Vec<_>) = copied.map(|(path, _)| path).partition(is_code);
    for path in others {
        clear(&mut body, path.segments());
    }
    for path in code {
        pod_code::remove_item(&mut body, path);
    }
    body["spec"].take()
}

fn digest_of(spec: &Value) -> String {
    blake3::hash(spec.to_string().as_bytes()).to_hex().as_str()[..16].to_owned()
}

/// Removes only the value at a path, and keeps the tables around it.
fn clear(value: &mut Value, path: &[Segment]) {
    let (first, rest) = match path {
        [] => return *value = Value::Null,
        [first, rest @ ..] => (first, rest),
    };
    let below = match first {
        Segment::Key(key) => value.get_mut(key),
        Segment::Index(index) => value.get_mut(index),
    };
    if let Some(below) = below {
        clear(below, rest);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::dask;
    use model::address::Address;
    use model::resource::{Identity, KindId, ObjectId};

    fn job(memory: &str, args: &[&str]) -> Resource {
        let container = json!({
            "name": "job", "image": "a:1", "args": args, "resources": { "limits": { "memory": memory } },
        });
        let id = ObjectId { gvk: dask::api::job(), namespace: Some("n".to_owned()), name: "j".to_owned() };
        Resource {
            address: Address::new("dask_job.j"),
            identity: Identity::Object(id),
            kind: KindId::DaskJob,
            body: json!({ "spec": { "job": { "spec": { "containers": [container] } } } }),
            create_only: Value::Null,
            origin: FieldPath::keys(["dask_job", "j"]),
            provenance: Vec::new(),
            depends_on: Vec::new(),
            protect: false,
            recreation: Recreation::Once { timeout: None },
        }
    }

    #[test]
    fn a_record_of_before_knows_what_it_made_and_lets_it_be_spelled_otherwise() {
        let (old, respelled) = (job("8Gi", &["a"]), job("8192Mi", &["a"]));
        let text = digest_of(&own_spec(&old, Excluded::None));
        assert_eq!(text, "c1399e030737fb9b", "as earlier versions wrote it");
        assert_ne!(text, digest(&old));
        assert!(matches_digest(&text, &old) && matches_digest(&digest(&old), &respelled));
        // By a text alone it cannot be told; the next apply sees to that.
        assert!(!matches_digest(&text, &respelled));
        let mut completed = Completions::from([(old.identity.clone(), text)]);
        renew(&mut completed, std::slice::from_ref(&old));
        assert!(matches_digest(&completed[&old.identity], &respelled));
        let other = job("8Gi", &["b"]);
        assert!(!matches_digest(&completed[&old.identity], &other));
        // An object that runs again does not match the completed one.
        renew(&mut completed, std::slice::from_ref(&other));
        assert!(matches_digest(&completed[&old.identity], &old));
    }

    #[test]
    fn what_is_written_in_another_order_or_said_by_default_is_the_same() {
        let with = |spec: Value| digest(&Resource { body: json!({ "spec": spec }), ..job("1", &[]) });
        let cluster = |worker: Value| with(json!({ "cluster": { "spec": { "worker": worker } } }));
        assert_eq!(cluster(json!({ "replicas": 1 })), cluster(json!({})));
        assert_ne!(cluster(json!({ "replicas": 2 })), cluster(json!({})));
        let env =
            |env: Value| with(json!({ "job": { "spec": { "containers": [{ "name": "a", "env": env }] } } }));
        let (a, b) = (json!({ "name": "A", "value": "1" }), json!({ "name": "B", "value": "1000m" }));
        assert_ne!(
            env(json!([a, b])),
            env(json!([b, a])),
            "the list is atomic, and a later one may use an earlier one"
        );
        let one = json!({ "name": "B", "value": "1" });
        assert_ne!(env(json!([b])), env(json!([one])), "text is text");
    }
}
