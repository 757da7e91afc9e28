"""The programs in docs/training.md declare what they say."""

import re

import yaml

from tests.support import programs
from tests.support.checkout import CHECKOUT
from tests.workloads.building import job

PATH = CHECKOUT / "docs" / "training.md"
PAGE = PATH.read_text()


def test_the_program_declares_one_of_each() -> None:
    kinds = {request.type.rpartition(":")[2] for request in programs.run(PATH)}
    assert {"Task", "TrainingJob", "DistributedTraining", "Sweep", "ScheduledTraining"} <= kinds
    assert {"Pod", "Job", "Service", "ConfigMap", "CronJob"} <= kinds


def test_the_overrides_do_what_the_page_says() -> None:
    texts = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    (text,) = [text for text in texts if "podOverrides" in text]
    given = yaml.safe_load(text)
    made = job(pod_overrides=given["podOverrides"], overrides=given["overrides"])
    (main,) = made["spec"]["template"]["spec"]["containers"]
    assert main["securityContext"]["capabilities"] == {"drop": ["ALL"], "add": ["IPC_LOCK"]}
    assert made["metadata"]["labels"]["cost-centre"] == "ml"
