"""Manifests that a program does not declare one by one: from YAML, from a kustomization, from a chart."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator, Mapping
from glob import has_magic
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from ml_foundations.rehearsal.api import Object
from ml_foundations.rehearsal.plugins.values import Properties
from ml_foundations.rehearsal.progress import RehearsalError

_TIMESTAMP = "tag:yaml.org,2002:timestamp"
_KUSTOMIZE_SECONDS = 60


class _Loader(yaml.SafeLoader):
    """YAML as Kubernetes reads it: a date is text."""


_Loader.yaml_implicit_resolvers = {
    first: [pair for pair in pairs if pair[0] != _TIMESTAMP]
    for first, pairs in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def decode(text: str) -> list[Object]:
    """The objects of a YAML stream, those of lists one by one; documents without a kind are left out."""
    try:
        return list(objects_of(yaml.load_all(text, Loader=_Loader)))
    except yaml.YAMLError as error:
        raise RehearsalError(f"the YAML cannot be read: {error}") from None


def objects_of(documents: Iterable[Any]) -> Iterator[Object]:
    """The objects among documents, those of lists one by one."""
    for document in documents:
        if not isinstance(document, Mapping) or not document.get("apiVersion") or not document.get("kind"):
            continue
        if document["kind"].endswith("List") and isinstance(document.get("items"), list):
            yield from objects_of(document["items"])
        else:
            yield dict(document)


def read(file: str) -> str:
    """The text of a file, or of all files that a pattern matches, as one stream."""
    if urlsplit(file).scheme in ("http", "https"):
        raise RehearsalError(f"{file}: a rehearsal fetches no manifests. Keep the file beside the program")
    path = Path(file)
    found = sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor)))) if has_magic(file) else [path]
    try:
        return "\n---\n".join(path.read_text() for path in found)
    except OSError as error:
        raise RehearsalError(f"{file} cannot be read: {error.strerror}") from None


def kustomize(directory: str) -> str:
    """What ``kubectl kustomize`` makes of a folder."""
    try:
        done = subprocess.run(
            ["kubectl", "kustomize", directory],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_KUSTOMIZE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise RehearsalError(f"kustomize {directory} took over {_KUSTOMIZE_SECONDS} s") from None
    if done.returncode != 0:
        raise RehearsalError(f"kustomize {directory} failed: {done.stderr.strip()}")
    return done.stdout


def release_of(options: Mapping[str, Any]) -> Properties:
    """The inputs of a Release that are the options of helm/v3's Chart, which are written otherwise."""
    fetch = options.get("fetch_opts") or {}
    repository = {"repo": fetch.get("repo"), "username": fetch.get("username"), "password": fetch.get("password")}
    files = {ours: fetch.get(theirs) for ours, theirs in (("caFile", "ca_file"), ("certFile", "cert_file"))}
    named = "/".join(filter(None, (options.get("repo"), options.get("chart"))))
    return {
        "chart": options.get("path") or named,
        "name": options.get("release_name") or "",
        "namespace": options.get("namespace") or "default",
        "version": options.get("version") or fetch.get("version"),
        "values": options.get("values") or {},
        "skipCrds": bool(options.get("skip_crd_rendering")),
        "devel": bool(fetch.get("devel")),
        "repositoryOpts": {key: value for key, value in (repository | files).items() if value},
    }
