//! Counts over all nodes for one pod: topology spread, pod affinity and anti-affinity.
//!
//! Source: plugins PodTopologySpread (`filtering.go`, `common.go`) and InterPodAffinity (`filtering.go`) of kube-scheduler
//! 1.36.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::Cluster;
use crate::labels::Labels;
use crate::node::Node;
use crate::pod::{PodRequirements, PodTerm, Spread};
use crate::taints::untolerated;

/// The number of matching pods in each domain of one spread constraint.
pub struct Domains<'a> {
    pub spread: &'a Spread,
    pods: BTreeMap<&'a str, i64>,
    /// The lowest number of pods in any domain.
    fewest: i64,
    /// 1 if the constraint counts the pod itself; otherwise 0.
    own: i64,
}

/// Returns the counts of each spread constraint.
pub fn domains<'a>(cluster: &'a Cluster, pod: &'a PodRequirements) -> Vec<Domains<'a>> {
    let has_all =
        |node: &Node| pod.spread.iter().all(|spread| node.labels.contains_key(&spread.topology_key));
    pod.spread
        .iter()
        .map(|spread| {
            let counts = |node: &&Node| {
                has_all(node)
                    && (!spread.honors_affinity || pod.selects(node))
                    && (!spread.honors_taints || untolerated(&node.taints, &pod.tolerations).is_none())
            };
            let mut pods = BTreeMap::new();
            for node in cluster.nodes().map(|(_, node)| node).filter(counts) {
                let Some(domain) = node.labels.get(&spread.topology_key) else { continue };
                *pods.entry(domain.as_str()).or_default() += counted(spread, pod, node);
            }
            let enough = i64::try_from(pods.len()).is_ok_and(|domains| domains >= spread.min_domains);
            let fewest = pods.values().copied().min().filter(|_| enough).unwrap_or(0);
            Domains { spread, pods, fewest, own: i64::from(spread.selector.selects(&pod.labels)) }
        })
        .collect()
}

/// Returns the number of pods on a node that a constraint counts. An empty selector counts none, although it selects the pod
/// itself.
fn counted(spread: &Spread, pod: &PodRequirements, node: &Node) -> i64 {
    if spread.selector.is_everything() {
        return 0;
    }
    let counts =
        |other: &PodRequirements| other.namespace == pod.namespace && spread.selector.selects(&other.labels);
    let number = node.pods().iter().filter(|bound| !bound.terminating && counts(&bound.pod)).count();
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The counts of a domain that cannot take another pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skew {
    /// The number of pods in the domain.
    pub pods: i64,
    /// The number of pods in the domain with the fewest pods.
    pub fewest: i64,
}

impl Domains<'_> {
    /// Returns the counts when one more pod in the domain is too many.
    pub fn skew(&self, domain: &str) -> Option<Skew> {
        let pods = self.pods.get(domain).copied().unwrap_or(0);
        (pods + self.own - self.fewest > self.spread.max_skew).then_some(Skew { pods, fewest: self.fewest })
    }
}

/// The topology domains that decide about affinity and anti-affinity of one pod: where the pods run that its terms select, and where
/// pods run whose anti-affinity selects it.
#[derive(Default)]
pub struct Company<'a> {
    /// For each term of pod affinity, the domains with a pod that matches all of the terms.
    near: Vec<BTreeSet<&'a str>>,
    /// True if no pod matches the terms yet except the pod itself, so that affinity does not hold it back.
    is_first: bool,
    /// For each term of anti-affinity, the domains with a pod that matches it.
    apart: Vec<BTreeSet<&'a str>>,
    /// The label and value of the domains from which the anti-affinity of other pods excludes it.
    kept_out: BTreeSet<(&'a str, &'a str)>,
}

impl<'a> Company<'a> {
    pub fn new(cluster: &'a Cluster, pod: &'a PodRequirements) -> Self {
        let mut out = Self::default();
        let own = cluster.namespaces.get(&pod.namespace);
        for (node, other) in cluster.repelling() {
            for term in &other.apart {
                let domain = node.labels.get(&term.topology_key).filter(|_| term.repels(pod, own));
                out.kept_out.extend(domain.map(|domain| (term.topology_key.as_str(), domain.as_str())));
            }
        }
        if pod.near.is_empty() && pod.apart.is_empty() {
            return out;
        }
        let near: Vec<Scope<'_>> = pod.near.iter().map(|term| Scope::new(term, cluster)).collect();
        let apart: Vec<Scope<'_>> = pod.apart.iter().map(|term| Scope::new(term, cluster)).collect();
        out.near = vec![BTreeSet::new(); near.len()];
        out.apart = vec![BTreeSet::new(); apart.len()];
        for (_, node) in cluster.nodes() {
            for other in node.pods().iter().map(|bound| &*bound.pod) {
                if !near.is_empty() && near.iter().all(|scope| scope.has(other)) {
                    note(&near, &mut out.near, node, |_| true);
                }
                note(&apart, &mut out.apart, node, |scope| scope.has(other));
            }
        }
        let nobody = out.near.iter().all(BTreeSet::is_empty);
        out.is_first = nobody && near.iter().all(|scope| scope.has(pod));
        out
    }

    /// Returns the first term of affinity that a node does not meet.
    pub fn missing(&self, node: &Node, terms: &'a [PodTerm]) -> Option<&'a PodTerm> {
        let domain = |term: &PodTerm| node.labels.get(&term.topology_key);
        if let Some(term) = terms.iter().find(|term| domain(term).is_none()) {
            return Some(term);
        }
        let here = |(term, domains): &(&PodTerm, &BTreeSet<&str>)| {
            domain(term).is_some_and(|domain| domains.contains(domain.as_str()))
        };
        let (term, _) = terms.iter().zip(&self.near).find(|pair| !here(pair))?;
        (!self.is_first).then_some(term)
    }

    /// Returns the first term of anti-affinity that a node violates.
    pub fn crowded(&self, node: &Node, terms: &'a [PodTerm]) -> Option<&'a PodTerm> {
        let here = |(term, domains): &(&PodTerm, &BTreeSet<&str>)| {
            node.labels.get(&term.topology_key).is_some_and(|domain| domains.contains(domain.as_str()))
        };
        terms.iter().zip(&self.apart).find(here).map(|(term, _)| term)
    }

    /// Returns the label and value of a domain of the node from which another pod's anti-affinity excludes the pod.
    pub fn kept_out(&self, node: &Node) -> Option<(&'a str, &'a str)> {
        let here = |(key, value): &&(&str, &str)| node.labels.get(*key).is_some_and(|own| own == value);
        self.kept_out.iter().find(here).copied()
    }
}

/// Adds the domains of a node to those of each matching term.
fn note<'a>(
    scopes: &[Scope<'a>],
    to: &mut [BTreeSet<&'a str>],
    node: &'a Node,
    holds: impl Fn(&Scope<'a>) -> bool,
) {
    for (scope, domains) in scopes.iter().zip(to).filter(|(scope, _)| holds(scope)) {
        domains.extend(node.labels.get(&scope.term.topology_key).map(String::as_str));
    }
}

/// A term of the pod to schedule, with the namespaces that it selects by label.
struct Scope<'a> {
    term: &'a PodTerm,
    by_label: BTreeSet<&'a str>,
}

impl<'a> Scope<'a> {
    fn new(term: &'a PodTerm, cluster: &'a Cluster) -> Self {
        let selected =
            cluster.namespaces.iter().filter(|(_, labels)| term.namespace_selector.selects(labels));
        Self { term, by_label: selected.map(|(name, _)| name.as_str()).collect() }
    }

    /// Returns true if the term matches a pod. A term for all namespaces also matches pods in unknown namespaces; and so is one
    /// that would select a namespace without labels, as of kube-scheduler 1.36: its `mergeAffinityTermNamespacesIfNotEmpty`
    /// forgets in a copy of the term that the selector is done with, and compares it with no labels afterwards.
    fn has(&self, pod: &PodRequirements) -> bool {
        let namespace = &pod.namespace;
        (self.term.namespaces.contains(namespace)
            || self.term.namespace_selector.selects(&Labels::new())
            || self.by_label.contains(namespace.as_str()))
            && self.term.selector.selects(&pod.labels)
    }
}

impl PodTerm {
    /// Returns true if a pod with this term excludes another pod, whose namespace has these labels (`None` if unknown).
    fn repels(&self, other: &PodRequirements, namespace: Option<&Labels>) -> bool {
        let none = Labels::new();
        (self.namespaces.contains(&other.namespace)
            || self.namespace_selector.selects(namespace.unwrap_or(&none)))
            && self.selector.selects(&other.labels)
    }
}
