"""Taints and the tolerations that match them."""

from collections.abc import Iterable

from ml_foundations.kubernetes.objects import Manifest


def untolerated_taints(
    tolerations: Iterable[Manifest], taints: Iterable[Manifest]
) -> list[Manifest]:
    """Return the taints that keep a pod off a node, because no toleration matches them."""
    tolerations = list(tolerations)
    forbidding = [taint for taint in taints if taint.get("effect") in ("NoSchedule", "NoExecute")]
    untolerated: list[Manifest] = []
    for taint in forbidding:
        if not any(_tolerates(toleration, taint) for toleration in tolerations):
            untolerated.append(taint)
    return untolerated


def described_taint(taint: Manifest) -> str:
    """Return a taint as kubectl writes it: key=value:effect."""
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key')}{value}:{taint['effect']}"


def _tolerates(toleration: Manifest, taint: Manifest) -> bool:
    # A toleration without an effect or a key tolerates all of them.
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint.get("key"):
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Equal":
        return (toleration.get("value") or "") == (taint.get("value") or "")
    # Lt and Gt belong to a feature gate that is off by default up to Kubernetes 1.36.
    return operator == "Exists"
