"""Write what the definitions of controllers' kinds demand of objects, in short.

It is read from the CustomResourceDefinitions in the modules of the pinned controllers. Run it after
an update of one of them: ``python -m codegen.definitions``. It downloads a module that is missing.
"""

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import yaml
from ml_foundations.catalog.versions import ENDPOINT_PICKER_IMAGE
from ml_foundations.planning.api_server.definitions import FILE
from ml_foundations.rehearsal.tools import groups

from codegen import expressions, write

POOLS = "sigs.k8s.io/gateway-api-inference-extension"
GATEWAYS = "sigs.k8s.io/gateway-api"
FOLDERS = {
    "sigs.k8s.io/kueue": "config/components/crd/bases",
    "sigs.k8s.io/jobset": "config/components/crd/bases",
    "sigs.k8s.io/lws": "config/crd/bases",
    "github.com/ray-project/kuberay/ray-operator": "config/crd/bases",
    "github.com/kubeflow/trainer/v2": "manifests/base/crds",
    POOLS: "config/crd/bases",
    GATEWAYS: "config/crd/standard",
}
"""The folders of definitions in the modules of controllers."""
_GATEWAY_KINDS = ("gateways", "httproutes")
"""The kinds of the Gateway API that planning reads, of those that GKE installs."""
_GATEWAY_VERSION = "v1.6.0"
"""It refuses the least: earlier releases lack fields (catalog/gke_definitions.csv has those)."""
_GROUPS = (groups.KUEUE, groups.JOBSET, groups.LWS, groups.KUBERAY, groups.TRAINER)
_KEPT = (
    *("type", "format", "enum", "pattern", "default", "nullable", "required"),
    *("minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"),
    *("minProperties", "maxProperties"),
)
"""The keywords of a schema that planning reads as they are."""
_RENAMED = {
    "x-kubernetes-int-or-string": "intOrString",
    "x-kubernetes-preserve-unknown-fields": "preserve",
    "x-kubernetes-list-map-keys": "keys",
}
_SET_BY_WEBHOOKS: Mapping[str, Sequence[tuple[str, Mapping[str, Any]]]] = {
    # sigs.k8s.io/lws v0.9.0, leaderworkerset_webhook.go Default
    "LeaderWorkerSet": (
        ("networkConfig.subdomainPolicy", {"default": "Shared"}),
        ("leaderWorkerTemplate.restartPolicy", {"replacesEmpty": True}),
        ("rolloutStrategy.type", {"replacesEmpty": True}),
    ),
}
"""Defaults that the webhook of a kind sets in its spec before the API server checks values: where
the object lacks a field that the schema requires, or has an empty text in place of the schema's
default. Other fields that webhooks set may be left out."""
_COMBINED = ("oneOf", "anyOf", "not")
_USED = {*_KEPT, *_RENAMED, *_COMBINED, "properties", "items", "additionalProperties"}
_IGNORED = {
    *("description", "title", "example", "externalDocs"),
    # A map or list that is merged as a whole; a set, which has no item twice, is read below.
    *("x-kubernetes-map-type", "x-kubernetes-list-type", "x-kubernetes-validations"),
    "x-kubernetes-embedded-resource",
}


def main() -> None:
    """Read the modules, and write the file."""
    write({FILE: text()})


def versions() -> dict[str, str]:
    """Return the versions of the modules that the definitions are from."""
    pinned = {POOLS: ENDPOINT_PICKER_IMAGE.rpartition(":")[2], GATEWAYS: _GATEWAY_VERSION}
    for module, group in zip(FOLDERS, _GROUPS, strict=False):
        pinned[module] = group.pinned(module)
    return dict(sorted(pinned.items()))


def folder(module: str) -> Path:
    """Return the folder of a module in Go's module cache; an OSError if there is no way to it."""
    command = ["go", "mod", "download", "-json", f"{module}@{versions()[module]}"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    if answer.returncode:
        raise OSError(answer.stdout)
    return Path(json.loads(answer.stdout)["Dir"])


def files(module: str) -> list[Path]:
    """Return the files of a module with the definitions that planning reads."""
    below = folder(module) / FOLDERS[module]
    kinds = _GATEWAY_KINDS if module == GATEWAYS else ("*",)
    return sorted(path for kind in kinds for path in below.glob(f"*.*_{kind}.yaml"))


def text() -> str:
    """Return the file: a line for each kind, in each version that the API server serves."""
    kinds: dict[str, Any] = {}
    templates: list[Any] = []
    for module in FOLDERS:
        for path in files(module):
            kinds |= dict(_kinds(yaml.load(path.read_text(), yaml.CSafeLoader), templates))
    lines = [f"{json.dumps(name)}:{_compact(kinds[name])}" for name in sorted(kinds)]
    head = f'{{"versions":{json.dumps(versions())},\n'
    shared = '"templates":[\n' + ",\n".join(map(_compact, templates)) + "\n],\n"
    return head + shared + '"kinds":{\n' + ",\n".join(lines) + "\n}}\n"


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def _kinds(definition: Mapping[str, Any], templates: list[Any]) -> Iterator[tuple[str, Any]]:
    spec = definition["spec"]
    for version in spec["versions"]:
        if version["served"]:
            schema = version["schema"]["openAPIV3Schema"]
            # Other rules are about metadata. The API server ignores the status of a new object.
            anything = {key: {} for key in ("apiVersion", "kind", "metadata", "status")}
            everything = {**schema, "properties": schema["properties"] | anything}
            short = _short(everything, templates)
            kind = spec["names"]["kind"]
            for path, more in _SET_BY_WEBHOOKS.get(kind, ()):
                holder: dict[str, Any] = short["properties"]["spec"]
                for key in path.split("."):
                    holder = holder["properties"][key]
                holder |= more
            yield f"{spec['group']}/{version['name']} {kind}", short


def _short(schema: Mapping[str, Any], templates: list[Any]) -> dict[str, Any]:
    """Return a schema with the keywords that planning reads.

    Many kinds have the same schema of a pod's template: it is in ``templates``, once.
    """
    short = _shortened(schema, templates)
    if not _is_pod_template(schema):
        return short
    if short not in templates:
        templates.append(short)
    return {"type": "object", "template": templates.index(short)}


def _shortened(schema: Mapping[str, Any], templates: list[Any]) -> dict[str, Any]:
    if unknown := schema.keys() - _USED - _IGNORED:
        raise SystemExit(f"planning does not read the keywords {', '.join(sorted(unknown))}")
    short = {key: schema[key] for key in _KEPT if key in schema}
    short |= {name: schema[key] for key, name in _RENAMED.items() if key in schema}
    for key in _COMBINED if "intOrString" not in short else ():  # where anyOf repeats it
        if key in schema:
            branches = schema[key] if isinstance(schema[key], list) else [schema[key]]
            short[key] = [_short(branch, templates) for branch in branches]
    if schema.get("x-kubernetes-list-type") == "set":
        short["keys"] = []
    for key, value in sorted(schema.get("properties", {}).items()):
        short.setdefault("properties", {})[key] = _short(value, templates)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            short[key] = _short(schema[key], templates)
    if rules := list(_rules(schema)):
        short["rules"] = rules
    return short


def _rules(schema: Mapping[str, Any]) -> Iterator[list[Any]]:
    """Yield the rules about an object that is created, each with its message and expression."""
    for rule in cast("list[dict[str, Any]]", schema.get("x-kubernetes-validations", [])):
        # Rules about oldSelf are for changes of an object, the status is the controller's.
        if "oldSelf" not in rule["rule"] and "self.status" not in rule["rule"]:
            yield [rule["message"], expressions.tree(rule["rule"])]


def _is_pod_template(schema: Mapping[str, Any]) -> bool:
    """Return whether a schema repeats Kubernetes' own one of a pod's template."""
    pods = schema.get("properties", {}).get("spec", {}).get("properties", {})
    return {"containers", "nodeSelector", "tolerations", "dnsPolicy"} <= pods.keys()


if __name__ == "__main__":
    main()
