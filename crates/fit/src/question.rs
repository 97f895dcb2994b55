//! One pod against the nodes of a cluster.

use std::ops::ControlFlow;

use model::address::FieldPath;

use crate::cluster::{Cluster, NodeId};
use crate::labels::{NodeTerm, Requirement};
use crate::node::Node;
use crate::pod::{PodRequirements, Volume};
use crate::refusal::{Reason, Refusal};
use crate::requests::Request;
use crate::resources::{Amounts, Resource};
use crate::taints::{CORDON, Taint, untolerated};
use crate::topology::{Company, Domains, domains};
use crate::verdict::{Fit, Margin};
use crate::volumes::{BoundVolume, ClaimState, StorageClass};

/// A pod, and what was counted over all nodes for it. Made once for a pod by [`Cluster::ask`], it answers for each node in less
/// than a microsecond.
pub struct Question<'a> {
    pod: &'a PodRequirements,
    domains: Vec<Domains<'a>>,
    company: Company<'a>,
    volumes: Vec<Place<'a>>,
}

/// The bearing of one volume on nodes.
enum Place<'a> {
    /// No node takes the pod.
    Nowhere(Reason, &'a FieldPath),
    /// The volume of a claim is there.
    Bound(&'a str, &'a BoundVolume, &'a FieldPath),
    /// A class makes the volume.
    Made(&'a str, &'a str, &'a StorageClass, &'a FieldPath),
    /// A disk by its name.
    Disk(&'a str, bool, &'a FieldPath),
}

/// Takes refusals. The clause is made only where it is wanted.
trait Sink {
    fn refuse(&mut self, refusal: impl FnOnce() -> Refusal) -> ControlFlow<()>;
}

/// Ends at the first.
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
    /// Counts what depends on all nodes (topology spread, pod affinity, volumes), once for all of them.
    pub fn ask<'a>(&'a self, pod: &'a PodRequirements) -> Question<'a> {
        Question::new(self, pod)
    }

    /// The nodes that take a pod, in their order.
    pub fn places(&self, pod: &PodRequirements) -> Vec<NodeId> {
        let question = self.ask(pod);
        self.nodes().filter(|(_, node)| question.takes(node)).map(|(id, _)| id).collect()
    }
}

impl<'a> Question<'a> {
    fn new(cluster: &'a Cluster, pod: &'a PodRequirements) -> Self {
        let volumes = pod.volumes.iter().filter_map(|volume| Place::of(volume, pod, cluster)).collect();
        Self { pod, domains: domains(cluster, pod), company: Company::new(cluster, pod), volumes }
    }

    /// Returns true if the node takes the pod. Gates count, as in [`Self::refusals`].
    pub fn takes(&self, node: &Node) -> bool {
        self.pod.gates.is_empty() && self.check(node, &mut First).is_continue()
    }

    /// All reasons why the node does not take the pod, in the order of kube-scheduler's predicates; none when it does.
    pub fn refusals(&self, node: &Node) -> Vec<Refusal> {
        let mut all = Vec::new();
        if !self.pod.gates.is_empty() {
            let reason = Reason::Gated { gates: self.pod.gates.clone() };
            all.push(Refusal { reason, path: FieldPath::keys(["spec", "schedulingGates"]) });
        }
        // It goes on until the end.
        let _ = self.check(node, &mut all);
        all
    }

    /// The answer for a node that may not exist yet. Gates do not count: they hold the pod back, and no node is to blame.
    pub fn verdict(&self, node: &Node) -> Fit {
        let mut refusals = Vec::new();
        let _ = self.check(node, &mut refusals);
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

    /// The resources of which about as much is left as the pod asks for: the difference is not above the slack.
    fn margins(&self, node: &Node, slack: &Amounts) -> Vec<Margin> {
        let measured = self.pod.requests.iter().filter(|request| request.resource.is_measured());
        let close = |Request { resource, amount, path }: &Request| {
            let free = node.allocatable.get(resource) - node.used().get(resource);
            let is_close = free.abs_diff(*amount) <= slack.get(resource).unsigned_abs();
            is_close.then(|| Margin { resource: resource.clone(), wanted: *amount, free, path: path.clone() })
        };
        measured.filter_map(close).collect()
    }

    /// The predicates in kube-scheduler's order.
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

/// The first requirement of each term that a node does not meet.
fn unmet(terms: &[NodeTerm], node: &Node) -> Vec<Option<Requirement>> {
    let first =
        |term: &NodeTerm| term.check(&node.labels, &node.name).err().flatten().map(|(one, ..)| one.clone());
    terms.iter().map(first).collect()
}

impl<'a> Place<'a> {
    fn of(volume: &'a Volume, pod: &PodRequirements, cluster: &'a Cluster) -> Option<Self> {
        let class = |name: Option<&'a str>| Some((name?, cluster.classes.get(name?)?));
        match volume {
            Volume::Claim { name, path } => {
                let Some(claim) = cluster.claims.get(&(pod.namespace.clone(), name.clone())) else {
                    return Some(Self::Nowhere(Reason::NoClaim { claim: name.clone() }, path));
                };
                if claim.one_pod && cluster.is_used(&pod.namespace, name) {
                    return Some(Self::Nowhere(Reason::ClaimInUse { claim: name.clone() }, path));
                }
                match &claim.state {
                    ClaimState::Bound(volume) => Some(Self::Bound(name, volume, path)),
                    ClaimState::Unbound(of) => Some(match class(of.as_deref()) {
                        Some((of, class)) if class.waits_for_pod => Self::Made(name, of, class, path),
                        _ => Self::Nowhere(Reason::Unbound { claim: name.clone() }, path),
                    }),
                }
            }
            Volume::Ephemeral { class: of, path } => {
                // One of a class that does not wait is made somewhere before the pod goes anywhere; which zone, nobody knows.
                let (of, class) = class(of.as_deref().or(cluster.default_class.as_deref()))?;
                class.waits_for_pod.then_some(Self::Made("of the pod", of, class, path))
            }
            Volume::Disk { name, read_only, path } => Some(Self::Disk(name, *read_only, path)),
        }
    }

    fn check(&self, node: &Node, sink: &mut impl Sink) -> ControlFlow<()> {
        match self {
            Self::Nowhere(reason, path) => {
                sink.refuse(|| Refusal { reason: reason.clone(), path: (*path).clone() })?;
            }
            Self::Bound(claim, volume, path) => {
                let terms = volume.node_terms.as_deref();
                if terms.is_some_and(|terms| !terms.iter().any(|term| term.check(&node.labels, "").is_ok())) {
                    let unmet = || unmet(terms.unwrap_or_default(), node);
                    let reason = || Reason::VolumeElsewhere { claim: (*claim).to_owned(), unmet: unmet() };
                    sink.refuse(|| Refusal { reason: reason(), path: (*path).clone() })?;
                }
                if let Some((key, zones)) = volume.other_zone(&node.labels) {
                    let (key, zones) = (key.to_owned(), zones.to_owned());
                    let reason = || Reason::Zone { claim: (*claim).to_owned(), key, zones };
                    sink.refuse(|| Refusal { reason: reason(), path: (*path).clone() })?;
                }
            }
            Self::Made(claim, of, class, path) if !class.reaches(&node.labels) => {
                let reason =
                    || Reason::ClassElsewhere { claim: (*claim).to_owned(), class: (*of).to_owned() };
                sink.refuse(|| Refusal { reason: reason(), path: (*path).clone() })?;
            }
            Self::Made(..) => {}
            Self::Disk(name, read_only, path) => {
                let same = |volume: &Volume| match volume {
                    Volume::Disk { name: other, read_only: too, .. } => {
                        other == name && !(*read_only && *too)
                    }
                    Volume::Claim { .. } | Volume::Ephemeral { .. } => false,
                };
                if node.pods().iter().any(|bound| bound.pod.volumes.iter().any(same)) {
                    let reason = || Reason::DiskInUse { disk: (*name).to_owned() };
                    sink.refuse(|| Refusal { reason: reason(), path: (*path).clone() })?;
                }
            }
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
#[path = "question_tests.rs"]
mod tests;
