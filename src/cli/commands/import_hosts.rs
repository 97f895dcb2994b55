//! `import` from hosts: resources of a dask-infra stack, and other Dask processes.

use futures::future::join_all;
use serde_json::Value;

use crate::cli::access::{self, MessageDetail};
use crate::cli::commands::init::id;
use crate::cli::session::Link;
use crate::cli::settings::{Failure, Settings};
use import::{Found, Hosts, Place, hosts};
use kinds::hosts::api;
use kinds::kubernetes::object::gvk;
use kinds::short_forms::host_names;
use live::retry::RetryPolicy;
use live::survey::{self, Survey, SurveyError};
use live::{LiveApi, record};
use model::diag::{self, Code, Diagnostic};
use model::record::{NAMESPACE, Record};
use model::resource::{Endpoint, Gvk, Host, ObjectId, Owner, Target};
use model::source::Sources;
use stack::{SshHost, Stack};

/// Options that name hosts.
#[derive(clap::Args, Debug)]
pub struct HostArgs {
    /// Read what runs on this machine instead
    #[arg(long, conflicts_with_all = ["project", "location", "cluster", "endpoint", "context", "kubeconfig", "namespace", "ssh", "slurm"])]
    local: bool,
    /// Read what runs on hosts at the other end of `ssh` instead: `NAME`, `gpu[1-4]` or `USER@NAME:PORT`; may be repeated
    #[arg(long, value_name = "HOST", value_parser = host, conflicts_with_all = ["project", "location", "cluster", "endpoint", "context", "kubeconfig", "namespace", "slurm"])]
    ssh: Vec<SshHost>,
    /// Read what runs on a SLURM login node instead
    #[arg(long, conflicts_with_all = ["project", "location", "cluster", "endpoint", "context", "kubeconfig", "namespace"])]
    slurm: bool,
    /// The login node, as `--ssh` has it [default: this machine]
    #[arg(long, value_name = "HOST", value_parser = host, requires = "slurm")]
    login: Option<SshHost>,
}

impl HostArgs {
    /// Returns the selected hosts, if any.
    pub fn chosen(&self) -> Option<Hosts> {
        let Self { local, ssh, slurm, login } = self;
        match (local, slurm, ssh.as_slice()) {
            (true, ..) => Some(Hosts::Local),
            (_, true, _) => Some(Hosts::Slurm { login: login.clone() }),
            (_, _, []) => None,
            (_, _, hosts) => Some(Hosts::Ssh { hosts: hosts.to_vec(), home: None }),
        }
    }
}

/// `ada@node1:2222`.
fn host(text: &str) -> Result<SshHost, String> {
    let (user, rest) = text.split_once('@').map_or((None, text), |(user, rest)| (Some(user), rest));
    let port = rest.rsplit_once(':').filter(|(name, _)| !name.contains(':'));
    let (name, port) = match port {
        Some((name, port)) => {
            let port = port.parse::<u16>().ok().filter(|port| *port > 0);
            (name, Some(port.ok_or_else(|| format!("`{text}` has no port after its `:`"))?))
        }
        None => (rest, None),
    };
    if name.is_empty() || user == Some("") || name.starts_with('-') {
        return Err(format!("`{text}` is no host: use `NAME`, `gpu[1-4]` or `USER@NAME:PORT`"));
    }
    Ok(SshHost { name: name.to_owned(), user: user.map(str::to_owned), port, ..SshHost::default() })
}

/// Returns the machines, with the one that keeps the record first.
fn machines(hosts: &Hosts) -> Vec<Host> {
    let mut stack = Stack::default();
    hosts::target(hosts, &mut stack);
    stack.hosts()
}

fn foreign_processes() -> Gvk {
    gvk(api::cluster().group.as_str(), "v1", "Stranger", "strangers")
}

/// Reads the live objects on the hosts, and their owner.
pub async fn read(
    settings: &Settings,
    given: &Hosts,
    name: Option<&str>,
    parallelism: usize,
) -> Result<(Found, Owner), Failure> {
    let target = |hosts: &Hosts| Target {
        hosts: machines(hosts),
        simulated: settings.access.is_simulated(),
        ..Target::default()
    };
    let hosts = with_home(settings, given, &target, parallelism).await?;
    let (place, target) = (Place::Hosts(hosts.clone()), target(&hosts));
    let link = Link::open(settings, &target, None)?;
    let api = link.api();
    let kinds = [api::environment(), api::cluster(), api::group(), api::job(), foreign_processes()]
        .map(|kind| (kind, None));
    let Survey { objects, .. } = look(&*api, &kinds, &target, parallelism).await?;
    let (others, objects): (Vec<_>, Vec<_>) =
        objects.into_iter().partition(|(object, _)| object.gvk == foreign_processes());
    let found = Found {
        place,
        endpoint: Endpoint::Auto,
        cluster: Value::Null,
        pools: [].into(),
        sizes: [].into(),
        objects: objects.into_iter().collect(),
        unmanaged: others.into_iter().map(|(_, live)| live).collect(),
        unread: Vec::new(),
    };
    let owner = owner(&*api, &found, name, &target).await?;
    link.close().await?;
    Ok((found, owner))
}

async fn look(
    api: &dyn LiveApi,
    kinds: &[(Gvk, Option<String>)],
    target: &Target,
    parallelism: usize,
) -> Result<Survey, Failure> {
    let diagnose = |error| access::diagnose(error, target, &Sources::default(), MessageDetail::Brief).into();
    match survey::survey(api, None, kinds, parallelism).await {
        Ok(Survey { unlisted, .. }) if !unlisted.is_empty() => Err(diagnose(&unlisted[0].1)),
        Ok(survey) => Ok(survey),
        Err(SurveyError::Unreadable(error)) => Err(diagnose(&error)),
        Err(SurveyError::NoCluster | SurveyError::NotRunning(_)) => {
            Err(Diagnostic::error(Code::Unreadable, "nothing could be read").into())
        }
    }
}

/// Returns the hosts with the record host first: the record may be on any of them.
async fn with_home(
    settings: &Settings,
    given: &Hosts,
    target: &dyn Fn(&Hosts) -> Target,
    parallelism: usize,
) -> Result<Hosts, Failure> {
    let Hosts::Ssh { hosts, .. } = given else { return Ok(given.clone()) };
    let names: Vec<String> = hosts.iter().flat_map(|host| host_names(&host.name)).collect();
    let maps = [(gvk("", "v1", "ConfigMap", "configmaps"), Some(NAMESPACE.to_owned()))];
    let maps = &maps;
    let looks = names.into_iter().enumerate().map(|(index, name)| async move {
        let home = (index > 0).then_some(name);
        let hosts = Hosts::Ssh { hosts: hosts.clone(), home };
        let link = Link::open(settings, &target(&hosts), None)?;
        let survey = look(&*link.api(), maps, &target(&hosts), parallelism).await?;
        link.close().await?;
        Ok::<_, Failure>((!survey.objects.is_empty()).then_some(hosts))
    });
    for found in join_all(looks).await {
        if let Some(hosts) = found? {
            return Ok(hosts);
        }
    }
    Ok(given.clone())
}

/// Returns the stack whose resources were found, with the ID from its record or its environments.
async fn owner(
    api: &dyn LiveApi,
    found: &Found,
    name: Option<&str>,
    target: &Target,
) -> Result<Owner, Failure> {
    let stacks = hosts::stacks(found);
    let listed = || {
        let names: Vec<String> = stacks.iter().map(|stack| format!("--name {stack}")).collect();
        diag::listed(names.iter().map(String::as_str), "or")
    };
    let stack = match (name, stacks.len()) {
        (Some(name), _) if stacks.contains(name) || stacks.is_empty() => name.to_owned(),
        (Some(name), _) => {
            let what = format!("no stack {name} has anything there");
            return Err(Diagnostic::error(Code::Usage, what)
                .help(format!("choose one: {}", listed()))
                .into());
        }
        (None, 0) => "imported".to_owned(),
        (None, 1) => stacks.first().cloned().unwrap_or_default(),
        (None, number) => {
            let what = format!("{number} stacks have something there");
            return Err(Diagnostic::error(Code::Usage, what)
                .help(format!("choose one: {}", listed()))
                .into());
        }
    };
    let place: ObjectId = Record::object(&stack);
    let recorded = record::fetch(api, &place, RetryPolicy::Read).await;
    let recorded = recorded
        .map_err(|error| access::diagnose(&error, target, &Sources::default(), MessageDetail::Brief))?;
    let recorded = recorded.record().map(|record| record.id.clone());
    let id = recorded.or_else(|| hosts::id_of(found, &stack)).unwrap_or_else(id);
    Ok(Owner { stack, id })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_written_as_ssh_has_it() {
        let is = |name: &str, user: Option<&str>, port: Option<u16>| {
            Ok(SshHost { name: name.into(), user: user.map(str::to_owned), port, ..SshHost::default() })
        };
        assert_eq!(host("node1"), is("node1", None, None));
        assert_eq!(host("ada@gpu[1-4]:2222"), is("gpu[1-4]", Some("ada"), Some(2222)));
        assert_eq!(host("fe80::1"), is("fe80::1", None, None));
        for wrong in ["", "@node1", "node1:", "node1:0", "node1:ssh", "-oProxyCommand=x"] {
            assert!(host(wrong).is_err(), "{wrong}");
        }
    }
}
