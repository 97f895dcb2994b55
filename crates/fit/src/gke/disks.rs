//! The disk types that a machine can have: GKE labels nodes with them (`disk-type.gke.io/pd-ssd=true`).
//!
//! Source: the table of the node labeler of kubernetes-sigs/gcp-compute-persistent-disk-csi-driver (commit 30038a46, Apache-2.0),
//! by machine series. For N2, the types of a node dump of GKE 1.36 are used, which has fewer: the table also has types that only
//! some N2 machines support. Series whose row is known to be wrong (C3, N4) and TPUs are left out: their real nodes have such
//! labels, but a template node has none.

/// Disk types with the machine series that support them.
const TYPES: [(&str, &[&str]); 9] = [
    ("hyperdisk-balanced", &["a2", "a3", "a4", "c3d", "c4", "c4a", "c4d", "g4", "h3", "h4d", "n4a", "n4d"]),
    ("hyperdisk-balanced-high-availability", &["a3", "c3d", "c4d", "g4", "h4d", "n4a", "n4d"]),
    ("hyperdisk-extreme", &["a3", "a4", "c3d", "c4", "c4a", "c4d", "g4"]),
    ("hyperdisk-ml", &["a2", "a3", "a4", "c3d", "c4a", "g2", "g4", "n4a"]),
    ("hyperdisk-throughput", &["a3", "c3d", "c4a", "g2", "g4", "h3", "n2", "n2d", "n4a", "n4d", "t2d"]),
    ("pd-balanced", &["a2", "a3", "c2", "c2d", "c3d", "e2", "g2", "h3", "n1", "n2", "n2d", "t2a", "t2d"]),
    ("pd-extreme", &["a2", "c2", "c2d", "e2", "n1", "n2", "n2d", "t2a"]),
    ("pd-ssd", &["a2", "a3", "c2", "c2d", "c3d", "e2", "g2", "n1", "n2", "n2d", "t2a", "t2d"]),
    ("pd-standard", &["a2", "c2", "c2d", "e2", "g2", "n1", "n2", "n2d", "t2a", "t2d"]),
];

/// Returns the disk types that machines of a series support.
pub fn types(series: &str) -> impl Iterator<Item = &'static str> {
    TYPES.into_iter().filter(move |(_, all)| all.contains(&series)).map(|(kind, _)| kind)
}
