"""Pulumi's Python language host, for a CLI that is built here: no registry has a later one.

The engine starts it, reads the port that it prints, and calls it over gRPC to run programs and
plugins. Programs run through the executor script in the SDK's Go module. They run in the virtual
environment that the project names, or else with the interpreter of this host. A ``pulumi`` of
Pulumi's own release has its own host and does not need this one.
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
"""The file in which an SDK names its plugin, below the folder of the installed packages."""
EXITED = "the program exited with code"
_MESSAGE_SHOWN = 32
"""The executor's exit code if it has shown the user what is wrong."""


class _LanguageHost(language_pb2_grpc.LanguageRuntimeServicer):
    """The calls of LanguageRuntime that run programs, policy packs and component packages."""

    def __init__(self, executor: Path, engine: str) -> None:
        self._executor = executor
        self._engine = engine
        self._running: set[subprocess.Popen[Any]] = set()

    def GetPluginInfo(self, request: Any, context: Any) -> Any:
        return plugin_pb2.PluginInfo(version=importlib.metadata.version("pulumi"))

    def GetRequiredPackages(self, request: Any, context: Any) -> Any:
        packages = required_packages(_site_packages(interpreter(request.info)))
        return lang.GetRequiredPackagesResponse(packages=packages)

    def GetProgramDependencies(self, request: Any, context: Any) -> Any:
        path = list(map(str, _site_packages(interpreter(request.info))))
        response = lang.GetProgramDependenciesResponse()
        for installed in importlib.metadata.distributions(path=path):
            response.dependencies.add(name=installed.metadata["Name"], version=installed.version)
        return response

    def InstallDependencies(self, request: Any, context: Any) -> Iterator[Any]:
        """Install nothing: programs run in an environment that exists."""
        return iter(())

    def About(self, request: Any, context: Any) -> Any:
        return lang.AboutResponse(executable=sys.executable, version=sys.version.split()[0])

    def GenerateProgram(self, request: Any, context: Any) -> Any:
        """Return the inputs of ``pulumi import`` as comments, for the user to declare in Python."""
        inputs = textwrap.indent("".join(request.source.values()), "# ")
        text = f"# Imported. Declare it in your program with these inputs:\n{inputs}"
        return lang.GenerateProgramResponse(source={"__main__.py": text.encode()})

    def Run(self, request: Any, context: Any) -> Any:
        environment = dict(os.environ) | {
            "PULUMI_CONFIG": json.dumps(dict(request.config)),
            "PULUMI_CONFIG_SECRET_KEYS": json.dumps(list(request.configSecretKeys)),
        }
        python = self._interpreter(request.info, context)
        flags = {
            "--monitor": request.monitor_address,
            "--engine": self._engine,
            "--project": request.project,
            "--stack": request.stack,
            "--pwd": request.pwd,
            "--organization": request.organization,
            "--root_directory": request.info.root_directory,
            "--dry_run": "true" if request.dryRun else "false",
            "--parallel": str(request.parallel),
        }
        command = [python, "-u", "-c", PROGRAM_LAUNCHER, self._executor]
        for flag, value in flags.items():
            command += [flag, value] if value else []
        program = Path(request.info.program_directory) / request.info.entry_point
        command += [program, *request.args]
        # The program reports to the engine over gRPC, and writes to this host's own streams.
        with self._process(context, command, env=environment) as process:
            code = process.wait()
        if code == _MESSAGE_SHOWN:
            return lang.RunResponse(bail=True)
        return lang.RunResponse(error="" if code == 0 else f"{EXITED} {code}")

    def RunPlugin(self, request: Any, context: Any) -> Iterator[Any]:
        """Run a plugin written in Python and pass on its output."""
        environment = dict(os.environ) | dict(entry.split("=", 1) for entry in request.env)
        arguments = [request.info.program_directory or request.program, *request.args]
        if request.kind == "analyzer":
            # The SDK runs a policy pack. Its first argument is the engine, the second its folder.
            folder, engine, *rest = arguments
            arguments = ["-m", "pulumi.policy", engine, folder, *rest[1:]]
        command = [self._interpreter(request.info, context), "-u", *arguments]
        options: dict[str, Any] = {"cwd": request.pwd or None, "env": environment}
        options |= dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
        with self._process(context, command, **options) as process:
            for stream, data in _output(process):
                output: dict[str, Any] = {stream: data}
                yield lang.RunPluginResponse(**output)
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
        """Start a child process, which ends with the call that it serves."""
        with subprocess.Popen(command, **options) as process:
            self._running.add(process)
            try:
                # If the call has ended already, no callback is added.
                if not context.add_callback(process.terminate):
                    process.terminate()
                yield process
            finally:
                self._running.discard(process)
                process.terminate()


def interpreter(info: Any) -> Path:
    """Return the Python of a program's virtual environment."""
    root = Path(info.root_directory)
    return _python(root, Path(info.program_directory or root), dict(info.options))


def project_python(project: Path, settings: Mapping[str, Any]) -> Path:
    """Return the Python of a project's program; this one for a program in another language."""
    if settings["runtime"].get("name") != "python":
        return Path(sys.executable)
    return _python(project, project / (settings.get("main") or ""), settings["runtime"]["options"])


def _python(root: Path, program: Path, options: Mapping[str, Any]) -> Path:
    """Return the Python of the virtual environment in the options of Pulumi.yaml, or this one.

    As in Pulumi's own host (pulumi/pulumi, sdk/python/toolchain), the toolchain is the one in the
    options, or the one whose lock is in the program's folder or above it.
    """
    uv_folder = _folder_with(program, "uv.lock")
    toolchain = options.get("toolchain")
    if not toolchain and uv_folder:
        toolchain = "uv"
    elif not toolchain and _folder_with(program, "poetry.lock"):
        toolchain = "poetry"
    virtualenv = options.get("virtualenv")
    if toolchain == "poetry":
        # Only poetry needs this import and what it imports in turn.
        from ml_foundations.rehearsal.tools.go_command import printed

        output = printed("poetry", "env", "info", "--path", "--directory", program)
        folder = Path(output.strip() or program / ".venv")
        fix = f"poetry install --directory {program}"
    elif toolchain == "uv":
        project = uv_folder or _folder_with(program, "pyproject.toml") or root
        default = project / os.environ.get("UV_PROJECT_ENVIRONMENT", ".venv")
        folder = root / virtualenv if virtualenv else default
        fix = f"uv sync --directory {program}"
    elif virtualenv:
        folder = root / str(virtualenv)
        requirements = root / "requirements.txt"
        fix = f"python3 -m venv {folder} && {folder}/bin/pip install -r {requirements}"
    else:
        return Path(sys.executable)
    python = folder / "bin" / "python"
    if not python.exists():
        raise RehearsalError(f"the program's environment {folder} does not exist. Make it: {fix}")
    return python


def _folder_with(folder: Path, name: str) -> Path | None:
    """Return the nearest folder with a file of a name: this folder, or one above it."""
    folders = [folder, *folder.parents]
    return next((candidate for candidate in folders if (candidate / name).exists()), None)


def packages_of(python: Path) -> dict[str, str]:
    """Return the providers whose SDKs are installed for a Python, with the plugins' versions."""
    packages = required_packages(_site_packages(python))
    return {package.name: package.version for package in packages}


def _site_packages(python: Path) -> list[Path]:
    """Return the folders of the packages that are installed for a Python."""
    if python == Path(sys.executable):
        return [Path(folder) for folder in sys.path if folder]
    return list(python.parent.parent.glob("lib/python*/site-packages"))


def required_packages(folders: Iterable[Path]) -> list[Any]:
    """Return the plugins that the installed SDKs need, each by its own pulumi-plugin.json."""
    packages: list[Any] = []
    for folder in folders:
        for path in folder.glob(_PLUGIN_FILE):
            plugin = json.loads(path.read_text())
            if plugin.get("resource"):
                version = plugin.get("version")
                if not version:  # The distribution of an SDK has the name of its module.
                    module = path.parent
                    distributions = importlib.metadata.distributions(
                        name=module.name, path=[str(module.parent)]
                    )
                    version = next(iter(distributions)).version
                package = plugin_pb2.PackageDependency(name=plugin["name"], kind="resource")
                package.version = f"v{version.removeprefix('v')}"
                package.server = plugin.get("server", "")
                packages.append(package)
    return packages


def _output(process: subprocess.Popen[Any]) -> Iterator[tuple[str, bytes]]:
    """Yield the output of a process as it comes, each part with the name of its stream."""
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
    """Serve the engine, which passes the executor's path, then flags, and its own address last."""
    host = _LanguageHost(Path(sys.argv[1]), sys.argv[-1])
    add = language_pb2_grpc.add_LanguageRuntimeServicer_to_server
    server.serve(lambda grpc_server: add(host, grpc_server))
