//! Checks of machine types, GPUs, disks and drivers of node pools.

use crate::rules::{Context, counted};
use crate::{Accelerator, DriverInstall, DriverVersion, NodePool, ReleaseChannel};
use kinds::gke::node_pool::takes_hyperdisk_only;
use model::address::FieldPath;
use model::catalog::{self, Attach, Machine};
use model::diag::{Code, Diagnostic, listed};

#[derive(Clone, Copy)]
pub(crate) struct Gpus {
    /// The number of GPUs, partitions or shares that Pods can request.
    pub(crate) allocatable: u32,
    /// True if Pods share them.
    pub(crate) shared: bool,
}

/// Returns the GPUs of a node of the pool; `None` if only the live pool has them, or the machine type or the partition is
/// unknown.
pub(crate) fn gpus_of(pool: &NodePool) -> Option<Gpus> {
    let (kind, count) = match (fixed(pool), &pool.accelerator) {
        (Some((kind, count)), _) => (kind, count),
        // External pools may have more than their section says.
        (None, None) if !pool.manage.is_managed() => return None,
        (None, Some(Accelerator { count: None, .. })) if !pool.manage.is_managed() => return None,
        (None, Some(accelerator)) => (accelerator.r#type.as_str(), accelerator.count.unwrap_or(1)),
        (None, None) => {
            catalog::machine(&pool.machine_type)?;
            return Some(Gpus { allocatable: 0, shared: false });
        }
    };
    let given = pool.accelerator.as_ref();
    let parts = match given.and_then(|accelerator| accelerator.partition.as_ref()) {
        Some(size) => *catalog::accelerator(kind)?.mig.get(size)?,
        None => 1,
    };
    let clients = given.and_then(|accelerator| accelerator.sharing.as_ref()).map(|sharing| sharing.clients);
    Some(Gpus { allocatable: count * parts * clients.unwrap_or(1), shared: clients.is_some() })
}

/// Returns the GPU type of a pool's nodes.
pub(crate) fn gpu_type_of(pool: &NodePool) -> Option<&str> {
    let fixed = fixed(pool).map(|(kind, _)| kind);
    fixed.or_else(|| pool.accelerator.as_ref().map(|accelerator| accelerator.r#type.as_str()))
}

/// Returns type and number of the GPUs that come with the machine type.
fn fixed(pool: &NodePool) -> Option<(&'static str, u32)> {
    let accelerator = catalog::machine(&pool.machine_type)?.accelerator.as_ref()?;
    Some((accelerator.kind.as_str(), accelerator.count))
}

/// Machine series of which the catalog has every machine type.
const COMPLETE: [&str; 4] = ["a2", "a3", "g2", "n1"];

/// Checks that machine types exist.
pub(crate) fn machine_types_exist(context: &mut Context<'_>) {
    for (path, pool) in context.pools() {
        let name = pool.machine_type.as_str();
        if catalog::machine(name).is_some() {
            continue;
        }
        let near = catalog::suggest(name);
        let series = name.split('-').next().unwrap_or_default();
        let ends = |name: &str| {
            (name.split('-').next().map(str::to_owned), name.split('-').next_back().map(str::to_owned))
        };
        let misspelt = near.as_deref().is_some_and(|near| ends(near) == ends(name));
        let shaped = name.contains('-')
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        let certain = COMPLETE.contains(&series) || misspelt || !shaped;
        let finding = if certain { Diagnostic::error } else { Diagnostic::warning };
        let finding = finding(Code::UnknownMachineType, format!("unknown machine type `{name}`"));
        let help = match near {
            Some(near) => format!("did you mean `{near}`?"),
            None => {
                let same = catalog::machines().filter(|machine| machine.series() == series);
                let same: Vec<&str> = same.map(|machine| machine.name.as_str()).take(12).collect();
                if same.is_empty() || !certain {
                    "`gcloud compute machine-types list` lists all".to_owned()
                } else {
                    format!("for example {}", listed(same, "or"))
                }
            }
        };
        context.say_of_value(finding.at_value(path.key("machine_type"), "").help(help));
    }
}

/// Checks that GPU types exist.
pub(crate) fn accelerators_exist(context: &mut Context<'_>) {
    for (path, pool) in context.pools() {
        let Some(Accelerator { r#type, .. }) = &pool.accelerator else { continue };
        if catalog::accelerator(r#type).is_some() {
            continue;
        }
        let help = match catalog::suggest_accelerator(r#type) {
            Some(near) => format!("did you mean `{near}`?"),
            None => {
                let all = catalog::accelerators().map(|accelerator| accelerator.kind.as_str());
                format!("GKE has {}", listed(all, "and"))
            }
        };
        let message = format!("unknown GPU type `{type}`");
        let place = path.key("accelerator").key("type");
        context.say_of_value(
            Diagnostic::error(Code::UnknownAccelerator, message).at_value(place, "").help(help),
        );
    }
}

/// Checks that GPUs can be attached to the machine type.
pub(crate) fn accelerators_fit(context: &mut Context<'_>) {
    for (path, pool) in context.pools() {
        let Some(given) = &pool.accelerator else { continue };
        let Some(known) = catalog::accelerator(&given.r#type) else { continue };
        let Some(machine) = catalog::machine(&pool.machine_type) else { continue };
        if let Some(fixed) = &machine.accelerator {
            fits_built_in(context, &path, given, machine, (&fixed.kind, fixed.count));
        } else if known.attach == Attach::Fixed {
            let message = format!("`{}` cannot be attached to `{}`", known.kind, machine.name);
            let finding = doubly(&path, message, "only built into machines", "has none");
            context.say(finding.help(machines_with(&known.kind, given.count)));
        } else if !machine.takes_accelerators() {
            let message = format!("no GPU can be attached to `{}`", machine.name);
            let finding = doubly(&path, message, "", "not of the N1 family");
            context.say(finding.help(format!("`{}` goes with N1 machines: `n1-standard-4`", known.kind)));
        } else {
            fits_attached(context, &path, given.count.unwrap_or(1), machine, known);
        }
    }
}

fn doubly(path: &FieldPath, message: String, gpu: &str, machine: &str) -> Diagnostic {
    Diagnostic::error(Code::AcceleratorDoesNotFit, message)
        .at_value(path.key("accelerator").key("type"), gpu)
        .at_value(path.key("machine_type"), machine)
}

fn fits_built_in(
    context: &mut Context<'_>,
    path: &FieldPath,
    given: &Accelerator,
    machine: &Machine,
    (kind, count): (&str, u32),
) {
    let has = format!("has {count} × {kind}");
    if given.r#type != kind {
        let message = format!("`{}` has `{kind}` built in, not `{}`", machine.name, given.r#type);
        let finding = doubly(path, message, "", &has);
        context.say(finding.help(format!(
            "remove `accelerator`, it follows from the machine type; {}",
            machines_with(&given.r#type, given.count)
        )));
    } else if let Some(asked) = given.count.filter(|asked| *asked != count) {
        let message = format!("`{}` has {}, not {asked}", machine.name, counted(count, "GPU"));
        let finding = Diagnostic::error(Code::AcceleratorDoesNotFit, message)
            .at_value(path.key("accelerator").key("count"), "")
            .at_value(path.key("machine_type"), has);
        context.say(finding.help(machines_with(kind, Some(asked))));
    }
}

fn fits_attached(
    context: &mut Context<'_>,
    path: &FieldPath,
    count: u32,
    machine: &Machine,
    known: &catalog::Accelerator,
) {
    let kind = &known.kind;
    let place = path.key("accelerator").key("count");
    if !known.counts.contains(&count) {
        let counts: Vec<String> = known.counts.iter().map(u32::to_string).collect();
        let message = format!("{count} × `{kind}` cannot be attached");
        let finding = Diagnostic::error(Code::AcceleratorDoesNotFit, message).at_value(place, "");
        context.say(finding.help(format!(
            "a node can have {}",
            listed(counts.iter().map(String::as_str), "or").replace('`', "")
        )));
        return;
    }
    let (vcpus, memory) = (known.n1_max_vcpus(count), known.n1_max_memory_gb(count));
    let too_many = vcpus.zip(machine.vcpus).is_some_and(|(most, has)| has > most);
    let too_much = memory.zip(machine.memory_gb).is_some_and(|(most, has)| has > most);
    if !too_many && !too_much {
        return;
    }
    let fits = |count: &&u32| {
        known.n1_max_vcpus(**count).zip(machine.vcpus).is_none_or(|(most, has)| has <= most)
            && known.n1_max_memory_gb(**count).zip(machine.memory_gb).is_none_or(|(most, has)| has <= most)
    };
    let (vcpus, memory) = (vcpus.unwrap_or_default(), memory.unwrap_or_default());
    let has =
        format!("{} vCPUs, {} GB", machine.vcpus.unwrap_or_default(), machine.memory_gb.unwrap_or_default());
    let message = format!("`{}` is too large for {count} × `{kind}`", machine.name);
    let finding = Diagnostic::error(Code::AcceleratorDoesNotFit, message)
        .at_value(path.key("machine_type"), has)
        .at_value(place, format!("at most {vcpus} vCPUs and {memory} GB"));
    context.say(finding.help(match known.counts.iter().find(fits) {
        Some(more) => format!("use `count = {more}` or a smaller machine type"),
        None => "use a smaller machine type".to_owned(),
    }));
}

/// Returns the machine types with these GPUs, as a text.
fn machines_with(kind: &str, count: Option<u32>) -> String {
    if catalog::accelerator(kind).is_some_and(|accelerator| accelerator.attach == Attach::N1) {
        return format!("`{kind}` goes with N1 machines: `n1-standard-4`");
    }
    let built_in = |machine: &&Machine| machine.accelerator.as_ref().is_some_and(|fixed| fixed.kind == kind);
    let exactly = |machine: &&Machine| {
        count.is_none_or(|count| machine.accelerator.as_ref().is_some_and(|fixed| fixed.count == count))
    };
    let names = |machines: Vec<&'static Machine>| {
        listed(machines.into_iter().map(|machine| machine.name.as_str()), "and")
    };
    let exact: Vec<_> = catalog::machines().filter(built_in).filter(exactly).collect();
    match (exact.as_slice(), count) {
        ([], _) => {
            let all: Vec<_> = catalog::machines().filter(built_in).collect();
            format!("`{kind}` comes with {}", names(all))
        }
        (_, Some(count)) => format!("{count} × `{kind}` come with {}", names(exact)),
        (_, None) => format!("`{kind}` comes with {}", names(exact)),
    }
}

/// Checks that the partition size exists for the GPU type.
pub(crate) fn partitions_exist(context: &mut Context<'_>) {
    for (path, pool) in context.pools() {
        let size = pool.accelerator.as_ref().and_then(|accelerator| accelerator.partition.as_ref());
        let known = gpu_type_of(pool).and_then(catalog::accelerator);
        let (Some(size), Some(known)) = (size, known) else { continue };
        if known.mig.contains_key(size) {
            continue;
        }
        let message = format!("`{}` has no partition `{size}`", known.kind);
        let finding = Diagnostic::error(Code::BadPartition, message)
            .at_value(path.key("accelerator").key("partition"), "");
        context.say(finding.help(if known.mig.is_empty() {
            "this type has no partitions; `sharing` lets several Pods use one GPU".to_owned()
        } else {
            format!("it has {}", listed(known.mig.keys().map(String::as_str), "and"))
        }));
    }
}

/// Checks that the machine type supports the disk type: some only support Hyperdisk.
pub(crate) fn disks_fit(context: &mut Context<'_>) {
    for (path, pool) in context.pools() {
        let machine = &pool.machine_type;
        let Some(disk) = pool.disk_type.as_deref().filter(|disk| disk.starts_with("pd-")) else { continue };
        if takes_hyperdisk_only(machine) {
            let finding =
                Diagnostic::error(Code::DiskDoesNotFit, format!("`{machine}` does not take `{disk}`"));
            let finding = finding
                .at_value(path.key("disk_type"), "a Persistent Disk")
                .at_value(path.key("machine_type"), "takes Hyperdisk only");
            context.say(finding.help("remove `disk_type`, or use `hyperdisk-balanced`"));
        }
    }
}

/// Checks that nodes are upgraded automatically in a release channel.
pub(crate) fn upgrades_follow_the_channel(context: &mut Context<'_>) {
    let Some(cluster) = &context.stack.cluster else { return };
    if cluster.release_channel == Some(ReleaseChannel::None) {
        return;
    }
    let channel = FieldPath::keys(["cluster", "release_channel"]);
    for (path, pool) in context.pools().filter(|(_, pool)| pool.auto_upgrade == Some(false)) {
        let label = if cluster.release_channel.is_some() {
            "a channel"
        } else {
            "the channel `regular`, the default"
        };
        let key = pool.name.as_deref().map_or_else(|| path.to_string(), str::to_owned);
        let message = format!("GKE upgrades the nodes of `{key}`: the cluster is in a release channel");
        let finding = Diagnostic::error(Code::AutoUpgradeUnderChannel, message);
        let finding = finding.at_value(path.key("auto_upgrade"), "refused").at_value(channel.clone(), label);
        context.say(finding.help("remove `auto_upgrade`, or set `release_channel = \"none\"`"));
    }
}

/// Checks that only one of GKE and the DaemonSet installs the driver.
pub(crate) fn drivers_come_once(context: &mut Context<'_>) {
    let who = match context.stack.gpu_driver.as_ref().map(|driver| driver.install) {
        Some(DriverInstall::Daemonset) => "by the DaemonSet",
        Some(DriverInstall::None) => "by others",
        Some(DriverInstall::Gke) | None => return,
    };
    let install = FieldPath::keys(["gpu_driver", "install"]);
    for (path, _) in context.pools().filter(|(_, pool)| pool.driver.is_some()) {
        let finding = Diagnostic::error(Code::DriverTwice, "the driver would be installed in two ways");
        let finding = finding.at_value(path.key("driver"), "by GKE").at_value(install.clone(), who);
        context.say(finding.help("remove `driver`, or set `install = \"gke\"`"));
    }
}

/// Checks the node image: the installer and the newest driver only support Container-Optimized OS.
pub(crate) fn drivers_fit_the_image(context: &mut Context<'_>) {
    let install = context.stack.gpu_driver.as_ref().map(|driver| driver.install);
    for (path, pool) in context.pools() {
        let Some(image) =
            pool.image_type.as_deref().filter(|image| image.to_ascii_uppercase().contains("UBUNTU"))
        else {
            continue;
        };
        if gpu_type_of(pool).is_none() {
            continue;
        }
        let message = format!("the driver's installer does not run on `{image}`");
        let finding =
            Diagnostic::error(Code::DriverImage, message).at_value(path.key("image_type"), "another image");
        if install == Some(DriverInstall::Daemonset) {
            let finding = finding
                .at_value(FieldPath::keys(["gpu_driver", "install"]), "for Container-Optimized OS only");
            context.say(finding.help("set `install = \"gke\"`, or remove `image_type`"));
        } else if pool.driver == Some(DriverVersion::Latest) {
            let finding = finding.at_value(path.key("driver"), "for Container-Optimized OS only");
            context.say(finding.help("set `driver = \"default\"`, or remove `image_type`"));
        }
    }
}
