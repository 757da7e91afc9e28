"""The embedded gcp plugin: Pulumi's gcp resources on the simulated Google Cloud."""

import hashlib
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, ClassVar

from ml_foundations.catalog.pools import CLUSTER, NODE_POOL, refused_inputs
from ml_foundations.kubernetes import labels
from ml_foundations.kubernetes.trees import UNKNOWN, unknown_paths
from ml_foundations.planning.input.program import NETWORK
from ml_foundations.rehearsal.access import Access
from ml_foundations.rehearsal.api import Api, Object
from ml_foundations.rehearsal.cloud import daemon, nodes, replica
from ml_foundations.rehearsal.cloud.store import Pool, Store
from ml_foundations.rehearsal.control_plane import configuration
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.plugins.gcp import container, functions, node_pool, recorded
from ml_foundations.rehearsal.plugins.gcp.errors import already_exists, not_found
from ml_foundations.rehearsal.plugins.gcp.location import GcpLocation
from ml_foundations.rehearsal.plugins.property_paths import changed_paths, is_below, value_at
from ml_foundations.rehearsal.plugins.provider import CheckError, Diff, Provider, Resource, State
from ml_foundations.rehearsal.plugins.sdk import GCP, Sdk
from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.protocol.values import Properties, restored
from ml_foundations.rehearsal.tools import toolchain

_DEFAULTS = "__defaults"
"""The input in which the provider lists the inputs that it filled in itself."""
_TIMEOUT_SECONDS = 1800
_POLL_SECONDS = 0.1
_INDEX = re.compile(r"\[\d+\]")
_LINKS = ("projects/", "https://www.googleapis.com/")
_PREFIXED_DIGITS = 26
"""The length of the digits that the provider appends to a namePrefix."""


class GcpProvider(Provider):
    """A provider of clusters and node pools on the replica; it records every other resource."""

    sdk: ClassVar[Sdk] = GCP

    def __init__(self, rehearsal: Rehearsal | None = None) -> None:
        super().__init__()
        self._rehearsal = rehearsal or Rehearsal.of_this_process()
        self._store = Store(self._rehearsal)
        self._location = GcpLocation()
        self._version = GCP.version

    def configure(self, config: Properties) -> None:
        """Accept project, region and zone as defaults, and the version of the program's SDK."""
        values = {key: str(config.get(key) or "") for key in ("project", "region", "zone")}
        self._location = GcpLocation(**values)
        self._version = config.get("version") or GCP.version

    def invoke(self, function: str, arguments: Properties) -> Properties:
        """Return the result of a function, which reads the resources of the rehearsal."""
        inputs = _declared(arguments)
        token = self._rehearsal.token
        return functions.invoke(function, inputs, self._location, self._list_resources, token)

    def check(self, resource: Resource, old: Properties, new: Properties) -> Properties:
        """Fill in the name, and refuse invalid inputs; only warn for another version of the SDK."""
        if resource.type not in GCP:
            known = f"pulumi-gcp {GCP.version}, whose types a rehearsal knows"
            used = f"The program uses {self._version}"
            raise CheckError(("", f"{resource.type} is not a resource type of {known}. {used}"))
        errors = GCP.input_errors(resource.type, new)
        for first, second in GCP.conflicts_of(resource.type):
            if all(value_at(new, path) not in (None, UNKNOWN) for path in (first, second)):
                reason = f"conflicts with {second}, whatever their values. Leave one out"
                errors.append((first, reason))
        if resource.type in (CLUSTER, NODE_POOL):
            errors += refused_inputs(_declared(new))
        if errors and self._version == GCP.version:
            raise CheckError(*errors)
        for path, reason in errors:
            version = f"The program uses pulumi-gcp {self._version}"
            self.log(resource, "warning", f"{path}: {reason}. {version}")
        if "name" not in GCP[resource.type].inputs or new.get("name") is not None:
            return new
        generated = old["name"] if "name" in old.get(_DEFAULTS, []) else None
        name = generated or _new_name(resource, new.get("namePrefix"))
        return new | {"name": name, _DEFAULTS: ["name"]}

    def diff(self, resource: Resource, old: State, new: Properties) -> Diff:
        """Compare the inputs; some properties cannot change in place."""
        before = _declared(old.inputs)
        after = _declared(new)
        changes: list[str] = []
        for path in changed(before, after):
            # An input that is new in the program, but has the value that the resource has already,
            # as after an import, is not a change.
            is_new = value_at(before, path) is None
            if not is_new or not _is_same(value_at(old.outputs, path), value_at(after, path), ""):
                changes.append(path)
        replaces = replaced(resource.type, changes, before, after)
        deletes_first = bool(replaces) and self._has_same_id(resource, old, new)
        return Diff(changes, replaces, delete_before_replace=deletes_first)

    def _has_same_id(self, resource: Resource, old: State, new: Properties) -> bool:
        """Return whether the old resource must go first: the new one has its name or id."""
        if "name" in new and "name" not in new.get(_DEFAULTS, []):
            return new["name"] == old.inputs.get("name")
        if resource.type in (CLUSTER, NODE_POOL) or any(unknown_paths(new)):
            return False
        identity = recorded.identity(resource.type, _declared(new), self._location, resource.urn)
        return identity == old.id

    def preview(self, resource: Resource, old: State | None, new: Properties) -> Properties:
        """Return the inputs; what Google computes is unknown until the resource exists."""
        if old is not None:
            return _with_computed(_declared(new), _declared(old.inputs), old.outputs)
        kind = GCP[resource.type]
        computed = {*kind.computed, *kind.filled_in} & kind.outputs
        return dict.fromkeys(computed, UNKNOWN) | _declared(new)

    def create(self, resource: Resource, new: Properties) -> State:
        """Create a cluster or node pool, or record another resource."""
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
        """Return the resource as the simulated Google Cloud has it."""
        region = recorded.region_in(old.id)
        existing = _with_id(old.id, self._list_resources(resource.type, region))
        if existing is None:
            return None
        inputs = restored(existing["inputs"], old.inputs)
        return State(existing["id"], inputs, restored(existing["outputs"], old.outputs))

    def delete(self, resource: Resource, old: State) -> None:
        """Delete it; the nodes of a pool are drained first."""
        if resource.type == CLUSTER:
            self._delete_cluster(resource, old)
        elif resource.type == NODE_POOL:
            self._delete_pool(resource, *old.id.split("/nodePools/"))
        else:
            for made in self._store.made() if resource.type == NETWORK else ():
                if made["in"] == old.outputs.get("name"):
                    raise RehearsalError(
                        f"Error waiting for Deleting Network: The network resource '{old.id}' is "
                        f"already being used by '{made['name']}'. GKE made it for a Service, an "
                        "Ingress or a Gateway, which goes before the cluster"
                    )
            self._store.delete("recorded", _record_key(resource.type, old.id))

    def _create_cluster(self, resource: Resource, new: Properties) -> State:
        inputs = _declared(new)
        container.check_cluster(inputs, self._location)
        if inputs.get("enableAutopilot"):
            simulated = "Autopilot's machines and rules are not simulated"
            self.log(resource, "warning", f"{simulated}: its pods run on assumed nodes")
        identity = container.cluster_id(inputs, self._location)
        pool = node_pool.default_pool(inputs, self._location)
        # Calls for several clusters come at once, and the first of them gets the first replica.
        with self._store.claimed():
            existing = _with_id(identity, self._declared_of(CLUSTER))
            _refuse_existing(resource, identity, existing)
            if self._replica_of(identity).cluster or self._store.clusters().keys() - {identity}:
                replica.start(self._rehearsal.for_cluster(identity), toolchain.ensure())
            state = self._save_cluster(resource, new)
            if pool is not None:
                Store(self._replica_of(identity)).save_pool(pool)
        if pool is not None:
            self._wait_for_nodes(resource, pool)
        return state

    def _save_cluster(self, resource: Resource, new: Properties) -> State:
        inputs = _declared(new)
        identity = container.cluster_id(inputs, self._location)
        rehearsal = self._replica_of(identity)
        api_server = configuration.credentials(rehearsal)
        state = State(identity, new, container.cluster_outputs(inputs, self._location, api_server))
        Store(rehearsal).save("clusters", identity, _record_of(resource, state))
        return state

    def _replica_of(self, cluster_id: str) -> Rehearsal:
        """Return the replica of a cluster: a separate one, or else the first."""
        separate = self._rehearsal.for_cluster(cluster_id)
        return separate if separate.replica_dir.exists() else self._rehearsal

    def _delete_cluster(self, resource: Resource, old: State) -> None:
        if old.inputs.get("deletionProtection") is not False:
            raise RehearsalError(
                "Cannot destroy cluster because deletion_protection is set to true. "
                "Set it to false, update the cluster, and then delete it"
            )
        rehearsal = self._replica_of(old.id)
        if rehearsal.cluster:
            # The record goes first: without it, nothing expects the processes that end.
            Store(rehearsal).delete("clusters", old.id)
            replica.delete(rehearsal)
            return
        for pool in self._store.pools().values():
            if pool.cluster_id == old.id:
                self._delete_pool(resource, old.id, pool.name)
        self._store.delete("clusters", old.id)

    def _apply_pool(self, resource: Resource, new: Properties, is_new: bool) -> State:
        inputs, cluster = self._pool_inputs(new)
        identity = f"{container.parent_id(inputs, self._location)}/nodePools/{inputs['name']}"
        pool = node_pool.node_pool(inputs, self._location, cluster)
        store = Store(self._replica_of(pool.cluster_id))
        with self._store.claimed():
            pools = store.pools()
            existing = pools.get(pool.name)
            if is_new:
                _refuse_existing(resource, identity, existing.resource if existing else None)
                # GKE taints a new GPU pool if the cluster has a pool without GPUs.
                members = [item for item in pools.values() if item.cluster_id == pool.cluster_id]
                is_tainted = _has_gpus(pool) and not all(map(_has_gpus, members))
            elif existing is None:
                raise not_found(identity)
            else:
                is_tainted = existing.automatic_gpu_taint
            # The state has the program's own inputs, the store has those that a refresh finds.
            pool = replace(pool, automatic_gpu_taint=is_tainted)
            outputs = container.pool_outputs(_declared(new), self._location, pool)
            at_refresh = State(identity, container.inputs_at_refresh(new, pool), outputs)
            store.save_pool(replace(pool, resource=_record_of(resource, at_refresh)))
        self._wait_for_nodes(resource, pool)
        return State(identity, new, outputs)

    def _pool_inputs(self, new: Properties) -> tuple[Properties, Properties]:
        """Return the inputs of a pool, with its cluster's location, and those of the cluster."""
        inputs = _declared(new)
        parts = inputs["cluster"].split("/")
        # A full name: projects/PROJECT/locations/LOCATION/clusters/CLUSTER.
        if len(parts) == 6:
            inputs = {"project": parts[1], "location": parts[3]} | inputs
        parent = container.parent_id(inputs, self._location)
        cluster = Store(self._replica_of(parent)).clusters().get(parent)
        if cluster is None:
            raise not_found(parent)
        return inputs, _declared(cluster["inputs"])

    def _delete_pool(self, resource: Resource, cluster_id: str, name: str) -> None:
        rehearsal = self._replica_of(cluster_id)
        Store(rehearsal).delete("node_pools", name)
        drained = f"node pool {name} to be drained"
        self._wait(resource, rehearsal, drained, lambda: not _nodes(rehearsal, name))

    def _record(self, resource: Resource, new: Properties, old: State | None = None) -> State:
        inputs = _declared(new)
        token = resource.type
        location = self._location
        try:
            identity = old.id if old else recorded.identity(token, inputs, location, resource.urn)
            outputs = recorded.outputs(token, inputs, location, identity)
        except KeyError as error:
            raise RehearsalError(f"{error.args[0]}: required field is not set") from error
        # An update does not change when the resource was created.
        for name in recorded.CREATED:
            if old is not None and name in old.outputs:
                outputs[name] = old.outputs[name]
        state = State(identity, new, outputs)
        name = str(inputs.get("name") or inputs.get("accountId") or identity)
        record = {"name": name} | _record_of(resource, state)
        with self._store.claimed():
            if old is None and not recorded.is_shared(token):
                existing = _with_id(identity, self._declared_of(token))
                _refuse_existing(resource, identity, existing)
            self._store.save("recorded", _record_key(token, identity), record)
        return state

    def _list_resources(self, token: str, region: str = "") -> list[Mapping[str, Any]]:
        """Return the declared and the default resources of a type."""
        defaults = recorded.defaults_of(token, self._location, region)
        return [*self._declared_of(token), *defaults]

    def _declared_of(self, token: str) -> list[Mapping[str, Any]]:
        """Return the declared resources of a type, in all clusters' replicas."""
        stores = map(Store, self._rehearsal.replicas)
        resources = chain.from_iterable(map(Store.resources, stores))
        return [resource for resource in resources if resource["type"] == token]

    def _wait_for_nodes(self, resource: Resource, pool: Pool) -> None:
        """Wait until a pool has its minimum of nodes, and all are ready and as declared."""
        template = nodes.node_template(pool, pool.zones[0], None)
        annotations = template["metadata"]["annotations"].items()
        rehearsal = self._replica_of(pool.cluster_id)
        # GKE would fail to create a pool that is sold out. Here a stockout comes after it.
        most = Store(rehearsal).available(pool).max_nodes
        minimum = min(pool.min_nodes if pool.resource else pool.initial_nodes, most)

        def is_current(node: Object) -> bool:
            return nodes.is_ready(node) and annotations <= node["metadata"]["annotations"].items()

        def are_ready() -> bool:
            # Reading a thousand nodes again and again would slow down the replica that makes them.
            if Store(rehearsal).get("ready", {}).get(pool.name, 0) < minimum:
                return False
            existing = _nodes(rehearsal, pool.name)
            return len(existing) >= minimum and all(map(is_current, existing))

        self._wait(resource, rehearsal, f"the nodes of pool {pool.name}", are_ready)

    def _wait(
        self, resource: Resource, rehearsal: Rehearsal, what: str, is_done: Callable[[], bool]
    ) -> None:
        """Wait for a change that the simulated GKE makes in the cluster of a replica."""
        started = time.monotonic()
        deadline = started + (resource.timeout or _TIMEOUT_SECONDS)
        while not is_done():
            if not daemon.process(rehearsal).running:
                fix = f"Start it: {self._rehearsal.command('up')}"
                raise RehearsalError(f"the simulated GKE does not run. {fix}")
            if time.monotonic() > deadline:
                hint = "See logs/gke.log of the rehearsal"
                raise RehearsalError(f"timeout while waiting for {what}. {hint}")
            # The longer a read takes, the rarer it is.
            if self.cancelled.wait(max(_POLL_SECONDS, 5 * (time.monotonic() - started))):
                raise RehearsalError(f"interrupted while waiting for {what}")
            started = time.monotonic()


def _nodes(rehearsal: Rehearsal, pool: str) -> list[Object]:
    """Return the simulated nodes of a pool: imported nodes may be of a pool of that name, too."""
    api = Api(Access(rehearsal.kubeconfig))
    selector = f"{labels.GKE_NODE_POOL}={pool}"
    pool_nodes = api.get("/api/v1/nodes", labelSelector=selector)["items"]
    return list(filter(nodes.is_simulated, pool_nodes))


def _refuse_existing(resource: Resource, identity: str, existing: Mapping[str, Any] | None) -> None:
    """Raise an error if another resource has the id already."""
    # The same resource is accepted: the engine ended before it got the answer of an earlier create.
    same = (resource.urn, identity)
    if existing is not None and (existing.get("urn"), existing.get("id")) != same:
        raise already_exists(identity)


def _has_gpus(pool: Pool) -> bool:
    return pool.gpu is not None or labels.GKE_ACCELERATOR in pool.labels


def _with_id(identity: str, resources: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the resource with an id; the id of an import may lack its first parts."""
    matches = (item for item in resources if f"/{item['id']}".endswith(f"/{identity}"))
    return next(matches, None)


def _is_same(before: Any, after: Any, path: str) -> bool:
    """Return whether two values are equal, or name one resource, in full or by the last part."""
    if isinstance(before, str) and isinstance(after, str):
        long, short = sorted((before, after), key=len, reverse=True)
        return long == short or (long.startswith(_LINKS) and long.endswith(f"/{short}"))
    return before == after


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """Yield the paths at which two inputs of a resource differ."""
    return changed_paths(before, after, same=_is_same, enter_blocks=True)


def replaced(
    token: str, changes: Iterable[str], before: Mapping[str, Any], after: Mapping[str, Any]
) -> list[str]:
    """Return the paths that are below, or whose value contains, a property that replaces."""
    roots = recorded.replaced_for(token)
    replaces = list[str]()
    for path in changes:
        value = value_at(after, path) or value_at(before, path)
        plain_path = _INDEX.sub("", path)
        contains_root = bool(value) and any(is_below(root, [plain_path]) for root in roots)
        if is_below(plain_path, roots) or contains_root:
            replaces.append(path)
    return replaces


def _with_computed(new: Any, old: Any, outputs: Any) -> Any:
    """Return new inputs with the outputs that Google computed, at any depth."""
    # Pulumi's own plugin keeps these through an update. The old inputs lack them.
    if isinstance(new, Mapping) and isinstance(outputs, Mapping):
        old = old if isinstance(old, Mapping) else {}
        merged = {key: value for key, value in outputs.items() if key not in old}
        for key, value in new.items():
            merged[key] = _with_computed(value, old.get(key), outputs.get(key))
        return merged
    if isinstance(new, list) and isinstance(outputs, list) and len(new) == len(outputs):
        before = old if isinstance(old, list) and len(old) == len(new) else [None] * len(new)
        return list(map(_with_computed, new, before, outputs))
    return new


def _declared(inputs: Mapping[str, Any]) -> Properties:
    return {key: value for key, value in inputs.items() if key != _DEFAULTS}


def _new_name(resource: Resource, prefix: Any) -> Any:
    """Return a new name: with the program's prefix, as the engine proposes, or generated."""
    longest = GCP[resource.type].longest_name
    if prefix is not None:
        return UNKNOWN if prefix is UNKNOWN else f"{prefix}{resource.digits[:_PREFIXED_DIGITS]}"
    if resource.must_be_named:
        fix = "Set the name of the resource"
        raise CheckError(("name", f"autonaming is disabled (pulumi:autonaming). {fix}"))
    if resource.proposed_name:
        return resource.proposed_name.lower()[:longest]
    return f"{resource.name.lower()[: longest - 8].rstrip('-')}-{resource.digits[:7]}"


def _record_of(resource: Resource, state: State) -> Properties:
    """Return a resource as the store keeps it, without secrets."""
    inputs = resource.redacted(state.inputs)
    outputs = resource.redacted(state.outputs)
    identity = {"type": resource.type, "urn": resource.urn, "id": state.id}
    return identity | {"inputs": inputs, "outputs": outputs}


def _record_key(token: str, identity: str) -> str:
    readable = f"{token.rpartition(':')[2]}.{identity.rpartition('/')[2]}"[:80]
    return f"{readable}.{hashlib.sha256(f'{token} {identity}'.encode()).hexdigest()[:8]}"
