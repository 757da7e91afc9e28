"""The scheduler package: where the kube-scheduler places pods."""
