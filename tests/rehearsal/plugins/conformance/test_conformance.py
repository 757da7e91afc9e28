"""What Pulumi's own kubernetes plugin does, scenario by scenario, as scenarios.yaml has it: on the embedded one, and on it."""

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import utils
from kubernetes.client import CoreV1Api
from ml_foundations.rehearsal.engine import installation
from ml_foundations.rehearsal.tools.toolchain import Tools

from tests.rehearsal.plugins.conformance import running
from tests.rehearsal.plugins.conformance.running import Outcome, Scenario
from tests.support import official
from tests.support.cluster import Cluster
from tests.support.project import Project, fake_node
from tests.support.waiting import until

ALL = running.scenarios()


PLUGINS = ["embedded", pytest.param("official", marks=official.needs_kubernetes_plugin_4_29)]


@pytest.fixture(scope="module", params=PLUGINS)
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
    installation.install(project.rehearsal, tools, official_kubernetes=request.param == "official")
    for scenario in ALL:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": scenario.name}}
        utils.create_from_dict(cluster.api, namespace)
    events = project.root / "events"
    found: dict[str, list[tuple[Outcome, Outcome]]] = {scenario.name: [] for scenario in ALL}
    for step in range(max(len(scenario.steps) for scenario in ALL)):
        # A scenario that has ended stays as it is.
        current = [scenario for scenario in ALL if step < len(scenario.steps)]
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
            project, step, [s for s in ALL if not s.fails_at_preview(step)], events
        )
        done = running.up(project, step, ALL, events)
        for scenario in current:
            found[scenario.name].append((failing.get(scenario.name, others), done))
    objects = {
        s.name: {at: project.kubectl("get", *at.split("/"), "-n", s.name) for at in s.objects}
        for s in ALL
    }
    yield {name: (steps, objects[name]) for name, steps in found.items()}
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


@pytest.mark.parametrize("scenario", [pytest.param(scenario, id=scenario.name) for scenario in ALL])
def test_as_pulumis_own(
    scenario: Scenario, outcomes: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    if "official" in request.node.name and scenario.stricter:
        pytest.skip("the embedded plugin is stricter here")
    steps, objects = outcomes[scenario.name]
    names = {name: f"{scenario.name}.{name}" for name in scenario.names}
    for number, (previewed, done) in enumerate(steps):
        step, where = scenario.steps[number], f"step {number + 1}"
        told = {name: word for name, full in names.items() if (word := done.of(full))}
        assert told == step["does"], f"{where}: {[done.said[names[name]] for name in told]}"
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
