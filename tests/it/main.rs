mod sandbox_gke;
