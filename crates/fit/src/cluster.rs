//! A set of nodes, with the other objects that kube-scheduler looks at: pods, namespaces, claims and storage classes.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::error::UnknownNode;
use crate::labels::Labels;
use crate::node::{Bound, Node};
use crate::pod::{PodRequirements, Volume};
use crate::volumes::{Claim, ClassName, StorageClass};

/// The index of a node in a [`Cluster`], in the order of [`Cluster::add`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(usize);

/// Nodes with their pods, namespaces, claims and storage classes: everything that kube-scheduler looks at.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    nodes: Vec<Node>,
    /// Pods with anti-affinity, and their nodes. They are few; each [`Question`] checks all of them.
    repelling: Vec<(NodeId, Arc<PodRequirements>)>,
    /// The number of pods on nodes that use a claim, by the claim's namespace and name.
    used_claims: BTreeMap<(String, String), u32>,
    /// Labels of namespaces.
    pub namespaces: BTreeMap<String, Labels>,
    /// Claims by namespace and name.
    pub claims: BTreeMap<(String, String), Claim>,
    /// Storage classes by name.
    pub classes: BTreeMap<String, StorageClass>,
    /// The default storage class, which kube-apiserver fills into claims without a class.
    pub default_class: Option<String>,
}

impl Cluster {
    /// Adds a node with its pods.
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

    /// Returns the nodes with their ids.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &Node)> {
        self.nodes.iter().enumerate().map(|(at, node)| (NodeId(at), node))
    }

    /// Returns the node with this id. An id of another cluster returns an unrelated node, or `None`.
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.0)
    }

    /// Returns the pods with anti-affinity, with their nodes.
    pub(crate) fn repelling(&self) -> impl Iterator<Item = (&Node, &PodRequirements)> {
        self.repelling.iter().filter_map(|(id, pod)| Some((self.node(*id)?, &**pod)))
    }

    /// Returns the storage class that provisions the volume of a claim.
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

/// The storage class of a claim.
pub enum Class<'a> {
    Known(&'a str, &'a StorageClass),
    /// The claim names a class that does not exist.
    Unknown(&'a str),
    /// The claim has no class, and the cluster has no default class.
    None,
}

/// Groups equal pods. Returns the indices in `pods` of each group, in the order of each group's first pod. The answer for one pod
/// of a group holds for the whole group.
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
