"""An example on Pulumi's own kubernetes plugin: it ends as on the embedded one, and again without a change."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support import official
from tests.support.checkout import Checkout
from tests.support.waiting import until

PROJECT = "--project=examples/minimal"
"""An example without a Helm release: it needs no network."""


def test_an_example_ends_as_on_the_embedded_plugin(
    copy_checkout: Callable[[], Checkout], tmp_path: Path
) -> None:
    with (
        official.kubernetes_plugin(tmp_path),
        rehearsed(copy_checkout().root) as embedded,
        rehearsed(copy_checkout().root, "--official-kubernetes-plugin") as own,
    ):
        up(embedded)
        assert f"using your plugin resource-kubernetes-v{official.RELEASE}" in up(own)
        # A quota counts a moment after the end of a pod.
        until(lambda: outcome(own) == outcome(embedded))
        assert re.search(r"Resources:\n +\d+ unchanged\n", up(own)), "nothing else"
        until(lambda: outcome(own) == outcome(embedded))


@contextmanager
def rehearsed(root: Path, *options: str) -> Iterator[Checkout]:
    """A copy of the checkout whose rehearsal of the example is taken down."""
    checkout = Checkout(root, options)
    try:
        yield checkout
    finally:
        checkout.run("down", PROJECT)


def up(checkout: Checkout) -> str:
    """Deploy the example, and return what was printed."""
    done = checkout.run("up", PROJECT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def outcome(checkout: Checkout) -> dict[str, Any]:
    """What the report has of the example's objects."""
    report = json.loads(checkout.run("report", PROJECT, "--json").stdout)
    workloads = [[w[field] for field in ("kind", "name", "state")] for w in report["workloads"]]
    assert workloads
    return {"workloads": workloads, "quotas": report["quotas"]}
