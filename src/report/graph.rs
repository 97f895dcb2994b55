//! The order of the changes in a plan, as text and as a Mermaid diagram. Sections represent their objects, unless every object is
//! requested. Edges that follow from other edges are left out.

use std::collections::{BTreeMap, BTreeSet};

use plan::Plan;

/// Kinds of nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nodes {
    /// Sections of the stack.
    Sections,
    /// Every object.
    Objects,
}

struct Graph {
    names: Vec<String>,
    /// The nodes that each node directly follows.
    after: Vec<BTreeSet<usize>>,
}

fn graph(plan: &Plan, nodes: Nodes) -> Graph {
    let mut names: Vec<String> = Vec::new();
    let mut known: BTreeMap<&str, usize> = BTreeMap::new();
    let mut of_change = Vec::new();
    for change in &plan.changes {
        let name = match nodes {
            Nodes::Sections => change.address.section(),
            Nodes::Objects => change.address.as_str(),
        };
        let place = *known.entry(name).or_insert_with(|| {
            names.push(name.to_owned());
            names.len() - 1
        });
        of_change.push(place);
    }
    // Of many objects in few sections.
    let nodes = |depends_on: &[usize]| -> BTreeSet<usize> {
        depends_on.iter().filter_map(|before| of_change.get(*before).copied()).collect()
    };
    let barriers: Vec<BTreeSet<usize>> =
        plan.barriers.iter().map(|barrier| nodes(&barrier.depends_on)).collect();
    let mut after = vec![BTreeSet::new(); names.len()];
    for (change, node) in plan.changes.iter().zip(&of_change) {
        let mut before = nodes(&change.depends_on);
        let barrier = |place: &usize| barriers.get(place.checked_sub(plan.changes.len())?);
        before.extend(change.depends_on.iter().filter_map(barrier).flatten());
        before.remove(node);
        after[*node].extend(before);
    }
    let mut graph = Graph { names, after };
    graph.reduce();
    graph
}

impl Graph {
    /// Removes edges that follow from other edges. Sections can form a cycle even if their objects do not; edges in such a cycle
    /// are kept.
    fn reduce(&mut self) {
        let reach: Vec<BTreeSet<usize>> = (0..self.names.len()).map(|node| self.predecessors(node)).collect();
        for node in 0..self.names.len() {
            let direct = self.after[node].clone();
            let implied = |before: &usize| {
                let through = |other: &usize| other != before && reach[*other].contains(before);
                direct.iter().any(|other| through(other) && !reach[*before].contains(other))
            };
            self.after[node] = direct.iter().filter(|before| !implied(before)).copied().collect();
        }
    }

    /// Returns everything that must be done before a node.
    fn predecessors(&self, node: usize) -> BTreeSet<usize> {
        let mut found = BTreeSet::new();
        let mut open: Vec<usize> = self.after[node].iter().copied().collect();
        while let Some(next) = open.pop() {
            if found.insert(next) {
                open.extend(&self.after[next]);
            }
        }
        found
    }

    /// Returns the nodes in an order in which they can be created.
    fn order(&self) -> Vec<usize> {
        let mut order: Vec<usize> = Vec::new();
        while order.len() < self.names.len() {
            let open = |node: &usize| !order.contains(node);
            let free = |node: &usize| self.after[*node].iter().all(|before| order.contains(before));
            let next = (0..self.names.len()).filter(open).find(free);
            // A circle of sections: the plan's own order decides.
            let next = next.or_else(|| (0..self.names.len()).find(open));
            order.extend(next);
        }
        order
    }
}

/// Returns lines such as `node_pool.a100  after cluster`, in the order of creation.
pub fn text(plan: &Plan, nodes: Nodes) -> String {
    let graph = graph(plan, nodes);
    let longest = graph.names.iter().map(|name| name.chars().count()).max().unwrap_or_default();
    let mut out = String::new();
    for node in graph.order() {
        let before: Vec<&str> =
            graph.after[node].iter().map(|before| graph.names[*before].as_str()).collect();
        let name = &graph.names[node];
        let line = match before.as_slice() {
            [] => name.clone(),
            before => format!("{name:longest$}  after {}", before.join(", ")),
        };
        out.push_str(&line);
        out.push('\n');
    }
    out
}

/// Returns a Mermaid flowchart, with what is created first at the top.
pub fn mermaid(plan: &Plan, nodes: Nodes) -> String {
    let graph = graph(plan, nodes);
    let order = graph.order();
    let mut out = "flowchart TD\n".to_owned();
    for node in &order {
        // Quotes are the one character that ends a label.
        out.push_str(&format!("  n{node}[\"{}\"]\n", graph.names[*node].replace('"', "#quot;")));
    }
    for node in &order {
        for before in &graph.after[*node] {
            out.push_str(&format!("  n{before} --> n{node}\n"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn plan(changes: &[(&str, &[usize])]) -> Plan {
        let changes: Vec<serde_json::Value> = changes
            .iter()
            .map(|(address, depends_on)| {
                json!({ "address": address, "identity": { "check": address }, "kind": "check", "action": "create",
                    "fields": [], "origin": "", "lane": "kubernetes", "steps": [], "follows": depends_on })
            })
            .collect();
        let target = json!({ "gke": null, "context": null, "simulated": true });
        let plan = json!({
            "target": target, "owner": { "stack": "s", "id": "s" }, "mode": "apply", "offline": true,
            "changes": changes, "desired": [], "notes": []
        });
        serde_json::from_value(plan).unwrap()
    }

    #[test]
    fn sections_stand_in_order_and_edges_that_follow_are_left_out() {
        let plan = plan(&[("dask.d", &[1, 2, 3]), ("cluster", &[]), ("op/A/x", &[1]), ("op/B/y", &[1, 2])]);
        assert_eq!(text(&plan, Nodes::Sections), "cluster\nop       after cluster\ndask.d   after op\n");
        let all = text(&plan, Nodes::Objects);
        assert_eq!(all, "cluster\nop/A/x   after cluster\nop/B/y   after op/A/x\ndask.d   after op/B/y\n");
        let chart = mermaid(&plan, Nodes::Sections);
        assert_eq!(
            chart,
            "flowchart TD\n  n1[\"cluster\"]\n  n2[\"op\"]\n  n0[\"dask.d\"]\n  n1 --> n2\n  n2 --> n0\n"
        );
    }

    #[test]
    fn sections_that_wait_for_each_other_keep_their_edges() {
        let plan = plan(&[("a/1", &[]), ("b/1", &[0]), ("a/2", &[1])]);
        assert_eq!(text(&plan, Nodes::Sections), "a  after b\nb  after a\n");
    }

    #[test]
    fn an_empty_plan_has_no_graph() {
        assert_eq!(text(&plan(&[]), Nodes::Sections), "");
    }
}
