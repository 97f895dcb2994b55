//! SLURM options of workers and schedulers that are SLURM jobs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::json::count;
use crate::short_forms;

/// Minimum and maximum seconds before its time limit at which a worker retires. Between these bounds it is a tenth of the limit.
const MARGIN: (u64, u64) = (30, 600);

/// Options of SLURM jobs.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
pub struct SlurmKeys {
    /// The partition, or several with commas. Default SLURM's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    /// The account that is charged. Default the user's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    /// The quality of service. Default the user's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos: Option<String>,
    /// The reservation whose nodes are used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<String>,
    /// Features that nodes must have: `"ib&a100"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub constraint: Option<String>,
    /// How long a job may run: `"2h"`, `"1d12h"`, or as SLURM writes it, `"1-12:00:00"`. Its worker leaves shortly before, and
    /// moves what it holds to others; the next `apply` submits another one. With a scheduler that is a job, its whole Dask
    /// cluster ends. Default the partition's own limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<String>,
    /// More options of `sbatch`, each a line `#SBATCH` of the script: `["--exclusive", "--nice=5"]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub directives: Vec<String>,
    /// Lines of shell before the process starts: `["module load cuda"]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prologue: Vec<String>,
}

impl SlurmKeys {
    /// Returns the options of a section. Options that it does not set come from `base`, the options of `[slurm]`.
    pub fn over(&self, base: &Self) -> Self {
        let or = |own: &Option<String>, other: &Option<String>| own.clone().or_else(|| other.clone());
        let list = |own: &[String], other: &[String]| if own.is_empty() { other } else { own }.to_vec();
        Self {
            partition: or(&self.partition, &base.partition),
            account: or(&self.account, &base.account),
            qos: or(&self.qos, &base.qos),
            reservation: or(&self.reservation, &base.reservation),
            constraint: or(&self.constraint, &base.constraint),
            time_limit: or(&self.time_limit, &base.time_limit),
            directives: list(&self.directives, &base.directives),
            prologue: list(&self.prologue, &base.prologue),
        }
    }

    /// Returns the values that are options of `sbatch` with the same name as their key.
    pub fn named(&self) -> [(&'static str, Option<&String>); 5] {
        [
            ("partition", self.partition.as_ref()),
            ("account", self.account.as_ref()),
            ("qos", self.qos.as_ref()),
            ("reservation", self.reservation.as_ref()),
            ("constraint", self.constraint.as_ref()),
        ]
    }

    /// Returns `spec.worker.slurm` for workers with the settings `worker`.
    pub fn worker_options(&self, worker: &Value) -> Value {
        let mut slurm = self.script_options(worker);
        if let Some(minutes) = self.minutes() {
            let margin = (minutes * 6).clamp(MARGIN.0, MARGIN.1);
            slurm["lifetime"] = json!((minutes * 60).saturating_sub(margin).max(1));
            // Workers that were submitted together do not leave together.
            slurm["stagger"] = json!(margin / 3);
        }
        slurm
    }

    fn minutes(&self) -> Option<u64> {
        self.time_limit.as_deref().and_then(minutes)
    }

    /// Returns the `#SBATCH` directives and the prologue for the script of a process with the settings `worker`.
    pub fn script_options(&self, worker: &Value) -> Value {
        // `dask cuda worker` is a process for each GPU.
        let processes = count(&worker["processes"]).max(count(&worker["gpus"])).max(1);
        let threads = count(&worker["threads"]).max(1);
        // sbatch refuses both: what a directive gives in its own way is left out, and the worker keeps its limit.
        // Source: sbatch(1), "mutually exclusive".
        let given = |options: &[&str]| self.directives.iter().any(|one| options.contains(&option_of(one)));
        let mut directives = vec!["--no-requeue".to_owned(), "--ntasks=1".to_owned()];
        if !given(&["--cpus-per-gpu"]) {
            directives.push(format!("--cpus-per-task={}", threads * processes));
        }
        if let Some(bytes) = worker["memory"].as_u64().filter(|_| !given(&["--mem-per-cpu", "--mem-per-gpu"]))
        {
            directives.push(format!("--mem={}M", (bytes * processes).div_ceil(1 << 20)));
        }
        if let Some(gpus) = worker["gpus"].as_u64().filter(|gpus| *gpus > 0) {
            directives.push(format!("--gres=gpu:{gpus}"));
        }
        let named = self.named().into_iter();
        directives.extend(named.filter_map(|(key, value)| Some(format!("--{key}={}", value?))));
        directives.extend(self.minutes().map(|minutes| format!("--time={minutes}")));
        directives.extend(self.directives.iter().cloned());
        let mut slurm = json!({ "directives": directives });
        if !self.prologue.is_empty() {
            slurm["prologue"] = json!(self.prologue);
        }
        slurm
    }
}

/// Returns `--mem-per-cpu` of `--mem-per-cpu=3G`.
fn option_of(directive: &str) -> &str {
    directive.split(['=', ' ', '\t']).next().unwrap_or_default()
}

/// Returns a time limit in whole minutes, rounded up: SLURM has no seconds. Source: sbatch(1), `--time`.
pub fn minutes(text: &str) -> Option<u64> {
    if let Some(seconds) = short_forms::seconds(text) {
        return Some(seconds.div_ceil(60)).filter(|minutes| *minutes > 0);
    }
    let (days, rest) = match text.split_once('-') {
        Some((days, rest)) => (Some(days.parse::<u64>().ok()?), rest),
        None => (None, text),
    };
    let parts: Vec<u64> = rest.split(':').map(str::parse).collect::<Result<_, _>>().ok()?;
    let seconds = match (days, parts.as_slice()) {
        (None, [minutes]) => minutes.checked_mul(60)?,
        (None, [minutes, seconds]) => minutes.checked_mul(60)?.checked_add(*seconds)?,
        (None, [hours, minutes, seconds]) => {
            hours.checked_mul(3600)?.checked_add(minutes.checked_mul(60)?)?.checked_add(*seconds)?
        }
        (Some(days), [hours, rest @ ..]) if rest.len() <= 2 => {
            let inner = rest.iter().zip([60, 1]).map(|(number, unit)| number * unit).sum::<u64>();
            days.checked_mul(86_400)?.checked_add(hours.checked_mul(3600)?)?.checked_add(inner)?
        }
        _ => return None,
    };
    Some(seconds.div_ceil(60)).filter(|minutes| *minutes > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_limit_is_read_as_slurm_does() {
        for (text, minutes) in [
            ("2h", Some(120)),
            ("90s", Some(2)),
            ("30", Some(30)),
            ("10:30", Some(11)),
            ("1:30:00", Some(90)),
            ("1-0", Some(1440)),
            ("1-12:30", Some(2190)),
            ("0", None),
            ("0s", None),
            ("soon", None),
            ("1-2:3:4:5", None),
            ("UNLIMITED", None),
        ] {
            assert_eq!(super::minutes(text), minutes, "{text}");
        }
    }

    #[test]
    fn what_a_directive_gives_in_its_own_way_is_left_out() {
        for (directive, absent) in [
            ("--mem-per-cpu=3G", "--mem="),
            ("--mem-per-gpu 3G", "--mem="),
            ("--cpus-per-gpu=4", "--cpus-per-task="),
            ("--exclusive", ""),
            ("--mem-bind=local", ""),
        ] {
            let keys = SlurmKeys { directives: vec![directive.to_owned()], ..SlurmKeys::default() };
            let asked = keys.script_options(&json!({ "threads": 8, "memory": 24_u64 << 30, "gpus": 1 }));
            let has = |option: &str| asked["directives"].to_string().contains(option);
            for option in ["--mem=", "--cpus-per-task="] {
                assert_eq!(has(option), option != absent, "{directive}: {asked}");
            }
            assert!(has(directive), "{asked}");
        }
    }

    #[test]
    fn a_section_says_what_the_stack_leaves_open() {
        let base = SlurmKeys {
            partition: Some("cpu".into()),
            time_limit: Some("1h".into()),
            directives: vec!["--exclusive".into()],
            ..SlurmKeys::default()
        };
        let own = SlurmKeys { partition: Some("gpu".into()), ..SlurmKeys::default() };
        let asked = own.over(&base).worker_options(&json!({ "threads": 2, "memory": 300_000_000 }));
        assert_eq!(
            asked,
            json!({
                "directives": ["--no-requeue", "--ntasks=1", "--cpus-per-task=2", "--mem=287M", "--partition=gpu", "--time=60",
                    "--exclusive"],
                "lifetime": 3240, "stagger": 120,
            })
        );
    }
}
