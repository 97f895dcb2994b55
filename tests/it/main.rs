mod cli;
mod golden;
mod report_cases;
mod sandbox_gke;
mod stack_cases;
