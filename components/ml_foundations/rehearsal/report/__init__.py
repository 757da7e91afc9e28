"""What a rehearsal shows: the node pools and their GPUs, the workloads, the quotas, and what was only recorded."""
