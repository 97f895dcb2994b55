//! Things that can be scaled: where the number stands in the body and in the stack file, and who writes it.

use model::address::FieldPath;

/// How a thing is scaled.
#[derive(Clone, Debug, PartialEq)]
pub struct Scaled {
    /// The number in its body.
    pub path: FieldPath,
    /// The value in the stack file, or in a file that it names, that says the number.
    pub place: FieldPath,
    /// The unit of the number: `workers`, `nodes`, `pods`.
    pub unit: &'static str,
    /// The writer of the number, and its value.
    pub number: Number,
}

/// Writers of a number, and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Number {
    /// The file, this one.
    File(u64),
    /// Notebooks, after this one at the beginning.
    Notebooks(u64),
    /// Nobody says it.
    Unsaid,
    /// An autoscaler between bounds; who that is.
    Autoscaler {
        /// At least.
        min: u64,
        /// At most.
        max: u64,
        /// "GKE's autoscaler", "DaskAutoscaler default/rapids".
        whose: String,
        /// The place of the bounds.
        place: FieldPath,
    },
}
