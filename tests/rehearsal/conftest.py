"""Fixtures that modules of this folder share: a simulated GKE with plain settings, and a project over H100s."""

from collections.abc import Iterator

import pytest
from ml_foundations.rehearsal.tools.toolchain import Tools

from tests.support.cluster import Cluster
from tests.support.h100_replica import h100_replica
from tests.support.project import Project
from tests.support.simulation import Cloud, simulated_gke


@pytest.fixture(scope="module")
def plain_gke(cluster: Cluster) -> Iterator[Cloud]:
    """A simulated GKE with plain settings. It ends with the module: others need the replica without it."""
    with simulated_gke(cluster) as cloud:
        yield cloud


@pytest.fixture(scope="module")
def h100_project(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    """A project over nodes with H100s, whose program brings the controllers that a module is about.

    A control plane of the module's own: controllers have the certificates of the rehearsal whose program brings them.
    It ends with the module: at rest it takes 3 % of a core, which is more than another start after some minutes.
    """
    root = tmp_path_factory.mktemp("h100")
    with h100_replica(tools, root) as replica:
        yield Project(root, replica, tools)


@pytest.fixture
def project(h100_project: Project) -> Iterator[Project]:
    """Start each test with an empty stack."""
    yield h100_project
    h100_project.clear()
