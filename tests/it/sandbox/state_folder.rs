//! The folder of a sandbox: what is not one is not deleted, what others say in it is not believed, and a full disk is no
//! success.

#![cfg(unix)]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::sandbox_server::{CommandOutput, User};

const STACK: &str = "[stack]\nname = \"s\"\n\n[gke]\nproject = \"demo\"\nlocation = \"us-central1-c\"\n\n\
    [cluster]\nname = \"c\"\n\n[node_pool.p]\nmachine_type = \"e2-standard-4\"\n";

/// Somebody's configuration.
fn configuration(folder: &Path) {
    fs::create_dir_all(folder.join("gcloud")).unwrap();
    for name in ["gcloud/credentials.db", "kubeconfig", "access-token", "ca.key"] {
        fs::write(folder.join(name), "precious").unwrap();
    }
}

fn is_whole(folder: &Path) {
    for name in ["gcloud/credentials.db", "kubeconfig", "access-token", "ca.key"] {
        assert_eq!(fs::read_to_string(folder.join(name)).unwrap(), "precious", "{name}");
    }
}

#[test]
fn reset_deletes_sandboxes_only() {
    let user = User::empty();
    let home = user.path().join("home");
    configuration(&home);
    // A link to it, as a repository may bring one along.
    symlink(&home, user.path().join("box")).unwrap();
    let reset = |dir: &str| user.run(&["sandbox", "reset", "--dir", dir]);
    reset("box").expect(1).says("DI0501").says("is a link").says("nothing was deleted");
    is_whole(&home);
    // The folder itself, with and without the lock of a sandbox.
    reset("home").expect(0).says("Nothing to delete");
    fs::write(home.join("lock"), "").unwrap();
    reset("home").expect(1).says("has no sandbox.redb");
    is_whole(&home);
    // Links in the place of its files lead nowhere else.
    fs::write(user.path().join("victim"), "precious").unwrap();
    fs::create_dir(user.path().join("linked")).unwrap();
    fs::write(user.path().join("linked/lock"), "").unwrap();
    symlink(user.path().join("victim"), user.path().join("linked/sandbox.redb")).unwrap();
    reset("linked").expect(1).says("has no sandbox.redb");
    assert_eq!(fs::read_to_string(user.path().join("victim")).unwrap(), "precious");

    // A real one, with a gcloud folder that is somebody's and more of the user's own: those stay.
    user.write(STACK);
    user.run(&["--sandbox=real", "plan"]).expect(0);
    let real = user.path().join("real");
    fs::create_dir(real.join("gcloud")).unwrap();
    fs::write(real.join("gcloud/credentials.db"), "precious").unwrap();
    fs::write(real.join("notes"), "precious").unwrap();
    reset("real").expect(0).says("Deleted the sandbox");
    let mut left: Vec<_> = fs::read_dir(&real).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["gcloud", "notes"]);
    assert_eq!(fs::read_to_string(real.join("gcloud/credentials.db")).unwrap(), "precious");
}

/// Only root can give a folder away, as tests in containers are.
fn give_to_other_user(folder: &Path) -> bool {
    let nobody = Some(65_534);
    let given = std::os::unix::fs::chown(folder, nobody, nobody);
    if given.is_err() {
        println!("skipped: only root can give a folder to another user");
    }
    given.is_ok()
}

#[test]
fn what_another_user_says_in_a_folder_is_not_believed() {
    let user = User::empty();
    user.write(STACK);
    user.run(&["--sandbox=box", "plan"]).expect(0);
    let folder = user.path().join("box");
    if !give_to_other_user(&folder) {
        return;
    }
    // Somebody holds the lock, and says where the sandbox is to be found.
    let lock = fs::File::options().write(true).open(folder.join("lock")).unwrap();
    lock.lock().unwrap();
    fs::write(folder.join("serve.json"), r#"{ "gke": "http://127.0.0.1:9", "pid": 1 }"#).unwrap();
    for words in [
        &["--sandbox=box", "plan"][..],
        &["--sandbox=box", "apply", "--auto-approve"],
        &["sandbox", "serve", "--dir", "box"],
        &["sandbox", "reset", "--dir", "box"],
    ] {
        user.run(words).expect(1).says("belongs to another user");
    }
    user.run(&["sandbox", "env", "--dir", "box"]).expect(1).says("is not being served");
    user.run(&["sandbox", "kubeconfig", "c", "--dir", "box"]).expect(1).says("is not being served");
    assert!(folder.join("sandbox.redb").exists());
}

#[test]
fn what_a_repository_brought_along_for_clients_is_used_by_none() {
    let user = User::empty();
    let folder = user.path().join("box");
    configuration(&folder);
    fs::remove_file(folder.join("ca.key")).unwrap();
    // Somebody's own gcloud configuration is not deleted: it must be moved away.
    user.run(&["sandbox", "serve", "--dir", "box"])
        .expect(1)
        .says("DI0501")
        .says("gcloud")
        .says("move it away");
    assert_eq!(fs::read_to_string(folder.join("gcloud/credentials.db")).unwrap(), "precious");
    // A repository may also contain the file that marks a folder as made for a sandbox.
    fs::write(folder.join("gcloud/.made-for-a-dask-infra-sandbox"), "").unwrap();
    fs::write(folder.join("kubeconfig"), "precious").unwrap();
    let mut server =
        user.command(&["sandbox", "serve", "--dir", "box"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut ready = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    let gone = !folder.join("kubeconfig").exists() && !folder.join("gcloud").exists();
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(ready.contains("gke") && gone, "{ready}");
}

#[test]
fn a_full_disk_under_the_sandbox_is_no_success() {
    let user = User::empty();
    user.write(format!("{STACK}\n[manifest.m]\nfile = \"m.yaml\"\n"));
    let large = |name: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {{ name: {name}, namespace: default }}\ndata: {{ k: \"{}\" }}\n",
            "x".repeat(900_000)
        )
    };
    fs::write(user.path().join("m.yaml"), ["a", "b", "c", "d"].map(large).join("---\n")).unwrap();
    user.run(&["--sandbox=box", "apply", "--auto-approve", "--target", "node_pool.p"]).expect(0);
    let size = fs::metadata(user.path().join("box/sandbox.redb")).unwrap().len();
    // No file of the process grows beyond this: what it would write fails, as on a full disk.
    let program = user.command(&["--sandbox=box", "apply", "--auto-approve"]);
    let script = format!("trap '' XFSZ; ulimit -f {}; exec \"$0\" \"$@\"", size.div_ceil(512) + 64);
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).arg(program.get_program()).args(program.get_args());
    shell.current_dir(user.path()).env("GOOGLE_CLOUD_PROJECT", "demo").stdin(Stdio::null());
    let said = CommandOutput::of(&shell.output().unwrap()).expect(1).says("is the disk full?");
    for lie in ["Apply complete!", "trying again", "could not be renewed"] {
        assert!(!said.out.contains(lie) && !said.err.contains(lie), "{lie}: {}{}", said.out, said.err);
    }
    // With room again it goes on, and nothing that was said to be done is missing.
    user.run(&["--sandbox=box", "apply", "--auto-approve"]).expect(0);
    user.run(&["--sandbox=box", "plan", "--detailed-exitcode"]).expect(0);
}
