//! Two stacks that give up what they share at the same time. Each has a lock of its own, so nothing but the version of the
//! shared things keeps each from leaving them to the other.

use apply::Outcome;
use model::resource::{Api, Method};
use plan::Mode;

use super::Request;
use crate::props::harness::{ApplyResult, ApprovedApply, Harness, Process, Stack};
use crate::props::player::paused;

const GKE: &str = "[gke]\nproject = \"demo\"\nlocation = \"us-central1-c\"\n\n[cluster]\nname = \"c\"\n";
const POOL: &str = "\n[node_pool.cpu]\nmachine_type = \"e2-standard-4\"\n";
const OPERATOR: &str = "\n[dask_operator]\nversion = \"2026.3.0\"\n";
const SHARED: [&str; 3] = [
    "/apis/apps/v1/namespaces/dask-operator/deployments/dask-kubernetes-operator",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles/dask-kubernetes-operator-role-cluster",
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/daskclusters.kubernetes.dask.org",
];

/// One command, agreed to.
async fn approved_apply<'s>(
    harness: &Harness,
    pid: u32,
    stack: &'s Stack,
    mode: Mode,
) -> Option<ApprovedApply<'s>> {
    let mut plan = harness.plan(stack, mode).await.unwrap();
    plan.approved = plan.missing_approvals(&[]);
    let process = Process::Number(pid);
    (!plan.has_nothing_to_do()).then_some(ApprovedApply { process, stack, plan, moment: None })
}

async fn run(harness: &Harness, pid: u32, stack: &Stack, mode: Mode) -> Vec<ApplyResult> {
    match approved_apply(harness, pid, stack, mode).await {
        None => Vec::new(),
        Some(going) => harness.apply_concurrently(vec![going]).await,
    }
}

fn is_whole(ended: &ApplyResult) -> bool {
    ended
        .summary
        .as_ref()
        .is_some_and(|summary| summary.outcomes.iter().all(|(_, outcome, _)| *outcome == Outcome::Done))
}

/// How many of the shared things are there.
async fn shared_objects_left(harness: &Harness, stack: &Stack) -> usize {
    let mut left = 0;
    for path in SHARED {
        let request = Request { api: Api::Kubernetes, method: Method::Get, path: path.into(), body: None };
        left += usize::from(harness.try_kubernetes(stack, request).await.is_ok());
    }
    left
}

#[test]
fn what_two_stacks_give_up_at_the_same_time_is_left_to_nobody() {
    paused(async {
        let harness = Harness::empty();
        let first =
            |more: &str| Stack::of(&format!("[stack]\nname = \"first\"\nid = \"1\"\n\n{GKE}{POOL}{more}"));
        let (with, without) = (first(OPERATOR), first(""));
        let guest =
            Stack::of(&format!("[stack]\nname = \"second\"\nid = \"2\"\n\n{GKE}manage = false\n{OPERATOR}"));
        for (pid, stack) in [(1, &with), (2, &guest)] {
            assert!(run(&harness, pid, stack, Mode::Apply).await.iter().all(is_whole));
        }
        assert_eq!(shared_objects_left(&harness, &with).await, SHARED.len());
        let both = [
            approved_apply(&harness, 1, &without, Mode::Apply).await.unwrap(),
            approved_apply(&harness, 2, &guest, Mode::Destroy).await.unwrap(),
        ];
        let ended = harness.apply_concurrently(both.into()).await;
        assert!(!ended.iter().all(is_whole), "one comes second, and is told so");
        // Whoever did not get through tries again.
        for pid in [3, 5] {
            run(&harness, pid, &without, Mode::Apply).await;
            run(&harness, pid + 1, &guest, Mode::Destroy).await;
        }
        assert_eq!(shared_objects_left(&harness, &with).await, 0, "each left it to the other");
    });
}
