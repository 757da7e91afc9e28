"""A team's namespace, on a real API server: what its quotas, limits, rules and network let in and keep out."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from ml_foundations import TeamNamespace
from ml_foundations.component.spec import check
from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import Api, ApiError
from ml_foundations.tenancy.team_namespace import TeamNamespaceSpec

from tests.support.cluster import Cluster
from tests.support.declaring import declared, inputs, requests
from tests.support.parts import manifest_of
from tests.support.refusing import refusal
from tests.support.waiting import until

GPU = "nvidia.com/gpu"
TEAM: Any = {"gpus": 8, "cpu": "96", "memory": "512Gi", "storage": "4Ti"}
DOCKER_CONFIG = json.dumps({"auths": {"registry.example": {"auth": "aHVudGVyMg=="}}})


def spec_of(**given: Any) -> TeamNamespaceSpec:
    return check(TeamNamespaceSpec, "TeamNamespace", {"namespace": "ml", **TEAM, **given})


RULES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
COLLECTIONS = {
    "Namespace": "/api/v1/namespaces",
    "PriorityClass": "/apis/scheduling.k8s.io/v1/priorityclasses",
    "ResourceQuota": "/api/v1/namespaces/{name}/resourcequotas",
    "LimitRange": "/api/v1/namespaces/{name}/limitranges",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{name}/networkpolicies",
    "ValidatingAdmissionPolicy": f"{RULES}ies",
    "ValidatingAdmissionPolicyBinding": f"{RULES}ybindings",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{name}/rolebindings",
    "ServiceAccount": "/api/v1/namespaces/{name}/serviceaccounts",
}


class Team:
    """A namespace of the replica, with all that a team gets."""

    def __init__(self, api: Api, name: str, **given: Any) -> None:
        self.api, self.name = api, name
        spec = spec_of(namespace=name, **given)
        for manifest in spec.manifests():
            self.create(COLLECTIONS[manifest["kind"]].format(name=name), manifest)
        self.create(self.path("serviceaccounts"), {"metadata": {"name": "default"}})

    def path(self, kind: str) -> str:
        return f"/api/v1/namespaces/{self.name}/{kind}"

    def create(self, path: str, manifest: dict[str, Any]) -> None:
        try:
            self.api.create(f"{path}?fieldValidation=Strict", manifest)
        except ApiError as error:
            if error.status != 409:
                raise

    def run(self, name: str, gpus: int = 0, dry: bool = False, **spec: Any) -> dict[str, Any]:
        """Create a pod; the API server may refuse it."""
        limits = {GPU: str(gpus)} if gpus else {}
        container = {"name": "main", "image": "i", "resources": {"limits": limits}}
        manifest = {"metadata": {"name": name}, "spec": {"containers": [container]} | spec}
        return self.api.create(f"{self.path('pods')}{'?dryRun=All' if dry else ''}", manifest)

    def refused(self, name: str, gpus: int = 0, **spec: Any) -> str:
        with pytest.raises(ApiError) as caught:
            self.run(name, gpus, **spec)
        assert caught.value.status in (403, 422), caught.value
        return str(caught.value)

    def ready(self) -> bool:
        """Whether the quota controller has seen all quotas: before, every pod is refused."""
        found = self.api.get(self.path("resourcequotas"))["items"]
        return all(item.get("status", {}).get("hard") == item["spec"]["hard"] for item in found)


@pytest.fixture(scope="module")
def api(cluster: Cluster) -> Api:
    return Api(Access(cluster.kubeconfig))


@pytest.fixture(scope="module")
def team(api: Api) -> Iterator[Team]:
    made = Team(
        api,
        "team-a",
        gpus_by_model={"L4": 4, "A100-SXM4-80GB": 2},
        priorities={"urgent": 1000},
        storage_by_class={"fast-ssd": "1Ti"},
        largest_volume="2Ti",
        ingress_load_balancers=True,
        egress_networks=["172.16.0.0/28"],
        egress_namespaces=["serving"],
    )
    until(made.ready)
    yield made
    api.delete("/api/v1/namespaces/team-a")
    for name in ("urgent", "nvidia-l4", "nvidia-a100-80gb"):
        api.delete(f"/apis/scheduling.k8s.io/v1/priorityclasses/team-a-{name}")
    api.delete(f"{RULES}ybindings/team-a-gpu-models")
    api.delete(f"{RULES}ies/team-a-gpu-models")


L4: Any = {"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-L4"}}
L4 |= {"priorityClassName": "team-a-nvidia-l4"}


def test_gpus_are_counted_by_model(team: Team) -> None:
    until(lambda: admits(team))
    urgent: Any = {"priorityClassName": "team-a-urgent"}
    team.run("three", 3, **L4)
    assert "exceeded quota: gpus-nvidia-l4" in team.refused("too-many", 2, **L4)
    team.run("fourth", 1, **L4)
    assert "exceeded quota: gpus-other" in team.refused("no-model", 1)
    assert "exceeded quota: gpus-other" in team.refused("other-class", 1, **urgent)
    team.run("no-gpu")
    team.run("no-gpu-and-urgent", **urgent)


def admits(team: Team) -> bool:
    """Whether the priority classes are known to the API server, which reads them from a cache."""
    try:
        return bool(team.run("probe", dry=True, **L4))
    except ApiError:
        return False


def test_a_pod_counts_for_the_model_on_which_it_runs(team: Team) -> None:
    def refusal() -> str:
        try:
            team.run("liar", 1, dry=True, priorityClassName="team-a-nvidia-l4")
        except ApiError as error:
            return str(error)
        return ""

    # A rule takes a moment to reach the API server's own cache.
    until(lambda: "node affinity with nvidia.com/gpu.product In NVIDIA-L4" in refusal())


def test_a_container_without_requests_gets_the_default(team: Team) -> None:
    pod, default = team.run("bare", dry=True), {"cpu": "500m", "memory": "1Gi"}
    resources = pod["spec"]["containers"][0]["resources"]
    assert resources == {"limits": default, "requests": default}
    assert GPU not in {toleration["key"] for toleration in pod["spec"]["tolerations"]}


def claim(name: str, storage: str, storage_class: str) -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": storage_class}
    spec |= {"resources": {"requests": {"storage": storage}}}
    return {"metadata": {"name": name}, "spec": spec}


def test_storage_is_counted_by_class_and_by_volume(team: Team) -> None:
    path = team.path("persistentvolumeclaims")
    with pytest.raises(ApiError, match="exceeded quota: team-quota"):
        team.api.create(path, claim("fast", "1500Gi", "fast-ssd"))
    with pytest.raises(ApiError, match="maximum storage usage per PersistentVolumeClaim is 2Ti"):
        team.api.create(path, claim("large", "3Ti", "zonal-ssd"))
    team.api.create(path, claim("fine", "2Ti", "zonal-ssd"))


def test_a_load_balancer_needs_a_quota(team: Team) -> None:
    spec = {"type": "LoadBalancer", "ports": [{"port": 80}]}
    with pytest.raises(ApiError, match="exceeded quota"):
        team.api.create(team.path("services"), {"metadata": {"name": "open"}, "spec": spec})


def test_claims_of_devices_count_too(team: Team) -> None:
    request = {"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}
    body = {"metadata": {"name": "by-claim"}, "spec": {"devices": {"requests": [request]}}}
    with pytest.raises(ApiError, match="exceeded quota"):
        team.api.create("/apis/resource.k8s.io/v1/namespaces/team-a/resourceclaims", body)


def test_pod_security_refuses_a_privileged_pod(team: Team) -> None:
    container = {"name": "c", "image": "i", "securityContext": {"privileged": True}}
    assert 'violates PodSecurity "baseline' in team.refused("root", containers=[container])


def test_gkes_own_quota_and_ours_live_side_by_side(team: Team) -> None:
    path, hard = team.path("resourcequotas"), {"pods": "1500", "services": "500"}
    theirs = {"metadata": {"name": "gke-resource-quotas"}, "spec": {"hard": hard}}
    team.api.create(path, theirs)
    names = {item["metadata"]["name"] for item in team.api.get(path)["items"]}
    ours = {"team-quota", "gpus-nvidia-l4", "gpus-nvidia-a100-80gb", "gpus-other"}
    assert names == {"gke-resource-quotas", *ours}
    team.api.delete(f"{path}/gke-resource-quotas")


def test_identity_is_taken_by_the_api_server(team: Team) -> None:
    given = {"google_account": "a@p.iam.gserviceaccount.com", "image_pull_secret": DOCKER_CONFIG}
    spec = spec_of(namespace=team.name, service_account=given, group="ml@example.com")
    for kind in ("ServiceAccount", "RoleBinding"):
        team.create(COLLECTIONS[kind].format(name=team.name), manifest_of(spec, kind))


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "limits of GPUs": (
        {"extra_quota": {f"limits.{GPU}": "8"}},
        "limits nothing: of extended resources",
    ),
    "bare GPUs": ({"extra_quota": {GPU: "8"}}, "it counts requests only. Set gpus"),
    "other devices": (
        {"extra_quota": {"nvidia.com/mig-1g.5gb": "8"}},
        "Replace it with requests.nvidia.com/mig-1g.5gb",
    ),
    "Jobs of no group": (
        {"extra_quota": {"count/cronjobs": "8"}},
        "Replace it with count/cronjobs.batch",
    ),
    "what has an argument": (
        {"extra_quota": {"pods": "8"}},
        "extra_quota.pods: has a separate argument",
    ),
    "more of a model than of all": (
        {"gpus_by_model": {"L4": 9}},
        "is 9; it must be from 0 to gpus (8)",
    ),
    "two names of a model": (
        {"gpus_by_model": {"L4": 1, "A100": 1, "nvidia-l4": 2}},
        "gpus_by_model: has nvidia-l4 twice, as L4 and nvidia-l4. Keep one of them",
    ),
    "unknown model": ({"gpus_by_model": {"L5": 1}}, "GPU 'L5' is not in the catalog"),
    "a system's priority": (
        {"priorities": {"top": 2_000_000_000}},
        "less than or equal to 1000000000",
    ),
    "a priority named as a model": (
        {"gpus_by_model": {"L4": 1}, "priorities": {"nvidia-l4": 1}},
        "priorities.nvidia-l4: is the class of a GPU model",
    ),
    "a namespace of Kubernetes": ({"namespace": "kube-system"}, "choose another name"),
    "the first namespace": ({"namespace": "default"}, "is in every cluster already"),
    "no network": ({"egress_networks": ["example.com"]}, "egress_networks[0]"),
    "half a credential": (
        {"service_account": {"image_pull_secret": "hunter2"}},
        "service_account.image_pull_secret: must be JSON",
    ),
    "an account that is none": (
        {"service_account": {"google_account": "me"}},
        "must be the e-mail address",
    ),
}


@pytest.mark.parametrize(("given", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_work_is_refused_with_the_reason(given: dict[str, Any], reason: str) -> None:
    given = {"namespace": "ml", **TEAM, **given}
    message = refusal(check, TeamNamespaceSpec, "TeamNamespace", given)
    assert reason in message and "hunter2" not in message


def test_the_network_is_closed_but_for_what_was_asked_for() -> None:
    closed = policies(internet="none", ingress_namespaces=[])
    assert set(closed) == {"default-deny", "same-namespace", "dns", "workload-identity"}
    assert closed["default-deny"] == {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}
    assert closed["same-namespace"]["egress"] == [{"to": [{"podSelector": {}}]}]
    assert {rule["port"] for rule in closed["dns"]["egress"][0]["ports"]} == {53}

    default = policies()
    assert default["internet"]["egress"][0]["ports"] == [{"port": 443, "protocol": "TCP"}]
    assert "10.0.0.0/8" in default["internet"]["egress"][0]["to"][0]["ipBlock"]["except"]
    [caller] = default["ingress"]["ingress"][0]["from"]
    [monitoring] = caller["namespaceSelector"]["matchExpressions"]
    assert monitoring["values"] == ["gmp-system", "gke-gmp-system"]
    assert "ports" not in policies(internet="any")["internet"]["egress"][0]


def policies(**given: Any) -> dict[str, dict[str, Any]]:
    """The specs of the network policies, by name."""
    made = [each for each in spec_of(**given).manifests() if each["kind"] == "NetworkPolicy"]
    return {each["metadata"]["name"]: each["spec"] for each in made}


def test_a_team_without_extras_has_no_cluster_wide_objects() -> None:
    kinds = " ".join(request.type for request in requests(lambda: TeamNamespace("ml", TEAM)))
    assert not [word for word in ("PriorityClass", "Admission", "IAM") if word in kinds]


def test_team_pods_use_a_google_account_if_the_pool_is_known() -> None:
    email = "a@p.iam.gserviceaccount.com"
    account: Any = {"google_account": email, "workload_pool": "p.svc.id.goog"}
    requests = declared(lambda: TeamNamespace("ml", {**TEAM, "service_account": account}))
    assert inputs(requests["ml-workload-identity"]).items() >= {
        ("member", "serviceAccount:p.svc.id.goog[ml/workloads]"),
        ("role", "roles/iam.workloadIdentityUser"),
        ("serviceAccountId", f"projects/-/serviceAccounts/{email}"),
    }
    annotations = inputs(requests["ml-service-account"])["metadata"]["annotations"]
    assert annotations == {"iam.gke.io/gcp-service-account": email}


def test_a_pull_secret_is_a_secret_and_reaches_the_pods() -> None:
    account: Any = {"image_pull_secret": DOCKER_CONFIG}
    requests = declared(lambda: TeamNamespace("ml", {**TEAM, "service_account": account}))
    wire = str(requests["ml-image-pull"].object)
    assert "4dabf18193072939515e22adb298388d" in wire, "marked as a secret"
    assert inputs(requests["ml-service-account"])["imagePullSecrets"] == [{"name": "image-pull"}]


def test_what_the_team_publishes() -> None:
    seen: list[TeamNamespace] = []
    given: Any = {"gpus_by_model": {"L4": 1}, "priorities": {"low": -1}, "service_account": {}}
    declared(lambda: seen.append(TeamNamespace("ml", TEAM | given)))
    assert seen[0].priority_classes.value == {"nvidia-l4": "ml-nvidia-l4", "low": "ml-low"}
    assert seen[0].service_account_name.value == "workloads"


def test_other_teams_are_reached_by_name() -> None:
    assert "namespaces" not in policies()
    assert policies(egress_namespaces=["serving", "data"])["namespaces"] == yaml.safe_load("""
        podSelector: {}
        policyTypes: [Egress]
        egress:
          - to:
              - namespaceSelector:
                  matchExpressions:
                    - {key: kubernetes.io/metadata.name, operator: In, values: [serving, data]}
    """)


@pytest.mark.parametrize("data", [True, False])
def test_a_namespace_with_data_is_kept(data: bool) -> None:
    options = next(p.options for p in spec_of(data=data).children() if p.suffix == "namespace")
    assert (options.protect, options.retain_on_delete) == (data, data)
