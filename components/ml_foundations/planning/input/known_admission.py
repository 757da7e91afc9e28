"""The webhooks and policies whose effects planning follows: those of the controllers and of GKE."""

import hashlib
import json

from ml_foundations.catalog.tables import rows
from ml_foundations.kubernetes.objects import Manifest, mappings, name_of, section

_KNOWN = {
    (row["name"], row["known_by"])
    for row in rows("known_admission.csv", "ml_foundations.planning.input")
}
_EFFECT = ("paramKind", "matchConditions", "variables", "mutations", "validations")
_RULE = ("operations", "apiGroups", "apiVersions", "resources")


def is_known(document: Manifest) -> bool:
    """Return whether planning follows what a webhook's configuration or a policy does.

    A name alone does not do: any program may write it. Who decides what answers for the Service
    of a controller could replace the controller, and a policy does only what its expressions say.
    """
    if document["kind"].endswith("AdmissionPolicy"):
        return (name_of(document), effect_of(document)) in _KNOWN
    called: set[str] = set()
    for hook in mappings(document, "webhooks"):
        service = section(hook, "clientConfig", "service")
        called.add(f"{service.get('namespace')}/{service.get('name')}")
    return len(called) == 1 and (name_of(document), called.pop()) in _KNOWN


def effect_of(policy: Manifest) -> str:
    """Return the SHA-256 of what a policy does, without the defaults of the API server."""
    spec = section(policy, "spec")
    parts = [*map(spec.get, _EFFECT)]
    for rule in mappings(section(spec, "matchConstraints"), "resourceRules"):
        parts.append([*map(rule.get, _RULE)])
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()
