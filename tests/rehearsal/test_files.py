"""Files and folders of a rehearsal."""

import shutil
from pathlib import Path

import pytest
from ml_foundations.rehearsal import files
from ml_foundations.rehearsal.progress import RehearsalError


def test_a_folder_goes_though_something_was_written_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, real = tmp_path / "folder", shutil.rmtree
    folder.mkdir()
    late = iter([folder / "late"])

    def remove(path: Path, ignore_errors: bool) -> None:
        real(path, ignore_errors=ignore_errors)
        for made in late:
            made.mkdir(parents=True)

    monkeypatch.setattr(files.shutil, "rmtree", remove)
    files.remove(folder)
    assert not folder.exists()


def test_a_folder_that_cannot_go_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_REMOVAL_SECONDS", 0)
    monkeypatch.setattr(files.shutil, "rmtree", lambda *_, **__: None)
    with pytest.raises(RehearsalError, match="a process writes into it"):
        files.remove(tmp_path)


def test_a_full_disk_is_reported_before_the_start(tmp_path: Path) -> None:
    files.require_free_space(tmp_path / "new", 1, "for this")
    with pytest.raises(
        RehearsalError, match=r"the disk of .* GB free, and 1048576.0 GB are needed for this"
    ):
        files.require_free_space(tmp_path / "new", 1024**5, "for this")
