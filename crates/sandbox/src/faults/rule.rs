//! The rules for requests, and how many requests each has matched.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::super::kube::run::glob;
use super::super::persist::named;

/// A rule: requests that are not answered as usual.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Rule {
    /// The HTTP method; every method if unset.
    pub method: Option<String>,
    /// A pattern for paths without the query; `*` matches any text.
    pub path: String,
    /// The dry runs that the rule matches.
    pub dry_run: DryRuns,
    /// The number of matching requests that pass before the rule applies.
    pub skip: u32,
    /// The number of requests that the rule applies to; `None` for all.
    pub times: Option<u32>,
    /// The delay before the request is handled, in real time. It is handled even if the client has given up, as with a real
    /// server.
    pub delay: Duration,
    /// The effect on the request.
    pub then: FaultEffect,
}

/// Dry runs that a rule matches: requests that ask the API server to store nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum DryRuns {
    /// No dry run is matched.
    #[default]
    Never,
    /// Dry runs are matched like other requests.
    Also,
    /// Only dry runs are matched.
    Only,
}

impl DryRuns {
    fn covers(self, is_dry_run: bool) -> bool {
        match self {
            Self::Never => !is_dry_run,
            Self::Also => true,
            Self::Only => is_dry_run,
        }
    }
}

impl Default for Rule {
    fn default() -> Self {
        let (method, path, then) = (None, "*".to_owned(), FaultEffect::Usual);
        let dry_run = DryRuns::Never;
        Self { method, path, dry_run, skip: 0, times: Some(1), delay: Duration::ZERO, then }
    }
}

/// The effect on a request that a rule applies to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum FaultEffect {
    /// The request is executed and answered.
    Usual,
    /// The request is not executed, and an error is returned.
    Refuse(Refuse),
    /// The request is not executed, and the connection breaks.
    LoseRequest,
    /// The request is executed, and the connection breaks before the response.
    LoseAnswer,
    /// The request is executed, and only half of the response arrives.
    CutAnswer,
    /// The request is executed; the GKE operation that it starts ends with this error.
    FailOperation(String),
}

/// An error to answer with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refuse {
    /// The HTTP code.
    pub code: u16,
    /// The reason, if the code has several errors: `ABORTED`, `AlreadyExists`.
    pub reason: Option<String>,
    /// A message in place of the usual one.
    pub message: Option<String>,
}

impl Refuse {
    /// Returns the usual error of this code.
    pub fn with(code: u16) -> Self {
        Self { code, reason: None, message: None }
    }
}

impl Rule {
    fn covers(&self, method: &str, path: &str, is_dry_run: bool) -> bool {
        let method_fits = self.method.as_deref().is_none_or(|only| only == method);
        method_fits && self.dry_run.covers(is_dry_run) && glob(&self.path, path)
    }

    /// Returns true if the rule applies to the next matching request after `met` others.
    fn strikes(&self, met: u32) -> bool {
        let since = met.checked_sub(self.skip);
        since.is_some_and(|since| self.times.is_none_or(|times| since < times))
    }
}

/// The rules for requests, and how many requests each has met. The counts are kept with the state.
#[derive(Debug, Default)]
pub struct Script {
    rules: Vec<(String, Rule)>,
    met: BTreeMap<String, u32>,
    dirty: bool,
}

impl Script {
    /// Takes over the counts in `kept`; drops those of removed rules.
    pub fn new(rules: Vec<Rule>, kept: &Value) -> Self {
        let rules = named(rules);
        let old: BTreeMap<String, u32> = serde_json::from_value(kept.clone()).unwrap_or_default();
        let known = |name: &String| rules.iter().any(|(rule, _)| rule == name);
        let met: BTreeMap<String, u32> = old.clone().into_iter().filter(|(name, _)| known(name)).collect();
        let dirty = met != old;
        Self { rules, met, dirty }
    }

    /// Returns true if there are no rules.
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// Returns the rule that applies to this request. Each rule counts all requests that it matches, including those that another
    /// rule applies to.
    pub fn strike(&mut self, method: &str, path: &str, is_dry_run: bool) -> Option<Rule> {
        let mut struck = None;
        for (name, rule) in &self.rules {
            if !rule.covers(method, path, is_dry_run) {
                continue;
            }
            let met = self.met.entry(name.clone()).or_default();
            if struck.is_none() && rule.strikes(*met) {
                struck = Some(rule.clone());
            }
            *met = met.saturating_add(1);
            self.dirty = true;
        }
        struck
    }

    /// Returns the counts if they have changed since the last call.
    pub fn take_dirty(&mut self) -> Option<Value> {
        std::mem::take(&mut self.dirty).then(|| self.counts())
    }

    pub fn counts(&self) -> Value {
        serde_json::to_value(&self.met).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(method: Option<&str>, path: &str, skip: u32, times: Option<u32>, code: u16) -> Rule {
        let then = FaultEffect::Refuse(Refuse::with(code));
        Rule {
            method: method.map(str::to_owned),
            path: path.to_owned(),
            skip,
            times,
            then,
            ..Rule::default()
        }
    }

    fn codes(script: &mut Script, requests: &[(&str, &str)]) -> Vec<u16> {
        let strike =
            |(method, path): &(&str, &str)| match script.strike(method, path, false).map(|rule| rule.then) {
                Some(FaultEffect::Refuse(Refuse { code, .. })) => code,
                _ => 0,
            };
        requests.iter().map(strike).collect()
    }

    #[test]
    fn a_rule_strikes_the_requests_that_it_says() {
        let (post, get) = (("POST", "/v1/x/nodePools"), ("GET", "/v1/x/nodePools/a"));
        let rows: &[(Vec<Rule>, &[u16])] = &[
            (vec![rule(None, "*", 0, Some(1), 500)], &[500, 0, 0, 0]),
            (vec![rule(Some("POST"), "*/nodePools", 1, Some(1), 500)], &[0, 0, 500, 0]),
            (vec![rule(Some("GET"), "*", 0, None, 503)], &[0, 503, 0, 503]),
            (vec![rule(None, "*", 0, Some(1), 500), rule(None, "*", 1, Some(2), 429)], &[500, 429, 429, 0]),
            (vec![rule(None, "/v1/y*", 0, None, 500)], &[0, 0, 0, 0]),
        ];
        for (rules, expected) in rows {
            let mut script = Script::new(rules.clone(), &Value::Null);
            assert_eq!(codes(&mut script, &[post, get, post, get]), *expected, "{rules:?}");
        }
    }

    #[test]
    fn dry_runs_are_met_by_rules_that_ask_for_them() {
        for (dry_run, real, dry) in
            [(DryRuns::Never, true, false), (DryRuns::Also, true, true), (DryRuns::Only, false, true)]
        {
            let rule = Rule { dry_run, times: None, ..Rule::default() };
            let mut script = Script::new(vec![rule], &Value::Null);
            assert_eq!(script.strike("PATCH", "/a", false).is_some(), real, "{dry_run:?}");
            assert_eq!(script.strike("PATCH", "/a", true).is_some(), dry, "{dry_run:?}");
        }
    }

    #[test]
    fn counts_outlive_a_process_and_end_with_their_rule() {
        let once = || rule(None, "*", 0, Some(1), 500);
        let mut script = Script::new(vec![once(), once()], &Value::Null);
        assert_eq!(codes(&mut script, &[("GET", "/a")]), [500]);
        let kept = script.take_dirty().expect("counted");
        assert_eq!(script.take_dirty(), None);
        let mut again = Script::new(vec![once(), once()], &kept);
        assert_eq!(codes(&mut again, &[("GET", "/a")]), [0], "both have met one request");
        let mut edited = Script::new(vec![rule(None, "*", 0, Some(1), 503)], &kept);
        assert_eq!(edited.take_dirty(), Some(serde_json::json!({})));
        assert_eq!(codes(&mut edited, &[("GET", "/a")]), [503]);
    }
}
