//! Checks of what the file means, across sections: [`RULES`], one function each. All of them run on every
//! file, so all mistakes are told at once.

use std::collections::BTreeSet;

use super::Stack;
use crate::address::FieldPath;
use crate::diag::Diagnostic;
use crate::source::Sources;

/// What all rules find, in no order. Nothing is said about sections in `doubtful`, which are broken already.
pub fn check(_stack: &Stack, _sources: &Sources, _doubtful: BTreeSet<FieldPath>) -> Vec<Diagnostic> {
    Vec::new()
}
