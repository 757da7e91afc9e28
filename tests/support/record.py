"""Run the program of a stack against Pulumi's mocks and print every resource that it registers, as YAML."""

import asyncio
import atexit
import gc
import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pulumi
import yaml
from pulumi.runtime.stack import run_pulumi_func

ROOT = Path(__file__).resolve().parents[2]


class Recorder(pulumi.runtime.Mocks):
    """Answers with the inputs, and remembers them."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []

    def new_resource(self, args: pulumi.runtime.MockResourceArgs) -> tuple[str, dict[str, Any]]:
        self.seen.append({"type": args.typ, "name": args.name, "inputs": args.inputs})
        computed: dict[str, Any] = {"email": f"{args.name}@example", "member": f"serviceAccount:{args.name}@example"}
        if args.typ == "gcp:container/cluster:Cluster":
            computed = {
                "endpoint": "203.0.113.1",
                "masterAuth": {"clusterCaCertificate": "Q0E="},
                "controlPlaneEndpointsConfig": {"dnsEndpointConfig": {"endpoint": "gke-1.example"}},
            }
        return f"{args.name}-id", {**args.inputs, **computed, "selfLink": f"link/{args.name}"}

    def call(self, args: pulumi.runtime.MockCallArgs) -> dict[str, Any]:
        raise AssertionError(f"the program calls a provider function: {args.token}")


def run(stack: str, file: Path | None = None) -> list[dict[str, Any]]:
    """Run a stack's program; answer what it registered."""
    recorder = Recorder()
    config = yaml.safe_load((file or ROOT / "stacks" / f"Pulumi.{stack}.yaml").read_text())["config"]
    strings = {key: value if isinstance(value, str) else json.dumps(value) for key, value in config.items()}
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    pulumi.runtime.set_mocks(recorder, project="ml-foundations", stack=stack, preview=False)
    pulumi.runtime.set_all_config(strings)
    sys.path.insert(0, str(ROOT / "stacks"))

    async def program() -> None:
        await run_pulumi_func(lambda: runpy.run_path(str(ROOT / "stacks"), run_name="__main__"))

    loop.run_until_complete(program())
    return sorted(recorder.seen, key=lambda item: (item["type"], item["name"]))


def whole(value: Any) -> Any:
    """Numbers travel as floats; whole ones read better as integers."""
    if isinstance(value, dict):
        return {key: whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [whole(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


if __name__ == "__main__":
    # The SDKs' many objects stay until the end: collecting garbage would be a third of the work.
    gc.disable()
    atexit.register(gc.freeze)
    seen = run(sys.argv[1], *map(Path, sys.argv[2:]))
    print(yaml.safe_dump(whole(seen), sort_keys=True, width=110), end="")
