//! Parses the faults file: TOML in, rules out, and all mistakes in one pass.

use std::collections::BTreeMap;
use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use jiff::{Span, SpanRelativeTo, Timestamp};
use serde_json::json;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::super::gke::{Stockout, limits, operations};
use super::super::kube::run::Scripts;
use super::super::kube::run::capacity::{self, Capacity, Start};
use super::bodies::REASONS;
use super::mistakes::Problem;
use super::rule::{DryRuns, FaultEffect, Refuse, Rule};

const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];

/// The faults that a file defines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    /// `[[request]]`.
    pub requests: Vec<Rule>,
    /// `[[stock_out]]`.
    pub stockouts: Vec<Stockout>,
    /// `[quota]`: limits by metric.
    pub quota: BTreeMap<String, u32>,
    /// `[quota] default`.
    pub default_quota: Option<u32>,
    /// `[operation_seconds]`.
    pub seconds: BTreeMap<operations::Kind, f64>,
    /// `[clusters] degraded`.
    pub degraded: bool,
    /// `[pods]`.
    pub scripts: Scripts,
}

/// Parses the text of a faults file.
///
/// # Errors
/// All its mistakes.
pub fn parse(text: &str) -> Result<Faults, Vec<Problem>> {
    let (root, errors) = DeTable::parse_recoverable(text);
    let mut reader = Reader::default();
    for error in errors {
        reader.problem(error.span().unwrap_or(0..0), error.message().to_owned(), None);
    }
    let faults = if reader.problems.is_empty() { reader.faults(root.get_ref()) } else { Faults::default() };
    let mut problems = reader.problems;
    problems.sort_by_key(|problem| problem.at.start);
    if problems.is_empty() { Ok(faults) } else { Err(problems) }
}

/// Parses a shortage of machines in a flag: `ZONE[:GPU]`.
///
/// # Errors
/// Returns a description of the mistake.
pub fn stockout_flag(text: &str) -> Result<Stockout, String> {
    let (zone, gpu) = match text.split_once(':') {
        Some((zone, gpu)) => (zone, Some(gpu)),
        None => (text, None),
    };
    limits::check_zone(zone)?;
    gpu.map_or(Ok(()), limits::check_gpu)?;
    let everywhere = Stockout::forever("*");
    Ok(Stockout { zone: Some(zone.to_owned()), gpu: gpu.map(str::to_owned), ..everywhere })
}

/// Parses a quota in a flag: `METRIC=N`.
///
/// # Errors
/// Returns a description of the mistake.
pub fn quota_flag(text: &str) -> Result<(String, u32), String> {
    let (metric, limit) = text.split_once('=').ok_or("it has the form METRIC=N")?;
    limits::check_metric(metric)?;
    let limit = limit.parse().map_err(|_| format!("`{limit}` is no whole number"))?;
    Ok((metric.to_owned(), limit))
}

#[derive(Default)]
struct Reader {
    problems: Vec<Problem>,
}

type Item<'t, 'i> = &'t Spanned<DeValue<'i>>;

impl Reader {
    fn problem(&mut self, at: Range<usize>, message: impl Into<String>, help: Option<String>) {
        self.problems.push(Problem { at, message: message.into(), help });
    }

    fn faults(&mut self, root: &DeTable<'_>) -> Faults {
        let sections = [
            "request",
            "stock_out",
            "capacity",
            "quota",
            "operation_seconds",
            "clusters",
            "pods",
            "provisioning",
        ];
        self.known(root, "the file", &sections);
        let requests = self.tables(root, "request").into_iter().map(|(at, table)| self.request(at, table));
        let requests = requests.collect();
        let stockouts = self.tables(root, "stock_out").into_iter().map(|(_, table)| self.stockout(table));
        let stockouts = stockouts.collect();
        let mut quota = self.quota(root);
        let default_quota = quota.remove("default");
        let (seconds, degraded, mut scripts) = (self.seconds(root), self.clusters(root), self.pods(root));
        scripts.no_capacity = self.provisioning(root);
        let capacity = self.tables(root, "capacity").into_iter().map(|(at, table)| self.capacity(at, table));
        scripts.capacity = capacity.collect();
        Faults { requests, stockouts, quota, default_quota, seconds, degraded, scripts }
    }

    fn request(&mut self, at: Range<usize>, table: &DeTable<'_>) -> Rule {
        let keys = [
            "method",
            "path",
            "dry_run",
            "skip",
            "times",
            "delay",
            "answer",
            "reason",
            "message",
            "lose",
            "operation_error",
        ];
        self.known(table, "[[request]]", &keys);
        let mut rule = Rule { then: self.then(table), ..Rule::default() };
        rule.method = self.word(table, "method", &METHODS);
        match self.text(table, "path") {
            Some((path, _)) if path.starts_with(['/', '*']) => rule.path = path,
            Some((path, at)) => {
                let help = format!("write `\"*/{path}\"` to match it anywhere");
                self.problem(at, "a path begins with `/` or `*`", Some(help));
            }
            None if table.contains_key("path") => {}
            None => self.problem(
                at.clone(),
                "a [[request]] needs a `path`",
                Some("`path = \"*\"` is each".into()),
            ),
        }
        rule.dry_run = match self.word(table, "dry_run", &["also", "only"]).as_deref() {
            Some("also") => DryRuns::Also,
            Some(_) => DryRuns::Only,
            None => DryRuns::Never,
        };
        rule.skip = self.number(table, "skip", 0..=1_000_000).unwrap_or(0);
        rule.times = self.times(table).unwrap_or(rule.times);
        rule.delay = self.duration(table, "delay").unwrap_or_default();
        let outcomes = ["answer", "lose", "operation_error"];
        let given: Vec<&str> = outcomes.into_iter().filter(|key| table.contains_key(*key)).collect();
        if given.len() > 1 {
            let message = format!("one request cannot meet `{}` and `{}`", given[0], given[1]);
            self.problem(at, message, Some("make two rules of it".to_owned()));
        } else if given.is_empty() && !table.contains_key("delay") {
            let help = "say `answer`, `lose`, `operation_error` or `delay`".to_owned();
            self.problem(at, "nothing happens to the request", Some(help));
        }
        rule
    }

    fn then(&mut self, table: &DeTable<'_>) -> FaultEffect {
        let lose = self.word(table, "lose", &["request", "answer", "half"]);
        let message = self.text(table, "message");
        let reason = self.text(table, "reason");
        let error = self.text(table, "operation_error");
        let Some(code) = self.code(table) else {
            for (key, item) in [("message", &message), ("reason", &reason)] {
                if let (Some((_, at)), false) = (item, table.contains_key("answer")) {
                    self.problem(at.clone(), format!("`{key}` goes with `answer`"), None);
                }
            }
            return match (lose.as_deref(), error) {
                (Some("request"), _) => FaultEffect::LoseRequest,
                (Some("half"), _) => FaultEffect::CutAnswer,
                (Some(_), _) => FaultEffect::LoseAnswer,
                (None, Some((error, _))) => FaultEffect::FailOperation(error),
                (None, None) => FaultEffect::Usual,
            };
        };
        let reasons = REASONS.iter().find(|(known, _)| *known == code).map(|(_, reasons)| *reasons);
        let reasons = reasons.unwrap_or_default();
        if let Some((reason, at)) = &reason
            && !reasons.contains(&reason.as_str())
        {
            self.problem(
                at.clone(),
                format!("`{reason}` is no reason of {code}"),
                listed("reasons are", reasons),
            );
        }
        let (reason, message) = (reason.map(|(text, _)| text), message.map(|(text, _)| text));
        FaultEffect::Refuse(Refuse { code, reason, message })
    }

    fn code(&mut self, table: &DeTable<'_>) -> Option<u16> {
        let code: u32 = self.number(table, "answer", 100..=999)?;
        let known = REASONS.iter().map(|(code, _)| *code).find(|known| u32::from(*known) == code);
        if known.is_none() {
            let codes: Vec<String> = REASONS.iter().map(|(code, _)| code.to_string()).collect();
            let codes: Vec<&str> = codes.iter().map(String::as_str).collect();
            let at = table.get("answer").map_or(0..0, Spanned::span);
            self.problem(at, format!("the sandbox has no error {code}"), listed("it has", &codes));
        }
        known
    }

    fn checked(
        &mut self,
        table: &DeTable<'_>,
        key: &str,
        check: fn(&str) -> Result<(), String>,
    ) -> Option<String> {
        let (text, at) = self.text(table, key)?;
        if let Err(why) = check(&text) {
            self.problem(at, why, None);
        }
        Some(text)
    }

    fn capacity(&mut self, at: Range<usize>, table: &DeTable<'_>) -> Capacity {
        let keys = ["pool", "zone", "gpu", "machine", "way", "nodes", "from", "after", "for"];
        self.known(table, "[[capacity]]", &keys);
        let from = match (self.moment(table, "from"), self.lasting(table, "after")) {
            (Some(_), Some(_)) => {
                let message = "one [[capacity]] cannot begin `from` a moment and `after` a time";
                self.problem(at.clone(), message, Some("make two of it".to_owned()));
                Start::Always
            }
            (Some(moment), None) => Start::At(moment),
            (None, Some(seconds)) => Start::After(seconds),
            (None, None) => Start::Always,
        };
        let lasts = self.lasting(table, "for");
        if table.contains_key("for") && !table.contains_key("from") && !table.contains_key("after") {
            let help = "`after = \"3h\"` counts from when machines are asked for".to_owned();
            self.problem(at, "`for` goes with `from` or `after`", Some(help));
        }
        Capacity {
            pool: self.text(table, "pool").map_or_else(|| "*".to_owned(), |(pool, _)| pool),
            zone: self.checked(table, "zone", limits::check_zone),
            gpu: self.checked(table, "gpu", limits::check_gpu),
            machine: self.checked(table, "machine", limits::check_machine),
            way: self.word(table, "way", &capacity::WAYS),
            nodes: self.number(table, "nodes", 0..=1_000_000),
            from,
            lasts,
        }
    }

    /// Reads a timestamp, with or without quotes.
    fn moment(&mut self, table: &DeTable<'_>, key: &str) -> Option<Timestamp> {
        let item = table.get(key)?;
        let moment = match item.get_ref() {
            DeValue::Datetime(moment) => moment.to_string().parse().ok(),
            other => other.as_str().and_then(|text| text.parse().ok()),
        };
        if moment.is_none() {
            let help = "write it with its zone: `2026-11-24T03:00:00Z`".to_owned();
            self.problem(item.span(), format!("`{key}` is a moment"), Some(help));
        }
        moment
    }

    /// Reads a duration, in seconds of the real service.
    fn lasting(&mut self, table: &DeTable<'_>, key: &str) -> Option<u64> {
        let (text, at) = self.text(table, key)?;
        let span: Option<Span> = text.parse().ok();
        let duration = span.and_then(|span| span.to_duration(SpanRelativeTo::days_are_24_hours()).ok());
        let seconds = duration.and_then(|duration| u64::try_from(duration.as_secs()).ok());
        if seconds.is_none() {
            let help = "write `\"90m\"`, `\"12h\"` or `\"7d\"`".to_owned();
            self.problem(at, format!("`{key}` is a time"), Some(help));
        }
        seconds
    }

    fn stockout(&mut self, table: &DeTable<'_>) -> Stockout {
        self.known(table, "[[stock_out]]", &["pool", "zone", "gpu", "machine", "way", "times"]);
        let zone = self.checked(table, "zone", limits::check_zone);
        let gpu = self.checked(table, "gpu", limits::check_gpu);
        let machine = self.checked(table, "machine", limits::check_machine);
        let way = self.checked(table, "way", limits::check_way);
        let pool = self.text(table, "pool").map_or_else(|| "*".to_owned(), |(pool, _)| pool);
        Stockout { pool, zone, gpu, machine, way, times: self.times(table).unwrap_or(None) }
    }

    fn quota(&mut self, root: &DeTable<'_>) -> BTreeMap<String, u32> {
        let Some(table) = self.table(root, "quota") else { return BTreeMap::new() };
        let mut found = BTreeMap::new();
        for key in table.keys() {
            let metric = key.get_ref().to_string();
            if let (true, Err(why)) = (metric != "default", limits::check_metric(&metric)) {
                self.problem(key.span(), why, None);
            }
            if let Some(limit) = self.number(table, &metric, 0..=1_000_000) {
                found.insert(metric, limit);
            }
        }
        found
    }

    fn seconds(&mut self, root: &DeTable<'_>) -> BTreeMap<operations::Kind, f64> {
        let Some(table) = self.table(root, "operation_seconds") else { return BTreeMap::new() };
        let mut found = BTreeMap::new();
        for key in table.keys() {
            let name = key.get_ref().to_string();
            let time = self.duration(table, &name);
            match (serde_json::from_value::<operations::Kind>(json!(name)), time) {
                (Ok(kind), Some(time)) => drop(found.insert(kind, time.as_secs_f64())),
                (Ok(_), None) => {}
                (Err(_), _) => {
                    let kinds: Vec<&str> = operations::Kind::ALL.iter().map(|kind| kind.name()).collect();
                    let message = format!("GKE has no operation `{name}` here");
                    self.problem(key.span(), message, listed("it has", &kinds));
                }
            }
        }
        found
    }

    fn clusters(&mut self, root: &DeTable<'_>) -> bool {
        let Some(table) = self.table(root, "clusters") else { return false };
        self.known(table, "[clusters]", &["degraded"]);
        self.switch(table, "degraded")
    }

    fn pods(&mut self, root: &DeTable<'_>) -> Scripts {
        let Some(table) = self.table(root, "pods") else { return Scripts::default() };
        self.known(table, "[pods]", &["fail_image", "cuda_fails", "driver_fails"]);
        let images = table.get("fail_image").and_then(|item| match item.get_ref() {
            DeValue::Array(items) => {
                items.iter().map(|item| item.get_ref().as_str().map(str::to_owned)).collect()
            }
            _ => None,
        });
        if let (Some(item), None) = (table.get("fail_image"), &images) {
            self.problem(item.span(), "`fail_image` is a list of texts", None);
        }
        let (cuda_fails, driver_fails) =
            (self.switch(table, "cuda_fails"), self.switch(table, "driver_fails"));
        Scripts { fail_image: images.unwrap_or_default(), cuda_fails, driver_fails, ..Scripts::default() }
    }

    fn provisioning(&mut self, root: &DeTable<'_>) -> bool {
        let Some(table) = self.table(root, "provisioning") else { return false };
        self.known(table, "[provisioning]", &["no_capacity"]);
        self.switch(table, "no_capacity")
    }

    /// Reports unknown keys.
    fn known(&mut self, table: &DeTable<'_>, what: &str, keys: &[&str]) {
        for key in table.keys() {
            if !keys.contains(&key.get_ref().as_ref()) {
                let message = format!("{what} has no key `{}`", key.get_ref());
                self.problem(key.span(), message, listed("it has", keys));
            }
        }
    }

    fn tables<'t, 'i>(&mut self, root: &'t DeTable<'i>, key: &str) -> Vec<(Range<usize>, &'t DeTable<'i>)> {
        let Some(item) = root.get(key) else { return Vec::new() };
        let items = match item.get_ref() {
            DeValue::Array(items) => {
                items.iter().map(|item| item.get_ref().as_table().map(|table| (item.span(), table))).collect()
            }
            _ => None,
        };
        if items.is_none() {
            self.problem(
                item.span(),
                format!("`{key}` is a list of tables"),
                Some(format!("write [[{key}]]")),
            );
        }
        items.unwrap_or_default()
    }

    fn table<'t, 'i>(&mut self, root: &'t DeTable<'i>, key: &str) -> Option<&'t DeTable<'i>> {
        let item = root.get(key)?;
        let table = item.get_ref().as_table();
        if table.is_none() {
            self.problem(item.span(), format!("`{key}` is a table"), Some(format!("write [{key}]")));
        }
        table
    }

    fn text(&mut self, table: &DeTable<'_>, key: &str) -> Option<(String, Range<usize>)> {
        let item = table.get(key)?;
        match item.get_ref().as_str() {
            Some(text) if !text.is_empty() => Some((text.to_owned(), item.span())),
            _ => {
                self.problem(item.span(), format!("`{key}` is a text in quotes"), None);
                None
            }
        }
    }

    fn word(&mut self, table: &DeTable<'_>, key: &str, words: &[&str]) -> Option<String> {
        let (text, at) = self.text(table, key)?;
        if words.contains(&text.as_str()) {
            return Some(text);
        }
        self.problem(at, format!("`{key}` cannot be `{text}`"), listed("it is one of", words));
        None
    }

    fn number(&mut self, table: &DeTable<'_>, key: &str, range: RangeInclusive<u32>) -> Option<u32> {
        let item = table.get(key)?;
        let number = integer(item).and_then(|number| u32::try_from(number).ok());
        let number = number.filter(|number| range.contains(number));
        if number.is_none() {
            let message = format!("`{key}` is a whole number from {} to {}", range.start(), range.end());
            self.problem(item.span(), message, None);
        }
        number
    }

    /// `times`: a number, or `"always"`.
    fn times(&mut self, table: &DeTable<'_>) -> Option<Option<u32>> {
        let item = table.get("times")?;
        if item.get_ref().as_str() == Some("always") {
            return Some(None);
        }
        let number = integer(item).and_then(|number| u32::try_from(number).ok()).filter(|number| *number > 0);
        if number.is_none() {
            self.problem(item.span(), "`times` is a number from 1, or \"always\"", None);
        }
        number.map(Some)
    }

    fn duration(&mut self, table: &DeTable<'_>, key: &str) -> Option<Duration> {
        let item = table.get(key)?;
        let seconds = match item.get_ref() {
            DeValue::Float(float) => float.as_str().replace('_', "").parse::<f64>().ok(),
            _ => integer(item).and_then(|number| i32::try_from(number).ok()).map(f64::from),
        };
        let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        if duration.is_none() {
            self.problem(item.span(), format!("`{key}` is a number of seconds"), None);
        }
        duration
    }

    fn switch(&mut self, table: &DeTable<'_>, key: &str) -> bool {
        let Some(item) = table.get(key) else { return false };
        let value = item.get_ref().as_bool();
        if value.is_none() {
            self.problem(item.span(), format!("`{key}` is true or false"), None);
        }
        value.unwrap_or_default()
    }
}

fn integer(item: Item<'_, '_>) -> Option<i64> {
    let DeValue::Integer(integer) = item.get_ref() else { return None };
    i64::from_str_radix(&integer.as_str().replace('_', ""), integer.radix()).ok()
}

fn listed(before: &str, words: &[&str]) -> Option<String> {
    let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    (!words.is_empty()).then(|| format!("{before} {}", words.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_what_goes_wrong() {
        let faults = parse(
            r#"
[[request]]
method = "POST"
path = "*/nodePools"
skip = 1
times = 2
answer = 503

[[request]]
path = "*/configmaps/*"
delay = 40
lose = "answer"

[[request]]
path = "*/nodePools"
times = "always"
operation_error = "[GCE_QUOTA_EXCEEDED]: too many"

[[request]]
path = "*"
lose = "half"

[[request]]
path = "*"
answer = 200

[[stock_out]]
zone = "us-central1-c"
gpu = "nvidia-tesla-t4"

[[capacity]]
zone = "us-central1-a"
way = "queued"
nodes = 8
from = 2026-11-24T03:00:00Z
for = "7d"

[[capacity]]
gpu = "nvidia-tesla-a100"
after = "1h 30m"

[quota]
default = 16
NVIDIA_A100_GPUS = 1

[operation_seconds]
CREATE_NODE_POOL = 900

[clusters]
degraded = true

[pods]
fail_image = ["*rapidsai*"]
cuda_fails = true
"#,
        )
        .expect("no mistakes");
        let Faults { requests, stockouts, quota, default_quota, seconds, degraded, scripts } = faults;
        assert!(degraded);
        assert_eq!(requests[0].then, FaultEffect::Refuse(Refuse::with(503)));
        assert_eq!((requests[0].skip, requests[0].times), (1, Some(2)));
        assert_eq!(requests[1].then, FaultEffect::LoseAnswer);
        assert_eq!((requests[1].delay, requests[1].times), (Duration::from_secs(40), Some(1)));
        assert_eq!(requests[2].times, None);
        assert_eq!(requests[3].then, FaultEffect::CutAnswer);
        assert_eq!(requests[4].then, FaultEffect::Refuse(Refuse::with(200)));
        assert_eq!(stockouts[0].gpu.as_deref(), Some("nvidia-tesla-t4"));
        assert_eq!((stockouts[0].pool.as_str(), stockouts[0].times), ("*", None));
        assert_eq!((quota["NVIDIA_A100_GPUS"], default_quota), (1, Some(16)));
        assert_eq!(seconds[&operations::Kind::CreateNodePool], 900.0);
        let night = Start::At("2026-11-24T03:00:00Z".parse().expect("a time"));
        let [first, second] = scripts.capacity.as_slice() else { panic!("{:?}", scripts.capacity) };
        assert_eq!((first.nodes, first.from, first.lasts), (Some(8), night, Some(7 * 86_400)));
        assert_eq!((second.nodes, second.from, second.lasts), (None, Start::After(5400), None));
        assert!(scripts.cuda_fails && !scripts.driver_fails && scripts.imitate_operator);
    }

    #[test]
    fn all_mistakes_are_told_with_their_places() {
        let text = r#"[[request]]
method = "FETCH"
path = "nodePools"
answer = 600
[[request]]
times = 0
lose = "both"
[[request]]
path = "*"
answer = 409
reason = "Gone"
lose = "answer"
[[stock_out]]
zone = "us-centrall-c"
gpu = "t4"
[quota]
NVIDIA_GPUS = -1
[operation_seconds]
MAKE_POOL = "long"
[pods]
cuda = true
[other]
[[capacity]]
way = "spot"
from = "soon"
[[capacity]]
for = "1x"
[[capacity]]
after = "1h"
from = "2026-11-24T03:00:00Z"
"#;
        let problems = parse(text).expect_err("mistakes");
        let line = |problem: &Problem| text[..problem.at.start].matches('\n').count() + 1;
        let told: Vec<(usize, &str)> =
            problems.iter().map(|problem| (line(problem), problem.message.as_str())).collect();
        let expected = [
            (2, "`method` cannot be `FETCH`"),
            (3, "a path begins with `/` or `*`"),
            (4, "the sandbox has no error 600"),
            (5, "a [[request]] needs a `path`"),
            (6, "`times` is a number from 1, or \"always\""),
            (7, "`lose` cannot be `both`"),
            (8, "one request cannot meet `answer` and `lose`"),
            (11, "`Gone` is no reason of 409"),
            (14, "`us-centrall-c` is no zone"),
            (15, "`t4` is no GPU"),
            (17, "`NVIDIA_GPUS` is no quota here"),
            (17, "`NVIDIA_GPUS` is a whole number from 0 to 1000000"),
            (19, "GKE has no operation `MAKE_POOL` here"),
            (19, "`MAKE_POOL` is a number of seconds"),
            (21, "[pods] has no key `cuda`"),
            (22, "the file has no key `other`"),
            (24, "`way` cannot be `spot`"),
            (25, "`from` is a moment"),
            (26, "`for` goes with `from` or `after`"),
            (27, "`for` is a time"),
            (28, "one [[capacity]] cannot begin `from` a moment and `after` a time"),
        ];
        for (line, message) in expected {
            let found = told.iter().any(|(at, said)| *at == line && said.starts_with(message));
            assert!(found, "{line}: {message} is not in\n{told:#?}");
        }
        assert_eq!(told.len(), expected.len(), "{told:#?}");
    }

    #[test]
    fn broken_toml_is_told_and_nothing_else() {
        let problems = parse("[[request]\npath = \n").expect_err("broken");
        assert!(!problems.is_empty() && problems[0].at.start < 12, "{problems:?}");
    }

    #[test]
    fn flags_say_the_common_ones() {
        let stockout = stockout_flag("us-central1-c:nvidia-tesla-a100").expect("a stock-out");
        assert_eq!(stockout.gpu.as_deref(), Some("nvidia-tesla-a100"));
        assert_eq!(stockout_flag("us-central1-c").expect("a zone").gpu, None);
        assert!(stockout_flag("mars1-a").is_err_and(|why| why.contains("mars1-a")));
        assert!(stockout_flag("us-central1-c:t4").is_err_and(|why| why.contains("nvidia-tesla-t4")));
        assert_eq!(quota_flag("NVIDIA_T4_GPUS=3"), Ok(("NVIDIA_T4_GPUS".to_owned(), 3)));
        for wrong in ["NVIDIA_T4_GPUS", "NVIDIA_T4_GPUS=x", "T4=1"] {
            assert!(quota_flag(wrong).is_err(), "{wrong}");
        }
    }
}
