//! The user's own code with the real `distributed` on this machine: tasks import modules of `files`, an edit reaches them, and what
//! nothing uses is removed.

use std::fs;
use std::path::Path;

use crate::hosts::local::LocalUser;
use crate::real::{Part, needs};
use crate::sandbox_server::{entries_in, wait_until};

const TRAIN: &str = "
import os
from distributed import Client
from lib.rates import rate
with Client() as client:
    print('the rate is', client.submit(rate).result(), 'in', os.path.basename(os.getcwd()))
";

/// A function of a module is sent by its name, so scheduler and workers must have the module.
fn rates(rate: u32) -> String {
    format!("def rate():\n    return {rate}\n")
}

fn with_code() -> LocalUser {
    let job = "[dask_job.train]\nlike = \"work\"\nwait = true\nargs = [\"python\", \"train.py\"]\n\n[check.smoke]\nrun = [\"python\", \"-c\", \"import lib.rates\"]\n";
    let here = LocalUser::new("replicas = 1", job);
    here.user.edit("[dask_cluster.work]\n", "[dask_cluster.work]\nfiles = [\"train.py\", \"lib/\"]\n");
    fs::create_dir_all(here.user.path().join("lib/__pycache__")).unwrap();
    write(&here, "train.py", TRAIN);
    write(&here, "lib/rates.py", &rates(1));
    write(&here, "lib/__pycache__/rates.pyc", "not code");
    here
}

fn write(here: &LocalUser, path: &str, text: &str) {
    fs::write(here.user.path().join(path), text).unwrap();
}

fn folders(here: &LocalUser) -> Vec<String> {
    let name = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    entries_in(&here.folder().join("files")).iter().map(|path| name(path)).collect()
}

#[test]
fn tasks_import_the_users_modules_and_an_edit_reaches_them() {
    needs!(&[Part::Operator]);
    let here = with_code();
    here.run(&["plan"]).expect(0).says("1 worker with 1 thread");
    here.apply().expect(0).says("the rate is 1 in").says("check.smoke");
    here.nothing_to_do();
    let before = folders(&here);
    assert_eq!(before.len(), 1, "{before:?}");
    assert!(!here.folder().join("files").join(&before[0]).join("lib/__pycache__/rates.pyc").exists());
    // A touched file is no change.
    write(&here, "lib/rates.py", &rates(1));
    here.nothing_to_do();
    write(&here, "lib/rates.py", &rates(2));
    let plan = here.run(&["plan"]).expect(0);
    plan.says("lib/rates.py changed").says("the job has it as it was when it started");
    here.run(&["apply", "--auto-approve", "--allow", "replace:dask_cluster.work"]).expect(0);
    here.nothing_to_do();
    let after = folders(&here);
    assert!(after.contains(&before[0]), "the job names its files: {after:?}");
    assert_eq!(after.len(), 2, "{after:?}");
    let allow = "replace:dask_job.train";
    let ran = here.run(&["run", "dask_job.train", "--auto-approve", "--allow", allow]).expect(0);
    ran.says("the rate is 2 in");
    here.nothing_to_do();
    wait_until("the files before are removed", || folders(&here).len() == 1);
    // What a person changed in the folder is written again.
    let file = here.folder().join("files").join(&folders(&here)[0]).join("lib/rates.py");
    fs::write(&file, "def rate():\n    return 3\n").unwrap();
    here.run(&["plan"]).expect(0).says("they are written again");
    here.apply().expect(0);
    assert_eq!(fs::read_to_string(&file).unwrap(), rates(2));
    here.nothing_to_do();
    here.is_gone();
    assert!(entries_in(here.state.path()).is_empty(), "nothing is left");
}

#[test]
fn a_job_with_files_of_its_own_runs_again_when_they_change() {
    needs!(&[Part::Operator]);
    let here = with_code();
    here.user.edit(
        "like = \"work\"\n",
        "like = \"work\"\nfiles = [\"own.py\", \"lib/\"]\nworking_dir = \"lib\"\n",
    );
    here.user.edit("\"train.py\"]\n\n[check", "\"../own.py\"]\n\n[check");
    write(&here, "own.py", TRAIN);
    here.apply().expect(0).says("the rate is 1 in lib");
    here.nothing_to_do();
    write(&here, "own.py", &format!("{TRAIN}print('edited')\n"));
    here.run(&["plan"]).expect(0).says("own.py changed").says("replace:dask_job.train");
    here.run(&["apply", "--auto-approve", "--allow", "replace:dask_job.train"]).expect(0).says("edited");
    here.nothing_to_do();
    here.is_gone();
}
