//! `sandbox …`: the embedded GKE and Kubernetes for other programs.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::cli::Exit;
use crate::cli::sandbox_folder::{TOKEN_FILE, served_url, token_in};
use crate::cli::session::block_on;
use crate::cli::settings::{Failure, Format, PROJECT_VARIABLE, SANDBOX_PROJECT, Settings, quoted};
use crate::cli::signals::StopSignals;
use live::gke::{Gke, GkeAccess};
use live::{ApiError, Request};
use model::diag::{Code, Diagnostic};
use model::resource::Api;
use sandbox::faults::file as faults;
use sandbox::serve::Server;
use sandbox::{Options, Scale, Stockout, TOKEN, has_other_owner, write_private};

/// Shown below the options.
pub const EXAMPLES: &str = "Examples:\n  \
    dask-infra sandbox serve --dir box &     prints a JSON line when it is ready\n  \
    eval \"$(dask-infra sandbox env --dir box)\"\n  \
    gcloud container clusters list\n  \
    dask-infra sandbox serve --dir box --stock-out us-central1-c:nvidia-tesla-t4\n\
    \n\
    A file `faults.toml` in the folder, or --faults FILE, lists the faults to simulate: docs/sandbox.md, Faults.";

/// Commands of `sandbox`.
#[derive(clap::Subcommand, Debug)]
pub enum Command {
    /// Serve the sandbox on loopback until SIGTERM or Ctrl-C
    Serve(ServeArgs),
    /// Print the shell lines that point gcloud, kubectl and dask-infra at a served sandbox
    Env(DirArgs),
    /// Delete the sandbox's state; refused while it is in use
    Reset(DirArgs),
    /// Print a kubeconfig for a cluster of a served sandbox
    Kubeconfig(KubeconfigArgs),
}

/// Which sandbox.
#[derive(clap::Args, Debug)]
pub struct DirArgs {
    /// The sandbox folder [default: that of --sandbox]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Options of `sandbox serve`.
#[derive(clap::Args, Debug)]
pub struct ServeArgs {
    #[command(flatten)]
    place: DirArgs,
    /// The port of GKE; 0 for any free port
    #[arg(long, value_name = "N", default_value_t = 0)]
    gke_port: u16,
    /// Simulated seconds per second [default: 60]
    #[arg(long, value_name = "X", value_parser = scale)]
    time_scale: Option<f64>,
    /// Faults to simulate [default: faults.toml in the folder, if it exists]
    #[arg(long, value_name = "FILE")]
    faults: Option<PathBuf>,
    /// No machines in this zone, or none with this GPU, while serving. May be repeated
    #[arg(long = "stock-out", value_name = "ZONE[:GPU]", value_parser = faults::stockout_flag)]
    stock_out: Vec<Stockout>,
    /// The limit of a GPU quota in every region, as NVIDIA_T4_GPUS=1. May be repeated
    #[arg(long, value_name = "METRIC=N", value_parser = faults::quota_flag)]
    quota: Vec<(String, u32)>,
    /// Use the API server of this kubeconfig as the cluster's. It must listen on loopback: anyone who can reach the
    /// sandbox and knows the token in its folder gets its permissions
    #[arg(long, value_name = "KUBECONFIG")]
    kubernetes: Option<PathBuf>,
    /// Do not simulate the Dask operator; a real one runs beside the sandbox
    #[arg(long, conflicts_with = "kubernetes")]
    real_operator: bool,
}

/// Options of `sandbox kubeconfig`.
#[derive(clap::Args, Debug)]
pub struct KubeconfigArgs {
    /// The cluster's name, or PROJECT/LOCATION/NAME
    cluster: String,
    #[command(flatten)]
    place: DirArgs,
}

fn scale(text: &str) -> Result<f64, String> {
    let number: Option<f64> = text.parse().ok();
    number.filter(|scale| scale.is_finite() && *scale > 0.0).ok_or_else(|| "give a number above 0".to_owned())
}

/// Runs the command.
pub fn run(settings: &Settings, command: &Command) -> Exit {
    match command {
        Command::Serve(args) => serve(settings, args),
        Command::Env(args) => print(settings, || env_lines(settings, args.dir(settings))),
        Command::Reset(args) => print(settings, || reset(args.dir(settings))),
        Command::Kubeconfig(args) => print(settings, || block_on(kubeconfig(settings, args))),
    }
}

impl DirArgs {
    fn dir<'a>(&'a self, settings: &'a Settings) -> &'a Path {
        self.dir.as_deref().unwrap_or_else(|| settings.sandbox_dir())
    }
}

fn print(settings: &Settings, text: impl FnOnce() -> Result<String, Failure>) -> Exit {
    settings.show(Format::Text, |_| text())
}

fn serve(settings: &Settings, args: &ServeArgs) -> Exit {
    let ServeArgs { place, gke_port, time_scale, faults, stock_out, quota, kubernetes, real_operator } = args;
    let scale = time_scale.map_or_else(Scale::default, |time_scale| Scale { time_scale });
    let folder = place.dir(settings);
    let dir = Some(folder.to_owned());
    let (faults, stockouts, kubernetes) = (faults.clone(), stock_out.clone(), kubernetes.clone());
    let mut options = Options { dir, scale, stockouts, faults, kubernetes, ..Options::default() };
    options.scripts.imitate_operator = !real_operator;
    options.gke_quota.limits.extend(quota.iter().cloned());
    settings.report(Format::Text, |_| {
        block_on(async {
            // First, so that a signal between the line and the loop ends it as it should.
            let stops = StopSignals::listen()?;
            let server = Server::bind(options, *gke_port).await?;
            without_clients(folder)?;
            settings.print(&format!("{}\n", server.announcement()));
            server.run(stops.wait()).await?;
            Ok(Exit::Done)
        })
    })
}

/// Deletes the client files that `sandbox env` created in the folder. They hold the ports of one server, and files that came with
/// a repository could name programs that kubectl and gcloud would run.
fn without_clients(dir: &Path) -> Result<(), Diagnostic> {
    let (kubeconfig, gcloud) = (dir.join("kubeconfig"), dir.join("gcloud"));
    delete(&kubeconfig, |path| fs::remove_file(path))?;
    match fs::symlink_metadata(&gcloud) {
        Err(_) => Ok(()),
        Ok(found) if !found.is_dir() => delete(&gcloud, |path| fs::remove_file(path)),
        Ok(_) if is_made_for_a_sandbox(&gcloud) => delete(&gcloud, |path| fs::remove_dir_all(path)),
        Ok(_) => {
            let what = format!(
                "cannot serve with {}: it was not created for a sandbox, and `sandbox env` would make gcloud \
                 use it",
                gcloud.display()
            );
            Err(Diagnostic::error(Code::Sandbox, what).help("move it away, then serve again"))
        }
    }
}

/// Returns true if `sandbox env` created this gcloud folder.
fn is_made_for_a_sandbox(gcloud: &Path) -> bool {
    gcloud.join(OURS).is_file()
}

/// Deletes a file or folder that may not exist.
fn delete(path: &Path, how: impl Fn(&Path) -> std::io::Result<()>) -> Result<(), Diagnostic> {
    match how(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            let what = format!("cannot delete {}: {error}", path.display());
            Err(Diagnostic::error(Code::Sandbox, what))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

/// States of a folder for sandboxes.
pub enum State {
    /// No sandbox.
    Empty,
    /// A sandbox that no process uses.
    Idle,
    /// A sandbox that another process uses.
    InUse,
    /// A sandbox that another process serves at this URL.
    Served(String),
}

/// Returns the state of a folder for sandboxes.
pub fn state(dir: &Path) -> State {
    match lock(dir) {
        None => State::Empty,
        Some(Some(_)) => State::Idle,
        Some(None) => served_url(dir).map_or(State::InUse, State::Served),
    }
}

/// Returns the URL of a served sandbox, or an error if it is not served.
fn must_be_served(dir: &Path) -> Result<String, Failure> {
    let in_use = lock(dir).is_none_or(|lock| lock.is_none());
    served_url(dir).filter(|_| in_use).ok_or_else(|| {
        let what = format!("the sandbox in {} is not being served", dir.display());
        let help = format!("serve it: dask-infra sandbox serve --dir {}", quoted(&dir.display().to_string()));
        Diagnostic::error(Code::Sandbox, what).help(help).into()
    })
}

/// Tries to lock a folder: `None` if there is no lock file, `Some(None)` if another process holds the lock.
fn lock(dir: &Path) -> Option<Option<File>> {
    let file = File::options().write(true).open(dir.join("lock")).ok()?;
    match file.try_lock() {
        Ok(()) => Some(Some(file)),
        Err(_) => Some(None),
    }
}

/// Returns the shell lines that point gcloud, kubectl and dask-infra at the served sandbox.
fn env_lines(settings: &Settings, dir: &Path) -> Result<String, Failure> {
    let gke = must_be_served(dir)?;
    let failed = |what: &str, error: std::io::Error| {
        Failure::from(Diagnostic::error(Code::Sandbox, format!("cannot {what} {}: {error}", dir.display())))
    };
    let dir = dir.canonicalize().map_err(|error| failed("find", error))?;
    // gke-gcloud-auth-plugin refuses to work without credentials, and takes any token from a file.
    let token = dir.join(TOKEN);
    // The one that the sandbox asks for stays; a link is replaced, not followed.
    if !fs::symlink_metadata(&token).is_ok_and(|found| found.is_file()) {
        write_private(&token, "sandbox\n")?;
    }
    let gcloud = dir.join("gcloud");
    if fs::create_dir(&gcloud).is_ok() {
        write_private(&gcloud.join(OURS), "")?;
    }
    let path = |path: &Path| path.display().to_string();
    let project = settings.environment(PROJECT_VARIABLE).filter(|project| !project.is_empty());
    let project = project.unwrap_or_else(|| SANDBOX_PROJECT.to_owned());
    let lines = [
        ("CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE", format!("{gke}/compute/v1/")),
        ("CLOUDSDK_API_ENDPOINT_OVERRIDES_CONTAINER", format!("{gke}/")),
        ("CLOUDSDK_API_ENDPOINT_OVERRIDES_SERVICEUSAGE", format!("{gke}/")),
        ("CLOUDSDK_AUTH_ACCESS_TOKEN_FILE", path(&token)),
        ("CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK", "true".to_owned()),
        ("CLOUDSDK_CONFIG", path(&gcloud)),
        ("CLOUDSDK_CORE_DISABLE_PROMPTS", "1".to_owned()),
        ("CLOUDSDK_CORE_DISABLE_USAGE_REPORTING", "true".to_owned()),
        ("CLOUDSDK_CORE_PROJECT", project.clone()),
        ("DASK_INFRA_GKE_ENDPOINT", gke.clone()),
        (TOKEN_FILE, path(&token)),
        (PROJECT_VARIABLE, project),
        ("KUBECONFIG", path(&dir.join("kubeconfig"))),
    ];
    Ok(lines.map(|(name, value)| format!("export {name}={}\n", quoted(&value))).concat())
}

/// The files of a sandbox, in the order in which a reset deletes them. Its state is last, so that an interrupted reset can be repeated.
/// No other file is deleted.
const KEPT: [&str; 7] =
    ["ca.pem", "ca.key", "serve.json", "kubeconfig", TOKEN, "sandbox.redb.new", "sandbox.redb"];

/// The marker file in a `gcloud` folder that was created for a sandbox. Without it, the folder is a user's configuration.
const OURS: &str = ".made-for-a-dask-infra-sandbox";

/// Returns why a folder is not deleted as a sandbox: it is a link, or has no state of a sandbox.
fn is_no_sandbox(dir: &Path) -> Option<String> {
    let is_file = |name: &str| fs::symlink_metadata(dir.join(name)).is_ok_and(|found| found.is_file());
    if fs::symlink_metadata(dir).is_ok_and(|found| found.is_symlink()) {
        return Some(format!("{} is a link", dir.display()));
    }
    if has_other_owner(dir) {
        return Some(format!("{} belongs to another user", dir.display()));
    }
    let state = ["sandbox.redb", "sandbox.redb.new"].into_iter().any(is_file);
    (!state && is_file("lock")).then(|| format!("{} has no sandbox.redb", dir.display()))
}

fn reset(dir: &Path) -> Result<String, Failure> {
    let shown = dir.display();
    if let Some(why) = is_no_sandbox(dir) {
        let what = format!("not a sandbox folder; nothing was deleted: {why}");
        let help = "give the sandbox folder with --dir; delete the remains of a sandbox by hand";
        return Err(Diagnostic::error(Code::Sandbox, what).help(help).into());
    }
    let Some(lock) = lock(dir) else {
        return Ok(format!("Nothing to delete: there is no sandbox in {shown}.\n"));
    };
    if lock.is_none() {
        let what = format!("the sandbox in {shown} is in use; nothing was deleted");
        return Err(Diagnostic::error(Code::SandboxInUse, what)
            .help("stop the process that uses it first")
            .into());
    }
    for name in KEPT {
        delete(&dir.join(name), |path| fs::remove_file(path))?;
    }
    // `sandbox env` makes gcloud write its configuration there.
    let gcloud = dir.join("gcloud");
    if is_made_for_a_sandbox(&gcloud) {
        delete(&gcloud, |path| fs::remove_dir_all(path))?;
    }
    // Last, and still held: whoever comes meanwhile makes and locks a new one.
    delete(&dir.join("lock"), |path| fs::remove_file(path))?;
    drop(lock);
    // Stays when the user keeps anything in it, such as faults.toml.
    let _ = fs::remove_dir(dir);
    Ok(format!("Deleted the sandbox in {shown}.\n"))
}

/// Returns a kubeconfig as JSON, which is also YAML that every client reads.
async fn kubeconfig(settings: &Settings, args: &KubeconfigArgs) -> Result<String, Failure> {
    let url = must_be_served(args.place.dir(settings))?;
    let access = GkeAccess::loopback(&url).map_err(|why| Diagnostic::error(Code::Sandbox, why))?;
    let token = token_in(args.place.dir(settings));
    let access = access.with_token(token.as_deref());
    let client = Gke::new(access, std::sync::Arc::default());
    let failed = |error: ApiError| Failure::from(Diagnostic::error(Code::Sandbox, error.to_string()));
    let (project, location, name) = match args.cluster.split('/').collect::<Vec<_>>().as_slice() {
        [project, location, name] => ((*project).to_owned(), (*location).to_owned(), (*name).to_owned()),
        _ => {
            let project = settings.environment(PROJECT_VARIABLE).filter(|project| !project.is_empty());
            (project.unwrap_or_else(|| SANDBOX_PROJECT.to_owned()), "-".to_owned(), args.cluster.clone())
        }
    };
    let path = format!("/v1/projects/{project}/locations/{location}/clusters");
    let list = client.send(&Request::get(Api::Gke, path)).await.map_err(failed)?;
    let clusters = list["clusters"].as_array().cloned().unwrap_or_default();
    let found: Vec<&Value> = clusters.iter().filter(|cluster| cluster["name"] == name.as_str()).collect();
    let [cluster] = found.as_slice() else {
        let many = match found.len() {
            0 => "no cluster".to_owned(),
            many => format!("{many} clusters"),
        };
        let what = format!("project {project} of the sandbox has {many} named {name}");
        let names: Vec<&str> = clusters.iter().filter_map(|cluster| cluster["name"].as_str()).collect();
        let help = match names.as_slice() {
            [] => format!(
                "it has no clusters: if the stack uses another project, set {PROJECT_VARIABLE} to it or give \
                 PROJECT/LOCATION/NAME; otherwise `dask-infra --sandbox apply` creates one"
            ),
            names => format!("it has {}; PROJECT/LOCATION/NAME names one", names.join(", ")),
        };
        return Err(Diagnostic::error(Code::Sandbox, what).help(help).into());
    };
    let Some(text) = kubeconfig_of(cluster, &project, token.as_deref().unwrap_or("sandbox")) else {
        let what = format!("{name} has no endpoint yet");
        return Err(Diagnostic::error(Code::Sandbox, what).help("wait until it is created").into());
    };
    Ok(text)
}

fn kubeconfig_of(cluster: &Value, project: &str, token: &str) -> Option<String> {
    let endpoint = cluster["endpoint"].as_str().filter(|endpoint| !endpoint.is_empty())?;
    let authority = cluster.pointer("/masterAuth/clusterCaCertificate")?.as_str()?;
    let (location, name) = (cluster["location"].as_str()?, cluster["name"].as_str()?);
    // The name that gcloud gives a context.
    let context = format!("gke_{project}_{location}_{name}");
    let config = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": context, "cluster": {
            "certificate-authority-data": authority, "server": format!("https://{endpoint}"),
        }}],
        "users": [{ "name": context, "user": { "token": token } }],
        "contexts": [{ "name": context, "context": { "cluster": context, "user": context } }],
        "current-context": context,
    });
    Some(format!("{config:#}\n"))
}
