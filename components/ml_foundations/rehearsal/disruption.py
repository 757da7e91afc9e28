"""The command ``disrupt``: take nodes away from a rehearsal, and see how its workloads go on."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import labels_of, name_of, section
from ml_foundations.kubernetes.spelling import not_among
from ml_foundations.kubernetes.words import names, number
from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import NODES, Api, Object
from ml_foundations.rehearsal.cloud import drain
from ml_foundations.rehearsal.cloud.autoscaler import is_busy, is_finished
from ml_foundations.rehearsal.cloud.events import now
from ml_foundations.rehearsal.cloud.failures import is_repaired
from ml_foundations.rehearsal.cloud.nodes import BLUE, DISRUPTED, DRAIN, REPLACE, is_simulated
from ml_foundations.rehearsal.cloud.preemption import preempt
from ml_foundations.rehearsal.cloud.store import Pool, Store
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.progress import RehearsalError, Step
from ml_foundations.rehearsal.report import disruptions
from ml_foundations.rehearsal.report.disruptions import Disruption, Observation, workload_of
from ml_foundations.rehearsal.report.workloads import of_users

PREEMPTION = "preemption"
MAX_RUN = "max-run-duration"
UPGRADE = "upgrade"
_POLL_SECONDS = 0.5
_PATIENCE_SECONDS = 90
"""After this long without a change, nothing more is awaited. Kubernetes itself removes the pods of
a failed node only after a minute."""
_LONGEST_SECONDS = 600
_BLOCKED_SECONDS = 10
"""The same for a drain that a PodDisruptionBudget blocks."""


@dataclass(frozen=True)
class _Target:
    """Nodes of one replica that are to be disrupted."""

    replica: Rehearsal
    api: Api
    nodes: list[Object]
    pools: Mapping[str, Pool]

    def pool(self, node: Object) -> Pool:
        return self.pools[labels_of(node)[labels.GKE_NODE_POOL]]


@dataclass(frozen=True)
class _Rollout:
    """The numbers of nodes that a drain or an upgrade takes at once."""

    at_once: int
    new_first: int = 0
    """How many of these get a successor before they are drained."""
    is_blue_green: bool = False

    @classmethod
    def of(cls, target: _Target, how: str) -> "_Rollout":
        """Return the rollout of a drain, or of an upgrade by GKE's rules for its strategy."""
        if how == DRAIN:
            return cls(1, new_first=1)
        if how != UPGRADE:
            return cls(len(target.nodes))
        settings = section(target.pool(target.nodes[0]).resource, "inputs", "upgradeSettings")
        if settings.get("strategy") == "BLUE_GREEN":
            batch = section(settings, "blueGreenSettings", "standardRolloutPolicy")
            share = -(-len(target.nodes) * (batch.get("batchPercentage") or 0) // 1)
            at_once = int(batch.get("batchNodeCount") or share or 1)
            return cls(at_once, new_first=at_once, is_blue_green=True)
        surge = settings.get("maxSurge")
        missing = settings.get("maxUnavailable")
        surge = 1 if surge is None else int(surge)
        return cls(surge + int(missing or 0), new_first=surge)


def disrupt(rehearsal: Rehearsal, *, node: str, pool: str, how: str, after: int) -> Disruption:
    """Disrupt a node, or all nodes of a pool, and wait until the workloads run as before.

    Raises:
        RehearsalError: there is no such node or disruption, or no pod runs there.
    """
    target = _target(rehearsal, node, pool)
    for item in target.nodes:
        _require_possible(target.pool(item), how)
    if after:
        with Step(f"waiting {number(after, 'second')} before the {how}"):
            time.sleep(after)
    _require_pods(target, rehearsal)
    with Step(f"{how} of {number(len(target.nodes), 'node')}") as progress:
        result = _observe(target, how, progress.detail)
    disruptions.record(result, rehearsal)
    return result


def _target(rehearsal: Rehearsal, node: str, pool: str) -> _Target:
    known: list[str] = []
    for replica in rehearsal.replicas:
        api = Api(Access(replica.kubeconfig))
        nodes = [item for item in api.get(NODES)["items"] if is_simulated(item)]
        pools = Store(replica).pools()
        targets: list[Object] = []
        for item in nodes:
            if name_of(item) == node or labels_of(item)[labels.GKE_NODE_POOL] == pool:
                targets.append(item)
        if targets:
            return _Target(replica, api, targets, pools)
        known += pools if pool else map(name_of, nodes)
    if pool in known:
        raise RehearsalError(f"pool {pool} has no nodes now. {_keep_running(rehearsal)}")
    raise RehearsalError(not_among(node or pool, "pool" if pool else "simulated node", known))


def _require_pods(target: _Target, rehearsal: Rehearsal) -> None:
    """Require a pod of the user's on the nodes: a disruption of others proves nothing."""
    disrupted = set(map(name_of, target.nodes))
    pods = of_users(target.api.get("/api/v1/pods")["items"])
    pods = [pod for pod in pods if pod["spec"].get("nodeName") in disrupted]
    if not any(map(is_busy, pods)):
        completed = dict.fromkeys(workload_of(pod) for pod in pods if is_finished(pod))
        why = f", as these have completed: {names(completed)}" if completed else ""
        where = f"no pod runs on {names(sorted(disrupted))} now{why}"
        raise RehearsalError(f"{where}. {_keep_running(rehearsal)}")


def _keep_running(rehearsal: Rehearsal) -> str:
    up = rehearsal.command("up", **{"job-seconds": "3600"})
    restart = f"{rehearsal.command('down')} && {up}"
    return f"Disrupt it while pods run there. To let Jobs run for an hour: {restart}"


def _require_possible(pool: Pool, how: str) -> None:
    instead = "Use --how failure or --how drain"
    if how == PREEMPTION and not pool.spot:
        raise RehearsalError(f"pool {pool.name} has no Spot nodes to preempt. {instead}")
    if how == UPGRADE and (pool.flex_start or pool.queued):
        stay = "GKE drains no node of flex-start or queued provisioning for an upgrade"
        raise RehearsalError(f"{stay}, as in pool {pool.name}. {instead}")
    if how == MAX_RUN and not pool.max_run_seconds:
        raise RehearsalError(f"pool {pool.name} has no maximum run duration. {instead}")


def _disrupt(api: Api, node: Object, how: str) -> None:
    if how == PREEMPTION:
        preempt(api, node)
        return
    key = labels.GKE_TERMINATION_TIME if how == MAX_RUN else DISRUPTED
    annotations = {key: now() if how == MAX_RUN else how}
    # A blue node gets no more pods.
    more = {"spec": {"unschedulable": True}} if how == BLUE else {}
    api.patch(f"{NODES}/{name_of(node)}", {"metadata": {"annotations": annotations}, **more})


def _observe(target: _Target, how: str, show: Callable[[str], None]) -> Disruption:
    """Disrupt the nodes, and watch until the workloads run as before or nothing changes."""
    api = target.api
    at = now()
    seen = Observation(api, target.pools)
    waiting = deque(target.nodes)
    leaving = dict[str, Object]()
    rollout = _Rollout.of(target, how)
    replaced = set[str]()
    if rollout.is_blue_green:
        for node in target.nodes:
            _disrupt(api, node, BLUE)
    changed = seen.began
    while True:
        is_open = not (rollout.is_blue_green and leaving)
        while waiting and is_open and len(leaving) < rollout.at_once:
            node = waiting.popleft()
            way = DRAIN if how == UPGRADE else how
            if how == UPGRADE and len(leaving.keys() - replaced) >= rollout.new_first:
                way = REPLACE
                replaced.add(node["metadata"]["uid"])
            _disrupt(api, node, way)
            leaving[node["metadata"]["uid"]] = node
        time.sleep(_POLL_SECONDS)
        changed = seen.time if seen.update() else changed
        leaving = {uid: node for uid, node in leaving.items() if uid in seen.nodes}
        blocked = _blocked(api, seen.pods, leaving) if how in (DRAIN, UPGRADE) else []
        unwell = [*blocked, *seen.missing()]
        patience = _BLOCKED_SECONDS if blocked else _PATIENCE_SECONDS
        is_late = seen.time - changed > patience or seen.time - seen.began > _LONGEST_SECONDS
        if is_late or not (waiting or leaving or unwell):
            break
        show("; ".join(unwell) or f"{number(len(leaving) + len(waiting), 'node')} to go")
    kept: list[str] = []
    for node in () if blocked else leaving.values():
        reason = "" if is_repaired(target.pool(node)) else ": its pool has auto_repair: false"
        kept.append(f"node {name_of(node)} stays{reason}")
    return seen.result(how, list(map(name_of, target.nodes)), at, [*unwell, *kept])


def _blocked(api: Api, pods: list[Object], leaving: Mapping[str, Object]) -> list[str]:
    """Return why pods cannot be evicted from nodes."""
    draining = set(map(name_of, leaving.values()))
    staying = [pod for pod in pods if pod["spec"].get("nodeName") in draining]
    uids = {pod["metadata"]["uid"] for pod in staying}
    reasons: list[str] = []
    for event in api.get("/api/v1/events", fieldSelector=f"reason={drain.BLOCKED}")["items"]:
        about = event["involvedObject"]
        if about["uid"] in uids:
            name = f"{about['namespace']}/{about['name']}"
            reasons.append(f"the drain waits for pod {name}: {event['message']}")
    return reasons
