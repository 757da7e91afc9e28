"""The first `up` on a machine without tools, next to a mirror that has the publishers' layout."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ml_foundations.rehearsal.tools.toolchain import Tools

from tests.support.checkout import Checkout
from tests.support.mirror import publish, serving

TABLE = Path("components", "ml_foundations", "rehearsal", "tools", "releases.toml")


def outcome(checkout: Checkout, **env: str) -> dict[str, Any]:
    """What `up` on dev comes to, except on which of several equal nodes a pod ran."""
    done = checkout.run("up", **env)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(checkout.run("report", "--json", **env).stdout)
    for workload in report["workloads"]:
        del workload["nodes"], workload["pools"]
    report["retained"].sort(key=lambda retained: retained["object"])
    return report | {"stderr": done.stderr}


def test_the_first_up_by_download_comes_to_the_same_as_by_built_tools(
    tools: Tools, copy_checkout: Callable[[], Checkout], tmp_path: Path
) -> None:
    checkout = copy_checkout()
    with serving(publish(tools, checkout.root / TABLE)) as mirror:
        env = {
            "ML_FOUNDATIONS_MIRROR": mirror.address,
            "ML_FOUNDATIONS_TOOLS": "download",
            "XDG_CACHE_HOME": str(tmp_path),
        }
        by_download = outcome(checkout, **env)
        doctor = checkout.run("doctor", **env).stdout
    assert "✓ downloading 10 files (once)" in by_download.pop("stderr")
    assert not (tmp_path / "ml-foundations" / "tools").exists()
    assert doctor.count("downloaded, ") == 9 and "downloads and builds nothing" in doctor
    assert re.search(r"^pulumi-language-yaml +part of pulumi$", doctor, re.M)
    by_built = outcome(copy_checkout())
    assert "downloading" not in by_built.pop("stderr")
    assert by_download == by_built
