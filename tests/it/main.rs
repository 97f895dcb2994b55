
mod sandbox_kube;
