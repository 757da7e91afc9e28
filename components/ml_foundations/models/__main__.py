"""``python -m ml_foundations.models``: the ways to serve a model, cheapest first."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ml_foundations.catalog.charges import STAND_IN
from ml_foundations.catalog.locations import region_of
from ml_foundations.catalog.machine_types import MACHINE_TYPES
from ml_foundations.kubernetes import printable
from ml_foundations.kubernetes.reading import ReadError
from ml_foundations.kubernetes.spelling import did_you_mean
from ml_foundations.kubernetes.words import number
from ml_foundations.models.arguments import whole_number
from ml_foundations.models.facts import MODELS, ModelFacts
from ml_foundations.models.ways import Way, ways

_MOST = 12
"""The most ways that are printed."""
_COLUMNS = ("MACHINE", "GPUS", "TP", "WEIGHTS", "KV GIB", "REQUESTS", "USD/H")


def main(
    arguments: Sequence[str] | None = None, prog: str = "python -m ml_foundations.models"
) -> int:
    """Print the ways to serve a model with vLLM, and return the exit code."""
    options = _parser(prog).parse_args(arguments)
    try:
        facts = _facts(options.name)
    except ReadError as error:
        print(printable.line(f"error: {error}"), file=sys.stderr)
        return 2
    region = region_of(options.zone)
    length = options.context or facts.max_length
    fitting = ways(
        facts,
        context=options.context,
        requests=options.requests,
        machines=MACHINE_TYPES.values(),
        region=region,
    )
    requests = number(options.requests, "request")
    asked = f"{requests} of {length:,} tokens" if length else requests
    if not fitting:
        print(printable.line(f"No machine of the catalog surely serves {facts.model} to {asked}."))
        return 1
    print(printable.line(f"{facts.model} with vLLM, for {asked} at once, prices in {region}:"))
    print(printable.lines(_table(facts, fitting[:_MOST])))
    return 0


def _facts(name: str) -> ModelFacts:
    """Return the facts about a model of the catalog, or of a folder.

    Raises:
        ReadError: There is no such model, or the folder cannot be read.
    """
    if name in MODELS:
        return MODELS[name]
    if Path(name).is_dir():
        return ModelFacts.from_folder(name)
    matches = [known for known in MODELS if known.lower().endswith(f"/{name.lower()}")]
    if len(matches) == 1:
        return MODELS[matches[0]]
    hint = did_you_mean(name, MODELS)
    fix = f"{hint} Or name a folder with its config.json".lstrip()
    raise ReadError(f"{name} is not in the catalog of models. {fix}")


def _table(facts: ModelFacts, fitting: Sequence[Way]) -> list[str]:
    rows: list[tuple[str, ...]] = [_COLUMNS]
    for way in fitting:
        gpus = f"{way.gpu_count} x {way.gpu.removeprefix('nvidia-')}"
        weights = way.quantization or facts.quantization or facts.dtype
        price = "" if way.usd_per_hour is None else f"{way.usd_per_hour:.2f}"
        cache = f"{float(way.cache_gib):.1f}"
        tensor = str(way.tensor)
        rows.append((way.machine, gpus, tensor, weights, cache, f"{way.requests:,}", price))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines: list[str] = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join(cells).rstrip())
    return lines


def _parser(prog: str) -> argparse.ArgumentParser:
    parser = printable.Parser(
        prog=prog, description="Print the ways to serve a model with vLLM, cheapest first."
    )
    parser.add_argument("name", metavar="NAME", help="the model's name, or its folder")
    parser.add_argument(
        "--context",
        type=_tokens,
        metavar="TOKENS",
        help="the longest request, such as 32k or 32K (default: the model's own)",
    )
    parser.add_argument(
        "--requests",
        type=_tokens,
        default=1,
        metavar="N",
        help="requests of this length at once (default: %(default)s)",
    )
    parser.add_argument(
        "--zone", default=STAND_IN, help="the zone or region of the prices (default: %(default)s)"
    )
    return parser


def _tokens(text: str) -> int:
    try:
        value = whole_number(text)
    except ValueError:
        value = 0
    if not 0 < value < 10**12:
        message = f"{text!r} is invalid. Write a number, such as 32k for 32,000 or 32K for 32,768"
        raise argparse.ArgumentTypeError(message)
    return value


if __name__ == "__main__":
    sys.exit(main())
