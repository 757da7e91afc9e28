"""The arguments of node pools, by subject, and the pool as it is declared to GKE."""
