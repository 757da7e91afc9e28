"""Values for the fields that the schema only calls strings or integers, and how often optional fields are set.

A field is looked up as ``Type.field``. What stands nowhere here is set as the schema alone describes it, seldom.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

CASE = "case0"
"""Stands for a case's identity in whatever other cases in the same control plane could meet."""

NAMESPACES = (f"{CASE}-red", f"{CASE}-blue")
ZONES = (f"{CASE}-east", f"{CASE}-west")
NODES = tuple(f"{CASE}-n{index}" for index in range(5))
APPS = ("a", "b", "c")
GPU = "nvidia.com/gpu"
FPGA = f"{CASE}.example.com/fpga"
HOSTNAME, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
RACK = f"{CASE}.example.com/rack"
"""No other case's nodes have it: for constraints that count all nodes of a cluster."""
KEYS = ("disk", "gen", "spot")

TOPOLOGY_KEYS = (HOSTNAME, HOSTNAME, ZONE, ZONE, RACK)
CLASSES = (f"{CASE}-late", f"{CASE}-now", f"{CASE}-local")
CLAIMS = ("data", "cache", "logs")
VOLUMES = (f"{CASE}-v0", f"{CASE}-v1", f"{CASE}-v2")
PRIORITIES = (f"{CASE}-high", f"{CASE}-low")
RUNTIME = f"{CASE}-box"
DEVICES = f"{CASE}-devices"
DRIVER = f"{CASE}.example.com"

POOLS: Mapping[str, tuple[Any, ...]] = {
    "Affinity.weight": (1, 50, 100),
    "ClientIPConfig.timeoutSeconds": (10, 10800),
    "Container.image": ("example.com/image",),
    "Container.command": (["run"],),
    "Container.args": (["--fast"],),
    "Container.workingDir": ("/work",),
    "Container.restartPolicy": ("Always", "Always", "OnFailure", "Never"),
    "Container.terminationMessagePath": ("/dev/termination-log",),
    "ContainerPort.containerPort": (80, 8080),
    "ContainerPort.hostPort": (80, 8080, 80),
    "ContainerPort.hostIP": ("0.0.0.0", "10.0.0.1", "::1"),
    "ContainerPort.name": ("web", "http"),
    "ContainerResizePolicy.resourceName": ("cpu", "memory"),
    "ConfigMapVolumeSource.name": ("settings",),
    "SecretVolumeSource.secretName": ("login",),
    "PodSpec.dnsPolicy": ("ClusterFirst", "Default", "ClusterFirstWithHostNet"),
    "ServiceSpec.ports": ([{"port": 80}],),
    "ConfigMap.data": ({"key": "value"},),
    "CronJobSpec.schedule": ("0 3 * * *", "@yearly"),
    "CronJobSpec.timeZone": ("Etc/UTC", "Europe/Berlin"),
    "CronJobSpec.startingDeadlineSeconds": (60,),
    "CSIVolumeSource.driver": ("inline.example.com",),
    "CSIPersistentVolumeSource.driver": ("disk.example.com",),
    "CSIPersistentVolumeSource.volumeHandle": VOLUMES,
    "DaemonSetSpec.minReadySeconds": (0, 1),
    "DeploymentSpec.minReadySeconds": (0, 1),
    "DeploymentSpec.progressDeadlineSeconds": (600,),
    "DeploymentSpec.replicas": (1, 2, 3, 0),
    "DeviceClassSpec.extendedResourceName": (FPGA,),
    "DeviceConstraint.matchAttribute": (f"{DRIVER}/model",),
    "EnvVar.name": ("HOME", "MODE"),
    "EnvVar.value": ("x",),
    "ExactDeviceRequest.count": (1, 1, 2),
    "ExactDeviceRequest.deviceClassName": (DEVICES, DEVICES, DEVICES, f"{CASE}-no-class"),
    "DeviceSubRequest.deviceClassName": (DEVICES,),
    "DeviceSubRequest.count": (1, 2),
    "CELDeviceSelector.expression": (
        f'device.attributes["{DRIVER}"].model == "x1"',
        f'device.capacity["{DRIVER}"].memory.compareTo(quantity("10Gi")) >= 0',
    ),
    "EmptyDirVolumeSource.medium": ("", "Memory"),
    "HostAlias.ip": ("10.0.0.9",),
    "HostPathVolumeSource.path": ("/data",),
    "JobSpec.activeDeadlineSeconds": (36000,),
    "JobSpec.backoffLimit": (0, 6),
    "JobSpec.backoffLimitPerIndex": (1,),
    "JobSpec.completions": (1, 2, 3, 4),
    "JobSpec.managedBy": ("example.com/manager", "kubernetes.io/job-controller"),
    "JobSpec.maxFailedIndexes": (1,),
    "JobSpec.parallelism": (1, 2, 3, 0),
    "JobSpec.ttlSecondsAfterFinished": (3600,),
    "LabelSelectorRequirement.key": ("app", "app", "tier", "job-name", "apps.kubernetes.io/pod-index"),
    "LocalObjectReference.name": ("login",),
    "NodeSpec.podCIDR": ("10.1.0.0/24",),
    "NodeSpec.providerID": ("gce://p/z/n",),
    "ObjectMeta.finalizers": (["example.com/hold"],),
    "PersistentVolumeClaimSpec.volumeName": VOLUMES,
    "PersistentVolumeClaimSpec.storageClassName": (*CLASSES, *CLASSES, "", f"{CASE}-no-class"),
    "PersistentVolumeSpec.storageClassName": (*CLASSES, ""),
    "PersistentVolumeClaimSpec.accessModes": (
        ["ReadWriteOnce"], ["ReadWriteOnce"], ["ReadWriteMany"], ["ReadWriteOncePod"], ["ReadOnlyMany"],
        ["ReadWriteOnce", "ReadOnlyMany"],
    ),
    "PersistentVolumeSpec.accessModes": (
        ["ReadWriteOnce"], ["ReadWriteMany"], ["ReadWriteOnce", "ReadWriteMany", "ReadOnlyMany"], ["ReadWriteOncePod"],
    ),
    "PersistentVolumeClaimVolumeSource.claimName": (*CLAIMS, "data", "data"),
    "PodAffinityTerm.matchLabelKeys": (["app"], ["tier"], ["pod-template-hash"], ["job-name"]),
    "PodAffinityTerm.mismatchLabelKeys": (["tier"], ["app"], ["controller-revision-hash"]),
    "PodAffinityTerm.namespaces": ([NAMESPACES[0]], [NAMESPACES[1]], list(NAMESPACES)),
    "PodAffinityTerm.namespaceSelector": (
        {"matchLabels": {"kubernetes.io/metadata.name": NAMESPACES[1]}},
        {"matchLabels": {"team": NAMESPACES[0]}},
        {"matchExpressions": [{"key": "team", "operator": "In", "values": list(NAMESPACES)}]},
    ),
    "PodAffinityTerm.topologyKey": TOPOLOGY_KEYS,
    "PodReadinessGate.conditionType": ("example.com/ready",),
    "PodSchedulingGate.name": ("example.com/gate",),
    "PodSpec.activeDeadlineSeconds": (36000,),
    "PodSpec.hostname": ("host",),
    "PodSpec.hostnameOverride": ("other",),
    "PodSpec.nodeName": (f"{CASE}-absent",),
    "PodSpec.priority": (0, 1000, 100),
    "PodSpec.priorityClassName": (*PRIORITIES, *PRIORITIES, "system-node-critical", f"{CASE}-none"),
    "PodSpec.restartPolicy": ("Always",),
    "PodSpec.runtimeClassName": (RUNTIME, RUNTIME, RUNTIME, f"{CASE}-none"),
    "PodSpec.schedulerName": ("default-scheduler", "default-scheduler", "other"),
    "PodSpec.serviceAccount": ("default", "robot"),
    "PodSpec.serviceAccountName": ("default", "robot", "robot"),
    "PodSpec.subdomain": ("sub",),
    "PodSpec.terminationGracePeriodSeconds": (0, 5, 30),
    "PodOS.name": ("linux", "linux", "windows"),
    "PriorityClass.value": (1000, 100, -5, 0),
    "PriorityClass.globalDefault": (False,),
    "ReplicaSetSpec.replicas": (1, 2, 3, 0),
    "ReplicationControllerSpec.replicas": (1, 2),
    "ReplicaSetSpec.minReadySeconds": (0, 1),
    "RuntimeClass.handler": ("box",),
    "ScopedResourceSelectorRequirement.values": ([PRIORITIES[0]], list(PRIORITIES)),
    "ServicePort.port": (80,),
    "ServicePort.nodePort": (0,),
    "StatefulSetOrdinals.start": (0, 2),
    "StatefulSetPersistentVolumeClaimRetentionPolicy.whenDeleted": ("Retain", "Delete"),
    "StatefulSetPersistentVolumeClaimRetentionPolicy.whenScaled": ("Retain", "Delete"),
    "StatefulSetSpec.minReadySeconds": (0, 1),
    "StatefulSetSpec.replicas": (1, 2, 3, 0),
    "StatefulSetSpec.serviceName": ("peers",),
    "StorageClass.reclaimPolicy": ("Delete", "Retain"),
    "StorageClass.provisioner": ("disk.example.com", "kubernetes.io/no-provisioner"),
    "Taint.key": ("spot", "team"),
    "Taint.value": ("x", "y"),
    "Toleration.value": ("x", "y"),
    "Toleration.tolerationSeconds": (3600,),
    "TopologySpreadConstraint.topologyKey": TOPOLOGY_KEYS,
    "TopologySpreadConstraint.maxSkew": (1, 1, 2),
    "TopologySpreadConstraint.minDomains": (1, 2, 3),
    "TopologySpreadConstraint.matchLabelKeys": (["app"], ["tier"], ["pod-template-hash"]),
    "VolumeMount.mountPath": ("/mnt/a", "/mnt/b"),
    "WeightedPodAffinityTerm.weight": (1, 100),
    "PreferredSchedulingTerm.weight": (1, 100),
}  # fmt: skip
"""What to pick from."""

_OF_THE_SERVER = (
    *("creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation"),
    *("managedFields", "name", "namespace", "generateName", "resourceVersion", "selfLink", "uid"),
)
NEVER = frozenset(
    {
        *("apiVersion", "kind", "status", "ObjectMeta.labels"),
        *(f"ObjectMeta.{name}" for name in _OF_THE_SERVER),
        # An owner that is not there makes the garbage collector delete the object.
        "ObjectMeta.ownerReferences",
        # Tools add them afterwards, by a call of their own.
        "PodSpec.ephemeralContainers",
        *("JobSpec.selector", "JobSpec.manualSelector", "PodSpec.schedulingGroup"),
    }
)
"""What no case sets: what only the API server writes, and what an object is refused for in whatever form."""

CHANCE: Mapping[str, float] = {
    "Affinity": 45,
    "Container": 1,
    "Container.image": 100,
    "Container.resources": 75,
    "Container.ports": 8,
    "Container.restartPolicy": 2,
    "Container.restartPolicyRules": 0.2,
    "Container.volumeDevices": 0.2,
    "CSIPersistentVolumeSource": 1,
    "EphemeralVolumeSource.volumeClaimTemplate": 100,
    "EnvFromSource": 1,
    "ConfigMapVolumeSource.name": 100,
    "SecretVolumeSource.secretName": 100,
    "PodAffinityTerm.labelSelector": 90,
    "PodAffinityTerm.matchLabelKeys": 4,
    "PodAffinityTerm.mismatchLabelKeys": 4,
    "PodAffinityTerm.namespaces": 10,
    "PodAffinityTerm.namespaceSelector": 10,
    "JobSpec.completionMode": 10,
    "JobSpec.backoffLimitPerIndex": 0.5,
    "JobSpec.maxFailedIndexes": 0.5,
    "JobSpec.successPolicy": 1,
    "ContainerPort.hostPort": 70,
    "ContainerPort.name": 10,
    "CronJobSpec": 5,
    "DaemonSetSpec": 3,
    "DeploymentSpec": 5,
    "DeploymentSpec.replicas": 85,
    "DeploymentStrategy.rollingUpdate": 0,
    "ExactDeviceRequest": 15,
    "JobSpec": 4,
    "JobSpec.completions": 60,
    "JobSpec.parallelism": 75,
    "JobSpec.suspend": 3,
    "ObjectMeta": 2,
    "PersistentVolumeClaimSpec": 2,
    "PersistentVolumeClaimSpec.accessModes": 100,
    "PersistentVolumeClaimSpec.resources": 100,
    "PersistentVolumeClaimSpec.storageClassName": 90,
    "PersistentVolumeClaimSpec.volumeName": 10,
    "PersistentVolumeClaimSpec.selector": 8,
    "PersistentVolumeClaimSpec.volumeMode": 8,
    "PersistentVolumeSpec": 3,
    "PersistentVolumeSpec.capacity": 100,
    "PersistentVolumeSpec.accessModes": 100,
    "PersistentVolumeSpec.storageClassName": 85,
    "PersistentVolumeSpec.nodeAffinity": 30,
    "PodSpec": 1,
    "PodSpec.affinity": 25,
    "PodSpec.initContainers": 7,
    "PodSpec.nodeSelector": 12,
    "PodSpec.overhead": 1,
    "PodSpec.priorityClassName": 8,
    "PodSpec.resourceClaims": 4,
    "PodSpec.runtimeClassName": 4,
    "PodSpec.serviceAccountName": 3,
    "PodSpec.resources": 3,
    "PodSpec.tolerations": 30,
    "PodSpec.topologySpreadConstraints": 18,
    "PodSpec.volumes": 22,
    "PriorityClass": 20,
    "ReplicaSetSpec": 5,
    "ReplicaSetSpec.replicas": 85,
    "ReplicationControllerSpec.replicas": 85,
    "ResourceQuotaSpec.scopes": 10,
    "ResourceQuotaSpec.scopeSelector": 8,
    "StatefulSetSpec": 4,
    "StatefulSetSpec.podManagementPolicy": 50,
    "StatefulSetSpec.replicas": 85,
    "StatefulSetSpec.serviceName": 60,
    "StatefulSetSpec.volumeClaimTemplates": 18,
    "StorageClass": 5,
    "StorageClass.volumeBindingMode": 85,
    "StorageClass.allowedTopologies": 10,
}
"""In a hundred: of one field, or of every optional field of a type."""
OTHERWISE = 20
