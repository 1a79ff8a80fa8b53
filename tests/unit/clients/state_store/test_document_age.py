"""How long a document has been unchanged: across processes, boots, and where its record cannot be written."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.clients.state_store import document_age
from jobs.clients.state_store.document_age import forget, unchanged_for


def test_what_one_process_saw_of_it_the_next_one_knows(tmp_path: Path) -> None:
    """The supervisor's sensor, its control runs and `frazil run` are processes of their own."""
    path = tmp_path / "lease-00000001.json"
    assert unchanged_for(path, b"one", "a kernel", 100.0) == 0.0
    for passed in (5.0, 31.0):
        document_age._SEEN.clear()
        assert unchanged_for(path, b"one", "a kernel", 100.0 + passed) == passed
    assert unchanged_for(path, b"two", "a kernel", 140.0) == 0.0
    # After this host has been started anew its clock is another one, and it looks anew.
    document_age._SEEN.clear()
    assert unchanged_for(path, b"two", "a later kernel", 150.0) == 0.0
    forget(path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_may_not_be_written_is_observed_by_the_process_that_looks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(path: Path, content: bytes, *, durable: bool) -> Path:
        raise PermissionError(13, "read only")

    monkeypatch.setattr(document_age, "staged", refused)
    path = tmp_path / "lease-00000001.json"
    assert unchanged_for(path, b"one", "a kernel", 100.0) == 0.0
    assert unchanged_for(path, b"one", "a kernel", 131.0) == 31.0
