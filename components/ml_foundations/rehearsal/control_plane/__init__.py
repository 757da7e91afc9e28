"""The processes of the replica: the Kubernetes control plane, and the controllers of charts."""
