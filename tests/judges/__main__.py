"""Compare planning with the real webhooks and operators on many edited objects, and print the table of agreement.

Before the random ones come those that aim at a rule. So a rule that no object meets has a reason.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from pathlib import Path

from tests.judges import edits, judging, rules
from tests.support.checkout import CHECKOUT


def main() -> int:
    """Compare as many objects as asked for. Returns 1 if the two disagree."""
    parser = argparse.ArgumentParser(prog="python -m tests.judges", description=__doc__)
    parser.add_argument("objects", type=int, help="how many random objects to compare")
    parser.add_argument("--first", type=int, default=1, help="the seed of the first object")
    options = parser.parse_args()
    began = time.monotonic()
    folder: Path = CHECKOUT / ".differential" / "judges"
    folder.mkdir(parents=True, exist_ok=True)
    with judging.running(folder) as rehearsal:
        seeds = [
            *range(-len(edits.aimed()), 0),
            *range(options.first, options.first + options.objects),
        ]
        found = asyncio.run(judging.judge(rehearsal, seeds))
    for judgement in found:
        if judgement.is_wrong:
            print(judgement)
    met = rules.report([judgement.words for judgement in found if judgement.words])
    print(f"{judging.report(found)}\n\n{met}\n\n{time.monotonic() - began:.0f} seconds")
    return int(any(judgement.is_wrong for judgement in found))


if __name__ == "__main__":
    sys.exit(main())
