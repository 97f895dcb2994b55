//! Checks the keys for GPU memory: dask-cuda refuses some combinations when a worker starts, and ignores others.
//!
//! Sources: `cli.py`, `plugins.py` and `cuda_worker.py` of dask-cuda 24.2, 24.8, 25.10, 25.12 and 26.10.

use crate::rules::image_tag::Tag;
use crate::rules::worker_section::{Finding, Workers};
use kinds::dask::device_memory::{DeviceSize, Rmm};
use model::address::FieldPath;

/// The last release that is known to lack cuDF's spilling. 24.8 has it.
const WITHOUT_SPILL: [u32; 2] = [24, 2];
/// The last release whose `--rmm-maximum-pool-size` needs a pool, with `--rmm-async` too.
const MAXIMUM_NEEDS_POOL: [u32; 2] = [25, 10];

/// Options of `dask cuda worker` that exclude each other.
const ASYNC: &str = "--rmm-async";
const MANAGED: &str = "--rmm-managed-memory";

/// Checks the keys of the workers of one section.
pub(super) fn fits(workers: &Workers<'_>, findings: &mut Vec<Finding>) {
    let Workers { path, device_memory, .. } = workers;
    findings.extend(needs_dask_cuda(workers));
    let limit = device_memory.device_memory_limit.as_ref().filter(|size| size.amount().is_none());
    findings.extend(
        limit.map(|size| not_a_size(size, path.key("device_memory_limit"), ", or `\"auto\"` for no limit")),
    );
    if let Some(rmm) = &device_memory.rmm {
        rmm_fits(rmm, workers, findings);
    }
    findings.extend(unknown_to_release(workers));
}

/// Returns a finding at one place.
fn at(place: FieldPath, message: String, help: &str) -> Finding {
    Finding { message, places: vec![(place, "")], help: help.to_owned() }
}

/// Returns a finding for each key whose option another program than `dask cuda worker` would get.
fn needs_dask_cuda(workers: &Workers<'_>) -> Vec<Finding> {
    let Workers { path, device_memory, keys, args, .. } = workers;
    let (has_gpus, is_other) = (keys.gpus() > 0, starts_dask_worker(args));
    let places = device_memory.keys().map(|key| path.key(key)).filter(|_| !has_gpus || is_other);
    let finding = |place: FieldPath| {
        if has_gpus {
            return Finding {
                message: format!(
                    "`{place}` is an option of `dask cuda worker`, and `args` starts `dask worker`"
                ),
                places: vec![(place, ""), (path.key("args"), "here")],
                help: "remove one of them".to_owned(),
            };
        }
        let message = format!("`{place}` needs GPUs: it is an option of `dask cuda worker`");
        at(place, message, "set `gpus`, or remove it")
    };
    places.map(finding).collect()
}

/// Returns true for the command lines of a worker without GPUs: `dask worker`, `dask-worker`, `-m distributed.cli.dask_worker`.
fn starts_dask_worker(args: &[String]) -> bool {
    let words = args.join(" ").replace(['-', '_'], " ");
    words.contains("dask worker") && !words.contains("dask cuda worker")
}

fn not_a_size(size: &DeviceSize, place: FieldPath, or: &str) -> Finding {
    let help = format!("give a part of the GPU's memory, `0.8`, or a size with its unit, `\"30GiB\"`{or}");
    at(place, format!("`{}` is not an amount of GPU memory", size.as_str().escape_debug()), &help)
}

fn rmm_fits(rmm: &Rmm, workers: &Workers<'_>, findings: &mut Vec<Finding>) {
    let path = &workers.path.key("rmm");
    if *rmm == Rmm::default() {
        let help = "set `pool`, `async` or `managed`, or remove it";
        findings.push(at(path.clone(), format!("`{path}` sets nothing"), help));
    }
    let not_limited = rmm.sizes().filter(|(_, size)| !size.is_limited());
    findings.extend(not_limited.map(|(key, size)| not_a_size(size, path.key(key), "")));
    findings.extend(without_effect(rmm, workers));
    findings.extend(contradiction(rmm, path));
    findings.extend(contradicts_args(rmm, workers));
    let folder = rmm.log_directory.as_ref().filter(|folder| !folder.starts_with('/'));
    findings.extend(
        folder.map(|folder| Finding::relative_path(folder, path.key("log_directory"), "begin it with `/`")),
    );
}

/// Returns the keys that another one has to be set for, here or in `args`.
fn without_effect(rmm: &Rmm, workers: &Workers<'_>) -> impl Iterator<Item = Finding> {
    let path = workers.path.key("rmm");
    let is_async = rmm.asynchronous || workers.has_option(ASYNC);
    let has_allocator = rmm.pool.is_some() || workers.has_option("--rmm-pool-size") || is_async;
    let is_managed = rmm.managed || workers.has_option(MANAGED);
    let release = rmm.release_threshold.is_some() && !is_async;
    let maximum = rmm.maximum.is_some() && !has_allocator;
    let log = rmm.log_directory.is_some() && !has_allocator && !is_managed;
    let rows = [
        (release, "release_threshold", "needs `async`", "set `async = true`"),
        (maximum, "maximum", "has no effect without a pool", "set `pool`"),
        (
            log,
            "log_directory",
            "has no effect without an allocator of RMM",
            "set `pool`, `async` or `managed`",
        ),
    ];
    rows.into_iter().filter(|(is_alone, ..)| *is_alone).map(move |(_, key, why, help)| {
        let place = path.key(key);
        let message = format!("`{place}` {why}");
        at(place, message, &format!("{help}, or remove it"))
    })
}

/// Returns the pairs of keys that do not go together.
fn contradiction(rmm: &Rmm, path: &FieldPath) -> impl Iterator<Item = Finding> {
    let allocators = (rmm.asynchronous && rmm.managed).then(|| Finding {
        message: format!("`{path}` has both `async` and `managed`: dask-cuda refuses to start"),
        places: vec![(path.key("async"), ""), (path.key("managed"), "and here")],
        help: "remove one of them".to_owned(),
    });
    let sizes = rmm.pool.as_ref().zip(rmm.maximum.as_ref());
    let sizes = sizes.filter(|(pool, maximum)| pool.is_larger_than(maximum)).map(|_| Finding {
        message: format!("`{}` is larger than `maximum`", path.key("pool")),
        places: vec![(path.key("pool"), "at its start"), (path.key("maximum"), "at most")],
        help: "raise `maximum`, or lower `pool`".to_owned(),
    });
    allocators.into_iter().chain(sizes)
}

/// Returns the keys that do not go together with an option in `args`.
fn contradicts_args(rmm: &Rmm, workers: &Workers<'_>) -> impl Iterator<Item = Finding> {
    let rows = [(rmm.asynchronous, "async", MANAGED), (rmm.managed, "managed", ASYNC)];
    let (path, args) = (workers.path.key("rmm"), workers.path.key("args"));
    let both = rows.into_iter().filter(|(is_set, _, option)| *is_set && workers.has_option(option));
    both.map(move |(_, key, option)| Finding {
        message: format!("`{}` cannot be used with `{option}`: dask-cuda refuses to start", path.key(key)),
        places: vec![(path.key(key), ""), (args.clone(), "has it")],
        help: "remove one of them".to_owned(),
    })
}

/// Returns the keys that the dask-cuda of a RAPIDS image does not take, as far as the image's tag says.
fn unknown_to_release(workers: &Workers<'_>) -> Vec<Finding> {
    let Workers { path, device_memory, image, .. } = workers;
    let tag = Tag::of(image).filter(|tag| tag.family == "RAPIDS");
    let Some([year, month, ..]) = tag.as_ref().map(|tag| tag.version.as_slice()) else { return Vec::new() };
    let release = [*year, *month];
    let named = format!("RAPIDS {year}.{month:02}");
    let is_alone = |rmm: &Rmm| rmm.asynchronous && rmm.maximum.is_some() && rmm.pool.is_none();
    let maximum = device_memory.rmm.as_ref().is_some_and(is_alone);
    let (spill_path, maximum_path) = (path.key("cudf_spill"), path.key("rmm").key("maximum"));
    let rows = [
        (
            device_memory.cudf_spill && release <= WITHOUT_SPILL,
            spill_path.clone(),
            format!("`{spill_path}` is not an option of {named}"),
            "use a later image, or remove it",
        ),
        (
            maximum && release <= MAXIMUM_NEEDS_POOL,
            maximum_path.clone(),
            format!("`{maximum_path}` needs `pool` in {named}"),
            "use a later image, set `pool`, or remove it",
        ),
    ];
    let unknown = rows.into_iter().filter(|(is_unknown, ..)| *is_unknown);
    unknown.map(|(_, place, message, help)| at(place, message, help)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_without_gpus_is_told_by_its_command_line() {
        let starts = |line: &str| starts_dask_worker(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        for line in ["dask worker --nthreads 2", "dask-worker", "python -m distributed.cli.dask_worker"] {
            assert!(starts(line), "{line}");
        }
        for line in ["dask cuda worker --name dask-worker-1", "dask-cuda-worker", "/opt/start.sh"] {
            assert!(!starts(line), "{line}");
        }
    }
}
