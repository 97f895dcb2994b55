mod stack_cases;
mod tidy;
