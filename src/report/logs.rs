//! Log lines, with their pod and container, as `kubectl logs --prefix` prints them.

use std::collections::BTreeMap;

use serde_json::json;

use super::human::style::{paint_nth, strip_controls};
use kinds::kubernetes::pods::Container;

/// How lines are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// As they are.
    Bare,
    /// With the pod and container before them.
    Prefixed,
    /// With the process before them, for processes on hosts.
    Processes,
    /// One JSON object each.
    Json,
}

/// Writes lines of several pods; each pod has a color.
#[derive(Debug)]
pub struct Lines {
    look: Look,
    colours: BTreeMap<String, usize>,
}

impl Lines {
    /// Creates a writer without pods.
    pub fn new(look: Look) -> Self {
        Self { look, colours: BTreeMap::new() }
    }

    /// Returns one line, with its end.
    pub fn line(&mut self, of: &Container, line: &str) -> String {
        let line = strip_controls(line.trim_end_matches(['\n', '\r']));
        match self.look {
            Look::Bare => format!("{line}\n"),
            Look::Json => {
                let Container { namespace, pod, name, .. } = of;
                let object = json!({ "namespace": namespace, "pod": pod, "container": name, "line": line });
                format!("{object}\n")
            }
            Look::Prefixed | Look::Processes => {
                let next = self.colours.len();
                let nth = *self.colours.entry(of.pod.clone()).or_insert(next);
                let prefix = match self.look {
                    Look::Processes => format!("[process/{}]", strip_controls(&of.pod)),
                    _ => format!("[pod/{}/{}]", strip_controls(&of.pod), strip_controls(&of.name)),
                };
                format!("{} {line}\n", paint_nth(nth, &prefix))
            }
        }
    }
}

/// Returns the line for a container whose log is not available.
pub fn without(of: &Container, why: &str) -> String {
    format!(
        "[pod/{}/{}] no log: {}\n",
        strip_controls(&of.pod),
        strip_controls(&of.name),
        strip_controls(why).replace('\n', " ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(pod: &str) -> Container {
        Container {
            namespace: "n".into(),
            pod: pod.into(),
            index: 0,
            name: "worker".into(),
            uid: String::new(),
            restarts: 0,
            waits: None,
            ended: None,
        }
    }

    #[test]
    fn each_pod_has_a_colour_and_logs_do_not_steer_the_terminal() {
        let mut lines = Lines::new(Look::Prefixed);
        let first = lines.line(&container("a"), "one\r\n");
        assert_eq!(anstream::adapter::strip_str(&first).to_string(), "[pod/a/worker] one\n");
        let colour = |line: &str| line.split("[pod").next().unwrap_or_default().to_owned();
        let other = lines.line(&container("b"), "two");
        assert_ne!(colour(&first), colour(&other));
        assert_eq!(colour(&first), colour(&lines.line(&container("a"), "\u{1b}[2Jthree")));
        assert!(!lines.line(&container("a"), "\u{1b}[2Jthree").contains("[2J"));
        assert_eq!(Lines::new(Look::Bare).line(&container("a"), "x"), "x\n");
        let json = Lines::new(Look::Json).line(&container("a"), "x");
        assert_eq!(json, "{\"container\":\"worker\",\"line\":\"x\",\"namespace\":\"n\",\"pod\":\"a\"}\n");
    }
}
