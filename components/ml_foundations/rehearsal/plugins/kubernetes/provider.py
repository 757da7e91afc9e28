"""The provider: what Pulumi's engine asks, answered by the API server and by Helm."""

from __future__ import annotations

import copy
import hashlib
import importlib.metadata
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from typing import ClassVar

from ml_foundations.kubernetes.manifests import RELEASE
from ml_foundations.rehearsal.api import Api, ApiError, Object
from ml_foundations.rehearsal.plugins.changes import changed_paths, is_below
from ml_foundations.rehearsal.plugins.kubernetes import annotations, settings, waiting
from ml_foundations.rehearsal.plugins.kubernetes.client import Client, UnknownKindError
from ml_foundations.rehearsal.plugins.kubernetes.diff import group_kind, replaced_paths, same
from ml_foundations.rehearsal.plugins.kubernetes.helm import Helm
from ml_foundations.rehearsal.plugins.kubernetes.objects import (
    as_declared,
    as_stored,
    content_of,
    declared_part,
    hidden,
    keep_live,
    object_id,
    outputs_of,
    title,
    without_nulls,
)
from ml_foundations.rehearsal.plugins.kubernetes.readiness import is_complete
from ml_foundations.rehearsal.plugins.provider import CheckError, Diff, InitFailedError, Provider, Resource, State
from ml_foundations.rehearsal.plugins.sdk import KUBERNETES, Sdk, api_version_and_kind, token_of
from ml_foundations.rehearsal.plugins.values import Properties, has_unknown
from ml_foundations.rehearsal.progress import RehearsalError

_REPLACE_UNREADY_PATH = f'metadata.annotations["{annotations.REPLACE_UNREADY}"]'
_NO_GENERATED_NAMES = (
    "metadata.generateName is not supported with Server-Side Apply, which is the provider's default: "
    "give metadata.name, or leave out both, and Pulumi makes a name"
)
_RETRY_SECONDS = (0.5, 1, 2)
"""The pauses before a new object is tried again while its namespace or kind does not exist yet."""


class KubernetesProvider(Provider):
    """Every kind that the cluster serves, and Helm releases."""

    name: ClassVar[str] = "kubernetes"
    version: ClassVar[str] = importlib.metadata.version("pulumi-kubernetes")
    sdk: ClassVar[Sdk] = KUBERNETES
    takes_names: ClassVar[bool] = True
    keeps_nulls: ClassVar[bool] = True

    def configure(self, config: Properties) -> None:
        """Take the provider's inputs."""
        self._settings = settings.Settings(config)

    def diff_config(self, old: Properties, new: Properties) -> Diff:
        """Another cluster replaces the provider and all it made; another kubeconfig of the same cluster does not."""
        return settings.diff(old, new)

    def check(self, resource: Resource, old: Properties, new: Properties, seed: bytes) -> Properties:
        """Fill in namespace and name if the program gives none; refuse what could not be awaited."""
        if resource.type == RELEASE:
            return self._helm.check(resource, old, new, seed)
        _refuse_unsupported(resource)
        api_version, kind = api_version_and_kind(resource.type)
        inputs: Properties = {"apiVersion": api_version, "kind": kind} | copy.deepcopy(new)
        # A custom resource may mean something by a null; of the built-in kinds none does.
        inputs = hidden(without_nulls(inputs) if resource.type in KUBERNETES else inputs)
        if errors := annotations.errors(inputs):
            # Without a property's name: the engine would print its value, and finds that at the top only.
            raise CheckError([("", error) for error in errors])
        metadata = inputs.setdefault("metadata", {})
        if isinstance(metadata, dict):
            if not metadata.get("namespace") and self._is_namespaced(inputs):
                metadata["namespace"] = self._settings.namespace
            if not metadata.get("name"):
                self._name(metadata, resource, old, seed)
        return inputs

    def diff(self, resource: Resource, old: State, new: Properties, ignore: list[str]) -> Diff:
        """Compare what was asked for with what is asked for now."""
        if resource.type == RELEASE:
            return self._helm.diff(old, new)
        before = {key: value for key, value in old.inputs.items() if not key.startswith("__")}
        before, after = self._placed(before, old.id), self._placed(new)
        differing = changed_paths(as_stored(before), as_stored(after), same=same)
        changed = [path for path in differing if not is_below(path, ignore)]
        replaces = replaced_paths(changed, new, self._settings.mutable_kinds)
        if self._is_to_be_replaced(old, new):
            changed, replaces = ([*paths, _REPLACE_UNREADY_PATH] for paths in (changed, replaces))
        # The replacement of an object that was named by us gets a new name, so both can be there.
        taken = _same_object(before, after) and not _is_autonamed(new)
        return Diff(changed, replaces, delete_before_replace=bool(replaces) and taken)

    def preview(self, resource: Resource, old: State | None, new: Properties) -> Properties:
        """What the API server would make of it; the inputs if it cannot tell yet."""
        if resource.type == RELEASE:
            return self._helm.preview(new)
        if has_unknown(new) or (old is None and not new["metadata"].get("name")):
            return new
        with _explained(resource, "the API server refuses it"):
            return self._previewed(resource, old, new)

    def _previewed(self, resource: Resource, old: State | None, new: Properties) -> Properties:
        try:
            wanted = self._located(new, old)
            live = self._client.get(wanted)
            # A new object of this name comes after the deletion of the one there is.
            if old is None and live is not None:
                return new
            keep_live(wanted, live, resource.ignore)
            return outputs_of(self._client.apply(wanted, dry_run=True, force=old is not None), preview=True)
        except ApiError as error:
            if error.status == 0 or isinstance(error, UnknownKindError) or _namespace_is_missing(error):
                return new
            raise

    def create(self, resource: Resource, new: Properties) -> State:
        """Create the object, and wait until it is ready."""
        if resource.type == RELEASE:
            return self._helm.install(resource, new)
        with _explained(resource, "it could not be created"):
            live = self._created(resource, new)
        return self._await_ready(resource, new, live)

    def update(self, resource: Resource, old: State, new: Properties) -> State:
        """Apply the new inputs, and wait until the object is ready again."""
        if resource.type == RELEASE:
            return self._helm.install(resource, new)
        with _explained(resource, "it could not be updated"):
            wanted = self._located(new, old)
            keep_live(wanted, self._client.get(wanted) if resource.ignore else None, resource.ignore)
            live = self._client.apply(wanted, force=annotations.is_set(wanted, annotations.FORCE))
        return self._await_ready(resource, new, live)

    def read(self, resource: Resource, old: State) -> State | None:
        """The live object; on an import, its own fields become the inputs."""
        if resource.type == RELEASE:
            return self._helm.read(resource, old)
        with _explained(resource, "it could not be read"):
            wanted = self._located(old.inputs, old) if old.inputs else self._located(_identity(resource))
            live = self._client.get(wanted)
            if live is None:
                return None
            inputs = self._refreshed(old.inputs, wanted, live) if old.inputs else without_nulls(declared_part(live))
        return State(_id(live), hidden(inputs), outputs_of(live))

    def delete(self, resource: Resource, old: State) -> None:
        """Delete the object with all that it owns, and wait until it is gone."""
        if resource.type == RELEASE:
            self._helm.uninstall(resource, old)
            return
        # A kind that the cluster no longer serves has no objects.
        with _explained(resource, "it could not be deleted"), suppress(UnknownKindError):
            obj = self._located(old.inputs or old.outputs, old)
            self._client.delete(obj, annotations.propagation_policy(obj))
            if not annotations.is_skipped(obj):
                waiting.until_gone(self._client, obj, resource.timeout, self.cancelled)

    @cached_property
    def _client(self) -> Client:
        return Client(Api(self._settings.access))

    @cached_property
    def _helm(self) -> Helm:
        return Helm(self, lambda: self._settings.access.kubeconfig_file(), lambda: self._settings.namespace)

    def _name(self, metadata: Properties, resource: Resource, old: Properties, seed: bytes) -> None:
        """Give a name if the program gives none: the one that the object has, or a new one."""
        known = old["metadata"]["name"] if _is_autonamed(old) else ""
        if metadata.get("generateName") and not known:
            if self._settings.applies_server_side:
                raise CheckError([("", _NO_GENERATED_NAMES)])
            return
        metadata["name"] = known or _new_name(resource, seed)
        given = metadata.get("annotations") or {}
        if isinstance(given, Mapping):
            metadata["annotations"] = {**given, annotations.AUTONAMED: "true"}

    def _is_namespaced(self, inputs: Properties) -> bool:
        """Whether objects of the kind have a namespace; assumed if the cluster cannot tell yet."""
        # Only a CRD's kind is worth a question: it may mean a credential plugin's run, in every command.
        token = token_of(inputs["apiVersion"], inputs["kind"])
        if token in KUBERNETES:
            return KUBERNETES[token].is_namespaced
        try:
            return self._client.is_namespaced(inputs["apiVersion"], inputs["kind"])
        except RehearsalError:
            return True

    def _placed(self, inputs: Properties, identity: str = "") -> Properties:
        """Inputs with the namespace that the object is in or will be in; without one if its kind has none."""
        metadata = inputs.get("metadata", {})
        if not isinstance(metadata, Mapping):
            return inputs
        rest = {key: value for key, value in metadata.items() if key != "namespace"}
        if not self._is_namespaced(inputs):
            return inputs | {"metadata": rest}
        namespace = identity.rpartition("/")[0] or metadata.get("namespace") or "default"
        return inputs | {"metadata": rest | {"namespace": namespace}}

    def _located(self, inputs: Properties, old: State | None = None) -> Object:
        """The object to apply, with a name and, if its kind has one, a namespace; both come from the id first."""
        obj: Object = {key: value for key, value in copy.deepcopy(inputs).items() if not key.startswith("__")}
        obj.pop("status", None)
        metadata = obj.setdefault("metadata", {})
        namespace, _, name = old.id.rpartition("/") if old is not None else ("", "", "")
        given = metadata.pop("namespace", None)
        if self._client.is_namespaced(obj["apiVersion"], obj["kind"]):
            metadata["namespace"] = namespace or given or self._settings.namespace
        # Server-side apply wants a name, so that a generated one is made here.
        metadata["name"] = name or metadata.get("name") or f"{metadata.get('generateName', '')}{secrets.token_hex(3)}"
        return obj

    def _created(self, resource: Resource, new: Properties) -> Object:
        """Apply a new object; try again a few times while its namespace or kind does not exist."""
        for seconds in _RETRY_SECONDS:
            try:
                return self._applied(resource, new)
            except ApiError as error:
                if error.status != 404 or self.cancelled.is_set():
                    raise
                self.log(resource, "status", f"tries again: {error.message}")
            self.cancelled.wait(seconds)
        return self._applied(resource, new)

    def _applied(self, resource: Resource, new: Properties) -> Object:
        """Apply a new object once the one that it replaces is gone; never take over an existing one."""
        wanted = self._located(new)
        live = self._client.get(wanted)
        if live is not None and live["metadata"].get("deletionTimestamp"):
            # The one that this one replaces, where skipAwait kept its deletion from waiting.
            waiting.until_gone(self._client, wanted, resource.timeout, self.cancelled)
        elif live is not None:
            raise RehearsalError(
                f"{title(live)} already exists. Import it (pulumi import {resource.type} "
                f"{resource.name} {_id(live)}), delete it, or give this one another name"
            )
        return self._client.apply(wanted, force=annotations.is_set(wanted, annotations.FORCE))

    def _is_to_be_replaced(self, old: State, new: Properties) -> bool:
        """Whether an incomplete Job asks to be replaced; one that cannot be read stays as it is."""
        if group_kind(new) != "Job.batch" or not annotations.is_set(new, annotations.REPLACE_UNREADY):
            return False
        try:
            live = self._client.get(self._located(old.inputs, old))
        except ApiError:
            return False
        return live is not None and not is_complete(live)

    def _refreshed(self, inputs: Properties, wanted: Object, live: Object) -> Properties:
        """The inputs if applying them would change nothing; otherwise with what others changed."""
        try:
            applied = self._client.apply(wanted, dry_run=True, force=True)
        except ApiError:
            applied = None
        if applied is not None and content_of(applied) == content_of(live):
            return inputs
        return as_declared(as_stored(inputs), live)

    def _await_ready(self, resource: Resource, inputs: Properties, live: Object) -> State:
        """Wait by the kind's rule; raise InitFailedError with the reasons where time runs out."""
        reasons: list[str] = []
        if not annotations.is_skipped(live):
            live, reasons = waiting.until_ready(
                self._client, live, resource.timeout, self.cancelled, lambda text: self.log(resource, "status", text)
            )
        state = State(_id(live), hidden(inputs), outputs_of(live))
        if reasons:
            raise InitFailedError(state, reasons)
        return state


def _refuse_unsupported(resource: Resource) -> None:
    group, _, kind = resource.type.removeprefix("kubernetes:").rpartition(":")
    of_the_sdk = resource.type in KUBERNETES and kind.endswith(("Patch", "List"))
    if of_the_sdk or group.startswith(("helm.sh", "yaml", "kustomize")):
        raise RehearsalError(
            f"{resource.type} is not supported in a rehearsal. Declare the objects themselves, or run the rehearsal "
            "with --official-kubernetes-plugin"
        )


def _new_name(resource: Resource, seed: bytes) -> str:
    """The name that the engine proposes, or one of our own; AssignNameIfAutonamable of the official plugin."""
    if resource.must_be_named:
        raise RehearsalError(f"autonaming is disabled (pulumi:autonaming): give {resource.name} a metadata.name")
    return resource.proposed_name or f"{resource.name}-{hashlib.sha256(seed).hexdigest()[:8]}"


def _same_object(old: Properties, new: Properties) -> bool:
    """Whether both are one object of the cluster, so that the new one cannot be there before the old one is gone."""
    before, after = old.get("metadata"), new.get("metadata")
    if not isinstance(before, Mapping) or not isinstance(after, Mapping) or not after.get("name"):
        return False  # Each object gets a generated name of its own.
    return all(before.get(key) == after.get(key) for key in ("name", "namespace"))


def _is_autonamed(inputs: Properties) -> bool:
    return annotations.is_set(inputs, annotations.AUTONAMED)


def _namespace_is_missing(error: ApiError) -> bool:
    return error.status == 404 and error.message.startswith("namespaces ")


@contextmanager
def _explained(resource: Resource, what: str) -> Iterator[None]:
    """Turn the API server's errors in this block into errors that name the resource and what failed."""
    try:
        yield
    except ApiError as error:
        hint = ""
        if error.status == 409 and "conflict" in error.message:
            force = f'{annotations.FORCE}: "true"'
            hint = f". Leave those fields to the other manager (ignore_changes), or annotate it with {force}"
        kind = resource.type.rpartition(":")[2]
        raise RehearsalError(f"{kind} {resource.name}: {what}: {error.message}{hint}") from None


def _id(obj: Object) -> str:
    return object_id(obj["metadata"])


def _identity(resource: Resource) -> Properties:
    """The kind and name of an object to import, from its type and id."""
    api_version, kind = api_version_and_kind(resource.type)
    namespace, _, name = resource.id.rpartition("/")
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}
