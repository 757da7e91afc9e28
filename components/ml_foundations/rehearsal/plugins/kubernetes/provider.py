"""The provider: what Pulumi's engine asks, answered by the API server and by Helm."""

import copy
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from http import HTTPStatus
from pathlib import Path
from typing import Any, ClassVar

from ml_foundations.kubernetes.merging import without_nulls
from ml_foundations.kubernetes.objects import RELEASE, labels_of
from ml_foundations.kubernetes.trees import unknown_paths
from ml_foundations.rehearsal.api import ApiError, Object
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.plugins.kubernetes import annotations, objects, settings, waiting
from ml_foundations.rehearsal.plugins.kubernetes.client import (
    FIELD_MANAGER,
    Client,
    UnknownKindError,
)
from ml_foundations.rehearsal.plugins.kubernetes.diff import (
    IDENTITY,
    group_kind,
    merge_patch,
    replaced_paths,
    same,
)
from ml_foundations.rehearsal.plugins.kubernetes.helm import Helm
from ml_foundations.rehearsal.plugins.kubernetes.readiness import is_complete, missing_at_refresh
from ml_foundations.rehearsal.plugins.kubernetes.rendering import COMPONENTS, Renderer
from ml_foundations.rehearsal.plugins.property_paths import changed_paths, is_below
from ml_foundations.rehearsal.plugins.provider import (
    RENAMED,
    CheckError,
    Diff,
    InitFailedError,
    Provider,
    Resource,
    State,
)
from ml_foundations.rehearsal.plugins.sdk import KUBERNETES, Sdk, api_version_and_kind, token_of
from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.protocol.values import Properties

_REPLACE_UNREADY_PATH = f'metadata.annotations["{annotations.REPLACE_UNREADY}"]'
_NO_GENERATED_NAMES = (
    "metadata.generateName is not supported with Server-Side Apply, which is the provider's default: "
    "give metadata.name, or leave out both, and Pulumi makes a name"
)
_MANAGED_BY = "app.kubernetes.io/managed-by"
_RETRY_SECONDS = (0.25, 0.5, 1, 2, 4, 8, 16)
"""The pauses before a new object is tried again while its namespace or kind does not exist yet."""


class KubernetesProvider(Provider):
    """Every kind that the cluster serves, and Helm releases."""

    sdk: ClassVar[Sdk] = KUBERNETES
    keeps_nulls: ClassVar[bool] = True

    def configure(self, config: Properties) -> None:
        """Take the provider's inputs."""
        self._settings = settings.Settings(config)
        self._helm = Helm(self, self._settings)
        self._renderer = Renderer(
            self._helm.template, self._settings.namespace, self._is_namespaced
        )

    def check_config(self, config: Properties) -> None:
        """Refuse settings that a rehearsal does not honour."""
        settings.check(config)

    def diff_config(self, old: Properties, new: Properties) -> Diff:
        """Another cluster replaces the provider and all it made; another kubeconfig of the same cluster does not."""
        return settings.diff(old, new)

    def invoke(self, function: str, arguments: Properties) -> Properties:
        """Decode YAML, or render a kustomization or a chart."""
        found = self._renderer.call(function, arguments)
        return super().invoke(function, arguments) if found is None else {"result": found}

    def construct(self, type: str, name: str, inputs: Mapping[str, Any], options: Any) -> Any:
        """A component of rendered manifests."""
        if type not in COMPONENTS:
            return super().construct(type, name, inputs, options)
        from ml_foundations.rehearsal.plugins.kubernetes.components import (
            Rendered,
        )  # imports all of Pulumi's SDK

        return Rendered(type, name, inputs, options, self._renderer.render)

    def check(
        self, resource: Resource, old: Properties, new: Properties, seed: bytes
    ) -> Properties:
        """Fill in namespace and name if the program gives none; refuse what could not be awaited."""
        if resource.type == RELEASE:
            return self._helm.check(resource, old, new, seed)
        _refuse_unsupported(resource)
        api_version, kind = _kind_of(resource)
        if warning := objects.removal(api_version, kind):
            self.log(resource, "warning", warning)
        inputs: Properties = copy.deepcopy(new) | {"apiVersion": api_version, "kind": kind}
        # A custom resource may mean something by a null; of the built-in kinds none does.
        inputs = objects.hidden(without_nulls(inputs) if resource.type in KUBERNETES else inputs)
        if not self._settings.applies_server_side and (not old or _MANAGED_BY in labels_of(old)):
            _label_as_managed(resource, inputs)
        try:
            annotations.check(inputs)
        except ValueError as error:
            # Without a property's name: the engine would print its value, and finds that at the top only.
            raise CheckError([("", str(error))]) from None
        metadata = inputs.setdefault("metadata", {})
        if isinstance(metadata, dict):
            for key in objects.SERVER_WRITTEN:
                metadata.pop(key, None)
            if not metadata.get("namespace") and self._is_namespaced(inputs):
                metadata["namespace"] = self._settings.namespace
            if not metadata.get("name") and _is_patch(resource):
                raise CheckError(
                    [("", "metadata.name is required: a patch changes an object that has a name")]
                )
            if not metadata.get("name"):
                self._name(metadata, resource, old, seed)
        return inputs

    def diff(self, resource: Resource, old: State, new: Properties, ignore: list[str]) -> Diff:
        """Compare what was asked for with what is asked for now."""
        if resource.type == RELEASE:
            return self._helm.diff(old, new)
        before = {key: value for key, value in old.inputs.items() if not key.startswith("__")}
        before, after = self._placed(before, old.id), self._placed(new)
        differing = changed_paths(objects.as_stored(before), objects.as_stored(after), same=same)
        changed = [path for path in differing if not is_below(path, ignore)]
        replaces = replaced_paths(changed, new, self._settings.mutable_kinds)
        if _is_patch(resource):
            replaces = [path for path in replaces if path in IDENTITY]
        if self._is_to_be_replaced(old, new):
            changed, replaces = ([*paths, _REPLACE_UNREADY_PATH] for paths in (changed, replaces))
        # The replacement of an object that was named by us gets a new name, so both can be there.
        taken = _same_object(before, after) and not annotations.is_set(new, annotations.AUTONAMED)
        return Diff(changed, replaces, delete_before_replace=bool(replaces) and taken)

    def preview(self, resource: Resource, old: State | None, new: Properties) -> Properties:
        """What the API server would make of it; the inputs if it cannot tell yet."""
        if resource.type == RELEASE:
            return self._helm.preview(new)
        is_new = old is None and (_is_patch(resource) or not new["metadata"].get("name"))
        if is_new or any(unknown_paths(new)) or not self._settings.applies_server_side:
            return new
        with _explained(resource, "the API server refuses it"):
            try:
                return objects.outputs_of(
                    self._applied(resource, new, old, dry_run=True), preview=True
                )
            except ApiError as error:
                if _tells_nothing(error, old):
                    return new
                raise

    def create(self, resource: Resource, new: Properties) -> State:
        """Create the object, and wait until it is ready."""
        if resource.type == RELEASE:
            self._helm.refuse_taken(new)
            return self._helm.install(resource, new)
        with _explained(resource, "it could not be created"):
            live = self._created(resource, new)
        _unheard(resource).unlink(missing_ok=True)
        return self._await_ready(resource, new, live)

    def update(self, resource: Resource, old: State, new: Properties) -> State:
        """Apply the new inputs, and wait until the object is ready again."""
        if resource.type == RELEASE:
            return self._helm.install(resource, new)
        with _explained(resource, "it could not be updated"):
            live = self._applied(resource, new, old)
            before = _field_manager(resource, old.inputs)
            if before != _field_manager(resource, new) and self._settings.applies_server_side:
                self._client.give_up(live, before)
        return self._await_ready(resource, new, live)

    def read(self, resource: Resource, old: State) -> State | None:
        """The live object; on an import, its own fields become the inputs."""
        if resource.type == RELEASE:
            return self._helm.read(resource, old)
        with _explained(resource, "it could not be read"):
            api_version, kind = _kind_of(resource)
            live = self._client.get(
                self._located(old.inputs or {"apiVersion": api_version, "kind": kind}, old)
            )
            if live is None:
                return None
            stored = objects.as_stored(old.inputs)
            inputs = (
                objects.as_declared(stored, live)
                if stored
                else without_nulls(objects.content_of(live))
            )
            lack = missing_at_refresh(self._client, live) if old.inputs else ""
        state = State(
            objects.object_id(live["metadata"]), objects.hidden(inputs), objects.outputs_of(live)
        )
        if lack:
            raise InitFailedError(state, [f"{objects.title(live)}: {lack}"])
        return state

    def delete(self, resource: Resource, old: State) -> None:
        """Delete the object with all that it owns, and wait until it is gone."""
        if resource.type == RELEASE:
            self._helm.uninstall(resource, old)
            return
        # A kind that the cluster no longer serves has no objects.
        with _explained(resource, "it could not be deleted"), suppress(UnknownKindError):
            obj = self._located(old.inputs or old.outputs, old)
            if _is_patch(resource):
                self._client.give_up(obj, _field_manager(resource, obj))
                return
            self._client.delete(obj, annotations.propagation_policy(obj))
            if not annotations.is_deletion_skipped(obj):
                waiting.until_gone(self._client, obj, resource.timeout, self.cancelled)

    @cached_property
    def _client(self) -> Client:
        return self._settings.client

    def _name(self, metadata: Properties, resource: Resource, old: Properties, seed: bytes) -> None:
        """Give a name if the program gives none: the one that the object has, or a new one."""
        known = old["metadata"]["name"] if annotations.is_set(old, annotations.AUTONAMED) else ""
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
        obj: Object = {
            key: value for key, value in copy.deepcopy(inputs).items() if not key.startswith("__")
        }
        obj.pop("status", None)
        metadata = obj.setdefault("metadata", {})
        namespace, _, name = old.id.rpartition("/") if old is not None else ("", "", "")
        given = metadata.pop("namespace", None)
        if self._client.is_namespaced(obj["apiVersion"], obj["kind"]):
            metadata["namespace"] = namespace or given or self._settings.namespace
        return obj | {"metadata": metadata | ({"name": name} if name else {})}

    def _created(self, resource: Resource, new: Properties) -> Object:
        """Create an object; try again for half a minute while its namespace or kind does not exist."""
        for seconds in _RETRY_SECONDS:
            try:
                return self._applied(resource, new)
            except ApiError as error:
                if error.status == 0 or error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                    _unheard(resource).parent.mkdir(exist_ok=True)
                    _unheard(resource).touch()
                if error.status != 404 or self.cancelled.is_set():
                    raise
                if warning := objects.removal(new["apiVersion"], new["kind"]):
                    raise ApiError(404, warning) from None
                self.log(resource, "status", f"tries again: {error.message}")
            self.cancelled.wait(seconds)
        return self._applied(resource, new)

    def _applied(
        self, resource: Resource, new: Properties, old: State | None = None, dry_run: bool = False
    ) -> Object:
        """Create an object, or apply the new inputs to the one that there is."""
        wanted = self._located(new, old)
        manager = _field_manager(resource, wanted)
        force = annotations.is_set(wanted, annotations.FORCE) or self._settings.forces
        # A preview takes nothing over: what is to be replaced is still there, and may be immutable.
        takes_over = not dry_run and (self._settings.upserts or _unheard(resource).exists())
        if old is None and (takes_over or _is_patch(resource)):
            return self._client.apply(wanted, manager, dry_run=dry_run, force=force or dry_run)
        if old is None:
            return self._client.create(wanted, dry_run=dry_run)
        live = self._client.get(wanted)
        if live is None:
            raise ApiError(
                404, f"{objects.title(wanted)} is gone. Run pulumi refresh, then try again"
            )
        # updateResource of pulumi-kubernetes, provider/pkg/await/await.go.
        if group_kind(wanted) == "CustomResourceDefinition.apiextensions.k8s.io":
            return self._client.replace(wanted, live, dry_run=dry_run)
        if not self._settings.applies_server_side:
            objects.keep_live(wanted, live, resource.ignore)
            return self._client.merge(
                merge_patch(self._located(old.inputs, old), wanted), live, dry_run=dry_run
            )
        is_created = not _is_patch(resource) and self._client.is_as_created(live)
        if not dry_run and not _is_patch(resource):
            live = self._client.own(live, manager)
        objects.keep_live(wanted, live, resource.ignore, manager)
        return self._client.apply(
            wanted, manager, dry_run=dry_run, force=force or (is_created and dry_run)
        )

    def _is_to_be_replaced(self, old: State, new: Properties) -> bool:
        """Whether an incomplete Job asks to be replaced; one that cannot be read stays as it is."""
        if group_kind(new) != "Job.batch" or not annotations.is_set(
            new, annotations.REPLACE_UNREADY
        ):
            return False
        try:
            live = self._client.get(self._located(old.inputs, old))
        except ApiError:
            return False
        return live is not None and not is_complete(live)

    def _await_ready(self, resource: Resource, inputs: Properties, live: Object) -> State:
        """Wait by the kind's rule; raise InitFailedError with the reasons where time runs out."""
        reasons: list[str] = []
        if not annotations.is_skipped(live):
            live, reasons = waiting.until_ready(
                self._client,
                live,
                resource.timeout,
                self.cancelled,
                lambda text: self.log(resource, "status", text),
            )
        state = State(
            objects.object_id(live["metadata"]), objects.hidden(inputs), objects.outputs_of(live)
        )
        if reasons:
            raise InitFailedError(state, reasons)
        return state


def _unheard(resource: Resource) -> Path:
    """The file that stands for an object that may have been made, as by an etcd that died before it could say so."""
    return (
        Rehearsal.of_this_process().root
        / "unheard"
        / hashlib.sha256(resource.urn.encode()).hexdigest()
    )


def _is_patch(resource: Resource) -> bool:
    """Whether it changes some fields of an object that is not its own."""
    return resource.type.endswith("Patch") and resource.type in KUBERNETES


def _kind_of(resource: Resource) -> tuple[str, str]:
    """The apiVersion and kind of its object."""
    api_version, kind = api_version_and_kind(resource.type)
    return api_version, kind.removesuffix("Patch") if _is_patch(resource) else kind


def _label_as_managed(resource: Resource, inputs: Properties) -> None:
    """Label an object of client-side apply, which notes no managers of fields, as Pulumi's own plugin does."""
    if _is_patch(resource):
        raise CheckError(
            [("", "patch resources need Server-Side Apply: leave out enableServerSideApply: false")]
        )
    metadata = inputs.setdefault("metadata", {})
    if isinstance(metadata, dict) and isinstance(metadata.setdefault("labels", {}), dict):
        metadata["labels"].setdefault(_MANAGED_BY, "pulumi")


def _field_manager(resource: Resource, obj: Object) -> str:
    """Who owns the fields that it sets; each patch is a manager of its own."""
    patch = f"{FIELD_MANAGER}-{hashlib.sha256(resource.urn.encode()).hexdigest()[:8]}"
    return annotations.annotation(obj, annotations.MANAGER) or (
        patch if _is_patch(resource) else FIELD_MANAGER
    )


def _refuse_unsupported(resource: Resource) -> None:
    group, _, kind = resource.type.removeprefix("kubernetes:").rpartition(":")
    is_list = resource.type in KUBERNETES and kind.endswith("List")
    if is_list or group.startswith(("helm.sh", "yaml", "kustomize")):
        raise RehearsalError(
            f"{resource.type} is not supported in a rehearsal. Declare the objects themselves, or run the rehearsal "
            "with --official-kubernetes-plugin"
        )


def _new_name(resource: Resource, seed: bytes) -> str:
    """The name that the engine proposes, or one of our own; AssignNameIfAutonamable of the official plugin."""
    if resource.must_be_named:
        raise RehearsalError(
            f"autonaming is disabled (pulumi:autonaming): give {resource.name} a metadata.name"
        )
    return resource.proposed_name or f"{resource.name}-{hashlib.sha256(seed).hexdigest()[:8]}"


def _same_object(old: Properties, new: Properties) -> bool:
    """Whether both are one object of the cluster, so that the new one cannot be there before the old one is gone."""
    before, after = old.get("metadata"), new.get("metadata")
    if not isinstance(before, Mapping) or not isinstance(after, Mapping) or not after.get("name"):
        return False  # Each object gets a generated name of its own.
    return all(before.get(key) == after.get(key) for key in ("name", "namespace"))


def _tells_nothing(error: ApiError, old: State | None) -> bool:
    """Whether a preview's failure says nothing of the update: what it lacks may be made, allowed or deleted by then."""
    lacks_namespace = error.status == 404 and error.message.startswith("namespaces ")
    is_to_come = isinstance(error, UnknownKindError) or lacks_namespace
    is_replaced = error.status == 409 and old is None
    return (
        is_to_come
        or is_replaced
        or error.status in (0, 403)
        or "does not support dry run" in error.message
    )


@contextmanager
def _explained(resource: Resource, what: str) -> Iterator[None]:
    """Turn the API server's errors in this block into errors that name the resource and what failed."""
    try:
        yield
    except ApiError as error:
        hint = ""
        if error.status == 409 and "conflict" in error.message:
            force = f'take them back (PULUMI_K8S_ENABLE_PATCH_FORCE=true, or annotation {annotations.FORCE}: "true")'
            hint = f". Leave those fields to the other manager (ignore_changes), or {force}"
        elif error.status == 409:
            hint = (
                f". Import it (pulumi import), delete it, or give this one another name. {RENAMED}"
            )
        kind = resource.type.rpartition(":")[2]
        raise RehearsalError(f"{kind} {resource.name}: {what}: {error.message}{hint}") from None
