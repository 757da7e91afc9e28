"""The processes of the replica: the Kubernetes control plane, and controllers beside it."""
