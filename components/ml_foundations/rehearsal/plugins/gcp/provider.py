"""The embedded gcp plugin: Pulumi's gcp resources on the simulated Google Cloud of one rehearsal."""

import hashlib
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from ml_foundations.catalog.pools import CLUSTER, NODE_POOL, refused_inputs
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.trees import UNKNOWN, unknown_paths
from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import Api, Object, condition
from ml_foundations.rehearsal.cloud import daemon, nodes, replica
from ml_foundations.rehearsal.cloud.store import Pool, Store
from ml_foundations.rehearsal.control_plane import configuration
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.plugins.gcp import (
    container,
    default_resources,
    functions,
    node_pool,
    recorded,
)
from ml_foundations.rehearsal.plugins.gcp.errors import already_exists, not_found
from ml_foundations.rehearsal.plugins.gcp.location import GcpLocation
from ml_foundations.rehearsal.plugins.input_errors import faults
from ml_foundations.rehearsal.plugins.property_paths import changed_paths, is_below, value_at
from ml_foundations.rehearsal.plugins.provider import CheckError, Diff, Provider, Resource, State
from ml_foundations.rehearsal.plugins.sdk import GCP, Sdk
from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.protocol.values import Properties, restored
from ml_foundations.rehearsal.tools import toolchain

_DEFAULTS = "__defaults"
"""Where the provider notes which inputs it filled in itself."""

_TIMEOUT_SECONDS = 1800
_POLL_SECONDS = 0.1
_INDEX = re.compile(r"\[\d+\]")
_LINKS = ("projects/", "https://www.googleapis.com/")
_PREFIXED_DIGITS = 26
"""The length of what the provider appends to a namePrefix."""


class GcpProvider(Provider):
    """Clusters and node pools act on the replica; every other resource is recorded."""

    sdk: ClassVar[Sdk] = GCP

    def __init__(self, rehearsal: Rehearsal | None = None) -> None:
        super().__init__()
        self._rehearsal = rehearsal or Rehearsal.of_this_process()
        self._store = Store(self._rehearsal)
        self._place = GcpLocation()
        self._version = GCP.version

    def configure(self, config: Properties) -> None:
        """Take project, region and zone as defaults, and note the version of the program's SDK."""
        self._place = GcpLocation(
            **{key: str(config.get(key) or "") for key in ("project", "region", "zone")}
        )
        self._version = config.get("version") or GCP.version

    def invoke(self, function: str, arguments: Properties) -> Properties:
        """What a look-up finds in the place of the rehearsal, among what it recorded."""
        return functions.answer(
            function, _declared(arguments), self._place, self._entries, self._rehearsal.token
        )

    def check(
        self, resource: Resource, old: Properties, new: Properties, seed: bytes
    ) -> Properties:
        """Fill in the name; refuse what the type does not have."""
        if resource.type not in GCP:
            known = f"pulumi-gcp {GCP.version}, whose types a rehearsal knows. The program uses {self._version}"
            raise CheckError([("", f"{resource.type} is not a resource type of {known}")])
        self._check_inputs(resource, new)
        if "name" not in GCP[resource.type].inputs or new.get("name") is not None:
            return new
        kept = old["name"] if "name" in old.get(_DEFAULTS, []) else None
        return new | {
            "name": kept or _new_name(resource, new.get("namePrefix"), seed),
            _DEFAULTS: ["name"],
        }

    def _check_inputs(self, resource: Resource, new: Properties) -> None:
        found = list(faults(GCP, resource.type, GCP[resource.type], new))
        for one, other in GCP.conflicts_of(resource.type):
            if all(value_at(new, path) not in (None, UNKNOWN) for path in (one, other)):
                found.append((one, f"conflicts with {other}, whatever their values. Leave one out"))
        if resource.type in (CLUSTER, NODE_POOL):
            found += refused_inputs(_declared(new))
        if found and self._version == GCP.version:
            raise CheckError(found)
        for path, reason in found:
            self.log(
                resource,
                "warning",
                f"{path}: {reason}. The program uses pulumi-gcp {self._version}",
            )

    def diff(self, resource: Resource, old: State, new: Properties, ignore: list[str]) -> Diff:
        """Compare inputs; some properties cannot change in place."""
        before, after = _declared(old.inputs), _declared(new)
        changed = [
            path
            for path in changed_paths(before, after, same=_same, enter_blocks=True)
            # What a program says newly and is so already, as of an imported resource, is no change.
            if value_at(before, path) is not None
            or not _same(value_at(old.outputs, path), value_at(after, path), "")
        ]
        replaces = _replaced(resource.type, changed, before, after)
        return Diff(
            changed,
            replaces,
            delete_before_replace=bool(replaces) and self._is_taken(resource, old, new),
        )

    def _is_taken(self, resource: Resource, old: State, new: Properties) -> bool:
        """Whether the old resource must be deleted first, because the new one has the same name or id."""
        if "name" in new and "name" not in new.get(_DEFAULTS, []):
            return new["name"] == old.inputs.get("name")
        if resource.type in (CLUSTER, NODE_POOL) or any(unknown_paths(new)):
            return False
        return recorded.identity(resource.type, _declared(new), self._place, resource.urn) == old.id

    def preview(self, resource: Resource, old: State | None, new: Properties) -> Properties:
        """Inputs as they are; what Google computes is unknown until it exists."""
        if old is not None:
            return _with_computed(_declared(new), _declared(old.inputs), old.outputs)
        kind = GCP[resource.type]
        filled = {*kind.computed, *kind.filled_in} & kind.outputs
        return dict.fromkeys(filled, UNKNOWN) | _declared(new)

    def create(self, resource: Resource, new: Properties) -> State:
        """Create a cluster or node pool, or record a resource."""
        if resource.type == CLUSTER:
            return self._create_cluster(resource, new)
        if resource.type == NODE_POOL:
            return self._apply_pool(resource, new, is_new=True)
        return self._record(resource, new)

    def update(self, resource: Resource, old: State, new: Properties) -> State:
        """Change it in place."""
        if resource.type == CLUSTER:
            return self._save_cluster(resource, new)
        if resource.type == NODE_POOL:
            return self._apply_pool(resource, new, is_new=False)
        return self._record(resource, new, old)

    def read(self, resource: Resource, old: State) -> State | None:
        """The resource as the simulated Google Cloud has it."""
        found = _with_id(old.id, self._entries(resource.type, default_resources.region_in(old.id)))
        if found is None:
            return None
        return State(
            found["id"],
            restored(found["inputs"], old.inputs),
            restored(found["outputs"], old.outputs),
        )

    def delete(self, resource: Resource, old: State) -> None:
        """Delete it; nodes are drained first."""
        if resource.type == CLUSTER:
            self._delete_cluster(resource, old)
        elif resource.type == NODE_POOL:
            self._delete_pool(resource, *old.id.split("/nodePools/"))
        else:
            self._store.delete("recorded", _record_key(resource.type, old.id))

    def _create_cluster(self, resource: Resource, new: Properties) -> State:
        inputs = _declared(new)
        container.check_cluster(inputs, self._place)
        if inputs.get("enableAutopilot"):
            autopilot = (
                "Autopilot's machines and rules are not simulated: its pods run on assumed nodes"
            )
            self.log(resource, "warning", autopilot)
        identity = container.cluster_id(inputs, self._place)
        pool = node_pool.default_pool(inputs, self._place)
        with self._store.claimed():
            self._refuse_second(resource, identity, _with_id(identity, self._made(CLUSTER)))
            if self._of(identity).cluster or self._store.clusters().keys() - {identity}:
                replica.start(self._rehearsal.for_cluster(identity), toolchain.ensure())
            state = self._save_cluster(resource, new)
            if pool is not None:
                Store(self._of(identity)).save_pool(pool)
        if pool is not None:
            self._wait_for_nodes(resource, pool)
        return state

    def _save_cluster(self, resource: Resource, new: Properties) -> State:
        inputs = _declared(new)
        identity = container.cluster_id(inputs, self._place)
        outputs = container.cluster_outputs(
            inputs, self._place, configuration.credentials(self._of(identity))
        )
        state = State(identity, new, outputs)
        Store(self._of(identity)).save("clusters", identity, _as_resource(resource, state))
        return state

    def _of(self, cluster_id: str) -> Rehearsal:
        """The replica of a cluster: one of its own, or else the first."""
        own = self._rehearsal.for_cluster(cluster_id)
        return own if own.replica_dir.exists() else self._rehearsal

    def _delete_cluster(self, resource: Resource, old: State) -> None:
        if old.inputs.get("deletionProtection") is not False:
            raise RehearsalError(
                "Cannot destroy cluster because deletion_protection is set to true. Set it to false, "
                "update the cluster, and then delete it"
            )
        if (own := self._of(old.id)).cluster:
            # Without the cluster, nobody misses the processes that end.
            Store(own).delete("clusters", old.id)
            replica.delete(own)
            return
        for pool in self._store.pools().values():
            if pool.cluster_id == old.id:
                self._delete_pool(resource, old.id, pool.name)
        self._store.delete("clusters", old.id)

    def _apply_pool(self, resource: Resource, new: Properties, is_new: bool) -> State:
        inputs, cluster = self._pool_inputs(new)
        identity = container.pool_id(inputs, self._place)
        pool = node_pool.node_pool(inputs, self._place, cluster)
        store = Store(self._of(pool.cluster_id))
        with self._store.claimed():
            pools = store.pools()
            before = pools.get(pool.name)
            if is_new:
                self._refuse_second(resource, identity, before.resource if before else None)
                others = [other for other in pools.values() if other.cluster_id == pool.cluster_id]
                # GKE taints a GPU pool only if the cluster already has nodes for everything else.
                tainted = node_pool.is_gpu_pool(pool) and not all(
                    map(node_pool.is_gpu_pool, others)
                )
            elif before is None:
                raise not_found(identity)
            else:
                tainted = before.automatic_gpu_taint
            pool = replace(pool, automatic_gpu_taint=tainted)
            outputs = container.pool_outputs(_declared(new), self._place, pool)
            kept = State(identity, container.as_gke_has_it(new, pool), outputs)
            store.save_pool(replace(pool, resource=_as_resource(resource, kept)))
        self._wait_for_nodes(resource, pool)
        return State(identity, new, outputs)

    def _pool_inputs(self, new: Properties) -> tuple[Properties, Properties]:
        """The inputs of a pool, with the place of the cluster that it names, and the inputs of that cluster."""
        inputs = _declared(new)
        parts = inputs["cluster"].split("/")
        if len(parts) == 6:
            inputs = {"project": parts[1], "location": parts[3]} | inputs
        parent = container.parent_id(inputs, self._place)
        cluster = Store(self._of(parent)).clusters().get(parent)
        if cluster is None:
            raise not_found(parent)
        return inputs, _declared(cluster["inputs"])

    def _delete_pool(self, resource: Resource, cluster_id: str, name: str) -> None:
        own = self._of(cluster_id)
        Store(own).delete("node_pools", name)
        self._wait(resource, own, f"node pool {name} to be drained", lambda: not _nodes(own, name))

    def _record(self, resource: Resource, new: Properties, old: State | None = None) -> State:
        inputs = _declared(new)
        try:
            identity = (
                old.id
                if old
                else recorded.identity(resource.type, inputs, self._place, resource.urn)
            )
            outputs = recorded.outputs(resource.type, inputs, self._place, identity)
        except KeyError as error:
            raise RehearsalError(f"{error.args[0]}: required field is not set") from error
        kept = (
            {key: old.outputs[key] for key in recorded.CREATED if key in old.outputs} if old else {}
        )
        state = State(identity, new, outputs | kept)
        name = str(inputs.get("name") or inputs.get("accountId") or identity)
        entry = {"name": name} | _as_resource(resource, state)
        with self._store.claimed():
            if old is None and not recorded.is_shared(resource.type):
                self._refuse_second(
                    resource, identity, _with_id(identity, self._made(resource.type))
                )
            self._store.save("recorded", _record_key(resource.type, identity), entry)
        return state

    def _entries(self, token: str, region: str = "") -> list[Mapping[str, Any]]:
        """The resources of a type: those that were made, and those that a project has from its start."""
        return [*self._made(token), *default_resources.of_type(token, self._place, region)]

    def _made(self, token: str) -> list[Mapping[str, Any]]:
        stores = map(Store, self._rehearsal.replicas)
        return [entry for store in stores for entry in store.resources() if entry["type"] == token]

    def _refuse_second(
        self, resource: Resource, identity: str, found: Mapping[str, Any] | None
    ) -> None:
        # The same resource with the same id: an earlier create whose answer the engine did not live to hear.
        if found is not None and (found.get("urn"), found.get("id")) != (resource.urn, identity):
            raise already_exists(identity)

    def _wait_for_nodes(self, resource: Resource, pool: Pool) -> None:
        wanted = nodes.node_template(pool, pool.zones[0], None)["metadata"]["annotations"].items()
        least = pool.min_nodes if pool.resource else pool.initial_nodes
        own = self._of(pool.cluster_id)

        def are_ready() -> bool:
            found = _nodes(own, pool.name)
            return len(found) >= min(least, pool.max_nodes) and all(
                condition(node, "Ready").get("status") == "True"
                and wanted <= node["metadata"]["annotations"].items()
                for node in found
            )

        self._wait(resource, own, f"the nodes of pool {pool.name}", are_ready)

    def _wait(
        self, resource: Resource, own: Rehearsal, what: str, done: Callable[[], bool]
    ) -> None:
        began = time.monotonic()
        deadline = began + (resource.timeout or _TIMEOUT_SECONDS)
        while not done():
            if not daemon.process(own).running:
                raise RehearsalError(
                    f"the simulated GKE does not run. Start it: {self._rehearsal.command('up')}"
                )
            if time.monotonic() > deadline:
                raise RehearsalError(
                    f"timeout while waiting for {what}. See logs/gke.log of the rehearsal"
                )
            # Reading a thousand nodes takes from the replica what it needs to make them.
            if self.cancelled.wait(max(_POLL_SECONDS, 5 * (time.monotonic() - began))):
                raise RehearsalError(f"interrupted while waiting for {what}")
            began = time.monotonic()


def _nodes(own: Rehearsal, pool: str) -> list[Object]:
    api = Api(Access(own.kubeconfig))
    found = api.get("/api/v1/nodes", labelSelector=f"{labels.GKE_NODE_POOL}={pool}")["items"]
    # A copy of one's own cluster's node may be of a pool of that name as well.
    return list(filter(nodes.is_simulated, found))


def _with_id(identity: str, entries: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """The resource of an id, or of that of an import, which may leave out how it begins."""
    return next((entry for entry in entries if f"/{entry['id']}".endswith(f"/{identity}")), None)


def _same(before: Any, after: Any, path: str) -> bool:
    """Whether two values are equal, or two names of one resource: in full, as a link, or its last part alone."""
    if isinstance(before, str) and isinstance(after, str):
        long, short = sorted((before, after), key=len, reverse=True)
        return long == short or (long.startswith(_LINKS) and long.endswith(f"/{short}"))
    return before == after


def replaced_paths(token: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """The paths for which a change of inputs replaces a resource."""
    return _replaced(
        token, changed_paths(before, after, same=_same, enter_blocks=True), before, after
    )


def _replaced(
    token: str, changed: Iterable[str], before: Mapping[str, Any], after: Mapping[str, Any]
) -> list[str]:
    roots = recorded.replaced_for(token)
    return [
        path
        for path in changed
        if _is_replaced(path, roots, value_at(after, path) or value_at(before, path))
    ]


def _is_replaced(path: str, roots: Iterable[str], value: Any) -> bool:
    """Whether a change at a path replaces a resource: it is at or below a root, or has one in it."""
    plain = _INDEX.sub("", path)
    return is_below(plain, roots) or (
        bool(value) and any(is_below(root, [plain]) for root in roots)
    )


def _with_computed(new: Any, old: Any, outputs: Any) -> Any:
    """Return new inputs with the outputs that Google computed, at any depth.

    An output is computed if the old inputs lack it: Pulumi's own plugin keeps these through an update.
    """
    if isinstance(new, Mapping) and isinstance(outputs, Mapping):
        old = old if isinstance(old, Mapping) else {}
        computed = {key: value for key, value in outputs.items() if key not in old}
        declared = {
            key: _with_computed(value, old.get(key), outputs.get(key)) for key, value in new.items()
        }
        return computed | declared
    if isinstance(new, list) and isinstance(outputs, list) and len(new) == len(outputs):
        before = old if isinstance(old, list) and len(old) == len(new) else [None] * len(new)
        return [_with_computed(*item) for item in zip(new, before, outputs, strict=True)]
    return new


def _declared(inputs: Mapping[str, Any]) -> Properties:
    return {key: value for key, value in inputs.items() if key != _DEFAULTS}


def _new_name(resource: Resource, prefix: Any, seed: bytes) -> Any:
    """A name if the program gives none: after its prefix, as the engine proposes it, or one of our own."""
    digits = hashlib.sha256(seed).hexdigest() if seed else secrets.token_hex(16)
    longest = GCP[resource.type].longest_name
    if prefix is not None:
        return UNKNOWN if prefix is UNKNOWN else f"{prefix}{digits[:_PREFIXED_DIGITS]}"
    if resource.must_be_named:
        raise CheckError(
            [("name", f"autonaming is disabled (pulumi:autonaming): give {resource.name} a name")]
        )
    if resource.proposed_name:
        return resource.proposed_name.lower()[:longest]
    return f"{resource.name.lower()[: longest - 8].rstrip('-')}-{digits[:7]}"


def _as_resource(resource: Resource, state: State) -> Properties:
    written = {
        "inputs": resource.writable(state.inputs),
        "outputs": resource.writable(state.outputs),
    }
    return {"type": resource.type, "urn": resource.urn, "id": state.id, **written}


def _record_key(token: str, identity: str) -> str:
    readable = f"{token.rpartition(':')[2]}.{identity.rpartition('/')[2]}"[:80]
    return f"{readable}.{hashlib.sha256(f'{token} {identity}'.encode()).hexdigest()[:8]}"
