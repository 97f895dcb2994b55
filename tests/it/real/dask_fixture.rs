//! Everything that a user with a stack of Dask things has on a real control plane.

use serde_json::json;
use tokio::task::block_in_place;

use super::{Client, ControlPlane, CudaCheck, Dask, Operator};
use crate::sandbox_server::{CommandOutput, User};

/// A control plane with one node, the real operator, a scheduler behind every scheduler's pod, and a user.
pub struct DaskFixture {
    pub plane: ControlPlane,
    pub client: Client,
    pub dask: Dask,
    pub operator: Operator,
    pub user: User,
}

/// Gives a user a stack with the operator alone, applies it, and starts what its pod would run.
pub async fn start_operator(plane: &ControlPlane, user: &User) -> Operator {
    let kubeconfig = plane.access().kubeconfig.display();
    let stack = format!(
        "[stack]\nname = \"s\"\n\n[kubernetes]\nkubeconfig = \"{kubeconfig}\"\n\n[dask_operator]\nversion = \"2026.3.0\"\n"
    );
    std::fs::write(user.path().join("stack.toml"), stack).unwrap();
    block_in_place(|| user.run(&["apply", "--auto-approve"])).expect(0);
    Operator::start(plane.access()).await
}

impl DaskFixture {
    /// Starts it all; the user's stack has the operator's definitions applied.
    pub async fn start(gpus: u32) -> DaskFixture {
        let mut plane = ControlPlane::start().await;
        let dask = Dask::start().await;
        plane.restart_kwok(CudaCheck::Passes, &dask.forwards()).await;
        plane.add_node("node-0", json!({}), gpus).await;
        let (client, user) = (plane.client(), User::empty());
        let operator = start_operator(&plane, &user).await;
        DaskFixture { plane, client, dask, operator, user }
    }

    /// Adds sections to the stack.
    pub fn add(&self, sections: &str) {
        let path = self.user.path().join("stack.toml");
        let stack = std::fs::read_to_string(&path).unwrap();
        std::fs::write(path, stack + sections).unwrap();
    }

    /// Runs the program.
    pub fn run(&self, words: &[&str]) -> CommandOutput {
        block_in_place(|| self.user.run(words))
    }

    /// Returns the exit code of a plan, and its output as one line.
    pub fn plan(&self) -> (i32, String) {
        let said = self.run(&["plan", "--detailed-exitcode"]);
        let text = format!("{} {}", said.out, said.err);
        (said.code, text.split_whitespace().collect::<Vec<_>>().join(" "))
    }
}
