//! The workers of a section, and findings on their keys.

use std::collections::BTreeMap;

use kinds::dask::device_memory::DeviceMemoryKeys;
use kinds::dask::process::ProcessKeys;
use kinds::section::PodKeys;
use model::address::FieldPath;

/// The workers of one section.
pub(super) struct Workers<'a> {
    pub path: FieldPath,
    pub process: &'a ProcessKeys,
    pub device_memory: &'a DeviceMemoryKeys,
    pub image: &'a str,
    pub keys: &'a PodKeys,
    pub args: &'a [String],
    pub resources: &'a BTreeMap<String, f64>,
}

/// Paths with a text for each, what is wrong, and what to do.
pub(super) struct Finding {
    pub message: String,
    pub places: Vec<(FieldPath, &'static str)>,
    pub help: String,
}
