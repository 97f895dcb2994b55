//! The command line of dask-infra: commands, and what they report.
//!
//! The crates below it, each of which uses only those named after it:
//!
//! | crate | |
//! |---|---|
//! | `apply` | carries a plan out: order, waits, retries, lock and record. `plan`, `live`, `kinds`, `model` |
//! | `live` | clients of GKE, Kubernetes and hosts, and the agent that runs on hosts. `model` |
//! | `import` | writes a stack file of what is there. `stack`, `kinds`, `model` |
//! | `plan` | desired against live: changes, their reasons and order. Pure. `kinds`, `model` |
//! | `stack` | the stack file: parse, check, lower. `kinds`, `model` |
//! | `kinds` | a section of the stack file, what it becomes, how its fields may change, when it is ready. Pure. `model` |
//! | `sandbox` | GKE and Kubernetes as HTTP servers that share no rules with the crates above. `model` |
//! | `model` | types and facts that all share |

pub mod report;

pub mod cli;
