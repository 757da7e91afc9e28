"""A gate in front of Pulumi's own kubernetes plugin, which reaches whatever cluster it is given.

It passes each call on to the plugin, its child process. Only the configuration is read: a
kubeconfig of another cluster is refused. One with the address that a replica had before its last
start is replaced by the present one.
"""

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import grpc

from ml_foundations.kubernetes import printable
from ml_foundations.rehearsal.access import read_kubeconfig, server_of
from ml_foundations.rehearsal.files import read_json
from ml_foundations.rehearsal.layout import Rehearsal
from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.protocol import server
from ml_foundations.rehearsal.protocol.stubs import provider_pb2
from ml_foundations.rehearsal.protocol.values import read_struct

_CONFIGURE = "/pulumirpc.ResourceProvider/Configure"
_STREAMS = ("StreamInvoke",)
"""The calls that answer with a stream."""
_VARIABLE = "kubernetes:config:{}"
"""The older form of an input, which the plugin reads, too."""


def kubeconfig_in_rehearsal(rehearsal: Rehearsal, kubeconfig: str, context: str) -> str:
    """Return the kubeconfig to use instead of a program's: the same, or that of its replica now.

    Raises:
        RehearsalError: it cannot be read, or is not of a cluster of the rehearsal.
    """
    clusters = read_json(rehearsal.servers, {})
    # All of them: an input may select any cluster of the kubeconfig.
    for entry in read_kubeconfig(kubeconfig)["clusters"]:
        named = (entry.get("cluster") or {}).get("server", "").rstrip("/")
        if named not in clusters:
            raise RehearsalError(
                f"the kubeconfig has the cluster at {named}, which is not of this rehearsal. "
                "Use the kubeconfig of a cluster of the program, or leave out "
                "--official-kubernetes-plugin: the embedded plugin leads to the replica"
            )
    address = server_of(kubeconfig, context)
    replica = Rehearsal(rehearsal.stack, rehearsal.root, clusters[address])
    is_current = replica.kubeconfig.exists() and server_of(str(replica.kubeconfig)) == address
    return kubeconfig if is_current else str(replica.kubeconfig)


def checked(request: bytes) -> bytes:
    """Return a call of Configure with the kubeconfig to use instead of the program's.

    Raises:
        RehearsalError: the program's cannot be read, or is not of a cluster of the rehearsal.
    """
    message = provider_pb2.ConfigureRequest.FromString(request)
    inputs = read_struct(message.args)
    given = inputs.get("kubeconfig") or message.variables.get(_VARIABLE.format("kubeconfig"))
    # An unknown value comes before there is a cluster: the plugin then reaches none.
    if not isinstance(given, str) or not given:
        return request
    context = inputs.get("context") or message.variables.get(_VARIABLE.format("context")) or ""
    used = kubeconfig_in_rehearsal(Rehearsal.of_this_process(), given, str(context))
    if used == given:
        return request
    message.args.update({"kubeconfig": used})
    message.variables[_VARIABLE.format("kubeconfig")] = used
    for name in ("context", "cluster"):
        message.args.fields.pop(name, None)
        message.variables.pop(_VARIABLE.format(name), None)
    return message.SerializeToString()


class _Gate(grpc.GenericRpcHandler):
    """A handler of every call, whose messages stay as they are."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._channel = channel

    def service(self, handler_call_details: Any) -> Any:
        method: str = handler_call_details.method
        if method.rpartition("/")[2] in _STREAMS:
            stream = self._channel.unary_stream(method)
            return grpc.unary_stream_rpc_method_handler(partial(_streamed, stream))
        return grpc.unary_unary_rpc_method_handler(partial(self._answered, method))

    def _answered(self, method: str, request: bytes, context: grpc.ServicerContext) -> bytes:
        if method == _CONFIGURE:
            try:
                request = checked(request)
            except RehearsalError as error:
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
        try:
            answer: bytes = self._channel.unary_unary(method)(request)
        except grpc.RpcError as error:
            _abort(context, error)
            raise
        return answer


def _streamed(
    stream: Callable[[bytes], Iterator[bytes]], request: bytes, context: grpc.ServicerContext
) -> Iterator[bytes]:
    try:
        yield from stream(request)
    except grpc.RpcError as error:
        _abort(context, error)


def _abort(context: grpc.ServicerContext, error: Any) -> None:
    """End a call as the plugin ended it; the metadata say that a resource exists, not ready."""
    context.set_trailing_metadata(error.trailing_metadata() or ())
    context.abort(error.code(), error.details())


def main() -> None:
    """Start the plugin, whose path is the first argument, and serve the engine in its place."""
    plugin = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE, text=True)
    assert plugin.stdout
    port = plugin.stdout.readline().strip()
    if not port.isdecimal():
        sys.exit(printable.line(f"{Path(sys.argv[1]).name} printed no port"))
    # The plugin would wait if nobody read what it prints.
    Thread(target=shutil.copyfileobj, args=(plugin.stdout, sys.stderr), daemon=True).start()
    gate = _Gate(grpc.insecure_channel(f"127.0.0.1:{port}", options=server.SIZES))
    server.serve(
        lambda grpc_server: grpc_server.add_generic_rpc_handlers((gate,)),
        on_stop=plugin.terminate,
    )


if __name__ == "__main__":
    main()
