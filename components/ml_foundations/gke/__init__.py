"""GKE clusters and node pools."""
