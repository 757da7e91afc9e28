"""The provider: what Pulumi's engine asks, answered by the API server and by Helm."""

from __future__ import annotations

import copy
import hashlib
import importlib.metadata
import time
from functools import cached_property
from typing import Any, ClassVar

from rehearsal.plugins.kubernetes import waiting
from rehearsal.plugins.kubernetes.access import Access, read_kubeconfig
from rehearsal.plugins.kubernetes.client import ApiError, Client, Object, UnknownKindError
from rehearsal.plugins.kubernetes.diff import as_declared, changed_paths, replaced_paths
from rehearsal.plugins.kubernetes.helm import RELEASE, Helm
from rehearsal.plugins.servicer import (
    UNKNOWN,
    CheckError,
    Diff,
    InitFailedError,
    Properties,
    Provider,
    Resource,
    Secret,
    State,
    UserError,
    has_unknown,
)

AUTONAMED = "pulumi.com/autonamed"
FORCE = "pulumi.com/patchForce"
PROPAGATION = "pulumi.com/deletionPropagationPolicy"
POLL_SECONDS = 0.25
DELETE_SECONDS = 600
SERVER_SET = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid")
"""Metadata that the API server writes."""


class KubernetesProvider(Provider):
    """Every kind that the cluster serves, and Helm releases."""

    name: ClassVar[str] = "kubernetes"
    version: ClassVar[str] = importlib.metadata.version("pulumi-kubernetes")

    def configure(self, config: Properties) -> None:
        """Take the provider's inputs; the cluster is not asked before it is needed."""
        self._config = config

    def diff_config(self, old: Properties, new: Properties) -> Diff:
        """Another cluster replaces the provider and all it made; another kubeconfig of the same cluster does not."""
        changed = [key for key in sorted({*old, *new}) if key != "version" and old.get(key) != new.get(key)]
        replaces = [key for key in changed if key == "clusterIdentifier"]
        if "kubeconfig" in changed and not new.get("clusterIdentifier") and _cluster(old) != _cluster(new):
            replaces.append("kubeconfig")
        return Diff(changed, replaces)

    def check(self, resource: Resource, old: Properties, new: Properties, seed: bytes) -> Properties:
        """Fill in the name where the program gives none."""
        if resource.type == RELEASE:
            return self._helm.check(resource, old, new, seed)
        _refuse_unsupported(resource)
        inputs = copy.deepcopy(new)
        if missing := [key for key in ("apiVersion", "kind") if not inputs.get(key)]:
            raise CheckError([(key, "is required") for key in missing])
        metadata: Properties = inputs.setdefault("metadata", {})
        if not isinstance(metadata, dict) or metadata.get("name") or metadata.get("generateName"):
            return inputs
        known = old.get("metadata", {}) if isinstance(old.get("metadata"), dict) else {}
        autonamed = (known.get("annotations") or {}).get(AUTONAMED) == "true"
        suffix = hashlib.sha256(seed).hexdigest()[:8]
        metadata["name"] = known["name"] if autonamed else f"{resource.name}-{suffix}"
        metadata["annotations"] = (metadata.get("annotations") or {}) | {AUTONAMED: "true"}
        return inputs

    def diff(self, resource: Resource, old: State, new: Properties, ignore: list[str]) -> Diff:
        """Compare what was asked for with what is asked for now."""
        if resource.type == RELEASE:
            return self._helm.diff(old, new)
        before = {key: value for key, value in old.inputs.items() if not key.startswith("__")}
        changed = [path for path in changed_paths(before, new) if not _is_ignored(path, ignore)]
        replaces = replaced_paths(new["kind"], changed, before)
        return Diff(changed, replaces, delete_before_replace=bool(replaces) and _same_object(before, new))

    def preview(self, resource: Resource, old: State | None, new: Properties) -> Properties:
        """What the API server would make of it; the inputs, where it cannot tell yet."""
        if resource.type == RELEASE:
            return new | {"status": UNKNOWN, "resourceNames": UNKNOWN}
        if has_unknown(new):
            return new
        try:
            wanted = self._located(new)
            live = self._client.get(wanted)
            # A new object of this name comes after the deletion of the one there is.
            if old is None and live is not None:
                return new
            return _outputs(self._client.apply(wanted, dry_run=True, force=old is not None), preview=True)
        except ApiError as error:
            if error.status == 0 or isinstance(error, UnknownKindError) or _namespace_is_missing(error):
                return new
            raise _user_error("the API server refuses it", resource, error) from None

    def create(self, resource: Resource, new: Properties) -> State:
        """Create the object, and wait until it is ready."""
        if resource.type == RELEASE:
            return self._helm.install(resource, new)
        try:
            wanted = self._located(new)
            if (live := self._client.get(wanted)) is not None and "generateName" not in new.get("metadata", {}):
                raise UserError(
                    f"{live['kind']} {_id(live)} already exists. Import it (pulumi import {resource.type} "
                    f"{resource.name} {_id(live)}), delete it, or give this one another name"
                )
            live = self._client.apply(wanted, force=_is_forced(wanted))
        except ApiError as error:
            raise _user_error("it could not be created", resource, error) from None
        return self._await_ready(resource, new, live)

    def update(self, resource: Resource, old: State, new: Properties) -> State:
        """Apply the new inputs, and wait until the object is ready again."""
        if resource.type == RELEASE:
            return self._helm.install(resource, new)
        try:
            wanted = self._located(new)
            live = self._client.apply(wanted, force=_is_forced(wanted))
        except ApiError as error:
            raise _user_error("it could not be updated", resource, error) from None
        return self._await_ready(resource, new, live)

    def read(self, resource: Resource, old: State) -> State | None:
        """The live object; on an import, its own fields become the inputs."""
        if resource.type == RELEASE:
            return self._helm.read(resource, old)
        identity = old.inputs or _identity(resource)
        try:
            live = self._client.get(self._located(identity))
        except ApiError as error:
            raise _user_error("it could not be read", resource, error) from None
        if live is None:
            return None
        inputs = as_declared(old.inputs, live) if old.inputs else _declared_part(live)
        return State(_id(live), inputs, _outputs(live))

    def delete(self, resource: Resource, old: State) -> None:
        """Delete the object with all that it owns, and wait until it is gone."""
        if resource.type == RELEASE:
            self._helm.uninstall(resource, old)
            return
        obj = self._located(old.inputs or old.outputs)
        policy = {"orphan": "Orphan", "background": "Background"}.get(
            waiting.annotation(obj, PROPAGATION), "Foreground"
        )
        try:
            self._client.delete(obj, policy)
            if not waiting.is_skipped(obj):
                self._await_gone(resource, obj)
        except UnknownKindError:
            return
        except ApiError as error:
            raise _user_error("it could not be deleted", resource, error) from None

    @cached_property
    def _access(self) -> Access:
        kubeconfig = self._config.get("kubeconfig")
        if not kubeconfig:
            raise UserError("the kubernetes provider has no kubeconfig. Give the resource a provider of your cluster")
        return Access(str(kubeconfig), str(self._config.get("context", "")))

    @cached_property
    def _client(self) -> Client:
        return Client(self._access)

    @cached_property
    def _helm(self) -> Helm:
        return Helm(self, lambda: self._access.kubeconfig_file())

    def _located(self, inputs: Properties) -> Object:
        """The object to apply: with a namespace, where its kind has one."""
        obj: Object = {key: value for key, value in copy.deepcopy(inputs).items() if not key.startswith("__")}
        obj.pop("status", None)
        metadata = obj.setdefault("metadata", {})
        if not metadata.get("namespace") and self._client.is_namespaced(obj["apiVersion"], obj["kind"]):
            metadata["namespace"] = self._config.get("namespace") or "default"
        return obj

    def _await_ready(self, resource: Resource, inputs: Properties, live: Object) -> State:
        """Wait by the kind's rule; raise InitFailedError with the reasons where time runs out."""
        if waiting.is_skipped(live):
            return State(_id(live), inputs, _outputs(live))
        deadline = time.monotonic() + waiting.seconds(live, resource.timeout)
        said = ""
        while not (progress := waiting.progress(self._client, live)).done:
            if progress.failed or time.monotonic() > deadline or self.cancelled.is_set():
                reason = "interrupted" if self.cancelled.is_set() else progress.message
                state = State(_id(live), inputs, _outputs(live))
                raise InitFailedError(state, [f"{live['kind']} {_id(live)}: {reason}", *progress.details])
            if progress.message != said:
                said = progress.message
                self.log(resource, "status", said)
            self.cancelled.wait(POLL_SECONDS)
            latest = self._client.get(live)
            if latest is None:
                raise UserError(f"{live['kind']} {_id(live)} was deleted by somebody else while it was awaited")
            live = latest
        return State(_id(live), inputs, _outputs(live))

    def _await_gone(self, resource: Resource, obj: Object) -> None:
        deadline = time.monotonic() + (resource.timeout or DELETE_SECONDS)
        first = self._client.get(obj)
        uid = first["metadata"]["uid"] if first else ""
        while (live := self._client.get(obj)) is not None and live["metadata"]["uid"] == uid:
            if time.monotonic() > deadline or self.cancelled.is_set():
                held = ", ".join(live["metadata"].get("finalizers") or []) or "its pods"
                raise UserError(f"{live['kind']} {_id(live)} is still being deleted; it is held by {held}")
            self.cancelled.wait(POLL_SECONDS)


def _refuse_unsupported(resource: Resource) -> None:
    group, _, kind = resource.type.removeprefix("kubernetes:").rpartition(":")
    if kind.endswith(("Patch", "List")) or group.startswith(("helm.sh", "yaml", "kustomize")):
        raise UserError(
            f"{resource.type} is not supported in a rehearsal. Declare the objects themselves, or run the rehearsal "
            "with --official-kubernetes-plugin"
        )


def _cluster(config: Properties) -> Any:
    """What a kubeconfig says of its clusters: where they are."""
    try:
        clusters = read_kubeconfig(str(config.get("kubeconfig", "")))["clusters"]
    except UserError:
        return config.get("kubeconfig")
    return [entry["cluster"].get("server") for entry in clusters]


def _is_ignored(path: str, ignore: list[str]) -> bool:
    return any(path == item or path.startswith((f"{item}.", f"{item}[")) for item in ignore)


def _same_object(old: Properties, new: Properties) -> bool:
    """Whether both are one object of the cluster, so that the new one cannot be there before the old one is gone."""
    before, after = old.get("metadata", {}), new.get("metadata", {})
    keys = ("name", "namespace")
    return old.get("kind") == new["kind"] and all(before.get(key) == after.get(key) for key in keys)


def _is_forced(obj: Object) -> bool:
    return waiting.annotation(obj, FORCE) == "true"


def _namespace_is_missing(error: ApiError) -> bool:
    return error.status == 404 and error.message.startswith("namespaces ")


def _user_error(what: str, resource: Resource, error: ApiError) -> UserError:
    hint = ""
    if error.status == 409 and "conflict" in error.message:
        hint = f'. Leave those fields to the other manager (ignore_changes), or annotate it with {FORCE}: "true"'
    return UserError(f"{resource.type.rpartition(':')[2]} {resource.name}: {what}: {error.message}{hint}")


def _id(obj: Object) -> str:
    metadata = obj["metadata"]
    return f"{metadata['namespace']}/{metadata['name']}" if metadata.get("namespace") else metadata["name"]


def _identity(resource: Resource) -> Properties:
    """The kind and name of an object to import, from its type and id."""
    api_version, _, kind = resource.type.removeprefix("kubernetes:").rpartition(":")
    namespace, _, name = resource.id.rpartition("/")
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": api_version.removeprefix("core/"), "kind": kind, "metadata": metadata}


def _declared_part(live: Object) -> Properties:
    """A live object without what the server wrote."""
    declared = {key: value for key, value in live.items() if key != "status"}
    declared["metadata"] = {key: value for key, value in live["metadata"].items() if key not in SERVER_SET}
    return declared


def _outputs(live: Object, preview: bool = False) -> Properties:
    """The object as the program and the state get it; the contents of a Secret stay secret."""
    outputs = copy.deepcopy(live)
    outputs["metadata"].pop("managedFields", None)
    if preview:
        outputs["metadata"] |= dict.fromkeys(("creationTimestamp", "resourceVersion", "uid"), UNKNOWN)
        outputs["status"] = UNKNOWN
    if live["kind"] == "Secret":
        outputs |= {key: Secret(live[key]) for key in ("data", "stringData") if key in live}
    return outputs
