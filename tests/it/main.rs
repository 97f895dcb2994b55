mod golden;
mod plan_cases;
mod report_cases;
mod sandbox_gke;
mod stack_cases;
mod tidy;
