//! Checks that the CUDA and RAPIDS of an image run on the GPUs and with the driver of its pool, as far as the image's tag says.

use crate::NodePool;
use crate::rules::Context;
use crate::rules::image_tag::{self, Tag};
use crate::rules::machines::gpu_type_of;
use crate::{BuiltInCheck, CheckRun};
use kinds::gke::node_pool::DriverVersion;
use kinds::section::Pods;
use kinds::short_forms::DriverInstall;
use model::address::{FieldPath, Segment};
use model::catalog::{self, ComputeCapability};
use model::diag::{Code, Diagnostic};

/// The first version of CUDA without Maxwell, Pascal and Volta. Source: release notes of CUDA 13.0.
const CUDA_WITHOUT_VOLTA: u32 = 13;
/// The driver that CUDA 13 needs. Source: the same.
const DRIVER_OF_CUDA_13: u32 = 580;
/// The first release of RAPIDS without Pascal. Source: RAPIDS Support Notice 34.
const RAPIDS_WITHOUT_PASCAL: [u32; 2] = [24, 2];

/// The needs of an image of its GPU, and the part of the image that has them.
struct Need {
    least: ComputeCapability,
    by: String,
    instead: &'static str,
}

/// Checks the image of each pod with GPUs.
pub(crate) fn images_fit_their_gpus(context: &mut Context<'_>) {
    let mut found: Vec<Diagnostic> = Vec::new();
    for pods in context.pods() {
        if pods.keys.gpus() == 0 || pods.replicas == 0 {
            continue;
        }
        let Some(image) = image(context, &pods) else { continue };
        let pool = pods.keys.pool.as_deref().and_then(|key| Some((key, context.pool(key)?)));
        let too_old = gpu(&pods, pool).and_then(|(kind, place)| too_old(&image, kind, place));
        let driver = || pool.and_then(|(key, pool)| driver_unknown(context, &image, key, pool));
        found.extend(too_old.or_else(driver));
    }
    found.into_iter().for_each(|finding| context.say_once(finding));
}

/// An image and the path of the key that gives it.
type Image<'a> = (&'a str, FieldPath);

/// Returns the image of pods; that of groups without their own is their cluster's.
fn image<'a>(context: &Context<'a>, pods: &Pods<'a>) -> Option<Image<'a>> {
    if !pods.image.is_empty() {
        return Some((pods.image, pods.image_path.clone()));
    }
    let [Segment::Key(section), Segment::Key(key), ..] = pods.path.segments() else { return None };
    let cluster = context.stack.dask_cluster.get(key).filter(|_| section == "dask_cluster")?;
    Some((&cluster.image, FieldPath::keys(["dask_cluster", key, "image"])))
}

/// Returns the GPU type of pods, with the path of the key that gives it.
fn gpu<'a>(pods: &Pods<'a>, pool: Option<(&str, &'a NodePool)>) -> Option<(&'a str, FieldPath)> {
    if let Some(kind) = pods.keys.machines.accelerator.as_deref() {
        return Some((kind, pods.path.key("accelerator")));
    }
    let (key, pool) = pool?;
    let key_of_type = if pool.accelerator.is_some() { "accelerator" } else { "machine_type" };
    Some((gpu_type_of(pool)?, FieldPath::keys(["node_pool", key, key_of_type])))
}

fn too_old((image, image_path): &Image<'_>, kind: &str, place: FieldPath) -> Option<Diagnostic> {
    let has = catalog::accelerator(kind)?.compute_capability;
    let need = need(image).filter(|need| has < need.least)?;
    let Need { least, by, instead } = need;
    let what =
        format!("{by} does not run on `{kind}`: it needs compute capability {least}, the GPU has {has}");
    let finding = Diagnostic::warning(Code::GpuOfImage, what)
        .at_value(image_path.clone(), format!("needs {least}"))
        .at_value(place, format!("has {has}"));
    Some(finding.help(format!("use {instead}, or newer GPUs: `nvidia-tesla-t4` has 7.5, `nvidia-l4` 8.9")))
}

/// Returns the strictest need of an image.
fn need(image: &str) -> Option<Need> {
    let cuda =
        image_tag::cuda(image).filter(|version| version[0] >= CUDA_WITHOUT_VOLTA).map(|version| Need {
            least: ComputeCapability(7, 5),
            by: format!("CUDA {}", version[0]),
            instead: "an image with CUDA 12",
        });
    let rapids = || {
        let tag = Tag::of(image).filter(|tag| tag.family == "RAPIDS")?;
        let is_new = tag.version.as_slice() >= RAPIDS_WITHOUT_PASCAL.as_slice();
        is_new.then(|| Need {
            least: ComputeCapability(7, 0),
            by: format!("RAPIDS {:02}.{:02}", tag.version[0], tag.version[1]),
            instead: "RAPIDS 23.12 or older",
        })
    };
    cuda.or_else(rapids)
}

/// Returns a finding for CUDA 13 with the driver that GKE chooses, which may be older. A check in the image of the workers tells
/// before they are created.
fn driver_unknown(
    context: &Context<'_>,
    (image, image_path): &Image<'_>,
    key: &str,
    pool: &NodePool,
) -> Option<Diagnostic> {
    let cuda = image_tag::cuda(image).filter(|version| version[0] >= CUDA_WITHOUT_VOLTA)?;
    let install = context.stack.gpu_driver.as_ref().map_or(DriverInstall::Gke, |driver| driver.install);
    let is_default = matches!(pool.driver, None | Some(DriverVersion::Default));
    let tells = context
        .checks()
        .any(|(_, check)| check.run == CheckRun::BuiltIn(BuiltInCheck::Cudf) || check.is_like_worker());
    if install != DriverInstall::Gke || !is_default || tells || !pool.manage.is_managed() {
        return None;
    }
    let what = format!(
        "CUDA {} needs NVIDIA driver {DRIVER_OF_CUDA_13} or newer, and GKE's default driver may be older",
        cuda[0]
    );
    let finding = Diagnostic::warning(Code::GpuOfImage, what)
        .at_value(image_path.clone(), format!("needs {DRIVER_OF_CUDA_13}"))
        .at_key(FieldPath::keys(["node_pool", key]), "has the default of its node version");
    Some(finding.help(format!(
        "set `driver = \"latest\"` in `[node_pool.{key}]`, or add `[check.cudf] run = \"cudf\"`, which tells before the \
         workers are created"
    )))
}
