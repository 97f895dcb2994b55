mod sandbox_gke;
mod stack_cases;
