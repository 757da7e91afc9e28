"""The complete examples of the pages on operator, DRA, storage and tenancy run, and declare what they show."""

import re
from typing import Any

import pytest
import yaml
from ml_foundations.gpu.device_classes import DeviceClassesSpec
from ml_foundations.gpu.operator import GpuOperatorSpec
from ml_foundations.storage.classes import StorageClassesSpec
from ml_foundations.tenancy.quota import TeamQuota

from tests.support import programs
from tests.support.checkout import CHECKOUT

PAGES = {
    "gpu-operator": ["gpu-operator-release", "gpu-operator-critical-pods"],
    "dra": ["devices-driver", "devices-large-gpu", "devices-research-two-gpus"],
    "storage": ["storage-datasets", "storage-filestore-regional", "corpus-claim", "raw-volume"],
    "tenancy": ["research-gpus-nvidia-l4", "research-image-pull", "research-workload-identity"],
}


def blocks(page: str, language: str) -> list[str]:
    text = (CHECKOUT / "docs" / f"{page}.md").read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize("page", PAGES)
def test_the_example_declares_what_it_shows(page: str) -> None:
    declared = programs.run(CHECKOUT / "docs" / f"{page}.md")
    assert set(PAGES[page]) <= {request.name for request in declared}


def test_the_sections_of_stack_files_are_right() -> None:
    def section(page: str, key: str) -> Any:
        [found] = [block for block in blocks(page, "yaml") if f"ml-foundations:{key}" in block]
        return yaml.safe_load(found)[f"ml-foundations:{key}"]

    by_alias: Any = {"by_alias": True, "by_name": False}
    GpuOperatorSpec.model_validate(section("gpu-operator", "gpuOperator"), **by_alias)
    StorageClassesSpec.model_validate(section("storage", "storage"), **by_alias)
    DeviceClassesSpec.model_validate({}, **by_alias)
    quota = section("tenancy", "teams")["research"]["quota"]
    assert TeamQuota.model_validate(quota, **by_alias).gpus_by_model["nvidia-a100-80gb"] == 8
