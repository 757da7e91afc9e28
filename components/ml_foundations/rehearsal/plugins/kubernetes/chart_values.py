"""The values of a chart: those that a release sets, and those that the chart does not have."""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from ml_foundations.kubernetes.spelling import did_you_mean
from ml_foundations.rehearsal.access import private_file
from ml_foundations.rehearsal.files import read_map
from ml_foundations.rehearsal.protocol.values import Properties

_CHART_KEYS = Path(__file__).parent / "charts"


def local_values(inputs: Properties) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each map of values that is on this machine, with the path of the input that has it."""
    assets = inputs.get("valueYamlFiles")
    for index, asset in enumerate(assets if isinstance(assets, list) else []):
        if isinstance(asset, Mapping) and ("text" in asset or "path" in asset):
            path = f"valueYamlFiles[{index}]"
            yield path, read_map(asset["text"] if "text" in asset else Path(asset["path"]), path)
    if isinstance(values := inputs.get("values"), Mapping):
        yield "values", values


@contextmanager
def as_options(inputs: Properties) -> Iterator[list[str]]:
    """Yield the values as Helm's options, in private files: they may hold secrets."""
    own_values = {"text": json.dumps(inputs.get("values") or {}, ensure_ascii=False)}
    options: list[str] = []
    with ExitStack() as files:
        for asset in [*(inputs.get("valueYamlFiles") or []), own_values]:
            if "text" in asset:
                file = files.enter_context(private_file(asset["text"], ".yaml"))
            else:
                file = asset.get("path") or asset["uri"]
            options += ["--values", str(file)]
        yield options


def unknown_keys(chart: str, values: Mapping[str, Any], path: str = "values") -> Iterator[str]:
    """Yield an error for each value that the chart does not have, if ``charts/`` lists its keys."""
    listed = _CHART_KEYS / f"{chart}.txt"
    if not listed.exists():
        return
    lines = map(str.strip, listed.read_text().splitlines())
    known = {line for line in lines if line and not line.startswith("#")}
    # Any key is allowed below these.
    open_maps = tuple(key.removesuffix("*") for key in known if key.endswith(".*"))
    for key in _keys(values, known):
        if key not in known and not key.startswith(open_maps):
            hint = did_you_mean(key, known) or "See the chart's values.yaml"
            yield f"{path}.{key}: the chart {chart} has no such value. {hint}"


def _keys(values: Mapping[str, Any], known: set[str], prefix: str = "") -> Iterator[str]:
    """Yield the dotted keys of the values, as deep as the chart's own keys go."""
    for name, value in values.items():
        key = f"{prefix}{name}"
        has_below = any(chart_key.startswith(f"{key}.") for chart_key in known)
        if isinstance(value, Mapping) and has_below:
            yield from _keys(value, known, f"{key}.")
        else:
            yield key
