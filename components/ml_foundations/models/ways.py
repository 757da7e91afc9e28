"""The ways to serve a model, cheapest first."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

from ml_foundations.catalog.charges import STAND_IN
from ml_foundations.catalog.machine_types import GPUS, Accelerator, MachineType
from ml_foundations.models.command import Release
from ml_foundations.models.facts import ModelFacts
from ml_foundations.models.memory import GpuMemory, MemoryVerdict, check_memory
from ml_foundations.models.reasons import GIB, TENSOR_SIZES, Cause, Severity
from ml_foundations.models.serving import Serving
from ml_foundations.models.sizes import check_sizes

_NEWEST: Release = (0, 33, 0)


@dataclass(frozen=True, kw_only=True)
class Way:
    """A machine that serves a model. What it holds is what it surely holds."""

    machine: str
    gpu: str
    gpu_count: int
    tensor: int
    """GPUs that the server uses."""
    quantization: str
    """fp8 if the server quantizes the weights, empty if they stay as they are."""
    cache_gib: Fraction
    """What is left for the KV cache on each GPU."""
    requests: int | None
    """Requests of the longest length at once, None if they need no cache."""
    usd_per_hour: Decimal | None
    """The list price of the machine, None if not known."""


def ways(
    facts: ModelFacts,
    *,
    context: int | None,
    requests: int,
    machines: Iterable[MachineType],
    region: str = STAND_IN,
    kept: Collection[str] = (),
    release: Release | None = None,
) -> list[Way]:
    """Return the ways to serve a model that fit, cheapest first.

    Args:
        facts: The model.
        context: Tokens of the longest request, None for the model's own.
        requests: Requests of that length that the cache must hold at once.
        machines: Machine types to choose from.
        region: Whose prices count.
        kept: Names of machine types that are listed even if others have the same GPUs for less.
        release: That of vLLM, None for the newest that is known.
    """
    serving = Serving(engine="vllm", release=release or _NEWEST, max_length=context)
    on_gpus: dict[str, list[Way]] = {}
    fitting: list[Way] = []
    for machine in machines:
        if machine.gpu is None or machine.has_part_of_gpu:
            continue
        if machine.gpu not in on_gpus:
            on_gpus[machine.gpu] = [*_on_gpu(facts, machine.gpu, serving)]
        price = machine.price(region)
        for way in on_gpus[machine.gpu]:
            if way.tensor <= machine.gpu_count and (way.requests or requests) >= requests:
                count = machine.gpu_count
                priced = replace(way, machine=machine.name, gpu_count=count, usd_per_hour=price)
                fitting.append(priced)
    # Machines whose prices are not known are last.
    fitting.sort(key=lambda way: (way.quantization, -way.tensor, way.machine))
    fitting.sort(key=lambda way: (way.usd_per_hour is None, way.usd_per_hour or 0))
    # Of the same GPUs, the cheapest machine counts, with all of them.
    best: dict[tuple[str, int, str], Way] = {}
    for way in fitting:
        chosen_by = way.machine if way.machine in kept else way.gpu
        best.setdefault((chosen_by, way.gpu_count, way.quantization), way)
    return [*best.values()]


def doubts(facts: ModelFacts, *, context: int | None) -> list[str]:
    """Return what is not known about a model, if no GPU surely serves it, as sentences."""
    serving = Serving(engine="vllm", release=_NEWEST, max_length=context)
    verdicts = [verdict for gpu in GPUS for _, verdict in _verdicts(facts, gpu, serving)]
    if not all(verdict.severity for verdict in verdicts):
        return []
    reasons = [reason for verdict in verdicts for reason in verdict.reasons]
    about_model = [reason for reason in reasons if reason.cause is not Cause.UNKNOWN_GPU_MEMORY]
    unknown = [item for item in about_model if item.severity is Severity.UNDETERMINED]
    return [*dict.fromkeys(reason.sentences()[0] for reason in unknown)]


def _verdicts(
    facts: ModelFacts, gpu: str, serving: Serving
) -> Iterator[tuple[Serving, MemoryVerdict]]:
    memory = GpuMemory.of(Accelerator((GPUS[gpu],)))
    for scheme in ("",) if facts.quantization else ("", "fp8"):
        for size in TENSOR_SIZES:
            given = replace(serving, tensor=size, quantization=scheme or serving.quantization)
            faults = check_sizes(given, facts, gpus=size, capability=memory.compute_capability)
            if not any(fault.severity is Severity.REFUSED for fault in faults):
                yield given, check_memory(given, facts, memory)


def _on_gpu(facts: ModelFacts, gpu: str, serving: Serving) -> Iterator[Way]:
    for given, verdict in _verdicts(facts, gpu, serving):
        needs_cache = not verdict.request or verdict.request.high != 0
        if verdict.severity or not verdict.cache or (needs_cache and not verdict.requests):
            continue
        yield Way(
            machine="",
            gpu=gpu,
            gpu_count=0,
            tensor=given.tensor,
            quantization=given.quantization or "",
            cache_gib=verdict.cache.low / GIB,
            requests=int(verdict.requests.low) if verdict.requests else None,
            usd_per_hour=None,
        )
