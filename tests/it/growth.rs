//! Twice the objects cost twice the processor time, not four times: the program against a real control plane.

use std::path::Path;

use crate::many::{Took, objects, run, stack};
use crate::real::{ControlPlane, Part, needs};

/// What twice the objects may cost, as a multiple: the sorting that there is, and what caches do on a busy machine.
const MOST: f64 = 2.4;

const COMMANDS: [&[&str]; 3] =
    [&["apply", "--auto-approve"], &["plan", "--detailed-exitcode"], &["destroy", "--auto-approve"]];

/// What creating, planning and destroying so many objects takes.
async fn taken(count: usize) -> [Took; 3] {
    let plane = ControlPlane::start().await;
    let folder = tempfile::tempdir().unwrap();
    stack(folder.path(), &objects(count), Some(&plane.access().kubeconfig));
    let program = Path::new(env!("CARGO_BIN_EXE_dask-infra"));
    COMMANDS.map(|words| tokio::task::block_in_place(|| run(program, words, folder.path(), &[0])))
}

/// Not the time, which the control plane takes: the processor time of the program alone. What is above is measured again,
/// and the less of both counts.
#[tokio::test(flavor = "multi_thread")]
async fn twice_the_objects_cost_twice_the_processor_time() {
    needs!(Part::CONTROL_PLANE);
    let mut least = [[f64::INFINITY; 3]; 2];
    for attempt in 0..2 {
        for (count, least) in [1_000, 2_000].into_iter().zip(&mut least) {
            for (took, least) in taken(count).await.iter().zip(least) {
                *least = least.min(took.cpu);
            }
        }
        let [once, twice] = least;
        let ratios: Vec<f64> = twice.iter().zip(once).map(|(twice, once)| twice / once).collect();
        println!(
            "apply, plan, destroy: {once:.2?} s of CPU for 1,000 objects, {twice:.2?} for 2,000: {ratios:.2?}"
        );
        if ratios.iter().all(|ratio| *ratio <= MOST) {
            return;
        }
        assert_eq!(attempt, 0, "{ratios:.2?} times the processor time for twice the objects");
    }
}
