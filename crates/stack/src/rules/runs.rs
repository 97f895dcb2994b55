//! Checks of the lifetime of nodes that Kueue requests. It is set by the configuration of a queue's check or by an annotation of
//! the work.

use crate::rules::requests::nodes_last;
use crate::rules::{Context, queues};
use kinds::json::text;
use kinds::kubernetes::bundle::{self, Object};
use kinds::kubernetes::kueue::{GROUP, gang};
use kinds::kubernetes::provisioning::QUEUED_CLASS;
use kinds::short_forms::seconds;
use model::address::FieldPath;
use model::diag::{Code, Diagnostic};

/// The annotation with the lifetime. Kueue turns the part after the slash into a parameter of its requests. Source:
/// "ProvisioningRequest" of Kueue's documentation of admission checks.
const RUN: &str = "provreq.kueue.x-k8s.io/maxRunDurationSeconds";

/// Work that sets the lifetime of its nodes.
struct Said {
    seconds: String,
    place: FieldPath,
    /// The namespace of an object; `None` for the work of a section, whose queue is in the file.
    namespace: Option<String>,
    /// The LocalQueue that it waits in.
    queue: String,
}

/// Checks that the lifetime is set only once: with two values, Kueue 0.15.0 endlessly creates and deletes requests (seen).
pub(crate) fn runs_are_said_once(context: &mut Context<'_>) {
    let bundles = context.stack.bundles();
    let objects: Vec<Object<'_>> = bundle::objects(&bundles).collect();
    let configs = objects.iter().filter(|object| {
        of_kueue(object, "ProvisioningRequestConfig")
            && object.value["spec"]["provisioningClassName"] == QUEUED_CLASS
    });
    for config in configs {
        let (value, place) = parameter(config);
        nodes_last(context, value, place);
    }
    let marked = objects.iter().filter_map(|object| {
        let metadata = &object.value["metadata"];
        Some(Said {
            seconds: metadata["annotations"][RUN].as_str()?.to_owned(),
            place: object.origin().key("metadata").key("annotations").key(RUN),
            namespace: Some(object.namespace().to_owned()),
            queue: metadata["labels"][gang::QUEUE].as_str()?.to_owned(),
        })
    });
    let own = queues::annotated(context.stack, RUN).into_iter().map(|(value, place, queue)| Said {
        seconds: value.to_owned(),
        place,
        namespace: None,
        queue: queue.to_owned(),
    });
    for said in own.chain(marked) {
        nodes_last(context, &said.seconds.as_str().into(), said.place.clone());
        let Some((other, there)) =
            by_queue(context, &objects, &said).filter(|(other, _)| *other != said.seconds)
        else {
            continue;
        };
        let message = format!(
            "nodes for this work last {} seconds here and {other} in the queue `{}`: Kueue would create requests and delete \
             them without end",
            said.seconds, said.queue
        );
        let finding = Diagnostic::error(Code::RequestManifest, message).at_key(said.place, "here");
        context.say(finding.at_key(there, "and here").help("say it in one of the two places"));
    }
}

fn of_kueue(object: &Object<'_>, kind: &str) -> bool {
    object.kind() == kind && object.group_version().0 == GROUP
}

fn parameter<'v>(config: &Object<'v>) -> (&'v serde_json::Value, FieldPath) {
    let place = config.origin().key("spec").key("parameters").key("maxRunDurationSeconds");
    (&config.value["spec"]["parameters"]["maxRunDurationSeconds"], place)
}

/// Returns the maximum run duration of the queue of work in seconds, and its place.
fn by_queue(context: &Context<'_>, objects: &[Object<'_>], said: &Said) -> Option<(String, FieldPath)> {
    let find = |kind: &str, name: &str| {
        objects.iter().find(|object| of_kueue(object, kind) && object.name() == name)
    };
    let local = objects.iter().find(|object| {
        of_kueue(object, "LocalQueue")
            && object.name() == said.queue
            && said.namespace.as_deref() == Some(object.namespace())
    });
    let queue = local.map_or(said.queue.as_str(), |local| text(&local.value["spec"]["clusterQueue"]));
    let own =
        context.stack.queue.iter().find(|(key, own)| own.manage.is_managed() && own.live_name(key) == queue);
    if let Some((key, own)) = own {
        let seconds = seconds(own.max_run_duration.as_deref()?)?;
        return Some((seconds.to_string(), FieldPath::keys(["queue", key, "max_run_duration"])));
    }
    let spec = &find("ClusterQueue", queue)?.value["spec"];
    let older = spec["admissionChecks"].as_array().into_iter().flatten();
    let newer = spec["admissionChecksStrategy"]["admissionChecks"].as_array().into_iter().flatten();
    let mut checks = older.chain(newer.map(|check| &check["name"])).filter_map(|name| name.as_str());
    checks.find_map(|name| {
        let check = find("AdmissionCheck", name)?;
        let config = find("ProvisioningRequestConfig", text(&check.value["spec"]["parameters"]["name"]))?;
        let (value, place) = parameter(config);
        Some((value.as_str()?.to_owned(), place))
    })
}
