//! The JSON lines of `--json`, in Terraform's envelope with our own fields beside Terraform's.
//! `schemas/events.schema.json` is generated from the types here.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::cost::{PlanCost, RunningSections};
use super::dry_run::DryRun;
use model::resource::DurationEstimate;

/// The version of the shape of these lines.
pub const UI_VERSION: &str = "1.0";

/// One line.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(title = "dask-infra event")]
pub struct Line {
    /// How grave it is.
    #[serde(rename = "@level")]
    pub level: Level,
    /// The line for people.
    #[serde(rename = "@message")]
    pub message: String,
    /// Always `dask-infra`.
    #[serde(rename = "@module")]
    pub module: &'static str,
    /// When it was written: RFC 3339, UTC.
    #[serde(rename = "@timestamp")]
    #[schemars(with = "String")]
    pub timestamp: Timestamp,
    /// The content of the line.
    #[serde(flatten)]
    pub body: Body,
}

/// How grave a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be.
    Info,
    /// To be looked at.
    Warn,
    /// Failed.
    Error,
}

/// Kinds of lines, by `type`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Body {
    /// The first line.
    Version {
        /// The program's version.
        #[serde(rename = "dask-infra")]
        program: &'static str,
        /// The version of the shape of these lines.
        ui: &'static str,
    },
    /// One change of a plan.
    PlannedChange {
        /// Where.
        #[serde(flatten)]
        place: Place,
        /// The change.
        change: PlannedChange,
    },
    /// Something of ours that others changed since the last apply.
    ResourceDrift {
        /// Where.
        #[serde(flatten)]
        place: Place,
        /// The difference, limited to the fields that changed outside this stack.
        change: PlannedChange,
    },
    /// The end of a plan or of an apply.
    ChangeSummary {
        /// Where.
        #[serde(flatten)]
        place: Place,
        /// How many.
        changes: Changes,
        /// True if no live state was read.
        offline: bool,
        /// US dollars per hour of the whole stack when autoscaled pools are at their maximum, as in `cost.most`.
        #[serde(skip_serializing_if = "Option::is_none")]
        hourly: Option<f64>,
        /// US dollars per hour when autoscaled pools are at their minimum, as in `cost.idle`.
        #[serde(skip_serializing_if = "Option::is_none")]
        hourly_minimum: Option<f64>,
        /// Seconds that the longest way through the plan usually takes, as far as it is known.
        #[serde(skip_serializing_if = "Option::is_none")]
        usual_seconds: Option<DurationEstimate>,
        /// Images that are pulled and whose size is not known: `usual_seconds` is without their pulls.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        unknown_pulls: Vec<String>,
        /// Names of everything without a price, which is not in `hourly`: machine types, disks.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        unpriced: Vec<String>,
        /// The cost before and after the apply; absent where Google bills nothing of the stack by the hour.
        #[serde(skip_serializing_if = "Option::is_none")]
        cost: Option<Box<PlanCost>>,
        /// The cost of what an apply left running that did not do everything.
        #[serde(skip_serializing_if = "Option::is_none")]
        still_running: Option<RunningSections>,
        /// Consents that are still to be given: `replace:dask_cluster.rapids`.
        #[serde(rename = "consents", default, skip_serializing_if = "Vec::is_empty")]
        approvals: Vec<String>,
        /// The objects that the API server judged by dry runs, and those that it did not; absent if nothing was tried.
        #[serde(skip_serializing_if = "Option::is_none")]
        dry_run: Option<DryRun>,
        /// How each change ended; only after an apply.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        outcomes: Vec<Ended>,
        /// How long the apply took.
        #[serde(skip_serializing_if = "Option::is_none")]
        elapsed_seconds: Option<f64>,
        /// True if the apply was interrupted.
        #[serde(skip_serializing_if = "Option::is_none")]
        interrupted: Option<bool>,
        /// Addresses that `--target` or `--exclude` left out of the plan.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        left_out: Vec<String>,
    },
    /// An error or a warning.
    Diagnostic {
        /// The error or warning.
        diagnostic: Told,
    },
    /// The result of `validate`, after the diagnostics; absent when there are errors.
    Validation {
        /// True if the stack can be planned.
        valid: bool,
        /// How many errors were told.
        error_count: usize,
        /// How many warnings were told.
        warning_count: usize,
    },
    /// A change began.
    ApplyStart {
        /// Where.
        #[serde(flatten)]
        place: Place,
        /// Which change.
        hook: Hook,
    },
    /// A change goes on: it waits, tries again, or a check read a log.
    ApplyProgress {
        /// Where.
        #[serde(flatten)]
        place: Place,
        /// Which change.
        hook: Hook,
    },
    /// A change is done.
    ApplyComplete {
        /// Where.
        #[serde(flatten)]
        place: Place,
        /// Which change.
        hook: Hook,
    },
    /// A change is not done.
    ApplyErrored {
        /// Where.
        #[serde(flatten)]
        place: Place,
        /// Which change.
        hook: Hook,
    },
    /// The first interrupt: nothing new is started.
    ApplyInterrupted {
        /// Where.
        #[serde(flatten)]
        place: Place,
    },
}

/// Where it happens.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Place {
    /// The stack.
    pub stack: String,
    /// `project / location / cluster`, or `context NAME`.
    pub target: String,
    /// True if the sandbox answers instead of the cloud.
    pub simulated: bool,
}

/// The resource that a change is about.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Thing {
    /// The address.
    pub addr: String,
    /// The kind: `node_pool`.
    pub resource_type: String,
    /// The address without the kind's section: `a100`.
    pub resource_name: String,
    /// The resource as the API names it, in words: `node pool a100`.
    pub identity: String,
}

/// One change of a plan.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct PlannedChange {
    /// The resource that changes.
    pub resource: Thing,
    /// The action: `keep` for an edit that has no effect, `read` for an external resource (`manage = false`).
    #[schemars(extend("enum" = ["keep", "create", "update", "replace", "delete", "forget", "run", "read"]))]
    pub action: &'static str,
    /// Why, when the fields alone do not say it; of what is read, what was found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The TOML place that asks for it: `stack.toml:12:1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// Seconds that it usually takes, where that is known of what is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usual_seconds: Option<DurationEstimate>,
    /// Fields that differ.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<Field>,
}

/// A field that differs.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Field {
    /// Where in the body: `spec.worker.replicas`.
    pub path: String,
    /// The live value; in `resource_drift` the value of the stack. Not there when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// The desired value; in `resource_drift` the live value. Not there when the field is given up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
    /// The effect of the change.
    #[schemars(extend("enum" = ["in_place", "rolling", "replace", "ignored", "unknown"]))]
    pub effect: &'static str,
    /// Why the effect is what it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The TOML place that asks for the value: `stack.toml:40:12`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// The field manager that changed the field outside this stack, and the time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drift: Option<Drift>,
}

/// A change by others.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Drift {
    /// The field manager.
    pub manager: String,
    /// When: RFC 3339.
    pub time: String,
}

/// How many changes there are, or were done.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct Changes {
    /// Creates.
    pub add: usize,
    /// Updates.
    pub change: usize,
    /// Replaces.
    pub replace: usize,
    /// Deletes.
    pub remove: usize,
    /// Left to the other stacks that use them; not there when there are none.
    #[serde(skip_serializing_if = "is_zero")]
    pub forget: usize,
    /// Checks.
    pub run: usize,
    /// The operation that the numbers belong to.
    #[schemars(extend("enum" = ["plan", "apply", "destroy", "refresh"]))]
    pub operation: &'static str,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's skip_serializing_if passes a reference")]
fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// The change that an apply works on.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Hook {
    /// The resource that changes.
    pub resource: Thing,
    /// The action on the resource.
    #[schemars(extend("enum" = ["keep", "create", "update", "replace", "delete", "forget", "run"]))]
    pub action: &'static str,
    /// How long it ran so far, or ran.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub elapsed_seconds: Option<f64>,
    /// How far it is, and what holds it up: `1 of 2 nodes ready`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
    /// The GKE operation that it waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// How long it may wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline_seconds: Option<f64>,
    /// When it is tried again; `waiting_for` says why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_seconds: Option<f64>,
    /// Lines of a log that a check read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub log: Vec<String>,
    /// How it ended, when it is not done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<End>,
}

/// How a change ended.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct End {
    /// In one word.
    #[schemars(extend("enum" = ["done", "failed", "timed_out", "queued", "skipped", "in_doubt", "not_started"]))]
    pub outcome: &'static str,
    /// The stable code of the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The problem and its cause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The next step to take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// The address that did not succeed, for what was skipped; the one that waits for capacity, for what is queued behind it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub because: Option<String>,
}

/// How one change of an apply ended.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Ended {
    /// The address.
    pub addr: String,
    /// The planned action.
    #[schemars(extend("enum" = ["create", "update", "replace", "delete", "forget", "run"]))]
    pub action: &'static str,
    /// How long it ran.
    pub elapsed_seconds: f64,
    /// How it ended.
    #[serde(flatten)]
    pub end: End,
}

/// An error or a warning.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Told {
    /// How grave it is.
    #[schemars(extend("enum" = ["error", "warning"]))]
    pub severity: &'static str,
    /// The stable code: `DI0102`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The problem.
    pub summary: String,
    /// The fix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// The section or object concerned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Where in the stack file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub range: Option<Range>,
}

/// A place in a text.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Range {
    /// The file as the user named it.
    pub filename: String,
    /// Where it begins.
    pub start: Position,
}

/// A place in a text, from 1.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column in characters.
    pub column: usize,
}

/// Returns the schema of one line, draft-07.
pub fn schema() -> Value {
    let generator = schemars::generate::SchemaSettings::draft07().into_generator();
    generator.into_root_schema_for::<Line>().to_value()
}
