"""The project that faults meet: small, with everything that a fault may lose or double, and changing by its config.

It imports none of the SDKs: half of what a run of it would take.
"""

from __future__ import annotations

import sys
from pathlib import Path

STACK = "t"

_PROGRAM = """
import pulumi
from ml_foundations import CpuNodePool, GkeCluster, GpuNodePool, StorageClasses, TeamNamespace, TrainingJob
from ml_foundations import TrainingQueue, Volume

REVISION = {revision}
QUEUE = {queue}

place = {{"project": "my-project-dev", "location": "us-central1"}}
cluster = GkeCluster("faults", {{**place, "deletion_protection": False}})
pool = {{
    **place, "cluster_name": cluster.cluster_name, "node_service_account": cluster.node_service_account,
    "zones": ["us-central1-a"],
}}
system = CpuNodePool("system", {{**pool, "machine_type": "n2-standard-4", "min_nodes": 1, "max_nodes": 2}})
l4 = GpuNodePool(
    "l4", {{**pool, "deletion_protection": False, "machine_type": "g2-standard-8", "max_nodes": 2}},
    pulumi.ResourceOptions(depends_on=[system]),
)
kubernetes = pulumi.ResourceOptions(provider=cluster.kubernetes_provider(depends_on=[system, l4]))
after = lambda *made: pulumi.ResourceOptions.merge(kubernetes, pulumi.ResourceOptions(depends_on=list(made)))
storage = StorageClasses("storage", {{"retain": True}}, kubernetes)
team = TeamNamespace("research", {{"gpus": 2, "cpu": "16", "memory": "64Gi", "storage": "1Ti"}}, kubernetes)
data = Volume(
    "data", {{"namespace": "research", "size": "10Gi", "storage_class": "zonal-balanced"}}, after(team, storage)
)
before = [team, data]
if QUEUE:
    before.append(TrainingQueue("queue", {{
        "flavors": [{{"name": "l4", "gpu": l4.gpu, "node_selector": l4.node_selector, "tolerations": l4.tolerations}}],
        "teams": [{{"namespace": "research", "cpu": "16", "memory": "64Gi", "gpus": {{"l4": 2}}}}],
    }}, after(team)))
TrainingJob("finetune", {{
    "namespace": "research", "image": f"pytorch/pytorch:2.7.{{REVISION}}", "command": ["sleep", "infinity"],
    "gpu": "L4", "gpus": 1, "cpu": "4", "memory": "16Gi", "mounts": [{{"claim": data.claim_name, "path": "/data"}}],
    **({{"queue": "training"}} if QUEUE else {{}}),
}}, after(*before))
def declare(kind, name, **content):
    metadata = {{"name": name, "namespace": "research"}}
    manifest = {{"apiVersion": "v1", "kind": kind, "metadata": metadata, **content}}
    pulumi.CustomResource(f"kubernetes:core/v1:{{kind}}", name, manifest, after(team))
for number in range(3):
    declare("ConfigMap", f"note-{{number}}", data={{"revision": str(REVISION)}})
declare("Secret", f"key-{{REVISION % 2}}", stringData={{"key": str(REVISION)}})
bucket = {{"project": "my-project-dev", "location": "US", "labels": {{"revision": str(REVISION)}}}}
pulumi.CustomResource("gcp:storage/bucket:Bucket", "bucket", bucket)
"""


def write(folder: Path, revision: int, queue: bool) -> None:
    """Write the project, or what of it changes from one revision to the next.

    A revision replaces the Job, changes the ConfigMaps and the bucket, and creates one Secret and deletes another.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "Pulumi.yaml").write_text(
        f"name: faults\nruntime: {{name: python, options: {{virtualenv: {str(Path(sys.prefix))!r}}}}}\n"
    )
    (folder / "__main__.py").write_text(_PROGRAM.format(revision=revision, queue=queue))
