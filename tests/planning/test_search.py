"""What is counted agrees with what is found by trying every way."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from ml_foundations.planning.model.node_groups import (
    Demand,
    NodeGroup,
    PodClass,
    carrying,
    pod_class,
)
from ml_foundations.planning.model.nodes import node_class
from ml_foundations.planning.scheduler.capacity import capacity
from ml_foundations.planning.scheduler.competition import (
    _always_fit,
    _shortfall,
    _without_repelling_nodes,
)
from ml_foundations.planning.scheduler.exhaustive_search import search
from ml_foundations.planning.scheduler.filters import refusals
from ml_foundations.planning.scheduler.packing import arrangements

from tests.factories import (
    HOSTNAME,
    ZONE,
    Manifest,
    affinity,
    anti_affinity,
    container,
    node,
    pool,
    spread,
)

TAINT = {"key": "dedicated", "value": "x", "effect": "NoSchedule"}

sizes = st.integers(1, 5)
apps = st.sampled_from(["web", "db"])
keys = st.sampled_from([ZONE, HOSTNAME])


@st.composite
def clusters(draw: st.DrawFn) -> list[NodeGroup]:
    manifests: list[Manifest] = []
    for index in range(draw(st.integers(1, 3))):
        name, labels = f"p{index}", {"pool": f"p{index}"}
        if draw(st.integers(0, 4)):
            labels[ZONE] = draw(st.sampled_from(["a", "b", "c"]))
        taints = [TAINT] if not draw(st.integers(0, 3)) else []
        room = {"cpu": draw(sizes), "memory": draw(sizes), "pods": draw(st.integers(1, 5))}
        if count := draw(st.integers(0, 2)):
            manifests.append(pool(name, count, labels, taints, **room))
        else:
            manifests.append(node(name, labels, taints, **room))
    classes = [*map(node_class, manifests)]
    running = {
        each.name: [draw(pod_classes("running")) for _ in range(draw(st.integers(0, 1)))]
        for each in classes
        if not each.is_template
    }
    return [carrying(each, running.get(each.name, ())) for each in classes]


KINDS = st.sampled_from(["spread", "anti", "affinity", "port", "tolerate"])


@st.composite
def pod_classes(draw: st.DrawFn, name: str = "web", *, constraints: int = 1) -> PodClass:
    amounts = {"cpu": draw(st.integers(0, 3)), "memory": draw(st.integers(0, 3))}
    spec: dict[str, Any] = {"containers": [container(**amounts)]}
    app = draw(apps)
    for kind in draw(st.lists(KINDS, max_size=constraints)):
        match kind:
            case "spread":
                policies = {
                    "nodeTaintsPolicy": draw(st.sampled_from(["Honor", "Ignore"])),
                    "minDomains": draw(st.integers(1, 3)),
                }
                skew = spread(draw(keys), draw(st.integers(1, 2)), draw(apps), **policies)
                spec["topologySpreadConstraints"] = [skew]
            case "anti":
                spec.setdefault("affinity", {}).update(anti_affinity(draw(keys), draw(apps)))
            case "affinity":
                spec.setdefault("affinity", {}).update(affinity(draw(keys), draw(apps)))
            case "port":
                port = {"containerPort": 80, "hostPort": draw(st.integers(80, 81))}
                spec["containers"][0]["ports"] = [port]
            case _:
                spec["tolerations"] = [{"operator": "Exists"}]
    return pod_class(name, "team", {"app": app}, spec, {})


def demand(pod: PodClass, count: int, cluster: list[NodeGroup]) -> Demand:
    return Demand(pod, count, [place for place in cluster if not refusals(pod, place.node)])


def groups(fewest: int, most: int) -> st.SearchStrategy[list[tuple[PodClass, int]]]:
    """One to three classes of pods, each with at most so many pods."""
    group = st.tuples(pod_classes(constraints=2), st.integers(1, most))
    return st.lists(group, min_size=fewest, max_size=3)


@settings(max_examples=150, deadline=None)
@given(clusters(), pod_classes(constraints=2), st.integers(1, 7))
def test_the_capacity_of_one_class_is_what_every_order_gives(
    cluster: list[NodeGroup], pod: PodClass, count: int
) -> None:
    wanted = demand(pod, count, cluster)
    counted = capacity(pod, [(place, place.room(pod)) for place in wanted.node_groups], cluster)
    tried = search([wanted], cluster, count_each=True)
    assert tried is not None and tried.exhausted
    assert min(count, counted.least) <= tried.least[0]
    assert tried.most[0] <= min(count, counted.most)
    if counted.least == counted.most:
        assert tried.least[0] == tried.most[0] == min(count, counted.most)


@settings(max_examples=150, deadline=None)
@given(clusters(), groups(fewest=1, most=4))
def test_arrangements_are_what_every_order_leads_to(
    cluster: list[NodeGroup], pods: list[tuple[PodClass, int]]
) -> None:
    demands = [demand(*each, cluster) for each in pods]
    arranged = arrangements([_without_repelling_nodes(each, cluster) for each in demands])
    tried = search(demands, cluster)
    assert tried is not None
    if arranged is not None and tried.exhausted:
        assert (arranged.complete, arranged.stuck) == (tried.complete, tried.stuck)


@settings(max_examples=150, deadline=None)
@given(clusters(), groups(fewest=2, most=3))
def test_bounds_on_several_classes_are_never_wrong(
    cluster: list[NodeGroup], pods: list[tuple[PodClass, int]]
) -> None:
    demands = [demand(*each, cluster) for each in pods]
    tried = search(demands, cluster)
    assert tried is not None
    if _shortfall(demands):
        assert not tried.complete
    if _always_fit(demands, cluster):
        assert tried.complete and not tried.stuck
