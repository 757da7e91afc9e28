"""Images without a digest, in programs that ask for digests."""

from typing import Any

import pytest
from ml_foundations.planning import UNKNOWN
from ml_foundations.planning.rules.objects import image_digests

from tests.factories import container, daemon_set, job, template
from tests.support.stacks import with_workloads

DIGEST = f"sha256:{'a' * 64}"


def told(**fields: Any) -> list[str]:
    agent = daemon_set("agent", template(containers=[container() | fields]))
    return [finding.message for finding in image_digests(with_workloads(agent))]


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
    (finding,) = image_digests(with_workloads(job("train", 1, pods)))
    assert finding.path == "spec.template.spec.initContainers[0].image"
    assert (finding.severity, finding.object) == ("warning", "Job team/train")
    assert finding.rule == "image-digest"
