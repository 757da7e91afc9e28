"""Run the program of a stack against Pulumi's mocks and print the outputs of resources that it reads, as JSON."""

import json
import sys
from typing import Any
from unittest.mock import patch

import pulumi

from tests.support.record import run


def main(stack: str) -> None:
    found: set[tuple[str, str]] = set()
    read = pulumi.get

    def get(holder: Any, name: str) -> Any:
        """What every getter of an SDK calls."""
        if isinstance(holder, pulumi.CustomResource):
            found.add((holder.pulumi_resource_type, getattr(type(holder), name).fget._pulumi_name))
        return read(holder, name)

    with patch.object(pulumi, "get", get):
        run(stack)
    print(json.dumps(sorted(found)))


if __name__ == "__main__":
    main(sys.argv[1])
