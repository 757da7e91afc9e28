"""The servicer of the embedded plugins, over gRPC in this process."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import grpc
import grpc.aio
import psutil
import pytest
from google.protobuf import empty_pb2
from ml_foundations.kubernetes.trees import UNKNOWN
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.plugins.gcp.provider import GcpProvider
from ml_foundations.rehearsal.plugins.kubernetes.provider import KubernetesProvider
from ml_foundations.rehearsal.plugins.provider import (
    CheckError,
    Diff,
    InitFailedError,
    Provider,
    Resource,
    State,
)
from ml_foundations.rehearsal.plugins.servicer import ProviderServicer
from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.protocol.values import (
    SECRET_SIGNATURE,
    SIGNATURE,
    Properties,
    Secret,
    kept_secret,
    read_struct,
    write_struct,
)
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc, status_pb2

URN = "urn:pulumi:s::p::my:index:Parent$test:index:Thing::a"


class Fake(Provider):
    """Remembers what it was asked, and answers as the test says."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Any] = []

    def check(self, resource: Resource, old: Properties, new: Properties) -> Properties:
        if "size" in new and new["size"] is not UNKNOWN and new["size"] < 0:
            raise CheckError(("size", "is negative"))
        return new

    def diff(self, resource: Resource, old: State, new: Properties) -> Diff:
        self.asked.append((old, new, resource.ignore))
        return Diff(["a.b", "c"], ["c"], delete_before_replace=True)

    def create(self, resource: Resource, new: Properties) -> State:
        self.asked.append((resource, new))
        if new.get("wait"):
            raise RehearsalError("interrupted" if self.cancelled.wait(60) else "not cancelled")
        state = State("id-1", new, new | {"key": Secret("hunter2")})
        if new.get("fails"):
            raise InitFailedError(state, ["it does not get ready"])
        return state


def ask(provider: Provider, talk: Callable[[Any], Awaitable[Any]]) -> Any:
    """Serve a provider, and talk to it as the engine does."""

    server = grpc.server(ThreadPoolExecutor())
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(ProviderServicer(provider), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()

    async def run() -> Any:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            return await talk(provider_pb2_grpc.ResourceProviderStub(channel))

    try:
        return asyncio.run(run())
    finally:
        server.stop(None).wait()


def create(**properties: Any) -> Any:
    return provider_pb2.CreateRequest(urn=URN, properties=write_struct(properties))


def error_of(talk: Callable[[Any], Awaitable[Any]]) -> grpc.aio.AioRpcError:
    """The error of a call to a provider."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        ask(Fake(), talk)
    return caught.value


@pytest.mark.parametrize(
    "value", [1, 1.5, True, "x", "", [1, [2]], {"a": {"b": []}}, UNKNOWN, [{"a": UNKNOWN}]]
)
def test_values_survive_the_wire(value: Any) -> None:
    again = read_struct(write_struct({"v": value}))["v"]
    assert again == value
    assert type(again) is type(value)


def test_nulls_say_nothing_unless_they_are_kept() -> None:
    struct = write_struct({"a": None, "b": {"c": None, "d": [{"e": None}]}})
    assert read_struct(struct) == {"b": {"d": [{}]}}
    assert read_struct(struct, nulls=True) == {"b": {"c": None, "d": [{"e": None}]}}


@pytest.mark.parametrize("kept", [True, False])
def test_a_provider_says_whether_it_keeps_nulls(kept: bool) -> None:
    class Keeping(Fake):
        keeps_nulls: ClassVar[bool] = kept

    provider = Keeping()
    ask(provider, lambda stub: stub.Create(create(values={"x": None})))
    ((_, new),) = provider.asked
    assert new == {"values": {"x": None} if kept else {}}


def test_secrets_are_marked_on_output_and_unwrapped_on_input() -> None:
    struct = write_struct({"key": Secret("hunter2")})
    assert struct.fields["key"].struct_value.fields[SIGNATURE].string_value == SECRET_SIGNATURE
    assert read_struct(struct) == {"key": "hunter2"}


def test_the_type_of_a_child_and_the_users_timeout_arrive() -> None:
    provider = Fake()
    request = create(size=2)
    request.timeout = 7
    assert ask(provider, lambda stub: stub.Create(request)).id == "id-1"
    ((resource, new),) = provider.asked
    about = (resource.type, resource.name, resource.timeout)
    assert (*about, new) == ("test:index:Thing", "a", 7, {"size": 2})


def test_a_failed_check_names_its_property() -> None:
    request = provider_pb2.CheckRequest(urn=URN, news=write_struct({"size": -1}))
    (failure,) = ask(Fake(), lambda stub: stub.Check(request)).failures
    assert (failure.property, failure.reason) == ("size", "is negative")


def test_a_diff_gets_the_old_inputs_and_says_what_is_replaced() -> None:
    provider = Fake()
    olds, old_inputs = write_struct({"out": 1}), write_struct({"in": 1})
    request = provider_pb2.DiffRequest(
        id="i", urn=URN, ignoreChanges=["d"], olds=olds, old_inputs=old_inputs
    )
    answer = ask(provider, lambda stub: stub.Diff(request))
    assert provider.asked == [(State("i", {"in": 1}, {"out": 1}), {}, ("d",))]
    kinds = provider_pb2.PropertyDiff
    assert answer.changes == provider_pb2.DiffResponse.DIFF_SOME
    detailed = {path: change.kind for path, change in answer.detailedDiff.items()}
    assert detailed == {"a.b": kinds.UPDATE, "c": kinds.UPDATE_REPLACE}
    assert answer.deleteBeforeReplace


def test_an_unhealthy_existing_object_has_its_id_and_state() -> None:
    error = error_of(lambda stub: stub.Create(create(fails=True)))
    details = dict(error.trailing_metadata() or ())["grpc-status-details-bin"]
    status, failed = status_pb2.Status(), provider_pb2.ErrorResourceInitFailed()
    status.ParseFromString(details)
    assert status.details[0].Unpack(failed)
    assert (failed.id, list(failed.reasons)) == ("id-1", ["it does not get ready"])
    assert read_struct(failed.properties) == {"fails": True, "key": "hunter2"}


def test_a_cancel_gets_through_while_a_call_waits() -> None:
    async def talk(stub: Any) -> None:
        waiting = asyncio.ensure_future(stub.Create(create(wait=True)))
        await asyncio.sleep(0.2)
        await stub.Cancel(empty_pb2.Empty())
        await waiting

    assert error_of(talk).details() == "interrupted"


def test_a_function_that_a_rehearsal_does_not_answer_is_named() -> None:
    error = error_of(lambda stub: stub.Invoke(provider_pb2.InvokeRequest(tok="t:x")))
    said = error.details() or ""
    assert said.startswith("t:x: a rehearsal does not answer this function")


def test_what_was_given_secret_stays_so_wherever_it_comes_back() -> None:
    given = write_struct({"a": {"b": [1, Secret("x")]}, "c": Secret({"d": 1}), "gone": Secret(1)})
    kept = kept_secret({"a": {"b": [1, "x", 3]}, "c": {"d": 1}, "new": 2}, given)
    assert kept == {"a": {"b": [1, Secret("x"), 3]}, "c": Secret({"d": 1}), "new": 2}
    assert kept_secret({"c": Secret(1)}, given) == {"c": Secret(1)}


def test_the_engine_may_propose_names() -> None:
    greeting = provider_pb2.ProviderHandshakeRequest(engine_address="127.0.0.1:1")
    assert ask(Fake(), lambda stub: stub.Handshake(greeting)).supports_autonaming_configuration


def schema_of(provider: Provider) -> dict[str, Any]:
    """The schema that a provider answers, for programs that are no Python."""
    answer = ask(provider, lambda stub: stub.GetSchema(provider_pb2.GetSchemaRequest()))
    schema, package = json.loads(answer.schema), provider.sdk.package
    assert (schema["name"], schema["version"]) == (package, version(f"pulumi-{package}"))
    return schema


def test_the_schema_of_gcp(tmp_path: Path) -> None:
    schema = schema_of(GcpProvider(Rehearsal.of("dev", tmp_path)))
    pool = schema["resources"]["gcp:container/nodePool:NodePool"]
    assert "autoscaling" in pool["inputProperties"]
    assert "instanceGroupUrls" not in pool["inputProperties"]
    assert {"autoscaling", "instanceGroupUrls"} <= pool["properties"].keys()
    assert pool["requiredInputs"] == ["cluster"]
    assert {"project", "addPulumiAttributionLabel"} <= schema["provider"]["inputProperties"].keys()


def test_the_schema_of_kubernetes() -> None:
    schema = schema_of(KubernetesProvider())
    assert {"kubeconfig", "enableConfigMapMutable"} <= schema["provider"]["inputProperties"].keys()
    deployment = schema["resources"]["kubernetes:apps/v1:Deployment"]
    assert "spec" in deployment["inputProperties"]
    assert {"spec", "status"} <= deployment["properties"].keys()


PLUGIN = [sys.executable, "-m", "ml_foundations.rehearsal.plugins", "kubernetes"]


def seconds_to_end() -> float:
    """How long a plugin lives after the engine's interrupt."""
    plugin = subprocess.Popen(PLUGIN, stdout=subprocess.PIPE, text=True)
    assert plugin.stdout and plugin.stdout.readline().strip().isdigit()
    started = time.monotonic()
    plugin.send_signal(2)
    assert plugin.wait(60) == 0
    return time.monotonic() - started


def test_the_engines_interrupt_ends_a_plugin_at_once() -> None:
    """The engine waits 5 s for a plugin, at the end of every command. On a busy machine, the least time counts."""
    assert any(seconds_to_end() < 3 for _ in range(5))


def test_a_plugin_ends_when_its_engine_was_killed() -> None:
    script = f"import subprocess, time; p = subprocess.Popen({PLUGIN!r}); print('pid', p.pid, flush=True); time.sleep(600)"
    engine = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert engine.stdout
    try:
        # Both write there, and either may be the first.
        lines = sorted((engine.stdout.readline().split() for _ in range(2)), key=len)
        [[port], [_, pid]] = lines
        assert port.isdigit()
        plugin = psutil.Process(int(pid))
    finally:
        engine.kill()
        engine.wait()
    assert not psutil.wait_procs([plugin], timeout=300)[1]
