//! `scale` against a served sandbox: the live number, the file, who else writes it, and that nobody else's workers go.

#![allow(clippy::unwrap_used, reason = "test code outside of test functions")]

use std::collections::BTreeMap;
use std::fs;

use crate::sandbox_server::{ON_GKE, SandboxServer, User};

const STACK: &str = r#"# The lab's cluster.
[stack]
name = "lab"

[gke]
project = "demo"
location = "us-central1-c"

[vars]
small = 1

[cluster]
name = "lab"

[node_pool.cpu]
machine_type = "e2-standard-16"
nodes = 2                              # two are enough

[dask_operator]
version = "2026.3.0"

[dask_cluster.d]
image = "demo:1"
worker = { cpu = "1",   replicas = 2 } # by day

[dask_cluster.d.group.big]
replicas = 2
cpu = "2"

[dask_cluster.d.group.small]
replicas = "${var.small}"

[dask_cluster.free]
image = "demo:1"
worker = { replicas = { start = 1 } }

[dask_cluster.auto]
image = "demo:1"
worker = { replicas = { min = 0, max = 3 } }

[manifest.web]
file = "web.yaml"
"#;

const WEB: &str = r"
apiVersion: apps/v1
kind: Deployment
metadata: { name: web }
spec:
  replicas: 1
  selector: { matchLabels: { app: web } }
  template:
    metadata: { labels: { app: web } }
    spec: { containers: [{ name: web, image: 'web:1' }] }
";

struct Fixture {
    served: SandboxServer,
    user: User,
}

impl Fixture {
    fn started() -> Self {
        let served = SandboxServer::fast();
        let user = User::at(&served, STACK);
        fs::write(user.path().join("web.yaml"), WEB).unwrap();
        user.run(&["apply", "--auto-approve"]).expect(0);
        Self { served, user }
    }

    /// Names of worker Deployments by their group.
    fn workers(&self) -> BTreeMap<String, Vec<String>> {
        let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let list = self.served.get("/apis/apps/v1/namespaces/default/deployments");
        for item in list["items"].as_array().unwrap() {
            let group = item["metadata"]["labels"]["dask.org/workergroup-name"].as_str();
            let Some(group) = group else { continue };
            let name = item["metadata"]["name"].as_str().unwrap();
            found.entry(group.to_owned()).or_default().push(name.to_owned());
        }
        found
    }

    fn text(&self) -> String {
        self.user.stack()
    }
}

fn names(of: &BTreeMap<String, Vec<String>>, group: &str) -> Vec<String> {
    of.get(group).cloned().unwrap_or_default()
}

#[test]
fn a_number_is_changed_at_once_and_kept_when_asked() {
    let fixture = Fixture::started();
    let user = &fixture.user;
    let before = fixture.workers();

    // Without a terminal nobody can say yes.
    user.run(&["scale", "dask_cluster.d", "3"]).expect(3);
    user.run(&["scale", "dask_cluster.d", "2", "--auto-approve"]).expect(0).says("No changes");
    user.run(&["scale", "dask_cluster.d", "3", "--auto-approve"])
        .expect(0)
        .says("spec.worker.replicas: 2 -> 3")
        .says("the stack file has 2 workers (stack.toml:24:36)")
        .says("DI0430");
    assert_eq!(fixture.text(), STACK, "the file is as it was");
    let up = fixture.workers();
    assert_eq!(names(&up, "d-default").len(), 3);
    assert!(names(&before, "d-default").iter().all(|name| names(&up, "d-default").contains(name)));
    assert_eq!(names(&up, "d-big"), names(&before, "d-big"));
    user.run(&["plan", "--detailed-exitcode"])
        .expect(2)
        .says("spec.worker.replicas: 3 -> 2")
        .says("changed by `dask-infra scale`");

    // Kept: one value of the file and nothing else of it; the next plan is empty.
    user.run(&["scale", "dask_cluster.d", "3", "--write"]).expect(0).says("replicas = 3 (was 2)");
    assert_eq!(fixture.text(), STACK.replace("replicas = 2 } # by day", "replicas = 3 } # by day"));
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    user.run(&["scale", "dask_cluster.d", "4", "--write", "--auto-approve"]).expect(0);
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    user.edit("replicas = 4", "replicas = 5");
    user.run(&["apply", "--auto-approve"]).expect(0);
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");

    // Down: nobody of another group goes.
    let many = fixture.workers();
    user.run(&["scale", "dask_cluster.d", "1", "--write", "--auto-approve"])
        .expect(0)
        .says("DI0434")
        .says("does not choose workers of another group");
    let few = fixture.workers();
    assert_eq!(names(&few, "d-default").len(), 1);
    assert!(names(&many, "d-default").contains(&names(&few, "d-default")[0]));
    for group in ["d-big", "d-small"] {
        assert_eq!(names(&few, group), names(&many, group));
    }
    user.run(&["scale", "d.group.big", "0", "--auto-approve"]).expect(0);
    assert_eq!(names(&fixture.workers(), "d-big"), Vec::<String>::new());
    assert_eq!(names(&fixture.workers(), "d-small"), names(&few, "d-small"));
    user.run(&["apply", "--auto-approve"]).expect(0);
    assert_eq!(names(&fixture.workers(), "d-big").len(), 2);
    // A plan of the whole stack says so, too.
    user.edit("[dask_cluster.d.group.big]\nreplicas = 2", "[dask_cluster.d.group.big]\nreplicas = 1");
    user.run(&["apply", "--auto-approve"]).expect(0).says("DI0434");
    assert_eq!(names(&fixture.workers(), "d-small"), names(&few, "d-small"));
}

#[test]
fn whose_number_it_is_decides() {
    let fixture = Fixture::started();
    let user = &fixture.user;
    // Notebooks have it: anybody may change it, and no apply takes it back.
    user.run(&["scale", "dask_cluster.free", "2", "--auto-approve"]).expect(0).says("belongs to notebooks");
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    user.run(&["scale", "dask_cluster.free", "2", "--write"]).expect(0).says("start = 2 (was 1)");
    // The autoscaler has it: nothing is changed.
    user.run(&["scale", "dask_cluster.auto", "2", "--auto-approve"])
        .expect(1)
        .says("DI0432")
        .says("DaskAutoscaler default/auto sets the number of workers")
        .says("stack.toml:39:40");
    // Nodes and pods.
    user.run(&["scale", "node_pool.cpu", "3", "--write", "--auto-approve"])
        .expect(0)
        .says("nodes = 3 (was 2)");
    assert!(fixture.text().contains("nodes = 3                              # two are enough"));
    user.run(&["scale", "manifest.web", "2", "--auto-approve"]).expect(0).says("web.yaml:6:13");
    assert_eq!(fixture.served.get("/apis/apps/v1/namespaces/default/deployments/web")["spec"]["replicas"], 2);
    user.run(&["plan", "--detailed-exitcode"]).expect(2).says("spec.replicas: 2 -> 1");
    user.run(&["scale", "manifest.web", "3", "--write", "--auto-approve"])
        .expect(0)
        .says("web.yaml:6:13: replicas = 3 (was 1)");
    let web = fs::read_to_string(user.path().join("web.yaml")).unwrap();
    assert_eq!(web, WEB.replace("replicas: 1", "replicas: 3"));
    // A number that `--write` cannot edit is reported before anything is done.
    user.run(&["scale", "d.group.small", "3", "--write", "--auto-approve"])
        .expect(1)
        .says("it comes from \"${var.small}\"");
    assert_eq!(names(&fixture.workers(), "d-small").len(), 1);
    user.run(&["scale", "d.group.small", "2", "--auto-approve"]).expect(0);
    // Nothing that has a number.
    user.run(&["scale", "dask_operator", "2"]).expect(1).says("DI0431").says("it has nothing to scale");
    user.run(&["scale", "nothing", "2"]).expect(1).says("is not an address in this stack");
    user.run(&["scale", "dask_cluster.d", "-1"]).expect(1);
    user.run(&["scale", "dask_cluster.d", "12000"]).expect(1).says("10000");
}

#[test]
fn the_file_that_says_the_number_is_the_one_that_is_edited() {
    let user = User::empty();
    let stack = STACK.split("[dask_cluster.free]").next().unwrap();
    fs::write(user.path().join("base.toml"), stack).unwrap();
    let top = "extends = \"base.toml\"\n\n[dask_cluster.d.group.big]\nreplicas = 1 # tonight\n";
    user.write(top);
    user.run(&["--sandbox", "apply", "--auto-approve"]).expect(0);
    let words = |address, number| ["--sandbox", "scale", address, number, "--write", "--auto-approve"];
    // The base may be that of other stacks: what it says is laid over, and stays.
    user.run(&words("dask_cluster.d", "1"))
        .expect(0)
        .says("dask_cluster.d.worker.replicas = 1 (overrides base.toml:24:36");
    user.run(&words("group.big", "2")).expect(0).says("stack.toml:7:12: replicas = 2 (was 1)");
    let read = |name: &str| fs::read_to_string(user.path().join(name)).unwrap();
    assert_eq!(read("base.toml"), stack);
    let now = read("stack.toml");
    assert!(now.starts_with("extends = \"base.toml\"\n") && now.contains("replicas = 2 # tonight"), "{now}");
    assert!(now.contains("worker = { replicas = 1 }"), "{now}");
    user.run(&["--sandbox", "plan", "--detailed-exitcode"]).expect(0).says("No changes");
}

const GPUS: &str = r#"
[node_pool.t4]
machine_type = "n1-standard-4"
accelerator = "nvidia-tesla-t4"
nodes = 1

[dask_operator]
version = "2026.3.0"

[dask_cluster.d]
image = "demo:1"
worker = { replicas = 1, gpus = 1, pool = "t4" }
"#;

/// A group that was scaled to zero is ready without nodes. `status` names the writer of the number, and `scale` does
/// not warn of its own
/// result.
#[test]
fn what_is_scaled_to_nothing_is_ready() {
    let served = SandboxServer::fast();
    let user = User::at(&served, format!("{ON_GKE}{GPUS}"));
    user.run(&["apply", "--auto-approve"]).expect(0);
    for address in ["dask_cluster.d", "node_pool.t4"] {
        let said = user.run(&["scale", address, "0", "--auto-approve"]).expect(0);
        assert!(!said.err.contains("DI0219"), "{}", said.err);
    }
    let status = user.run(&["status"]).expect(0);
    assert!(
        status.out.contains("0 of 0 nodes ready") && status.out.contains("(the stack file has 1)"),
        "{}",
        status.out
    );
    assert!(
        status.out.contains("All 6 are ready.") || status.out.contains("All 5 are ready."),
        "{}",
        status.out
    );
    // More than there is room for is looked at before it is asked for.
    let more = user.run(&["scale", "node_pool.t4", "1000", "--auto-approve"]).expect(1).says("DI0603");
    more.says("NVIDIA_T4_GPUS").says("--skip-preflight");
}
