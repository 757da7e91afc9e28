"""Whether the pods of a Job talk to each other: then they do their work only together."""

import re

from ml_foundations.kubernetes.objects import Manifest, mappings, section, texts
from ml_foundations.kubernetes.quantities import whole_number

_NODES = re.compile(r"--(?:nnodes|num[_-]machines|num[_-]nodes)[=\s]+(\d+)(?![\d:])")
"""The pods that a launcher waits for: torchrun (not an elastic MIN:MAX), accelerate, deepspeed."""
_NODES_VARIABLE = "PET_NNODES"
"""The variable that torchrun reads in place of --nnodes (PyTorch, torch.distributed.run)."""
_MPI = re.compile(r"\bmpi(?:run|exec)\b.*\s--?(?:hostfile|machinefile|host|H)\b", re.DOTALL)
"""A launcher of MPI that names the pods on which its processes run."""


def talk(job: Manifest) -> bool:
    """Return whether all pods of a Job's spec, which run at once, need each other.

    They find each other by index and name, or a launcher waits for as many as there are.
    """
    count = job.get("parallelism")
    pod = section(job, "template", "spec")
    if not isinstance(count, int) or count < 2 or job.get("completions", count) != count:
        return False
    is_named = job.get("completionMode") == "Indexed" and bool(pod.get("subdomain"))
    return is_named or _launched(pod) >= count


def _launched(pod: Manifest) -> float:
    """Return how many pods the launchers in a pod's containers wait for; infinite for MPI."""
    launched = 0.0
    for container in mappings(pod, "containers"):
        words = [*texts(container, "command"), *texts(container, "args")]
        text = " ".join(words)
        if _MPI.search(text):
            return float("inf")
        for variable in mappings(container, "env"):
            if variable.get("name") == _NODES_VARIABLE:
                launched = max(launched, whole_number(variable.get("value")))
        launched = max([launched, *map(whole_number, _NODES.findall(text))])
    return launched
