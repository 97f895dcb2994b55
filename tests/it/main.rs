mod stack_cases;
