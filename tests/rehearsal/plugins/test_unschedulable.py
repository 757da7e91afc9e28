"""The early end of a wait for pods that no node can ever take."""

import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from ml_foundations.rehearsal.api import Object
from ml_foundations.rehearsal.cloud.store import Store
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.plugins import running_calls
from ml_foundations.rehearsal.plugins.kubernetes import unschedulable
from ml_foundations.rehearsal.plugins.kubernetes.unschedulable import UnschedulableCheck

WHY = "no node can ever take its pods: each pod needs 28Gi memory"


class Answers:
    """A client that lists some pods and events."""

    def __init__(self, *pods: Object, events: Sequence[Object] = ()) -> None:
        self.pods, self.events = pods, events

    def list(self, _version: str, kind: str, *_: str, **__: str) -> list[Object]:
        return list(self.events if kind == "Event" else self.pods)


def pod(uid: str, **spec: Any) -> Object:
    return {"metadata": {"uid": uid}, "spec": {"restartPolicy": "Always", **spec}}


def deployment(**labels: str) -> Object:
    metadata = {"uid": "u", "name": "chat", "namespace": "default", "labels": labels}
    spec = {"selector": {"matchLabels": {"app": "chat"}}}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec}


@pytest.fixture(autouse=True)
def _a_call_under_way(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(unschedulable, "_CHECK_SECONDS", 0)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    with running_calls.running():
        yield


def note(*uids: str, later: float = 30) -> None:
    """Note pods that a round of the autoscaler found hopeless, which began some seconds from now."""
    rehearsal = Rehearsal.of_this_process()
    rehearsal.gke_dir.mkdir(exist_ok=True)
    Store(rehearsal).put(
        "hopeless",
        {"began": time.time() + later, "pods": dict.fromkeys(uids, WHY.partition(": ")[2])},
    )


def said(live: Object, *pods: Object) -> str:
    client: Any = Answers(*pods)
    return UnschedulableCheck(client).reason([live])


def test_a_wait_for_pods_that_no_node_takes_is_in_vain() -> None:
    note("a", "b")
    assert said(deployment(), pod("a"), pod("b")) == WHY


def test_a_pod_is_reported_after_a_second_autoscaler_round() -> None:
    note("a", later=10)
    client: Any = Answers(pod("a"))
    wait = UnschedulableCheck(client)
    assert not wait.reason([deployment()])
    note("a", later=30)
    assert wait.reason([deployment()]) == WHY


@pytest.mark.parametrize(
    ("live", "pods"),
    [
        (deployment(), [pod("a"), pod("new")]),
        (deployment(), [pod("a", nodeName="n")]),
        (deployment(), []),
        (deployment(**{"kueue.x-k8s.io/queue-name": "q"}), [pod("a")]),
    ],
    ids=["one may find a node", "it has a node", "no pods yet", "its queue may bring nodes"],
)
def test_a_doubt_lets_the_wait_go_on(live: Object, pods: list[Object]) -> None:
    note("a")
    assert not said(live, *pods)


def test_anything_else_under_way_lets_the_wait_go_on() -> None:
    note("a")
    done, started = threading.Event(), threading.Event()

    def make_a_pool() -> None:
        with running_calls.running():
            started.set()
            done.wait()

    other = threading.Thread(target=make_a_pool)
    other.start()
    started.wait()
    try:
        assert not said(deployment(), pod("a"))
    finally:
        done.set()
        other.join()
    assert said(deployment(), pod("a")) == WHY


def test_many_waits_do_not_keep_a_pool_from_being_created(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    note("a")
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    for index in range(3):
        (Rehearsal.of_this_process().root / running_calls.FOLDER / f"{index}").write_text("idle")
    assert not said(deployment(), pod("a"))


def test_a_server_that_does_not_answer_lets_the_wait_go_on() -> None:
    note("a")
    client: Any = None
    assert not UnschedulableCheck(client).reason([deployment()])


COLLECTED = time.time()


def refusal(later: float, replica_set: str = "chat-5f") -> Object:
    """A refusal by a quota, some seconds from now."""
    last = datetime.fromtimestamp(COLLECTED + later, UTC).isoformat()
    involved = {"kind": "ReplicaSet", "name": replica_set, "namespace": "default", "uid": "r"}
    return {"involvedObject": involved, "lastTimestamp": last, "message": "exceeded quota: team"}


REFUSED = "the API server refuses its pods: exceeded quota: team"


@pytest.mark.parametrize(
    ("event", "live", "pods", "said"),
    [
        (refusal(5), deployment(), [], REFUSED),
        (refusal(5), deployment(), [pod("a")], REFUSED),
        (refusal(-5), deployment(), [], ""),
        (refusal(5, "other-5f"), deployment(), [], ""),
        (refusal(5), deployment(), [pod("a", restartPolicy="Never")], ""),
        (refusal(5), deployment() | {"status": {"replicas": 2, "updatedReplicas": 1}}, [], ""),
    ],
    ids=["quota", "the others", "before the last call", "of another", "a pod ends", "a rollout"],
)
def test_pods_that_the_api_server_refuses_end_the_wait(
    monkeypatch: pytest.MonkeyPatch, event: Object, live: Object, pods: list[Object], said: str
) -> None:
    client: Any = Answers(*pods, events=[event])
    now = COLLECTED
    monkeypatch.setattr(time, "time", lambda: now)
    wait = UnschedulableCheck(client)
    assert not wait.reason([live])
    monkeypatch.setattr(time, "time", lambda: now + 30)
    assert wait.reason([live]) == said


def test_one_object_of_a_release_is_enough() -> None:
    note("a")
    client: Any = Answers(pod("a"))
    ready = deployment() | {"spec": {}}
    assert UnschedulableCheck(client).reason([ready, deployment()]) == WHY
