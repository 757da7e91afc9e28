"""The supervised process: ``python -m ml_foundations.rehearsal.cloud <the rehearsal's root folder>``."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from ml_foundations.rehearsal.cloud import life
from ml_foundations.rehearsal.layout import Rehearsal


def main() -> None:
    """Play GKE for one rehearsal until told to stop."""
    root = Path(sys.argv[1])
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    life.serve(Rehearsal(stack=root.name, root=root))


if __name__ == "__main__":
    main()
