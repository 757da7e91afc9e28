"""What Pulumi's own kubernetes plugin does, scenario by scenario, as scenarios.yaml has it: on the embedded one, and on it."""

import shlex
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
from kubernetes import utils
from kubernetes.client import CoreV1Api
from ml_foundations.rehearsal.engine import installation
from ml_foundations.rehearsal.tools.toolchain import Tools

from tests.rehearsal.plugins.conformance import running
from tests.rehearsal.plugins.conformance.running import Outcome
from tests.support import official
from tests.support.cluster import Cluster
from tests.support.project import Project, fake_node
from tests.support.waiting import until

ALL = running.scenarios()


@pytest.fixture(scope="module", params=["embedded", "official"])
def outcomes(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    cluster: Cluster,
    tools: Tools,
) -> Iterator[dict[str, Any]]:
    """By scenario: what each step did, what its preview said, and the objects at the end."""
    _delete_namespaces(CoreV1Api(cluster.api))
    utils.create_from_dict(cluster.api, fake_node("conformance", {}))
    project = Project(tmp_path_factory.mktemp("conformance"), cluster, tools)
    is_official = request.param == "official"
    # Otherwise the embedded plugin in this process would answer for Pulumi's own.
    project.has_plugin = not is_official
    plugin = official.kubernetes_plugin(project.root / "home") if is_official else nullcontext()
    with plugin:
        installation.install(project.rehearsal, tools, official_kubernetes=is_official)
    scenarios = running.of_pulumis_own(ALL) if is_official else ALL
    for scenario in scenarios:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": scenario.name}}
        utils.create_from_dict(cluster.api, namespace)
    events = project.root / "events"
    found: dict[str, list[tuple[Outcome, Outcome]]] = {scenario.name: [] for scenario in scenarios}
    for step in range(max(len(scenario.steps) for scenario in scenarios)):
        # A scenario that has ended stays as it is.
        current = [scenario for scenario in scenarios if step < len(scenario.steps)]
        for scenario in current:
            for command in scenario.steps[step].get("meanwhile", []):
                project.kubectl(*shlex.split(command), "-n", scenario.name)
        # A preview ends with the first error: those that must fail are previewed alone.
        failing = {
            s.name: running.preview(project, step, [s], events)
            for s in current
            if s.fails_at_preview(step)
        }
        others = running.preview(
            project, step, [s for s in scenarios if not s.fails_at_preview(step)], events
        )
        done = running.up(project, step, scenarios, events)
        for scenario in current:
            found[scenario.name].append((failing.get(scenario.name, others), done))
    objects = {
        s.name: {at: project.kubectl("get", *at.split("/"), "-n", s.name) for at in s.objects}
        for s in scenarios
    }
    yield {s.name: (s, found[s.name], objects[s.name]) for s in scenarios}
    project.up("")
    project.kubectl("delete", "node", "conformance")


def _delete_namespaces(core: CoreV1Api) -> None:
    """Delete those of the other plugin. The last ones stay: for each that goes, Kubernetes asks a hundred times."""
    names = {scenario.name for scenario in ALL}

    def left() -> set[str]:
        return names & {item.metadata.name for item in core.list_namespace().items}

    for name in left():
        core.delete_namespace(name)
    until(lambda: not left(), seconds=120)


@pytest.mark.parametrize("name", [scenario.name for scenario in ALL])
def test_as_pulumis_own(
    name: str, outcomes: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    scenario, steps, objects = outcomes[name]
    names = {name: f"{scenario.name}.{name}" for name in scenario.names}
    for number, (previewed, done) in enumerate(steps):
        step, where = scenario.steps[number], f"step {number + 1}"
        told = {name: word for name, full in names.items() if (word := done.of(full))}
        messages = [done.said[names[name]] for name in told]
        assert told in (step["does"], step.get("or_does")), f"{where}: {messages}"
        for name, full in names.items():
            expected = scenario.fails_at_preview(number).get(name, "")
            said = previewed.said[full]
            assert (full in previewed.failed) == bool(expected), f"{where}: {said}"
            if "embedded" in request.node.name:  # The words are its own.
                assert step.get("says", {}).get(name, "") in done.said[full], f"{where}, {name}"
                assert expected in said, f"{where}, preview of {name}"
    wrong = [
        line
        for at, wanted in scenario.objects.items()
        for line in running.unlike(wanted, objects[at], at)
    ]
    assert not wrong, "\n".join(wrong)
