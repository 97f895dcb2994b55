mod sandbox_gke;
mod sandbox_kube;
mod stack_cases;
