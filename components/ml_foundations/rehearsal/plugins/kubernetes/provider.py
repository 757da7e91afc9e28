"""The provider: what Pulumi's engine asks, answered by the API server and by Helm."""

from __future__ import annotations

import copy
import hashlib
import importlib.metadata
import os
import re
import secrets
import time
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

from ml_foundations.planning.input.program import RELEASE
from ml_foundations.rehearsal.access import Access, read_kubeconfig, server_of
from ml_foundations.rehearsal.api import Api, ApiError, Object
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.plugins.kubernetes import waiting
from ml_foundations.rehearsal.plugins.kubernetes.client import FIELD_MANAGER, Client, UnknownKindError, object_id
from ml_foundations.rehearsal.plugins.kubernetes.diff import (
    as_declared,
    as_stored,
    changed_paths,
    group_kind,
    owned,
    replaced_paths,
)
from ml_foundations.rehearsal.plugins.kubernetes.helm import Helm
from ml_foundations.rehearsal.plugins.sdk import KUBERNETES, api_version_and_kind, token_of
from ml_foundations.rehearsal.plugins.servicer import (
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
from ml_foundations.rehearsal.progress import RehearsalError

AUTONAMED = "pulumi.com/autonamed"
FORCE = "pulumi.com/patchForce"
PROPAGATION = "pulumi.com/deletionPropagationPolicy"
REPLACE_UNREADY_PATH = f'metadata.annotations["{waiting.REPLACE_UNREADY}"]'
MUTABLE = {
    "ConfigMap": ("enableConfigMapMutable", "PULUMI_K8S_ENABLE_CONFIGMAP_MUTABLE"),
    "Secret": ("enableSecretMutable", "PULUMI_K8S_ENABLE_SECRET_MUTABLE"),
}
"""What makes a kind mutable: an input of the provider and, where it is not given, an environment variable."""
SERVER_SIDE_APPLY = ("enableServerSideApply", "PULUMI_K8S_ENABLE_SERVER_SIDE_APPLY")
NO_GENERATED_NAMES = (
    "metadata.generateName is not supported with Server-Side Apply, which is the provider's default: "
    "give metadata.name, or leave out both, and Pulumi makes a name"
)
POLL_SECONDS = 0.25
RETRY_SECONDS = (0.5, 1, 2)
"""The waits of a new object for its namespace or its kind, which somebody may just be making."""
SERVER_SET = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink", "uid")
"""Metadata that the API server writes."""


class KubernetesProvider(Provider):
    """Every kind that the cluster serves, and Helm releases."""

    name: ClassVar[str] = "kubernetes"
    version: ClassVar[str] = importlib.metadata.version("pulumi-kubernetes")
    takes_names: ClassVar[bool] = True
    keeps_nulls: ClassVar[bool] = True

    def schema(self) -> dict[str, Any]:
        """Every kind of the SDK."""
        return KUBERNETES.schemas

    def provider_schema(self) -> dict[str, Any]:
        """What ``pulumi:providers:kubernetes`` takes."""
        return KUBERNETES.provider_schema

    def configure(self, config: Properties) -> None:
        """Take the provider's inputs; the cluster is not asked before it is needed."""
        self._config = config

    def diff_config(self, old: Properties, new: Properties) -> Diff:
        """Another cluster replaces the provider and all it made; another kubeconfig of the same cluster does not."""
        changed = [key for key in sorted({*old, *new}) if key != "version" and old.get(key) != new.get(key)]
        replaces = [key for key in changed if key == "clusterIdentifier"]
        known = not has_unknown(new.get("kubeconfig"))
        if "kubeconfig" in changed and known and not new.get("clusterIdentifier") and _cluster(old) != _cluster(new):
            replaces.append("kubeconfig")
        return Diff(changed, replaces)

    def check(self, resource: Resource, old: Properties, new: Properties, seed: bytes) -> Properties:
        """Fill in namespace and name where the program gives none; refuse what could not be awaited."""
        if resource.type == RELEASE:
            return self._helm.check(resource, old, new, seed)
        _refuse_unsupported(resource)
        api_version, kind = api_version_and_kind(resource.type)
        inputs: Properties = {"apiVersion": api_version, "kind": kind} | copy.deepcopy(new)
        # A custom resource may mean something by a null; of the built-in kinds none does.
        inputs = _hidden(_without_nulls(inputs) if resource.type in KUBERNETES else inputs)
        if faults := waiting.faults(inputs):
            # Without a property's name: the engine would print its value, and finds that at the top only.
            raise CheckError([("", fault) for fault in faults])
        metadata = inputs.setdefault("metadata", {})
        if isinstance(metadata, dict):
            if not metadata.get("namespace") and self._is_namespaced(inputs):
                metadata["namespace"] = self._namespace()
            if not metadata.get("name"):
                self._name(metadata, resource, old, seed)
        return inputs

    def diff(self, resource: Resource, old: State, new: Properties, ignore: list[str]) -> Diff:
        """Compare what was asked for with what is asked for now."""
        if resource.type == RELEASE:
            return self._helm.diff(old, new)
        before = {key: value for key, value in old.inputs.items() if not key.startswith("__")}
        before, after = self._placed(before, old.id), self._placed(new)
        differing = changed_paths(as_stored(before), as_stored(after))
        changed = [path for path in differing if not _is_ignored(path, ignore)]
        replaces = replaced_paths(changed, new, self._mutable())
        if self._is_to_be_replaced(old, new):
            changed, replaces = ([*paths, REPLACE_UNREADY_PATH] for paths in (changed, replaces))
        # The replacement of an object that was named by us gets a new name, so both can be there.
        taken = _same_object(before, after) and not _is_autonamed(new)
        return Diff(changed, replaces, delete_before_replace=bool(replaces) and taken)

    def preview(self, resource: Resource, old: State | None, new: Properties) -> Properties:
        """What the API server would make of it; the inputs, where it cannot tell yet."""
        if resource.type == RELEASE:
            return self._helm.preview(new)
        if has_unknown(new) or (old is None and not new["metadata"].get("name")):
            return new
        try:
            wanted = self._located(new, old)
            live = self._client.get(wanted)
            # A new object of this name comes after the deletion of the one there is.
            if old is None and live is not None:
                return new
            _leave(wanted, live, resource.ignore)
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
            live = self._created(resource, new)
        except ApiError as error:
            raise _user_error("it could not be created", resource, error) from None
        return self._await_ready(resource, new, live)

    def update(self, resource: Resource, old: State, new: Properties) -> State:
        """Apply the new inputs, and wait until the object is ready again."""
        if resource.type == RELEASE:
            return self._helm.install(resource, new)
        try:
            wanted = self._located(new, old)
            _leave(wanted, self._client.get(wanted) if resource.ignore else None, resource.ignore)
            live = self._client.apply(wanted, force=_is_forced(wanted))
        except ApiError as error:
            raise _user_error("it could not be updated", resource, error) from None
        return self._await_ready(resource, new, live)

    def read(self, resource: Resource, old: State) -> State | None:
        """The live object; on an import, its own fields become the inputs."""
        if resource.type == RELEASE:
            return self._helm.read(resource, old)
        try:
            wanted = self._located(old.inputs, old) if old.inputs else self._located(_identity(resource))
            live = self._client.get(wanted)
            if live is None:
                return None
            inputs = self._refreshed(old.inputs, wanted, live) if old.inputs else _without_nulls(_declared_part(live))
        except ApiError as error:
            raise _user_error("it could not be read", resource, error) from None
        return State(_id(live), _hidden(inputs), _outputs(live))

    def delete(self, resource: Resource, old: State) -> None:
        """Delete the object with all that it owns, and wait until it is gone."""
        if resource.type == RELEASE:
            self._helm.uninstall(resource, old)
            return
        try:
            obj = self._located(old.inputs or old.outputs, old)
        except UnknownKindError:
            return
        except ApiError as error:
            raise _user_error("it could not be deleted", resource, error) from None
        policy = {"orphan": "Orphan", "background": "Background"}.get(
            waiting.annotation(obj, PROPAGATION), "Foreground"
        )
        try:
            self._client.delete(obj, policy)
            if not waiting.is_skipped(obj):
                self._await_gone(resource, obj)
        except ApiError as error:
            raise _user_error("it could not be deleted", resource, error) from None

    @cached_property
    def _access(self) -> Access:
        # Of the environment only what a rehearsal sets itself: never the user's own ~/.kube/config.
        kubeconfig = self._config.get("kubeconfig") or os.environ.get("KUBECONFIG")
        if not kubeconfig:
            raise UserError("the kubernetes provider has no kubeconfig. Give the resource a provider of your cluster")
        context, replica = str(self._config.get("context", "")), Rehearsal.of_this_process().kubeconfig
        if replica.exists() and not _leads_to(str(replica), str(kubeconfig), context):
            # Whatever cluster the program names: in a rehearsal the replica stands for it.
            return Access(str(replica))
        return Access(str(kubeconfig), context)

    @cached_property
    def _client(self) -> Client:
        return Client(Api(self._access))

    @cached_property
    def _helm(self) -> Helm:
        return Helm(self, lambda: self._access.kubeconfig_file(), self._namespace)

    def _namespace(self) -> str:
        return str(self._config.get("namespace") or "default")

    def _mutable(self) -> list[str]:
        """The kinds whose content changes in place."""
        return [kind for kind, option in MUTABLE.items() if self._option(*option, "false")]

    def _option(self, key: str, variable: str, default: str) -> bool:
        """What an input of the provider says, or else an environment variable."""
        return str(self._config.get(key, os.environ.get(variable, default))).lower() == "true"

    def _name(self, metadata: Properties, resource: Resource, old: Properties, seed: bytes) -> None:
        """Give a name where the program gives none: the one that the object has, or a new one."""
        known = old["metadata"]["name"] if _is_autonamed(old) else ""
        if metadata.get("generateName") and not known:
            if self._option(*SERVER_SIDE_APPLY, "true"):
                raise CheckError([("", NO_GENERATED_NAMES)])
            return
        metadata["name"] = known or _new_name(resource, seed)
        annotations = metadata.get("annotations") or {}
        if isinstance(annotations, Mapping):
            metadata["annotations"] = {**annotations, AUTONAMED: "true"}

    def _is_namespaced(self, inputs: Properties) -> bool:
        """Whether objects of the kind have a namespace; supposed where the cluster cannot tell, or not yet."""
        # Only a CRD's kind is worth a question: it may mean a credential plugin's run, in every command.
        token = token_of(inputs["apiVersion"], inputs["kind"])
        if token in KUBERNETES:
            return KUBERNETES[token].is_namespaced
        try:
            return self._client.is_namespaced(inputs["apiVersion"], inputs["kind"])
        except RehearsalError:
            return True

    def _placed(self, inputs: Properties, identity: str = "") -> Properties:
        """Inputs with the namespace in which the object is, or comes to be; without one where its kind has none."""
        metadata = inputs.get("metadata", {})
        if not isinstance(metadata, Mapping):
            return inputs
        rest = {key: value for key, value in metadata.items() if key != "namespace"}
        if not self._is_namespaced(inputs):
            return inputs | {"metadata": rest}
        namespace = identity.rpartition("/")[0] or metadata.get("namespace") or "default"
        return inputs | {"metadata": rest | {"namespace": namespace}}

    def _located(self, inputs: Properties, old: State | None = None) -> Object:
        """The object to apply: with a namespace, where its kind has one, and a name; of both, the id knows best."""
        obj: Object = {key: value for key, value in copy.deepcopy(inputs).items() if not key.startswith("__")}
        obj.pop("status", None)
        metadata = obj.setdefault("metadata", {})
        namespace, _, name = old.id.rpartition("/") if old is not None else ("", "", "")
        given = metadata.pop("namespace", None)
        if self._client.is_namespaced(obj["apiVersion"], obj["kind"]):
            metadata["namespace"] = namespace or given or self._namespace()
        # Server-side apply wants a name, so that a generated one is made here.
        metadata["name"] = name or metadata.get("name") or f"{metadata.get('generateName', '')}{secrets.token_hex(3)}"
        return obj

    def _created(self, resource: Resource, new: Properties) -> Object:
        """Apply a new object; where its namespace or its kind is not there yet, try again a few times."""
        for seconds in RETRY_SECONDS:
            try:
                return self._applied(resource, new)
            except ApiError as error:
                if error.status != 404 or self.cancelled.is_set():
                    raise
                self.log(resource, "status", f"tries again: {error.message}")
            self.cancelled.wait(seconds)
        return self._applied(resource, new)

    def _applied(self, resource: Resource, new: Properties) -> Object:
        """Apply a new object, once the one that it replaces is gone; one that is somebody else's stays."""
        wanted = self._located(new)
        live = self._client.get(wanted)
        if live is not None and live["metadata"].get("deletionTimestamp"):
            # The one that this one replaces, where skipAwait kept its deletion from waiting.
            self._await_gone(resource, wanted)
        elif live is not None:
            raise UserError(
                f"{live['kind']} {_id(live)} already exists. Import it (pulumi import {resource.type} "
                f"{resource.name} {_id(live)}), delete it, or give this one another name"
            )
        return self._client.apply(wanted, force=_is_forced(wanted))

    def _is_to_be_replaced(self, old: State, new: Properties) -> bool:
        """Whether a Job that is not complete asks for that; one that cannot be read stays as it is."""
        if group_kind(new) != "Job.batch" or waiting.annotation(new, waiting.REPLACE_UNREADY) != "true":
            return False
        try:
            live = self._client.get(self._located(old.inputs, old))
        except ApiError:
            return False
        return live is not None and not waiting.is_complete(live)

    def _refreshed(self, inputs: Properties, wanted: Object, live: Object) -> Properties:
        """The inputs, where applying them would change nothing; otherwise with what somebody else changed."""
        try:
            applied = self._client.apply(wanted, dry_run=True, force=True)
        except ApiError:
            applied = None
        if applied is not None and _content(applied) == _content(live):
            return inputs
        return as_declared(as_stored(inputs), live)

    def _await_ready(self, resource: Resource, inputs: Properties, live: Object) -> State:
        """Wait by the kind's rule; raise InitFailedError with the reasons where time runs out."""
        inputs = _hidden(inputs)
        if waiting.is_skipped(live):
            return State(_id(live), inputs, _outputs(live))
        deadline, said = time.monotonic() + waiting.seconds(live, resource.timeout), ""
        while True:
            latest, progress = self._look(live)
            if latest is None:
                raise UserError(f"{live['kind']} {_id(live)} was deleted by somebody else while it was awaited")
            live = latest
            if progress.done:
                return State(_id(live), inputs, _outputs(live))
            if progress.failed or time.monotonic() > deadline or self.cancelled.is_set():
                reason = "interrupted" if self.cancelled.is_set() else progress.message
                reasons = [f"{live['kind']} {_id(live)}: {reason}", *self._troubles(live)]
                raise InitFailedError(State(_id(live), inputs, _outputs(live)), reasons)
            if progress.message != said:
                said = progress.message
                self.log(resource, "status", said)
            self.cancelled.wait(POLL_SECONDS)

    def _look(self, live: Object) -> tuple[Object | None, waiting.Progress]:
        """The object as it is now, or None where it is gone, and how far it is.

        Nothing is raised: the object is there, so it must get into the state whatever happens.
        """
        try:
            latest = self._client.get(live)
            return latest, waiting.progress(self._client, latest) if latest else waiting.Progress(False)
        except ApiError as error:
            # The API server may come back.
            return live, waiting.Progress(False, message=error.message)
        except Exception as error:
            return live, waiting.Progress(False, failed=True, message=f"it cannot be awaited: {error}")

    def _troubles(self, live: Object) -> list[str]:
        try:
            return waiting.troubles(self._client, live)
        except Exception:
            # They only explain, and what they explain must be heard.
            return []

    def _await_gone(self, resource: Resource, obj: Object) -> None:
        deadline = time.monotonic() + waiting.deletion_seconds(obj, resource.timeout)
        first = self._client.get(obj)
        uid = first["metadata"]["uid"] if first else ""
        while (live := self._client.get(obj)) is not None and live["metadata"]["uid"] == uid:
            if time.monotonic() > deadline or self.cancelled.is_set():
                held = ", ".join(live["metadata"].get("finalizers") or []) or "its pods"
                raise UserError(f"{live['kind']} {_id(live)} is still being deleted; it is held by {held}")
            self.cancelled.wait(POLL_SECONDS)


def _leads_to(replica: str, kubeconfig: str, context: str) -> bool:
    """Whether a kubeconfig is of the replica; one that cannot be read is of some other cluster."""
    try:
        return server_of(kubeconfig, context) == server_of(replica)
    except RehearsalError:
        return False


def _refuse_unsupported(resource: Resource) -> None:
    group, _, kind = resource.type.removeprefix("kubernetes:").rpartition(":")
    of_the_sdk = resource.type in KUBERNETES and kind.endswith(("Patch", "List"))
    if of_the_sdk or group.startswith(("helm.sh", "yaml", "kustomize")):
        raise UserError(
            f"{resource.type} is not supported in a rehearsal. Declare the objects themselves, or run the rehearsal "
            "with --official-kubernetes-plugin"
        )


def _without_nulls(value: Any) -> Any:
    """The same without the keys that are null."""
    if isinstance(value, Mapping):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _cluster(config: Properties) -> Any:
    """What a kubeconfig says of its clusters: where they are."""
    try:
        clusters = read_kubeconfig(str(config.get("kubeconfig", "")))["clusters"]
    except RehearsalError:
        return config.get("kubeconfig")
    return [entry["cluster"].get("server") for entry in clusters]


def _is_ignored(path: str, ignore: list[str]) -> bool:
    return any(path == item or path.startswith((f"{item}.", f"{item}[")) for item in ignore)


def _new_name(resource: Resource, seed: bytes) -> str:
    """The name that the engine proposes, or one of our own; AssignNameIfAutonamable of the official plugin."""
    if resource.must_be_named:
        raise UserError(f"autonaming is disabled (pulumi:autonaming): give {resource.name} a metadata.name")
    return resource.proposed_name or f"{resource.name}-{hashlib.sha256(seed).hexdigest()[:8]}"


def _same_object(old: Properties, new: Properties) -> bool:
    """Whether both are one object of the cluster, so that the new one cannot be there before the old one is gone."""
    before, after = old.get("metadata"), new.get("metadata")
    if not isinstance(before, Mapping) or not isinstance(after, Mapping) or not after.get("name"):
        return False  # Each object gets a generated name of its own.
    return all(before.get(key) == after.get(key) for key in ("name", "namespace"))


def _is_autonamed(inputs: Properties) -> bool:
    return waiting.annotation(inputs, AUTONAMED) == "true"


def _leave(wanted: Object, live: Object | None, ignored: tuple[str, ...]) -> None:
    """Put the live values where changes are ignored: they may be another's, such as an autoscaler's replicas."""
    for path in ignored if live else ():
        *parents, last = (quoted or plain for quoted, plain in re.findall(r'\["([^"]+)"\]|([^.\[\]]+)', path))
        target, source = wanted, live
        for step in parents:
            target, source = (part.get(step) if isinstance(part, dict) else None for part in (target, source))
        if isinstance(target, dict) and isinstance(source, dict) and last in source:
            target[last] = source[last]


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
    return object_id(obj["metadata"])


def _identity(resource: Resource) -> Properties:
    """The kind and name of an object to import, from its type and id."""
    api_version, kind = api_version_and_kind(resource.type)
    namespace, _, name = resource.id.rpartition("/")
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def _declared_part(live: Object) -> Properties:
    """What was declared: the fields that this plugin applied, or else all but what the server wrote."""
    for entry in live["metadata"].get("managedFields", []):
        if entry["manager"] == FIELD_MANAGER and entry["operation"] == "Apply" and not entry.get("subresource"):
            part = owned(live, entry["fieldsV1"])
            names = {key: live["metadata"][key] for key in ("name", "namespace") if key in live["metadata"]}
            part["metadata"] = names | part.get("metadata", {})
            return {"apiVersion": live["apiVersion"], "kind": live["kind"]} | part
    return _content(live)


def _content(live: Object) -> Object:
    """What an object says, without its status and the server's bookkeeping."""
    content = {key: value for key, value in live.items() if key != "status"}
    content["metadata"] = {key: value for key, value in live["metadata"].items() if key not in SERVER_SET}
    return content


def _hidden(properties: Properties) -> Properties:
    """The same, but with the contents of a Secret kept secret."""
    if properties.get("kind") != "Secret" or properties.get("apiVersion") != "v1":
        return properties
    return properties | {key: Secret(properties[key]) for key in ("data", "stringData") if key in properties}


def _outputs(live: Object, preview: bool = False) -> Properties:
    """The object as the program and the state get it; the contents of a Secret stay secret."""
    outputs = copy.deepcopy(live)
    outputs["metadata"].pop("managedFields", None)
    if preview:
        outputs["metadata"] |= dict.fromkeys(("creationTimestamp", "resourceVersion", "uid"), UNKNOWN)
        outputs["status"] = UNKNOWN
    return _hidden(outputs)
