"""What the local folder adds to the contract of a state store: names, modes, syncing, and what a full disk leaves."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from jobs.base.system.full_disk import is_full
from jobs.clients.state_store.local_store import LocalStore
from jobs.clients.state_store.store import NotWrittenError
from tests.helpers.modes import open_to_others


def write(store: LocalStore, content: bytes) -> None:
    store.put("new/folder/note.json", content)


def write_not_durably(store: LocalStore, content: bytes) -> None:
    store.put("new/folder/note.json", content, durable=False)


def create(store: LocalStore, content: bytes) -> None:
    store.delete("new/folder/note.json")
    assert store.create_if_absent("new/folder/note.json", content)
    assert not store.create_if_absent("new/folder/note.json", b"again")


WRITES = pytest.mark.parametrize("writes", [write, write_not_durably, create])


@WRITES
def test_a_document_is_the_file_of_its_key_for_this_user_alone_and_nothing_else_is_left(
    tmp_path: Path, writes: Callable[[LocalStore, bytes], None]
) -> None:
    root = tmp_path / "state"
    for content in (b"one", b"two"):
        writes(LocalStore(root), content)
        assert (root / "new" / "folder" / "note.json").read_bytes() == content
    assert [path for path in root.rglob("*") if path.is_file()] == [root / "new" / "folder" / "note.json"]
    assert open_to_others(root) == []


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="needs /proc to tell which file a descriptor is")
def test_the_file_is_synced_before_its_name_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, path, seen = LocalStore(tmp_path), tmp_path / "note.json", []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        seen.append((Path(f"/proc/self/fd/{descriptor}").readlink(), path.exists()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    for writes in (store.put, store.create_if_absent):
        seen.clear()
        writes("note.json", b"one")
        (first, named), (second, _) = seen
        assert first.parent == tmp_path and first != path and not named
        assert second == tmp_path
        store.delete("note.json")
        assert seen[2] == (tmp_path, False)
    seen.clear()
    store.put("note.json", b"one", durable=False)
    assert seen == []


def test_a_write_that_a_full_disk_refuses_was_seen_by_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(tmp_path)
    store.put("note.json", b"old")

    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "note.json"))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(NotWrittenError, match="No space left") as refused:
        store.put("note.json", b"new")
    assert (refused.value.errno, refused.value.filename) == (errno.ENOSPC, str(tmp_path / "note.json"))
    assert is_full(refused.value)
    assert store.get("note.json") == b"old"
    assert list(tmp_path.iterdir()) == [tmp_path / "note.json"]


def test_whether_anybody_saw_a_write_that_fails_at_its_name_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rename over a network may be through and its answer lost."""
    store = LocalStore(tmp_path)
    replace = Path.replace

    def through_and_lost(self: Path, target: Path) -> None:
        replace(self, target)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Path, "replace", through_and_lost)
    with pytest.raises(OSError, match="Input/output error") as unclear:
        store.put("note.json", b"new")
    assert not isinstance(unclear.value, NotWrittenError)
    assert store.get("note.json") == b"new"
    assert list(tmp_path.iterdir()) == [tmp_path / "note.json"]


def test_what_another_process_saw_is_known_and_goes_with_the_document(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put("lease-00000001.json", b"{}")
    looks = (
        "import sys; from pathlib import Path; from jobs.clients.state_store.local_store import LocalStore;"
        "print(LocalStore(Path(sys.argv[1])).unchanged_for('lease-00000001.json', b'{}'))"
    )
    first = subprocess.run([sys.executable, "-c", looks, tmp_path], capture_output=True, text=True, check=True)
    assert float(first.stdout) == 0.0
    assert store.unchanged_for("lease-00000001.json", b"{}") > 0.0
    assert store.keys("*") == ["lease-00000001.json"], "what was noted of it is no document"
    store.delete("lease-00000001.json")
    assert list(tmp_path.iterdir()) == []
