"""Keep what this version deploys, each stack's settings and state, for later versions to be previewed from.

python -m tests.upgrades
"""

import shutil
import tempfile
from pathlib import Path

from ml_foundations.rehearsal.engine import stack

from benchmarks.stacks import copy_checkout
from tests.support.checkout import Checkout
from tests.upgrades import kept


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        checkout = Checkout(copy_checkout(Path(folder)))
        for name in kept.STACKS:
            print(f"{kept.VERSION}: {name}", flush=True)
            keep(checkout, name)


def keep(checkout: Checkout, name: str) -> None:
    """Rehearse a stack and keep what it came to."""
    settings, state = kept.files(kept.VERSION, name)
    state.parent.mkdir(exist_ok=True)
    rehearsal = checkout.rehearsal(name)
    try:
        done = checkout.run("up", "--stack", name)
        assert done.returncode == 0, done.stdout + done.stderr
        exported = stack.pulumi(rehearsal, "stack", "export", "--show-secrets")
    finally:
        checkout.run("down", "--stack", name)
    kept.write(state, exported.stdout.replace(str(checkout.root), "/checkout"))
    shutil.copy(checkout.root / "stacks" / settings.name, settings)


if __name__ == "__main__":
    main()
