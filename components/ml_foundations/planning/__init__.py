"""Whether workloads fit: pure Python over manifests, without Pulumi and without a cluster."""
