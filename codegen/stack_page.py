"""Generate docs/stack-file.md: the keys of a stack file, and the page of each section."""

import re
from pathlib import Path
from typing import Any

import ml_foundations
from ml_foundations.tenancy.team_namespace import Tenancy
from ml_foundations.tenancy.training_queue import Queues
from pydantic.alias_generators import to_camel

from codegen import ROOT, pages, stack_schema

_PREFIX = "ml-foundations:"
_BASES = {"Team": Tenancy, "TrainingQueueSettings": Queues}
"""The arguments of sections that a component's page documents."""
_INTRODUCTION = """# The stack file

After this page you can describe an environment in `stacks/Pulumi.<stack>.yaml`. To begin, copy
`stacks/Pulumi.dev.yaml`, the shortest. For example, these lines add a training job to it:

```yaml
config:
  ml-foundations:teams:
    research:
      trainingJobs:
        evaluate:
          image: pytorch/pytorch:2.13.0-cuda12.6-cudnn9-runtime
          command: [python, /workspace/evaluate.py]
          files: {/workspace/evaluate.py: "@scripts/evaluate.py"}
          gpu: L4
          gpus: 1
          cpu: "4"
          memory: 16Gi
          mounts: [{claim: shared-checkpoints, path: /checkpoints}]
```

Put your script into `stacks/scripts/evaluate.py`, and run `make up`. If you change the script or
the job and repeat `make up`, only the job is replaced.

The first line of the file names `stacks/schema.json`, with which your editor completes and checks
the keys. A preview reports all errors at once, each with its path, the value and the allowed
values.

A section has the arguments of its component, in camelCase. The program sets the name (the key), the
project, the cluster and the namespace. A name of another section of the team replaces the component
that a program passes: `modelCache: weights`, `runtime: torch`, `servers: [chat, code]`.
"""
_MORE = {
    "Team": """A team also accepts the arguments of
[TeamNamespace](components/TeamNamespace.md), and `quota` those of its quota.""",
    "TrainingQueueSettings": """It also accepts the arguments of
[TrainingQueue](components/TrainingQueue.md). `flavors` and `teams` of a TrainingQueue follow from
the node pools and the teams.""",
}
_WITHOUT = """## What has no key

{} Write [a program](writing-a-program.md) if you need:

- a resource of another package, such as a bucket or a Secret
- two clusters, or two objects that a stack file has once, such as `storage`
- an Output of one resource as an argument of another
"""


def files() -> dict[Path, str]:
    """Return the page and its text."""
    schema = stack_schema.schema()
    definitions = schema["$defs"]
    lines = [
        _INTRODUCTION,
        "## The keys under config",
        "",
        f"All keys except `gcp:project` begin with `{_PREFIX}`.",
        "",
    ]
    lines += _keys(schema["properties"]["config"])
    for name in [name for name in definitions if not pages.link(name)]:
        lines += [
            "",
            f"## {_heading(name)}",
            "",
            definitions[name]["description"],
            "",
            *_keys(definitions[name], name),
        ]
        lines += ["", _MORE[name]] if name in _MORE else []
    lines += ["", _WITHOUT.format(without_key("\n".join(lines))).rstrip()]
    return {ROOT / "docs" / "stack-file.md": "\n".join([*lines, ""])}


def without_key(keys: str) -> str:
    """Return a sentence with the components to which no key in a text leads."""
    pages_of = {name: f"components/{name}.md" for name in ml_foundations.COMPONENTS}
    missing = [f"[{name}]({page})" for name, page in pages_of.items() if page not in keys]
    if not missing:
        return "Every component has a key."
    return f"These components have no key: {', '.join(missing)}."


def _heading(name: str) -> str:
    return re.sub(
        r"(?<=[a-z])([A-Z])", lambda match: f" {match[1].lower()}", name.removesuffix("Settings")
    )


def _keys(section: dict[str, Any], name: str = "") -> list[str]:
    required = section.get("required", [])
    base = _BASES[name].model_fields if name in _BASES else ()
    keys = [key for key in section["properties"] if key not in map(to_camel, base)]
    return [_key(key, section["properties"][key], key in required) for key in keys]


def _key(key: str, value: dict[str, Any], required: bool) -> str:
    takes = f"{_takes(value)}, required" if required else _takes(value)
    return f"- `{key.removeprefix(_PREFIX)}` ({takes}): {pages.one_line(value)}"


def _takes(value: dict[str, Any]) -> str:
    """Return the type of a key in a few words: a link, allowed values, or a type."""
    if reference := value.get("$ref"):
        name = reference.rpartition("/")[2]
        return (
            pages.link(name) or f"[{_heading(name)}](#{_heading(name).lower().replace(' ', '-')})"
        )
    if "enum" in value:
        return ", ".join(f"`{item}`" for item in value["enum"])
    if options := [
        item for item in value.get("anyOf", value.get("oneOf", [])) if item.get("type") != "null"
    ]:
        return " or ".join(dict.fromkeys(map(_takes, options)))
    match value.get("type"):
        case "object":
            inner = value.get("additionalProperties")
            return f"by name: {_takes(inner)}" if isinstance(inner, dict) else "a map"
        case "array":
            return f"{_takes(value['items'])}[]"
        case list() as types:
            return " or ".join(types)
        case str() as type_:
            return type_
        case _:
            return "anything"
