"""Simulated GKE, one process per rehearsal: node pools become nodes of the replica, and the pools scale."""
