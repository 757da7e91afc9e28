"""Measure planning and rehearsals: ``make bench``.

Prints one JSON document; see README.md in this folder.
"""

import json
import os
import platform

from benchmarks import fleet, gang, planning, scheduler, stacks


def main() -> None:
    results = {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "planning": planning.measure(),
        "planning and the real scheduler": scheduler.measure(),
        "runs": stacks.RUNS,
        "stacks": stacks.measure(),
        "fleet": fleet.measure(),
        "gang": gang.measure(),
    }
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
