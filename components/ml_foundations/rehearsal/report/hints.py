"""What to try after ``up``: commands that work when they are pasted."""

import os
import re
import shlex
import shutil
from collections.abc import Iterable

from ml_foundations.rehearsal.cloud.store import ASSUMED, Store
from ml_foundations.rehearsal.engine import project_files
from ml_foundations.rehearsal.layout import SOURCE_ROOT, Rehearsal
from ml_foundations.rehearsal.report.workloads import Workload

_TOO_MANY = {"dev": 8, "staging": 8, "prod": 30}
"""More replicas than the quota and the pool of a stack of this project allow."""
_REPLICAS = re.compile(r"\breplicas: (\d+)")
_MOST = re.compile(r"\bmaxReplicas: (\d+)")


def hints(rehearsal: Rehearsal, workloads: Iterable[Workload] = ()) -> str:
    """Return what to try next: a change, a refusal, the page, the cluster and the removal."""
    page = shlex.quote(os.path.relpath(rehearsal.page))
    has_screen = "DISPLAY" in os.environ or "WAYLAND_DISPLAY" in os.environ
    can_open = has_screen and shutil.which("xdg-open")
    look = f"xdg-open {page}" if can_open else rehearsal.page.as_uri()
    assumed: list[str] = []
    if any(ASSUMED.name in Store(cluster).pools() for cluster in rehearsal.replicas):
        assumed.append(
            f"\nThe program declares no nodes: it ran on {ASSUMED.max_nodes} assumed nodes of "
            f"{ASSUMED.machine_type}. On copies of yours: kubectl get nodes -o yaml > nodes.yaml; "
            f"{rehearsal.command('up', nodes='nodes.yaml')}"
        )
    return "\n".join(
        [
            *assumed,
            "\nTry next",
            *_edits(rehearsal),
            "  Look at the page in a browser, and into the cluster:",
            f"    {look}",
            f'    eval "$({rehearsal.command("env")})"; kubectl get nodes,pods,pvc,quota -A',
            *_disruption(rehearsal, workloads),
            f"  Remove it: {rehearsal.command('down')}",
        ]
    )


def _disruption(rehearsal: Rehearsal, workloads: Iterable[Workload]) -> list[str]:
    """Return how to take a node away from a JobSet that runs."""
    for row in workloads:
        if (row.kind, row.state) == ("JobSet", "Running"):
            command = rehearsal.command("disrupt", node=row.nodes[0], how="failure")
            return [
                f"  Let a node of JobSet {row.name} fail, and see it start again:",
                f"    {command}",
            ]
    return []


def _edits(rehearsal: Rehearsal) -> list[str]:
    """Return edits of a stack file of this project, or what to change in another program."""
    edits_of_others = [
        "  Change a number in your program, and run it again. Only what differs is updated.",
        "  Request more memory than a node has. The proof names the workload and the nearest pool.",
        f"    {rehearsal.command('up')}",
    ]
    too_many = _TOO_MANY.get(rehearsal.stack)
    if rehearsal.project != SOURCE_ROOT.parent or not too_many:
        return edits_of_others
    file = project_files.source_stack_file(rehearsal)
    replicas = _REPLICAS.search(file.read_text())
    most = _MOST.search(file.read_text())
    if not replicas:
        return edits_of_others
    path = shlex.quote(os.path.relpath(file))
    up = rehearsal.command("up")

    def edit(count: int, bound: str = "") -> str:
        script = f"s/ replicas: [0-9]*/ replicas: {count}/"
        # An autoscaler's bound changes with it.
        script += f"; s/ maxReplicas: [0-9]*/ maxReplicas: {bound}/" if most and bound else ""
        return f"    sed -i '{script}' {path} && {up}"

    now = int(replicas[1])
    fewer = 1 if now == 2 else 2
    changes = "the Deployment and its autoscaler change" if most else "the Deployment changes"
    return [
        f"  Run {fewer} of its model servers. Only {changes}:",
        edit(fewer),
        f"  Ask for {too_many}. The proof refuses them, and what runs stays:",
        edit(too_many, str(too_many)),
        f"  Set it back to {now}:",
        edit(now, most[1] if most else ""),
    ]
