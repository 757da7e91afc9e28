"""The picture of the README: drawn from a page, or an error that names what is missing."""

import struct
from pathlib import Path

import pytest

from tools import screenshot

BROWSER = next(filter(None, map(screenshot.shutil.which, screenshot.BROWSERS)), None)


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium")
def test_a_picture_is_the_top_of_a_page(tmp_path: Path) -> None:
    page, picture = tmp_path / "page.html", tmp_path / "picture.png"
    page.write_text("<h1>All is well</h1>")
    screenshot.draw(page, picture)
    size = struct.unpack(">II", picture.read_bytes()[16:24])
    assert size == (2 * screenshot.WIDTH, 2 * screenshot.HEIGHT)


def test_an_error_names_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.html"
    with pytest.raises(SystemExit, match="does not exist"):
        screenshot.draw(page, tmp_path / "picture.png")
    page.touch()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit, match="Install it: sudo apt install chromium"):
        screenshot.draw(page, tmp_path / "picture.png")
