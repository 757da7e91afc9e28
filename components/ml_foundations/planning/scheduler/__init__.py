"""Where the kube-scheduler places pods."""
