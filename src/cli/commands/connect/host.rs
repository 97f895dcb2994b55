//! Connects to a scheduler on a host. It already listens there, so nothing is forwarded.

use serde_json::Value;

use crate::cli::Exit;
use crate::cli::commands::connect::{ConnectRun, host_address, local_python};
use crate::cli::session::Link;
use crate::cli::settings::Failure;
use crate::report::connect::Connected;
use kinds::hosts::api;
use kinds::hosts::cluster::{SLURM_FIELD, TLS};
use live::dask::is_version;
use live::hosts::{CERTIFICATES, keep_for_clients};
use live::{ErrorClass, LiveApi as _, Request};
use model::diag::{Code, Diagnostic};
use model::resource::{Api, Host, HostConnection, ObjectId};
use model::shell::{ShellLine, python_string, quoted};
use model::versions::Versions;

impl ConnectRun<'_> {
    /// Prints where the scheduler listens.
    pub(crate) fn on_host(&self) -> Result<Exit, Failure> {
        if self.args.port.is_some() || self.args.dashboard_port.is_some() {
            let what = "a scheduler on a host has the ports of the stack file";
            let help =
                "omit `--port` and `--dashboard-port`; `scheduler = { port, dashboard_port }` changes them";
            return Err(Diagnostic::error(Code::Usage, what).help(help).into());
        }
        crate::cli::commands::connect::block_on(async {
            let link = self.session.connect(self.settings)?;
            link.api().skip_unreachable_hosts();
            let connected = self.listening(&link).await?;
            self.print(&connected);
            link.close().await?;
            Ok(Exit::Done)
        })
    }

    async fn listening(&self, link: &Link) -> Result<Connected, Failure> {
        let program = self.settings.program();
        let not_there = |what: String, help: String| {
            self.session.failure(Diagnostic::error(Code::NoAnswerThere, what).help(help))
        };
        let Some(live) = self.read(link, &self.endpoint.service).await? else {
            let help = format!("`{program} plan` shows what is missing, `{program} apply` creates it");
            return Err(not_there(format!("{} does not exist", self.address), help));
        };
        let scheduler = &live["status"]["scheduler"];
        if scheduler["answers"] != true {
            let help =
                format!("`{program} status` shows its state, `{program} apply` starts what is not running");
            return Err(not_there(format!("{} does not accept connections", self.address), help));
        }
        let name = text(&live["spec"]["environment"]["name"]).unwrap_or_default();
        let environment = ObjectId { gvk: api::environment(), namespace: None, name };
        let environment = self.read(link, &environment).await?.unwrap_or_default();
        // Environments that an earlier version made do not tell.
        let lacks_bokeh = environment["status"]["extras"].get("bokeh").is_some_and(Value::is_null);
        // The versions of the running scheduler, or of its environment if the scheduler does not report any.
        let running = &scheduler["versions"];
        let versions = if running.is_object() { running } else { &live["status"]["versions"] };
        let mut versions: Versions = serde_json::from_value(versions.clone()).unwrap_or_default();
        versions.retain(|_, version| is_version(version));
        let Some(client) = host_address::address(&scheduler["address"]) else {
            let what = format!("the host gave an address of {} that is not an address of Dask", self.address);
            return Err(not_there(
                what,
                "do not use it; look at the host: its files may have been changed".into(),
            ));
        };
        let (_, target) = self.session.owner_and_target();
        // Clients on the same machine run with the environment's own.
        let is_here = target.hosts.iter().all(|host| host.connection == HostConnection::Local);
        let misfit = if is_here { None } else { local_python::version_mismatch(&versions).await };
        versions.retain(|name, _| ["python", "dask", "distributed"].contains(&name.as_str()));
        let terms = &live["spec"]["scheduler"];
        let on = text(&terms["on"]);
        // A scheduler that is a job is on a node behind the login node.
        let is_job = terms.get(SLURM_FIELD).is_some();
        let by = |host: &&Host| match &on {
            Some(on) => host.name == *on,
            None => is_job && matches!(host.connection, HostConnection::Ssh { .. }),
        };
        let forward = target.hosts.iter().find(by).and_then(|host| forward(host, scheduler));
        let security = match live["spec"]["scheduler"]["protocol"] == TLS {
            true => Some(self.security(link, target.hosts.first()).await?),
            false => None,
        };
        Ok(Connected {
            address: self.address.to_string(),
            target: target.to_string(),
            simulated: target.simulated,
            python: Some(python(&client, security.as_ref())),
            client: Some(client),
            security,
            dashboard: host_address::dashboard(&scheduler["dashboard"]),
            dashboard_lacks: lacks_bokeh.then(|| "bokeh".to_owned()),
            versions,
            interpreter: interpreter(&environment["status"]),
            on_host: true,
            on,
            forward,
            misfit,
            ..Connected::default()
        })
    }

    /// Copies the certificates to this machine if the scheduler runs on another one.
    async fn security(&self, link: &Link, home: Option<&Host>) -> Result<Value, Failure> {
        let service = &self.endpoint.service;
        let request = Request::get(Api::Kubernetes, format!("{}/{CERTIFICATES}", service.path()));
        let found = link.api().send(request).await.map_err(|error| self.session.refused(&error))?;
        let kept = match home {
            Some(home) => keep_for_clients(home, &service.name, &found),
            None => Err("the stack has no host".to_owned()),
        };
        kept.map_err(|why| {
            let what = format!("there are no certificates for clients: {why}");
            let help =
                "they are kept below `$XDG_STATE_HOME/dask-infra/clients`, by default in `~/.local/state`";
            self.session.failure(Diagnostic::error(Code::CannotWrite, what).help(help))
        })
    }

    async fn read(&self, link: &Link, object: &ObjectId) -> Result<Option<Value>, Failure> {
        match link.api().send(Request::get(Api::Kubernetes, object.path())).await {
            Ok(live) => Ok(Some(live)),
            Err(error) if error.class == ErrorClass::NotFound => Ok(None),
            Err(error) => Err(self.session.refused(&error)),
        }
    }
}

/// Returns the line for Python.
fn python(client: &str, security: Option<&Value>) -> String {
    let client = python_string(client);
    let Some(options) = security.and_then(Value::as_object) else { return format!("Client({client})") };
    let options = options.iter().map(|(name, value)| match value {
        Value::String(path) => format!("{name}={}", python_string(path)),
        _ => format!("{name}=True"),
    });
    format!("Client({client}, security=Security({}))", options.collect::<Vec<_>>().join(", "))
}

/// Returns the `ssh` command that forwards the ports of a scheduler from its host.
fn forward(host: &Host, scheduler: &Value) -> Option<String> {
    let at = host_address::host(scheduler["host"].as_str()?)?;
    let mut line = ShellLine::of("ssh").words(["-N"]);
    for port in ["port", "dashboardPort"] {
        let port = host_address::port(&scheduler[port])?;
        line = line.words(["-L", &format!("{port}:{at}:{port}")]);
    }
    if let HostConnection::Ssh { user, port, identity, .. } = &host.connection {
        if let Some(user) = user {
            line = line.words(["-l", user]);
        }
        if let Some(port) = port {
            line = line.words(["-p", &port.to_string()]);
        }
        if let Some(identity) = identity {
            line = line.path("-i", identity);
        }
    }
    Some(line.words([host.address()]).to_string())
}

/// Returns how to start the environment's Python on the host: a command for a container, otherwise a path.
fn interpreter(environment: &Value) -> Option<String> {
    match &environment["run"] {
        Value::String(run) => ShellLine::read(run).map(|line| line.to_string()),
        _ => environment["python"].as_str().map(quoted),
    }
}

fn text(value: &Value) -> Option<String> {
    value.as_str().map(str::to_owned)
}
