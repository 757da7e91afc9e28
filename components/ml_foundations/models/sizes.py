"""Whether the processes of a program fit its GPUs, and its model the number of them.

Refusals are checks of vllm 0.11 to 0.33 (config/parallel.py, config/model.py, config/scheduler.py,
v1/worker, model_executor) and of the launchers. What no source states as a check is a warning.
"""

from collections.abc import Iterator
from fractions import Fraction

from ml_foundations.models.facts import KNOWN_ARCHITECTURES, ModelFacts
from ml_foundations.models.launches import VISIBLE, Launch
from ml_foundations.models.reasons import Cause, Reason, refused, warning
from ml_foundations.models.serving import FIT, Serving

_FP8_BLOCK = 128
_MOST_UTILIZATION = Fraction(98, 100)
"""Above it, CUDA's own memory and NCCL's may not leave so much free."""


def check_sizes(
    serving: Serving,
    facts: ModelFacts | None = None,
    *,
    gpus: int,
    pods: int | None = 1,
    is_partition: bool = False,
) -> list[Reason]:
    """Return what the sizes of a server do not meet.

    Args:
        serving: The server.
        facts: Its model, if known.
        gpus: GPUs of the container, at least one.
        pods: Pods that serve together, None if not known.
        is_partition: Whether each GPU is a partition (MIG).
    """
    reasons: list[Reason] = []
    if not serving.unknown & {"tensor", "pipeline", "prefill_context", "nodes", "executor"}:
        processes = _of_vllm if serving.engine == "vllm" else _of_others
        reasons += processes(serving, gpus, pods)
    if is_partition and serving.tensor > 1:
        path = serving.paths.get("tensor", "")
        reasons.append(warning(Cause.PARTITIONS, serving.tensor, 1, path))
    if serving.engine == "vllm":
        reasons += _lengths(serving, facts)
        if facts is not None and not serving.unknown & {"tensor", "memory"}:
            reasons += _of_model(serving, facts)
    return reasons


def _of_others(serving: Serving, gpus: int, pods: int | None) -> Iterator[Reason]:
    path = serving.paths.get("tensor", "")
    if serving.engine == "sglang" and serving.tensor % serving.nodes:
        yield refused(Cause.NODES, serving.tensor, serving.nodes, path)
    per_pod = -(-serving.tensor * serving.pipeline // serving.nodes)
    if per_pod > gpus:
        yield warning(Cause.GPUS, per_pod, gpus, path, sizes=f"TP {serving.tensor}")
    elif per_pod < gpus and serving.data == 1:
        yield warning(Cause.IDLE_GPUS, per_pod, gpus, path)
    if serving.nodes > 1 and pods not in (None, serving.nodes):
        yield warning(Cause.PODS, serving.nodes, pods, serving.paths.get("nodes", ""))


def _of_vllm(serving: Serving, gpus: int, pods: int | None) -> Iterator[Reason]:
    paths = [serving.paths[key] for key in ("tensor", "pipeline", "data") if key in serving.paths]
    path = next(iter(paths), "")
    replicas = _local_replicas(serving)
    numbers = {"TP": serving.tensor, "PP": serving.pipeline, "PCP": serving.prefill_context}
    numbers["DP"] = replicas or 1
    sizes = " x ".join(f"{name} {size}" for name, size in numbers.items() if size > 1) or "TP 1"
    if serving.data_local is not None and serving.data_local > serving.data:
        local = serving.paths.get("data_local", "")
        yield refused(Cause.LOCAL_DATA, serving.data_local, serving.data, local)
    if serving.executor not in (None, "mp", "uni", "ray"):
        return  # launched by something else
    if serving.nodes > 1:
        yield from _on_nodes(serving, gpus, pods, path, sizes)
        return
    if serving.executor in (None, "ray") and serving.has_ray is not False:
        return  # the GPUs of that cluster are not known
    if serving.executor == "ray":
        if pods is not None and serving.world > gpus * pods:
            yield refused(Cause.GPUS, serving.world, gpus * pods, path, sizes=sizes)
        return
    # Without the backend's address, replicas that Ray starts are not in this container.
    needed = serving.world * (replicas or 1) if serving.data_backend == "mp" else serving.world
    if needed > gpus:
        yield refused(Cause.GPUS, needed, gpus, path, sizes=sizes)
    elif needed < gpus and replicas and serving.data_backend == "mp":
        yield warning(Cause.IDLE_GPUS, needed, gpus, path)


def _on_nodes(
    serving: Serving, gpus: int, pods: int | None, path: str, sizes: str
) -> Iterator[Reason]:
    needed = serving.world * serving.data
    limit = serving.nodes * gpus
    if serving.executor == "ray":
        yield refused(Cause.EXECUTOR, "ray", "mp", serving.paths.get("executor", ""))
    elif needed > limit and "data" not in serving.unknown:
        yield refused(Cause.GPUS, needed, limit, path, sizes=sizes)
    elif needed < limit and "data" not in serving.unknown:
        yield warning(Cause.IDLE_GPUS, needed, limit, path)
    if pods not in (None, serving.nodes):
        yield warning(Cause.PODS, serving.nodes, pods, serving.paths.get("nodes", ""))


def _local_replicas(serving: Serving) -> int | None:
    """Return the replicas that the container itself starts, or None if not known."""
    if serving.unknown & {"data", "data_local", "data_rank"}:
        return None
    if serving.data_local is not None:
        return serving.data_local
    if serving.data_rank is not None or serving.data_external:
        return 1
    return None if serving.data_hybrid else serving.data


def _of_model(serving: Serving, facts: ModelFacts) -> Iterator[Reason]:
    tensor = serving.tensor
    name = facts.name
    path = serving.paths.get("tensor", "")
    if facts.heads and facts.heads % tensor:
        yield refused(Cause.HEADS, facts.heads, tensor, path, model=name)
        return
    kv_heads = facts.kv_heads or tensor
    if facts.attention in ("full", "sliding") and max(kv_heads, tensor) % min(kv_heads, tensor):
        yield refused(Cause.KV_HEADS, kv_heads, tensor, path, model=name)
    vocabulary = -(-(facts.vocabulary or 0) // 64) * 64
    if vocabulary % tensor:
        yield refused(Cause.VOCABULARY, vocabulary, tensor, path, model=name)
    inner = facts.expert_intermediate if facts.experts else facts.intermediate
    is_divided = not facts.experts or not (serving.expert_parallel or serving.data > 1)
    is_in_blocks = facts.quantization == "fp8-block" and is_divided
    if is_in_blocks and inner and inner % (tensor * _FP8_BLOCK):
        yield refused(Cause.FP8_BLOCK, inner, tensor, path, model=name)
    is_dense = facts.architecture in KNOWN_ARCHITECTURES and not facts.experts
    if serving.expert_parallel and is_dense:
        path = serving.paths.get("expert_parallel", "")
        yield refused(Cause.EXPERTS, 0, 1, path, model=name)
    context = serving.decode_context
    is_replicated = facts.attention != "full" or tensor > kv_heads
    if context > 1 and (tensor % context or not is_replicated):
        path = serving.paths.get("decode_context", "")
        yield refused(Cause.DECODE_CONTEXT, context, tensor, path, model=name)
    stages = serving.layers_of_stages
    is_complete = len(stages) == serving.pipeline and sum(stages) == facts.layers
    if stages and serving.pipeline > 1 and facts.layers and not is_complete:
        path = "env[VLLM_PP_LAYER_PARTITION]"
        yield refused(Cause.STAGES, stages, facts.layers, path, stages=serving.pipeline)


def _lengths(serving: Serving, facts: ModelFacts | None) -> Iterator[Reason]:
    longest = facts.max_length if facts and "memory" not in serving.unknown else None
    length = None if serving.max_length == FIT else serving.max_length
    if length is not None and longest and length > longest and serving.allows_long is False:
        path = serving.paths.get("max_length", "")
        model = facts.name if facts else ""
        yield refused(Cause.LENGTH_OF_MODEL, length, longest, path, model=model)
    limits = {"max-num-seqs": serving.sequences}
    if not serving.chunked_prefill:
        limits["the longest length"] = length
    for least, limit in limits.items():
        batched = serving.batched_tokens
        if batched is not None and limit is not None and batched < limit:
            path = serving.paths.get("batched_tokens", "")
            yield refused(Cause.BATCH, batched, limit, path, least=least)
    utilization = serving.utilization
    path = serving.paths.get("utilization", "")
    if utilization is not None and not 0 < utilization < 1:
        yield refused(Cause.UTILIZATION, utilization, 1, path)
    elif utilization is not None and utilization >= _MOST_UTILIZATION:
        yield warning(Cause.UTILIZATION, utilization, _MOST_UTILIZATION, path)


def check_launch(launch: Launch, *, gpus: int, pods: int | None = 1) -> list[Reason]:
    """Return what the processes of a training program do not meet.

    Args:
        launch: How the program starts.
        gpus: GPUs of each pod, at least one.
        pods: Pods that run it together, None if not known.
    """
    reasons = [*launch.reasons]
    per_node = launch.per_node
    path = launch.path
    if per_node is not None and per_node not in (VISIBLE, gpus):
        cause = Cause.GPUS if per_node > gpus else Cause.IDLE_GPUS
        sizes = f"{launch.launcher} with {per_node} processes on a node"
        reasons.append(warning(cause, per_node, gpus, path, sizes=sizes))
    if launch.nodes is not None and pods is not None:
        fewest, most = launch.nodes
        # Pods with one node each train separately.
        if most > 1 and not fewest <= pods <= most:
            reasons.append(warning(Cause.PODS, fewest if pods < fewest else most, pods, path))
    return reasons
