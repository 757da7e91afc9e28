"""The one home of label, taint and resource names that Kubernetes, GKE and NVIDIA define."""

GPU_RESOURCE = "nvidia.com/gpu"
"""Extended resource that the NVIDIA device plugin advertises (NVIDIA k8s-device-plugin)."""

GPU_TAINT_KEY = GPU_RESOURCE
GPU_TAINT_VALUE = "present"
GPU_TAINT_EFFECT = "NoSchedule"
"""GKE's own taint on GPU nodes is nvidia.com/gpu=present:NoSchedule (GKE, "About GPUs in GKE")."""

GPU_PRODUCT = "nvidia.com/gpu.product"
GPU_MEMORY = "nvidia.com/gpu.memory"
GPU_COUNT = "nvidia.com/gpu.count"
GPU_PRESENT = "nvidia.com/gpu.present"
"""Labels of NVIDIA GPU Feature Discovery."""

GKE_ACCELERATOR = "cloud.google.com/gke-accelerator"
GKE_NODE_POOL = "cloud.google.com/gke-nodepool"
GKE_SPOT = "cloud.google.com/gke-spot"
GKE_NO_DEVICE_PLUGIN = "gke-no-default-nvidia-gpu-device-plugin"
"""Labels that GKE sets on nodes or reads from them."""

NODE_TYPE = "node-type"
ACCELERATOR = "accelerator"
"""Labels of our own pools: what the nodes are for (system, preprocessing, training, inference) and what they carry."""

ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
HOSTNAME = "kubernetes.io/hostname"
