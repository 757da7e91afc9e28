"""Resources of a program that make the same."""

from collections.abc import Iterator

from ml_foundations.kubernetes.objects import name_of, section
from ml_foundations.planning.model.declared import of_kind
from ml_foundations.planning.rules.findings import Finding, Severity, error
from ml_foundations.planning.rules.rule import rule
from ml_foundations.planning.rules.stack import Stack


@rule(
    "declared-twice",
    Severity.ERROR,
    "Each object, cluster, node pool, network and bucket is made by one resource of the program.",
    source=(
        "pulumi/pulumi-kubernetes, pull request 4278 (a creation overwrites nothing since version "
        "4.29), and Google's APIs, ALREADY_EXISTS"
    ),
    example="""
        apiVersion: v1
        kind: Namespace
        metadata: {name: ml}
        ---
        apiVersion: v1
        kind: Namespace
        metadata: {name: ml, labels: {team: ml}}
    """,
)
def declared_twice(stack: Stack) -> Iterator[Finding]:
    """Yield each resource whose creation fails, because another has made the same.

    What is in a namespace that is made twice follows from it.
    """
    objects = [inputs for (_, inputs), _, _ in stack.repeated if "kind" in inputs]
    namespaces = set(map(name_of, of_kind(objects, "Namespace")))
    for (type_, inputs), first, second in stack.repeated:
        metadata = section(inputs, "metadata") or inputs
        if metadata.get("namespace") in namespaces:
            continue
        names = filter(None, (metadata.get("namespace"), metadata["name"]))
        about = f"{type_.rpartition(':')[2]} {'/'.join(names)}"
        message = (
            f"the resources {first} and {second} both make it, and the second creation fails: it "
            "exists already"
        )
        yield error("declared-twice", about, "name", message, "Leave one out, or rename one.")
