"""Late rows are the same whichever of the stamps have expired, if the ledger has them, and after any rollback."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.commit.offsets import OffsetRange, TopicPartition
from jobs.verify import closed_periods as module
from jobs.verify.closed_periods import late_rows
from jobs.verify.ledger_row import WHOLE_TABLE, LedgerRow

HOUR_MS = 3_600_000
BEGIN = datetime(2026, 3, 1, tzinfo=UTC)
PERIODS = [(at, at + HOUR_MS) for at in range(0, 4 * HOUR_MS, HOUR_MS)]
LATE = st.dictionaries(st.sampled_from([start for start, _ in PERIODS] + [99 * HOUR_MS]), st.integers(1, 5))
ROW = LedgerRow(
    "s", "t", "uuid", True, "batch", WHOLE_TABLE, OffsetRange(0, 1), 1, 1, 1, 1, BEGIN, "config",
)  # fmt: skip


def snapshot(sequence: int, late: dict[int, int]) -> tuple[Any, Any]:
    times = SimpleNamespace(batch=SimpleNamespace(periods=late))
    kept = SimpleNamespace(sequence_number=sequence, timestamp_ms=(50 + sequence) * HOUR_MS)
    return kept, SimpleNamespace(event_time=times)


def rows(sequence: int, late: dict[int, int]) -> list[LedgerRow]:
    """A commit of two partitions: its first row tells."""
    first = replace(ROW, sequence=sequence, partition=TopicPartition("t", 0), late=late or None)
    return [first, replace(first, partition=TopicPartition("t", 1), late=None)]


@given(batches=st.lists(LATE, min_size=1, max_size=8), data=st.data())
def test_expiry_changes_nothing(batches: list[dict[int, int]], data: st.DataObject) -> None:
    removed = data.draw(st.integers(0, len(batches) - 1), "from which batch on somebody took rows out")
    kept = data.draw(st.integers(0, len(batches) - removed), "how many stamps are kept") if not removed else 0
    numbered = list(enumerate(batches, start=1))
    told = [row for sequence, late in numbered for row in rows(sequence, late)]
    standing = numbered
    if removed:
        told.append(replace(ROW, kind="removed", sequence=100, since=removed))
        standing = numbered[:removed]
    stamps = [snapshot(sequence, late) for sequence, late in numbered[len(numbered) - kept :]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "stamped_snapshots", lambda metadata, stream: iter(stamps))
        found = late_rows(object(), "s", PERIODS, lambda since: told)  # pyright: ignore[reportArgumentType]
    assert found == {start: sum(late.get(start, 0) for _, late in standing) for start, _ in PERIODS}


@pytest.mark.parametrize(("first_kept_hours", "asked"), [(-49, []), (-47, [timedelta(days=-2)])])
def test_the_ledger_is_asked_only_where_stamps_of_the_hour_may_have_expired(
    monkeypatch: pytest.MonkeyPatch, first_kept_hours: int, asked: list[timedelta]
) -> None:
    begin = round(BEGIN.timestamp() * 1000)
    kept = SimpleNamespace(sequence_number=7, timestamp_ms=begin + first_kept_hours * HOUR_MS)
    monkeypatch.setattr(
        module, "stamped_snapshots", lambda metadata, stream: iter([(kept, SimpleNamespace(event_time=None))])
    )
    since: list[datetime] = []

    def ledger(at: datetime) -> list[LedgerRow]:
        since.append(at)
        return []

    assert late_rows(object(), "s", [(begin, begin + HOUR_MS)], ledger) == {begin: 0}  # pyright: ignore[reportArgumentType]
    assert [at - BEGIN for at in since] == asked
