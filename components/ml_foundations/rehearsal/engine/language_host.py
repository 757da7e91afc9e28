"""Pulumi's Python language host, for the CLI that is built here: later releases of it are in no registry.

The engine starts it, reads the port it prints, and asks it over gRPC to run programs and plugins. Programs run through
the executor script that the SDK module carries, in the virtual environment that the project names, or else with the
interpreter that runs this host. A ``pulumi`` from Pulumi's own release brings its own host and needs none of this.
"""

import importlib.metadata
import json
import os
import selectors
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import empty_pb2

from ml_foundations.rehearsal.progress import RehearsalError
from ml_foundations.rehearsal.protocol import server
from ml_foundations.rehearsal.protocol.stubs import language_pb2 as lang
from ml_foundations.rehearsal.protocol.stubs import language_pb2_grpc, plugin_pb2
from ml_foundations.rehearsal.startup import PROGRAM_LAUNCHER

_PLUGIN_FILE = "*/pulumi-plugin.json"
"""How an SDK says which plugin it needs, from the folder in which it is installed."""
_MESSAGE_SHOWN = 32
"""The executor's exit code for: the user has been told what is wrong."""


class _LanguageHost(language_pb2_grpc.LanguageRuntimeServicer):
    """The part of the LanguageRuntime protocol that running programs, policy packs and component packages takes."""

    def __init__(self, executor: Path, engine: str) -> None:
        self._executor = executor
        self._engine = engine
        self._running: set[subprocess.Popen[Any]] = set()

    def GetPluginInfo(self, request: Any, context: Any) -> Any:
        return plugin_pb2.PluginInfo(version=importlib.metadata.version("pulumi"))

    def GetRequiredPackages(self, request: Any, context: Any) -> Any:
        return lang.GetRequiredPackagesResponse(
            packages=required_packages(_site_packages(interpreter(request.info)))
        )

    def GetProgramDependencies(self, request: Any, context: Any) -> Any:
        found = importlib.metadata.distributions(
            path=[*map(str, _site_packages(interpreter(request.info)))]
        )
        dependencies = [
            lang.DependencyInfo(name=each.metadata["Name"], version=each.version) for each in found
        ]
        return lang.GetProgramDependenciesResponse(dependencies=dependencies)

    def InstallDependencies(self, request: Any, context: Any) -> Iterator[Any]:
        """Nothing to install: programs run in an environment that is there."""
        return iter(())

    def About(self, request: Any, context: Any) -> Any:
        return lang.AboutResponse(executable=sys.executable, version=sys.version.split()[0])

    def GenerateProgram(self, request: Any, context: Any) -> Any:
        """What ``pulumi import`` prints: the inputs as the CLI describes them, for the user to declare in Python."""
        inputs = "".join(request.source.values())
        text = f"# Imported. Declare it in your program with these inputs:\n{textwrap.indent(inputs, '# ')}"
        return lang.GenerateProgramResponse(source={"__main__.py": text.encode()})

    def Run(self, request: Any, context: Any) -> Any:
        environment = dict(os.environ) | {
            "PULUMI_CONFIG": json.dumps(dict(request.config)),
            "PULUMI_CONFIG_SECRET_KEYS": json.dumps(list(request.configSecretKeys)),
        }
        arguments = _run_arguments(request, self._engine)
        command = [
            self._interpreter(request.info, context),
            "-u",
            "-c",
            PROGRAM_LAUNCHER,
            self._executor,
            *arguments,
        ]
        with self._process(context, command, env=environment) as process:
            code = process.wait()
        if code == _MESSAGE_SHOWN:
            return lang.RunResponse(bail=True)
        return lang.RunResponse(error="" if code == 0 else f"the program exited with code {code}")

    def RunPlugin(self, request: Any, context: Any) -> Iterator[Any]:
        """Run a plugin written in Python and pass on what it prints."""
        environment = dict(os.environ) | dict(entry.split("=", 1) for entry in request.env)
        command = [self._interpreter(request.info, context), "-u", *_plugin_arguments(request)]
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with self._process(
            context, command, cwd=request.pwd or None, env=environment, **streams
        ) as process:
            for name, data in _output(process):
                yield (
                    lang.RunPluginResponse(stdout=data)
                    if name == "stdout"
                    else lang.RunPluginResponse(stderr=data)
                )
            yield lang.RunPluginResponse(exitcode=process.wait())

    def Cancel(self, request: Any, context: Any) -> Any:
        for process in list(self._running):
            process.terminate()
        return empty_pb2.Empty()

    def _interpreter(self, info: Any, context: Any) -> Path:
        try:
            return interpreter(info)
        except RehearsalError as error:
            context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
            raise

    @contextmanager
    def _process(
        self, context: Any, command: list[Any], **options: Any
    ) -> Iterator[subprocess.Popen[Any]]:
        """A child process, which does not outlive the call that it serves."""
        with subprocess.Popen(command, **options) as process:
            self._running.add(process)
            try:
                if not context.add_callback(process.terminate):
                    process.terminate()
                yield process
            finally:
                self._running.discard(process)
                process.terminate()


def interpreter(info: Any) -> Path:
    """The Python of a program's virtual environment, as ``_python`` finds it."""
    root = Path(info.root_directory)
    return _python(root, Path(info.program_directory or root), dict(info.options))


def project_python(project: Path, settings: Mapping[str, Any]) -> Path:
    """The Python that runs a project's program; this one where it is written in another language."""
    if settings["runtime"].get("name") != "python":
        return Path(sys.executable)
    return _python(project, project / (settings.get("main") or ""), settings["runtime"]["options"])


def _python(root: Path, program: Path, options: Mapping[str, Any]) -> Path:
    """The Python of the virtual environment that the options of Pulumi.yaml name; this one where they name none.

    As Pulumi's own host has it (pulumi/pulumi, sdk/python/toolchain): the toolchain is the one that is named, or the
    one whose lock lies in the program's folder or above it.

    Raises:
        RehearsalError: the environment does not exist; the message says how to make it.
    """
    locks = {name: _above(program, f"{name}.lock") for name in ("uv", "poetry")}
    toolchain = options.get("toolchain") or next(
        (name for name, found in locks.items() if found), "pip"
    )
    named = options.get("virtualenv")
    if toolchain == "poetry":
        from ml_foundations.rehearsal.tools.go_command import (
            printed,
        )  # no other needs what that imports

        make = f"poetry install --directory {program}"
        folder = Path(
            printed("poetry", "env", "info", "--path", "--directory", program).strip()
            or program / ".venv"
        )
    elif toolchain == "uv":
        beside = locks["uv"] or _above(program, "pyproject.toml") or root
        make = f"uv sync --directory {program}"
        folder = (
            root / named if named else beside / os.environ.get("UV_PROJECT_ENVIRONMENT", ".venv")
        )
    elif named:
        folder = root / str(named)
        make = (
            f"python3 -m venv {folder} && {folder}/bin/pip install -r {root / 'requirements.txt'}"
        )
    else:
        return Path(sys.executable)
    python = folder / "bin" / "python"
    if not python.exists():
        raise RehearsalError(f"the program's environment {folder} does not exist. Make it: {make}")
    return python


def _above(folder: Path, name: str) -> Path | None:
    """The nearest folder with a file of a name: this one, or one that it lies in."""
    return next((found for found in (folder, *folder.parents) if (found / name).exists()), None)


def packages_of(python: Path) -> set[str]:
    """The providers whose SDKs are installed for a Python."""
    return {package.name for package in required_packages(_site_packages(python))}


def _site_packages(python: Path) -> list[Path]:
    """Where the packages lie that are installed for a Python."""
    if python == Path(sys.executable):
        return [Path(folder) for folder in sys.path if folder]
    return list(python.parent.parent.glob("lib/python*/site-packages"))


def required_packages(folders: Iterable[Path]) -> list[Any]:
    """The plugins that the installed SDKs ask for, each by its own pulumi-plugin.json."""
    described = [
        (path, json.loads(path.read_text()))
        for folder in folders
        for path in folder.glob(_PLUGIN_FILE)
    ]
    return [
        plugin_pb2.PackageDependency(
            name=plugin["name"],
            kind="resource",
            version=f"v{(plugin.get('version') or _version(path)).removeprefix('v')}",
            server=plugin.get("server", ""),
        )
        for path, plugin in described
        if plugin.get("resource")
    ]


def _version(plugin_file: Path) -> str:
    """The version of the distribution that an SDK came in: it has the name of the SDK's module."""
    folder = plugin_file.parent
    return next(
        iter(importlib.metadata.distributions(name=folder.name, path=[str(folder.parent)]))
    ).version


def _run_arguments(request: Any, engine: str) -> list[str]:
    flags = {
        "--monitor": request.monitor_address,
        "--engine": engine,
        **{
            f"--{name}": getattr(request, name)
            for name in ("project", "stack", "pwd", "organization")
        },
        "--root_directory": request.info.root_directory,
        "--dry_run": "true" if request.dryRun else "false",
        "--parallel": str(request.parallel),
    }
    named = [word for flag, value in flags.items() if value for word in (flag, value)]
    return [
        *named,
        str(Path(request.info.program_directory) / request.info.entry_point),
        *request.args,
    ]


def _plugin_arguments(request: Any) -> list[str]:
    """A policy pack is run by the SDK's module for that; anything else by its own __main__.py."""
    folder = request.info.program_directory or request.program
    if request.kind == "analyzer":
        engine, *rest = request.args
        return ["-m", "pulumi.policy", engine, folder, *rest[1:]]
    return [folder, *request.args]


def _output(process: subprocess.Popen[Any]) -> Iterator[tuple[str, bytes]]:
    """What the process prints on either stream, as it comes."""
    with selectors.DefaultSelector() as streams:
        for name in ("stdout", "stderr"):
            streams.register(getattr(process, name), selectors.EVENT_READ, name)
        while streams.get_map():
            for key, _ in streams.select():
                if data := os.read(key.fd, 65536):
                    yield key.data, data
                else:
                    streams.unregister(key.fileobj)


def main() -> None:
    """Start as the engine does: the executor's path, engine flags, and the engine's address last."""
    host = _LanguageHost(Path(sys.argv[1]), sys.argv[-1])
    add = language_pb2_grpc.add_LanguageRuntimeServicer_to_server
    server.serve(lambda grpc_server: add(host, grpc_server))
