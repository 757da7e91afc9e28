"""Embedded plugins in the test's own process: an interpreter of its own would be most of its work."""

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import grpc
from google.protobuf import empty_pb2
from ml_foundations.rehearsal.plugins.kubernetes.provider import KubernetesProvider
from ml_foundations.rehearsal.plugins.provider import Provider
from ml_foundations.rehearsal.plugins.servicer import ProviderServicer
from ml_foundations.rehearsal.protocol.stubs import provider_pb2_grpc

_SIZES = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class _Servicers(provider_pb2_grpc.ResourceProviderServicer):
    """A plugin for each connection, as an engine starts one for each provider of a program."""

    def __init__(self, provider: Callable[[], Provider]) -> None:
        self._provider = provider
        self._of: dict[str, ProviderServicer] = {}

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_"):
            return object.__getattribute__(self, name)
        return self._calling(name)

    def _calling(self, name: str) -> Callable[[Any, Any], Any]:
        def call(request: Any, context: Any) -> Any:
            peer = context.peer()
            if name == "Handshake":
                self._of[peer] = ProviderServicer(self._provider())
            # What a plugin is told that was there before its engine.
            return (
                empty_pb2.Empty()
                if name == "Attach"
                else getattr(self._of[peer], name)(request, context)
            )

        return call


@contextmanager
def kubernetes_plugin(environment: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Serve the plugin, in an environment and no other, to the engine that is given the variables."""
    with plugins(environment, kubernetes=KubernetesProvider) as variables:
        yield variables


@contextmanager
def plugins(
    environment: Mapping[str, str], **providers: Callable[[], Provider]
) -> Iterator[dict[str, str]]:
    """Serve plugins, by package, in an environment and no other, to the engine that is given the variables."""
    with ExitStack() as stack:
        ports: list[str] = []
        for package, provider in providers.items():
            server = grpc.server(ThreadPoolExecutor(max_workers=200), options=_SIZES)
            servicers = _Servicers(provider)
            provider_pb2_grpc.add_ResourceProviderServicer_to_server(servicers, server)
            ports.append(f"{package}:{server.add_insecure_port('127.0.0.1:0')}")
            server.start()
            stack.callback(lambda server=server: server.stop(grace=None).wait(5))
        with patch.dict(os.environ, environment, clear=True):
            yield {"PULUMI_DEBUG_PROVIDERS": ",".join(ports)}
