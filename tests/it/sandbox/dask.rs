//! Worker groups, autoscalers and jobs on the sandbox: the same stack as on the real operator (`control_plane::dask`), told by
//! the real program.

use serde_json::json;

use crate::sandbox_server::{ON_GKE, SandboxServer, User};

const STACK: &str = r#"nodes = 3

[dask_operator]
version = "2026.3.0"

[dask_cluster.d]
image = "demo:1"
worker = { replicas = 2, cpu = "500m" }

[dask_cluster.d.group.big]
replicas = 1
cpu = "600m"

[dask_job.train]
like = "d"
args = ["python", "train.py"]
wait = true
"#;

#[test]
fn groups_numbers_and_jobs_live_on_the_sandbox() {
    let served = SandboxServer::fast();
    let user = User::at(&served, format!("{ON_GKE}{STACK}"));
    user.run(&["apply", "--auto-approve"]).expect(0).says("dask_job.train").says("14 added");
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("No changes");
    let groups = "/apis/kubernetes.dask.org/v1/namespaces/default/daskworkergroups";
    let jobs = "/apis/kubernetes.dask.org/v1/namespaces/default/daskjobs";
    let job = served.get(&format!("{jobs}/train"));
    assert_eq!(job["status"]["jobStatus"], "Successful", "{job}");

    // Notebooks scale the group; the number is the file's.
    let scale = json!({ "spec": { "worker": { "replicas": 3 } } });
    let (code, said) = served.merge(&format!("{groups}/d-default?fieldManager=kr8s"), &scale);
    assert_eq!(code, 200, "{said}");
    user.run(&["plan"]).expect(0).says("spec.worker.replicas: 3 -> 2").says("changed by kr8s");
    user.run(&["apply", "--auto-approve"]).expect(0).says("1 changed");
    user.run(&["plan", "--detailed-exitcode"]).expect(0);

    // To the autoscaler, and back.
    user.edit("replicas = 2, cpu", "replicas = { min = 1, max = 3 }, cpu");
    user.run(&["apply", "--auto-approve"]).expect(0).says("1 added, 1 changed");
    user.run(&["plan", "--detailed-exitcode"]).expect(0);
    user.edit("{ min = 1, max = 3 }", "2");
    let allow = ["apply", "--auto-approve", "--allow", "delete:DaskAutoscaler/default/d"];
    user.run(&allow).expect(0).says("1 destroyed");
    user.run(&["plan", "--detailed-exitcode"]).expect(0);

    // A changed group is made anew; a changed cluster brings its group back, and does not run the job again.
    user.edit("cpu = \"600m\"", "cpu = \"700m\"");
    let allow = ["apply", "--auto-approve", "--allow", "replace:dask_cluster.d.group.big"];
    user.run(&allow).expect(0).says("1 replaced");
    user.edit("image = \"demo:1\"", "image = \"demo:2\"");
    user.run(&["plan"]).expect(0).says("deleted with dask_cluster.d").says("the job copied its cluster");
    user.run(&["apply", "--auto-approve", "--allow", "replace:dask_cluster.d"]).expect(0).says("1 added");
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("has no effect");

    // A changed job runs anew, with approval.
    user.edit("train.py", "train2.py");
    user.run(&["apply", "--auto-approve"]).expect(3).says("--allow replace:dask_job.train");
    user.run(&["apply", "--auto-approve", "--allow", "replace:dask_job.train"]).expect(0).says("1 replaced");
    let code = served.delete(&format!("{jobs}/train"));
    assert_eq!(code, 200);
    user.run(&["plan", "--detailed-exitcode"]).expect(0).says("was deleted since");

    user.run(&["destroy", "--auto-approve"]).expect(0).says("Destroy complete");
    user.run(&["destroy", "--auto-approve"]).expect(0).says("Nothing to destroy");
}
