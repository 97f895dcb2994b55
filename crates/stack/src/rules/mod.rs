//! Checks of the meaning of the file, across sections: [`RULES`], with one function for each check. All of them run on every
//! file, so all errors are reported at once. If two sections contradict each other, the error shows both.

use std::collections::{BTreeMap, BTreeSet};

use super::references::Word;
use super::{Check, NodePool, Replicas, Stack, lower};
use kinds::section::{Pods, managed};
use model::address::{FieldPath, Segment};
use model::diag::{Diagnostic, Label, Place};
use model::resource::Lowered;
use model::secrets::Secrets;
use model::source::{Sources, Span};

mod anti_affinity;
mod autopilot;
mod capacity;
mod capacity_options;
mod charts;
mod checks;
mod code;
mod config;
mod container;
mod dask;
mod dask_children;
mod expiry;
mod exposure;
mod gke;
mod gpu_images;
mod gpu_memory;
mod hosts;
mod image_streaming;
mod image_tag;
mod jobs;
mod kueue;
mod machines;
mod manifests;
mod names;
mod notebooks;
mod pip_install;
mod placement;
mod processes;
mod queued_pools;
mod queued_workers;
mod queues;
mod references;
mod requests;
mod runs;
mod secrets;
mod sections;
mod services;
pub(crate) mod shares;
mod slurm;
mod spot;
mod ssh_hosts;
mod task_resources;
mod values;
mod worker_section;
mod workers;
mod zones;

pub use dask::nodes_for_gpus;

/// A check of a whole stack, which adds its findings to the context.
type Rule = fn(&mut Context<'_>);

/// All rules. Their order does not matter, as findings are sorted by position.
const RULES: &[Rule] = &[
    sections::one_target,
    sections::sections_have_what_they_need,
    sections::budget_limits_something,
    slurm::terms_are_sound,
    hosts::sections_fit_the_host,
    hosts::keys_fit_the_host,
    hosts::hosts_keys_are_for_hosts,
    processes::processes_fit,
    config::configs_are_sound,
    hosts::hosts_are_there,
    hosts::environments_are_there,
    exposure::schedulers_are_not_open,
    pip_install::pip_install_is_for_prototypes,
    container::containers_can_run,
    container::containers_have_numbers,
    hosts::groups_and_clusters_differ,
    hosts::ports_differ,
    hosts::checks_have_a_cluster,
    hosts::least_bandwidths_are_numbers,
    checks::programs_can_run,
    task_resources::tasks_find_their_resources,
    code::files_can_be_copied,
    code::code_has_a_use,
    code::working_folders_exist,
    checks::time_limits_are_durations,
    hosts::images_of_checks_are_known,
    sections::dependencies_exist,
    sections::pools_exist,
    sections::namespaces_are_declared,
    names::names_are_valid,
    names::live_names_differ,
    names::namespaces_are_not_built_in,
    names::images_are_given,
    names::labels_are_valid,
    names::taints_are_valid,
    zones::zones_exist,
    zones::zones_come_once,
    zones::own_zone_is_among_them,
    zones::upgrades_can_go_on,
    zones::zones_lie_in_the_region,
    zones::nodes_divide,
    zones::minimums_divide,
    zones::a_pool_can_be_first,
    zones::limits_are_in_order,
    zones::gpus_are_offered,
    machines::machine_types_exist,
    machines::accelerators_exist,
    machines::accelerators_fit,
    machines::partitions_exist,
    gpu_images::images_fit_their_gpus,
    machines::disks_fit,
    spot::schedulers_are_not_interrupted,
    machines::upgrades_follow_the_channel,
    machines::drivers_come_once,
    machines::drivers_fit_the_image,
    gke::api_fields_are_free,
    autopilot::gke_makes_the_nodes,
    autopilot::keys_are_ours_to_say,
    autopilot::gpus_are_named,
    autopilot::machines_are_said_once,
    autopilot::requests_are_given,
    capacity::keys_go_together,
    capacity::durations_are_valid,
    values::values_have_their_form,
    values::times_are_in_order,
    values::words_are_known,
    capacity::machines_can_be_had,
    queued_pools::pools_wait_well,
    queued_pools::made_pools_wait_well,
    capacity_options::option_keys,
    capacity_options::option_order,
    capacity_options::option_requirements,
    dask::gpus_fit_a_node,
    dask::gpus_fit_the_pool,
    dask::checks_have_gpus,
    dask::environments_have_names,
    dask::operator_is_there,
    dask::operator_is_known,
    dask::quantities_are_valid,
    dask::commands_exist,
    manifests::objects_are_objects,
    manifests::kinds_are_known,
    manifests::objects_fit_their_schemas,
    manifests::pods_fit_their_schema,
    manifests::pods_say_nothing_twice,
    manifests::objects_are_wanted_once,
    manifests::objects_are_not_exports,
    manifests::secrets_have_no_values,
    manifests::node_labels_are_there,
    manifests::installers_have_work,
    manifests::containers_find_the_driver,
    manifests::commands_exist_in_images,
    manifests::dask_names_are_valid,
    charts::objects_are_in_their_namespace,
    charts::hooks_have_a_place,
    charts::operators_chart_is_asked_for,
    charts::jupyter_has_a_password,
    charts::groups_get_what_they_say,
    services::services_fit_their_schema,
    services::services_lead_to_schedulers,
    services::schedulers_are_not_public,
    services::policies_are_followed,
    workers::numbers_have_one_writer,
    workers::retired_workers_are_single,
    workers::groups_have_room_for_names,
    dask_children::external_groups_have_images,
    dask_children::objects_name_their_cluster,
    dask_children::autoscalers_are_alone,
    dask_children::objects_leave_room_for_names,
    dask_children::images_have_one_version,
    jobs::jobs_have_a_cluster,
    jobs::jobs_end,
    queues::queues_exist,
    queues::queues_can_be,
    queues::priorities_exist,
    queues::gangs_can_start,
    queues::gangs_have_names_of_their_own,
    queues::gangs_fit_their_queue,
    queues::work_has_nodes,
    queues::objects_are_of_the_newer_version,
    kueue::objects_name_what_is_there,
    queued_workers::workers_can_be_booked,
    requests::requests_have_pods,
    requests::requests_have_a_queued_pool,
    requests::queued_pools_are_asked,
    requests::requests_can_be_met,
    requests::durations_are_durations,
    requests::marks_have_an_effect,
    requests::manifests_of_requests_work,
    runs::runs_are_said_once,
    notebooks::notebooks_have_an_image,
    notebooks::notebooks_have_a_password,
    expiry::expiry_is_valid,
    expiry::idle_timeouts_are_times,
    // After those that say more of GPUs and labels.
    placement::pods_fit_their_nodes,
    image_streaming::images_can_be_streamed,
    expiry::stack_expiry_is_valid,
    secrets::secrets_are_named,
    secrets::references_are_names,
    references::words_are_read,
];

/// Fields and sections that already have errors and were removed from the stack before the rules run.
#[derive(Default)]
pub(super) struct Doubt {
    pub(super) fields: Vec<FieldPath>,
    /// The sections of the fields.
    pub(super) sections: BTreeSet<FieldPath>,
}

/// Returns the findings of all rules, unsorted. For sections in `doubt`, only problems with single values are reported. `taken`
/// has the removed sections and fields with the positions of the removal, `given` the values of secret variables, and `words` the
/// references that are not resolved. Also returns the lowered stack, if a rule computed it.
pub(super) fn check(
    stack: &Stack,
    sources: &Sources,
    doubt: Doubt,
    taken: &BTreeMap<FieldPath, Span>,
    given: &Secrets,
    words: &[Word],
) -> (Vec<Diagnostic>, Option<Lowered>) {
    let mut context =
        Context { stack, sources, doubt, taken, given, words, lowered: None, found: Vec::new() };
    // Of a stack with two targets everything else would be said of one of them.
    let rules: &[Rule] = if sections::has_two_targets(stack) { &[sections::one_target] } else { RULES };
    for rule in rules {
        rule(&mut context);
    }
    (context.found, context.lowered)
}

/// The input of a rule, and the list for its findings.
struct Context<'a> {
    stack: &'a Stack,
    sources: &'a Sources,
    doubt: Doubt,
    taken: &'a BTreeMap<FieldPath, Span>,
    given: &'a Secrets,
    /// References in places where they are not resolved.
    words: &'a [Word],
    /// The lowered stack, once a rule has computed it.
    lowered: Option<Lowered>,
    found: Vec<Diagnostic>,
}

impl<'a> Context<'a> {
    /// Takes the lowered stack out, to be put back by the rule that uses it.
    fn take_lowered(&mut self) -> Lowered {
        self.lowered.take().unwrap_or_else(|| lower::lower(self.stack, true))
    }

    /// Adds a finding, unless it is about a section that already has errors.
    fn say(&mut self, finding: Diagnostic) {
        if !finding.fields().any(|field| self.is_doubtful(field)) {
            self.found.push(finding);
        }
    }

    /// Adds a finding unless one with its code and its places is there: sections that copy another one share its lines.
    fn say_once(&mut self, finding: Diagnostic) {
        if !self.found.iter().any(|found| found.code == finding.code && found.labels == finding.labels) {
            self.say(finding);
        }
    }

    /// Adds a finding about a single value, which does not depend on other values of its section.
    fn say_of_value(&mut self, finding: Diagnostic) {
        let is_gone = |field: &FieldPath| self.doubt.fields.iter().any(|wrong| wrong.contains(field));
        if !finding.fields().any(is_gone) {
            self.found.push(finding);
        }
    }

    /// Returns true if `[allow.literal_secrets]` allows plain text at this path.
    fn allows(&self, place: &FieldPath) -> bool {
        let allowed = self.stack.allow.literal_secrets.keys();
        allowed.filter_map(|key| key.parse::<FieldPath>().ok()).any(|path| path.contains(place))
    }

    fn is_doubtful(&self, path: &FieldPath) -> bool {
        self.doubt.sections.iter().any(|section| section.contains(path))
    }

    /// Returns the keys of the sections of a type, including sections with errors.
    fn keys<'k>(&'k self, section: &str, whole: impl Iterator<Item = &'k String>) -> Vec<&'k str> {
        let broken = self.doubt.sections.iter().filter_map(|path| match path.segments() {
            [Segment::Key(top), Segment::Key(key)] if top == section => Some(key),
            _ => None,
        });
        let keys: BTreeSet<&str> = whole.chain(broken).map(String::as_str).collect();
        keys.into_iter().collect()
    }

    /// Returns the position at which a section or field was removed, or a section was commented out.
    fn gone(&self, path: &FieldPath) -> Option<Label> {
        let away = self.taken.iter().find(|(taken, _)| taken.contains(path));
        let comment = || Some((self.sources.comment(&format!("[{path}]"))?, "in a comment here"));
        let (span, text) = away.map(|(_, span)| (*span, "taken away here")).or_else(comment)?;
        Some(Label { place: Place::Source(span), text: text.to_owned() })
    }

    fn pool(&self, name: &str) -> Option<&'a NodePool> {
        self.stack.node_pool.get(name)
    }

    /// Returns every `replicas` of the stack with its path, and true if the operator's autoscaler can set it.
    fn replicas(&self) -> Vec<(FieldPath, Replicas, bool)> {
        let clusters = self.stack.dask_cluster.iter();
        let of = clusters.flat_map(|(name, cluster)| {
            let section = FieldPath::keys(["dask_cluster", name]);
            let groups = cluster.group.iter();
            let groups: Vec<_> = groups
                .map(|(key, group)| (section.key("group").key(key).key("replicas"), group.replicas, false))
                .collect();
            let worker = (section.key("worker").key("replicas"), cluster.worker.replicas, true);
            [worker].into_iter().chain(groups)
        });
        of.collect()
    }

    /// Returns the pods that the stack creates for its sections.
    fn pods(&self) -> Vec<Pods<'a>> {
        self.stack.pods()
    }

    fn checks(&self) -> impl Iterator<Item = (FieldPath, &'a Check)> + use<'a> {
        self.stack.check.iter().map(|(name, check)| (FieldPath::keys(["check", name]), check))
    }

    /// Returns the pools that the stack creates. External pools are compared when they are read.
    fn pools(&self) -> impl Iterator<Item = (FieldPath, &'a NodePool)> + use<'a> {
        let ours = managed(&self.stack.node_pool);
        ours.map(|(name, pool)| (FieldPath::keys(["node_pool", name]), pool))
    }
}

/// `1 GPU`, `2 GPUs`.
fn counted(number: u32, thing: &str) -> String {
    if number == 1 { format!("1 {thing}") } else { format!("{number} {thing}s") }
}
