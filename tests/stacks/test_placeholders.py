"""Our stack files have placeholders: a preview for Google Cloud names the key of each, and a rehearsal accepts them."""

import re

import pulumi
import pytest
import yaml

from tests.support import recording
from tests.support.checkout import CHECKOUT
from tests.support.recording import STACKS
from tests.support.stack_files import with_own_values

KEYS = {
    "dev": {"gcp:project", "ml-foundations:cluster.authorizedNetworks.office"},
    "staging": {"gcp:project"},
    "prod": {
        "gcp:project",
        "ml-foundations:cluster.secretsKey",
        "ml-foundations:cluster.securityGroup",
        "ml-foundations:cluster.notificationTopic",
        *(f"ml-foundations:teams.{team}.group" for team in ("pretraining", "research", "serving")),
    },
}
FILES = {name: (CHECKOUT / "stacks" / f"Pulumi.{name}.yaml").read_text() for name in STACKS}


@pytest.mark.parametrize("name", STACKS)
def test_a_preview_for_google_cloud_names_every_key_at_once(name: str) -> None:
    with pytest.raises(pulumi.RunError) as refused:
        recording.as_for_google(name, recording.stack_file(name))
    errors, _, _ = str(refused.value).partition("\n\n")
    lines = errors.splitlines()[1:]
    assert all("[placeholder, " in line for line in lines)
    assert {
        written for line in lines for written in re.findall(r"Written at (\S+)\. ", line)
    } == KEYS[name]
    assert len(lines) == len(KEYS[name])


@pytest.mark.parametrize("name", STACKS)
def test_with_values_of_ones_own_it_passes(name: str) -> None:
    own = yaml.safe_load(with_own_values(FILES[name]))["config"]
    assert recording.as_for_google(name, own)


@pytest.mark.parametrize("name", STACKS)
def test_each_key_is_marked_in_the_file_and_in_the_guide(name: str) -> None:
    assert FILES[name].count("  # yours\n") == len(KEYS[name])
    guide = (CHECKOUT / "docs" / "going-to-gke.md").read_text()
    assert not {
        key for key in KEYS[name] if re.sub(r"teams\.\w+\.", "teams.<team>.", key) not in guide
    }
