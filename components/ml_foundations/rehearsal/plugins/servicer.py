"""The gRPC side of an embedded plugin: translates between Pulumi's provider protocol and a Provider.

The SDK's own experimental servicer drops old inputs, cannot answer a failed and has no unknowns. This one is
written on the SDK's stubs.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

import grpc
from google.protobuf import empty_pb2, struct_pb2

from ml_foundations.rehearsal.plugins import running_calls
from ml_foundations.rehearsal.plugins.provider import (
    CheckError,
    Diff,
    InitFailedError,
    Provider,
    Resource,
    State,
)
from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.protocol import server
from ml_foundations.rehearsal.protocol.stubs import (
    engine_pb2,
    engine_pb2_grpc,
    plugin_pb2,
    provider_pb2,
    provider_pb2_grpc,
    status_pb2,
)
from ml_foundations.rehearsal.protocol.values import (
    Properties,
    kept_secret,
    read_struct,
    write_struct,
)


class ProviderServicer(provider_pb2_grpc.ResourceProviderServicer):
    """Translates between the protocol and a Provider."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._engine = ""

    def Handshake(self, request: Any, context: Any) -> Any:
        self._engine = request.engine_address
        stub = engine_pb2_grpc.EngineStub(grpc.insecure_channel(self._engine))

        def log(resource: Resource, severity: str, message: str) -> None:
            ephemeral = severity == "status"
            level = engine_pb2.LogSeverity.Value("INFO" if ephemeral else severity.upper())
            stub.Log(
                engine_pb2.LogRequest(
                    severity=level, message=message, urn=resource.urn, ephemeral=ephemeral
                )
            )

        self._provider.log = log
        return provider_pb2.ProviderHandshakeResponse(
            accept_secrets=True, supports_autonaming_configuration=True
        )

    def GetPluginInfo(self, request: Any, context: Any) -> Any:
        return plugin_pb2.PluginInfo(version=self._provider.sdk.version)

    def GetSchema(self, request: Any, context: Any) -> Any:
        return provider_pb2.GetSchemaResponse(schema=json.dumps(self._provider.sdk.schema))

    def Cancel(self, request: Any, context: Any) -> Any:
        self._provider.cancelled.set()
        return empty_pb2.Empty()

    def CheckConfig(self, request: Any, context: Any) -> Any:
        try:
            self._provider.check_config(self._read(request.news))
        except CheckError as error:
            return _check_failures(request, error)
        return provider_pb2.CheckResponse(inputs=request.news)

    def DiffConfig(self, request: Any, context: Any) -> Any:
        old, new = self._read(request.old_inputs), self._read(request.news)
        return _diff_response(self._call(context, self._provider.diff_config, old, new))

    def Configure(self, request: Any, context: Any) -> Any:
        self._call(context, self._provider.configure, self._read(request.args))
        return provider_pb2.ConfigureResponse()

    def Invoke(self, request: Any, context: Any) -> Any:
        found = self._call(context, self._provider.invoke, request.tok, self._read(request.args))
        answer: dict[str, Any] = {
            "return": write_struct(found)
        }  # The field's name is a word of Python's.
        return provider_pb2.InvokeResponse(**answer)

    def Construct(self, request: Any, context: Any) -> Any:
        return self._call(context, _construct, self._provider, request, self._engine)

    def Check(self, request: Any, context: Any) -> Any:
        old, new = self._read(request.olds), self._read(request.news)
        try:
            inputs = self._call(
                context,
                self._provider.check,
                _resource(request),
                old,
                new,
                bytes(request.randomSeed),
            )
        except CheckError as error:
            return _check_failures(request, error)
        return provider_pb2.CheckResponse(inputs=write_struct(kept_secret(inputs, request.news)))

    def Diff(self, request: Any, context: Any) -> Any:
        old, new = self._old_state(request), self._read(request.news)
        ignore = list(request.ignoreChanges)
        return _diff_response(
            self._call(context, self._provider.diff, _resource(request), old, new, ignore)
        )

    def Create(self, request: Any, context: Any) -> Any:
        given = request.properties
        resource, new = _resource(request), self._read(given)
        if request.preview:
            outputs = self._call(context, self._provider.preview, resource, None, new)
            return provider_pb2.CreateResponse(properties=write_struct(kept_secret(outputs, given)))
        state = self._call(context, self._provider.create, resource, new, given=given)
        return provider_pb2.CreateResponse(
            id=state.id, properties=write_struct(kept_secret(state.outputs, given))
        )

    def Update(self, request: Any, context: Any) -> Any:
        given = request.news
        resource, old, new = _resource(request), self._old_state(request), self._read(given)
        if request.preview:
            outputs = self._call(context, self._provider.preview, resource, old, new)
        else:
            outputs = self._call(
                context, self._provider.update, resource, old, new, given=given
            ).outputs
        return provider_pb2.UpdateResponse(properties=write_struct(kept_secret(outputs, given)))

    def Read(self, request: Any, context: Any) -> Any:
        given = request.inputs
        old = State(request.id, self._read(given), self._read(request.properties))
        state = self._call(context, self._provider.read, _resource(request), old, given=given)
        if state is None:
            return provider_pb2.ReadResponse()
        return provider_pb2.ReadResponse(
            id=state.id,
            inputs=write_struct(kept_secret(state.inputs, given)),
            properties=write_struct(
                kept_secret(kept_secret(state.outputs, given), request.properties)
            ),
        )

    def Delete(self, request: Any, context: Any) -> Any:
        old = State(request.id, self._read(request.old_inputs), self._read(request.properties))
        self._call(context, self._provider.delete, _resource(request), old)
        return empty_pb2.Empty()

    def _read(self, struct: struct_pb2.Struct) -> Properties:
        return read_struct(struct, self._provider.keeps_nulls)

    def _old_state(self, request: Any) -> State:
        return State(request.id, self._read(request.old_inputs), self._read(request.olds))

    def _call(
        self,
        context: Any,
        method: Callable[..., Any],
        *args: Any,
        given: struct_pb2.Struct | None = None,
    ) -> Any:
        """Run a method of the provider, and turn its errors into the protocol's; inputs that were given stay secret."""
        try:
            with running_calls.running():
                return method(*args)
        except InitFailedError as error:
            context.set_trailing_metadata((("grpc-status-details-bin", _details(error, given)),))
            context.abort(grpc.StatusCode.UNKNOWN, str(error))
        except RehearsalError as error:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))


def _construct(provider: Provider, request: Any, engine: str) -> Any:
    """Answer with a component of the provider's: Pulumi's SDK registers it and its children with the engine."""
    # Only this call needs the whole SDK: importing it takes as long as starting the plugin.
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
            made = provider.construct(resource_type, name, inputs, options)
            return ConstructResult(made.urn, {"resources": made.resources})

    servicer = ProviderServicer(Adapter(provider.sdk.version), [], engine)
    try:
        context: Any = None  # It answers for no error of ours.
        return asyncio.run(servicer.Construct(request, context))
    except Exception as error:
        raise RehearsalError(str(error.__context__ or error)) from None


def _resource(request: Any) -> Resource:
    """What a request is about. In a child's urn the type is preceded by its parents', behind a ``$``."""
    *_, types, name = request.urn.split("::")
    autonaming = (
        getattr(request, "autonaming", None) or provider_pb2.CheckRequest.AutonamingOptions()
    )
    return Resource(
        urn=request.urn,
        type=types.rpartition("$")[2],
        name=name,
        id=getattr(request, "id", ""),
        timeout=getattr(request, "timeout", 0) or 0,
        ignore=tuple(getattr(request, "ignoreChanges", ())),
        proposed_name=autonaming.proposed_name,
        must_be_named=autonaming.mode == autonaming.DISABLE,
        given=getattr(request, "news", None) or getattr(request, "properties", None),
    )


def _check_failures(request: Any, error: CheckError) -> Any:
    failures = [
        provider_pb2.CheckFailure(property=path, reason=reason) for path, reason in error.failures
    ]
    return provider_pb2.CheckResponse(inputs=request.news, failures=failures)


def _diff_response(diff: Diff) -> Any:
    kinds = provider_pb2.PropertyDiff
    replaces = set(diff.replaces)
    return provider_pb2.DiffResponse(
        changes=provider_pb2.DiffResponse.DIFF_SOME
        if diff.changed
        else provider_pb2.DiffResponse.DIFF_NONE,
        diffs=sorted({path.partition(".")[0].partition("[")[0] for path in diff.changed}),
        replaces=diff.replaces,
        deleteBeforeReplace=diff.delete_before_replace,
        hasDetailedDiff=True,
        detailedDiff={
            path: kinds(
                kind=kinds.UPDATE_REPLACE if path in replaces else kinds.UPDATE, inputDiff=True
            )
            for path in diff.changed
        },
    )


def _details(error: InitFailedError, given: Any) -> bytes:
    """ErrorResourceInitFailed: how the engine learns of a resource that exists and is not well."""
    outputs, inputs = (
        write_struct(kept_secret(each, given)) for each in (error.state.outputs, error.state.inputs)
    )
    detail = provider_pb2.ErrorResourceInitFailed(
        id=error.state.id, properties=outputs, inputs=inputs, reasons=error.reasons
    )
    status = status_pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], message=str(error))
    status.details.add().Pack(detail)
    return status.SerializeToString()


def serve(provider: Provider) -> None:
    """Serve a provider to the engine, until the engine ends this process."""
    servicer = ProviderServicer(provider)
    add = provider_pb2_grpc.add_ResourceProviderServicer_to_server
    server.serve(
        lambda grpc_server: add(servicer, grpc_server), on_stop=provider.cancelled.set, grace=1
    )
