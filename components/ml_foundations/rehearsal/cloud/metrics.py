"""The APIs of metrics for autoscalers, as an adapter or GKE serves them.

All pods have the same value of a metric: the one that ``up --metric`` sets, or 0.
"""

import re
from datetime import UTC, datetime
from http.server import ThreadingHTTPServer
from pathlib import Path
from string import Template
from urllib.parse import parse_qs, unquote, urlsplit

from ml_foundations.catalog.gke_kinds import missing_for_metrics
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.objects import annotations_of, name_of, section
from ml_foundations.kubernetes.packaged_yaml import packaged_documents
from ml_foundations.rehearsal.api import Object, existing
from ml_foundations.rehearsal.cloud import json_server
from ml_foundations.rehearsal.cloud.addons import PATHS
from ml_foundations.rehearsal.cloud.cluster import Cluster, Controller
from ml_foundations.rehearsal.control_plane import configuration

APIS = "/apis/apiregistration.k8s.io/v1/apiservices"
_MANIFESTS = Template(Path(__file__).with_name("metrics.yaml").read_text())
_READ_BY_GKE = "/apis/autoscaling.gke.io/v1beta1/autoscalingmetrics"
_OF_GKE = "rehearsal.ml-foundations/gke"
"""The annotation of the API that has what GKE serves without an adapter."""
_PORT = "metrics_port"


class MetricsServer(Controller):
    """Answers for the adapter that a program installs, or for GKE if the cluster serves metrics."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._store = cluster.store
        self._services = cluster.watch(APIS)
        self._of_gke: Object = {}
        """The API that GKE serves, until it is created."""
        self._server: ThreadingHTTPServer | None = None

    def reconcile(self) -> None:
        """Begin to answer; and answer for GKE, once it reads a metric in a cluster like this."""
        cluster = self.cluster.properties
        if self._server is None:
            self._start()
        for service in self._services.items():
            port = section(service, "spec", "service").get("port")
            if port not in (None, self._store.get(_PORT, 0)):
                # It is older than the policy that leads it here, which sees any update.
                self.api.patch(f"{APIS}/{name_of(service)}", {})
        serves_metrics = self._of_gke and cluster and not missing_for_metrics(cluster)
        if serves_metrics and existing(self.api, _READ_BY_GKE):
            self.api.ensure(APIS, self._of_gke)
            self._of_gke = {}

    def _start(self) -> None:
        """Start the server, and lead the API server to it in place of the pods of an adapter."""
        ports = configuration.free_ports([_PORT], {_PORT: self._store.get(_PORT, 0)})
        self._store.put(_PORT, ports[_PORT])
        words = {"port": ports[_PORT], "loopback": configuration.LOOPBACK, "of_gke": _OF_GKE}
        for item in packaged_documents(_MANIFESTS.substitute(words)):
            if item["kind"] == "APIService":
                self._of_gke = item
                continue
            # Another start may have another port.
            path = f"{PATHS[item['kind']]}/{name_of(item)}"
            query = {"fieldManager": "gke"}
            self.api.request("PATCH", path, query, item, "application/apply-patch+yaml")
        identity = configuration.credentials(self.cluster.rehearsal)
        self._server = json_server.start(ports[_PORT], self._answer, identity)

    def _answer(self, path: str) -> Object | None:
        """Return what an API of metrics has at a path, or None for what it does not know."""
        url = urlsplit(path)
        selector = parse_qs(url.query).get("labelSelector", [""])[0]
        match [unquote(part) for part in url.path.split("/")[1:]]:
            case ["apis", group, version]:
                served = f"{group}/{version}"
                return {"kind": "APIResourceList", "groupVersion": served, "resources": []}
            case ["apis", group, version, "namespaces", _, metric]:
                kind = "ExternalMetricValueList"
                values: list[Object] = [{"metricLabels": {}}]
            case ["apis", group, version, "namespaces", namespace, resource, name, metric]:
                kind = "MetricValueList"
                names = [name]
                if name == "*":  # The metric is asked for all pods of a selector.
                    path_of_all = f"/api/v1/namespaces/{namespace}/{resource}"
                    pods = self.api.get(path_of_all, labelSelector=selector)["items"]
                    names = list(map(name_of, pods))
                about = {"apiVersion": "v1", "kind": "Pod" if resource == "pods" else resource}
                about["namespace"] = namespace
                values = [{"describedObject": about | {"name": described}} for described in names]
            case _:
                return None
        # GKE has the metrics that it reads, an adapter all others.
        service = self.api.find(f"{APIS}/{version}.{group}")
        is_of_gke = service is not None and _OF_GKE in annotations_of(service)
        if is_of_gke != metric.startswith(labels.GKE_METRIC):
            return None
        set_values = {_plain(key): value for key, value in self._store.switch("metrics").items()}
        # By the whole name of the metric, or by a part of it between bars.
        spellings = map(_plain, (metric, *metric.split("|")))
        value = next((set_values[key] for key in spellings if key in set_values), "0")
        known = {"timestamp": datetime.now(UTC).isoformat(), "value": value}
        # The versions of the API name a metric in two ways.
        named = {"metricName": metric, "metric": {"name": metric}}
        whole = [{**item, **named, **known} for item in values]
        return {"kind": kind, "apiVersion": f"{group}/{version}", "metadata": {}, "items": whole}


def _plain(name: str) -> str:
    """Return the name of a metric as an AutoscalingMetric has it, with dashes only."""
    return re.sub(r"[^0-9a-z|]+", "-", name.lower())
