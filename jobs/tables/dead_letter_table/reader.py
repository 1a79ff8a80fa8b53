"""Reader of dead letters: counts by state and reason, and the dead letters of a selection in bounded batches."""

# Of PyIceberg's expressions a type checker sees pydantic's keywords only.
# pyright: reportCallIssue=false

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa
from pyiceberg.exceptions import ValidationError
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, EqualTo, NotEqualTo
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table

from jobs.base.errors import FrazilError
from jobs.config.values.targets import DEAD_LETTER_COORDINATES
from jobs.records.formats.columns.text_values import within_years
from jobs.records.formats.interface.problems import DISCARDED
from jobs.tables.commit.stamp.offsets import Ranges, TopicPartition
from jobs.tables.dead_letter_table.parked_letters import not_of_parked
from jobs.tables.dead_letter_table.selection import Selection
from jobs.tables.dead_letter_table.table import (
    ARROW_SCHEMA,
    OF_THE_RECORD,
    REPLAY_STATE_ARROW,
    STATES,
)

KEYS = ("topic", "partition", "offset", "first_seen")
DEAD_LETTER_ARROW = pa.schema(
    [*ARROW_SCHEMA, *REPLAY_STATE_ARROW, *(pa.field(name, pa.string()) for name in OF_THE_RECORD)]
)
# Errors that PyIceberg raises for a missing or damaged file.
_UNREADABLE = (OSError, pa.ArrowException, ValueError, TypeError, KeyError, ValidationError)


class UnreadableDeadLettersError(FrazilError):
    """A data file of the dead-letter table cannot be read.

    Safe: Nothing was changed.
    Next: restore the file, then repeat the command
    """


@dataclass(frozen=True, slots=True)
class DeadLetterCounts:
    """Number of dead letters that were counted.

    Attributes:
        by_kind: Numbers by state and reason, such as `("new", "wrong_type")`.
    """

    by_kind: dict[tuple[str, str], int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Number of all dead letters."""
        return sum(self.by_kind.values())

    def by(self, part: int) -> dict[str, int]:
        """Sums by state (0) or by reason (1), the greatest first."""
        sums: dict[str, int] = {}
        for kind, count in self.by_kind.items():
            sums[kind[part]] = sums.get(kind[part], 0) + count
        return dict(sorted(sums.items(), key=lambda each: (-each[1], each[0])))

    def sentence(self) -> str:
        """Sentence such as `12 new (9 wrong_type, 3 not_json), 4 parked (4 wrong_type)`."""
        parts = []
        for state in sorted({state for state, _ in self.by_kind}, key=STATES.index):
            reasons = DeadLetterCounts({kind: count for kind, count in self.by_kind.items() if kind[0] == state}).by(1)
            by_reason = ", ".join(f"{count:,} {reason}" for reason, count in reasons.items())
            parts.append(f"{sum(reasons.values()):,} {state} ({by_reason})")
        return ", ".join(parts) if parts else "none at all"


def count_dead_letters(table: Table, stream: str, selection: Selection) -> DeadLetterCounts:
    """Count the dead letters of a selection; reads two columns, and those of the filter. Ignores its limit."""
    has_state = "state" in table.schema().column_names
    columns = ("error_class", "state") if has_state else ("error_class",)
    counts: dict[tuple[str, str], int] = {}
    wanted = selection.filter(stream, table.schema())
    for task in _tasks(table, wanted):
        # Readers of the dead letters themselves get the error of a file that cannot be read.
        with contextlib.suppress(UnreadableDeadLettersError):
            for batch in _read(table, task, wanted, columns):
                reasons = batch.column("error_class").to_pylist()
                states = batch.column("state").to_pylist() if has_state else [None] * len(reasons)
                for reason, state in zip(reasons, states, strict=True):
                    kind = (state if state in STATES else "new", reason)
                    counts[kind] = counts.get(kind, 0) + 1
    return DeadLetterCounts(counts)


def dead_letter_batches(
    table: Table,
    stream: str,
    selection: Selection,
    *,
    most: int,
    most_bytes: int,
    on_unreadable: Callable[[UnreadableDeadLettersError, int], None],
) -> Iterator[pa.RecordBatch]:
    """Dead letters of a selection, in the columns of `DEAD_LETTER_ARROW`, from the loaded state of the table.

    Commits in the meantime change nothing: all files are of one snapshot.

    Args:
        most: Most dead letters in a batch.
        most_bytes: Approximate size of a batch, as Arrow counts it; a single dead letter may be larger.
        on_unreadable: Called with a data file that cannot be read, and its number of rows; the others follow.
    """
    wanted = selection.filter(stream, table.schema())
    names = tuple(name for name in DEAD_LETTER_ARROW.names if name in table.schema().column_names)
    left = selection.limit
    waiting: list[pa.RecordBatch] = []
    rows = size = 0
    for task in _tasks(table, wanted):
        if left == 0:
            break
        try:
            found = list(_read(table, task, wanted, names))
        except UnreadableDeadLettersError as problem:
            on_unreadable(problem, task.file.record_count)
            continue
        for batch in found:
            if left is not None:
                batch = batch.slice(0, left)
                left -= batch.num_rows
            rest = _conformed(batch)
            while rest.num_rows:
                each = max(1, rest.nbytes // rest.num_rows)
                taken = min(rest.num_rows, most - rows, (most_bytes - size) // each)
                if taken < 1 and waiting:
                    yield _joined(waiting)
                    waiting, rows, size = [], 0, 0
                    continue
                part, rest = rest.slice(0, max(taken, 1)), rest.slice(max(taken, 1))
                waiting.append(part)
                rows += part.num_rows
                size += part.nbytes
    if waiting:
        yield _joined(waiting)


def read_dead_letters(
    table: Table,
    wanted: BooleanExpression,
    columns: tuple[str, ...],
    on_unreadable: Callable[[UnreadableDeadLettersError], None],
) -> Iterator[pa.RecordBatch]:
    """Some columns of the matching dead letters; data files that cannot be read are reported and left out."""
    for task in _tasks(table, wanted):
        try:
            yield from list(_read(table, task, wanted, columns))
        except UnreadableDeadLettersError as problem:
            on_unreadable(problem)


def whole_dead_letters(table: Table, wanted: BooleanExpression) -> Iterator[pa.RecordBatch]:
    """Whole dead letters, in the columns of `DEAD_LETTER_ARROW`; data files that cannot be read are left out."""
    names = tuple(name for name in DEAD_LETTER_ARROW.names if name in table.schema().column_names)
    for batch in read_dead_letters(table, wanted, names, lambda problem: None):
        yield _conformed(batch)


def data_files(table: Table, wanted: BooleanExpression) -> list[FileScanTask]:
    """Data files of dead letters to read, by their statistics; those with the oldest dead letters first."""
    return _tasks(table, wanted)


def read_data_file(
    table: Table, task: FileScanTask, columns: tuple[str, ...] | None = None
) -> Iterator[pa.RecordBatch]:
    """Read all dead letters of a data file that are not deleted.

    Args:
        columns: Columns to read; None for all of the table.

    Raises:
        UnreadableDeadLettersError: The file cannot be read.
    """
    return _read(table, task, AlwaysTrue(), columns)


def _tasks(table: Table, wanted: BooleanExpression) -> list[FileScanTask]:
    seen = table.schema().find_field("first_seen").field_id

    def age(task: FileScanTask) -> tuple[int, str]:
        # Iceberg's bounds of instants are microseconds since 1970, eight bytes, little-endian.
        first = (task.file.lower_bounds or {}).get(seen, b"")
        return int.from_bytes(first, "little", signed=True), task.file.file_path

    return sorted(table.scan(row_filter=wanted).plan_files(), key=age)


def _read(
    table: Table, task: FileScanTask, wanted: BooleanExpression, columns: tuple[str, ...] | None
) -> Iterator[pa.RecordBatch]:
    schema: Schema = table.schema() if columns is None else table.schema().select(*columns)
    whole = FileScanTask(task.file, task.delete_files)
    try:
        yield from ArrowScan(table.metadata, table.io, schema, wanted).to_record_batches([whole])
    except _UNREADABLE as problem:
        name = ".".join(table.name())
        raise UnreadableDeadLettersError(
            f"dead-letter table {name}: the dead letters in {task.file.file_path} cannot be read "
            f"({type(problem).__name__}); they are left as they are.",
            fix=f"restore the file, or delete its rows from {name}",
        ) from problem


def _conformed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Dead letters in the columns and types of `DEAD_LETTER_ARROW`; columns that the table lacks are null."""
    arrays: list[pa.Array] = []
    for column in DEAD_LETTER_ARROW:
        index = batch.schema.get_field_index(column.name)
        if index < 0:
            arrays.append(pa.nulls(batch.num_rows, column.type))
            continue
        values = batch.column(index)
        if column.name == "timestamp":
            # Earlier versions kept any time that a producer set.
            values = within_years(values)
        arrays.append(values if values.type == column.type else values.cast(column.type))
    # Damage may have left nulls in required columns. That is reported for each dead letter, not here.
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([f.with_nullable(True) for f in DEAD_LETTER_ARROW]))


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    (joined,) = pa.Table.from_batches(batches).combine_chunks().to_batches()
    return joined


def batch_letters(letters: Table, stream: str, ranges: Ranges, batch: int) -> dict[TopicPartition, frozenset[int]]:
    """Offsets of a batch that have dead letters of it; those of suspended tables do not count.

    Offsets that were read before a reset may have dead letters of that time, with an earlier epoch.
    """
    wanted = And(
        EqualTo("stream", stream),
        EqualTo("batch_id", batch),
        not_of_parked(letters.schema()),
        NotEqualTo("error_class", DISCARDED),
    )
    fields = (*DEAD_LETTER_COORDINATES, "epoch")
    found: dict[int, dict[TopicPartition, set[int]]] = {}
    for rows in letters.scan(row_filter=wanted, selected_fields=fields).to_arrow_batch_reader():
        for topic, partition, offset, epoch in zip(*(rows.column(name).to_pylist() for name in fields), strict=True):
            place = TopicPartition(topic, partition)
            if place in ranges and ranges[place].start <= offset < ranges[place].end:
                found.setdefault(epoch or 0, {}).setdefault(place, set()).add(offset)
    newest = found[max(found)] if found else {}
    return {place: frozenset(offsets) for place, offsets in newest.items()}
