//! Stacks of many objects, and what a program takes for them: for `growth` and for `benches/objects.rs`.

#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "test code outside of test functions, a part for each of its users"
)]

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Of ten objects of a namespace seven are ConfigMaps; the others are one of each of these.
const NAMESPACES: usize = 10;

/// So many objects, with their namespaces.
pub fn objects(count: usize) -> Vec<Value> {
    let namespace = |number: usize| format!("bench-{number}");
    let mut objects: Vec<Value> = (0..NAMESPACES)
        .map(|number| json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace(number) } }))
        .collect();
    for number in 0..count.saturating_sub(NAMESPACES) {
        let at = |kind: &str| json!({ "name": format!("{kind}-{number}"), "namespace": namespace(number % NAMESPACES) });
        let app = json!({ "app": format!("app-{number}") });
        objects.push(match number / NAMESPACES % 10 {
            7 => json!({
                "apiVersion": "v1", "kind": "Service", "metadata": at("service"),
                "spec": { "selector": app, "ports": [{ "name": "tcp", "port": 8786 }, { "name": "http", "port": 8787 }] },
            }),
            8 => json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": at("account") }),
            9 => json!({
                "apiVersion": "apps/v1", "kind": "Deployment", "metadata": at("deployment"),
                "spec": {
                    "replicas": 0,
                    "selector": { "matchLabels": app },
                    "template": {
                        "metadata": { "labels": app },
                        "spec": { "containers": [{
                            "name": "main", "image": "example.com/image:1", "args": ["serve", "--quiet"],
                            "env": [{ "name": "LEVEL", "value": "info" }],
                            "resources": { "limits": { "cpu": "1", "memory": "1Gi" } },
                        }] },
                    },
                },
            }),
            _ => {
                let data = (0..5).map(|key| (format!("key-{key}"), json!(format!("value {key} of {number}"))));
                let data: serde_json::Map<String, Value> = data.collect();
                json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": at("config"), "data": data })
            }
        });
    }
    objects
}

/// Resources that a command used.
pub struct ResourceUse {
    pub time: Duration,
    /// The most that was resident, in MiB.
    pub resident: u64,
    /// Seconds of CPU, and what it said.
    pub cpu: f64,
    pub said: String,
}

/// Runs a program to its end, and looks at it all the while.
pub fn run(program: &Path, words: &[&str], folder: &Path, codes: &[i32]) -> ResourceUse {
    let began = Instant::now();
    let output = fs::File::create(folder.join("said.txt")).unwrap();
    let errors = output.try_clone().unwrap();
    let mut child = Command::new(program)
        .args(words)
        .current_dir(folder)
        .env("HOME", folder)
        .stdin(Stdio::null())
        .stdout(output)
        .stderr(errors)
        .spawn()
        .unwrap();
    let (mut resident, mut cpu) = (0, 0.0);
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        let of = |name: &str| fs::read_to_string(format!("/proc/{}/{name}", child.id())).unwrap_or_default();
        let status = of("status");
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak = peak.and_then(|peak| peak.trim().trim_end_matches(" kB").parse::<u64>().ok());
        resident = resident.max(peak.unwrap_or(0) / 1024);
        // Fields 14 and 15, after the name in brackets: hundredths of a second. Source: proc(5).
        let stat = of("stat");
        let fields = stat.rsplit(')').next().unwrap_or_default().split(' ');
        let ticks: Vec<f64> = fields.skip(12).take(2).filter_map(|ticks| ticks.parse().ok()).collect();
        cpu = f64::max(cpu, ticks.iter().sum::<f64>() / 100.0);
        std::thread::sleep(Duration::from_millis(5));
    };
    let said = fs::read_to_string(folder.join("said.txt")).unwrap();
    assert!(codes.contains(&status.code().unwrap_or(-1)), "{words:?}: {status}\n{said}");
    ResourceUse { time: began.elapsed(), resident, cpu, said }
}

/// A folder with a stack of these objects.
pub fn stack(folder: &Path, objects: &[Value], kubeconfig: Option<&Path>) {
    let mut yaml = String::new();
    for object in objects {
        writeln!(yaml, "---\n{object}").unwrap();
    }
    fs::write(folder.join("all.yaml"), yaml).unwrap();
    let place = kubeconfig.map(|path| format!("kubeconfig = {:?}\n", path.display().to_string()));
    let place = place.unwrap_or_else(|| "context = \"bench\"\n".to_owned());
    let text =
        format!("[stack]\nname = \"bench\"\n\n[kubernetes]\n{place}\n[manifest.all]\nfile = \"all.yaml\"\n");
    fs::write(folder.join("stack.toml"), text).unwrap();
}
