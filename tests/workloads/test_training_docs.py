"""The programs in docs/training.md declare what they say."""

import re

import yaml

from tests.support.checkout import CHECKOUT
from tests.support.declaring import declared
from tests.workloads.building import job

PAGE = (CHECKOUT / "docs" / "training.md").read_text()


def test_the_program_declares_one_of_each() -> None:
    (program,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    requests = declared(lambda: exec(program, {}))
    kinds = {request.type.rpartition(":")[2] for request in requests.values()}
    assert {"Task", "TrainingJob", "DistributedTraining", "Sweep", "ScheduledTraining"} <= kinds
    assert {"Pod", "Job", "Service", "ConfigMap", "CronJob"} <= kinds


def test_the_overrides_do_what_the_page_says() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    given = yaml.safe_load(text)
    made = job(pod_overrides=given["podOverrides"], overrides=given["overrides"])
    (main,) = made["spec"]["template"]["spec"]["containers"]
    assert main["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["IPC_LOCK"]}
    assert made["metadata"]["labels"]["cost-centre"] == "ml"
