mod sandbox_kube;
mod stack_cases;
