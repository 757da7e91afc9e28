"""Images without a digest, in programs that ask for digests."""

from typing import Any

import pytest
from ml_foundations.planning import UNKNOWN, judge
from ml_foundations.planning.verdict.objects import image_findings

from tests.factories import container, daemon_set, job, template

DIGEST = f"sha256:{'a' * 64}"


def told(**fields: Any) -> list[str]:
    (verdict,) = judge([daemon_set("agent", template(containers=[container() | fields]))]).workloads
    return [finding.message for finding in image_findings(verdict.workload)]


@pytest.mark.parametrize(
    ("fields", "is_told"),
    [
        ({"image": "a/b:1"}, True),
        ({"image": "a/b"}, True),
        ({"image": f"a/b:1@{DIGEST}"}, False),
        ({"image": f"a/b@{DIGEST}"}, False),
        ({"image": "node-local:1", "imagePullPolicy": "Never"}, False),
        ({"image": UNKNOWN}, False),
    ],
)
def test_an_image_needs_a_digest(fields: dict[str, Any], is_told: bool) -> None:
    assert bool(told(**fields)) is is_told


def test_every_container_is_named_with_its_path() -> None:
    pods = template(
        containers=[container() | {"image": f"a@{DIGEST}"}],
        initContainers=[{"name": "i", "image": "b:1"}],
    )
    (verdict,) = judge([job("train", 1, pods)]).workloads
    (finding,) = image_findings(verdict.workload)
    assert finding.path == "spec.template.spec.initContainers[0].image"
    assert (finding.severity, finding.object) == ("warning", "Job team/train")
    assert finding.rule == "image-digest"
