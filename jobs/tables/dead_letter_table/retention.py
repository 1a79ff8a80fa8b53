"""Retention of dead letters: deletes whole data files by age, by metadata only, while the stream runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg import conversions
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from jobs.tables.commit.protocol.compare_and_swap import Backoff, compare_and_swap
from jobs.tables.commit.protocol.pyiceberg_commit import commit_once
from jobs.tables.commit.schema.operations import ReplaceFiles
from jobs.tables.commit.stamp.errors import CommitRefusedError

# Table property: dead letters first seen before this instant may be deleted. It never goes back.
EXPIRED_BEFORE = "frazil.letters-expired-before"
# Entry of the summary of the snapshot that deletes dead letters by age: the instant before which.
EXPIRED_SUMMARY = "frazil.letters-expired"
# A function by type, whose signature type checkers do not see.
_from_bytes: Any = conversions.from_bytes
_NEW = "new"


@dataclass(frozen=True, slots=True)
class ExpiredLetters:
    """Dead letters that retention deleted, or would delete.

    Attributes:
        before: Dead letters first seen before this instant are deleted.
        letters: Number of deleted dead letters.
        by_state: The same by state; all but `replayed` and `dismissed` have not come back and never will.
        files: Number of deleted data files.
        held_back: Older dead letters that stay because their data file also has younger ones.
        snapshot_id: The snapshot without them; None if nothing was deleted.
    """

    before: datetime
    letters: int = 0
    by_state: dict[str, int] = field(default_factory=dict)
    files: int = 0
    held_back: int = 0
    snapshot_id: int | None = None

    @property
    def never_replayed(self) -> int:
        """Number of deleted dead letters that have not come back."""
        return sum(count for state, count in self.by_state.items() if state not in ("replayed", "dismissed"))

    def sentence(self, table: str, *, dry_run: bool = False) -> str:
        """Sentence about what was deleted from a table, or would be."""
        what = "would be deleted" if dry_run else "deleted"
        text = f"{table}: {self.letters:,} dead letters first seen before {self.before:%Y-%m-%d} {what}"
        if self.never_replayed:
            text += f", of which {self.never_replayed:,} had never come back"
        if self.held_back:
            text += f"; {self.held_back:,} older ones stay, since younger ones are in their data files"
        return text


def expire_dead_letters(
    table: Table,
    keep: timedelta,
    *,
    now: datetime | None = None,
    dry_run: bool = False,
    backoff: Callable[[], Backoff] = Backoff,
) -> ExpiredLetters:
    """Delete the dead letters first seen before the day (UTC) that lies `keep` ago, whatever their state.

    Age alone decides: an exception by state would keep data that a privacy rule requires to delete. The dead letters
    leave the table's current state. The data files go when the snapshots that hold them expire.

    Args:
        table: The dead-letter table; loaded again before each attempt.
        keep: Least age of a deleted dead letter.
        backoff: Pauses between the attempts.

    Raises:
        CommitRefusedError: The table changed during every attempt; nothing was deleted.
    """
    today = ((now or datetime.now(UTC)) - keep).astimezone(UTC)
    before = today.replace(hour=0, minute=0, second=0, microsecond=0)

    def attempt() -> ExpiredLetters:
        table.refresh()
        going, held_back = _old_files(table, before)
        found = ExpiredLetters(
            before,
            letters=sum(file.record_count for file in going),
            by_state=_by_state(table, going),
            files=len(going),
            held_back=held_back,
        )
        if dry_run or not going:
            return found
        said = max(before.isoformat(), table.properties.get(EXPIRED_BEFORE, ""))
        snapshot = commit_once(
            table, ReplaceFiles(going), summary={EXPIRED_SUMMARY: said}, properties={EXPIRED_BEFORE: said}
        )
        return replace(found, snapshot_id=snapshot)

    def given_up(said: str) -> CommitRefusedError:
        return CommitRefusedError(
            f"old dead letters could not be deleted: {said}. Nothing was deleted.",
            fix="try again when the stream and its replays commit less often",
        )

    return compare_and_swap(".".join(table.name()), attempt, given_up, backoff)


def _old_files(table: Table, before: datetime) -> tuple[list[DataFile], int]:
    """Files with only old dead letters, and the number of old dead letters in other files."""
    column = table.schema().find_field("first_seen")
    limit = int(before.timestamp()) * 1_000_000
    going: list[DataFile] = []
    held_back = 0
    for task in table.scan(row_filter=f"first_seen < '{before.isoformat()}'").plan_files():
        file = task.file
        bound = (file.upper_bounds or {}).get(column.field_id)
        newest: Any = _from_bytes(column.field_type, bound) if bound else None
        if newest is not None and newest < limit:
            going.append(file)
            continue
        # Without bounds, or with younger dead letters as well, the file's content decides.
        old = _older(table, file, before)
        if old == file.record_count:
            going.append(file)
        else:
            held_back += old
    return going, held_back


def _older(table: Table, file: DataFile, before: datetime) -> int:
    seen = _column(table, file, "first_seen")
    return sum(one is not None and one < before for one in (seen.to_pylist() if seen is not None else ()))


def _by_state(table: Table, files: Iterable[DataFile]) -> dict[str, int]:
    """Dead letters by state; a null state counts as `new`."""
    counts: dict[str, int] = {}
    for file in files:
        states = _column(table, file, "state")
        for state in states.to_pylist() if states is not None else [None] * file.record_count:
            counts[state or _NEW] = counts.get(state or _NEW, 0) + 1
    return counts


def _column(table: Table, file: DataFile, name: str) -> pa.ChunkedArray | None:
    """One column of a data file; None if the file is older than the column."""
    with table.io.new_input(file.file_path).open() as stream:
        parquet = pq.ParquetFile(stream)  # type: ignore[arg-type]
        if name not in parquet.schema_arrow.names:
            return None
        return parquet.read(columns=[name]).column(0)
