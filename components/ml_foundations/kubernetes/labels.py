"""The one home of label, taint and resource names that Kubernetes, GKE and NVIDIA define."""

GPU_RESOURCE = "nvidia.com/gpu"
"""Extended resource that the NVIDIA device plugin advertises (NVIDIA k8s-device-plugin)."""

GPU_TAINT_KEY = GPU_RESOURCE
GPU_TAINT_VALUE = "present"
GPU_TAINT_EFFECT = "NoSchedule"
"""GKE's own taint on GPU nodes is nvidia.com/gpu=present:NoSchedule (GKE, "About GPUs in GKE")."""

UNSCHEDULABLE_TAINT = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
"""The taint that a pod must tolerate to run on a cordoned node."""

GPU_PRODUCT = "nvidia.com/gpu.product"
GPU_MEMORY = "nvidia.com/gpu.memory"
GPU_PRESENT = "nvidia.com/gpu.present"
"""Labels of NVIDIA GPU Feature Discovery."""

GKE_ACCELERATOR = "cloud.google.com/gke-accelerator"
GKE_ACCELERATOR_COUNT = "cloud.google.com/gke-accelerator-count"
GKE_NODE_POOL = "cloud.google.com/gke-nodepool"
GKE_MAX_PODS = "cloud.google.com/gke-max-pods-per-node"
GKE_BOOT_DISK = "cloud.google.com/gke-boot-disk"
GKE_SPOT = "cloud.google.com/gke-spot"
GKE_NO_DEVICE_PLUGIN = "gke-no-default-nvidia-gpu-device-plugin"
GKE_GPU_DRIVER_VERSION = "cloud.google.com/gke-gpu-driver-version"
GKE_OS_DISTRIBUTION = "cloud.google.com/gke-os-distribution"
GKE_DRA_DRIVER = "cloud.google.com/gke-nvidia-gpu-dra-driver"
GKE_NETWORK_DRA_DRIVER = "cloud.google.com/gke-networking-dra-driver"
GKE_QUEUED = "cloud.google.com/gke-queued"
GKE_REQUEST = "autoscaling.gke.io/provisioning-request"
GKE_FLEX_START = "cloud.google.com/gke-flex-start"
GKE_RESERVATION = "cloud.google.com/reservation-name"
GKE_PARTITION_SIZE = "cloud.google.com/gke-gpu-partition-size"
GKE_SHARING_STRATEGY = "cloud.google.com/gke-gpu-sharing-strategy"
GKE_SHARED_CLIENTS = "cloud.google.com/gke-max-shared-clients-per-gpu"
COMPUTE_CLASS = "cloud.google.com/compute-class"
COMPUTE_CLASS_PRIORITY = "cloud.google.com/compute-class-priority-idx"
"""Labels that GKE sets on nodes or reads from them."""

DEFAULT_CLASS = "cloud.google.com/default-compute-class"
DEFAULT_CLASS_EXCEPT_DAEMONS = "cloud.google.com/default-compute-class-non-daemonset"
"""Labels of namespaces whose pods get a ComputeClass: all, or all except those of DaemonSets."""

GKE_TERMINATION_TIME = "node.gke.io/machine-termination-datetime"
"""Annotation of a node with a maximum run duration: when it ends (GKE's autoscaler,
pkg/computeclass/labels)."""

GPU_DEPLOY_DEVICE_PLUGIN = "nvidia.com/gpu.deploy.device-plugin"
DEVICE_PLUGIN_CONFIG = "nvidia.com/device-plugin.config"
"""Labels with which a node declines the GPU Operator's device plugin, or chooses one of its
configurations."""

NODE_TYPE = "node-type"
ACCELERATOR = "accelerator"
"""Labels of pools of these components: what the nodes are for (system, preprocessing, training,
inference) and what they carry."""

VCPUS = "ml-foundations/vcpus"
MEMORY_GIB = "ml-foundations/memory-gib"
DECLARED_ARCH = "ml-foundations/arch"
"""Labels of pools of these components: the shape of a machine type that the catalog lacks."""
HOURLY_PRICE = "ml-foundations/usd-per-hour"
"""A label of a pool's nodes, or an annotation of a Node: what one such node costs, where the price
list is wrong."""

ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
INSTANCE_TYPE = "node.kubernetes.io/instance-type"
HOSTNAME = "kubernetes.io/hostname"
ARCH = "kubernetes.io/arch"
OS = "kubernetes.io/os"
GKE_ZONE = "topology.gke.io/zone"
"""The label by which GKE's CSI drivers name a zone."""
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
OLD_REGION = "failure-domain.beta.kubernetes.io/region"
"""Kubernetes' own labels of old, which nodes and volumes still carry."""
ZONES = (ZONE, GKE_ZONE, OLD_ZONE)
"""The labels in which GKE gives a node's zone."""
REGIONS = (REGION, OLD_REGION)
"""The labels in which GKE gives a node's region."""

TEMPLATE_HASH = "pod-template-hash"
"""The label that differs between the pods of a Deployment's ReplicaSets; it ends the ReplicaSet's
name."""
NAMESPACE_NAME = "kubernetes.io/metadata.name"
"""The label of every namespace, by which selectors find it (Kubernetes, "Well-known labels")."""

KUEUE_QUEUE = "kueue.x-k8s.io/queue-name"
KUEUE_PRIORITY = "kueue.x-k8s.io/priority-class"
"""Labels by which Kueue takes an object into a LocalQueue, and ranks it there (Kueue, "Labels and
annotations")."""

KUEUE_LEAST = "kueue.x-k8s.io/job-min-parallelism"
"""Annotation of a Job that Kueue may start with fewer pods (Kueue, "Partial admission")."""

KUEUE_POD_GROUP = "kueue.x-k8s.io/pod-group-name"
KUEUE_POD_COUNT = "kueue.x-k8s.io/pod-group-total-count"
"""The group of Pods that Kueue admits together, as a label or an annotation, and its size."""
KUEUE_SAME_COMPLETIONS = "kueue.x-k8s.io/job-completions-equal-parallelism"
"""Annotation of a Job whose completions follow its parallelism."""
KUEUE_MOST_SECONDS = "kueue.x-k8s.io/max-exec-time-seconds"
"""Label of a workload with the most seconds that it may run."""
KUEUE_ELASTIC = "kueue.x-k8s.io/elastic-job"
"""Annotation of a workload whose number of pods may change while it runs."""
KUEUE_TOPOLOGY = {
    "required": "kueue.x-k8s.io/podset-required-topology",
    "preferred": "kueue.x-k8s.io/podset-preferred-topology",
    "unconstrained": "kueue.x-k8s.io/podset-unconstrained-topology",
}
KUEUE_SLICE_LEVEL = "kueue.x-k8s.io/podset-slice-required-topology"
KUEUE_SLICE_SIZE = "kueue.x-k8s.io/podset-slice-size"
KUEUE_SLICES = "kueue.x-k8s.io/podset-slice-required-topology-constraints"
KUEUE_GROUP = "kueue.x-k8s.io/podset-group-name"
"""Annotations of pod templates that ask Kueue for a topology (kueue v0.19.2,
apis/kueue/v1beta2/topology_types.go)."""

TOPOLOGY_LEVELS = {
    "block": "cloud.google.com/gce-topology-block",
    "sub-block": "cloud.google.com/gce-topology-subblock",
    "host": "cloud.google.com/gce-topology-host",
    "hostname": HOSTNAME,
}
"""The levels of GKE's topology, the biggest first, with the labels of nodes (GoogleCloudPlatform/
cluster-toolkit@104708037, examples/gke-a4/kueue-configuration.yaml.tftpl)."""
GKE_TOPOLOGY = tuple(TOPOLOGY_LEVELS.values())[:-1]
"""The labels of block, sub-block and host."""

INFERENCE_GATEWAY = "ml-foundations/inference-gateway"
"""Label of the objects of an InferenceGateway."""

TRAIN_JOB_STEP = "trainer.kubeflow.org/trainjob-ancestor-step"
"""The label of a Job in a runtime with its part in a TrainJob (trainer v2.2.1, pkg/constants)."""
MODEL = "ml-foundations/model"
"""Annotation of pods that serve or train a model: its name in the catalog, or the folder of its
config.json."""
TRAINING_METHOD = "ml-foundations/training-method"
"""Annotation of pods that train this model: full, lora or qlora."""
TRAINING_SHARDING = "ml-foundations/training-sharding"
"""Annotation of such pods: none, zero1, zero2, zero3 or hybrid."""
MADE_FROM = "ml-foundations/made-from"
"""Annotation of an object, in planning alone, with the kind that a controller makes it of."""
UNRESOLVED = "ml-foundations/unresolved"
"""Annotation of an object, in planning alone: why what its controller makes is not known."""
REFUSED = "ml-foundations/refused"
"""Annotation of such an object with what is refused about the other: a list of field and fault."""
WRITTEN_FIELDS = "ml-foundations/written-fields"
"""Annotation of such an object with its fields, each with the one that the user wrote."""
GANG = "ml-foundations/gang"
"""Annotation of a workload whose pods must all run at once, or none."""

JOB_NAME = "batch.kubernetes.io/job-name"
"""The label of a Job's pods with its name (Kubernetes, "Well-known labels")."""
LWS_GROUP_INDEX = "leaderworkerset.sigs.k8s.io/group-index"
LWS_WORKER_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"
"""Labels of a LeaderWorkerSet's pods: the number of their group, and their own number in it. That
of the leader is 0 (lws v0.9.0, api)."""
LLMD_ROLE = "llm-d.ai/role"
"""Label with the role of a server's pods, by which llm-d's endpoint picker chooses (llm-d-router
v0.9.0, docs/disaggregation.md)."""
LLMD_SERVING = "llm-d.ai/inference-serving"
"""Label of pods that have a server's port, as llm-d's guides set it."""
JOB_INDEX = "batch.kubernetes.io/job-completion-index"
"""Label and annotation that the Job controller gives to pods (Kubernetes, "Well-known labels")."""

GPU_DEVICE_CLASS = "gpu.nvidia.com"
"""Device class, driver and attributes' domain of NVIDIA's DRA driver (NVIDIA,
k8s-dra-driver-gpu)."""
MIG_DEVICE_CLASS = "mig.nvidia.com"
"""The driver's device class of MIG devices."""

RDMA_DEVICE_CLASS = "mrdma.google.com"
"""GKE's device class of the RDMA interfaces between GPUs (GKE, "Allocate network resources by using
GKE managed DRANET")."""
NETDEV_DEVICE_CLASS = "netdev.google.com"
"""GKE's device class of a node's other interfaces."""
NETWORK_DEVICE_CLASSES = frozenset([RDMA_DEVICE_CLASS, NETDEV_DEVICE_CLASS])
NETWORK_DRIVER = "dra.net"
"""The driver of both classes, and the domain of its attributes."""
DEVICES_OF_CLASS = "deviceclass.resource.kubernetes.io/"
"""How the extended resource of a device class begins (KEP-5004)."""

INGRESS_CLASS = "kubernetes.io/ingress.class"
INTERNAL_INGRESS = "gce-internal"
"""The annotation by which GKE knows an Ingress as its own, and its value for a load balancer inside
of the network."""

GKE_INTERFACES = "networking.gke.io/interfaces"
"""The annotation that gives a pod interfaces in its node's other networks (GKE, "Set up
multi-network support")."""

GKE_DEFAULT_INTERFACE = "networking.gke.io/default-interface"
"""The annotation with a pod's interface for all traffic without another route."""

GKE_DEVICES_OF = "devices.gke.io/container."
"""How the annotation begins that gives a container devices of the node, before the container's
name (container-engine-accelerators, nri_device_injector)."""

GKE_NODE_FOLDER = "/home/kubernetes/bin/"
"""The folder of GKE's nodes with the driver's libraries, into which NCCL's plugin is installed."""

GKE_NETWORKS = "networking.gke.io.networks/"
"""How the extended resources begin that nodes advertise for further networks."""

GKE_METRIC = "autoscaling.gke.io|"
"""How the names of metrics begin that GKE serves to autoscalers (GKE, "Expose custom metrics for
autoscaling")."""

CHECKPOINT_DRIVER = "multitier-checkpoint.csi.storage.gke.io"
"""GKE's CSI driver for checkpoints in the memory of nodes."""
CHECKPOINT_SECONDS = "ml-foundations/checkpoint-seconds"
"""Annotation of a training: how many seconds are between its checkpoints at most."""
RUN_SECONDS = "ml-foundations/run-seconds"
"""Annotation of a Job whose program ends after so many seconds of work."""

GOOGLE_ACCOUNT = "iam.gke.io/gcp-service-account"
"""The annotation that names the Google service account of a Kubernetes service account."""
GCS_FUSE_DRIVER = "gcsfuse.csi.storage.gke.io"
GCS_FUSE_VOLUMES = "gke-gcsfuse/volumes"
GCS_FUSE_SIDECAR = "gke-gcsfuse-sidecar"
"""GKE's CSI driver for Cloud Storage FUSE, the annotation by which a pod gets its sidecar, and the
sidecar's name."""

DRA_POOL_LABELS = {
    GKE_DRA_DRIVER: "true",
    GKE_NO_DEVICE_PLUGIN: "true",
    GPU_PRESENT: "true",
    GPU_DEPLOY_DEVICE_PLUGIN: "false",
}
"""Labels of a node pool whose GPUs are claimed.

GKE's autoscaler reads the first, so that the pool can start at 0 nodes. The others keep GKE's
device plugin and the GPU Operator's off its nodes, for a GPU must be advertised once, and bring
NVIDIA's driver for DRA to them (GKE, "Prepare GKE infrastructure for DRA workloads").
"""
