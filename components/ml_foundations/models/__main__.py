"""``python -m ml_foundations.models``: the ways to serve a model, cheapest first."""

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from ml_foundations.catalog.charges import STAND_IN
from ml_foundations.catalog.locations import region_of
from ml_foundations.catalog.machine_types import MACHINE_TYPES, MachineType, priced_regions
from ml_foundations.kubernetes import printable
from ml_foundations.kubernetes.reading import ReadError
from ml_foundations.kubernetes.spelling import did_you_mean, not_among
from ml_foundations.kubernetes.words import number
from ml_foundations.models.arguments import whole_number
from ml_foundations.models.facts import MODELS, ModelFacts
from ml_foundations.models.ways import Way, doubts, ways

_MOST = 12
"""The most ways that are printed."""
_COLUMNS = ("MACHINE", "GPUS", "TP", "WEIGHTS", "KV GIB", "REQUESTS", "USD/H")

PoolsOf = Callable[[str, Path], Iterable[tuple[str, MachineType]]]
"""Returns the names and machine types of the node pools of a stack, in the folder of a project."""


def main(
    arguments: Sequence[str] | None = None,
    prog: str = "python -m ml_foundations.models",
    pools_of: PoolsOf | None = None,
) -> int:
    """Print the ways to serve a model with vLLM, and return the exit code."""
    options = _parser(prog, has_stacks=pools_of is not None).parse_args(arguments)
    try:
        facts = ModelFacts.named(options.name)
    except ReadError as error:
        hint = "" if Path(options.name).exists() else did_you_mean(options.name, MODELS)
        print(printable.line(f"error: {error}. {hint}".rstrip()), file=sys.stderr)
        return 2
    machines = dict(MACHINE_TYPES)
    pools: dict[str, list[str]] = {}
    if pools_of and options.stack:
        for name, machine in pools_of(options.stack, options.project):
            machines.setdefault(machine.name, machine)
            pools.setdefault(machine.name, []).append(name)
    length = options.context or facts.max_length
    if length and facts.max_length and length > facts.max_length:
        most = f"{facts.model} has a context of {facts.max_length:,} tokens at most"
        refused = f"error: {most}, not {length:,}. Lower --context"
        print(printable.line(refused), file=sys.stderr)
        return 2
    fitting = ways(
        facts,
        context=options.context,
        requests=options.requests,
        machines=machines.values(),
        region=options.region,
        kept=pools,
    )
    requests = number(options.requests, "request")
    asked = f"{requests} of {length:,} tokens" if length else requests
    if not fitting:
        print(printable.line(f"No machine of the catalog surely serves {facts.model} to {asked}."))
        print(printable.line(_remedy(facts, options.context)))
        return 1
    print(
        printable.line(f"{facts.model} with vLLM, for {asked} at once, prices in {options.region}:")
    )
    listed = [way for n, way in enumerate(fitting) if n < _MOST or way.machine in pools]
    print(printable.lines(_table(facts, listed, pools)))
    if more := len(fitting) - len(listed):
        print(printable.line(f"{number(more, 'dearer way')} not listed."))
    if pools_of and options.stack and not any(way.machine in pools for way in listed):
        print(printable.line(f"No node pool of {options.stack} surely serves it."))
    return 0


def _remedy(facts: ModelFacts, context: int | None) -> str:
    """Return what to change, or what is not known, if nothing serves a model."""
    if not context and not facts.max_length:
        return "The longest length of the model is not known. Set --context."
    unknown = "; ".join(doubts(facts, context=context))
    if unknown:
        return f"{unknown[0].upper()}{unknown[1:]}."
    return "Ask for a shorter --context or fewer --requests, or divide these among replicas."


def _table(
    facts: ModelFacts, fitting: Sequence[Way], pools: Mapping[str, Sequence[str]]
) -> list[str]:
    rows: list[tuple[str, ...]] = [(*_COLUMNS, "POOLS" if pools else "")]
    for way in fitting:
        gpus = f"{way.gpu_count} x {way.gpu.removeprefix('nvidia-')}"
        weights = way.quantization or facts.quantization or facts.dtype
        price = "" if way.usd_per_hour is None else f"{way.usd_per_hour:.2f}"
        cache = f"{float(way.cache_gib):.1f}"
        tensor = str(way.tensor)
        names = ", ".join(pools.get(way.machine, ()))
        requests = "any" if way.requests is None else f"{way.requests:,}"
        rows.append((way.machine, gpus, tensor, weights, cache, requests, price, names))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines: list[str] = []
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        lines.append("  ".join(cells).rstrip())
    return lines


def _parser(prog: str, *, has_stacks: bool) -> argparse.ArgumentParser:
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
        "--zone",
        dest="region",
        type=_region,
        default=STAND_IN,
        help="the zone or region of the prices (default: %(default)s)",
    )
    if has_stacks:
        parser.add_argument("--stack", help="mark what the node pools of this stack can serve")
        parser.add_argument(
            "--project",
            type=Path,
            default=".",
            help="the folder of the Pulumi project (default: the current folder)",
        )
    return parser


def _region(text: str) -> str:
    region = region_of(text)
    known = priced_regions()
    if region not in known:
        raise argparse.ArgumentTypeError(not_among(region, "region with prices", known))
    return region


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
