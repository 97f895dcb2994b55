use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::sample::{Index, select};
use serde_json::json;

use super::*;
use kinds::kubernetes::object::gvk;
use model::resource::{ClusterName, Facts, KindId, Seen};

/// A generated change.
#[derive(Clone, Debug)]
struct Drawn {
    what: &'static str,
    section: &'static str,
    name: &'static str,
    namespace: Option<&'static str>,
    action: Action,
    has_steps: bool,
    speaks_of: Vec<&'static str>,
    depends_on: Vec<Index>,
}

const NAMES: [&str; 5] = ["a", "b-c", "system:a", "widgets.example.com", "a.b-c"];

fn drawn() -> impl Strategy<Value = Drawn> {
    let whats = [
        "Namespace",
        "CustomResourceDefinition",
        "ConfigMap",
        "ConfigMap",
        "Deployment",
        "ClusterRole",
        "Widget",
        "DaskCluster",
        "pool",
        "check",
        "cluster",
    ];
    let actions = [
        Action::Delete,
        Action::Delete,
        Action::Delete,
        Action::Delete,
        Action::Create,
        Action::Update,
        Action::Replace,
        Action::Keep,
        Action::Forget,
    ];
    (
        (select(whats.to_vec()), select(vec!["one", "two", "three"]), select(NAMES.to_vec())),
        (prop::option::of(select(vec!["a", "b-c"])), select(actions.to_vec()), prop::bool::weighted(0.8)),
        prop::collection::vec(select([NAMES.as_slice(), &["example.com", "x a y"]].concat()), 0..3),
        prop::collection::vec(any::<Index>(), 0..2),
    )
        .prop_map(|((what, section, name), (namespace, action, has_steps), speaks_of, depends_on)| {
            Drawn { what, section, name, namespace, action, has_steps, speaks_of, depends_on }
        })
}

fn identity(drawn: &Drawn, index: usize) -> (Identity, KindId) {
    let cluster = || ClusterName { project: "p".into(), location: "l".into(), cluster: "c".into() };
    let everywhere = |group, plural| (gvk(group, "v1", drawn.what, plural), None);
    let within = |group, plural| {
        (gvk(group, "v1", drawn.what, plural), Some(drawn.namespace.unwrap_or("default").to_owned()))
    };
    let ((gvk, namespace), kind) = match drawn.what {
        "pool" => {
            let pool = format!("p{}", index % 3);
            return (Identity::NodePool { cluster: cluster(), pool }, KindId::NodePool);
        }
        "check" => return (Identity::Check(Address::of("check", &index.to_string())), KindId::Check),
        "cluster" => return (Identity::Cluster(cluster()), KindId::Cluster),
        "Namespace" => (everywhere("", "namespaces"), KindId::Namespace),
        "CustomResourceDefinition" => {
            (everywhere("apiextensions.k8s.io", "customresourcedefinitions"), KindId::Crd)
        }
        "ClusterRole" => (everywhere("rbac.authorization.k8s.io", "clusterroles"), KindId::Object),
        "Deployment" => (within("apps", "deployments"), KindId::Deployment),
        "Widget" => (within("example.com", "widgets"), KindId::Object),
        "DaskCluster" => (within(model::schema::DASK_GROUP, "daskclusters"), KindId::DaskCluster),
        _ => (within("", "configmaps"), KindId::Object),
    };
    (Identity::Object(ObjectId { gvk, namespace, name: drawn.name.into() }), kind)
}

fn change(drawn: &Drawn, index: usize) -> Change {
    let (identity, kind) = identity(drawn, index);
    let pool = if drawn.speaks_of.len() > 1 { json!({ kinds::scope::POOL_LABEL: "p1" }) } else { json!({}) };
    // Nothing of a check lives.
    let before = match identity {
        Identity::Check(_) => Value::Null,
        Identity::Object(_) | Identity::NodePool { .. } | Identity::Cluster(_) => json!({
            "metadata": { "labels": { "not": "a" } },
            "spec": {
                "texts": drawn.speaks_of,
                "template": { "spec": { "nodeSelector": pool, "containers": [{ "name": "c" }] } },
            },
        }),
    };
    let step = Step::Await(Await {
        kind,
        identity: identity.clone(),
        until: Until::Gone,
        facts: Facts::None,
        deadline: 60,
    });
    let address = Address::new(format!("{}/{index}", drawn.section));
    Change {
        steps: if drawn.has_steps { vec![step] } else { Vec::new() },
        before: before.into(),
        ..Change::new(address, identity, kind, drawn.action)
    }
}

/// Returns a world in which all of it exists.
fn live(changes: &[Change]) -> World {
    let (mut world, mut inside) = (World::empty(), BTreeMap::new());
    for change in changes {
        let live = change.before.value();
        match &change.identity {
            Identity::Object(object) => drop(inside.insert(object.clone(), live)),
            Identity::NodePool { pool, .. } => drop(world.pools.insert(pool.clone(), live)),
            Identity::Cluster(_) => world.cluster = Seen::Live(live),
            Identity::Check(_) => {}
        }
    }
    world.objects = Seen::Live(inside);
    world
}

/// Returns desired resources with the generated dependencies; their other fields do not matter here.
fn desired(drawn: &[Drawn], changes: &[Change]) -> Vec<Resource> {
    let resource = |(drawn_one, change): (&Drawn, &Change)| {
        let depends_on = drawn_one.depends_on.iter().map(|other| {
            let other = &changes[other.index(drawn.len())].address;
            if other.as_str().ends_with('2') { Address::new(other.section()) } else { other.clone() }
        });
        let depends_on: Vec<Address> = depends_on.collect();
        let resource = json!({
            "address": change.address, "identity": change.identity, "kind": change.kind, "body": change.before,
            "origin": "", "origins": [], "follows": depends_on, "protect": false,
        });
        serde_json::from_value(resource).unwrap()
    };
    drawn.iter().zip(changes).map(resource).collect()
}

/// Returns the edges by comparing every pair.
fn pairwise(of: &Relations) -> [BTreeSet<(usize, usize)>; 3] {
    let [mut delete_after_dependents, mut delete_before_capacity_users, mut delete_after_users] =
        [const { BTreeSet::new() }; 3];
    for (deleted, node) in of.indices(ChangeNode::deletes) {
        for (index, other) in
            of.indices(|other| !other.is_deleted_with_parent()).filter(|(index, _)| *index != deleted)
        {
            if node.is_deleted_with_parent() {
                if matches!(other.change.action, Action::Delete | Action::Replace)
                    && deletes_along(other, node)
                {
                    delete_after_dependents.insert((index, deleted));
                }
            } else if other.deletes() {
                if of.lives_on(other, node) || later_in(of, other, node) {
                    delete_after_dependents.insert((index, deleted));
                }
                if deletes_what_is_served(of, other, node) {
                    delete_after_users.insert((index, deleted));
                }
            } else if other.writes() {
                if of.takes_freed_capacity(node, other) {
                    delete_before_capacity_users.insert((deleted, index));
                } else if of.uses_until_written(other, node) {
                    delete_after_users.insert((index, deleted));
                }
            }
        }
    }
    [delete_after_dependents, delete_before_capacity_users, delete_after_users]
}

fn deletes_along(deleted: &ChangeNode, cascaded: &ChangeNode) -> bool {
    match (&deleted.change.identity, &cascaded.change.identity) {
        (Identity::Cluster(_), _) => true,
        (Identity::Object(deleted), Identity::Object(cascaded)) if deleted.gvk.kind == "Namespace" => {
            cascaded.namespace.as_ref() == Some(&deleted.name)
        }
        (Identity::Object(deleted), Identity::Object(cascaded)) => {
            deleted.gvk.kind == "DaskCluster" && deleted.namespace == cascaded.namespace
        }
        (Identity::NodePool { .. } | Identity::Object(_) | Identity::Check(_), _) => false,
    }
}

/// Returns true if a deleted namespace contains objects that a deleted resource outside of it serves.
fn deletes_what_is_served(of: &Relations, namespace: &ChangeNode, serves: &ChangeNode) -> bool {
    let Some(inside_of) = namespace.object().filter(|object| object.gvk.kind == "Namespace") else {
        return false;
    };
    let inside = |object: &ObjectId| object.namespace.as_ref() == Some(&inside_of.name);
    let cascaded =
        of.nodes.iter().filter(|node| node.is_deleted_with_parent()).filter_map(ChangeNode::object);
    cascaded.filter(|object| inside(object) && of.is_served(object, serves)).any(|object| {
        let mut serving = of.nodes.iter().filter(|node| of.is_served(object, node));
        serves.object().is_some()
            && !serving.any(|node| {
                node.change.identity == namespace.change.identity || node.object().is_some_and(inside)
            })
    })
}

/// Returns true if a deleted object was created after another deleted one, and is related to it.
fn later_in(of: &Relations, other: &ChangeNode, deleted: &ChangeNode) -> bool {
    let (Some(object), Some(inside)) = (deleted.object(), other.object()) else { return false };
    let depends_on = |resource: &Resource| {
        resource
            .depends_on
            .iter()
            .any(|desired| crate::observe::address_match::includes(desired, &deleted.change.address))
    };
    other.rank > deleted.rank
        && (deleted.change.address.section() == other.change.address.section()
            || is_inside(inside, object)
            || of.is_served(inside, deleted)
            || other.desired.is_some_and(depends_on)
            || mentions(other.live, inside, object))
}

proptest! {
    /// Checks that the edges, written out or as groups, are those of comparing every pair.
    #[test]
    fn edges_are_those_of_every_pair(drawn in prop::collection::vec(drawn(), 1..14)) {
        // A plan has one change for a resource.
        let mut known = BTreeSet::new();
        let changes = drawn.iter().enumerate().map(|(index, one)| (one.clone(), change(one, index)));
        let (drawn, changes): (Vec<Drawn>, Vec<Change>) =
            changes.filter(|(_, change)| known.insert(change.identity.clone())).unzip();
        let desired = desired(&drawn, &changes);
        let world = live(&changes);
        let relations = Relations::of(&changes, &desired, &world);
        let plain = pairwise(&relations);
        for limit in [usize::MAX, 3] {
            let order = || Order::with_limit(limit);
            let empty = Edges { delete_after_dependents: order(), delete_before_capacity_users: order(), delete_after_users: order() };
            let Edges { delete_after_dependents, delete_before_capacity_users, delete_after_users } = relations.add_to(empty);
            prop_assert_eq!(&delete_after_dependents.written_out(), &plain[0]);
            prop_assert_eq!(&delete_before_capacity_users.written_out(), &plain[1]);
            prop_assert_eq!(&delete_after_users.written_out(), &plain[2]);
        }
    }
}

proptest! {
    /// Checks that no change waits for itself in plans with generated relations.
    #[test]
    fn what_goes_never_waits_in_a_circle(drawn in prop::collection::vec(drawn(), 1..14)) {
        let mut changes: Vec<Change> = drawn.iter().enumerate().map(|(index, one)| change(one, index)).collect();
        let mut known = BTreeSet::new();
        changes.retain(|change| known.insert(change.identity.clone()));
        let world = live(&changes);
        let cycle = super::super::graph::connect(&mut changes, &[], &world).err();
        prop_assert_eq!(cycle, None);
    }
}

/// Returns the number of edges, including those of barriers, for a section that is replaced: half of its objects use the other
/// half.
fn edges(count: usize) -> usize {
    let drawn = |index: usize| Drawn {
        what: if index.is_multiple_of(2) { "ConfigMap" } else { "Deployment" },
        section: "one",
        name: "x",
        namespace: Some("a"),
        action: if index < count / 2 { Action::Delete } else { Action::Create },
        has_steps: true,
        speaks_of: Vec::new(),
        depends_on: Vec::new(),
    };
    let mut changes: Vec<Change> = (0..count).map(|index| change(&drawn(index), index)).collect();
    for (index, change) in changes.iter_mut().enumerate() {
        if let Identity::Object(object) = &mut change.identity {
            object.name = format!("x-{index}");
        }
    }
    let world = live(&changes);
    let barriers = super::super::graph::connect(&mut changes, &[], &world).unwrap();
    let of_changes: usize = changes.iter().map(|change| change.depends_on.len()).sum();
    let of_barriers: usize = barriers.iter().map(|barrier| barrier.depends_on.len()).sum();
    of_changes + of_barriers
}

#[test]
fn edges_grow_with_the_changes_and_not_with_their_square() {
    let (one, two) = (edges(1_000), edges(2_000));
    assert!(one < 4_000, "{one}");
    assert!(two * 10 <= one * 24, "{one} edges of 1,000 changes, {two} of 2,000");
}
