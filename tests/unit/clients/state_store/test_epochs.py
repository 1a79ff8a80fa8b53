"""What is kept of a stream's openings and files, and for how long."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from jobs.clients.state_store import epochs
from jobs.clients.state_store.epochs import (
    EpochRecord,
    Opener,
    has_exact_file,
    keep_epoch,
    keep_file,
    keep_settings,
    read_epoch,
    read_file,
    read_settings,
)
from jobs.clients.state_store.local_store import LocalStore


def opening(epoch: int, opener: Opener) -> EpochRecord:
    return EpochRecord(epoch, opener, "c1", "g1", 1.5, "host", 42)


@pytest.mark.parametrize("opener", [Opener(attempt=3), Opener("frazil run"), Opener("Dagster run", run_id="abc")])
def test_an_opening_is_read_as_it_was_kept(tmp_path: Path, opener: Opener) -> None:
    store = LocalStore(tmp_path)
    assert read_epoch(store, 7) is None
    keep_epoch(store, opening(7, opener))
    assert read_epoch(store, 7) == opening(7, opener)


def test_a_damaged_opening_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "epochs").mkdir()
    (tmp_path / "epochs" / "00000007.json").write_bytes(b'{"epoch": 7')
    assert read_epoch(LocalStore(tmp_path), 7) is None


def test_the_newest_openings_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epochs, "MOST_EPOCHS", 3)
    store = LocalStore(tmp_path)
    # A later epoch may be written by a host whose clock is behind: it is the number that counts.
    for epoch in (9, 10, 100, 11):
        keep_epoch(store, opening(epoch, Opener()))
    assert [each for each in (9, 10, 11, 100) if read_epoch(store, each)] == [10, 11, 100]


def test_a_file_is_found_by_both_hashes_and_else_by_what_made_the_rows(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    assert read_file(store, "c1", "g1") is None
    keep_file(store, "c1", "g1", "stream: ä\n")
    keep_file(store, "c2", "g1", "other")
    assert read_file(store, "c1", "g1") == "stream: ä\n" and has_exact_file(store, "c1", "g1")
    assert read_file(store, "c1", "g9") == "stream: ä\n" and not has_exact_file(store, "c1", "g9")
    assert read_file(store, "c9", "g1") is None
    keep_file(store, "c3", "", "of an earlier version")
    assert read_file(store, "c3", "") == "of an earlier version"


def test_the_files_used_last_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epochs, "MOST_FILES", 2)
    times: dict[str, float] = {}

    class Store(LocalStore):
        def put(self, key: str, content: bytes, *, durable: bool = True) -> None:
            super().put(key, content, durable=durable)
            times[key] = float(len(times)) + sum(times.values()) + 1

        def written_at(self, key: str) -> float | None:
            return times.get(key)

    store = Store(tmp_path)
    for config in ("c1", "c2", "c1", "c3"):
        keep_file(store, config, "g", config)
    # The one that was gone back to was used after the second.
    assert [config for config in ("c1", "c2", "c3") if read_file(store, config, "g")] == ["c1", "c3"]


def test_the_newest_settings_are_kept_by_generation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epochs, "MOST_SETTINGS", 2)
    store = LocalStore(tmp_path)
    assert read_settings(store, "g1") is None
    for number in (1, 2, 3):
        keep_settings(store, f"g{number}", {"lease_ttl": f"{number}s"})
        os.utime(tmp_path / "settings" / f"g{number}.json", (number, number))
    assert [read_settings(store, each) for each in ("g1", "g2", "g3")] == [
        None,
        {"lease_ttl": "2s"},
        {"lease_ttl": "3s"},
    ]


def test_damaged_settings_say_nothing(tmp_path: Path) -> None:
    (tmp_path / "settings").mkdir()
    (tmp_path / "settings" / "g1.json").write_bytes(b"[1]")
    assert read_settings(LocalStore(tmp_path), "g1") is None
