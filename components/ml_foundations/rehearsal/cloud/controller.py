"""The protocol of the simulated controllers: each watches collections, and reconciles them."""

from ml_foundations.rehearsal.cloud.cluster import Cluster


class Controller:
    """A controller of one cluster. It asks in its constructor for what it watches."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.api = cluster.api

    def reconcile(self) -> None:
        """Do the work of one round. A failure affects no other controller."""
        raise NotImplementedError
