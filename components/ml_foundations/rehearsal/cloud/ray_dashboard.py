"""The dashboards of simulated Ray clusters: each job that they are asked about has succeeded.

KubeRay asks the dashboard of a head for the state of a job. A simulated head answers no requests,
so the operator sends all of them to this server as its proxy. A RayJob still waits for the end of
its submitter.
"""

from http.server import ThreadingHTTPServer

from ml_foundations.rehearsal.api import Object
from ml_foundations.rehearsal.cloud import json_server
from ml_foundations.rehearsal.cloud.cluster import Cluster, Controller
from ml_foundations.rehearsal.control_plane import controllers


def _job(path: str) -> Object:
    """Return a job in the form of Ray's API for jobs (Ray, "Ray Jobs REST API")."""
    job = {"status": "SUCCEEDED", "submission_id": path.rpartition("/")[2]}
    return {**job, "type": "SUBMISSION"}


class RayDashboard(Controller):
    """Answers on the port that the operator of Ray got, once it is installed."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._server: ThreadingHTTPServer | None = None

    def reconcile(self) -> None:
        """Start to answer, or go to another port."""
        port = controllers.dashboard_port(self.cluster.rehearsal)
        if port is None or (self._server and self._server.server_port == port):
            return
        if self._server:
            self._server.shutdown()
        self._server = json_server.start(port, _job)
