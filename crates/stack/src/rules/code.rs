//! Checks of the user's own code: `files` and `working_dir`.

use crate::rules::Context;
use crate::{CheckRun, Variable};
use kinds::code::SourceFiles;
use kinds::code::{CodeKeys, PYTHON_PATH, is_absolute};
use kinds::kubernetes::pod_code::{FOLDER, MAX_BYTES, MAX_LISTING};
use kinds::section::PodKeys;
use model::address::FieldPath;
use model::diag::{Code, Diagnostic};

/// A section with code.
struct Section<'a> {
    path: FieldPath,
    keys: &'a CodeKeys,
    /// Its files, its own or those of the section that it copies.
    files: &'a SourceFiles,
    /// The largest number of pods in an object with the list of its files.
    pods: usize,
    /// The reason why it cannot have code.
    unused: Option<&'static str>,
}

/// A DaskJob that copies a cluster has the pods of its program, its scheduler and its workers.
const PODS_OF_A_JOB: usize = 3;

fn sections<'a>(context: &Context<'a>) -> Vec<Section<'a>> {
    let stack = context.stack;
    let elsewhere = |is_managed: bool| (!is_managed).then_some("it is managed elsewhere");
    let clusters = stack.dask_cluster.iter().map(|(key, cluster)| Section {
        path: FieldPath::keys(["dask_cluster", key]),
        keys: &cluster.code,
        files: &cluster.code.contents,
        pods: PODS_OF_A_JOB,
        unused: elsewhere(cluster.manage.is_managed()),
    });
    let jobs = stack.dask_job.iter().map(|(key, job)| {
        let like = job.like.as_ref().and_then(|like| stack.dask_cluster.get(like));
        Section {
            path: FieldPath::keys(["dask_job", key]),
            keys: &job.code,
            files: job.code(like, &FieldPath::root()).files.0,
            pods: PODS_OF_A_JOB,
            unused: elsewhere(job.manage.is_managed()),
        }
    });
    let checks = stack.check.iter().map(|(key, check)| {
        let cluster = stack.cluster_of_check(check).map(|(_, cluster)| cluster);
        let is_program = matches!(check.run, CheckRun::Program(_));
        Section {
            path: FieldPath::keys(["check", key]),
            keys: &check.code,
            files: match cluster {
                Some(like) if check.code.files.is_empty() => &like.code.contents,
                _ => &check.code.contents,
            },
            pods: 1,
            unused: (!is_program).then_some("a built-in check has a program of its own"),
        }
    });
    clusters.chain(jobs).chain(checks).collect()
}

/// Checks that the files of a section fit into a ConfigMap.
pub(crate) fn files_can_be_copied(context: &mut Context<'_>) {
    if context.stack.is_on_hosts() {
        return;
    }
    for Section { path, keys, pods, .. } in sections(context) {
        let (size, number) = (keys.contents.size(), keys.contents.iter().len());
        let what = if size > MAX_BYTES {
            format!(
                "the files of `{path}` have {} KiB, and a ConfigMap takes {}",
                size.div_ceil(1024),
                MAX_BYTES / 1024
            )
        } else if keys.contents.listing() * pods > MAX_LISTING {
            format!("`{path}` has {number} files, and their names are too long a list for its pods")
        } else {
            continue;
        };
        let largest = keys.contents.iter().max_by_key(|(_, file)| file.base64().len());
        let largest = largest.map(|(name, file)| {
            format!("the largest is `{name}`, {} KiB", file.bytes().len().div_ceil(1024))
        });
        let finding = Diagnostic::error(Code::UserFiles, what);
        let finding = finding.at_value(path.key("files"), largest.unwrap_or_default());
        context.say(finding.help(
            "name fewer files; or put the code into the image, onto a PersistentVolumeClaim that `pod` mounts, or into a bucket that \
             GKE mounts (annotation `gke-gcsfuse/volumes: \"true\"`); packages can be installed when workers start: `EXTRA_PIP_PACKAGES` \
             of Dask and RAPIDS images",
        ));
    }
}

/// Checks that code is for processes that the stack starts, and that nothing comes before it.
pub(crate) fn code_has_a_use(context: &mut Context<'_>) {
    for Section { path, keys, unused, .. } in sections(context) {
        let Some(why) = unused else { continue };
        for (key, given) in [("files", !keys.files.is_empty()), ("working_dir", keys.working_dir.is_some())] {
            if given {
                let what = format!("`{}` is not used: {why}", path.key(key));
                let finding = Diagnostic::error(Code::CodeKeys, what).at_value(path.key(key), "not used");
                context.say(finding.help("remove it"));
            }
        }
    }
    for (path, keys) in pods_with_files(context) {
        let env = path.key("env");
        if let Some(Variable::Secret(_)) = keys.env.get(PYTHON_PATH) {
            let what =
                format!("`{PYTHON_PATH}` of `{env}` is a secret, and `files` must come before its value");
            let finding = Diagnostic::error(Code::CodeKeys, what).at_value(env.key(PYTHON_PATH), "");
            context.say(finding.help("give the path as text"));
        }
        let containers = keys.pod.iter().flat_map(|pod| pod.0["containers"].as_array()).flatten();
        let mut variables = containers.flat_map(|container| container["env"].as_array()).flatten();
        if variables.any(|variable| variable["name"] == PYTHON_PATH) {
            let what = format!("`pod` of `{path}` sets `{PYTHON_PATH}`, which hides `files`");
            let finding = Diagnostic::error(Code::CodeKeys, what).at_value(path.key("pod"), "");
            context.say(finding.help("set it in `env`: the folder of `files` then comes before it"));
        }
    }
}

/// Returns the keys of pods and processes with files.
fn pods_with_files<'a>(context: &Context<'a>) -> Vec<(FieldPath, &'a PodKeys)> {
    let stack = context.stack;
    let mut all = Vec::new();
    for (key, cluster) in stack.dask_cluster.iter().filter(|(_, cluster)| !cluster.code.files.is_empty()) {
        let path = FieldPath::keys(["dask_cluster", key]);
        all.push((path.key("scheduler"), &cluster.scheduler.keys));
        all.push((path.key("worker"), &cluster.worker.keys));
        let groups = cluster.group.iter();
        all.extend(groups.map(|(key, group)| (path.key("group").key(key), &group.keys)));
    }
    for (key, job) in &stack.dask_job {
        let path = FieldPath::keys(["dask_job", key]);
        let like = job.like.as_ref().and_then(|like| stack.dask_cluster.get(like));
        if job.code(like, &path).files.0.is_empty() {
            continue;
        }
        all.extend(job.scheduler.iter().map(|own| (path.key("scheduler"), &own.keys)));
        all.extend(job.worker.iter().map(|own| (path.key("worker"), &own.keys)));
        all.push((path, &job.keys));
    }
    all
}

/// Checks that a working folder is absolute, or below the files of its section.
pub(crate) fn working_folders_exist(context: &mut Context<'_>) {
    let on_hosts = context.stack.is_on_hosts();
    let mut folders: Vec<(FieldPath, &str, &SourceFiles)> = Vec::new();
    for Section { path, keys, files, .. } in sections(context) {
        folders.extend(keys.working_dir.as_deref().map(|folder| (path.key("working_dir"), folder, files)));
    }
    for (key, cluster) in &context.stack.dask_cluster {
        let path = FieldPath::keys(["dask_cluster", key, "worker", "working_dir"]);
        let files = &cluster.code.contents;
        folders.extend(cluster.worker.working_dir.as_deref().map(|folder| (path, folder, files)));
    }
    for (key, job) in &context.stack.dask_job {
        let path = FieldPath::keys(["dask_job", key, "worker", "working_dir"]);
        let like = job.like.as_ref().and_then(|like| context.stack.dask_cluster.get(like));
        let files = job.code(like, &path).files.0;
        // The pods of a copied cluster have the files of the job, if it has its own.
        let copied = job.like.as_ref().zip(like).filter(|_| !job.code.files.is_empty());
        let copied = copied.map(|(like, cluster)| {
            (FieldPath::keys(["dask_cluster", like, "worker", "working_dir"]), &cluster.worker)
        });
        let own = job.worker.as_ref().map(|worker| (path, worker));
        let worker = own.or(copied).and_then(|(path, worker)| Some((path, worker.working_dir.as_deref()?)));
        folders.extend(worker.map(|(path, folder)| (path, folder, files)));
    }
    for (place, folder, files) in folders {
        let leads_up = folder.split('/').any(|part| part == "..");
        let help = match on_hosts {
            true => "begin it with `/`, or name a folder below `files`".to_owned(),
            false => format!("begin it with `/`; `files` are in `{FOLDER}`"),
        };
        let what = if folder.is_empty() {
            "the working folder has no name".to_owned()
        } else if folder.starts_with('~') && !on_hosts {
            format!("`{folder}` is not the path of a folder in a container")
        } else if is_absolute(folder) {
            continue;
        } else if leads_up {
            format!("`{folder}` is not below the folder of `files`")
        } else if files.is_empty() {
            format!("`{folder}` is relative to the folder of `files`, and there are none")
        } else if !has_folder(files, folder) {
            format!("`{folder}` is no folder of `files`")
        } else {
            continue;
        };
        context.say_of_value(Diagnostic::error(Code::CodeKeys, what).at_value(place, "").help(help));
    }
}

/// Returns true for a folder of the files, or for the one that they are in.
fn has_folder(files: &SourceFiles, folder: &str) -> bool {
    let parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    parts.is_empty() || files.has_folder(&parts.join("/"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};
    use std::path::Path;

    use crate::{Loaded, Options, parse_in};
    use kinds::kubernetes::pod_code::MAX_BYTES;

    const LOCAL: &str =
        "[stack]\nname = \"s\"\n[local]\n[environment.main]\npath = \"/opt/dask/bin/python\"\n";
    const KUBERNETES: &str = "[stack]\nname = \"s\"\n[kubernetes]\n[dask_operator]\nversion = \"2026.3.0\"\n";

    fn load(folder: &Path, target: &str, files: &str) -> Result<Loaded, Vec<String>> {
        let text = format!("{target}[dask_cluster.d]\nimage = \"demo:1\"\nfiles = {files}\n");
        let options = Options { env: &|_| None, vars: &BTreeMap::new(), helm: None };
        let loaded = parse_in(folder, "stack.toml", &text, &options);
        loaded.map_err(|failure| failure.diagnostics.into_iter().map(|one| one.message).collect())
    }

    fn digest(folder: &Path, files: &str) -> String {
        load(folder, LOCAL, files).unwrap().stack.dask_cluster["d"].code.contents.digest()
    }

    #[test]
    fn the_content_decides() {
        let top = tempfile::tempdir().unwrap();
        let at = |path: &str| top.path().join(path);
        fs::create_dir_all(at("lib/__pycache__")).unwrap();
        for (path, text) in [("lib/a.py", "1"), ("lib/__pycache__/a.pyc", "x"), ("lib/b.pyc", "x")] {
            fs::write(at(path), text).unwrap();
        }
        let first = digest(top.path(), "[\"lib/\"]");
        fs::write(at("lib/a.py"), "1").unwrap();
        fs::write(at("lib/__pycache__/a.pyc"), "other").unwrap();
        assert_eq!(digest(top.path(), "[\"lib/\"]"), first, "touched, and what is not copied");
        assert_eq!(digest(top.path(), "[\"./lib\"]"), first);
        fs::set_permissions(at("lib/a.py"), fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(digest(top.path(), "[\"lib/\"]"), first, "no program");
        fs::write(at("lib/a.py"), "#!1").unwrap();
        let executable = digest(top.path(), "[\"lib/\"]");
        assert_ne!(executable, first);
        fs::write(at("lib/a.py"), "2").unwrap();
        assert_ne!(digest(top.path(), "[\"lib/\"]"), executable);
    }

    #[test]
    fn what_git_leaves_out_is_not_copied_with_a_folder() {
        let top = tempfile::tempdir().unwrap();
        let at = |path: &str| top.path().join(path);
        fs::create_dir_all(at("lib/data/kept")).unwrap();
        fs::create_dir_all(at("lib/my-env")).unwrap();
        fs::create_dir_all(at(".git")).unwrap();
        for (path, text) in [
            (".gitignore", "*.log\n/lib/data/*\n!/lib/data/kept\nlib/named.py\n"),
            ("lib/.gitignore", "!kept.log\n"),
            ("lib/a.py", ""),
            ("lib/a.log", ""),
            ("lib/kept.log", ""),
            ("lib/data/big.bin", ""),
            ("lib/data/kept/b.py", ""),
            ("lib/named.py", ""),
            ("lib/my-env/pyvenv.cfg", ""),
            ("lib/my-env/activate.py", ""),
            ("lib/.a.py.swp", ""),
            ("lib/a.py~", ""),
        ] {
            fs::write(at(path), text).unwrap();
        }
        symlink("nobody@nowhere.1", at("lib/.#a.py")).unwrap();
        let loaded = load(top.path(), LOCAL, "[\"lib\", \"lib/named.py\"]").unwrap();
        let files = &loaded.stack.dask_cluster["d"].code.contents;
        let paths: Vec<&str> = files.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(
            paths,
            ["lib/.gitignore", "lib/a.py", "lib/data/kept/b.py", "lib/kept.log", "lib/named.py"]
        );
    }

    #[test]
    fn the_state_of_hosts_is_not_copied_with_a_folder() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir_all(top.path().join("state/dask-infra/at")).unwrap();
        for path in ["a.py", "state/dask-infra/at/key", "state/other"] {
            fs::write(top.path().join(path), "").unwrap();
        }
        let state = top.path().join("state").display().to_string();
        let env = |name: &str| (name == "XDG_STATE_HOME").then(|| state.clone());
        let options = Options { env: &env, vars: &BTreeMap::new(), helm: None };
        let text = format!("{LOCAL}[dask_cluster.d]\nfiles = [\".\"]\n");
        let loaded = parse_in(top.path(), "stack.toml", &text, &options).unwrap();
        let files = loaded.stack.dask_cluster["d"].code.contents.iter();
        assert_eq!(files.map(|(path, _)| path.as_str()).collect::<Vec<_>>(), ["a.py", "state/other"]);
    }

    #[test]
    fn a_working_folder_is_one_of_the_files() {
        let top = tempfile::tempdir().unwrap();
        fs::create_dir(top.path().join("lib")).unwrap();
        fs::write(top.path().join("lib/a.py"), "").unwrap();
        let said = |more: &str| {
            load(top.path(), KUBERNETES, &format!("[\"lib\"]\n{more}")).err().unwrap_or_default().join("\n")
        };
        for folder in ["lib", "lib/", "./lib", ".", "/data"] {
            assert_eq!(said(&format!("working_dir = \"{folder}\"")), "", "{folder}");
        }
        assert!(said("working_dir = \"lbi\"").contains("`lbi` is no folder of `files`"));
        let pod = "worker = { pod = { containers = [{ name = \"worker\", env = [{ name = \"PYTHONPATH\", value = \"/a\" }] }] } }";
        assert!(said(pod).contains("hides `files`"), "{}", said(pod));
    }

    #[test]
    fn links_and_devices_are_not_copied_from_elsewhere() {
        let top = tempfile::tempdir().unwrap();
        let here = top.path().join("here");
        fs::create_dir_all(here.join("lib/.git")).unwrap();
        fs::write(top.path().join("secret"), "secret").unwrap();
        fs::write(here.join("lib/.git/config"), "token").unwrap();
        fs::write(here.join("lib/a.py"), "").unwrap();
        let loaded = load(&here, LOCAL, "[\"lib\"]").unwrap();
        assert_eq!(loaded.stack.dask_cluster["d"].code.contents.iter().len(), 1);
        symlink(here.join("lib"), here.join("inside")).unwrap();
        assert!(load(&here, LOCAL, "[\"inside\"]").is_ok());
        symlink(top.path().join("secret"), here.join("lib/out")).unwrap();
        symlink(here.join("lib"), here.join("lib/again")).unwrap();
        symlink("nowhere.py", here.join("lib/gone.py")).unwrap();
        symlink("/dev/null", here.join("device")).unwrap();
        let said =
            load(&here, LOCAL, "[\"lib\", \"../secret\", \"device\", \"lib/.git/config\"]").unwrap_err();
        let said = said.join("\n");
        for word in [
            "`lib/out` is outside",
            "`lib/again` is a link to a folder that it is in",
            "no file or folder `lib/gone.py`",
            "`../secret` is outside",
            "`device` is outside",
            "`lib/.git/config` is below",
        ] {
            assert!(said.contains(word), "no {word:?} in:\n{said}");
        }
    }

    #[test]
    fn what_is_too_large_is_refused_with_the_other_ways() {
        let top = tempfile::tempdir().unwrap();
        fs::write(top.path().join("data.bin"), vec![0; MAX_BYTES + 1]).unwrap();
        assert!(load(top.path(), LOCAL, "[\"data.bin\"]").is_ok());
        let said = load(top.path(), KUBERNETES, "[\"data.bin\"]").unwrap_err().join("\n");
        assert!(said.contains("have 977 KiB, and a ConfigMap takes 976"), "{said}");
        fs::File::create(top.path().join("data.bin")).unwrap().set_len(crate::disk::LARGEST + 1).unwrap();
        let said = load(top.path(), LOCAL, "[\"data.bin\"]").unwrap_err().join("\n");
        assert!(said.contains("larger than 16 MiB"), "{said}");
    }
}
