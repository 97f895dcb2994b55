//! Descriptions of the state of SLURM jobs.
//!
//! If the scheduler is a job, workers are submitted once it answers. They are not submitted with it by `--dependency=after:JOB`:
//! such workers start with the scheduler's job, before it listens. If the scheduler then failed, they would hold nodes while
//! waiting for a file.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;

use crate::json::{count, text};
use crate::kubernetes::why::{self, Cause};
use model::resource::{Queued, Readiness};

/// A reason why a job waits.
struct Reason {
    /// The prefix of SLURM's reason code.
    word: &'static str,
    what: &'static str,
    cure: &'static str,
}

const fn because(word: &'static str, what: &'static str, cure: &'static str) -> Reason {
    Reason { word, what, cure }
}

/// Reason codes of jobs that never start. While jobs wait for such a reason, the agent does not replace running workers.
static NEVER: LazyLock<Vec<&str>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("../../../model/src/never_start.json")).expect("a list of words")
});

impl Reason {
    fn is_for_ever(&self) -> bool {
        NEVER.contains(&self.word)
    }
}

const WAIT: &str = "wait, or ask for less: fewer workers, less `cpu` and `memory`, a shorter `time_limit`";
const SMALLER: &str = "ask for less of it, or name another `partition` or `qos`";

/// SLURM's reason codes; the first row that matches counts. Source: squeue(1), JOB REASON CODES, of 22.05 to 25.05.
const REASONS: &[Reason] = &[
    because("None", "SLURM has not looked at it yet", "wait"),
    because("Resources", "no nodes are free", WAIT),
    because("Priority", "others are before it", WAIT),
    because("BeginTime", "it may not begin yet", "wait"),
    because("Licenses", "a licence is not free", "wait"),
    because("ReservationDeleted", "its reservation was deleted", "remove `reservation`"),
    because("Reservation", "its reservation has not begun", "wait"),
    because(
        "ReqNodeNotAvail",
        "nodes that it needs are not available",
        "`sinfo -R` shows why; wait, or use other nodes",
    ),
    because(
        "Nodes required for job are DOWN, DRAINED or reserved",
        "nodes that it needs are down, drained or reserved",
        "`sinfo -R` shows why; wait, or use other nodes",
    ),
    because(
        "PartitionDown",
        "its partition is down",
        "ask who runs the cluster, or name another `partition`",
    ),
    because(
        "PartitionInactive",
        "its partition is not active",
        "ask who runs the cluster, or name another `partition`",
    ),
    // SLURM 22.05 says it of a job whose time limit is too long, too, until it has looked at its queue again (`sched_interval`, 60 s).
    because(
        "PartitionConfig",
        "the partition has no node as large as it needs, does not give it so much time, or does not admit it",
        "`sinfo -o '%P %c %m %l'` shows the CPUs, memory and time limit of each partition; ask for less `cpu` or `memory`, shorten \
         `time_limit`, or name another `partition`",
    ),
    because(
        "PartitionTimeLimit",
        "its time limit is longer than the partition allows",
        "shorten `time_limit`, or name another `partition`",
    ),
    because("PartitionNodeLimit", "the partition does not give it so many nodes", SMALLER),
    because(
        "BadConstraints",
        "no node has what it demands",
        "`sinfo -o '%N %f'` shows the features of nodes; change `constraint` or `directives`",
    ),
    because(
        "AccountNotAllowed",
        "its account may not use the partition",
        "name another `account` or `partition`",
    ),
    because(
        "QOSNotAllowed",
        "its quality of service may not be used there",
        "name another `qos` or `partition`",
    ),
    because(
        "InvalidAccount",
        "its account does not exist or is not yours",
        "`sacctmgr show assoc user=$USER` lists yours; change `account`",
    ),
    because(
        "InvalidQOS",
        "its quality of service does not exist or is not yours",
        "`sacctmgr show assoc user=$USER format=qos` lists yours; change `qos`",
    ),
    because(
        "DependencyNeverSatisfied",
        "what it depends on never comes",
        "remove `--dependency` from `directives`",
    ),
    because("JobHeldUser", "it is held", "`scontrol release JOB` lets it go on"),
    because("JobHeldAdmin", "an administrator holds it", "ask who runs the cluster"),
    because(
        "launch failed requeued held",
        "it could not be started on its node and is held",
        "ask who runs the cluster; `scontrol release JOB` tries again",
    ),
    because("QOSMaxCpuPerJob", "its quality of service does not allow a job so many CPUs", SMALLER),
    because("QOSMaxMemoryPerJob", "its quality of service does not allow a job so much memory", SMALLER),
    because("QOSMaxNodePerJob", "its quality of service does not allow a job so many nodes", SMALLER),
    because("QOSMaxGRESPerJob", "its quality of service does not allow a job so many GPUs", SMALLER),
    because(
        "QOSMaxWallDurationPerJob",
        "its quality of service does not allow a job so much time",
        "shorten `time_limit`",
    ),
    because(
        "AssocMaxWallDurationPerJob",
        "its account does not allow a job so much time",
        "shorten `time_limit`",
    ),
    because("AssocMaxCpuPerJob", "its account does not allow a job so many CPUs", SMALLER),
    because("AssocMaxMemPerJob", "its account does not allow a job so much memory", SMALLER),
    because(
        "QOSMin",
        "its quality of service demands that a job is larger",
        "ask for more, or name another `qos`",
    ),
    because(
        "QOS",
        "its quality of service has reached a limit",
        "wait until other jobs end, or name another `qos`",
    ),
    because(
        "Assoc",
        "its account has reached a limit",
        "wait until other jobs end, or name another `account`",
    ),
    because("MaxJobs", "you have as many jobs as you may have", "wait until other jobs end"),
];

fn reason(word: &str) -> Option<&'static Reason> {
    REASONS.iter().find(|reason| word.starts_with(reason.word))
}

/// Returns `no nodes are free (Resources)`.
fn said(word: &str) -> String {
    match reason(word) {
        Some(reason) => format!("{} ({word})", reason.what),
        None => format!("SLURM says {word}"),
    }
}

fn jobs(number: u64) -> String {
    format!("{number} job{}", if number == 1 { "" } else { "s" })
}

fn counts(tree: &Value) -> BTreeMap<&str, u64> {
    tree.as_object().into_iter().flatten().map(|(word, number)| (word.as_str(), count(number))).collect()
}

/// Returns the readiness of a group with waiting jobs; `None` if no job waits.
pub(crate) fn readiness(queue: &Value) -> Option<Readiness> {
    let waiting = counts(&queue["waiting"]);
    for (word, number) in &waiting {
        if let Some(reason) = reason(word).filter(|reason| reason.is_for_ever()) {
            let what =
                format!("{} can never start: {} ({word}); {}", jobs(*number), reason.what, reason.cure);
            return Some(Readiness::Failed(what));
        }
    }
    let what: Vec<String> = waiting
        .iter()
        .map(|(word, number)| {
            format!(
                "{} {} in SLURM's queue: {}",
                jobs(*number),
                if *number == 1 { "waits" } else { "wait" },
                said(word)
            )
        })
        .collect();
    if what.is_empty() {
        return None;
    }
    let starts = text(&queue["starts"]);
    let starts = if starts.is_empty() {
        String::new()
    } else {
        format!("; SLURM expects the first to start at {starts}")
    };
    Some(Readiness::Queued(Queued::since(format!("{}{starts}", what.join(", ")), &queue["since"])))
}

/// Returns the readiness of a cluster while the job of its scheduler waits.
pub(crate) fn scheduler_readiness(queue: &Value) -> Option<Readiness> {
    let whose = |what: String| format!("its scheduler: {what}");
    Some(match readiness(queue)? {
        Readiness::Queued(Queued { what, since }) => Readiness::Queued(Queued { what: whose(what), since }),
        Readiness::Failed(why) => Readiness::Failed(whose(why)),
        other => other,
    })
}

/// Returns `2 jobs wait: no nodes are free (Resources)`, for each reason.
pub(crate) fn waits(queue: &Value) -> Option<String> {
    let waiting = counts(&queue["waiting"]);
    let all: Vec<String> = waiting
        .iter()
        .map(|(word, number)| format!("{} in SLURM's queue: {}", jobs(*number), said(word)))
        .collect();
    (!all.is_empty()).then(|| all.join(", "))
}

/// Returns how jobs of a group ended, for a defect: `1 job reached its time limit`.
pub(crate) fn ended(queue: &Value) -> String {
    let ended = counts(&queue["ended"]);
    let all: Vec<String> =
        ended.iter().map(|(state, number)| format!("{} {}", jobs(*number), ended_words(state))).collect();
    all.join(", ")
}

fn ended_words(state: &str) -> &'static str {
    match state {
        "TIMEOUT" | "DEADLINE" => "reached the time limit",
        "COMPLETED" => "left by itself, as workers do before their time limit",
        "CANCELLED" => "cancelled by somebody else",
        "NODE_FAIL" | "BOOT_FAIL" => "lost with a node that failed",
        "OUT_OF_MEMORY" => "ended by SLURM for using more than `memory`",
        "PREEMPTED" | "REVOKED" => "ended by SLURM to make room for others",
        _ => "failed",
    }
}

/// Returns why a process that is a job does not run.
pub fn cause(job: &Value, log: Option<String>, program: &str) -> Cause {
    let (id, state, word) = (text(&job["id"]), text(&job["state"]), text(&job["reason"]));
    let said_by_log = log.map(|log| format!("the end of its log:\n{log}"));
    if state == "PENDING" {
        let known = reason(word);
        let never = known.is_some_and(Reason::is_for_ever);
        let cure = known.map_or(WAIT, |reason| reason.cure).replace("JOB", id);
        let code = if never { "never" } else { "queued" };
        let what = format!("job {id} {}: {}", if never { "can never start" } else { "waits" }, said(word));
        return why::cause(code, &what, None, vec![cure]);
    }
    let what = match state {
        "" => "its job ended, and SLURM does not know it any more".to_owned(),
        "RUNNING" => format!("job {id} runs"),
        _ => format!("job {id} {} ({state})", ended_words(state)),
    };
    why::cause("ended", &what, said_by_log, vec![format!("`{program} apply` submits another one")])
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_never_ends_is_among_the_reasons() {
        assert!(
            NEVER.iter().all(|word| reason(word).is_some_and(|reason| reason.word == *word)),
            "{NEVER:?}"
        );
    }

    #[test]
    fn the_queue_is_told_in_words() {
        assert_eq!(readiness(&json!({ "waiting": {}, "ended": { "TIMEOUT": 1 } })), None);
        let told = readiness(&json!({ "waiting": { "Resources": 2 }, "since": "2026-01-01T00:00:00Z" }));
        let Some(Readiness::Queued(told)) = told else { panic!("not queued") };
        assert_eq!(
            told.to_string(),
            "queued since 2026-01-01T00:00:00Z: 2 jobs wait in SLURM's queue: no nodes are free (Resources)"
        );
        let never = readiness(&json!({ "waiting": { "PartitionConfig": 1, "Priority": 1 } }));
        assert!(
            matches!(&never, Some(Readiness::Failed(why)) if why.starts_with("1 job can never start")),
            "{never:?}"
        );
        for (word, never) in [
            ("QOSMaxCpuPerJobLimit", true),
            ("QOSMaxJobsPerUserLimit", false),
            ("QOSMaxCpuPerUserLimit", false),
            ("AssocGrpCpuLimit", false),
            ("ReqNodeNotAvail, UnavailableNodes:n3", false),
            ("SomethingNew", false),
        ] {
            let told = readiness(&json!({ "waiting": { word: 1 } }));
            assert_eq!(matches!(told, Some(Readiness::Failed(_))), never, "{word}");
        }
        assert_eq!(ended(&json!({ "ended": { "TIMEOUT": 1 } })), "1 job reached the time limit");
    }
}
