mod sandbox_kube;
