//! The user's own code on a real control plane with the real Dask operator: pods have the files that they were started with, and
//! ConfigMaps that nothing uses are removed.

#![allow(clippy::unwrap_used, reason = "test code outside of test functions")]

use std::collections::BTreeSet;
use std::fs;

use reqwest::Method;
use serde_json::{Value, json};

use crate::real::{DaskFixture, Part, needs};

const JOB: &str = "/apis/kubernetes.dask.org/v1/namespaces/default/daskjobs/train";
const RUNNER: &str = "/api/v1/namespaces/default/pods/train-runner";
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps?labelSelector=dask-infra.dev%2Ffiles%3Dtrue";
const MERGE: &str = "application/merge-patch+json";

const DASK: &str = r#"
[dask_cluster.d]
image = "demo:1"
files = ["train.py", "lib/"]
scheduler = { cpu = "100m" }
worker = { replicas = 1, cpu = "100m" }

[dask_cluster.d.group.more]
replicas = 1
cpu = "100m"

[dask_job.train]
like = "d"
args = ["python", "train.py"]
"#;

/// Returns the names of the ConfigMaps with code.
async fn code_of(fixture: &DaskFixture) -> Vec<String> {
    let list = fixture.client.get(CONFIG_MAPS).await.1;
    let names = list["items"].as_array().unwrap().iter().map(|map| map["metadata"]["name"].as_str().unwrap());
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.sort();
    names
}

fn write(fixture: &DaskFixture, text: &str) {
    let lib = fixture.user.path().join("lib");
    fs::create_dir_all(&lib).unwrap();
    fs::write(lib.join("rates.py"), text).unwrap();
    fs::write(fixture.user.path().join("train.py"), "import lib.rates\n").unwrap();
}

/// Checks that a pod has the files first on its path, and returns the ConfigMap that it mounts.
fn mounted(pod: &Value) -> &str {
    let container = &pod["spec"]["containers"][0];
    let variable = json!({ "name": "PYTHONPATH", "value": "/opt/dask-infra/files" });
    assert!(container["env"].as_array().unwrap().contains(&variable), "{container}");
    assert_eq!(container["workingDir"], "/opt/dask-infra/files");
    let volumes = pod["spec"]["volumes"].as_array().unwrap();
    let volume = volumes.iter().find(|volume| volume["name"] == "dask-infra-files").unwrap();
    volume["configMap"]["name"].as_str().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_keep_the_files_that_they_were_started_with() {
    needs!(&[Part::Etcd, Part::Kubernetes, Part::Kwok, Part::Operator]);
    let fixture = DaskFixture::start(0).await;
    fixture.add(DASK);
    write(&fixture, "RATE = 1\n");
    fixture.run(&["apply", "--auto-approve"]).expect(0);
    assert_eq!(fixture.plan().0, 0, "{}", fixture.plan().1);
    let first = code_of(&fixture).await;
    let [of_cluster, of_job] = first.as_slice() else { panic!("{first:?}") };
    let pods = fixture.client.get("/api/v1/namespaces/default/pods").await.1;
    let dask = pods["items"].as_array().unwrap();
    let mounted_by: BTreeSet<&str> = dask.iter().map(mounted).collect();
    assert_eq!(mounted_by, BTreeSet::from([of_cluster.as_str(), of_job.as_str()]));
    let runner = fixture.client.get(RUNNER).await.1;

    write(&fixture, "RATE = 2\n");
    let (code, plan) = fixture.plan();
    assert!(code == 2 && plan.contains("lib/rates.py changed"), "{plan}");
    let words = ["apply", "--auto-approve", "--allow", "replace:dask_cluster.d"];
    fixture.run(&words).expect(0);
    assert_eq!(fixture.plan().0, 0, "{}", fixture.plan().1);
    let second = code_of(&fixture).await;
    assert!(second.len() == 2 && second.contains(of_job) && !second.contains(of_cluster), "{second:?}");

    // A change of the job's object in place: its cluster runs on with the files before.
    let patch = json!({ "spec": { "job": { "spec": { "restartPolicy": "OnFailure" } } } });
    let path = format!("{JOB}?fieldManager=kubectl");
    let (status, said) = fixture.client.send(Method::PATCH, &path, MERGE, &patch).await;
    assert_eq!(status, 200, "{said}");
    fixture.run(&["apply", "--auto-approve"]).expect(0);
    assert_eq!(fixture.plan().0, 0, "{}", fixture.plan().1);
    let third = code_of(&fixture).await;
    assert!(third.len() == 3 && third.contains(of_job), "{third:?}");
    assert_eq!(fixture.client.get(RUNNER).await.1["metadata"]["uid"], runner["metadata"]["uid"]);

    let words =
        ["apply", "--auto-approve", "--replace", "dask_job.train", "--allow", "replace:dask_job.train"];
    fixture.run(&words).expect(0);
    assert_eq!(fixture.plan().0, 0, "{}", fixture.plan().1);
    let last = code_of(&fixture).await;
    assert!(last.len() == 2 && !last.contains(of_job), "{last:?}");
    let new = fixture.client.get(RUNNER).await.1;
    assert!(last.contains(&mounted(&new).to_owned()));

    fixture.run(&["destroy", "--auto-approve", "--allow", "delete:dask_operator"]).expect(0);
    assert_eq!(code_of(&fixture).await, Vec::<String>::new());
}
