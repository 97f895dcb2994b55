//! `connect`: a port-forward to a Dask scheduler or a notebook, and what to paste.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;

use self::connections::ConnectionNotes;
use crate::cli::Exit;
use crate::cli::completion_values;
use crate::cli::session::{Link, Session, block_on};
use crate::cli::settings::{Failure, Format, Settings};
use crate::cli::signals::StopSignals;
use crate::report::connect::{ConnectEvent, Connected, Password};
use kinds::kind::{ConnectTarget, EndpointKind};
use kinds::kubernetes::endpoint::{self, PodFound, PodPort, PortRole};
use live::connection::Connection;
use live::forward::{FindPod, ForwardEvent, ForwardTarget, LocalPort, TargetPod, forward};
use live::{ApiError, ErrorClass, LiveApi as _, Request, dask};
use model::address::Address;
use model::diag::{Code, Diagnostic, listed};
use model::resource::{Api, Identity, Resource};
use model::shell::python_string;

mod connections;
mod host;
mod host_address;
mod local_python;

/// Shown below the options.
pub const EXAMPLES: &str = "Examples:\n  \
    dask-infra connect                           the one Dask cluster or notebook of the stack\n  \
    dask-infra connect rapids                    by any unique ending of its address\n  \
    dask-infra connect notebook.lab --port 9999\n  \
    dask-infra connect --background --json | jq -r .client\n\
    \n\
    Prints the dashboard's URL, the line for Python, and the image and versions that a client should match. Listens on\n\
    127.0.0.1 only, and reconnects when the pod is replaced or the connection is lost. Ctrl-C ends it with exit code 0.\n\
    A note in $XDG_RUNTIME_DIR/dask-infra/connect, or ~/.local/state/dask-infra/connect, lets a second `connect` find the first.";

/// Options of `connect`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The Dask cluster, running job or notebook to connect to [default: the only one in the stack]
    #[arg(value_name = "ADDRESS", add = completion_values::addresses())]
    address: Option<String>,
    /// The local port for the scheduler or the notebook [default: 8786 or 8888 if free, else any]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// The local port for the dashboard [default: 8787 if free, else any]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    dashboard_port: Option<u16>,
    /// Run in the background; prints the process ID
    #[arg(long)]
    background: bool,
    /// Print JSON lines
    #[arg(long)]
    json: bool,
    /// Be the process in the background
    #[arg(long, hide = true, conflicts_with = "background")]
    detached: bool,
}

/// Connects until Ctrl-C.
pub fn connect(settings: &Settings, args: &Args) -> Exit {
    settings.report(Format::Text, |_| {
        let session = Session::load(settings)?;
        let (address, endpoint, resource) = find_endpoint(&session, args.address.as_deref())?;
        let run = ConnectRun { settings, args, session: &session, address, endpoint, resource };
        if args.dashboard_port.is_some() && run.endpoint.kind == EndpointKind::Notebook {
            let what = format!("{} is a notebook, which has no dashboard", run.address);
            return Err(Diagnostic::error(Code::Usage, what).help("give `--port`").into());
        }
        let (_, target) = session.owner_and_target();
        if target.is_on_hosts() {
            return run.on_host();
        }
        if let Some(existing) = block_on(async { Ok(run.existing().await) })? {
            run.print(&existing);
            return Ok(Exit::Done);
        }
        if !args.background {
            return block_on(run.run());
        }
        match connections::run_detached(&run.named(), &settings.stack)? {
            Ok(connected) => {
                run.print(&connected);
                Ok(Exit::Done)
            }
            Err((exit, said)) => {
                settings.screen().message(&said);
                Ok(exit)
            }
        }
    })
}

/// Returns everything in the stack that can be connected to, named by its section if that is unique.
fn endpoints(session: &Session) -> Vec<(Address, ConnectTarget, &Resource)> {
    let all = || {
        session
            .resources()
            .filter_map(|resource| Some((resource, (kinds::of(resource.kind).endpoint)(resource)?)))
    };
    let named = all().map(|(resource, endpoint)| {
        let section = resource.address.section();
        let alone = all().filter(|(other, _)| other.address.section() == section).count() == 1;
        let address = if alone { Address::new(section) } else { resource.address.clone() };
        (address, endpoint, resource)
    });
    named.collect()
}

fn find_endpoint<'a>(
    session: &'a Session,
    typed: Option<&str>,
) -> Result<(Address, ConnectTarget, &'a Resource), Failure> {
    let endpoints = endpoints(session);
    let names = |endpoints: &[(Address, ConnectTarget, &Resource)]| -> Vec<String> {
        endpoints.iter().map(|(address, ..)| address.to_string()).collect()
    };
    let all = names(&endpoints);
    let found: Vec<_> = match typed {
        Some(typed) => {
            let meant: Vec<&Address> = session.find(typed)?.into_iter().map(|found| &found.address).collect();
            endpoints.into_iter().filter(|(_, _, resource)| meant.contains(&&resource.address)).collect()
        }
        None => {
            // A job's cluster comes and goes: it is meant when nothing else can be.
            let (jobs, stay): (Vec<_>, Vec<_>) =
                endpoints.into_iter().partition(|(address, ..)| address.as_str().starts_with("dask_job."));
            if stay.is_empty() { jobs } else { stay }
        }
    };
    let problem = match (found.as_slice(), typed) {
        ([_], _) => None,
        ([], None) => Some(
            Diagnostic::error(Code::WhichDoor, "this stack has nothing to connect to")
                .help("a `[dask_cluster.NAME]` or a `[notebook.NAME]` can be connected to"),
        ),
        ([], Some(typed)) => {
            let what = format!("`{typed}` cannot be connected to");
            let problem = Diagnostic::error(Code::WhichDoor, what);
            Some(match all.as_slice() {
                [] => problem.help("a `[dask_cluster.NAME]` or a `[notebook.NAME]` can be connected to"),
                all => problem.help(format!("give {}", listed(all.iter().map(String::as_str), "or"))),
            })
        }
        (several, _) => {
            let names = names(several);
            let what = format!("you can connect to: {}", listed(names.iter().map(String::as_str), "and"));
            let first = names.first().map(String::as_str).unwrap_or_default();
            Some(Diagnostic::error(Code::WhichDoor, what).help(format!("name one: connect {first}")))
        }
    };
    match (problem, found.into_iter().next()) {
        (None, Some(one)) => Ok(one),
        (problem, _) => {
            Err(session.failure(problem.unwrap_or_else(|| {
                Diagnostic::error(Code::WhichDoor, "this stack has nothing to connect to")
            })))
        }
    }
}

/// One connection.
struct ConnectRun<'a> {
    settings: &'a Settings,
    args: &'a Args,
    session: &'a Session,
    address: Address,
    endpoint: ConnectTarget,
    resource: &'a Resource,
}

/// The other side of a connection, once it has answered.
struct Reached {
    pod: PodFound,
    target: ForwardTarget,
    port_roles: Vec<PortRole>,
    versions: Option<dask::Versions>,
}

impl ConnectRun<'_> {
    /// Returns the open connection to this address, unless other ports are requested.
    async fn existing(&self) -> Option<Connected> {
        let note = ConnectionNotes::open().ok()?.find(&self.named(), &self.settings.stack)?;
        let wanted = [self.args.port, self.args.dashboard_port];
        if !wanted.iter().flatten().all(|port| note.ports.contains(port)) {
            return None;
        }
        // The note has ports only. The pod is looked up again; where it is not found the ports are all there is to say.
        let found = tokio::time::timeout(ANSWER, self.find_pod()).await.ok().flatten();
        let versions = match (self.endpoint.kind, note.ports.first()) {
            (EndpointKind::Scheduler, Some(port)) => {
                tokio::time::timeout(ANSWER, dask::versions_on_port(*port)).await.ok().flatten()
            }
            _ => None,
        };
        let connected = self.connected(found.as_ref(), self.port_roles(), &note.ports, versions);
        Some(Connected { pid: note.pid, background: note.is_detached(), already: true, ..connected })
    }

    async fn find_pod(&self) -> Option<PodFound> {
        let link = self.session.connect(self.settings).ok()?;
        let found = self.find(&link.api()).await.ok().map(|found| found.pod);
        link.close().await.ok()?;
        found
    }

    /// Returns the target of a connection, by its names alone.
    fn named(&self) -> Connected {
        let (_, target) = self.session.owner_and_target();
        Connected {
            address: self.address.to_string(),
            target: target.to_string(),
            simulated: target.simulated,
            ..Connected::default()
        }
    }

    /// Returns the purpose of each local port, in their order.
    fn port_roles(&self) -> &'static [PortRole] {
        match self.endpoint.kind {
            EndpointKind::Scheduler => &[PortRole::Comm, PortRole::Dashboard],
            EndpointKind::Notebook => &[PortRole::Pages],
        }
    }

    fn print(&self, connected: &Connected) {
        let mut screen = self.settings.screen();
        let width = screen.data_look().width;
        screen.data(&if self.args.json { connected.line() } else { connected.text(width) });
    }

    async fn run(&self) -> Result<Exit, Failure> {
        let link = self.session.connect(self.settings)?;
        let exit = self.hold(&link).await?;
        link.close().await?;
        Ok(exit)
    }

    async fn hold(&self, link: &Link) -> Result<Exit, Failure> {
        let api = link.api();
        if api.is_simulated() {
            return Err(not_in_sandbox(&self.address).into());
        }
        let Reached { pod, target, port_roles, versions } = self.reach(&api).await?;
        let locals = self.bind_ports(&port_roles).await?;
        let ports: Vec<u16> = locals.iter().filter_map(|local| local.port().ok()).collect();
        let mut connected = self.connected(Some(&pod), &port_roles, &ports, versions);
        connected.misfit = local_python::version_mismatch(&connected.versions).await;
        // One that stands already is the one that others find.
        let stack = &self.settings.stack;
        let notes = ConnectionNotes::open().ok().filter(|notes| notes.find(&connected, stack).is_none());
        let _noted = notes.map(|notes| notes.write(&connected, stack, &ports));
        // A terminal that is closed ends what was started in it, but for what goes on in the background.
        let stops =
            if self.args.detached { StopSignals::listen_without_terminal()? } else { StopSignals::listen()? };
        let (hear, event) = mpsc::unbounded_channel();
        if self.args.detached {
            self.settings.screen().data(&connected.line());
        } else {
            self.print(&connected);
        }
        tokio::select! {
            () = forward(api, target, target_pod(pod), locals, hear) => {}
            () = self.report_events(event) => {}
            () = stops.wait() => {}
        }
        self.report(&ConnectEvent::Ended);
        Ok(Exit::Done)
    }

    /// Finds the pod and connects to it once, so that missing permissions and a scheduler that does not listen are reported
    /// before any local port is opened.
    async fn reach(&self, api: &Connection) -> Result<Reached, Failure> {
        let mut reached = self.find(api).await?;
        reached.versions = self.probe_pod(api, &reached.pod).await?;
        Ok(reached)
    }

    /// Finds the pod.
    async fn find(&self, api: &Connection) -> Result<Reached, Failure> {
        let service = self.service(api).await?;
        let found: Vec<(PortRole, PodPort)> = self
            .port_roles()
            .iter()
            .filter_map(|one| Some((*one, endpoint::port(&service, *one)?)))
            .collect();
        let missing = |what: String, help: String| {
            self.session.failure(Diagnostic::error(Code::NoAnswerThere, what).help(help))
        };
        let (Some(query), false) = (endpoint::pods(&service), found.is_empty()) else {
            let what = format!("{} does not select a pod of {}", self.endpoint.service, self.address);
            return Err(missing(
                what,
                "its `selector` or `ports` are missing: inspect it with kubectl".into(),
            ));
        };
        let (port_roles, wanted): (Vec<PortRole>, Vec<PodPort>) = found.into_iter().unzip();
        let list = self.get(api, &query.path).await?;
        let pod = endpoint::choose(&list, &wanted, None).map_err(|why| {
            let help = format!("`{} status` shows the state of the stack", self.settings.program());
            missing(format!("{} cannot be connected to: {why}", self.address), help)
        })?;
        let find: FindPod = Arc::new(move |list: &Value, current: Option<&str>| {
            endpoint::choose(list, &wanted, current).map(target_pod)
        });
        Ok(Reached { pod, target: ForwardTarget { pods: query.path, find }, port_roles, versions: None })
    }

    async fn service(&self, api: &Connection) -> Result<Value, Failure> {
        match api.send(Request::get(Api::Kubernetes, self.endpoint.service.path())).await {
            Ok(service) => Ok(service),
            Err(error) if error.class == ErrorClass::NotFound => {
                let identity = &self.resource.identity;
                let Identity::Object(object) = identity else {
                    return Err(self.session.refused(&error));
                };
                let there = api.send(Request::get(Api::Kubernetes, object.path())).await.is_ok();
                let program = self.settings.program();
                let (what, help) = if error.status.is_none() {
                    (error.message.clone(), format!("`{program} apply` creates it"))
                } else if there && identity != &Identity::Object(self.endpoint.service.clone()) {
                    (
                        format!("{} has no {} yet", self.address, self.endpoint.service),
                        format!("the Dask operator creates it; `{program} status` shows its state"),
                    )
                } else {
                    (
                        format!("{} does not exist", self.address),
                        format!("`{program} plan` shows what is missing, `{program} apply` creates it"),
                    )
                };
                Err(self.session.failure(Diagnostic::error(Code::NoAnswerThere, what).help(help)))
            }
            Err(error) => Err(self.session.refused(&error)),
        }
    }

    async fn get(&self, api: &Connection, path: &str) -> Result<Value, Failure> {
        api.send(Request::get(Api::Kubernetes, path)).await.map_err(|error| self.session.refused(&error))
    }

    /// Opens one connection to the first port; a scheduler is asked for its versions.
    async fn probe_pod(&self, api: &Connection, pod: &PodFound) -> Result<Option<dask::Versions>, Failure> {
        let port = pod.ports.first().copied().unwrap_or_default();
        let mut tunnel = match api.tunnel(&pod.namespace, &pod.name, port).await {
            Ok(tunnel) => tunnel,
            Err(error) => return Err(self.not_forwarded(&error, &pod.namespace)),
        };
        let refused = async {
            match (&mut tunnel.error).await {
                Some(why) => why,
                None => std::future::pending().await,
            }
        };
        // A port that nobody listens on is told within moments; one that is silent is no error.
        let asked = async {
            match self.endpoint.kind {
                EndpointKind::Scheduler => dask::versions(&mut tunnel.stream).await,
                EndpointKind::Notebook => None,
            }
        };
        tokio::select! {
            biased;
            why = refused => {
                let what = format!("{} does not accept connections: {}", self.address, why.trim());
                let help = format!("it may be starting: `{} status` shows its state", self.settings.program());
                Err(self.session.failure(Diagnostic::error(Code::NoConnection, what).help(help)))
            }
            versions = tokio::time::timeout(ANSWER, asked) => Ok(versions.ok().flatten()),
        }
    }

    fn not_forwarded(&self, error: &ApiError, namespace: &str) -> Failure {
        let (_, target) = self.session.owner_and_target();
        match error.class {
            ErrorClass::Denied => {
                let what = format!(
                    "no permission to forward ports of pods in the namespace {namespace}: {}",
                    error.message
                );
                let help = format!(
                    "an administrator of the cluster grants `create` of `pods/portforward`: on GKE with the role \
                     roles/container.developer; `kubectl auth can-i create pods/portforward -n {namespace}` asks"
                );
                self.session.failure(Diagnostic::error(Code::MayNotForward, what).help(help))
            }
            // A sandbox without a real API server behind it answers so, and no real one does.
            _ if target.simulated && error.status.is_some_and(|status| status == 404 || status == 405) => {
                not_in_sandbox(&self.address).into()
            }
            ErrorClass::Unauthenticated => self.session.refused(error),
            _ => {
                let what = format!("{} cannot be connected to: {error}", self.address);
                let help = "the API server could not reach the pod: try again in a moment";
                self.session.failure(Diagnostic::error(Code::NoConnection, what).help(help))
            }
        }
    }

    async fn bind_ports(&self, port_roles: &[PortRole]) -> Result<Vec<LocalPort>, Failure> {
        let mut locals = Vec::with_capacity(port_roles.len());
        for one in port_roles {
            let (asked, option) = match one {
                PortRole::Comm | PortRole::Pages => (self.args.port, "--port"),
                PortRole::Dashboard => (self.args.dashboard_port, "--dashboard-port"),
            };
            let taken = match asked {
                Some(port) => LocalPort::bind(port).await,
                None => LocalPort::bind_or_any(one.usual()).await,
            };
            locals.push(taken.map_err(|error| {
                let port = asked.map_or_else(|| "a free port".to_owned(), |port| format!("port {port}"));
                let what = format!("{port} of this machine cannot be used: {error}");
                let help = format!("without `{option}` a free one is used");
                Diagnostic::error(Code::PortInUse, what).help(help)
            })?);
        }
        Ok(locals)
    }

    fn connected(
        &self,
        pod: Option<&PodFound>,
        port_roles: &[PortRole],
        ports: &[u16],
        versions: Option<dask::Versions>,
    ) -> Connected {
        let port = |one: PortRole| {
            let place = port_roles.iter().position(|other| *other == one)?;
            ports.get(place)
        };
        let client = port(PortRole::Comm).map(|port| format!("tcp://127.0.0.1:{port}"));
        let dask::Versions { python, dask, distributed } = versions.unwrap_or_default();
        let versions = [("python", python), ("dask", dask), ("distributed", distributed)];
        let password = pod.and_then(|pod| {
            let (secret, key) = pod.password.clone()?;
            Some(Password { namespace: pod.namespace.clone(), secret, key })
        });
        Connected {
            pod: pod.map(|pod| format!("{}/{}", pod.namespace, pod.name)).unwrap_or_default(),
            python: client.as_ref().map(|client| format!("Client({})", python_string(client))),
            client,
            dashboard: port(PortRole::Dashboard).map(|port| format!("http://127.0.0.1:{port}/status")),
            notebook: port(PortRole::Pages).map(|port| format!("http://127.0.0.1:{port}/lab")),
            password,
            image: pod.map(|pod| pod.image.clone()).unwrap_or_default(),
            versions: versions
                .into_iter()
                .filter_map(|(name, version)| Some((name.to_owned(), version?)))
                .collect(),
            pid: std::process::id(),
            background: self.args.detached,
            ..self.named()
        }
    }

    /// Reports events; a failure that repeats is reported once.
    async fn report_events(&self, mut events: mpsc::UnboundedReceiver<ForwardEvent>) {
        let mut last = None;
        while let Some(event) = events.recv().await {
            let event = match event {
                ForwardEvent::PodGone(why) => ConnectEvent::PodGone(why),
                ForwardEvent::PodFound(TargetPod { namespace, pod, .. }) => {
                    ConnectEvent::PodFound(format!("{namespace}/{pod}"))
                }
                ForwardEvent::ApiUnreachable(why) => ConnectEvent::ApiUnreachable(why),
                ForwardEvent::ApiReachable => ConnectEvent::ApiReachable,
                ForwardEvent::ConnectionFailed(why) => ConnectEvent::ConnectionFailed(why),
            };
            if last.as_ref() != Some(&event) {
                self.report(&event);
            }
            last = Some(event);
        }
        std::future::pending::<()>().await;
    }

    fn report(&self, event: &ConnectEvent) {
        let mut screen = self.settings.screen();
        match (self.args.json, self.args.detached) {
            (true, false) => screen.data(&event.line()),
            (false, false) => screen.message(&event.text()),
            // Nobody reads its stdout any more; stderr is its log.
            (_, true) => screen.message(&format!("{} {}", jiff::Timestamp::now(), event.text())),
        }
    }
}

/// The timeout for a scheduler to report its versions.
const ANSWER: Duration = Duration::from_secs(5);

fn target_pod(pod: PodFound) -> TargetPod {
    let PodFound { namespace, name, uid, image: _, ports, password: _ } = pod;
    TargetPod { namespace, pod: name, uid, ports }
}

fn not_in_sandbox(address: &Address) -> Diagnostic {
    let what = format!("SIMULATED: this sandbox runs no programs, so {address} cannot be connected to");
    Diagnostic::error(Code::NothingReal, what).help(
        "`dask-infra sandbox serve --kubernetes KUBECONFIG` uses a real API server; without `--sandbox`, \
         connect uses the cloud",
    )
}
