"""What of a stack planning judges, by its settings alone: node pools and Kubernetes objects that are not declared yet.

The very builders of the components make them; a test compares them with what the program declares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import arguments
from existing import ExistingClusterSettings
from ml_foundations.catalog.versions import GPU_OPERATOR
from ml_foundations.gke import cpu_node_pool, gpu_node_pool
from ml_foundations.gke.cluster import DATAPATH, _GkeClusterSpec
from ml_foundations.gke.cpu_node_pool import _CpuNodePoolSpec
from ml_foundations.gke.gpu_node_pool import GpuNodePoolSettings, _GpuNodePoolSpec
from ml_foundations.gke.node_pool import pool_arguments
from ml_foundations.gpu import driver_installer, monitor, operator
from ml_foundations.gpu.monitor import _GpuMonitorSpec
from ml_foundations.kubernetes.manifests import Manifest
from ml_foundations.kubernetes.merging import overridden
from ml_foundations.planning.input.program import CLUSTER, NODE_POOL, RELEASE, Resource
from ml_foundations.storage.classes import StorageClassesSettings, storage_class_manifests
from ml_foundations.storage.volume import _VolumeSpec, claim_manifest, volume_manifest
from ml_foundations.tenancy import quota as _quota
from ml_foundations.tenancy import training_queue
from ml_foundations.tenancy.team_namespace import _TeamNamespaceSpec, namespace_manifest
from ml_foundations.tenancy.training_queue import _TrainingQueueSpec
from ml_foundations.workloads import (
    distributed_training,
    inference_service,
    scheduled_training,
    sharded_set,
    sweep,
    task,
    training_job,
)
from ml_foundations.workloads.autoscaling import autoscaler_manifest
from pydantic.alias_generators import to_camel
from settings import WORKLOADS, Settings, Team


def resources(settings: Settings) -> Iterator[Resource]:
    """The resources of a stack that planning judges, in the order of the program."""
    if not isinstance(settings.cluster, ExistingClusterSettings):
        yield CLUSTER, _cluster(settings)
        yield from ((NODE_POOL, inputs) for inputs in _node_pools(settings))
    if settings.operator is not None:
        values = operator.chart_values(settings.operator)
        yield RELEASE, {"chart": GPU_OPERATOR.name, "values": values}
    for manifest in _objects(settings):
        yield f"kubernetes:{manifest['apiVersion']}:{manifest['kind']}", manifest


def _cluster(settings: Settings) -> Manifest:
    """A cluster's inputs, as far as its nodes depend on them."""
    spec = _GkeClusterSpec.model_validate(arguments.cluster(settings))
    return {
        "name": spec.name,
        "location": spec.location,
        "nodeLocations": spec.node_zones,
        "removeDefaultNodePool": True,
        "defaultMaxPodsPerNode": spec.max_pods,
        "datapathProvider": DATAPATH,
        "workloadIdentityConfig": {"workloadPool": settings.workload_pool},
        "addonsConfig": {"dnsCacheConfig": {"enabled": spec.node_local_dns}},
    }


def _node_pools(settings: Settings) -> Iterator[Manifest]:
    common = {
        "project": settings.project,
        "location": arguments.cluster(settings)["location"],
        "cluster_name": settings.cluster.name,
        "node_service_account": "",
    }
    for name, pool in settings.node_pools.items():
        given = arguments.pool(name, pool, common)
        if isinstance(pool, GpuNodePoolSettings):
            spec = _GpuNodePoolSpec.model_validate(given)
            yield _camel(pool_arguments(spec, gpu_node_pool.node_config(spec)))
        else:
            spec = _CpuNodePoolSpec.model_validate(given)
            yield _camel(pool_arguments(spec, cpu_node_pool.node_config(spec)))


def _camel(tree: Any) -> Any:
    """Arguments as the provider names them; the keys of labels are names already."""
    if isinstance(tree, Mapping):
        return {to_camel(key): value if key == "labels" else _camel(value) for key, value in tree.items()}
    return [_camel(item) for item in tree] if isinstance(tree, list) else tree


def _objects(settings: Settings) -> Iterator[Manifest]:
    yield from storage_class_manifests(StorageClassesSettings.model_validate(arguments.storage(settings)))
    if settings.operator is not None:
        yield from map(driver_installer.driver_installer_manifest, operator.driver_installers(settings.operator.mode))
    for name, section in settings.gpu_monitors.items():
        yield from _monitor(_GpuMonitorSpec.model_validate({"monitor_name": name, **section.given()}))
    for name, team in settings.teams.items():
        yield from _tenancy(_TeamNamespaceSpec.model_validate(arguments.tenancy(name, team, settings)))
    if settings.queues is not None:
        yield from _queues(_TrainingQueueSpec.model_validate({"cohort": arguments.QUEUES, **settings.queues}))
    for name, team in settings.teams.items():
        yield from _team(name, team)


def _monitor(spec: _GpuMonitorSpec) -> Iterator[Manifest]:
    if spec.create_namespace:
        yield monitor.namespace_manifest(spec)
    if spec.create_namespace and spec.critical:
        yield monitor.quota_manifest(spec)
    yield monitor.daemon_set_manifest(spec)


def _tenancy(spec: _TeamNamespaceSpec) -> Iterator[Manifest]:
    yield namespace_manifest(spec)
    yield from _quota.priority_class_manifests(spec.namespace, spec, spec.priorities)
    yield from _quota.quota_manifests(spec.namespace, spec)
    yield _quota.limit_range_manifest(spec.namespace, spec.default_cpu, spec.default_memory, spec.largest_volume)


def _queues(spec: _TrainingQueueSpec) -> Iterator[Manifest]:
    yield from training_queue.flavor_manifests(spec)
    for team in spec.teams:
        yield training_queue.cluster_queue_manifest(spec, team)
        yield training_queue.local_queue_manifest(spec, team)


def _team(name: str, team: Team) -> Iterator[Manifest]:
    for claim, section in team.volumes.items():
        spec = _VolumeSpec.model_validate(arguments.volume(claim, section, name))
        if (manifest := volume_manifest(spec)) is not None:
            yield manifest
        yield claim_manifest(spec)
    for section, workload_name, workload in team.workloads:
        spec_type, name_argument = WORKLOADS[section]
        given = arguments.workload(name_argument, workload_name, workload, name, team)
        yield from MANIFESTS[section](spec_type.model_validate(given))


def _distributed_training(spec: Any) -> Iterator[Manifest]:
    build = distributed_training.jobset_manifest if spec.jobset else distributed_training.job_manifest
    yield overridden(build(spec), spec.overrides)


def _inference_service(spec: Any) -> Iterator[Manifest]:
    yield inference_service.deployment_manifest(spec)
    if spec.autoscaling is not None:
        yield autoscaler_manifest(spec, spec.autoscaling, spec.deployment, spec.replicas)


MANIFESTS: Mapping[str, Callable[[Any], Iterator[Manifest]]] = {
    "training_jobs": lambda spec: iter([overridden(training_job.job_manifest(spec), spec.overrides)]),
    "distributed_trainings": _distributed_training,
    "sweeps": lambda spec: iter([overridden(sweep.job_manifest(spec), spec.overrides)]),
    "scheduled_trainings": lambda spec: iter([scheduled_training.cron_job_manifest(spec)]),
    "tasks": lambda spec: iter([task.pod_manifest(spec)]),
    "inference_services": _inference_service,
    "sharded_sets": lambda spec: iter([sharded_set.stateful_set_manifest(spec)]),
}
"""The objects of each section's component that have pods, or change how many there are."""
