"""Embedded plugins in the test's own process: an interpreter of its own would be most of its work."""

import atexit
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from unittest.mock import patch

import grpc
from google.protobuf import empty_pb2
from ml_foundations.rehearsal.plugins.kubernetes.provider import KubernetesProvider
from ml_foundations.rehearsal.plugins.provider import Provider
from ml_foundations.rehearsal.plugins.servicer import ProviderServicer
from ml_foundations.rehearsal.protocol.server import SIZES
from ml_foundations.rehearsal.protocol.stubs import provider_pb2_grpc


@dataclass
class _Offered:
    """A package's plugin as a test has it now, and those that engines are connected to, by address."""

    provider: Callable[[], Provider]
    connected: dict[str, ProviderServicer] = field(default_factory=dict[str, ProviderServicer])


class _Servicers(provider_pb2_grpc.ResourceProviderServicer):
    """A plugin for each connection, as an engine starts one for each provider of a program."""

    def __init__(self, offered: _Offered) -> None:
        self._offered = offered

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_"):
            return object.__getattribute__(self, name)
        return self._calling(name)

    def _calling(self, name: str) -> Callable[[Any, Any], Any]:
        def call(request: Any, context: Any) -> Any:
            peer = context.peer()
            if name == "Handshake":
                self._offered.connected[peer] = ProviderServicer(self._offered.provider())
            # What a plugin is told that was there before its engine.
            return (
                empty_pb2.Empty()
                if name == "Attach"
                else getattr(self._offered.connected[peer], name)(request, context)
            )

        return call


def serve(register: Callable[[grpc.Server], None]) -> int:
    """Serve to the end of this process: gRPC has crashed it when a server was stopped early. Return the port."""
    server = grpc.server(ThreadPoolExecutor(max_workers=200), options=SIZES)
    register(server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    atexit.register(lambda: server.stop(grace=None).wait(5))
    return port


@cache
def _plugins(package: str) -> tuple[_Offered, int]:
    """Serve the plugins of a package at one port."""
    offered = _Offered(Provider)
    servicers = _Servicers(offered)
    return offered, serve(
        lambda server: provider_pb2_grpc.add_ResourceProviderServicer_to_server(servicers, server)
    )


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
            offered, port = _plugins(package)
            offered.provider = provider
            stack.callback(offered.connected.clear)
            ports.append(f"{package}:{port}")
        with patch.dict(os.environ, environment, clear=True):
            yield {"PULUMI_DEBUG_PROVIDERS": ",".join(ports)}
