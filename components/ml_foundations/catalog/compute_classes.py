"""ComputeClasses of GKE, and which node pools their priorities match.

Source: GoogleCloudPlatform/cluster-autoscaler (GKE's autoscaler, 2026-08-21), pkg/computeclass, and
GoogleCloudPlatform/compute-class-api.
"""

API_VERSION, KIND = "cloud.google.com/v1", "ComputeClass"

OWN_PREFIXES = ("gke", "autopilot")
"""How the names of GKE's own classes begin (GKE, "About custom compute classes")."""

SHORTEST_FLEX_START, LONGEST_FLEX_START = 600, 604800
SHORTEST_RUN, LONGEST_RUN = 30, 10368000
"""Seconds that nodes of flex-start and other nodes may run (rules/max_run_duration.go; GKE, "About
flex-start provisioning")."""
