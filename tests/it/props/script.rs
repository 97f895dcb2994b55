//! A case as data: what is typed, what others do, what breaks, one step after the other. Generated cases and the kept
//! ones of `cases/` are the same thing.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// The purpose of a regression case.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// The fix that this case waits for. It must fail until then, and is reported once it passes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub waits: String,
    /// In order.
    #[serde(default, rename = "step")]
    pub steps: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Step {
    /// The stack file says this from now on.
    Edit(Edit),
    Apply(Command),
    Destroy(Command),
    /// `stop`; its targets are what is named.
    Stop(Command),
    /// `start`; its targets are what is named.
    Start(Command),
    /// `scale ADDRESS NUMBER`.
    Scale(Scale),
    /// `adopt SECTION`.
    Adopt(Adopt),
    /// `run SECTION`.
    Run(Run),
    /// `apply --when-capacity`.
    WhenCapacity(WhenCapacity),
    /// A request of others, which may be refused.
    Others(Others),
    /// Each CronJob of a namespace starts a Job.
    CronRun(CronRun),
    /// Nobody does anything.
    Wait(Wait),
}

/// The stack file and what it names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    /// `stack.toml`.
    pub stack: String,
    /// Files beside it, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
}

/// An `apply` or `destroy`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Command {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub target: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub replace: Vec<String>,
    /// `--retry-capacity`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retry_capacity: bool,
    /// The approvals that are given.
    #[serde(default)]
    pub approval: Approvals,
    /// When the program dies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kill: Option<Kill>,
    /// Which process it is: two of one number are the same person at the same machine.
    #[serde(default)]
    pub process: u32,
    /// The edit that another process applies between this command's plan and its apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meanwhile: Option<Edit>,
    /// Whole commands of a second person, between this command's plan and its apply.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub during: Vec<Step>,
    /// The commands of a second person while this command holds the lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<Within>,
    /// The edit that another process applies at the same time, with another stack file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<Edit>,
}

impl Command {
    /// Returns true where nobody else acts from its plan to its end.
    pub fn is_alone(&self) -> bool {
        self.beside.is_none() && self.within.is_none() && self.during.is_empty()
    }

    /// Returns true if the command has no target and excludes nothing.
    pub fn is_whole(&self) -> bool {
        self.target.is_empty() && self.exclude.is_empty()
    }
}

/// The approvals that `--allow` gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Approvals {
    Nothing,
    /// All that is the stack's own.
    Ours,
    /// Whatever is asked for.
    #[default]
    All,
}

/// The death of the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kill {
    /// At this write, from 0 on. A command with fewer writes lives.
    pub write: usize,
    /// True if the write is done before the program dies.
    pub after: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scale {
    pub address: String,
    /// How many.
    pub number: u32,
    /// When the program dies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kill: Option<Kill>,
    /// The commands of a second person while it holds the lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<Within>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Adopt {
    /// The section, whose line `manage = false` goes.
    pub section: String,
    /// When the program dies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kill: Option<Kill>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// The section of a job or a check.
    pub section: String,
    /// When the program dies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kill: Option<Kill>,
    /// The commands of a second person while it holds the lock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub within: Option<Within>,
}

/// An apply that stays until there is capacity.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WhenCapacity {
    /// Steps while it sleeps, one each time. An edit is one of the file that it reads.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asleep: Vec<Step>,
    /// When the program dies, by the writes of all its applies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kill: Option<Kill>,
}

/// Between two writes of a command.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Within {
    /// At this write, from 0 on, of those after the lock is taken.
    pub write: usize,
    /// True if the write is done, and its answer is late.
    #[serde(default)]
    pub done: bool,
    /// The commands, with a stack file of their own.
    pub steps: Vec<Step>,
}

/// A request of others: to GKE when its path begins with `/v1/`, into the stack's cluster otherwise.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Others {
    /// `POST`, `PATCH` (a server-side apply) or `DELETE`.
    pub method: String,
    /// With its query.
    pub path: String,
    /// As JSON.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub body: String,
}

impl Others {
    /// With this body, unless it is `null`.
    pub fn request(method: &str, path: impl Into<String>, body: &Value) -> Self {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        Self { method: method.to_owned(), path: path.into(), body }
    }
}

/// Jobs of CronJobs, whose Pods run on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CronRun {
    pub namespace: String,
}

/// Time passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wait {
    /// Of the client; the sandbox's clusters live 600 times as fast.
    pub seconds: u64,
}

/// As a kept case has it: TOML.
impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match toml::to_string_pretty(self) {
            Ok(text) => f.write_str(&text),
            Err(error) => write!(f, "{self:?} ({error})"),
        }
    }
}
