"""The values of a chart: what a release gives, and which of them the chart does not have."""

import difflib
import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from ml_foundations.rehearsal.access import private_file
from ml_foundations.rehearsal.files import read_map
from ml_foundations.rehearsal.protocol.values import Properties

_CHART_KEYS = Path(__file__).parent / "charts"


def given(inputs: Properties) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The values on this machine: each map, with the place of its declaration."""
    files = inputs.get("valueYamlFiles")
    for index, asset in enumerate(files if isinstance(files, list) else []):
        if isinstance(asset, Mapping) and ("text" in asset or "path" in asset):
            place = f"valueYamlFiles[{index}]"
            yield place, read_map(asset["text"] if "text" in asset else Path(asset["path"]), place)
    if isinstance(values := inputs.get("values"), Mapping):
        yield "values", values


@contextmanager
def as_options(inputs: Properties) -> Iterator[list[str]]:
    """The values as options of Helm, those of the program last, in files that are private: they may hold secrets."""
    assets = inputs.get("valueYamlFiles") or []
    with ExitStack() as stack:
        files: list[Any] = []
        for asset in [
            *assets,
            {"text": json.dumps(inputs.get("values") or {}, ensure_ascii=False)},
        ]:
            written = (
                stack.enter_context(private_file(asset["text"], ".yaml"))
                if "text" in asset
                else None
            )
            files.append(written or asset.get("path") or asset["uri"])
        yield [word for file in files for word in ("--values", str(file))]


def unknown_keys(chart: str, values: Mapping[str, Any], place: str = "values") -> Iterator[str]:
    """An error for each value that the chart does not have, if its keys are listed here."""
    listed = _CHART_KEYS / f"{chart}.txt"
    if not listed.exists():
        return
    lines = (line.strip() for line in listed.read_text().splitlines())
    known = {line for line in lines if line and not line.startswith("#")}
    for path in _paths(values, known):
        if path not in known and not any(
            path.startswith(f"{key[:-2]}.") for key in known if key.endswith(".*")
        ):
            near = (
                ", ".join(difflib.get_close_matches(path, known, 3))
                or "see the chart's values.yaml"
            )
            yield f"{place}.{path}: the chart {chart} has no such value. Near: {near}"


def _paths(values: Mapping[str, Any], known: set[str], prefix: str = "") -> Iterator[str]:
    """The dotted paths of the values, as deep as the chart's own keys go."""
    for key, value in values.items():
        path = f"{prefix}{key}"
        deeper = any(item.startswith(f"{path}.") for item in known)
        if isinstance(value, Mapping) and deeper:
            yield from _paths(value, known, f"{path}.")
        else:
            yield path
