"""What is remembered of a table's maintenance, and what becomes of a file that is spoilt."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from jobs.clients.state_store.local_store import LocalStore
from jobs.config.settings.settings import Settings
from jobs.maintenance.measure.maintenance_history import (
    KEY,
    MAX_ENTRIES,
    ActionRecord,
    MaintenanceHistory,
    read_history,
    table_store,
    write_history,
)
from tests.helpers.memory_store import InMemoryStore

AT = datetime(2026, 2, 1, 12, 30, 15, 123456, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_nothing_is_known_of_a_new_table() -> None:
    nothing = read_history(InMemoryStore())
    assert nothing == MaintenanceHistory()
    assert nothing.since is None and nothing.last("compact") is None and nothing.speed("compact") is None
    assert nothing.sorted_as(0, "") is None
    assert nothing.entry("compact") is None


def test_it_comes_back_as_it_was() -> None:
    store = InMemoryStore()
    known = (
        MaintenanceHistory()
        .done("compact", AT, spec_id=1, scope="day=2026-01-31", files_before=9, files_after=1, size=70, seconds=2.5)
        .done("expire", AT + HOUR, files_before=300, files_after=20)
        .failed("orphans", AT, "the folder is shared")
    )
    write_history(store, known)
    assert read_history(store) == known
    assert store.durable == {KEY}


def test_a_table_has_a_file_under_its_id(tmp_path: Path) -> None:
    settings = Settings.embedded(tmp_path)
    write_history(table_store(settings, "7b4e"), MaintenanceHistory())
    assert (settings.state / "tables" / "7b4e" / "maintained.json").is_file()


def test_partitions_and_the_table() -> None:
    known = (
        MaintenanceHistory()
        .done("compact", AT, spec_id=0, scope="day=1", sort_order="zorder(a,b)", size=100, seconds=4)
        .done("compact", AT + HOUR, spec_id=0, scope="day=2", size=300, seconds=4)
    )
    assert known.since == AT and known.last("compact") == AT + HOUR
    assert known.sorted_as(0, "day=1") == "zorder(a,b)" and known.sorted_as(0, "day=2") is None
    assert known.speed("compact") == 50.0 and known.speed("expire") is None
    again = known.done("compact", AT + 2 * HOUR, spec_id=0, scope="day=1", size=100, seconds=2)
    assert again.sorted_as(0, "day=1") == "zorder(a,b)", "merging files leaves the order of their rows"
    entry = again.entry("compact", 0, "day=1")
    assert entry is not None
    assert (entry.runs, entry.total_bytes, entry.total_seconds, entry.bytes) == (2, 200, 6.0, 100)


def test_failures_in_a_row_end_with_success() -> None:
    known = (
        MaintenanceHistory()
        .done("manifests", AT)
        .failed("manifests", AT + HOUR, "x" * 9000)
        .failed("manifests", AT, "y")
    )
    entry = known.entry("manifests")
    assert entry is not None
    assert (entry.failures, entry.error, entry.at, entry.failed_at, entry.tried_at) == (2, "y", AT, AT, AT)
    assert known.last("manifests") == AT
    assert MaintenanceHistory().failed("expire", AT, "x" * 9000).last("expire") is None
    well = known.done("manifests", AT + HOUR).entry("manifests")
    assert well is not None and (well.failures, well.error, well.failed_at, well.runs) == (0, "", None, 2)


def test_since_is_set_once() -> None:
    assert MaintenanceHistory().seen(AT).seen(AT + HOUR).done("expire", AT + HOUR).since == AT


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"\xff\x00",
        b"[]",
        b'{"v": 1}',
        b'{"v": 2, "since": null, "entries": []}',
        b'{"v": 1, "since": "2026-02-01T00:00:00", "entries": []}',
        b'{"v": 1, "since": null, "entries": [{"action": "compact", "runs": "many"}]}',
    ],
)
def test_a_spoilt_document_is_an_empty_one(content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    store = InMemoryStore()
    store.put(KEY, content)
    with caplog.at_level(logging.WARNING):
        assert read_history(store) == MaintenanceHistory()
    assert store.place(KEY) in caplog.text
    write_history(store, MaintenanceHistory().done("expire", AT))
    assert read_history(store).last("expire") == AT


def test_a_folder_in_its_place_is_an_empty_one(tmp_path: Path) -> None:
    (tmp_path / KEY).mkdir()
    assert read_history(LocalStore(tmp_path)) == MaintenanceHistory()


def test_what_was_done_long_ago_is_forgotten() -> None:
    store = InMemoryStore()
    days = [f"day={day}" for day in range(MAX_ENTRIES + 1)]
    entries = [ActionRecord("compact", 0, name, at=AT + day * HOUR) for day, name in enumerate(days)]
    whole = ActionRecord("expire", at=AT - 99 * HOUR)
    write_history(store, MaintenanceHistory(entries={each.key: each for each in [whole, *entries]}))
    kept = [("expire", None, ""), *(("compact", 0, name) for name in days[2:])]
    assert set(read_history(store).entries) == set(kept)


def test_an_entry_of_a_later_version_is_read() -> None:
    store = InMemoryStore()
    store.put(KEY, b'{"v":1,"since":null,"entries":[{"action":"expire","more":1}],"also":2}')
    assert read_history(store).entry("expire") == ActionRecord("expire")
