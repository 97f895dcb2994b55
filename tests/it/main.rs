mod golden;
mod report_cases;
mod stack_cases;
mod tidy;
