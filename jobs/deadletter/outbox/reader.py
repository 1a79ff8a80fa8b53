"""Reader of the dead letters that are to be published: in order, from one snapshot, a bounded number at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.table import Table

from jobs.deadletter.outbox.position import ORDER, Key, OutboxPosition
from jobs.errors import FrazilError
from jobs.formats.columns.text_values import within_years

WINDOW_LETTERS = 50_000
MOST_LETTERS = 5_000
_FIRST_LETTERS = 200
_GROWTH = 4
CHUNK_BYTES = 16 * 2**20

# What a letter is made of; tables of earlier versions have no `masked`.
COLUMNS = (
    *("stream", "topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers"),
    *("stage", "error_class", "message", "field", "config_hash", "batch_id", "epoch", "first_seen"),
)
_MASKED = "masked"
_SORTING: list[tuple[str, str]] = [(name, "ascending") for name in ORDER]


@dataclass(frozen=True, slots=True)
class LetterWindow:
    """The next letters that the outbox reads, behind a place.

    Attributes:
        total: How many letters are behind it, also beyond the window.
        keys: The columns `ORDER` of the first of them, in order.
    """

    total: int
    keys: pa.Table

    def key(self, index: int) -> Key:
        """Where the letter with this index stands in the order."""
        epoch, batch, topic, partition, offset = (self.keys.column(name)[index].as_py() for name in ORDER)
        return (epoch, batch, topic, partition, offset)


def refuse_altered(table: Table, name: str) -> None:
    """Check that the table has what a letter is made of.

    Raises:
        FrazilError: Somebody has taken columns out of it.
    """
    missing = sorted(set(COLUMNS) - set(table.schema().column_names))
    if missing:
        raise FrazilError(
            f"dead-letter table {name} has no column {', '.join(missing)}: it was altered, and its letters cannot be "
            "published.",
            fix=f"put the columns of {name} back: rename them, or roll the table's schema back",
        )


def count_unpublished(table: Table, stream: str, position: OutboxPosition) -> int:
    """How many letters of the stream are behind a place."""
    return table.scan(row_filter=position.rows_after(stream), selected_fields=("epoch",)).count()


def next_window(table: Table, stream: str, position: OutboxPosition, most: int = WINDOW_LETTERS) -> LetterWindow:
    """The keys of the next letters. It reads the key columns of all that are behind, and keeps `most` of them."""
    reader = table.scan(row_filter=position.rows_after(stream), selected_fields=ORDER).to_arrow_batch_reader()
    kept: list[pa.Table] = []
    total = rows = 0
    for batch in reader:
        total += batch.num_rows
        rows += batch.num_rows
        kept.append(pa.table(batch).select(list(ORDER)))
        if rows > 4 * most:
            kept = [_first(kept, most)]
            rows = most
    return LetterWindow(total, _first(kept or [reader.schema.empty_table()], most))


def _first(tables: list[pa.Table], most: int) -> pa.Table:
    return pa.concat_tables(tables).sort_by(_SORTING).slice(0, most).combine_chunks()


def letter_chunks(
    table: Table,
    stream: str,
    position: OutboxPosition,
    window: LetterWindow,
    *,
    most: int = MOST_LETTERS,
    most_bytes: int = CHUNK_BYTES,
) -> Iterator[tuple[Key, pa.Table]]:
    """Read the letters of a window, some at a time, each with the key of its last one.

    How many is learnt from the size of those before: nobody knows it of letters that were not read.

    Raises:
        FrazilError: The table's files do not hold what they held a moment ago.
    """
    count, done = min(_FIRST_LETTERS, most), 0
    columns = (*COLUMNS, *({_MASKED} & set(table.schema().column_names)))
    while done < window.keys.num_rows:
        size = min(count, window.keys.num_rows - done)
        last = window.key(done + size - 1)
        letters = table.scan(row_filter=position.rows_after(stream, last), selected_fields=columns).to_arrow()
        if letters.num_rows != size:
            raise FrazilError(
                f"dead letters of stream {stream}: {size} were found, and {letters.num_rows} were read, up to "
                f"{last[2]}-{last[3]} offset {last[4]} of batch {last[1]}, epoch {last[0]}.",
                fix="see whether something else writes files of the dead-letter table",
            )
        # Earlier versions kept any time that a producer gave.
        at = letters.schema.get_field_index("timestamp")
        times = within_years(letters.column(at).combine_chunks())
        yield last, letters.set_column(at, letters.schema.field(at), times).sort_by(_SORTING)
        average = max(1, letters.nbytes // size)
        count = max(1, min(most, size * _GROWTH, most_bytes // average))
        done += size
        position = OutboxPosition.through(last)
