//! The report of a connection, as text for people and as a JSON line for programs, and its later events.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::human::style::{Tint, paint, push_line, strip_controls, wrap};

/// An open connection to a Dask cluster, as `connect --json` prints it: the names of the fields are a public format.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connected {
    /// The address that the connection leads to.
    pub address: String,
    /// The Kubernetes cluster, or the host.
    pub target: String,
    /// True if GKE is simulated; the connection itself is real.
    pub simulated: bool,
    /// The pod that answers: `NAMESPACE/NAME`. There is none on a host.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pod: String,
    /// Where clients of Dask connect to: `tcp://127.0.0.1:8786`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// The line for Python.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub python: Option<String>,
    /// With TLS: the options of Dask's `Security` for clients, which name files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security: Option<Value>,
    /// The scheduler's dashboard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dashboard: Option<String>,
    /// The package that the scheduler's environment lacks for its dashboard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dashboard_lacks: Option<String>,
    /// Jupyter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub notebook: Option<String>,
    /// Where the password is that Jupyter asks for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<Password>,
    /// The pod's image, which a client should have, too.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub image: String,
    /// Versions of `python`, `dask` and `distributed` in it, as far as the scheduler tells.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub versions: BTreeMap<String, String>,
    /// The process that holds the local ports.
    pub pid: u32,
    /// True if that process runs in the background.
    pub background: bool,
    /// True if the connection existed before.
    pub already: bool,
    /// On a host: the Python of the workers' environment, which clients can use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interpreter: Option<String>,
    /// Why the Python of this machine cannot be the client, and the cure; nothing when it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misfit: Option<String>,
    /// True if a process on a host listens there itself, so that nothing is forwarded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub on_host: bool,
    /// Of several hosts the one that it listens on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<String>,
    /// The command that brings the ports of another host to this machine, should it not reach them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Password {
    /// The Secret's namespace.
    pub namespace: String,
    pub secret: String,
    pub key: String,
}

impl Connected {
    /// Returns the JSON line for programs.
    pub fn line(&self) -> String {
        let mut line = json!({ "type": "connected" });
        if let (Value::Object(line), Ok(Value::Object(own))) = (&mut line, serde_json::to_value(self)) {
            line.extend(own);
        }
        format!("{line}\n")
    }

    /// For people.
    pub fn text(&self, width: usize) -> String {
        let mark = if self.simulated { "SIMULATED" } else { "LIVE" };
        let already = if self.already { " is connected already" } else { "" };
        let mut text = String::new();
        let head = format!("{}{already} on {} — {mark}", paint(Tint::Bold, &self.address), self.target);
        text.push_str(&wrap("", &head, width));
        text.push('\n');
        for (name, value) in self.rows() {
            // Not wrapped: it is there to be copied.
            push_line(&mut text, &format!("  {name:10}{value}"));
        }
        text.push('\n');
        text.push_str(&wrap("", &self.end(), width));
        text
    }

    fn rows(&self) -> Vec<(&'static str, String)> {
        let mut rows: Vec<(&'static str, String)> = Vec::new();
        let lacks = self.dashboard_lacks.as_ref();
        let lacks =
            lacks.map(|package| format!(" has no pages: add `{package}` to the packages of the environment"));
        let lacks = lacks.map(|why| paint(Tint::Change, &why)).unwrap_or_default();
        rows.extend(
            self.dashboard.iter().map(|url| ("dashboard", format!("{}{lacks}", paint(Tint::Run, url)))),
        );
        rows.extend(self.notebook.iter().map(|url| ("notebook", paint(Tint::Run, url))));
        let also = if self.security.is_some() { ", Security" } else { "" };
        let imported = |line: &String| format!("from dask.distributed import Client{also}; client = {line}");
        rows.extend(self.python.iter().map(|line| ("python", paint(Tint::Bold, &imported(line)))));
        if let Some(Password { namespace, secret, key }) = &self.password {
            rows.push(("password", format!("key `{key}` of the Secret {namespace}/{secret}")));
        }
        if self.on_host {
            rows.extend(self.interpreter.iter().map(|python| ("run with", strip_controls(python))));
            rows.extend(self.forward.iter().map(|command| ("forward", strip_controls(command))));
        } else {
            let known =
                [("pod", &self.pod), ("image", &self.image)].into_iter().filter(|(_, said)| !said.is_empty());
            rows.extend(known.map(|(name, said)| (name, strip_controls(said))));
        }
        let versions: Vec<String> = self
            .versions
            .iter()
            .map(|(name, version)| strip_controls(&format!("{name} {version}")))
            .collect();
        if !versions.is_empty() {
            rows.push(("versions", versions.join(", ")));
        }
        rows.extend(self.misfit.iter().map(|why| ("python3", paint(Tint::Change, &strip_controls(why)))));
        rows
    }

    fn end(&self) -> String {
        let same = match (&self.client, self.versions.is_empty()) {
            (None, _) => "",
            (Some(_), true) if self.image.is_empty() => "",
            (Some(_), true) => "Clients should use the versions of this image. ",
            (Some(_), false) => {
                "Clients should use these versions, including Python's major and minor version. "
            }
        };
        if self.on_host {
            let on = self.on.as_ref().unwrap_or(&self.target);
            let forward = match self.forward {
                Some(_) => " Where this machine does not reach it, `forward` brings both ports to 127.0.0.1.",
                None => "",
            };
            return format!("{same}Nothing has to stay open: the scheduler listens on {on}.{forward}");
        }
        let how = match (self.background, self.already) {
            (true, _) => {
                format!("Process {0} keeps it open in the background; `kill {0}` ends it.", self.pid)
            }
            (false, true) => {
                format!("Process {0} keeps it open; Ctrl-C there or `kill {0}` ends it.", self.pid)
            }
            (false, false) => "Ctrl-C ends it.".to_owned(),
        };
        format!("{same}{how}")
    }
}

/// Events of an open connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConnectEvent {
    /// The pod is gone; why.
    PodGone(String),
    /// A pod answers: `NAMESPACE/NAME`.
    PodFound(String),
    /// The API server is not reached; why.
    ApiUnreachable(String),
    /// The API server answers again.
    ApiReachable,
    /// One connection was not made; why.
    ConnectionFailed(String),
    /// It ends.
    Ended,
}

impl ConnectEvent {
    /// Returns the JSON line for programs.
    pub fn line(&self) -> String {
        let line = match self {
            Self::PodGone(why) => json!({ "type": "gone", "why": why }),
            Self::PodFound(pod) => json!({ "type": "there", "pod": pod }),
            Self::ApiUnreachable(why) => json!({ "type": "unreached", "why": why }),
            Self::ApiReachable => json!({ "type": "back" }),
            Self::ConnectionFailed(why) => json!({ "type": "refused", "why": why }),
            Self::Ended => json!({ "type": "ended" }),
        };
        format!("{line}\n")
    }

    /// Returns the line for people.
    pub fn text(&self) -> String {
        let line = match self {
            Self::PodGone(why) => format!("disconnected: {why}; waiting for the next pod"),
            Self::PodFound(pod) => format!("connected to pod {pod}"),
            Self::ApiUnreachable(why) => format!("the cluster cannot be reached: {why}; trying again"),
            Self::ApiReachable => "the cluster can be reached again".to_owned(),
            Self::ConnectionFailed(why) => format!("a connection failed: {why}"),
            Self::Ended => "disconnected".to_owned(),
        };
        format!("{}\n", strip_controls(&line).replace('\n', " "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scheduler() -> Connected {
        let versions = [("python", "3.12.4"), ("dask", "2026.8.0"), ("distributed", "2026.8.0")];
        Connected {
            address: "dask_cluster.rapids".into(),
            target: "demo / us-central1-c / rapids-gpu".into(),
            pod: "default/rapids-scheduler-abc".into(),
            client: Some("tcp://127.0.0.1:8786".into()),
            python: Some("Client(\"tcp://127.0.0.1:8786\")".into()),
            dashboard: Some("http://127.0.0.1:8787/status".into()),
            image: "rapids:26.04".into(),
            versions: versions.map(|(name, version)| (name.to_owned(), version.to_owned())).into(),
            pid: 7,
            ..Connected::default()
        }
    }

    fn plain(connected: &Connected) -> String {
        anstream::adapter::strip_str(&connected.text(100)).to_string()
    }

    #[test]
    fn a_scheduler_is_told_with_what_to_paste() {
        assert_eq!(
            plain(&scheduler()),
            "dask_cluster.rapids on demo / us-central1-c / rapids-gpu — LIVE\n\n\
             \x20 dashboard http://127.0.0.1:8787/status\n\
             \x20 python    from dask.distributed import Client; client = Client(\"tcp://127.0.0.1:8786\")\n\
             \x20 pod       default/rapids-scheduler-abc\n\
             \x20 image     rapids:26.04\n\
             \x20 versions  dask 2026.8.0, distributed 2026.8.0, python 3.12.4\n\n\
             Clients should use these versions, including Python's major and minor version. Ctrl-C ends it.\n"
        );
        let other = Connected { misfit: Some("has no distributed".into()), ..scheduler() };
        assert!(plain(&other).contains("\n  python3   has no distributed\n\n"), "{}", plain(&other));
        let bare = Connected { dashboard_lacks: Some("bokeh".into()), ..scheduler() };
        let line =
            "http://127.0.0.1:8787/status has no pages: add `bokeh` to the packages of the environment\n";
        assert!(plain(&bare).contains(line), "{}", plain(&bare));
        let there = Connected { background: true, already: true, versions: BTreeMap::new(), ..scheduler() };
        let text = plain(&there);
        assert!(text.starts_with("dask_cluster.rapids is connected already on demo"), "{text}");
        let text = text.replace('\n', " ");
        assert!(text.ends_with("Process 7 keeps it open in the background; `kill 7` ends it. "), "{text}");
    }

    #[test]
    fn a_notebook_is_told_without_its_password() {
        let notebook = Connected {
            address: "notebook.lab".into(),
            notebook: Some("http://127.0.0.1:8888/lab".into()),
            password: Some(Password {
                namespace: "n".into(),
                secret: "jupyter".into(),
                key: "password".into(),
            }),
            client: None,
            python: None,
            dashboard: None,
            versions: BTreeMap::new(),
            simulated: true,
            ..scheduler()
        };
        let text = plain(&notebook);
        assert!(text.contains("SIMULATED\n\n  notebook  http://127.0.0.1:8888/lab\n"), "{text}");
        assert!(text.contains("  password  key `password` of the Secret n/jupyter\n"), "{text}");
        assert!(text.ends_with("\n\nCtrl-C ends it.\n"), "{text}");
    }

    #[test]
    fn programs_read_back_what_was_written() {
        let line = scheduler().line();
        assert!(line.contains("\"type\":\"connected\"") && line.ends_with("}\n"), "{line}");
        assert_eq!(serde_json::from_str::<Connected>(&line).unwrap(), scheduler());
        let gone: Value = serde_json::from_str(&ConnectEvent::PodGone("x".into()).line()).unwrap();
        assert_eq!(gone, json!({ "type": "gone", "why": "x" }));
        assert_eq!(
            ConnectEvent::ConnectionFailed("a\u{1b}[31m\nb".into()).text(),
            "a connection failed: a b\n"
        );
    }
}
