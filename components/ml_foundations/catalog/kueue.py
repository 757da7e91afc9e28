"""What the project knows of Kueue beside its labels."""

API_VERSION = "kueue.x-k8s.io/v1beta2"
NAMESPACE = "kueue-system"

FRAMEWORKS = ("batch/job", "jobset.x-k8s.io/jobset", "pod", "deployment", "statefulset")
"""The kinds of workloads that Kueue manages: those that the components make, with a ``queue``."""

PROVISIONING_CLASS = "queued-provisioning.gke.io"
"""The class of ProvisioningRequests that GKE answers: all nodes at once."""
