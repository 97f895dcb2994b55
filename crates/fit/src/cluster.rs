//! A set of nodes, and the facts beside them that decide on places.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::error::UnknownNode;
use crate::labels::Labels;
use crate::node::{Bound, Node};
use crate::pod::{PodRequirements, Volume};
use crate::volumes::{Claim, ClassName, StorageClass};

/// The number of a node in a [`Cluster`], in the order of [`Cluster::add`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(usize);

/// Nodes with their pods, namespaces, claims and classes of storage: all that kube-scheduler looks at.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    nodes: Vec<Node>,
    /// Pods with anti-affinity, and their nodes: few, and each question looks at all of them.
    repelling: Vec<(NodeId, Arc<PodRequirements>)>,
    /// Claims that pods on nodes use, by namespace and name, with the number of these pods.
    used_claims: BTreeMap<(String, String), u32>,
    /// Labels of namespaces.
    pub namespaces: BTreeMap<String, Labels>,
    /// Claims by namespace and name.
    pub claims: BTreeMap<(String, String), Claim>,
    /// Classes of storage by name.
    pub classes: BTreeMap<String, StorageClass>,
    /// The class that kube-apiserver fills into claims that say nothing of one.
    pub default_class: Option<String>,
}

impl Cluster {
    /// Adds a node with the pods that are on it.
    pub fn add(&mut self, node: Node) -> NodeId {
        let id = NodeId(self.nodes.len());
        for bound in node.pods() {
            self.note(id, &bound.pod);
        }
        self.nodes.push(node);
        id
    }

    /// Puts a pod on a node, whether it fits or not.
    ///
    /// # Errors
    /// The cluster has no such node; nothing is changed.
    pub fn bind(&mut self, id: NodeId, pod: Bound) -> Result<(), UnknownNode> {
        let node = self.nodes.get_mut(id.0).ok_or(UnknownNode)?;
        let requirements = Arc::clone(&pod.pod);
        node.bind(pod);
        self.note(id, &requirements);
        Ok(())
    }

    fn note(&mut self, id: NodeId, pod: &Arc<PodRequirements>) {
        if !pod.apart.is_empty() {
            self.repelling.push((id, Arc::clone(pod)));
        }
        for volume in &pod.volumes {
            if let Volume::Claim { name, .. } = volume {
                *self.used_claims.entry((pod.namespace.clone(), name.clone())).or_default() += 1;
            }
        }
    }

    /// The nodes, with their numbers.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes.iter().enumerate().map(|(at, node)| (NodeId(at), node))
    }

    /// A node of this cluster. Numbers of another cluster name whatever node has them, or none.
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.0)
    }

    /// Pods with anti-affinity, with their nodes.
    pub(crate) fn repelling(&self) -> impl Iterator<Item = (&Node, &PodRequirements)> {
        self.repelling.iter().filter_map(|(id, pod)| Some((self.node(*id)?, &**pod)))
    }

    /// The class that a claim gets its volume by.
    pub(crate) fn class<'a>(&'a self, name: &'a ClassName) -> Class<'a> {
        let name = match name {
            ClassName::Named(name) => Some(name),
            ClassName::Default => self.default_class.as_ref(),
            ClassName::Empty => None,
        };
        match name.map(|name| (name, self.classes.get(name))) {
            Some((name, Some(class))) => Class::Known(name, class),
            Some((name, None)) => Class::Unknown(name),
            None => Class::None,
        }
    }

    /// Returns true if a pod on a node uses the claim.
    pub(crate) fn is_used(&self, namespace: &str, claim: &str) -> bool {
        !self.used_claims.is_empty()
            && self.used_claims.contains_key(&(namespace.to_owned(), claim.to_owned()))
    }
}

/// The class of a claim.
pub enum Class<'a> {
    Known(&'a str, &'a StorageClass),
    /// There is none of this name.
    Unknown(&'a str),
    /// It has none.
    None,
}

/// Groups equal pods: the places of each group in `pods`, in the order of their first. One of a group answers for all.
pub fn groups(pods: &[PodRequirements]) -> Vec<Vec<usize>> {
    let mut known: HashMap<&PodRequirements, usize> = HashMap::new();
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (at, pod) in pods.iter().enumerate() {
        let group = *known.entry(pod).or_insert(groups.len());
        match groups.get_mut(group) {
            Some(group) => group.push(at),
            None => groups.push(vec![at]),
        }
    }
    groups
}
