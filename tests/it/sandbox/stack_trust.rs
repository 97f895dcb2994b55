//! A stack is input: it chooses no program, and leads to no file outside of its repository.

use std::path::Path;

use crate::sandbox_server::{CommandOutput, User};

const GKE: &str = "[gke]\nproject = \"demo\"\nlocation = \"us-central1-c\"\n";
const CHART: &str = "[helm_release.r]\nchart = \"./chart\"\n";
/// Looks only at files.
const OFFLINE: &[&[&str]] = &[&["validate"], &["plan", "--offline"], &["show", "--effective"], &["graph"]];

fn write(user: &User, name: &str, text: &str) {
    let path = user.path().join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// A program that leaves its environment behind; the name to call it by.
fn program(user: &User, name: &str, prints: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    let ran = user.path().join("ran");
    write(user, name, &format!("#!/bin/sh\nenv > '{}'\n{prints}\n", ran.display()));
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(user.path().join(name), mode).unwrap();
}

fn helm_ran(user: &User) -> bool {
    user.path().join("ran").exists()
}

fn stack(user: &User, header: &str, rest: &str) {
    write(user, "stack.toml", &format!("[stack]\nname = \"s\"\n{header}\n{rest}"));
}

fn chart(user: &User) {
    write(user, "chart/Chart.yaml", "apiVersion: v2\nname: c\nversion: 1.0.0\n");
}

#[test]
fn a_stack_chooses_no_helm() {
    let user = User::empty();
    chart(&user);
    let says = "case \"$1\" in version) echo v4.0.0;; *) echo '{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"c\"}}';; esac";
    program(&user, "evil.sh", says);
    for helm in ["./evil.sh", &user.path().join("evil.sh").display().to_string()] {
        stack(&user, &format!("helm = \"{helm}\"\n"), &format!("{GKE}\n{CHART}"));
        for words in OFFLINE {
            let said = user.run(words);
            assert_eq!(said.code, 1, "{words:?}: {}", said.err);
            said.says("stack.toml:3:1").says("--helm PATH");
            assert!(!helm_ran(&user), "{words:?}");
        }
    }
    // The operator does, and it gets no credentials.
    stack(
        &user,
        "",
        &format!(
            "{GKE}\n[cluster]\nname = \"c\"\n\n[node_pool.p]\nmachine_type = \"e2-standard-4\"\n\n{CHART}"
        ),
    );
    let mut command = user.command(&["--helm", "./evil.sh", "plan", "--offline"]);
    command.env("GITHUB_TOKEN", "canary").env("ACTIONS_ID_TOKEN_REQUEST_TOKEN", "canary");
    CommandOutput::of(&command.output().unwrap()).expect(0).says("helm_release.r");
    let environment = std::fs::read_to_string(user.path().join("ran")).unwrap();
    assert!(!environment.contains("canary"), "{environment}");
    std::fs::remove_file(user.path().join("ran")).unwrap();
    let mut command = user.command(&["plan", "--offline"]);
    CommandOutput::of(&command.env("DASK_INFRA_HELM", "./evil.sh").output().unwrap()).expect(0);
    assert!(helm_ran(&user));
}

#[test]
fn a_kubeconfig_of_the_repository_runs_nothing() {
    let user = User::empty();
    std::fs::create_dir(user.path().join(".git")).unwrap();
    program(&user, "evil.sh", "exit 1");
    let evil = user.path().join("evil.sh").display().to_string();
    let users = [
        format!(
            "exec: {{ apiVersion: client.authentication.k8s.io/v1, command: '{evil}', interactiveMode: Never }}"
        ),
        format!("auth-provider: {{ name: gcp, config: {{ cmd-path: '{evil}' }} }}"),
    ];
    for runs in users {
        let config = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts:\n- name: c\n  context: {{ cluster: k, user: u }}\n\
             clusters:\n- name: k\n  cluster: {{ server: 'https://127.0.0.1:1' }}\nusers:\n- name: u\n  user:\n    {runs}\n"
        );
        write(&user, "kc.yaml", &config);
        write(
            &user,
            "infra/stack.toml",
            "[stack]\nname = \"s\"\n\n[kubernetes]\nkubeconfig = \"../kc.yaml\"\n\n[namespace.n]\n",
        );
        for command in ["plan", "status"] {
            user.run(&["--stack", "infra", command])
                .expect(1)
                .says("DI0240")
                .says("evil.sh")
                .says("--trust-stack");
            assert!(!helm_ran(&user), "{command}");
        }
    }
    write(
        &user,
        "kc.yaml",
        &std::fs::read_to_string(user.path().join("kc.yaml"))
            .unwrap()
            .replace(
                "auth-provider: { name: gcp, config: { cmd-path:",
                "exec: { apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, command:",
            )
            .replace("' } }", "' }"),
    );
    let said = user.run(&["--stack", "infra", "--trust-stack", "plan"]);
    assert!(helm_ran(&user), "{}", said.err);
}

#[test]
fn a_kubeconfig_of_the_repository_sends_no_file_of_this_machine() {
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("token");
    std::fs::write(&secret, "canary").unwrap();
    let secret = secret.display();
    let user = User::empty();
    std::fs::create_dir(user.path().join(".git")).unwrap();
    write(&user, "inside", "not a secret");
    stack(&user, "", "[kubernetes]\nkubeconfig = \"kc.yaml\"\n\n[namespace.n]\n");
    let server = "server: 'https://127.0.0.1:1'";
    for (cluster, of_user) in [
        (server.to_owned(), format!("tokenFile: '{secret}'")),
        (server.to_owned(), format!("client-certificate: '{secret}', client-key: inside")),
        (server.to_owned(), format!("client-certificate: inside, client-key: '{secret}'")),
        (format!("{server}, certificate-authority: '{secret}'"), "token: t".to_owned()),
    ] {
        let config = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts:\n- name: c\n  context: {{ cluster: k, user: u }}\n\
             clusters:\n- name: k\n  cluster: {{ {cluster} }}\nusers:\n- name: u\n  user: {{ {of_user} }}\n"
        );
        write(&user, "kc.yaml", &config);
        user.run(&["plan"]).expect(1).says("DI0240").says("names a file outside it").says("--trust-stack");
    }
    let own = "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts:\n- name: c\n  context: { cluster: k, user: u }\n\
               clusters:\n- name: k\n  cluster: { server: 'https://127.0.0.1:1' }\nusers:\n- name: u\n  user: { tokenFile: inside }\n";
    write(&user, "kc.yaml", own);
    let said = user.run(&["plan"]);
    assert!(!said.err.contains("DI0240"), "{}", said.err);
}

#[test]
fn a_kubeconfig_without_end_is_not_read() {
    let user = User::empty();
    for kubeconfig in ["/dev/zero", "pipe"] {
        if kubeconfig == "pipe"
            && !std::process::Command::new("mkfifo")
                .arg(user.path().join("pipe"))
                .status()
                .is_ok_and(|made| made.success())
        {
            continue;
        }
        stack(&user, "", &format!("[kubernetes]\nkubeconfig = \"{kubeconfig}\"\n\n[namespace.n]\n"));
        user.run(&["validate"]).expect(0);
        user.run(&["plan"]).expect(1).says("not a regular file");
    }
}

#[test]
fn what_lies_outside_is_not_read() {
    let outside = tempfile::tempdir().unwrap();
    let secret = outside.path().join("secret.yaml");
    std::fs::write(&secret, "canary: [").unwrap();
    let secret = secret.display().to_string();
    let user = User::empty();
    chart(&user);
    std::os::unix::fs::symlink(&secret, user.path().join("link.yaml")).unwrap();
    let up = |name: &str| format!("../../../../../../../../..{name}");
    let section = |key: &str, value: &str| format!("{GKE}\n[manifest.m]\n{key} = \"{value}\"\n");
    let rows = [
        format!("extends = \"{secret}\"\n[stack]\nname = \"s\"\n"),
        section("file", &secret),
        section("file", &up(&secret)),
        section("file", "link.yaml"),
        format!("{}definitions = \"{secret}\"\n", section("file", "here.yaml")),
        format!("{GKE}\n[dask_cluster.d]\nimage = \"i\"\nworker = {{ pod = \"{secret}\" }}\n"),
        format!("{GKE}\n{CHART}values_files = [\"{secret}\"]\n"),
        format!("{GKE}\n[helm_release.r]\nchart = \"{}\"\n", outside.path().display()),
    ];
    write(&user, "here.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: { name: c }\n");
    std::fs::write(outside.path().join("Chart.yaml"), "name: canary\n").unwrap();
    for row in rows {
        let text =
            if row.starts_with("extends") { row.clone() } else { format!("[stack]\nname = \"s\"\n\n{row}") };
        write(&user, "stack.toml", &text);
        let CommandOutput { code, out, err } = user.run(&["validate"]);
        assert_eq!(code, 1, "{row}: {err}");
        assert!(err.contains("DI0240") && err.contains("--trust-stack"), "{row}: {err}");
        assert!(!format!("{out}{err}").contains("canary"), "{row}: {err}");
    }
    // A chart's own files are what its templates print.
    std::os::unix::fs::symlink(&secret, user.path().join("chart/secret")).unwrap();
    stack(&user, "", &format!("{GKE}\n{CHART}"));
    user.run(&["validate"]).expect(1).says("DI0240").says("chart/secret");
    // Whoever knows the author says so.
    stack(&user, "", &section("file", &secret));
    user.run(&["--trust-stack", "validate"]).expect(1).says("canary");
    let mut command = user.command(&["validate"]);
    CommandOutput::of(&command.env("DASK_INFRA_TRUST_STACK", "1").output().unwrap()).expect(1).says("canary");
}

#[test]
fn only_regular_files_are_read() {
    let user = User::empty();
    let section = |value: &Path| format!("{GKE}\n[manifest.m]\nfile = \"{}\"\n", value.display());
    stack(&user, "", &section(Path::new("/dev/zero")));
    user.run(&["--trust-stack", "validate"]).expect(1).says("not a regular file");
    let large = std::fs::File::create(user.path().join("large.yaml")).unwrap();
    large.set_len(17 * 1024 * 1024).unwrap();
    stack(&user, "", &section(Path::new("large.yaml")));
    user.run(&["validate"]).expect(1).says("larger than 16 MiB");
    let made = std::process::Command::new("mkfifo").arg(user.path().join("pipe")).status();
    if made.is_ok_and(|status| status.success()) {
        stack(&user, "", &section(Path::new("pipe")));
        user.run(&["validate"]).expect(1).says("not a regular file");
    }
}
