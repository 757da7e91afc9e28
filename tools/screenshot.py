"""Draw docs/images/report.png: the top of the page of a rehearsal of dev.

    make up && .venv/bin/python -m tools.screenshot [PAGE]

The page differs with every rehearsal, so nothing checks that the picture is current.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from tools import ROOT

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
WIDTH = 1000
HEIGHT = 470
"""They end after the nodes and their GPUs."""


def draw(page: Path, picture: Path) -> None:
    """Write the top of a page as a PNG file. An error ends the process."""
    if not page.exists():
        sys.exit(f"error: {page} does not exist. Run make up first")
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        sys.exit("error: Chromium is not on PATH. Install it: sudo apt install chromium")
    options = ["--headless", "--no-sandbox", "--hide-scrollbars", "--force-device-scale-factor=2"]
    command = [browser, *options, f"--window-size={WIDTH},{HEIGHT}", f"--screenshot={picture}"]
    done = subprocess.run(
        [*command, page.resolve().as_uri()], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"error: {browser} cannot draw {page}:\n{done.stderr}")


if __name__ == "__main__":
    default = str(ROOT / ".rehearsal" / "dev" / "report.html")
    draw(Path((*sys.argv[1:], default)[0]), ROOT / "docs" / "images" / "report.png")
