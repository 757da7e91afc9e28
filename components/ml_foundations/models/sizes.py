"""Whether the processes of a program fit its GPUs, and its model the number of them.

Refusals are checks of vllm 0.11 to 0.33 (engine/arg_utils.py, config, v1/worker, model_executor),
of sglang 0.5 (server_args.py, configs/model_config.py), of text-generation-inference 2.0 to 3.3
(launcher/src/main.rs) and of the launchers. What no source states as a check is a warning.
"""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import takewhile
from math import gcd

from ml_foundations.models.facts import KNOWN_ARCHITECTURES, ModelFacts
from ml_foundations.models.launches import VISIBLE, Launch
from ml_foundations.models.reasons import Cause, Reason, refused, warning
from ml_foundations.models.serving import FIT, Serving

_FP8_BLOCK = 128
_LEAST_FP8_BLOCK = 32
_REFINES_BLOCKS = (0, 29, 0)
_FP8_SINCE = (8, 9)
_PADS_SINCE = (10, 0)
"""SGLang may choose a kernel of Blackwell that pads the columns of experts."""
_NAMES_RAY = (0, 12, 0)
"""Since then, vLLM does not start Ray for GPUs of other nodes by itself (config/parallel.py)."""
_MOST_UTILIZATION = Fraction(98, 100)
"""Above it, CUDA's own memory and NCCL's may not leave so much free."""


def check_sizes(
    serving: Serving,
    facts: ModelFacts | None = None,
    *,
    gpus: int,
    pods: int | None = 1,
    is_partition: bool = False,
    capability: tuple[int, int] | None = None,
) -> list[Reason]:
    """Return what the sizes of a server do not meet.

    Args:
        serving: The server.
        facts: Its model, if known.
        gpus: GPUs of the container, at least one.
        pods: Pods that serve together, None if not known.
        is_partition: Whether each GPU is a partition (MIG).
        capability: The compute capability of the GPUs, None if not known.
    """
    reasons: list[Reason] = []
    # With a literal rank, each node has a separate object.
    pods = None if serving.has_literal_rank else pods
    if not serving.unknown & {"tensor", "pipeline", "prefill_context", "nodes", "executor"}:
        processes = _of_vllm if serving.engine == "vllm" else _of_others
        reasons += processes(serving, gpus, pods)
        visible = _visible(serving, gpus)
        if visible < gpus and not any(reason.cause is Cause.GPUS for reason in reasons):
            few = [item for item in processes(serving, visible, pods) if item.cause is Cause.GPUS]
            reasons += [replace(reason, cause=Cause.VISIBLE_GPUS) for reason in few]
    if is_partition and serving.tensor > 1:
        path = serving.paths.get("tensor", "")
        reasons.append(warning(Cause.PARTITIONS, serving.tensor, 1, path))
    reasons += _lengths(serving, facts)
    if serving.engine == "vllm":
        reasons += _utilization(serving)
    if facts is not None and not serving.unknown & {"tensor", "memory"}:
        if facts.heads and facts.heads % serving.tensor:
            path = serving.paths.get("tensor", "")
            reasons.append(
                refused(Cause.HEADS, facts.heads, serving.tensor, path, model=facts.name)
            )
        elif serving.engine == "vllm":
            reasons += _of_model(serving, facts, capability)
        elif serving.engine == "sglang":
            if facts.architecture in KNOWN_ARCHITECTURES:
                reasons += _kv_heads(serving, facts)  # srt/models: llama.py, qwen3.py and others
            reasons += _blocks(serving, facts, capability)
    return reasons


def _visible(program: Serving | Launch, gpus: int) -> int:
    """Return how many GPUs CUDA shows: it ends at the first number that the container lacks."""
    if program.visible is None:
        return gpus
    return len([*takewhile(range(gpus).__contains__, program.visible)])


def _of_others(serving: Serving, gpus: int, pods: int | None) -> Iterator[Reason]:
    path = serving.paths.get("tensor", "")
    # Replicas of the attention alone (--enable-dp-attention) share the GPUs.
    replicas = 1 if "memory" in serving.unknown else serving.data
    # Before SGLang divided TP x PP by the nodes, it divided TP.
    if serving.engine == "sglang" and serving.world % serving.nodes:
        yield refused(Cause.NODES, serving.world, serving.nodes, path)
    elif serving.engine == "sglang" and replicas > 1 and serving.nodes > 1:
        data = serving.paths.get("data", "")
        yield refused(Cause.DATA_OF_NODES, replicas, serving.nodes, data)
        return
    per_pod = -(-serving.world * replicas // serving.nodes)
    if per_pod > gpus:
        yield warning(Cause.GPUS, per_pod, gpus, path, sizes=_sizes(serving, replicas))
    elif per_pod < gpus and replicas == serving.data and "data" not in serving.unknown:
        yield warning(Cause.IDLE_GPUS, per_pod, gpus, path)
    if serving.nodes > 1 and pods not in (None, serving.nodes):
        yield warning(Cause.PODS, serving.nodes, pods, serving.paths.get("nodes", ""))


def _of_vllm(serving: Serving, gpus: int, pods: int | None) -> Iterator[Reason]:
    paths = [serving.paths[key] for key in ("tensor", "pipeline", "data") if key in serving.paths]
    path = next(iter(paths), "")
    replicas = _local_replicas(serving)
    sizes = _sizes(serving, replicas or 1)
    is_known = not serving.unknown & {"data", "data_local"}
    if is_known and serving.data_local is not None and serving.data_local > serving.data:
        local = serving.paths.get("data_local", "")
        yield refused(Cause.LOCAL_DATA, serving.data_local, serving.data, local)
    is_local = serving.data_local is not None or "data_local" in serving.unknown
    is_local |= serving.is_one_replica or serving.nodes > 1
    if serving.needs_data_local and not is_local:
        yield refused(Cause.NO_LOCAL_DATA, 0, 1, serving.paths["needs_data_local"])
        return
    if serving.executor not in (None, "mp", "uni", "ray") or serving.data_local == 0:
        return  # launched by something else, or without a replica
    is_ray = serving.executor == "ray"
    if serving.nodes > 1:
        if pods not in (None, serving.nodes):
            yield warning(Cause.PODS, serving.nodes, pods, serving.paths.get("nodes", ""))
        if is_ray:
            yield refused(Cause.EXECUTOR, "ray", "mp", serving.paths.get("executor", ""))
            return
        replicas = None if "data" in serving.unknown else serving.data
        limit = serving.nodes * gpus
    elif (serving.executor is None or is_ray) and serving.has_ray is not False:
        is_local = not is_ray and (serving.release or (0, 0, 0)) >= _NAMES_RAY
        if is_local and serving.world > gpus:
            yield refused(Cause.NO_RAY, serving.world, gpus, path, sizes=_sizes(serving, 1))
        return  # the GPUs of that cluster are not known
    elif is_ray:
        replicas = None
        limit = gpus * (pods or serving.world)
    else:
        # Without the backend's address, replicas that Ray starts are not in this container.
        replicas = replicas if serving.data_backend == "mp" else None
        limit = gpus
    needed = serving.world * (replicas or 1)
    if needed > limit:
        yield refused(Cause.GPUS, needed, limit, path, sizes=sizes)
    elif needed < limit and replicas:
        yield warning(Cause.IDLE_GPUS, needed, limit, path)


def _sizes(serving: Serving, replicas: int) -> str:
    """Return the sizes above 1 for a message."""
    numbers = {"TP": serving.tensor, "PP": serving.pipeline, "PCP": serving.prefill_context}
    numbers["DP"] = replicas
    return " x ".join(f"{name} {size}" for name, size in numbers.items() if size > 1) or "TP 1"


def _local_replicas(serving: Serving) -> int | None:
    """Return the replicas that the container itself starts, or None if not known.

    Without data_local, it starts all of them, whatever --data-parallel-start-rank is.
    """
    if serving.unknown & {"data", "data_local", "is_one_replica"}:
        return None
    if serving.data_local is not None:
        return serving.data_local
    return 1 if serving.is_one_replica else serving.data


def _of_model(
    serving: Serving, facts: ModelFacts, capability: tuple[int, int] | None
) -> Iterator[Reason]:
    tensor = serving.tensor
    name = facts.name
    path = serving.paths.get("tensor", "")
    kv_heads = facts.kv_heads or tensor
    yield from _kv_heads(serving, facts)
    vocabulary = -(-(facts.vocabulary or 0) // 64) * 64
    if vocabulary % tensor:
        yield refused(Cause.VOCABULARY, vocabulary, tensor, path, model=name)
    yield from _blocks(serving, facts, capability)
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


def _kv_heads(serving: Serving, facts: ModelFacts) -> Iterator[Reason]:
    tensor = serving.tensor
    heads = facts.kv_heads or tensor
    if facts.attention in ("full", "sliding") and max(heads, tensor) % min(heads, tensor):
        path = serving.paths.get("tensor", "")
        yield refused(Cause.KV_HEADS, heads, tensor, path, model=facts.name)


def _blocks(
    serving: Serving, facts: ModelFacts, capability: tuple[int, int] | None
) -> Iterator[Reason]:
    """Yield whether GPUs divide the columns of a checkpoint into blocks of FP8.

    Without expert parallelism, all replicas divide the experts (vllm, fused_moe/config.py). Since
    0.29, scales of experts are refined as they are loaded, if a kernel of FP8 can read them
    (fused_moe/oracle/fp8.py, refine_fp8_moe_block_shape): that of Marlin, for older GPUs, cannot.
    In SGLang, replicas divide nothing (sglang 0.5.4 and 0.5.23, layers/quantization/fp8.py and
    layers/moe/fused_moe_triton/layer.py).
    """
    inner = facts.expert_intermediate if facts.experts else facts.intermediate
    is_vllm = serving.engine == "vllm"
    parts = serving.tensor
    if facts.experts:
        parts *= serving.data * serving.prefill_context if is_vllm else 1
        parts = 1 if serving.expert_parallel else parts
    is_whole = not inner or inner % (parts * _FP8_BLOCK) == 0
    is_unknown = bool(serving.unknown & {"data", "expert_parallel"})
    if facts.quantization != "fp8-block" or not inner or is_whole or is_unknown:
        return
    path = serving.paths.get("tensor", serving.paths.get("data", ""))
    is_even = bool(facts.experts) and inner % parts == 0
    if not is_vllm:
        may_pad = is_even and (capability is None or capability >= _PADS_SINCE)
        reason = warning if may_pad else refused
        yield reason(Cause.FP8_BLOCK, inner, parts, path, model=facts.name)
        return
    block = gcd(_FP8_BLOCK, inner // parts, facts.hidden or 1)
    is_refined = is_even and block >= _LEAST_FP8_BLOCK
    is_newer = serving.release is None or serving.release >= _REFINES_BLOCKS
    is_able = capability is None or capability >= _FP8_SINCE
    is_known = None not in (serving.release, capability)
    if not (is_refined and is_newer and is_able):
        yield refused(Cause.FP8_BLOCK, inner, parts, path, model=facts.name)
    elif not is_known:
        yield warning(Cause.FP8_BLOCK, inner, parts, path, model=facts.name)


def _lengths(serving: Serving, facts: ModelFacts | None) -> Iterator[Reason]:
    length = None if serving.max_length == FIT else serving.max_length
    longest = _longest(serving, facts) if facts else None
    if facts and length is not None and longest and length > longest:
        path = serving.paths.get("max_length", "")
        yield refused(Cause.LENGTH_OF_MODEL, length, longest, path, model=facts.name)
    batched = serving.batched_tokens
    least = [("batched_tokens", batched, serving.sequences, "max-num-seqs")]
    if not serving.chunked_prefill or serving.engine == "tgi":
        least.append(("batched_tokens", batched, length, "the longest length"))
    if serving.input_length is not None:
        more = serving.input_length + 1
        least.append(("max_length", length, more, "max-input-tokens and one more"))
    for key, value, limit, name in least:
        if value is not None and limit is not None and value < limit:
            yield refused(Cause.BATCH, value, limit, serving.paths.get(key, ""), least=name)


def _longest(serving: Serving, facts: ModelFacts) -> int | None:
    """Return the longest length that a server accepts for its model, or None if not known."""
    if serving.engine == "tgi" or serving.allows_long is not False or "memory" in serving.unknown:
        return None
    # SGLang multiplies that of Gemma 3 by its factor of RoPE (get_context_length).
    is_scaled = serving.engine == "sglang" and facts.attention not in ("full", "mla")
    return None if is_scaled else facts.max_length


def _utilization(serving: Serving) -> Iterator[Reason]:
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
    visible = _visible(launch, gpus)
    per_node = visible // launch.divides if launch.per_node == VISIBLE else launch.per_node
    path = launch.path
    if per_node is not None and not per_node == gpus == visible:
        is_hidden = visible < per_node <= gpus
        cause = Cause.GPUS if per_node > gpus else Cause.IDLE_GPUS
        limit = visible if is_hidden else gpus
        sizes = f"{launch.launcher} with {per_node} processes on a node"
        cause = Cause.VISIBLE_GPUS if is_hidden else cause
        reasons.append(warning(cause, per_node, limit, path, sizes=sizes))
    if launch.nodes is not None and pods is not None:
        fewest, most = launch.nodes
        # Pods with one node each train separately.
        if most > 1 and not fewest <= pods <= most:
            nodes = fewest if pods < fewest else most
            reasons.append(warning(Cause.PODS, nodes, pods, launch.nodes_path))
    return reasons
