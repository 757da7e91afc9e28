"""An interpreter of remedies, for tests: it does with documents what a finding proposes."""

import copy
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from ml_foundations.kubernetes.quantities import format_milli, milli
from ml_foundations.planning.rules.findings import Finding

from tests.differential.case import Document, pod_template
from tests.factories import HOSTNAME, MAX_NODES


class Stack:
    """Documents, and the object of them that a finding is about."""

    def __init__(self, documents: Sequence[Document], finding: Finding) -> None:
        self.documents = [*copy.deepcopy(documents)]
        kind, _, name = finding.object.partition(" ")
        self.about = self.find(kind, name.rpartition("/")[2])

    def find(self, kind: str, name: str) -> Document:
        for each in self.documents:
            if (each["kind"], each["metadata"]["name"]) == (kind, name):
                return each
        return {}

    @property
    def pod(self) -> Document:
        return pod_template(self.about)["spec"]

    def put(self, path: str, value: object = None) -> None:
        """Set a field of the object or of its pods; without a value, remove it."""
        *parents, last = path.split(".")
        holder = self.about if path.startswith("spec.") else self.pod
        for key in parents:
            holder = holder[key]
        holder.pop(last, None)
        if value is not None:
            holder[last] = value

    def lower(self, path: str, count: str) -> None:
        self.put(path, int(count))

    def request(self, name: str, amount: str = "1") -> None:
        """Let the first container alone request an amount."""
        for container in (*self.pod["containers"], *self.pod.get("initContainers", ())):
            for amounts in container.get("resources", {}).values():
                amounts.pop(name, None)
        resources = self.pod["containers"][0].setdefault("resources", {})
        for field in ("requests", "limits"):
            resources[field] = {**resources.get(field, {}), name: amount}

    def request_at_most(self, amount: str, name: str) -> None:
        self.request(name, amount)

    def tolerate(self, taints: str) -> None:
        for key, value, effect in re.findall(r"([\w./-]+)(?:=([\w.-]*))?:(\w+)", taints):
            others = [each for each in self.pod.get("tolerations", []) if each.get("key") != key]
            self.put("tolerations", [*others, {"key": key, "value": value, "effect": effect}])

    def raise_priority(self, value: str) -> None:
        self.find("PriorityClass", self.pod["priorityClassName"])["value"] = int(value)

    def select(self, values: str) -> None:
        for key, value in re.findall(r"nodes have (\S+) ([\w.-]+)", values):
            self.pod["nodeSelector"][key] = value
        for key in re.findall(r"no node has ([^; )]+)", values):
            self.pod["nodeSelector"].pop(key)

    def uncordon(self, name: str) -> None:
        self.find("Node", name)["spec"].pop("unschedulable")

    def raise_pool(self, name: str, count: str) -> None:
        self.find("Node", name)["metadata"]["annotations"][MAX_NODES] = count

    def add_nodes(self, count: str) -> None:
        """Add so many nodes like each that is there."""
        for each in [each for each in self.documents if each["kind"] == "Node"]:
            for index in range(int(count)):
                more = copy.deepcopy(each)
                more["metadata"]["name"] = f"{each['metadata']['name']}-{index}"
                more["metadata"]["labels"][HOSTNAME] = more["metadata"]["name"]
                self.documents.append(more)

    def raise_amount(self, name: str, quota: str | None, amount: str) -> None:
        """Raise what a quota allows, or what the pod requests."""
        holder = self.find("ResourceQuota", quota) if quota else self.about
        if holder["kind"] == "ResourceQuota":
            holder["spec"]["hard"][name] = amount
        else:
            self.request(name, amount)

    def lower_queue(self, amount: str) -> None:
        flavor = self.about["spec"]["resourceGroups"][0]["flavors"][0]
        flavor["resources"][0]["nominalQuota"] = amount

    def raise_queue(self, name: str, queue: str, amount: str) -> None:
        (group,) = self.find("ClusterQueue", queue)["spec"]["resourceGroups"]
        (quota,) = (each for each in group["flavors"][0]["resources"] if each["name"] == name)
        quota["nominalQuota"] = format_milli(milli(quota["nominalQuota"]) + milli(amount))


_NAME = r"([\w./-]*\w)"
STEPS: dict[str, Callable[..., None]] = {
    rf"request (?:at most )?(\d[\w.]*) {_NAME}": Stack.request_at_most,
    rf"(?:request a whole number of|set requests\.|set resources\.requests\.) ?{_NAME}": Stack.request,
    r"tolerate (.*)": Stack.tolerate,
    r"raise its priority to (-?\d+)": Stack.raise_priority,
    r"nodeSelector \((.*)\)": Stack.select,
    r"(?:loosen|remove|leave|correct) (?!(?:it|the)\b)([\w.]*\w)(?! \()": Stack.put,
    rf"uncordon {_NAME}": Stack.uncordon,
    rf"raise the maximum of {_NAME} to (\d+) node": Stack.raise_pool,
    r"raise the number of nodes by (\d+)": Stack.add_nodes,
    r"lower (spec\.[\w.]+) to (\d+)": Stack.lower,
    rf"raise {_NAME}(?: of ResourceQuota {_NAME})? to {_NAME}": Stack.raise_amount,
    rf"lower (?!spec\.|nominal){_NAME} to (\d\w*)": Stack.request,
    r"lower nominalQuota \([^)]*\) to (\d+)": Stack.lower_queue,
    rf"raise nominalQuota of {_NAME} in ClusterQueue {_NAME} by {_NAME}": Stack.raise_queue,
}
"""The steps that remedies propose, and what each does."""
_ALTERNATIVES = re.compile(r",? or (?=(?:ask|give|lower|make|raise|set) )")


def applied(
    documents: Sequence[Document], finding: Finding
) -> Iterator[tuple[str, list[Document]]]:
    """Yield the documents after each alternative of a remedy, with its words; alternatives in other words are left out."""
    for words in _ALTERNATIVES.split(finding.remedy.rstrip(".")):
        steps = [
            (do, found)
            for pattern, do in STEPS.items()
            for found in re.finditer(pattern, words, re.IGNORECASE)
        ]
        stack = Stack(documents, finding)
        for do, found in steps:
            do(stack, *found.groups())
        if steps:
            yield words, stack.documents


def remains(finding: Finding, findings: Iterable[Finding]) -> bool:
    """Return whether a finding is among others, in whatever words."""
    return any(
        (each.rule, each.object, each.path) == (finding.rule, finding.object, finding.path)
        for each in findings
    )
