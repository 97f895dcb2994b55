//! Waits for nodes: whatever work waits for a node of an autoscaled pool, an apply that gets none ends soon, with the pool and the
//! cause; one that gets a node late is done.

use std::fmt;
use std::time::Duration;

use sandbox::{Options, Quota, Scale, Stockout};

use super::cases;
use super::harness::{Harness, SCALE};
use super::laws::{self, Tally};
use super::player::{Player, paused};
use super::script::{Command, Edit, Step};
use crate::sandbox_server::ON_GKE;

/// The reason why no node comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// GKE has no machines in the zone.
    StockOut,
    /// The project may have no GPUs.
    Quota,
    /// The pool has one node, and the work needs two.
    Full,
    /// GKE has machines at the third attempt.
    Late,
    /// The Pods ask for more memory than a machine has, and no autoscaler says so.
    TooLarge,
}

#[derive(Clone, Copy, Debug)]
enum Work {
    Check,
    Cluster,
    Job,
    Deployment,
    StatefulSet,
}

#[derive(Clone, Debug)]
struct Case {
    fault: Fault,
    work: Work,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{self:?}", self.file().stack)
    }
}

const DEPLOYMENT: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: { name: web }
spec:
  replicas: 2
  selector: { matchLabels: { app: web } }
  template:
    metadata: { labels: { app: web } }
    spec:
      nodeSelector: { cloud.google.com/gke-nodepool: gpu }
      containers: [{ name: web, image: "demo:1", resources: { limits: { nvidia.com/gpu: 1 } } }]
"#;

impl Case {
    /// The stack before the work comes.
    fn without_work(&self) -> Edit {
        let Edit { stack, files } = self.file();
        let pools = stack.rfind("nodes = ").and_then(|at| Some(at + stack[at..].find('\n')? + 1)).unwrap();
        Edit { stack: stack[..pools].to_owned(), files }
    }

    /// At 600 times the speed GKE tries again before the client gives up; at twice it a Deployment's own deadline is later.
    fn scale(&self) -> Scale {
        if self.fault == Fault::Late { SCALE } else { Scale { time_scale: 2.0 } }
    }

    fn file(&self) -> Edit {
        let nodes = match self.fault {
            Fault::Full => "{ min = 0, max = 1 }",
            Fault::TooLarge => "1",
            Fault::StockOut | Fault::Quota | Fault::Late => "{ min = 0, max = 4 }",
        };
        let work = match self.work {
            Work::Check => "[check.cuda]\nrun = \"cuda-vectoradd\"\npool = \"gpu\"\n",
            Work::Cluster => {
                "[dask_operator]\nversion = \"2026.3.0\"\n\n[dask_cluster.rapids]\nimage = \"demo:1\"\n\
                 scheduler = { pool = \"cpu\" }\nworker = { replicas = 2, gpus = 1, pool = \"gpu\" }\n"
            }
            Work::Job => {
                "[job.train]\nimage = \"demo:1\"\ncommand = [\"train\"]\ngpus = 1\npool = \"gpu\"\nparallelism = 2\nwait = true\n"
            }
            Work::Deployment | Work::StatefulSet => "[manifest.web]\nfile = \"web.yaml\"\n",
        };
        let stack = format!(
            "{ON_GKE}\n[node_pool.gpu]\nmachine_type = \"n1-standard-4\"\naccelerator = \"nvidia-tesla-t4\"\n\
             nodes = {nodes}\n\n{work}"
        );
        let mut manifest = DEPLOYMENT.to_owned();
        if self.fault == Fault::TooLarge {
            manifest = manifest.replace("gpu: 1 }", "gpu: 1, memory: 64Gi }");
        }
        if matches!(self.work, Work::StatefulSet) {
            manifest = manifest.replace("kind: Deployment", "kind: StatefulSet");
        }
        Edit { stack, files: [("web.yaml".to_owned(), manifest)].into() }
    }

    fn options(&self) -> Options {
        let mut options = Options::default();
        match self.fault {
            Fault::StockOut => options.stockouts = vec![Stockout::forever("gpu")],
            Fault::Late => options.stockouts = vec![Stockout::next("gpu", 2)],
            Fault::Quota => {
                options.gke_quota =
                    Quota { limits: [("GPUS_ALL_REGIONS".to_owned(), 0)].into(), ..Quota::default() }
            }
            Fault::Full | Fault::TooLarge => {}
        }
        options
    }

    /// The words that tell the cause.
    fn words(&self) -> &'static str {
        match self.fault {
            Fault::StockOut | Fault::Late => "out of the machines of node_pool.gpu",
            Fault::Quota => "quota does not allow more machines for node_pool.gpu",
            Fault::Full => "node_pool.gpu has its maximum of nodes",
            Fault::TooLarge => "it asks for 64Gi of memory",
        }
    }

    async fn holds(&self, tally: &Tally) -> Result<(), String> {
        let mut player = Player::with_harness(Harness::at_scale(self.scale(), self.options()));
        let step = Step::Apply(Command::default());
        for edit in [self.without_work(), self.file()] {
            if let Some(why) = player.step(&step).await.refused.filter(|_| player.stack.is_some()) {
                return Err(why);
            }
            if let Some(why) = player.step(&Step::Edit(edit)).await.refused {
                return Err(why);
            }
        }
        let done = player.step(&step).await;
        tally.step(&step, &done);
        laws::deletions_are_named(&player, &step, &done)?;
        let failures = done.failures().join("; ");
        // A check needs one GPU, and the pods of a job take turns.
        let is_met =
            matches!((self.fault, self.work), (Fault::Late, _) | (Fault::Full, Work::Check | Work::Job));
        if is_met {
            return if done.is_whole() { Ok(()) } else { Err(format!("a node came: {failures}")) };
        }
        tally.count("no node");
        if !failures.contains("DI0413") || !failures.contains(self.words()) {
            return Err(format!("it ended after {:?} with {failures}", done.took));
        }
        // Two minutes after the refusal, which GKE needs up to two for.
        match done.took <= Duration::from_secs(240) {
            true => Ok(()),
            false => Err(format!("it took {:?}", done.took)),
        }
    }
}

/// Half of the pairs, so that each fault and each work is met; all of them in a night.
#[test]
fn a_wait_for_a_node_that_never_comes_ends_with_its_cause() {
    let tally = Tally::default();
    let faults = [Fault::StockOut, Fault::Quota, Fault::Full, Fault::Late];
    let works = [Work::Check, Work::Cluster, Work::Job, Work::Deployment];
    let pairs = faults
        .into_iter()
        .zip(0..)
        .flat_map(|fault| works.into_iter().zip(0..).map(move |work| (fault, work)));
    let pairs = pairs.filter(|((_, row), (_, column))| (row + column) % 2 == 1 || cases::count(8) >= 16);
    // At the speed of those that come late a Deployment's own deadline of ten minutes comes first.
    // Pods of sections that are too large are refused before.
    let too_large = [Work::Deployment, Work::StatefulSet].map(|work| Case { fault: Fault::TooLarge, work });
    let pairs = pairs.map(|((fault, _), (work, _))| Case { fault, work }).chain(too_large);
    for case in pairs.filter(|case| !matches!((case.fault, case.work), (Fault::Late, Work::Deployment))) {
        paused(case.holds(&tally)).unwrap_or_else(|why| panic!("{why}\n\n{case}"));
    }
    assert!(tally.of("no node") > 0 && tally.of("apply: done") > 0);
}
