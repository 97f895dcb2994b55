//! The command line of dask-infra: the commands and their reports.
//!
//! The crates below it, each of which uses only those named after it:
//!
//! | crate | |
//! |---|---|
//! | `apply` | carries a plan out: order, waits, retries, lock and record. `plan`, `live`, `kinds`, `model` |
//! | `live` | clients of GKE, Kubernetes and hosts, and the agent that runs on hosts. `model` |
//! | `import` | writes a stack file from live resources. `stack`, `kinds`, `model` |
//! | `plan` | compares desired and live state: changes, their reasons and their order. Pure. `kinds`, `model` |
//! | `stack` | the stack file: parse, check, lower. `kinds`, `model` |
//! | `kinds` | a section of the stack file, what it becomes, how its fields may change, when it is ready. Pure. `model` |
//! | `sandbox` | GKE and Kubernetes as HTTP servers that share no rules with the crates above. `model` |
//! | `model` | types and facts that all share |

pub mod report;

pub mod cli;
