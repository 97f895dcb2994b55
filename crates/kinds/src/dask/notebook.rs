//! Notebooks: a Jupyter server in the cluster, with the image of the workers and their scheduler's address.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::dask::api;
use crate::dask::cluster::DaskCluster;
use crate::dask::device_memory;
use crate::dask::pods::{self, PodSpecKeys};
use crate::descriptions::{image, with_gpus};
use crate::env::{self, NeededVariable, SecretKey};
use crate::kind::{
    ChangeContext, Compare, Kind, MissingQuery, Part, Queries, QueryResults, StopEffect, own_object_query,
};
use crate::kubernetes::calls::object_change_steps;
use crate::kubernetes::endpoint;
use crate::kubernetes::object::{gvk, new_object, pods_labelled};
use crate::kubernetes::pod_state::{ContainerState, PodState};
use crate::kubernetes::pods::{broken, pending, selecting};
use crate::kubernetes::template;
use crate::kubernetes::workload::{deployment_ready, template_effect};
use crate::scope::{Scope, allow_client};
use crate::section::{
    Lifecycle, LiveName, NameRule, PodKeys, PodRole, Pods, Section, SectionHead, environment_of,
};
use crate::status::StatusLine;
use model::address::{Address, FieldPath};
use model::resource::{
    Await, Effect, Facts, Gvk, Identity, KindId, Progress, Readiness, Recreation, Resource, Step,
};

/// Seconds: images of 10 GB are pulled, and GPU nodes may have to be created first.
const DEADLINE: u32 = 1800;

/// Jupyter's port.
const PORT: u16 = 8888;

pub const KIND: Kind = Kind {
    rank: 62,
    compare: Compare::Kubernetes(effect),
    change_steps: |context| notebook_change_steps(context),
    queries,
    readiness,
    status_line,
    plan_summary: |resource| {
        let pod = &resource.body["spec"]["template"]["spec"];
        vec![with_gpus(pod).trim_start().to_owned(), image(pod)]
    },
    pods: selecting,
    stop_effect: StopEffect::Deletes,
    ..Kind::DEFAULT
};

/// A Jupyter server in the cluster. `dask-infra connect` opens it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct Notebook {
    /// The live name; defaults to the section's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The namespace. Default `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The `[dask_cluster.NAME]` that it works with: its image is of the same family, and `Client()` finds its scheduler.
    /// Give this or `image`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub like: Option<String>,
    /// The image; Jupyter must be in it. Default with `like`: the cluster's, `rapidsai/notebooks` for `rapidsai/base` and
    /// `dask/dask-notebook` for `dask/dask`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The password that Jupyter asks for: a key of an existing Secret in the same namespace, or
    /// `{ secret = "env:NAME" }` for the value of the environment variable `NAME` when the stack is applied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<SecretKey>,
    /// The resources and the placement of each pod.
    #[serde(flatten)]
    pub keys: PodKeys,
    /// `protect` and `depends_on`.
    #[serde(flatten)]
    pub lifecycle: Lifecycle,
}

impl Section for Notebook {
    fn head(&self) -> SectionHead<'_> {
        SectionHead {
            depends_on: &self.lifecycle.depends_on,
            namespace: self.namespace.as_deref(),
            ..SectionHead::default()
        }
    }

    fn live_name<'a>(&'a self, key: &'a str) -> Option<LiveName<'a>> {
        Some(LiveName::new(self.name.as_deref(), key, NameRule::Service).within(self.namespace()))
    }

    fn pods(&self, path: &FieldPath) -> Vec<Pods<'_>> {
        vec![Pods {
            path: path.clone(),
            role: PodRole::Notebook,
            replicas: 1,
            image: self.image.as_deref().unwrap_or_default(),
            image_path: path.key("image"),
            // The stack does not set the command.
            args: &[],
            keys: &self.keys,
        }]
    }

    fn environment(&self, path: &FieldPath) -> Vec<NeededVariable<'_>> {
        let own = environment_of(self.pods(path).into_iter(), self.given_namespace());
        let password = self.password.as_ref().and_then(SecretKey::variable).map(|variable| NeededVariable {
            namespace: self.namespace(),
            variable,
            origin: path.key("password").key("secret"),
        });
        own.into_iter().chain(password).collect()
    }
}

impl Notebook {
    pub fn live_name<'a>(&'a self, key: &'a str) -> &'a str {
        self.name.as_deref().unwrap_or(key)
    }

    pub fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or("default")
    }
}

/// Returns the image with Jupyter that corresponds to a worker image. Sources: the RAPIDS guide ("base" and "notebooks" have the
/// same tags) and dask-docker's README.
pub fn with_jupyter(image: &str) -> String {
    let end = image.rfind(':').filter(|at| !image[*at..].contains('/')).unwrap_or(image.len());
    let (name, tag) = image.split_at(end);
    let swap = |from: &str, to: &str| {
        let rest = name.strip_suffix(from)?;
        (rest.is_empty() || rest.ends_with('/')).then(|| format!("{rest}{to}{tag}"))
    };
    let known = [
        ("rapidsai/base", "rapidsai/notebooks"),
        ("dask/dask", "dask/dask-notebook"),
        ("daskdev/dask", "daskdev/dask-notebook"),
    ];
    known.iter().find_map(|(from, to)| swap(from, to)).unwrap_or_else(|| image.to_owned())
}

/// The command of the container. It refuses an empty password, which would let everybody in. Options on the command line take
/// precedence over an image's configuration. Source: `jupyter_server/auth/identity.py`; tried with jupyter_server 2.
const START: &str = "test -n \"$JUPYTER_TOKEN\" || { echo 'the password is empty' >&2; exit 1; }
exec jupyter lab --ip=0.0.0.0 --port=8888 --no-browser --allow-root --IdentityProvider.token=\"$JUPYTER_TOKEN\"";

fn effect(path: &FieldPath) -> (Effect, Option<&'static str>) {
    match template_effect(path) {
        (Effect::Rolling, _) => (Effect::Rolling, Some("it restarts: unsaved work in it is lost")),
        other => other,
    }
}

fn selector(name: &str) -> Value {
    json!({ "app.kubernetes.io/name": name, "app.kubernetes.io/component": "notebook" })
}

/// Lowers `[notebook.KEY]` to a Deployment and its Service; `like` is the section that it names.
pub fn lower(key: &str, section: &Notebook, like: Option<&DaskCluster>, scope: &Scope) -> Vec<Resource> {
    let (name, namespace) = (section.live_name(key), section.namespace());
    let copied = like.map(|like| with_jupyter(&like.image));
    let image = section.image.as_deref().or(copied.as_deref()).unwrap_or_default();
    let origin = FieldPath::keys(["notebook", key]);
    let address = Address::of("notebook", key);
    let pod_keys = section.pod_keys(image, like);
    let path = FieldPath::keys(["spec", "template"]);
    let mut provenance = section.provenance(&origin, &path.key("spec"));
    let mut pod = template::bare("notebook", &pod_keys, scope);
    if let Some((key, like)) = section.like.as_ref().zip(like) {
        let of = FieldPath::keys(["dask_cluster", key]);
        let container = path.key("spec").key("containers").index(0);
        let made = &mut pod["containers"][0];
        provenance.extend(like.config.container_provenance(made, &container, &of.key("config")));
        if let Some(spill) = like.cudf_spill(&of) {
            device_memory::add_spill_to_container(made, &section.keys.env);
            provenance.extend(device_memory::spill_provenance(made, &section.keys.env, &container, &spill));
        }
    }
    section.fill(&mut pod, like, &env::own_secret(&scope.owner));
    let mut depends_on = pods::dependencies(&[&pod_keys], namespace, scope);
    if section.password.as_ref().and_then(SecretKey::variable).is_some() {
        depends_on.push(env::own_address(&scope.owner, namespace));
    }
    depends_on.extend(section.like.as_ref().map(|like| Address::of("dask_cluster", like)));
    depends_on.extend(section.lifecycle.depends_on.iter().map(Address::new));
    let metadata = json!({ "name": name, "namespace": namespace, "labels": scope.labels() });
    let make = |address: Address, gvk: Gvk, kind: KindId, spec: Value, provenance, depends_on| {
        let (identity, body) = new_object(gvk, metadata.clone(), spec);
        Resource {
            address,
            kind,
            identity,
            body,
            create_only: Value::Null,
            origin: origin.clone(),
            provenance,
            depends_on,
            protect: section.lifecycle.protect,
            recreation: Recreation::Always,
        }
    };
    let mut deployment = json!({
        "replicas": 1,
        // Two of them would write the same files.
        "strategy": { "type": "Recreate" },
        "selector": { "matchLabels": selector(name) },
        "template": { "metadata": { "labels": selector(name) }, "spec": pod },
    });
    if let Some((key, like)) =
        section.like.as_ref().zip(like).filter(|(_, like)| !like.network_policy.is_open())
    {
        allow_client(&mut deployment["template"]["metadata"], like.live_name(key));
    }
    section.keys.merge_into(&mut deployment["template"], &path, &origin, &mut provenance);
    let service = json!({
        "type": "ClusterIP",
        "selector": selector(name),
        "ports": [{ "name": "http", "protocol": "TCP", "port": PORT, "targetPort": PORT }],
    });
    let service_address = Address::object(address.as_str(), "Service", Some(namespace), name);
    let before = scope.namespace_dependencies(namespace);
    vec![
        make(address, api(), KindId::Notebook, deployment, provenance, depends_on),
        make(
            service_address,
            gvk("", "v1", "Service", "services"),
            KindId::Service,
            service,
            Vec::new(),
            before,
        ),
    ]
}

/// Returns the kind that a notebook runs as.
fn api() -> Gvk {
    gvk("apps", "v1", "Deployment", "deployments")
}

impl Notebook {
    fn pod_keys<'a>(&'a self, image: &'a str, like: Option<&'a DaskCluster>) -> PodSpecKeys<'a> {
        let config = like.map(|like| &like.config);
        PodSpecKeys { image, args: &[], keys: &self.keys, resources: None, config }
    }

    fn provenance(&self, origin: &FieldPath, pod: &FieldPath) -> Vec<(FieldPath, FieldPath)> {
        let image = match (&self.image, &self.like) {
            (None, Some(like)) => FieldPath::keys(["dask_cluster", like, "image"]),
            _ => origin.key("image"),
        };
        pods::provenance(pod, origin, &image)
    }

    /// Turns a container into a Jupyter server.
    fn fill(&self, pod: &mut Value, like: Option<&DaskCluster>, own: &str) {
        let container = &mut pod["containers"][0];
        let mut env: Vec<Value> = container["env"].as_array().cloned().unwrap_or_default();
        if let Some((key, like)) = self.like.as_ref().zip(like) {
            let address = api::scheduler_address(like.live_name(key), like.namespace());
            env.push(json!({ "name": "DASK_SCHEDULER_ADDRESS", "value": address }));
        }
        if let Some(password) = &self.password {
            env.push(json!({ "name": endpoint::PASSWORD, "valueFrom": password.reference(own) }));
        }
        container["args"] = json!(["sh", "-c", START]);
        container["env"] = json!(env);
        container["ports"] = json!([{ "name": "http", "containerPort": PORT, "protocol": "TCP" }]);
        // Answers without a password. Source: `APIVersionHandler` of jupyter_server.
        let get = json!({ "path": "/api", "port": "http" });
        container["readinessProbe"] = json!({ "httpGet": get, "periodSeconds": 10 });
    }
}

fn notebook_change_steps(context: &ChangeContext) -> Vec<Step> {
    object_change_steps(context, KindId::Notebook, Facts::None, DEADLINE)
}

/// Reads the Deployment and its pods.
fn queries(wait: &Await) -> Queries {
    let mut queries = own_object_query(wait);
    let Identity::Object(object) = &wait.identity else { return queries };
    if wait.until.is_ready() {
        let own =
            [("app.kubernetes.io/name", object.name.as_str()), ("app.kubernetes.io/component", "notebook")];
        queries.part(Part::Pods, pods_labelled(object.namespace.as_deref(), own));
    }
    queries
}

fn readiness(_: &Await, found: &QueryResults) -> Result<Readiness, MissingQuery> {
    let pods = found.get(Part::Pods)?;
    let list = || PodState::each(pods);
    if let Some(reason) = list().find_map(broken).or_else(|| list().find_map(without_secret)) {
        return Ok(Readiness::Failed(reason));
    }
    Ok(match deployment_ready(found.own_object()) {
        Readiness::Ready => Readiness::Ready,
        Readiness::Impaired(what) => Readiness::Impaired(what),
        Readiness::Queued(queued) => Readiness::Queued(queued),
        // A Deployment gives up after ten minutes, and comes up all the same once there is a node.
        Readiness::Progressing(Progress { what, .. })
        | Readiness::Unhandled(what)
        | Readiness::Stalled(what)
        | Readiness::Failed(what) => {
            let blocked_by = pending(pods).into_iter().find_map(|pending| pending.why);
            Readiness::Progressing(Progress { what, blocked_by })
        }
    })
}

/// Describes a pod whose Secret or key is missing, and which would wait for it forever.
fn without_secret(pod: PodState<'_>) -> Option<String> {
    let mut waiting = pod.containers().filter_map(ContainerState::waiting);
    let (_, message) = waiting.find(|(reason, _)| *reason == "CreateContainerConfigError")?;
    let name = pod.name();
    message.contains("secret").then(|| {
        format!(
            "pod {name}: {message}; create the Secret with the password: kubectl create secret generic NAME \
             --from-literal=KEY=…"
        )
    })
}

fn status_line(_: &Await, found: &QueryResults) -> Result<StatusLine, MissingQuery> {
    let pending = pending(found.get(Part::Pods)?);
    Ok(StatusLine { pending, ..crate::kubernetes::workload::deployment_status(found.own_object()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::resource::{ObjectId, Until};

    #[test]
    fn images_have_a_sister_with_jupyter() {
        for (image, sister) in [
            (
                "nvcr.io/nvidia/rapidsai/base:25.04-cuda12.8-py3.12",
                "nvcr.io/nvidia/rapidsai/notebooks:25.04-cuda12.8-py3.12",
            ),
            ("rapidsai/base", "rapidsai/notebooks"),
            ("ghcr.io/dask/dask:2026.3.0", "ghcr.io/dask/dask-notebook:2026.3.0"),
            ("daskdev/dask:latest", "daskdev/dask-notebook:latest"),
            ("localhost:5000/mine", "localhost:5000/mine"),
            ("localhost:5000/my-rapidsai/base:1", "localhost:5000/my-rapidsai/base:1"),
        ] {
            assert_eq!(with_jupyter(image), sister);
        }
    }

    #[test]
    fn a_missing_secret_ends_the_wait_and_a_pending_pod_says_why() {
        let gvk = api();
        let identity = Identity::Object(ObjectId { gvk, namespace: Some("n".into()), name: "lab".into() });
        let wait =
            Await { kind: KindId::Notebook, identity, until: Until::Ready, facts: Facts::None, deadline: 1 };
        let check = |status: Value| {
            let pods =
                json!({ "items": [{ "metadata": { "name": "p", "namespace": "n" }, "status": status }] });
            let deployment = json!({ "spec": { "replicas": 1 } });
            readiness(&wait, &QueryResults::of([(Part::Itself, &deployment), (Part::Pods, &pods)])).unwrap()
        };
        let waiting = |reason: &str, message: &str| json!({ "containerStatuses": [{ "state": { "waiting": { "reason": reason, "message": message } } }] });
        let Readiness::Failed(why) =
            check(waiting("CreateContainerConfigError", "secret \"jupyter\" not found"))
        else {
            panic!("not failed")
        };
        assert!(why.contains("secret \"jupyter\" not found; create the Secret"), "{why}");
        let pulls = check(waiting("ContainerCreating", ""));
        let Readiness::Progressing(progress) = pulls else { panic!("{pulls:?}") };
        assert_eq!(progress.to_string(), "0 of 1 pods created; ContainerCreating");
        let path = queries(&wait).parts()[1].1.path.clone();
        assert!(path.ends_with("name%3Dlab%2Capp.kubernetes.io%2Fcomponent%3Dnotebook"), "{path}");
    }

    #[test]
    fn a_changed_pod_is_said_to_lose_what_runs() {
        let (effect, why) = effect(&"spec.template.spec.containers[0].image".parse().unwrap());
        assert_eq!(effect, Effect::Rolling);
        assert!(why.unwrap().contains("is lost"));
    }
}
