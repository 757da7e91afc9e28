"""The result of a rehearsal: pools, GPUs, workloads, quotas and recorded resources."""
