//! `import`: a stack file from a cluster that exists.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use crate::cli::access::{self, MessageDetail};
use crate::cli::commands::import_hosts::{self, HostArgs};
use crate::cli::commands::init::{create_all, folder, id, schema_in};
use crate::cli::commands::plan::parallelism;
use crate::cli::session::{Link, block_on};
use crate::cli::settings::{Failure, Format, PROJECT_VARIABLE, Settings};
use crate::cli::{Exit, gcloud};
use apply::ApplyOptions;
use import::{Found, Imported, Place};
use kinds::dask;
use live::survey::{self, Survey, SurveyError};
use live::{ApiError, ErrorClass, KubeconfigAccess, LiveApi};
use model::diag::{self, Code, Diagnostic};
use model::resource::{ClusterName, Endpoint, Gvk, Owner, Target};
use model::schema::DASK_GROUP;
use model::source::Sources;
use stack::ready::SCHEMA;

/// Shown below the options.
pub const EXAMPLES: &str = "Examples:\n  \
    dask-infra import --project my-project --cluster rapids-gpu      writes stack.toml here\n  \
    dask-infra --stack lab import --cluster rapids-gpu               writes lab/stack.toml\n  \
    dask-infra import --cluster rapids-gpu --endpoint dns            reads it by its DNS endpoint\n  \
    dask-infra import --context lab --out -                          prints it\n\
    dask-infra import --local                                        what a stack left on this machine\n\
    dask-infra import --ssh node1 --ssh 'gpu[1-4]'                   the same on hosts by SSH\n\
    dask-infra import --slurm --login login1                         the same on a login node of SLURM\n\
    \n\
    In a cluster every section has `manage = false`: the stack only reads and compares, and the next plan is empty. `dask-infra adopt ADDRESS` adopts a resource.\n\
    On hosts the stack gets the name and the id of the one that started what is there, so it is its own again, also when the record is lost. Schedulers \
    and workers that somebody else started are listed, with what stops them.\n\
    Writes stack.toml, never overwrites an existing file, and changes nothing in the cluster.";

/// Options of `import`.
#[derive(clap::Args, Debug)]
pub struct Args {
    /// The project of the GKE cluster [default: gcloud's]
    #[arg(long, value_name = "ID")]
    project: Option<String>,
    /// Its zone or region; needed if two clusters have this name
    #[arg(long, visible_aliases = ["zone", "region"], value_name = "PLACE")]
    location: Option<String>,
    /// The GKE cluster; not needed if the project has only one
    #[arg(long, value_name = "NAME")]
    cluster: Option<String>,
    /// How the control plane is reached, now and by the stack: its `[cluster] endpoint`
    #[arg(long, value_name = "ENDPOINT", value_enum, default_value_t)]
    endpoint: EndpointChoice,
    /// Read the cluster of a kubeconfig's context instead
    #[arg(long, value_name = "NAME", conflicts_with_all = ["project", "location", "cluster", "endpoint"])]
    context: Option<String>,
    /// The kubeconfig [default: kubectl's]
    #[arg(long, value_name = "FILE", conflicts_with_all = ["project", "location", "cluster", "endpoint"])]
    kubeconfig: Option<PathBuf>,
    /// Read Dask's objects of this namespace only; may be repeated
    #[arg(long, value_name = "NAME")]
    namespace: Vec<String>,
    #[command(flatten)]
    hosts: HostArgs,
    /// The stack's name [default: the cluster's or context's; on hosts that of the only stack there]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The file to write; `-` prints it
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,
    /// Requests at a time
    #[arg(long, value_name = "N", default_value_t = ApplyOptions::PARALLELISM, value_parser = parallelism)]
    parallelism: usize,
}

/// The values of `[cluster] endpoint`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum EndpointChoice {
    #[default]
    Auto,
    Public,
    Private,
    Dns,
}

impl From<EndpointChoice> for Endpoint {
    fn from(way: EndpointChoice) -> Self {
        match way {
            EndpointChoice::Auto => Self::Auto,
            EndpointChoice::Public => Self::Public,
            EndpointChoice::Private => Self::Private,
            EndpointChoice::Dns => Self::Dns,
        }
    }
}

/// Writes a stack file that says what is live.
pub fn import(settings: &Settings, args: &Args) -> Exit {
    settings.show(Format::Text, |reporter| {
        let file = file(settings, args)?;
        let (found, imported) = block_on(async {
            if let Some(hosts) = args.hosts.chosen() {
                let (found, owner) =
                    import_hosts::read(settings, &hosts, args.name.as_deref(), args.parallelism).await?;
                let imported = import::import(&found, &owner);
                return Ok((found, imported));
            }
            let (place, link) = connect(settings, args, file.as_deref()).await?;
            let api = link.api();
            let found = read(&*api, place, args).await?;
            link.close().await?;
            let owner = Owner { stack: name(args, &found.place), id: id() };
            let imported = import::import(&found, &owner);
            Ok((found, imported))
        })?;
        if let Some(path) = &file {
            let text = format!("#:schema {SCHEMA}\n{}", imported.text);
            let beside = path.parent().unwrap_or(Path::new(""));
            let name = path.file_name().map(PathBuf::from).unwrap_or_default();
            let files = imported.files.iter().map(|file| (file.path(), file.text().to_owned()));
            create_all(beside, &[vec![(name, text)], files.collect(), schema_in(beside)].concat())?;
        }
        let left = left_out(&imported, file.as_deref());
        reporter.diagnostics(&left, &Sources::default());
        Ok(match &file {
            Some(path) => summary(settings, path, &found, &imported),
            None => imported.text,
        })
    })
}

/// Returns the file to write; `None` for stdout. Refuses an existing file before anything is read.
fn file(settings: &Settings, args: &Args) -> Result<Option<PathBuf>, Failure> {
    let path = match &args.out {
        Some(path) if path.as_os_str() == "-" => return Ok(None),
        Some(path) => path.clone(),
        None => folder(&settings.stack)?.join("stack.toml"),
    };
    if path.exists() {
        let what = format!("{} already exists; nothing was written", path.display());
        let help = "name another file with `--out FILE`, or print it with `--out -`";
        return Err(Diagnostic::error(Code::AlreadyThere, what).help(help).into());
    }
    Ok(Some(path))
}

/// Returns the place to import from, with a connection to it.
async fn connect(settings: &Settings, args: &Args, file: Option<&Path>) -> Result<(Place, Link), Failure> {
    let simulated = settings.access.is_simulated();
    if args.context.is_some() || args.kubeconfig.is_some() {
        let access = KubeconfigAccess { path: args.kubeconfig.clone(), context: args.context.clone() };
        let context = access.clone().pinned().context;
        let path = args.kubeconfig.as_ref().map(|given| written(given, file));
        let target = Target {
            context: context.clone(),
            kubeconfig: args.kubeconfig.as_ref().map(|path| path.display().to_string()),
            simulated,
            ..Target::default()
        };
        let link = Link::open(settings, &target, Some(access))?;
        return Ok((Place::Kubeconfig { path, context }, link));
    }
    let project = project(settings, args)?;
    let cluster = ClusterName {
        project: project.clone(),
        location: args.location.clone().unwrap_or_else(|| "-".to_owned()),
        cluster: args.cluster.clone().unwrap_or_default(),
    };
    let target = |name: &ClusterName| Target {
        gke: Some(name.clone()),
        endpoint: args.endpoint.into(),
        simulated,
        ..Target::default()
    };
    if args.location.is_some() && args.cluster.is_some() {
        let link = Link::open(settings, &target(&cluster), None)?;
        return Ok((Place::Gke(cluster), link));
    }
    let link = Link::open(settings, &target(&cluster), None)?;
    let all = survey::clusters(&*link.api(), &project).await;
    let all = all.map_err(|error| diagnose(&error, &target(&cluster)))?;
    link.close().await?;
    let one = the_one(&project, all, args)?;
    let link = Link::open(settings, &target(&one), None)?;
    Ok((Place::Gke(one), link))
}

/// Returns the path of a kubeconfig relative to the stack file's folder.
fn written(kubeconfig: &Path, file: Option<&Path>) -> String {
    let beside = file.and_then(Path::parent).is_none_or(|folder| folder.as_os_str().is_empty());
    let path = match beside {
        true => kubeconfig.to_owned(),
        false => std::path::absolute(kubeconfig).unwrap_or_else(|_| kubeconfig.to_owned()),
    };
    path.display().to_string()
}

fn project(settings: &Settings, args: &Args) -> Result<String, Failure> {
    let gcloud = || {
        let read = gcloud::read(&live::environment::env_var);
        read.project.map(|project| project.value)
    };
    let known =
        args.project.clone().or_else(|| settings.environment(PROJECT_VARIABLE).filter(|id| !id.is_empty()));
    known.or_else(gcloud).ok_or_else(|| {
        let what = "no project given, and gcloud has none configured";
        Diagnostic::error(Code::Usage, what).help("give it: `--project ID`").into()
    })
}

/// Returns the selected cluster of the project.
fn the_one(project: &str, all: Vec<ClusterName>, args: &Args) -> Result<ClusterName, Failure> {
    let fits = |name: &&ClusterName| {
        args.cluster.as_ref().is_none_or(|cluster| *cluster == name.cluster)
            && args.location.as_ref().is_none_or(|location| *location == name.location)
    };
    let found: Vec<&ClusterName> = all.iter().filter(fits).collect();
    if let [one] = found.as_slice() {
        return Ok((*one).clone());
    }
    let what = match (found.is_empty(), &args.cluster) {
        (true, Some(cluster)) => format!("project {project} has no GKE cluster {cluster}"),
        (true, None) => format!("project {project} has no GKE cluster there"),
        (false, Some(cluster)) => {
            format!("project {project} has {} GKE clusters named {cluster}", found.len())
        }
        (false, None) => format!("project {project} has {} GKE clusters", found.len()),
    };
    let problem = Diagnostic::error(Code::NoSuchCluster, what);
    let listed = if found.is_empty() { all.iter().collect() } else { found };
    let near = args
        .cluster
        .as_ref()
        .and_then(|name| diag::nearest(name, all.iter().map(|one| one.cluster.as_str())));
    Err(match (near.filter(|near| args.cluster.as_deref() != Some(*near)), listed.first()) {
        (Some(near), _) => problem.help(format!("did you mean `--cluster {near}`?")),
        (None, Some(_)) => problem.help(format!(
            "choose one: {}",
            listed.iter().map(|name| format!("`{}`", flags(name))).collect::<Vec<_>>().join(", ")
        )),
        (None, None) => problem.help("`gcloud projects list` lists the projects you have access to"),
    }
    .into())
}

fn flags(name: &ClusterName) -> String {
    format!("--location {} --cluster {}", name.location, name.cluster)
}

fn diagnose(error: &ApiError, target: &Target) -> Failure {
    access::diagnose(error, target, &Sources::default(), MessageDetail::Brief).into()
}

/// Returns the kinds to list: Dask's in the selected namespaces, all others in every namespace.
fn kinds(namespaces: &[String]) -> Vec<(Gvk, Option<String>)> {
    let gvk = kinds::kubernetes::object::gvk;
    let places: Vec<Option<String>> = match namespaces {
        [] => vec![None],
        some => some.iter().cloned().map(Some).collect(),
    };
    let dask = dask::api::needing_operator();
    let mut all: Vec<(Gvk, Option<String>)> =
        dask.flat_map(|kind| places.iter().map(move |place| (kind.clone(), place.clone()))).collect();
    all.push((gvk("apps", "v1", "Deployment", "deployments"), None));
    all.push((gvk("apps", "v1", "DaemonSet", "daemonsets"), Some("kube-system".to_owned())));
    all.push((gvk("", "v1", "Namespace", "namespaces"), None));
    all.push((
        gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions"),
        None,
    ));
    all
}

async fn read(api: &dyn LiveApi, place: Place, args: &Args) -> Result<Found, Failure> {
    let (cluster, context) = match &place {
        Place::Gke(name) => (Some(name), None),
        Place::Kubeconfig { context, .. } => (None, context.clone()),
        Place::Hosts(_) => (None, None),
    };
    let kubeconfig = args.kubeconfig.as_ref().map(|path| path.display().to_string());
    let endpoint = args.endpoint.into();
    let target = Target { gke: cluster.cloned(), endpoint, context, kubeconfig, ..Target::default() };
    let surveyed = survey::survey(api, cluster, &kinds(&args.namespace), args.parallelism).await;
    let Survey { cluster: live, pools, sizes, objects, unlisted } = match surveyed {
        Ok(survey) => survey,
        Err(SurveyError::Unreadable(error)) => return Err(diagnose(&error, &target)),
        Err(problem) => return Err(unreadable_cluster(&problem, api, cluster, args).await),
    };
    if let Some((kind, error)) = unlisted.iter().find(|(kind, _)| kind.group == DASK_GROUP) {
        let what = format!("objects of the kind {} cannot be listed: {error}", kind.kind);
        let code = if error.class == ErrorClass::Denied { Code::Denied } else { Code::Unreadable };
        let help = "`--namespace NAME` reads single namespaces that you have access to";
        return Err(Diagnostic::error(code, what).help(help).into());
    }
    let unread =
        unlisted.iter().map(|(kind, error)| format!("objects of the kind {}: {error}", kind.kind)).collect();
    Ok(Found { place, endpoint, cluster: live, pools, sizes, objects, unmanaged: Vec::new(), unread })
}

async fn unreadable_cluster(
    problem: &SurveyError,
    api: &dyn LiveApi,
    name: Option<&ClusterName>,
    args: &Args,
) -> Failure {
    let Some(name) = name else { return Diagnostic::error(Code::Unreadable, "nothing could be read").into() };
    if let SurveyError::NotRunning(status) = problem {
        let what = format!("the GKE cluster {} cannot be read: its status is {status}", name.cluster);
        return Diagnostic::error(Code::NoSuchCluster, what).help("import it when it is running").into();
    }
    // Without the right to list them there are none to name.
    let all = survey::clusters(api, &name.project).await.unwrap_or_default();
    match the_one(&name.project, all, args) {
        Err(failure) => failure,
        Ok(_) => {
            Diagnostic::error(Code::NoSuchCluster, format!("there is no GKE cluster {}", name.cluster)).into()
        }
    }
}

/// Returns the stack's name: lower-case letters, digits and `-`, at most 40, a letter first.
fn name(args: &Args, place: &Place) -> String {
    if let Some(name) = &args.name {
        return name.clone();
    }
    let from = match place {
        Place::Gke(name) => name.cluster.as_str(),
        Place::Kubeconfig { context, .. } => context.as_deref().unwrap_or("imported"),
        Place::Hosts(_) => "imported",
    };
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let name: String = from.chars().map(plain).collect();
    let name = name.trim_start_matches(|c: char| !c.is_ascii_lowercase());
    let name: String = name.chars().take(40).collect();
    let name = name.trim_end_matches('-');
    if name.is_empty() { "imported".to_owned() } else { name.to_owned() }
}

fn left_out(imported: &Imported, file: Option<&Path>) -> Vec<Diagnostic> {
    if imported.left_out.is_empty() {
        return Vec::new();
    }
    let mut what = "the stack does not describe everything that is live:".to_owned();
    for line in &imported.left_out {
        let _ = write!(what, "\n- {line}");
    }
    let place = file.map_or_else(|| "its text".to_owned(), |path| path.display().to_string());
    vec![Diagnostic::warning(Code::LeftOut, what).help(format!("the comments in {place} list the same"))]
}

fn summary(settings: &Settings, path: &Path, found: &Found, imported: &Imported) -> String {
    let mut text = format!("Wrote {}\n", path.display());
    for section in &imported.sections {
        let _ = writeln!(text, "  {section}");
    }
    for file in &imported.files {
        let _ = writeln!(text, "Wrote {}", path.with_file_name(file.path()).display());
    }
    let on_hosts = matches!(found.place, Place::Hosts(_));
    if on_hosts && imported.sections.is_empty() {
        text.push_str("  No stack has anything there.\n");
    } else if !on_hosts && !found.objects.keys().any(|object| object.gvk.group == DASK_GROUP) {
        text.push_str("  The cluster has no Dask resources.\n");
    }
    let program = match path.file_name().is_some_and(|name| name == "stack.toml") {
        true => settings.program().to_owned(),
        false => settings.program_with(path),
    };
    let mut next = vec![
        (format!("{program} validate"), "checks the file"),
        (format!("{program} plan"), "compares it with what is live"),
    ];
    next.extend(
        imported
            .sections
            .last()
            .filter(|_| !on_hosts)
            .map(|section| (format!("{program} adopt {section}"), "adopts one resource")),
    );
    let column = next.iter().map(|(command, _)| command.chars().count()).max().unwrap_or_default();
    text.push_str("\nNext:\n");
    for (command, what) in next {
        let _ = writeln!(text, "  {command:column$}  {what}");
    }
    text
}
