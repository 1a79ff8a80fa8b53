from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobs.state.files import remove_durably, write_durably


def test_content_is_replaced_whole_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "new" / "folder" / "note.json"
    write_durably(path, b"one")
    write_durably(path, b"two")
    assert path.read_bytes() == b"two"
    assert list(path.parent.iterdir()) == [path]


def test_the_file_is_synced_before_its_name_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, seen = tmp_path / "note.json", []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        seen.append((Path(f"/proc/self/fd/{descriptor}").readlink(), path.exists()))
        fsync(descriptor)

    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc to tell which file a descriptor is")
    monkeypatch.setattr(os, "fsync", noted)
    write_durably(path, b"one")
    (first, named), (second, _) = seen
    assert first.parent == tmp_path and first != path and not named
    assert second == tmp_path
    remove_durably(path)
    assert seen[2] == (tmp_path, False)


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    path = tmp_path / "note.json"
    write_durably(path, b"old")

    def full(*args: object) -> None:
        raise OSError("no space left")

    if failing == "fsync":
        monkeypatch.setattr(os, "fsync", full)
    else:
        monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="no space left"):
        write_durably(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_removing_what_is_not_there(tmp_path: Path) -> None:
    remove_durably(tmp_path / "never.json")
