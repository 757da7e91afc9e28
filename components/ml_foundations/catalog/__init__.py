"""Facts: machine types, GPUs, disks, prices, and what stands on nodes."""
