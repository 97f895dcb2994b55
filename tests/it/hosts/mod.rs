//! Processes on hosts: the agent with a Python, Dask itself, sshd, SLURM, containers.

mod adaptive;
pub mod agent;
mod agent_faults;
mod agent_files;
mod agent_upkeep;
mod agent_workers;
mod containers;
mod every_target;
mod files;
mod import;
mod local;
mod scheduler_job;
mod second_user;
mod slurm;
mod slurm_login;
mod ssh;
mod tls;
mod versions;
mod worker_moves;
