//! The workers of a section, and findings on their keys.

use kinds::dask::device_memory::DeviceMemoryKeys;
use kinds::dask::process::ProcessKeys;
use kinds::section::PodKeys;
use kinds::worker_resources::{ResourceProblem, WorkerResources};
use model::address::FieldPath;

/// The workers of one section.
pub(super) struct Workers<'a> {
    pub path: FieldPath,
    pub process: &'a ProcessKeys,
    pub device_memory: &'a DeviceMemoryKeys,
    pub image: &'a str,
    pub keys: &'a PodKeys,
    pub args: &'a [String],
    pub resources: &'a WorkerResources,
}

impl Workers<'_> {
    /// Returns true if `args` have the option.
    pub fn has_option(&self, option: &str) -> bool {
        let with_value = format!("{option}=");
        self.args.iter().any(|arg| arg == option || arg.starts_with(&with_value))
    }
}

/// Paths with a text for each, what is wrong, and what to do.
pub(super) struct Finding {
    pub message: String,
    pub places: Vec<(FieldPath, &'static str)>,
    pub help: String,
}

impl Finding {
    /// Returns the findings on Dask's resources at a place.
    pub fn of_resources(resources: &WorkerResources, place: &FieldPath) -> impl Iterator<Item = Self> {
        resources.problems().map(move |(name, problem)| {
            let place = place.key(name);
            let (message, help) = match problem {
                ResourceProblem::Name => (
                    format!("`{name}` cannot be the name of a Dask resource"),
                    "a name has no blanks, no `=` and no `,`",
                ),
                ResourceProblem::Amount => (
                    format!("`{place}` must be above 0, and is {}", resources.amount(name)),
                    "give a number above 0",
                ),
            };
            Self { message, places: vec![(place, "")], help: help.to_owned() }
        })
    }

    /// Returns the finding on a path that is not absolute.
    pub fn relative_path(path: &str, place: FieldPath, help: &str) -> Self {
        Self {
            message: format!("`{path}` is not an absolute path"),
            places: vec![(place, "relative to what?")],
            help: help.to_owned(),
        }
    }
}
