"""The gRPC side of an embedded plugin, between Pulumi's provider protocol and a Provider.

The SDK's own experimental servicer drops old inputs, cannot report a resource that is not ready,
and has no unknown values. This one uses only the SDK's stubs.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

import grpc
from google.protobuf import empty_pb2, struct_pb2

from ml_foundations.rehearsal.plugins import provider as plugin
from ml_foundations.rehearsal.plugins import running_calls
from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.protocol import server, stubs, values
from ml_foundations.rehearsal.protocol.stubs import provider_pb2 as messages
from ml_foundations.rehearsal.protocol.values import Properties


class ProviderServicer(stubs.provider_pb2_grpc.ResourceProviderServicer):
    """A translator between the protocol and a Provider."""

    def __init__(self, provider: plugin.Provider) -> None:
        self._provider = provider
        self._engine = ""

    def Handshake(self, request: Any, context: Any) -> Any:
        self._engine = request.engine_address
        stub = stubs.engine_pb2_grpc.EngineStub(grpc.insecure_channel(self._engine))

        def log(resource: plugin.Resource, severity: str, message: str) -> None:
            # An ephemeral message is shown next to the resource while the call runs.
            is_status = severity == "status"
            level = stubs.engine_pb2.LogSeverity.Value("INFO" if is_status else severity.upper())
            about = {"message": message, "urn": resource.urn, "ephemeral": is_status}
            stub.Log(stubs.engine_pb2.LogRequest(severity=level, **about))

        self._provider.log = log
        return messages.ProviderHandshakeResponse(
            accept_secrets=True, supports_autonaming_configuration=True
        )

    def GetPluginInfo(self, request: Any, context: Any) -> Any:
        return stubs.plugin_pb2.PluginInfo(version=self._provider.sdk.version)

    def GetSchema(self, request: Any, context: Any) -> Any:
        return messages.GetSchemaResponse(schema=json.dumps(self._provider.sdk.schema))

    def Cancel(self, request: Any, context: Any) -> Any:
        self._provider.cancelled.set()
        return empty_pb2.Empty()

    def CheckConfig(self, request: Any, context: Any) -> Any:
        try:
            self._provider.check_config(self._read(request.news))
        except plugin.CheckError as error:
            return _check_failures(request, error)
        return messages.CheckResponse(inputs=request.news)

    def DiffConfig(self, request: Any, context: Any) -> Any:
        old = self._read(request.old_inputs)
        new = self._read(request.news)
        return _diff_response(self._call(context, self._provider.diff_config, old, new))

    def Configure(self, request: Any, context: Any) -> Any:
        self._call(context, self._provider.configure, self._read(request.args))
        return messages.ConfigureResponse()

    def Invoke(self, request: Any, context: Any) -> Any:
        arguments = self._read(request.args)
        result = self._call(context, self._provider.invoke, request.tok, arguments)
        # The field's name is a keyword of Python's.
        response: dict[str, Any] = {"return": values.write_struct(result)}
        return messages.InvokeResponse(**response)

    def Construct(self, request: Any, context: Any) -> Any:
        return self._call(context, _construct, self._provider, request, self._engine)

    def Check(self, request: Any, context: Any) -> Any:
        old = self._read(request.olds)
        new = self._read(request.news)
        try:
            inputs = self._call(context, self._provider.check, _resource(request), old, new)
        except plugin.CheckError as error:
            return _check_failures(request, error)
        return messages.CheckResponse(inputs=_struct(inputs, request.news))

    def Diff(self, request: Any, context: Any) -> Any:
        old = self._state(request, request.old_inputs, request.olds)
        new = self._read(request.news)
        return _diff_response(
            self._call(context, self._provider.diff, _resource(request), old, new)
        )

    def Create(self, request: Any, context: Any) -> Any:
        inputs = request.properties
        resource = _resource(request)
        new = self._read(inputs)
        if request.preview:
            outputs = self._call(context, self._provider.preview, resource, None, new)
            return messages.CreateResponse(properties=_struct(outputs, inputs))
        state = self._call(context, self._provider.create, resource, new, inputs=inputs)
        return messages.CreateResponse(id=state.id, properties=_struct(state.outputs, inputs))

    def Update(self, request: Any, context: Any) -> Any:
        inputs = request.news
        old = self._state(request, request.old_inputs, request.olds)
        resource = _resource(request)
        new = self._read(inputs)
        if request.preview:
            outputs = self._call(context, self._provider.preview, resource, old, new)
        else:
            update = self._provider.update
            outputs = self._call(context, update, resource, old, new, inputs=inputs).outputs
        return messages.UpdateResponse(properties=_struct(outputs, inputs))

    def Read(self, request: Any, context: Any) -> Any:
        inputs = request.inputs
        properties = request.properties
        old = self._state(request, inputs, properties)
        state = self._call(context, self._provider.read, _resource(request), old, inputs=inputs)
        if state is None:
            return messages.ReadResponse()
        # An output is secret if the input of its name or the output of before is.
        outputs = _struct(values.kept_secret(state.outputs, inputs), properties)
        read_inputs = _struct(state.inputs, inputs)
        return messages.ReadResponse(id=state.id, inputs=read_inputs, properties=outputs)

    def Delete(self, request: Any, context: Any) -> Any:
        old = self._state(request, request.old_inputs, request.properties)
        self._call(context, self._provider.delete, _resource(request), old)
        return empty_pb2.Empty()

    def _read(self, struct: struct_pb2.Struct) -> Properties:
        return values.read_struct(struct, self._provider.keeps_nulls)

    def _state(
        self, request: Any, inputs: struct_pb2.Struct, outputs: struct_pb2.Struct
    ) -> plugin.State:
        return plugin.State(request.id, self._read(inputs), self._read(outputs))

    def _call(
        self,
        context: Any,
        method: Callable[..., Any],
        *args: Any,
        inputs: struct_pb2.Struct | None = None,
    ) -> Any:
        """Return the result of a provider's method, and turn its errors into the protocol's."""
        try:
            with running_calls.running():
                return method(*args)
        except plugin.InitFailedError as error:
            # By these details the engine learns that the resource exists and is not ready. The
            # inputs of the message mark the secrets in its state.
            detail = messages.ErrorResourceInitFailed(
                id=error.state.id,
                properties=_struct(error.state.outputs, inputs),
                inputs=_struct(error.state.inputs, inputs),
                reasons=error.reasons,
            )
            code = grpc.StatusCode.UNKNOWN.value[0]
            status = stubs.status_pb2.Status(code=code, message=str(error))
            status.details.add().Pack(detail)
            details = ("grpc-status-details-bin", status.SerializeToString())
            context.set_trailing_metadata((details,))
            context.abort(grpc.StatusCode.UNKNOWN, str(error))
        except RehearsalError as error:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))


def _construct(provider: plugin.Provider, request: Any, engine: str) -> Any:
    """Return a component of the provider, which Pulumi's SDK registers with its children."""
    # Only this call needs the whole SDK. Importing it takes as long as starting the plugin.
    import pulumi
    from pulumi.provider import ConstructResult
    from pulumi.provider import Provider as SdkProvider
    from pulumi.provider.server import ProviderServicer

    class Adapter(SdkProvider):
        def construct(
            self,
            name: str,
            resource_type: str,
            inputs: Mapping[str, Any],
            options: pulumi.ResourceOptions | None = None,
        ) -> ConstructResult:
            component = provider.construct(resource_type, name, inputs, options)
            return ConstructResult(component.urn, {"resources": component.resources})

    servicer = ProviderServicer(Adapter(provider.sdk.version), [], engine)
    try:
        # The SDK uses the context only to report errors of its own.
        context: Any = None
        return asyncio.run(servicer.Construct(request, context))
    except Exception as error:
        raise RehearsalError(str(error.__context__ or error)) from None


def _resource(request: Any) -> plugin.Resource:
    """Return the resource of a request. In a child's urn, its parents' types precede ``$``."""
    *_, types, name = request.urn.split("::")
    default_autonaming = messages.CheckRequest.AutonamingOptions()
    autonaming = getattr(request, "autonaming", None) or default_autonaming
    return plugin.Resource(
        urn=request.urn,
        type=types.rpartition("$")[2],
        name=name,
        id=getattr(request, "id", ""),
        timeout=getattr(request, "timeout", 0) or 0,
        ignore=tuple(getattr(request, "ignoreChanges", ())),
        seed=bytes(getattr(request, "randomSeed", b"")),
        proposed_name=autonaming.proposed_name,
        must_be_named=autonaming.mode == autonaming.DISABLE,
        message_inputs=getattr(request, "news", None) or getattr(request, "properties", None),
    )


def _struct(properties: Properties, source: struct_pb2.Struct | None) -> struct_pb2.Struct:
    """Return properties as a struct in which the secrets of the source are marked."""
    return values.write_struct(values.kept_secret(properties, source))


def _check_failures(request: Any, error: plugin.CheckError) -> Any:
    failure = messages.CheckFailure
    failures = [failure(property=path, reason=reason) for path, reason in error.failures]
    return messages.CheckResponse(inputs=request.news, failures=failures)


def _diff_response(diff: plugin.Diff) -> Any:
    kinds = messages.PropertyDiff
    states = messages.DiffResponse
    response = states(
        changes=states.DIFF_SOME if diff.changed else states.DIFF_NONE,
        replaces=diff.replaces,
        deleteBeforeReplace=diff.delete_before_replace,
        diffs=sorted({path.partition(".")[0].partition("[")[0] for path in diff.changed}),
        hasDetailedDiff=True,
    )
    for path in diff.changed:
        kind = kinds.UPDATE_REPLACE if path in diff.replaces else kinds.UPDATE
        response.detailedDiff[path].CopyFrom(kinds(kind=kind, inputDiff=True))
    return response


def serve(provider: plugin.Provider) -> None:
    """Serve a provider to the engine, until the engine ends this process."""
    servicer = ProviderServicer(provider)
    add = stubs.provider_pb2_grpc.add_ResourceProviderServicer_to_server
    server.serve(lambda to: add(servicer, to), on_stop=provider.cancelled.set, grace=1)
