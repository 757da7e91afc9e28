"""Access modes of disks: what the provisioner and the attach controller refuse."""

from typing import Any
from unittest.mock import Mock

import pytest
from ml_foundations.catalog.disks import FILESTORE_CSI, PD_CSI
from ml_foundations.rehearsal.api import NODES
from ml_foundations.rehearsal.cloud.kubelet import Kubelet
from ml_foundations.rehearsal.cloud.volumes import CLAIMS, CLASSES, VOLUMES, VolumeProvisioner

from tests import factories
from tests.support.controlled import cluster_of


def claim(driver: str, mode: str, volume_mode: str) -> dict[str, Any]:
    annotations = {
        "volume.kubernetes.io/storage-provisioner": driver,
        "volume.kubernetes.io/selected-node": "gke-n",
    }
    made = factories.claim("d", mode, "1Ti", volumeMode=volume_mode, storageClassName="c")
    made["metadata"] |= {"namespace": "x", "uid": "u", "annotations": annotations}
    return made


@pytest.mark.parametrize(
    ("driver", "mode", "volume_mode", "is_made"),
    [
        (PD_CSI, "ReadWriteOnce", "Filesystem", True),
        (PD_CSI, "ReadWriteOncePod", "Filesystem", True),
        (PD_CSI, "ReadWriteMany", "Filesystem", False),
        (PD_CSI, "ReadWriteMany", "Block", True),
        (FILESTORE_CSI, "ReadWriteMany", "Filesystem", True),
    ],
)
def test_a_disk_is_made_for_the_modes_that_it_has(
    driver: str, mode: str, volume_mode: str, is_made: bool
) -> None:
    labels = {
        "node.kubernetes.io/instance-type": "n2-standard-8",
        "topology.gke.io/zone": "us-central1-a",
    }
    node = {"metadata": {"name": "gke-n", "labels": labels}}
    parameters = {"type": "pd-balanced"}
    storage_class = {"metadata": {"name": "c"}, "provisioner": driver, "parameters": parameters}
    claims = [claim(driver, mode, volume_mode)]
    api = Mock(find=Mock(return_value=None))
    live = {NODES: [node], CLAIMS: claims, CLASSES: [storage_class]}
    VolumeProvisioner(cluster_of(api, live=live)).reconcile()
    assert api.ensure.called is is_made
    reasons = [call.args[1]["reason"] for call in api.create.call_args_list]
    assert reasons == ([] if is_made else ["ProvisioningFailed"])


CLAIMED = {"persistentVolumeClaim": {"claimName": "d"}}
INLINE = {"gcePersistentDisk": {"pdName": "maps"}}


def pod(name: str, node: str, source: dict[str, Any]) -> dict[str, Any]:
    conditions = [{"type": "PodReadyToStartContainers", "status": "False"}]
    return {
        "metadata": {"name": name, "namespace": "x", "uid": name},
        "spec": {"nodeName": node, "containers": [], "volumes": [{"name": "v", **source}]},
        "status": {"phase": "Pending", "conditions": conditions},
    }


@pytest.mark.parametrize(
    ("source", "mode", "nodes", "started"),
    [
        (CLAIMED, "ReadWriteOnce", ("gke-a", "gke-b"), 1),
        (CLAIMED, "ReadWriteOnce", ("gke-a", "gke-a"), 2),
        (CLAIMED, "ReadOnlyMany", ("gke-a", "gke-b"), 2),
        (INLINE, "", ("gke-a", "gke-b"), 1),
        ({"gcePersistentDisk": {"pdName": "maps", "readOnly": True}}, "", ("gke-a", "gke-b"), 2),
    ],
)
def test_a_disk_for_one_node_is_attached_to_one(
    source: dict[str, Any], mode: str, nodes: tuple[str, str], started: int
) -> None:
    claim_ref = {"namespace": "x", "name": "d"}
    spec = {"csi": {"driver": PD_CSI}, "claimRef": claim_ref, "accessModes": [mode]}
    volume = {"metadata": {"name": "pvc-u"}, "spec": spec}
    api = Mock()
    pods = [pod("one", nodes[0], source), pod("two", nodes[1], source)]
    Kubelet(cluster_of(api, live={VOLUMES: [volume]}, pods=pods)).reconcile()
    assert api.set_condition.call_count == started
    said = [call.args[1]["message"] for call in api.create.call_args_list]
    disk = "maps" if source == INLINE else "pvc-u"
    expected = [f'Multi-Attach error for volume "{disk}" Volume is already used by pod(s) one']
    assert said == (expected if started == 1 else [])
