mod golden;
mod plan_cases;
mod report_cases;
mod stack_cases;
mod tidy;
