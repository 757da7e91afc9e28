"""The supervisor of the simulated GKE: it runs the controllers, round by round."""

import time

from ml_foundations.rehearsal.cloud.addons import AddonController
from ml_foundations.rehearsal.cloud.cluster import Cluster, Controller
from ml_foundations.rehearsal.cloud.compute_classes import ComputeClassController
from ml_foundations.rehearsal.cloud.dra import DraDriver
from ml_foundations.rehearsal.cloud.failures import NodeRepair
from ml_foundations.rehearsal.cloud.gateways import GatewayController
from ml_foundations.rehearsal.cloud.informer import attempt
from ml_foundations.rehearsal.cloud.job_nodes import JobNodeRecorder
from ml_foundations.rehearsal.cloud.kubelet import Kubelet
from ml_foundations.rehearsal.cloud.load_balancers import LoadBalancerController
from ml_foundations.rehearsal.cloud.metrics import MetricsServer
from ml_foundations.rehearsal.cloud.networks import NetworkController
from ml_foundations.rehearsal.cloud.node_pools import NodePoolController
from ml_foundations.rehearsal.cloud.preemption import Preemption
from ml_foundations.rehearsal.cloud.ray_dashboard import RayDashboard
from ml_foundations.rehearsal.cloud.volumes import VolumeProvisioner
from ml_foundations.rehearsal.layout import Rehearsal

_ROUND_SECONDS = 0.5
_POLL_SECONDS = 0.05
_MIN_PAUSE_SECONDS = 0.1
_PAUSE_FACTOR = 9
"""The pause after a round, in multiples of its CPU time: a large replica needs the CPU itself."""


class Supervisor:
    """Reconciles the declared cluster and its node pools with the replica."""

    def __init__(self, rehearsal: Rehearsal) -> None:
        cluster = self._cluster = Cluster(rehearsal)
        self._store_version = cluster.store.version()
        disks = VolumeProvisioner(cluster)
        devices = DraDriver(cluster)
        self._controllers: tuple[Controller, ...] = (
            AddonController(cluster),
            # These change what is known of the pools.
            NetworkController(cluster),
            ComputeClassController(cluster),
            # Nodes that go come before those that replace them.
            Preemption(cluster),
            NodeRepair(cluster),
            NodePoolController(cluster, disks.zones, devices.plan),
            devices,
            disks,
            Kubelet(cluster),
            LoadBalancerController(cluster),
            GatewayController(cluster),
            RayDashboard(cluster),
            MetricsServer(cluster),
            JobNodeRecorder(cluster),
        )

    def sync(self, timeout: float) -> bool:
        """Start the informers. Return whether all of them were synced within the timeout."""
        informers = self._cluster.informers.values()
        for informer in informers:
            informer.start()
        deadline = time.monotonic() + timeout
        return all(
            informer.synced.wait(max(0.0, deadline - time.monotonic())) for informer in informers
        )

    def run(self) -> None:
        """Reconcile for as long as the replica exists."""
        while self._cluster.rehearsal.replica_dir.exists():
            self._pause(_ROUND_SECONDS, until_change=True)
            self._store_version = self._cluster.store.version()
            self._cluster.changed.clear()
            if not all(informer.synced.is_set() for informer in self._cluster.informers.values()):
                continue
            before = time.thread_time()
            with attempt("a round"):
                self._cluster.begin_round()
                for controller in self._controllers:
                    with attempt(type(controller).__name__):
                        controller.reconcile()
            # A pause lets changes gather: one round for a burst of pods, not one for each pod.
            cpu_seconds = time.thread_time() - before
            self._pause(max(_MIN_PAUSE_SECONDS, _PAUSE_FACTOR * cpu_seconds))

    def _pause(self, seconds: float, *, until_change: bool = False) -> None:
        """Wait, but no longer than until a pool or cluster changes: a user waits for its nodes.

        With ``until_change``, a change in the API server ends the wait, too.
        """
        end = time.monotonic() + seconds
        while self._cluster.store.version() == self._store_version and time.monotonic() < end:
            if not until_change:
                time.sleep(_POLL_SECONDS)
            elif self._cluster.changed.wait(_POLL_SECONDS):
                break
