"""Files that come with a workload, the user that it runs as, and a home that this user may write to."""

from typing import Any

import pytest

from tests.support.parts import manifest_of
from tests.support.refusing import refusal
from tests.workloads.building import (
    container_of,
    gang,
    job,
    job_spec,
    pod_of,
    searched,
    service_spec,
    shards_spec,
)

SCRIPT = {"/workspace/train.py": "print('trains')\n"}


TOO_LONG = "ä" * (1 << 19) + "b"
IN_ITS_PLACE = {"scratch": "1Gi", "path": "/workspace/train.py"}


def mounted(pod: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {mount["mountPath"]: mount for mount in pod["containers"][0]["volumeMounts"]}


def read_only(**fields: Any) -> dict[str, Any]:
    context = {"readOnlyRootFilesystem": True}
    return {"containers": [{"name": "main", "securityContext": context, **fields}]}


def test_a_file_is_mounted_beside_what_the_image_has_there() -> None:
    config_map, made = job_spec(files=SCRIPT).manifests()
    assert config_map["kind"] == "ConfigMap"
    assert config_map["data"] == {"workspace.train.py": "print('trains')\n"}
    assert config_map["immutable"] is True
    pod = pod_of(made)
    mount = mounted(pod)["/workspace/train.py"]
    assert (mount["subPath"], mount["readOnly"]) == ("workspace.train.py", True)
    volume = next(volume for volume in pod["volumes"] if volume["name"] == mount["name"])
    assert volume["configMap"] == {"name": config_map["metadata"]["name"], "defaultMode": 0o555}


def test_another_text_makes_other_pods() -> None:
    made = [job_spec(files={"/a": text}).manifests()[0] for text in ("1", "2", "2")]
    assert len({config_map["metadata"]["name"] for config_map in made}) == 2


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"files": {"train.py": ""}}, "files.train.py: must be an absolute path"),
        ({"files": {"/a/../b c": ""}}, "files./a/../b c: must be an absolute path"),
        ({"files": {"/a/b": "", "/a.b": ""}}, "files./a.b: has the same key as /a/b"),
        ({"files": {"/a": TOO_LONG}}, "files: have 1048577 bytes, but a ConfigMap holds 1048576"),
        ({"files": SCRIPT, "mounts": [IN_ITS_PLACE]}, "mounts[0].path"),
        ({"image_user": True, "run_as_user": 0}, "image_user: leaves the user to the image"),
    ],
)
def test_what_cannot_be_mounted_is_refused(given: dict[str, Any], words: str) -> None:
    assert words in refusal(job, **given)


def test_files_fit_to_the_byte() -> None:
    assert job_spec(files={"/a": "b" * (1 << 20)}).manifests()


def test_files_come_with_every_kind_of_workload() -> None:
    made = [*gang(files=SCRIPT), *searched(files=SCRIPT)]
    made += [*service_spec(files=SCRIPT).manifests(), *shards_spec(files=SCRIPT).manifests()]
    assert sum("workspace.train.py" in item.get("data", {}) for item in made) == 4


def test_a_user_whom_the_image_does_not_know_has_a_home() -> None:
    """PyTorch asks for the user's name when it is imported, and Hugging Face writes below HOME."""
    pod = pod_of(job())
    env = {item["name"]: item["value"] for item in pod["containers"][0]["env"]}
    assert env == {"HOME": "/home/user", "USER": "user"}
    assert mounted(pod)["/home/user"]["name"] == "home"
    assert {"name": "home", "emptyDir": {}} in pod["volumes"]


@pytest.mark.parametrize(
    "given",
    [
        {"run_as_user": 0},
        {"image_user": True},
        {"env": {"HOME": "/data"}},
        {"field_env": {"HOME": "spec.nodeName"}},
    ],
)
def test_who_has_a_home_keeps_it(given: dict[str, Any]) -> None:
    pod = pod_of(job(**given))
    assert "volumes" not in pod
    assert "USER" not in {item["name"] for item in pod["containers"][0].get("env", [])}


@pytest.mark.parametrize("user", [{}, {"run_as_user": 0}, {"image_user": True}])
def test_a_read_only_root_has_places_to_write_to(user: dict[str, Any]) -> None:
    pod = pod_of(job(pod_overrides=read_only(), **user))
    names = {path: mount["name"] for path, mount in mounted(pod).items()}
    assert names == {"/home/user": "home", "/tmp": "tmp"}
    assert pod["volumes"] == [{"name": "home", "emptyDir": {}}, {"name": "tmp", "emptyDir": {}}]


OWN_TMP = {"name": "own", "mountPath": "/tmp"}


@pytest.mark.parametrize(
    ("mounts", "overrides"),
    [
        ([{"path": "/tmp/", "scratch": "1Gi"}], {}),
        ([{"path": "/own", "scratch": "1Gi", "name": "own"}], {"volumeMounts": [OWN_TMP]}),
        ([], {"securityContext": {"readOnlyRootFilesystem": False}}),
    ],
)
def test_who_has_a_tmp_keeps_it(mounts: list[Any], overrides: dict[str, Any]) -> None:
    pod = pod_of(job(mounts=mounts, pod_overrides=read_only(**overrides)))
    assert "tmp" not in {volume["name"] for volume in pod["volumes"]}


def test_the_images_own_user_is_left_to_the_image() -> None:
    pod = pod_of(job(image_user=True))
    assert not {"runAsUser", "runAsNonRoot"} & pod["securityContext"].keys()
    assert pod["securityContext"]["fsGroup"] == 1000
    assert pod["containers"][0]["securityContext"] == {"allowPrivilegeEscalation": False}


def test_cpu_and_memory_may_be_left_to_the_limit_range() -> None:
    spec = job_spec()
    assert container_of(job())["resources"]["requests"] == {"cpu": spec.cpu, "memory": spec.memory}
    left = manifest_of(job_spec(cpu=None, memory=None, gpus=1), "Job")
    one = {"nvidia.com/gpu": "1"}
    assert container_of(left)["resources"] == {"requests": one, "limits": one}


def test_a_volume_may_be_a_side_containers_alone() -> None:
    side = {"name": "sync", "image": "sync"}
    side |= {"volumeMounts": [{"name": "data", "mountPath": "/data"}]}
    pod = pod_of(job(mounts=[{"claim": "data"}], side_containers=[side]))
    assert {"name": "data", "persistentVolumeClaim": {"claimName": "data"}} in pod["volumes"]
    assert "data" not in {mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
    message = refusal(job, mounts=[{"claim": "data", "sub_path": "a"}])
    assert "mounts[0].sub_path: is for a path" in message


def test_pods_may_have_a_host_name_in_a_service() -> None:
    pod = pod_of(job(hostname="server", subdomain="peers"))
    assert (pod["hostname"], pod["subdomain"]) == ("server", "peers")
