"""Public manifests, made with our components and compared field by field.

A file of ``manifests`` names its source, the component and its arguments, and has what the source
says of each object. Whatever a component adds, such as requests or a security context, is not a
difference. ``exact`` has fields that are equal as a whole.
"""

from functools import reduce
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.workloads import building
from tests.workloads.comparing import differences

FILES = sorted((Path(__file__).parent / "manifests").glob("*.yaml"))
SPECS = {
    "TrainingJob": building.job_spec,
    "DistributedTraining": building.gang_spec,
    "ScheduledTraining": building.cron_spec,
    "InferenceService": building.service_spec,
    "ShardedSet": building.shards_spec,
}


def field_of(manifest: Any, path: str) -> Any:
    """Return a field of a manifest by its path, such as ``spec.ports.0.port``."""
    parts = (int(part) if part.isdigit() else part for part in path.split("."))
    return reduce(lambda value, part: value[part], parts, manifest)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_component_makes_a_public_manifest(file: Path) -> None:
    public = yaml.safe_load(file.read_text())
    spec = SPECS[public["component"]](**public["arguments"])
    objects = {manifest["kind"]: manifest for manifest in spec.manifests()}
    for kind, expected in public["objects"].items():
        assert not list(differences(expected, objects[kind])), kind
    for kind in public.get("spec_has_no_more", ()):
        assert objects[kind]["spec"].keys() == public["objects"][kind]["spec"].keys()
    for field, expected in public.get("exact", {}).items():
        kind, path = field.split(" ")
        assert field_of(objects[kind], path) == expected
