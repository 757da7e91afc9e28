"""The embedded kubernetes plugin: Pulumi's engine asks it, the API server and Helm answer."""

import copy
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, ClassVar

from ml_foundations.catalog.removed_kinds import removal
from ml_foundations.kubernetes.merging import without_nulls
from ml_foundations.kubernetes.objects import RELEASE, labels_of
from ml_foundations.kubernetes.trees import unknown_paths
from ml_foundations.rehearsal.api import FIELD_CONFLICT, ApiError, Object
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.plugins import provider as plugin
from ml_foundations.rehearsal.plugins.kubernetes import annotations, objects, settings, waiting
from ml_foundations.rehearsal.plugins.kubernetes import client as api_client
from ml_foundations.rehearsal.plugins.kubernetes import diff as differences
from ml_foundations.rehearsal.plugins.kubernetes.diff import group_kind
from ml_foundations.rehearsal.plugins.kubernetes.helm import Helm
from ml_foundations.rehearsal.plugins.kubernetes.readiness import is_complete, missing_at_refresh
from ml_foundations.rehearsal.plugins.kubernetes.rendering import COMPONENTS, Renderer
from ml_foundations.rehearsal.plugins.property_paths import changed_paths, is_below
from ml_foundations.rehearsal.plugins.provider import CheckError, Diff, Provider, Resource, State
from ml_foundations.rehearsal.plugins.sdk import KUBERNETES, Sdk, api_version_and_kind, token_of
from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.protocol.values import Properties

_REPLACE_UNREADY_PATH = f'metadata.annotations["{annotations.REPLACE_UNREADY}"]'
_NO_GENERATED_NAMES = (
    "metadata.generateName is not supported with Server-Side Apply, the provider's default: "
    "set metadata.name, or omit both, and Pulumi generates a name"
)
_MANAGED_BY = "app.kubernetes.io/managed-by"
_RETRY_SECONDS = (0.25, 0.5, 1, 2, 4, 8, 16)
"""The pauses before a new object is tried again while its namespace or kind does not exist yet."""


class KubernetesProvider(Provider):
    """A provider of Helm releases and of every kind that the cluster serves."""

    sdk: ClassVar[Sdk] = KUBERNETES
    keeps_nulls: ClassVar[bool] = True

    def configure(self, config: Properties) -> None:
        """Accept the provider's inputs."""
        self._settings = settings.Settings(config)
        self._helm = Helm(self, self._settings)
        namespace = self._settings.namespace
        self._renderer = Renderer(self._helm.template, namespace, self._is_namespaced)

    def check_config(self, config: Properties) -> None:
        """Refuse settings that a rehearsal does not support."""
        settings.check(config)

    def diff_config(self, old: Properties, new: Properties) -> Diff:
        """Compare the provider's inputs; another cluster replaces the provider and its objects."""
        return settings.diff(old, new)

    def invoke(self, function: str, arguments: Properties) -> Properties:
        """Decode YAML, or render a kustomization or a chart."""
        objects = self._renderer.call(function, arguments)
        return super().invoke(function, arguments) if objects is None else {"result": objects}

    def construct(self, type: str, name: str, inputs: Mapping[str, Any], options: Any) -> Any:
        """Return a component of rendered manifests."""
        if type not in COMPONENTS:
            return super().construct(type, name, inputs, options)
        # This import loads all of Pulumi's SDK, which no other call needs.
        from ml_foundations.rehearsal.plugins.kubernetes.components import Rendered

        return Rendered(type, name, inputs, options, self._renderer.render)

    def check(self, resource: Resource, old: Properties, new: Properties) -> Properties:
        """Fill in namespace and name; refuse an object that cannot be awaited."""
        if resource.type == RELEASE:
            return self._helm.check(resource, old, new)
        api_version, kind = _kind_of(resource)
        is_list = resource.type in KUBERNETES and kind.endswith("List")
        if is_list or api_version.startswith(("helm.sh", "yaml", "kustomize")):
            raise RehearsalError(
                f"{resource.type} is not supported in a rehearsal. Declare the objects themselves, "
                "or run the rehearsal with --official-kubernetes-plugin"
            )
        if warning := removal(api_version, kind):
            self.log(resource, "warning", warning)
        inputs: Properties = copy.deepcopy(new) | {"apiVersion": api_version, "kind": kind}
        # A null may have a meaning in a custom resource. It has none in the built-in kinds.
        inputs = objects.hidden(without_nulls(inputs) if resource.type in KUBERNETES else inputs)
        if not self._settings.applies_server_side and (not old or _MANAGED_BY in labels_of(old)):
            _label_as_managed(resource, inputs)
        try:
            annotations.check(inputs)
        except ValueError as error:
            # The error names no property, because the engine would print the value of the property.
            raise CheckError(("", str(error))) from None
        metadata = inputs.setdefault("metadata", {})
        if isinstance(metadata, dict):
            self._complete_metadata(metadata, inputs, resource, old)
        return inputs

    def _complete_metadata(
        self, metadata: Properties, inputs: Properties, resource: Resource, old: Properties
    ) -> None:
        for key in objects.SERVER_WRITTEN:
            metadata.pop(key, None)
        if not metadata.get("namespace") and self._is_namespaced(inputs):
            metadata["namespace"] = self._settings.namespace
        if metadata.get("name"):
            return
        if _is_patch(resource):
            reason = "a patch changes an object that has a name"
            raise CheckError(("", f"metadata.name is required: {reason}"))
        is_autonamed = annotations.is_set(old, annotations.AUTONAMED)
        if metadata.get("generateName") and not is_autonamed:
            if self._settings.applies_server_side:
                raise CheckError(("", _NO_GENERATED_NAMES))
            return
        metadata["name"] = old["metadata"]["name"] if is_autonamed else _new_name(resource)
        declared = metadata.get("annotations") or {}
        if isinstance(declared, Mapping):
            metadata["annotations"] = {**declared, annotations.AUTONAMED: "true"}

    def diff(self, resource: Resource, old: State, new: Properties) -> Diff:
        """Compare the old inputs with the new ones."""
        if resource.type == RELEASE:
            return self._helm.diff(old, new)
        before = self._placed(_declared(old.inputs), old.id)
        after = self._placed(new)
        stored = (objects.as_stored(before), objects.as_stored(after))
        differing = changed_paths(*stored, same=differences.same)
        changed = [path for path in differing if not is_below(path, resource.ignore)]
        replaces = differences.replaced_paths(changed, new, self._settings.mutable_kinds)
        if _is_patch(resource):
            replaces = [path for path in replaces if path in differences.IDENTITY]
        if self._must_replace_unready(old, new):
            changed.append(_REPLACE_UNREADY_PATH)
            replaces = [*replaces, _REPLACE_UNREADY_PATH]
        # A replacement with a generated name gets a new one, so both objects can exist at once.
        is_autonamed = annotations.is_set(new, annotations.AUTONAMED)
        deletes_first = bool(replaces) and _is_same_object(before, after) and not is_autonamed
        return Diff(changed, replaces, deletes_first)

    def preview(self, resource: Resource, old: State | None, new: Properties) -> Properties:
        """Return the result of a dry run on the API server; the inputs if it cannot tell yet."""
        if resource.type == RELEASE:
            return self._helm.preview(new)
        is_unnamed = old is None and (_is_patch(resource) or not new["metadata"].get("name"))
        if is_unnamed or any(unknown_paths(new)) or not self._settings.applies_server_side:
            return new
        with _explained(resource, "the API server refuses it"):
            try:
                live = self._apply(resource, new, old, dry_run=True)
            except ApiError as error:
                if _may_succeed_later(error, old):
                    return new
                raise
            return objects.outputs_of(live, preview=True)

    def create(self, resource: Resource, new: Properties) -> State:
        """Create the object, and wait until it is ready."""
        if resource.type == RELEASE:
            self._helm.refuse_existing(new)
            return self._helm.install(resource, new)
        with _explained(resource, "it could not be created"):
            live = self._create(resource, new)
        _uncertain_create_marker(resource).unlink(missing_ok=True)
        return self._await_ready(resource, new, live)

    def update(self, resource: Resource, old: State, new: Properties) -> State:
        """Apply the new inputs, and wait until the object is ready again."""
        if resource.type == RELEASE:
            return self._helm.install(resource, new)
        with _explained(resource, "it could not be updated"):
            live = self._apply(resource, new, old)
            manager = _field_manager(resource, old.inputs)
            if manager != _field_manager(resource, new) and self._settings.applies_server_side:
                # Otherwise the former manager would keep the fields that the program gave up.
                self._client.release_fields(live, manager)
        return self._await_ready(resource, new, live)

    def read(self, resource: Resource, old: State) -> State | None:
        """Return the live object; on an import, its own fields become the inputs."""
        if resource.type == RELEASE:
            return self._helm.read(resource, old)
        with _explained(resource, "it could not be read"):
            api_version, kind = _kind_of(resource)
            identity = old.inputs or {"apiVersion": api_version, "kind": kind}
            live = self._client.get(self._located(identity, old))
            if live is None:
                return None
            if old.inputs:
                inputs = objects.as_declared(objects.as_stored(old.inputs), live)
                lack = missing_at_refresh(self._client, live)
            else:
                inputs = without_nulls(objects.content_of(live))
                lack = None
        return _state(live, inputs, [f"{objects.title(live)}: {lack.reason}"] if lack else [])

    def delete(self, resource: Resource, old: State) -> None:
        """Delete the object with all objects that it owns, and wait until it is gone."""
        if resource.type == RELEASE:
            self._helm.uninstall(resource, old)
            return
        # A kind that the cluster no longer serves has no objects.
        with _explained(resource, "it could not be deleted"), suppress(api_client.UnknownKindError):
            obj = self._located(old.inputs or old.outputs, old)
            if _is_patch(resource):
                self._client.release_fields(obj, _field_manager(resource, obj))
                return
            self._client.delete(obj, annotations.propagation_policy(obj))
            if not annotations.is_deletion_skipped(obj):
                waiting.until_gone(self._client, obj, resource.timeout, self.cancelled)

    @cached_property
    def _client(self) -> api_client.Client:
        return self._settings.client

    def _is_namespaced(self, inputs: Properties) -> bool:
        """Return whether the kind has a namespace; true if the cluster cannot tell yet."""
        # Only for kinds of CRDs, because a request may run a credential plugin, in every command.
        token = token_of(inputs["apiVersion"], inputs["kind"])
        if token in KUBERNETES:
            return KUBERNETES[token].is_namespaced
        try:
            return self._client.is_namespaced(inputs["apiVersion"], inputs["kind"])
        except RehearsalError:
            return True

    def _placed(self, inputs: Properties, identity: str = "") -> Properties:
        """Return inputs with the object's namespace, or without one if its kind has none."""
        metadata = inputs.get("metadata", {})
        if not isinstance(metadata, Mapping):
            return inputs
        rest = {key: value for key, value in metadata.items() if key != "namespace"}
        if self._is_namespaced(inputs):
            namespace = identity.rpartition("/")[0] or metadata.get("namespace") or "default"
            rest["namespace"] = namespace
        return inputs | {"metadata": rest}

    def _located(self, inputs: Properties, old: State | None = None) -> Object:
        """Return the object to apply; an old state's id has its name and namespace."""
        obj: Object = _declared(copy.deepcopy(inputs))
        obj.pop("status", None)
        metadata = obj.setdefault("metadata", {})
        namespace, _, name = old.id.rpartition("/") if old is not None else ("", "", "")
        declared = metadata.pop("namespace", None)
        if self._client.is_namespaced(obj["apiVersion"], obj["kind"]):
            metadata["namespace"] = namespace or declared or self._settings.namespace
        if name:
            metadata["name"] = name
        return obj

    def _create(self, resource: Resource, new: Properties) -> Object:
        """Create an object; try for half a minute while its namespace or kind does not exist."""
        for seconds in _RETRY_SECONDS:
            try:
                return self._apply(resource, new)
            except ApiError as error:
                # The server may have created the object before it failed or the connection broke.
                if error.status == 0 or error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                    marker = _uncertain_create_marker(resource)
                    marker.parent.mkdir(exist_ok=True)
                    marker.touch()
                if error.status != 404 or self.cancelled.is_set():
                    raise
                if warning := removal(new["apiVersion"], new["kind"]):
                    raise ApiError(404, warning) from None
                self.log(resource, "status", f"tries again: {error.message}")
            self.cancelled.wait(seconds)
        return self._apply(resource, new)

    def _apply(
        self, resource: Resource, new: Properties, old: State | None = None, dry_run: bool = False
    ) -> Object:
        """Create an object, or apply the new inputs to the existing one."""
        applied = self._located(new, old)
        manager = _field_manager(resource, applied)
        is_patch = _is_patch(resource)
        force = annotations.is_set(applied, annotations.FORCE) or self._settings.forces
        if old is None:
            # A preview takes nothing over: an object to be replaced exists, and may be immutable.
            marker = _uncertain_create_marker(resource)
            takes_over = not dry_run and (self._settings.upserts or marker.exists())
            if takes_over or is_patch:
                return self._client.apply(applied, manager, dry_run=dry_run, force=force or dry_run)
            return self._client.create(applied, dry_run=dry_run)
        live = self._client.get(applied)
        if live is None:
            fix = "Run pulumi refresh, then try again"
            raise ApiError(404, f"{objects.title(applied)} is gone. {fix}")
        # The order of these cases is that of updateResource of pulumi-kubernetes,
        # provider/pkg/await/await.go.
        if group_kind(applied) == "CustomResourceDefinition.apiextensions.k8s.io":
            return self._client.replace(applied, live, dry_run=dry_run)
        if not self._settings.applies_server_side:
            objects.keep_live(applied, live, resource.ignore)
            patch = differences.merge_patch(self._located(old.inputs, old), applied)
            return self._client.merge(patch, live, dry_run=dry_run)
        # The first update takes over the creation's fields. A preview does not, and needs force.
        is_first_update = not is_patch and self._client.is_as_created(live)
        if not dry_run and not is_patch:
            live = self._client.take_fields(live, manager)
        objects.keep_live(applied, live, resource.ignore, manager)
        force = force or (is_first_update and dry_run)
        return self._client.apply(applied, manager, dry_run=dry_run, force=force)

    def _must_replace_unready(self, old: State, new: Properties) -> bool:
        """Return whether a Job is incomplete, and asks to be replaced in this case."""
        is_job = group_kind(new) == "Job.batch"
        if not is_job or not annotations.is_set(new, annotations.REPLACE_UNREADY):
            return False
        try:
            live = self._client.get(self._located(old.inputs, old))
        except ApiError:
            return False
        return live is not None and not is_complete(live)

    def _await_ready(self, resource: Resource, inputs: Properties, live: Object) -> State:
        """Wait by the rule of the kind; raise InitFailedError with the reasons if time runs out."""
        reasons: list[str] = []
        if not annotations.is_set(live, annotations.SKIP):
            show = partial(self.log, resource, "status")
            limits = (resource.timeout, self.cancelled)
            live, reasons = waiting.until_ready(self._client, live, *limits, show)
        return _state(live, inputs, reasons)


def _state(live: Object, inputs: Properties, reasons: list[str]) -> State:
    """Return the state of a live object; raise InitFailedError with the reasons, if any."""
    identity = objects.object_id(live["metadata"])
    state = State(identity, objects.hidden(inputs), objects.outputs_of(live))
    if reasons:
        raise plugin.InitFailedError(state, reasons)
    return state


def _declared(inputs: Properties) -> Properties:
    return {key: value for key, value in inputs.items() if not key.startswith("__")}


def _uncertain_create_marker(resource: Resource) -> Path:
    """Return the file by which the next create takes over an object that may exist after all."""
    digest = hashlib.sha256(resource.urn.encode()).hexdigest()
    return Rehearsal.of_this_process().root / "uncertain-creates" / digest


def _is_patch(resource: Resource) -> bool:
    """Return whether a resource changes some fields of an object that it does not create."""
    return resource.type.endswith("Patch") and resource.type in KUBERNETES


def _kind_of(resource: Resource) -> tuple[str, str]:
    """Return the apiVersion and kind of its object."""
    api_version, kind = api_version_and_kind(resource.type)
    return api_version, kind.removesuffix("Patch") if _is_patch(resource) else kind


def _label_as_managed(resource: Resource, inputs: Properties) -> None:
    """Add the official plugin's label: client-side apply records no field managers."""
    if _is_patch(resource):
        fix = "remove enableServerSideApply: false"
        raise CheckError(("", f"patch resources need Server-Side Apply: {fix}"))
    metadata = inputs.setdefault("metadata", {})
    if isinstance(metadata, dict) and isinstance(metadata.setdefault("labels", {}), dict):
        metadata["labels"].setdefault(_MANAGED_BY, "pulumi")


def _field_manager(resource: Resource, obj: Object) -> str:
    """Return the manager of the fields that a resource sets; each patch has its own."""
    manager = api_client.FIELD_MANAGER
    if _is_patch(resource):
        manager += f"-{hashlib.sha256(resource.urn.encode()).hexdigest()[:8]}"
    return annotations.annotation(obj, annotations.MANAGER) or manager


def _new_name(resource: Resource) -> str:
    """Return the proposed name or a new one, as the official AssignNameIfAutonamable."""
    if resource.must_be_named:
        fix = f"Set metadata.name of {resource.name}"
        raise RehearsalError(f"autonaming is disabled (pulumi:autonaming). {fix}")
    return resource.proposed_name or f"{resource.name}-{resource.digits[:8]}"


def _is_same_object(old: Properties, new: Properties) -> bool:
    """Return whether both have one name and namespace, so they cannot exist together."""
    before = old.get("metadata")
    after = new.get("metadata")
    if not isinstance(before, Mapping) or not isinstance(after, Mapping) or not after.get("name"):
        return False  # Each object gets a separate generated name.
    return all(before.get(key) == after.get(key) for key in ("name", "namespace"))


def _may_succeed_later(error: ApiError, old: State | None) -> bool:
    """Return whether a preview failed for a lack that the update itself may remove before."""
    if error.status in (0, 403) or isinstance(error, api_client.UnknownKindError):
        return True
    lacks_namespace = error.status == 404 and error.kind == "namespaces"
    is_to_be_replaced = error.status == 409 and old is None
    return lacks_namespace or is_to_be_replaced or "does not support dry run" in error.message


@contextmanager
def _explained(resource: Resource, failure: str) -> Iterator[None]:
    """Turn the API server's errors into errors that name the resource and a fix."""
    try:
        yield
    except ApiError as error:
        hint = ""
        if error.status == 409 and FIELD_CONFLICT in error.causes:
            force = f'PULUMI_K8S_ENABLE_PATCH_FORCE=true, or annotation {annotations.FORCE}: "true"'
            ignore = "Leave those fields to the other manager (ignore_changes)"
            hint = f". {ignore}, or take them back ({force})"
        elif error.status == 409:
            choice = "Import it (pulumi import), delete it, or change the name of this one"
            hint = f". {choice}. {plugin.RENAMED}"
        title = f"{resource.type.rpartition(':')[2]} {resource.name}"
        raise RehearsalError(f"{title}: {failure}: {error.message}{hint}") from None
