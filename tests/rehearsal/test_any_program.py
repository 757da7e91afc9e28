"""A program as others write them for GKE: look-ups, random names, a second cluster, a kubeconfig with a token."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import yaml
from ml_foundations.rehearsal.layout import Rehearsal

from tests.rehearsal import secret_pods

KUBECONFIG = """
import json
import pulumi

def kubeconfig(made, user):
    def text(endpoint, auth):
        return json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {
                "server": f"https://{endpoint}", "certificate-authority-data": auth["cluster_ca_certificate"]}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "users": [{"name": "u", "user": user}],
        })
    return pulumi.Output.all(made.endpoint, made.master_auth).apply(lambda given: text(*given))
"""
"""What a program does that writes a kubeconfig for a cluster of its own, by how its user shows who it is."""

PROGRAM = (
    KUBECONFIG
    + """
import pulumi_gcp as gcp
import pulumi_kubernetes as k8s

own = gcp.organizations.get_client_config()
network = gcp.compute.get_network(name="default")
versions = gcp.container.get_engine_versions(location="us-central1-a", version_prefix="1.")
suffix = pulumi.CustomResource(
    "random:index/randomString:RandomString", "suffix", {"length": 4, "special": False, "upper": False, "result": None}
)
def secret(where): return pulumi.Output.secret(f"hunter2-{where}")

gcp.secretmanager.SecretVersion("token", secret="token", secret_data=secret("version"))

def cluster(name, place, pool):
    made = gcp.container.Cluster(
        name, name="apps", location=place, network=network.self_link, min_master_version=versions.latest_master_version,
        remove_default_node_pool=True, initial_node_count=1, deletion_protection=False,
    )
    config = {"machine_type": "e2-standard-4", "labels": {"suffix": suffix.id}}
    gcp.container.NodePool(name, name=pool, cluster=made.id, node_count=1, node_config=config)
    return made

first = cluster("first", "us-central1-a", "one")
second = cluster("second", "us-central1-b", "two")
for name, made in (("first", first), ("second", second)):
    there = k8s.Provider(name, kubeconfig=kubeconfig(made, {"token": own.access_token}))
    k8s.core.v1.ConfigMap(
        name, metadata={"name": "both", "namespace": "default"}, data={"cluster": name}, opts=pulumi.ResourceOptions(provider=there)
    )
here = pulumi.ResourceOptions(provider=k8s.Provider("keys", kubeconfig=kubeconfig(first, {"token": own.access_token})))
k8s.core.v1.Secret("key", metadata={"name": "key"}, string_data={"key": secret("object")}, opts=here)
k8s.helm.v3.Release(
    "chart", name="chart", chart=CHART, namespace="default", values={"key": secret("values")}, skip_await=True, opts=here
)
pulumi.export("clusters", [first.id, second.id])
pulumi.export("key", secret("output"))
"""
)

CHART = {
    "Chart.yaml": "apiVersion: v2\nname: keys\nversion: 1.0.0\n",
    "values.yaml": "key: none\n",
    "templates/secret.yaml": """
apiVersion: v1
kind: Secret
metadata: {name: charted}
stringData: {key: {{ .Values.key }}}
""",
}

LEFT_TO_GOOGLE = """
import base64
import pulumi
import pulumi_gcp as gcp
import pulumi_kubernetes as k8s

class Key(pulumi.CustomResource):
    def __init__(self):
        given = {"algorithm": "ECDSA", "ecdsaCurve": "P256", "privateKeyPem": None}
        super().__init__("tls:index/privateKey:PrivateKey", "key", given)

class Certificate(pulumi.CustomResource):
    def __init__(self, key):
        given = {"privateKeyPem": key, "allowedUses": ["server_auth"], "validityPeriodHours": 8, "certPem": None}
        super().__init__("tls:index/selfSignedCert:SelfSignedCert", "certificate", given)

made = gcp.container.Cluster("pilot", location="us-central1", enable_autopilot=True, deletion_protection=False)
opts = pulumi.ResourceOptions(provider=k8s.Provider("there", kubeconfig=made.endpoint.apply(lambda _: "{}")))
db = gcp.sql.DatabaseInstance("db", database_version="MYSQL_8_0", settings={"tier": "db-f1-micro"})
account = gcp.serviceaccount.Account("app", account_id="app")
credentials = gcp.serviceaccount.Key("app", service_account_id=account.name)
key = pulumi.get(Key(), "privateKeyPem")
certificate = pulumi.get(Certificate(key), "certPem")
secret = k8s.core.v1.Secret("app", string_data={
    "credentials.json": credentials.private_key.apply(lambda text: base64.b64decode(text).decode()),
    "tls.crt": certificate, "tls.key": key,
}, opts=opts)
labels = {"app": "web"}
env = [{"name": "DB", "value": pulumi.Output.concat("mysql://", db.first_ip_address, "/", db.connection_name)}]
container = {"name": "c", "image": "i", "env": env, "env_from": [{"secret_ref": {"name": secret.metadata.name}}]}
template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
k8s.apps.v1.Deployment("web", spec={"selector": {"match_labels": labels}, "template": template}, opts=opts)
"""


EVERY_KIND = """
import json
import pulumi
import pulumi_kubernetes as k8s
from ml_foundations import (
    CpuNodePool, GkeCluster, JobSetController, LeaderWorkerSetController, RayOperator, TrainerController
)
from ml_foundations.kubernetes.trees import map_leaves

def hidden(value): return pulumi.Output.secret(value) if "hunter2" in str(value) else value

cluster = GkeCluster("c", location="us-central1", deletion_protection=False)
pool = CpuNodePool(
    "cpu", cluster=cluster, zones=["us-central1-a"], machine_type="n2-standard-8", min_nodes=1, max_nodes=4
)
provider = cluster.kubernetes_provider()
here = pulumi.ResourceOptions(provider=provider)
team = k8s.core.v1.Namespace("team", metadata={"name": "team"}, opts=here)
jobset = JobSetController("jobset", {}, here)
lws = LeaderWorkerSetController("lws", {}, here)
ray = RayOperator("ray", {}, here)
trainer = TrainerController("trainer", {}, pulumi.ResourceOptions(provider=provider, depends_on=[jobset]))
later = pulumi.ResourceOptions(provider=provider, depends_on=[team, jobset, lws, ray, trainer])
for made in (k8s.core.v1.ConfigMap, k8s.core.v1.Secret):
    made("files", metadata={"name": "files", "namespace": "team"}, opts=later, **{
        "data" if made is k8s.core.v1.ConfigMap else "string_data": {"file": hidden("hunter2-file")}})
with open("objects.json") as file:
    for item in json.load(file):
        item = map_leaves(item, hidden)
        name, about = item["kind"].lower(), {"api_version": item.pop("apiVersion"), "kind": item.pop("kind")}
        made = k8s.apiextensions.CustomResource(name, **about, **item, opts=later)
        if name == "trainingruntime":
            later = pulumi.ResourceOptions.merge(later, pulumi.ResourceOptions(depends_on=[made]))
"""
"""A program with all objects of a file, in which each secret is an Output that is secret."""

RUNTIME = yaml.safe_load("""
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainingRuntime
metadata: {name: hidden, namespace: team}
spec:
  mlPolicy: {numNodes: 1}
  template:
    spec:
      replicatedJobs:
      - name: node
        template:
          metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
          spec: {template: {spec: {containers: [{name: node, image: "i:1"}]}}}
""")


def rehearse(folder: Path, command: str, *more: str) -> subprocess.CompletedProcess[str]:
    module = [sys.executable, "-m", "ml_foundations.rehearsal"]
    return subprocess.run(
        [*module, command, "--project", str(folder), *more],
        capture_output=True,
        text=True,
        check=False,
        timeout=3600,
        env=os.environ | {"PLAIN": "hunter2-environment"},
    )


@contextmanager
def up(
    folder: Path, program: str, config: str, project: str = "name: lab\nruntime: python\n"
) -> Iterator[subprocess.CompletedProcess[str]]:
    """Rehearse a program as long as the test looks at it."""
    (folder / "Pulumi.yaml").write_text(project)
    (folder / "Pulumi.dev.yaml").write_text(f"config: {{{config}}}\n")
    (folder / "__main__.py").write_text(program)
    try:
        yield rehearse(folder, "up")
    finally:
        rehearse(folder, "down")


def words_of(done: subprocess.CompletedProcess[str]) -> str:
    """All that a command printed, on one line."""
    return " ".join((done.stdout + done.stderr).split())


def assert_no_process_has_a_secret() -> None:
    commands = (process.info["cmdline"] for process in psutil.process_iter(["cmdline"]))
    assert not [words for words in commands if "hunter2" in " ".join(words or [])]


def told(root: Path) -> set[str]:
    """The files with a secret in them. The replica keeps its objects in etcd as they are, as a cluster does."""
    files = (path for path in root.rglob("*") if path.is_file() and "etcd" not in path.parts)
    return {str(path.relative_to(root)) for path in files if b"hunter2" in path.read_bytes()}


def write_chart(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


@pytest.mark.usefixtures("tools")
def test_a_program_with_two_clusters(tmp_path: Path) -> None:
    chart = write_chart(tmp_path / "keys", CHART)
    config = "gcp:project: acme, gcp:zone: us-central1-a, lab:key: {secure: AAAB}"
    root = Rehearsal.of("dev", tmp_path).root
    with up(tmp_path, f"CHART = {str(chart)!r}\n{PROGRAM}", config) as done:
        assert done.returncode == 0, done.stdout + done.stderr
        assert "for which the program got a placeholder: lab:key" in done.stdout
        pools = json.loads(rehearse(tmp_path, "report", "--json").stdout)["pools"]
        assert {(pool["name"], pool["nodes"]) for pool in pools} == {
            ("us-central1-a/apps/one", 1),
            ("us-central1-b/apps/two", 1),
        }
        assert not told(root)
        assert "hunter2" not in done.stdout + done.stderr
        assert_no_process_has_a_secret()
    assert not root.parent.exists()


@pytest.mark.usefixtures("tools")
def test_a_program_whose_workloads_are_given_secrets(tmp_path: Path) -> None:
    def hide(where: str) -> str:
        return f"hunter2-{where}"

    objects = [RUNTIME, *(secret_pods.manifest(kind, hide) for kind in secret_pods.API_VERSIONS)]
    (tmp_path / "objects.json").write_text(json.dumps(objects))
    root = Rehearsal.of("dev", tmp_path).root
    with up(tmp_path, EVERY_KIND, "gcp:project: acme-dev, gcp:region: us-central1") as done:
        page, kinds = tmp_path / "shared.html", secret_pods.API_VERSIONS.keys()
        report = rehearse(tmp_path, "report", "--json", "--html", str(page))
        comment = rehearse(tmp_path, "report").stdout
        shown = done.stdout + done.stderr + report.stdout + report.stderr + comment
        assert {row["kind"] for row in json.loads(report.stdout)["workloads"]} == kinds, shown
        assert "hunter2" not in shown + page.read_text()
        assert not told(root)
        assert (root / "report.html").exists()
        assert_no_process_has_a_secret()


@pytest.mark.usefixtures("tools")
def test_a_program_that_leaves_its_nodes_to_autopilot(tmp_path: Path) -> None:
    with up(tmp_path, LEFT_TO_GOOGLE, "gcp:project: acme, gcp:region: us-central1") as done:
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Autopilot's machines and rules are not simulated" in done.stdout
        assert "it ran on 3 assumed nodes" in done.stdout
        files = Rehearsal.of("dev", tmp_path).root.rglob("*.json")
        kept = [path.read_text(errors="replace") for path in files]
        assert kept
        has_secret = any("PRIVATE KEY" in text or 'service_account"' in text for text in kept)
        assert not has_secret, "a secret is written down"


TOO_LARGE = """
import pulumi
import pulumi_gcp as gcp
import pulumi_kubernetes as k8s

made = gcp.container.Cluster("lab", location="us-central1-a", initial_node_count=1, remove_default_node_pool=True)
gcp.container.NodePool("system", cluster=made.name, location=made.location, node_count=1,
    node_config={"machine_type": "n2-standard-4"})
gcp.container.NodePool("gpu", name="gpu", cluster=made.name, location=made.location, autoscaling={"max_node_count": 2},
    node_config={"machine_type": "g2-standard-8", "guest_accelerators": [{"type": "nvidia-l4", "count": 1}]})
opts = pulumi.ResourceOptions(provider=k8s.Provider("there", kubeconfig=made.endpoint.apply(lambda _: "{}")))
labels = {"app": "vllm"}
resources = {"requests": {"memory": "28Gi"}, "limits": {"nvidia.com/gpu": "1"}}
template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i", "resources": resources}]}}
k8s.apps.v1.Deployment("vllm", metadata={"name": "vllm", "namespace": "default"},
    spec={"selector": {"match_labels": labels}, "template": template}, opts=opts)
k8s.core.v1.Service("vllm", metadata={"name": "vllm", "namespace": "default"},
    spec={"selector": labels, "ports": [{"port": 80}]}, opts=opts)
"""


TOO_LARGE_IN_YAML = """
name: lab
runtime: yaml
resources:
  lab:
    type: gcp:container:Cluster
    properties: {location: us-central1-a, initialNodeCount: 1, removeDefaultNodePool: true}
  system:
    type: gcp:container:NodePool
    properties: {cluster: "${lab.name}", location: us-central1-a, nodeCount: 1, nodeConfig: {machineType: n2-standard-4}}
  gpu:
    type: gcp:container:NodePool
    properties:
      name: gpu
      cluster: ${lab.name}
      location: us-central1-a
      autoscaling: {maxNodeCount: 2}
      nodeConfig: {machineType: g2-standard-8, guestAccelerators: [{type: nvidia-l4, count: 1}]}
  there:
    type: pulumi:providers:kubernetes
    properties: {kubeconfig: "${lab.endpoint}"}
  vllm:
    type: kubernetes:apps/v1:Deployment
    properties: &vllm
      metadata: {name: vllm, namespace: default}
      spec:
        selector: {matchLabels: {app: vllm}}
        template:
          metadata: {labels: {app: vllm}}
          spec:
            containers:
            - {name: c, image: i, resources: {requests: {memory: 28Gi}, limits: {nvidia.com/gpu: 1}}}
    options: {provider: "${there}"}
  rendered:
    type: kubernetes:yaml/v2:ConfigGroup
    properties:
      objs:
      - apiVersion: apps/v1
        kind: Deployment
        metadata: {name: rendered, namespace: default}
        spec:
          selector: {matchLabels: {app: rendered}}
          template:
            metadata: {labels: {app: rendered}}
            spec:
              containers:
              - {name: c, image: i, resources: {requests: {memory: 28Gi}, limits: {nvidia.com/gpu: 1}}}
    options: {provider: "${there}"}
"""


@pytest.mark.parametrize(
    ("project", "program"),
    [("name: lab\nruntime: python\n", TOO_LARGE), (TOO_LARGE_IN_YAML, "")],
    ids=["python", "yaml, and a component whose pods wait"],
)
@pytest.mark.usefixtures("tools")
def test_a_program_with_unschedulable_pods_ends_early(
    project: str, program: str, tmp_path: Path
) -> None:
    began = time.monotonic()
    with up(tmp_path, program, "gcp:project: acme", project) as done:
        said = words_of(done)
        assert done.returncode == 1, said
        assert time.monotonic() - began < 600, "the wait of a Deployment is 10 minutes"
        lack = 'each pod needs 1 nvidia.com/gpu, 28Gi memory; the nearest, "gpu"'
        assert f"no node can ever take its pods: {lack}" in said
        assert "Request at most" in said
        warning = f"warning: Deployment default/vllm: {lack}"
        meanwhile, *_ = done.stderr.partition("✗ pulumi up")
        assert warning in meanwhile, "it comes before the end of the wait"
        assert done.stderr.count("warning: Deployment default/vllm") == 1


IN_VAIN = """
import pulumi, pulumi_gcp as gcp, pulumi_kubernetes as k8s

made = gcp.container.Cluster("lab", location="us-central1-a", initial_node_count=1, remove_default_node_pool=True)
gcp.container.NodePool("gpu", name="gpu", cluster=made.name, location=made.location, autoscaling={"max_node_count": 4},
    node_config={"machine_type": "g2-standard-8", "guest_accelerators": [{"type": "nvidia-l4", "count": 1}]})
there = k8s.Provider("there", kubeconfig=made.endpoint.apply(lambda _: "{}"))
opts = pulumi.ResourceOptions(provider=there)
place = {"namespace": "default"}
quota = k8s.core.v1.ResourceQuota(
    "team", metadata=place | {"name": "team"}, spec={"hard": {"requests.nvidia.com/gpu": "2"}}, opts=opts
)
labels = {"app": "refused"}
template = {"metadata": {"labels": labels}, "spec": {"containers": [
    {"name": "c", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
]}}
k8s.apps.v1.Deployment("refused", metadata=place | {"name": "refused"},
    spec={"replicas": 3, "selector": {"match_labels": labels}, "template": template},
    opts=pulumi.ResourceOptions(provider=there, depends_on=[quota]))
k8s.helm.v3.Release("chart", name="chart", chart="./chart", namespace="default", timeout=900, opts=opts)
"""
LARGE_CHART = {
    "Chart.yaml": "apiVersion: v2\nname: chart\nversion: 1.0.0\n",
    "templates/server.yaml": """
apiVersion: apps/v1
kind: Deployment
metadata: {name: large}
spec:
  selector: {matchLabels: {app: large}}
  template:
    metadata: {labels: {app: large}}
    spec:
      containers:
      - {name: c, image: i, resources: {requests: {memory: 300Gi}}}
""",
}


@pytest.mark.usefixtures("tools")
def test_waits_for_refused_pods_and_for_a_release_end_early(tmp_path: Path) -> None:
    write_chart(tmp_path / "chart", LARGE_CHART)
    began = time.monotonic()
    with up(tmp_path, IN_VAIN, "gcp:project: acme") as done:
        said = words_of(done)
        assert done.returncode == 1, said
        assert time.monotonic() - began < 600, "the waits are 10 and 15 minutes"
        assert "Deployment default/refused: the API server refuses its pods: " in said
        assert "exceeded quota: team" in said
        assert "helm upgrade ends early: no node can ever take its pods" in said
