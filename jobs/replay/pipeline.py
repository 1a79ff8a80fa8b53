"""The stream's own pipeline on dead letters: what would land now, and why the rest would not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from jobs.deadletter.masking import can_return
from jobs.formats.decoder import Failure
from jobs.pipeline.block import Block
from jobs.pipeline.pipeline import Pipeline, stream_pipeline
from jobs.pipeline.stage import Stage
from jobs.spec.models import StreamSpec
from jobs.write.table_fit import TableFit

UNREADABLE = "letter_unreadable"
MASKED = "letter_masked"
REPLAY_STAGE = "replay"


def letter_pipeline(spec: StreamSpec, table: Table) -> Pipeline:
    """The pipeline of a stream for its dead letters: those that do not hold their record fail, and say so.

    Args:
        spec: The stream, corrected or not.
        table: The stream's table.
    """
    return record_pipeline(spec, table, first=[WholeLetters(spec.resolved.schema)])


def record_pipeline(spec: StreamSpec, table: Table, *, first: Sequence[Stage] = ()) -> Pipeline:
    """The pipeline of a stream for records that have failed before.

    Args:
        spec: The stream, corrected or not.
        table: The stream's table.
        first: Stages before all others.
    """
    return stream_pipeline(
        spec.resolved.decoder,
        spec.table.name,
        TableFit(table.schema(), table.spec()).apply,
        kafka_columns=spec.table.kafka_columns,
        first=first,
        reference=True,
    )


class WholeLetters:
    """The stage that passes dead letters which hold all of their record that a row needs.

    Args:
        rows: The schema of the rows that values are decoded to.
    """

    name: str = REPLAY_STAGE

    def __init__(self, rows: Schema) -> None:
        self._rows: Schema = rows

    def apply(self, block: Block) -> Block:
        """The block without the letters that have no value, or not the whole of it."""
        letters = block.rows
        index = letters.schema.get_field_index("masked")
        masked = letters.column(index).to_pylist() if index >= 0 else [None] * letters.num_rows
        withheld = [bool(parts) and not can_return(parts, self._rows) for parts in masked]
        whole = letters.column("value").is_valid().to_numpy(zero_copy_only=False) & ~np.array(withheld, dtype=bool)
        failures = [_gone(row, withheld[row]) for row in np.flatnonzero(~whole).tolist()]
        kept = np.flatnonzero(whole)
        return block.with_rows(letters if not failures else letters.take(kept), kept, failures=failures)

    def probe(self, block: Block) -> Block:
        """No letters."""
        return block.part(0, 0)


def _gone(row: int, withheld: bool) -> Failure:
    if withheld:
        message = "the letter does not keep the whole value: errors.dead_letters.mask left out what a row needs"
        return Failure(row, REPLAY_STAGE, MASKED, message, None)
    message = "the letter has no value, which a record that failed has: its row was altered or damaged"
    return Failure(row, REPLAY_STAGE, UNREADABLE, message, None)
