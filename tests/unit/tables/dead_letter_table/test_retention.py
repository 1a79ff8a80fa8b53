from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from jobs.records.formats.interface.decoder import Failure
from jobs.tables.commit.protocol.compare_and_swap import Backoff
from jobs.tables.commit.protocol.pyiceberg_commit import commit_once
from jobs.tables.commit.schema.operations import Append
from jobs.tables.commit.stamp.errors import CommitRefusedError
from jobs.tables.dead_letter_table.retention import EXPIRED_BEFORE, ExpiredLetters, expire_dead_letters
from jobs.tables.dead_letter_table.rows import dead_letter_rows
from jobs.tables.write.target_writer import TargetWriter
from tests.helpers.tasks import TaskWorld, records, stream_spec

NOW = datetime(2026, 3, 31, 15, 30, tzinfo=UTC)
KEEP = timedelta(days=30)


@pytest.fixture
def table(tmp_path: Path) -> Iterator[Table]:
    world = TaskWorld(tmp_path, stream_spec("id string"))
    yield world.letters
    world.close()


def land(table: Table, days: int, count: int, *, hours: float = 0, state: str | None = None) -> None:
    """A commit of letters that were first seen so long ago."""
    table.refresh()
    seen = NOW - timedelta(days=days, hours=hours)
    block = records([b"{"] * count, first=len(read(table))).drop_columns(["headers"])
    failures = [Failure(row, "decode_value", "malformed_json", "x", None) for row in range(count)]
    rows = dead_letter_rows(block, failures, stream="s", config_hash="c", batch_id=1, epoch=1, first_seen=seen)
    if state is not None:
        rows = rows.append_column("state", pa.array([state] * count)) if "state" not in rows.schema.names else rows
    writer = TargetWriter(table.metadata, table.io, file_prefix="t")
    writer.write(rows)
    commit_once(table, Append(writer.close()), summary={}, properties={})


def read(table: Table) -> list[dict[str, Any]]:
    return table.refresh().scan().to_arrow().to_pylist()


def expire(table: Table, **more: Any) -> ExpiredLetters:
    return expire_dead_letters(table, KEEP, now=NOW, **more)


def test_whole_days_go_and_the_rest_stays(table: Table) -> None:
    for days in (45, 31, 30, 29, 0):
        land(table, days, 2)
    done = expire(table)
    assert done.before == datetime(2026, 3, 1, tzinfo=UTC)
    assert (done.letters, done.files, done.held_back) == (4, 2, 0)
    assert done.snapshot_id == table.metadata.current_snapshot_id
    # 30 days ago at 15:30 is within the day that stays.
    assert min(row["first_seen"] for row in read(table)) == NOW - timedelta(days=30)
    assert len(read(table)) == 6
    assert table.properties[EXPIRED_BEFORE] == "2026-03-01T00:00:00+00:00"


def test_it_says_how_many_never_came_back(table: Table) -> None:
    land(table, 45, 3)
    land(table, 45, 2, state="replayed")
    land(table, 44, 1, state="parked")
    land(table, 44, 1, state="dismissed")
    done = expire(table)
    assert done.by_state == {"new": 3, "replayed": 2, "parked": 1, "dismissed": 1}
    assert (done.letters, done.never_replayed) == (7, 4)


def test_nothing_old_changes_nothing(table: Table) -> None:
    land(table, 5, 2)
    before = table.metadata.current_snapshot_id
    assert expire(table) == ExpiredLetters(datetime(2026, 3, 1, tzinfo=UTC))
    assert table.refresh().metadata.current_snapshot_id == before


def test_an_empty_table(table: Table) -> None:
    assert expire(table).letters == 0


def test_a_dry_run_only_tells(table: Table) -> None:
    land(table, 45, 2)
    done = expire(table, dry_run=True)
    assert (done.letters, done.snapshot_id) == (2, None)
    assert len(read(table)) == 2


def test_twice_is_once(table: Table) -> None:
    land(table, 45, 2)
    assert expire(table).letters == 2
    assert expire(table).letters == 0


def test_the_property_never_goes_back(table: Table) -> None:
    land(table, 45, 1)
    expire(table)
    land(table, 100, 1)
    expire_dead_letters(table, timedelta(days=60), now=NOW)
    assert read(table) == []
    assert table.properties[EXPIRED_BEFORE] == "2026-03-01T00:00:00+00:00"


def test_a_stream_that_commits_meanwhile_loses_nothing(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    land(table, 45, 2)
    commit = table.catalog.commit_table
    other = table.catalog.load_table(table.name())
    meanwhile = [lambda: land(other, 0, 3), lambda: land(other, 45, 1)]

    def late(committed: Table, *given: Any) -> Any:
        if committed is table and meanwhile:
            meanwhile.pop(0)()
        return commit(committed, *given)

    monkeypatch.setattr(table.catalog, "commit_table", late)
    assert expire(table).letters == 3
    assert len(read(table)) == 3


def test_a_table_that_never_rests_is_told(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def moved(*_: Any) -> Any:
        raise CommitFailedException

    land(table, 45, 2)
    monkeypatch.setattr(table.catalog, "commit_table", moved)
    with pytest.raises(CommitRefusedError, match="Nothing was deleted"):
        expire_dead_letters(table, KEEP, now=NOW, backoff=partial(Backoff, sleep=lambda _: None))
    monkeypatch.undo()
    assert len(read(table)) == 2


def test_a_table_without_bounds(table: Table) -> None:
    with table.transaction() as change:
        change.set_properties({"write.metadata.metrics.default": "none"})
    land(table, 45, 2)
    land(table, 5, 1)
    assert expire(table).letters == 2
    assert len(read(table)) == 1


def test_letters_that_share_a_file_with_younger_ones_wait(table: Table) -> None:
    with table.update_spec() as update:
        update.remove_field("first_seen_day")
    table.refresh()
    writer = TargetWriter(table.metadata, table.io, file_prefix="t")
    for days in (45, 5):
        block = records([b"{"], first=days).drop_columns(["headers"])
        failure = Failure(0, "decode_value", "malformed_json", "x", None)
        seen = NOW - timedelta(days=days)
        writer.write(
            dead_letter_rows(block, [failure], stream="s", config_hash="c", batch_id=1, epoch=1, first_seen=seen)
        )
    commit_once(table, Append(writer.close()), summary={}, properties={})
    done = expire(table)
    assert (done.letters, done.held_back) == (0, 1)
    assert len(read(table)) == 2
