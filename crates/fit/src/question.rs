//! Checks one pod against the nodes of a cluster.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use model::address::FieldPath;

use crate::cluster::{Class, Cluster, NodeId};
use crate::labels::{Labels, NodeTerm, Requirement, any_term};
use crate::node::Node;
use crate::pod::{PodRequirements, Volume};
use crate::refusal::{Reason, Refusal};
use crate::requests::Request;
use crate::resources::{Amounts, Resource};
use crate::taints::{CORDON, Taint, untolerated};
use crate::topology::{Company, Domains, domains};
use crate::verdict::{Fit, Margin};
use crate::volumes::{BoundVolume, ClaimState, StorageClass};
use crate::words;

/// A pod with the counts over all nodes that its rules need. [`Cluster::ask`] creates it once per pod; then each node takes less
/// than a microsecond.
pub struct Question<'a> {
    pod: &'a PodRequirements,
    domains: Vec<Domains<'a>>,
    company: Company<'a>,
    volumes: Vec<Place<'a>>,
}

/// The nodes that one volume allows.
enum Place<'a> {
    /// The volume allows no node.
    Nowhere(Reason, &'a FieldPath),
    /// The claim is bound to a volume with node affinity terms.
    There(&'a str, &'a [NodeTerm], &'a FieldPath),
    /// The claim is bound to a volume whose labels may name zones.
    Labelled(&'a str, &'a Labels, &'a FieldPath),
    /// A storage class will create the volume.
    Made(String, &'a str, &'a StorageClass, &'a FieldPath),
    /// The volume is being created for a node.
    MadeFor(&'a str, &'a str, &'a FieldPath),
    /// A Compute Engine disk, and true if it is mounted read-only.
    Disk(&'a str, bool, &'a FieldPath),
}

/// Receives refusals. Builds them only if they are needed.
trait Sink {
    fn refuse(&mut self, refusal: impl FnOnce() -> Refusal) -> ControlFlow<()>;
}

/// Stops at the first refusal.
struct First;

impl Sink for First {
    fn refuse(&mut self, _: impl FnOnce() -> Refusal) -> ControlFlow<()> {
        ControlFlow::Break(())
    }
}

impl Sink for Vec<Refusal> {
    fn refuse(&mut self, refusal: impl FnOnce() -> Refusal) -> ControlFlow<()> {
        self.push(refusal());
        ControlFlow::Continue(())
    }
}

impl Cluster {
    /// Computes, once for all nodes, the checks that depend on all nodes: topology spread, pod affinity, volumes.
    pub fn ask<'a>(&'a self, pod: &'a PodRequirements) -> Question<'a> {
        Question::new(self, pod)
    }

    /// Returns the nodes that the pod fits on, in their order.
    pub fn places(&self, pod: &PodRequirements) -> Vec<NodeId> {
        let question = self.ask(pod);
        self.nodes().filter(|(_, node)| question.takes(node)).map(|(id, _)| id).collect()
    }
}

impl<'a> Question<'a> {
    fn new(cluster: &'a Cluster, pod: &'a PodRequirements) -> Self {
        let volumes = pod.volumes.iter().flat_map(|volume| Place::of(volume, pod, cluster)).collect();
        Self { pod, domains: domains(cluster, pod), company: Company::new(cluster, pod), volumes }
    }

    /// Returns true if the pod fits on the node. Scheduling gates count, as in [`Self::refusals`].
    pub fn takes(&self, node: &Node) -> bool {
        self.pod.gates.is_empty() && self.check(node, &mut First).is_continue()
    }

    /// Returns all reasons why the pod does not fit on the node, in the order of kube-scheduler's predicates; none if it fits.
    pub fn refusals(&self, node: &Node) -> Vec<Refusal> {
        let mut all = Vec::new();
        if !self.pod.gates.is_empty() {
            let reason = Reason::Gated { gates: self.pod.gates.clone() };
            all.push(Refusal { reason, path: FieldPath::keys(["spec", "schedulingGates"]) });
        }
        all.extend(self.by_node(node));
        all
    }

    /// Returns the reasons that depend on the node; scheduling gates do not.
    fn by_node(&self, node: &Node) -> Vec<Refusal> {
        let mut all = Vec::new();
        // It goes on until the end.
        let _ = self.check(node, &mut all);
        // Volumes are checked one after the other.
        all.sort_by_key(Refusal::predicate);
        all
    }

    /// Returns the answer for a node that may not exist yet. Scheduling gates do not count: they hold the pod back on any node.
    pub fn verdict(&self, node: &Node) -> Fit {
        let refusals = self.by_node(node);
        let Some(slack) = &node.slack else {
            return if refusals.is_empty() { Fit::Fits } else { Fit::Refused(refusals) };
        };
        let near = self.margins(node, slack);
        let is_near = |refusal: &Refusal| match &refusal.reason {
            Reason::Short { resource, .. } => near.iter().any(|margin| margin.resource == *resource),
            _ => false,
        };
        match (refusals.iter().all(is_near), near.is_empty()) {
            (false, _) => Fit::Refused(refusals),
            (true, false) => Fit::Near(near),
            (true, true) => Fit::Fits,
        }
    }

    /// Returns the resources for which the free amount and the pod's request differ by at most the slack.
    fn margins(&self, node: &Node, slack: &Amounts) -> Vec<Margin> {
        let measured = self.pod.requests.iter().filter(|request| request.resource.is_measured());
        let close = |Request { resource, amount, path }: &Request| {
            let free = node.allocatable.get(resource) - node.used().get(resource);
            let is_close = free.abs_diff(*amount) <= slack.get(resource).unsigned_abs();
            is_close.then(|| Margin { resource: resource.clone(), wanted: *amount, free, path: path.clone() })
        };
        measured.filter_map(close).collect()
    }

    /// Runs the predicates in kube-scheduler's order.
    fn check(&self, node: &Node, sink: &mut impl Sink) -> ControlFlow<()> {
        self.check_node(node, sink)?;
        self.check_affinity(node, sink)?;
        self.check_ports(node, sink)?;
        self.check_resources(node, sink)?;
        for place in &self.volumes {
            place.check(node, sink)?;
        }
        self.check_spread(node, sink)?;
        self.check_company(node, sink)
    }

    fn check_node(&self, node: &Node, sink: &mut impl Sink) -> ControlFlow<()> {
        let Self { pod, .. } = self;
        let tolerations = || FieldPath::keys(["spec", "tolerations"]);
        if node.unschedulable && untolerated(&[Taint::no_schedule(CORDON, "")], &pod.tolerations).is_some() {
            sink.refuse(|| Refusal { reason: Reason::Cordoned, path: tolerations() })?;
        }
        if let Some(wanted) = pod.node_name.as_ref().filter(|wanted| **wanted != node.name) {
            let reason = || Reason::NodeName { wanted: wanted.clone() };
            sink.refuse(|| Refusal { reason: reason(), path: FieldPath::keys(["spec", "nodeName"]) })?;
        }
        let tolerates = |taint: &Taint| pod.tolerations.iter().any(|toleration| toleration.tolerates(taint));
        for taint in node.taints.iter().filter(|taint| taint.keeps_off() && !tolerates(taint)) {
            sink.refuse(|| Refusal { reason: Reason::Taint { taint: taint.clone() }, path: tolerations() })?;
        }
        ControlFlow::Continue(())
    }

    fn check_affinity(&self, node: &Node, sink: &mut impl Sink) -> ControlFlow<()> {
        for (key, wanted) in &self.pod.node_selector {
            let found = node.labels.get(key);
            if found != Some(wanted) {
                sink.refuse(|| Refusal {
                    reason: Reason::Selector {
                        key: key.clone(),
                        wanted: wanted.clone(),
                        found: found.cloned(),
                    },
                    path: FieldPath::keys(["spec", "nodeSelector", key]),
                })?;
            }
        }
        let Some(terms) = &self.pod.node_terms else { return ControlFlow::Continue(()) };
        if terms.iter().any(|term| term.check(&node.labels, &node.name).is_ok()) {
            return ControlFlow::Continue(());
        }
        sink.refuse(|| {
            let terms_path = FieldPath::keys([
                "spec",
                "affinity",
                "nodeAffinity",
                "requiredDuringSchedulingIgnoredDuringExecution",
                "nodeSelectorTerms",
            ]);
            // One term has one place; of several, none is the one.
            let path = match terms.as_slice() {
                [only] => only.check(&node.labels, &node.name).err().flatten().map_or_else(
                    || terms_path.index(0),
                    |(_, list, at)| terms_path.index(0).key(list).index(at),
                ),
                _ => terms_path,
            };
            Refusal { reason: Reason::Affinity { unmet: unmet(terms, node) }, path }
        })
    }

    fn check_ports(&self, node: &Node, sink: &mut impl Sink) -> ControlFlow<()> {
        for port in
            self.pod.ports.iter().filter(|port| node.ports().iter().any(|taken| port.conflicts(taken)))
        {
            let reason = || Reason::Port { port: port.port, protocol: port.protocol.clone() };
            sink.refuse(|| Refusal { reason: reason(), path: port.path.clone() })?;
        }
        ControlFlow::Continue(())
    }

    fn check_resources(&self, node: &Node, sink: &mut impl Sink) -> ControlFlow<()> {
        let left = |resource: &Resource, of: &Amounts| of.get(resource) - node.used().get(resource);
        let all = &node.allocatable;
        if node.used().pods + 1 > all.pods {
            sink.refuse(|| Refusal {
                reason: Reason::Short {
                    resource: Resource::Pods,
                    wanted: 1,
                    free: left(&Resource::Pods, all),
                    allocatable: all.pods,
                },
                path: FieldPath::keys(["spec"]),
            })?;
        }
        for request in &self.pod.requests {
            let free = left(&request.resource, all);
            if request.amount > free {
                sink.refuse(|| Refusal {
                    reason: Reason::Short {
                        resource: request.resource.clone(),
                        wanted: request.amount,
                        free,
                        allocatable: all.get(&request.resource),
                    },
                    path: request.path.clone(),
                })?;
            }
        }
        ControlFlow::Continue(())
    }

    fn check_spread(&self, node: &Node, sink: &mut impl Sink) -> ControlFlow<()> {
        for domains in &self.domains {
            let (spread, key) = (domains.spread, &domains.spread.topology_key);
            let Some(domain) = node.labels.get(key) else {
                let reason = || Reason::NoDomain { topology_key: key.clone() };
                sink.refuse(|| Refusal { reason: reason(), path: spread.path.clone() })?;
                continue;
            };
            if let Some(skew) = domains.skew(domain) {
                sink.refuse(|| Refusal {
                    reason: Reason::Skewed {
                        topology_key: key.clone(),
                        domain: domain.clone(),
                        skew,
                        max_skew: spread.max_skew,
                    },
                    path: spread.path.clone(),
                })?;
            }
        }
        ControlFlow::Continue(())
    }

    fn check_company(&self, node: &Node, sink: &mut impl Sink) -> ControlFlow<()> {
        let domain = |key: &String| node.labels.get(key).cloned();
        if let Some(term) = self.company.missing(node, &self.pod.near) {
            let (topology_key, selector) = (term.topology_key.clone(), term.selector.clone());
            let reason = || Reason::NotNear { domain: domain(&topology_key), topology_key, selector };
            sink.refuse(|| Refusal { reason: reason(), path: term.path.clone() })?;
        }
        if let Some(term) = self.company.crowded(node, &self.pod.apart) {
            let (topology_key, selector) = (term.topology_key.clone(), term.selector.clone());
            let reason = || Reason::NotApart {
                domain: domain(&topology_key).unwrap_or_default(),
                topology_key,
                selector,
            };
            sink.refuse(|| Refusal { reason: reason(), path: term.path.clone() })?;
        }
        if let Some((key, domain)) = self.company.kept_out(node) {
            let reason = || Reason::KeptOut { topology_key: key.to_owned(), domain: domain.to_owned() };
            sink.refuse(|| Refusal { reason: reason(), path: FieldPath::keys(["metadata", "labels"]) })?;
        }
        ControlFlow::Continue(())
    }
}

/// Returns, for each term, the first requirement that the node does not meet.
fn unmet(terms: &[NodeTerm], node: &Node) -> Vec<Option<Requirement>> {
    let first =
        |term: &NodeTerm| term.check(&node.labels, &node.name).err().flatten().map(|(one, ..)| one.clone());
    terms.iter().map(first).collect()
}

/// kube-scheduler's own words.
impl Question<'_> {
    /// Returns the reason, in the words of kube-scheduler's PreFilter plugins, why the pod fits on no node at all. `None` if it
    /// depends on the nodes.
    pub fn words_for_all(&self) -> Option<String> {
        if self.names().is_some_and(|names| names.is_empty()) {
            return Some("pod affinity terms conflict".to_owned());
        }
        let nowhere = |place: &Place<'_>| match place {
            Place::Nowhere(reason, _) => words::of_claim(reason),
            _ => None,
        };
        self.volumes.iter().filter_map(nowhere).min_by_key(|(order, _)| *order).map(|(_, words)| words)
    }

    /// Returns the reasons, in kube-scheduler's words, why the pod does not fit on a node: those of the first plugin that
    /// refuses.
    pub fn words(&self, node: &Node) -> Vec<String> {
        if let Some(words) = self.words_for_all() {
            return vec![words];
        }
        if self.names().is_some_and(|names| !names.contains(node.name.as_str())) {
            return vec!["node(s) didn't satisfy plugin(s) [NodeAffinity]".to_owned()];
        }
        words::of_node(&self.by_node(node))
    }

    /// Returns true if the pod could be placed on the node after other pods have left it.
    pub fn is_preemptible(&self, node: &Node) -> bool {
        let refusals = self.by_node(node);
        let first = refusals.first().map(Refusal::predicate);
        self.words_for_all().is_none()
            && refusals.iter().filter(|one| Some(one.predicate()) == first).all(Refusal::is_preemptible)
    }

    /// Returns the node names that node affinity is limited to; `None` if it is not limited to names.
    fn names(&self) -> Option<BTreeSet<&str>> {
        let terms = self.pod.node_terms.as_deref().filter(|terms| !terms.is_empty())?;
        let sets = terms.iter().map(NodeTerm::names).collect::<Option<Vec<_>>>()?;
        Some(sets.into_iter().flatten().collect())
    }
}

impl<'a> Place<'a> {
    fn of(volume: &'a Volume, pod: &PodRequirements, cluster: &'a Cluster) -> Vec<Self> {
        match volume {
            Volume::Claim { name, path } => {
                let Some(claim) = cluster.claims.get(&(pod.namespace.clone(), name.clone())) else {
                    return vec![Self::Nowhere(Reason::NoClaim { claim: name.clone() }, path)];
                };
                let is_used = claim.one_pod && cluster.is_used(&pod.namespace, name);
                let used = is_used.then(|| Self::Nowhere(Reason::ClaimInUse { claim: name.clone() }, path));
                let going =
                    claim.deleting.then(|| Self::Nowhere(Reason::ClaimGoing { claim: name.clone() }, path));
                let state = Self::of_claim(name, &claim.state, path, cluster);
                used.into_iter().chain(state).chain(going).collect()
            }
            Volume::Ephemeral { volume, class, path } => {
                let nowhere = |class: &str| {
                    let (volume, class) = (volume.clone(), class.to_owned());
                    Self::Nowhere(Reason::NoClassOfVolume { volume, class }, path)
                };
                let made = |of, class| Self::Made(format!("{volume} of its own"), of, class, path);
                match cluster.class(class) {
                    // In which zone a class makes one that does not wait, nobody knows: only where it makes none is known.
                    Class::Known(of, class) => vec![made(of, class)],
                    Class::Unknown(class) => vec![nowhere(class)],
                    // Somebody makes its volume by hand.
                    Class::None => Vec::new(),
                }
            }
            Volume::Disk { name, read_only, path } => vec![Self::Disk(name, *read_only, path)],
        }
    }

    fn of_claim(
        name: &'a str,
        state: &'a ClaimState,
        path: &'a FieldPath,
        cluster: &'a Cluster,
    ) -> Vec<Self> {
        let claim = || name.to_owned();
        let nowhere = |reason| Self::Nowhere(reason, path);
        let no_class = |class: &str| Reason::NoClass { claim: claim(), class: class.to_owned() };
        match state {
            ClaimState::Bound(volume) => {
                let there = volume.node_terms.as_deref().map(|terms| Self::There(name, terms, path));
                there.into_iter().chain([Self::Labelled(name, &volume.labels, path)]).collect()
            }
            ClaimState::Gone(volume) => {
                vec![nowhere(Reason::NoVolume { claim: claim(), volume: volume.clone() })]
            }
            ClaimState::Lost(volume) => {
                vec![nowhere(Reason::ClaimLost { claim: claim(), volume: volume.clone() })]
            }
            ClaimState::Named(volume, labels) => {
                let (claim, volume) = (claim(), volume.clone());
                let waits = Reason::NotBoundYet { claim: claim.clone(), volume: volume.clone() };
                let other = match labels {
                    Some(labels) => Self::Labelled(name, labels, path),
                    None => nowhere(Reason::NoVolume { claim, volume }),
                };
                vec![nowhere(waits), other]
            }
            ClaimState::Unbound { class, node } => match cluster.class(class) {
                Class::Known(of, class) if class.waits_for_pod => {
                    let node = node.as_deref().map(|node| Self::MadeFor(name, node, path));
                    [Self::Made(claim(), of, class, path)].into_iter().chain(node).collect()
                }
                Class::Unknown(class) => vec![nowhere(no_class(class))],
                Class::Known(..) | Class::None => vec![nowhere(Reason::Unbound { claim: claim() })],
            },
            ClaimState::Planned(class) => match cluster.class(class) {
                // As above. Volumes of other classes are made by hand.
                Class::Known(of, class) if class.provisions => vec![Self::Made(claim(), of, class, path)],
                Class::Unknown(class) => vec![nowhere(no_class(class))],
                Class::Known(..) | Class::None => Vec::new(),
            },
        }
    }

    fn check(&self, node: &Node, sink: &mut impl Sink) -> ControlFlow<()> {
        let refuse = |sink: &mut _, path: &FieldPath, reason: &dyn Fn() -> Reason| {
            Sink::refuse(sink, || Refusal { reason: reason(), path: path.clone() })
        };
        match self {
            Self::Nowhere(reason, path) => refuse(sink, path, &|| reason.clone()),
            Self::There(claim, terms, path) if !any_term(terms, &node.labels, "") => {
                refuse(sink, path, &|| Reason::VolumeElsewhere {
                    claim: (*claim).to_owned(),
                    unmet: unmet(terms, node),
                })
            }
            Self::Labelled(claim, labels, path) => match BoundVolume::other_zone(labels, &node.labels) {
                Some((key, zones)) => refuse(sink, path, &|| Reason::Zone {
                    claim: (*claim).to_owned(),
                    key: key.to_owned(),
                    zones: zones.to_owned(),
                }),
                None => ControlFlow::Continue(()),
            },
            Self::Made(claim, of, class, path) if !class.reaches(&node.labels) => refuse(sink, path, &|| {
                Reason::ClassElsewhere { claim: claim.clone(), class: (*of).to_owned() }
            }),
            Self::MadeFor(claim, wanted, path) if node.name != *wanted => refuse(sink, path, &|| {
                Reason::MadeElsewhere { claim: (*claim).to_owned(), node: (*wanted).to_owned() }
            }),
            Self::Disk(name, read_only, path) if is_taken(name, *read_only, node) => {
                refuse(sink, path, &|| Reason::DiskInUse { disk: (*name).to_owned() })
            }
            Self::There(..) | Self::Made(..) | Self::MadeFor(..) | Self::Disk(..) => {
                ControlFlow::Continue(())
            }
        }
    }
}

/// Returns true if a pod on the node uses the disk, and one of the two pods writes to it.
fn is_taken(name: &str, read_only: bool, node: &Node) -> bool {
    let same = |volume: &Volume| match volume {
        Volume::Disk { name: other, read_only: too, .. } => other == name && !(read_only && *too),
        Volume::Claim { .. } | Volume::Ephemeral { .. } => false,
    };
    node.pods().iter().any(|bound| bound.pod.volumes.iter().any(same))
}

#[cfg(test)]
#[path = "question_tests.rs"]
mod tests;
