"""A control plane for one module or for a few, with the controllers that its tests start."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kubernetes import config
from ml_foundations.rehearsal.control_plane import controllers, kwok
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.tools.toolchain import Tools

from tests.support.cluster import Cluster


@contextmanager
def own_replica(tools: Tools, root: Path) -> Iterator[Cluster]:
    """Start a bare replica. At the end it goes with the controllers that were started in it."""
    rehearsal = Rehearsal.of("t", root)
    rehearsal.make()
    try:
        kwok.start(rehearsal, tools)
        api = config.new_client_from_config(str(rehearsal.kubeconfig))
        yield Cluster(rehearsal, rehearsal.kubeconfig, api)
    finally:
        controllers.stop(rehearsal)
        kwok.delete(rehearsal)
