"""The stream's own pipeline on letters: what would land now, and why the rest would not."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from pyiceberg.table import Table

from jobs.deadletter.masking import can_return
from jobs.formats.json.reference import JsonReferenceDecoder
from jobs.formats.outcome import Failure
from jobs.pipeline.stages import Stages
from jobs.schema.declared import StructType
from jobs.spec.models import StreamSpec
from jobs.write.table_fit import TableFit

UNREADABLE = "letter_unreadable"
MASKED = "letter_masked"
REPLAY_STAGE = "replay"


@dataclass(frozen=True, slots=True)
class Tried:
    """What became of records.

    Attributes:
        rows: Those that succeed, in the columns and types of the stream's table.
        positions: Which records they are, ascending.
        failures: One for each record that fails, ascending.
        tombstones: Records without a value.
    """

    rows: pa.RecordBatch
    positions: np.ndarray
    failures: list[Failure]
    tombstones: np.ndarray


class RecordPipeline:
    """Takes records that come with their coordinates through the stages that a driver of the stream has.

    Args:
        spec: The stream, corrected or not.
        table: The stream's table.
    """

    def __init__(self, spec: StreamSpec, table: Table) -> None:
        self._declared: StructType = spec.declared
        fit = TableFit(table.schema(), table.spec())
        self._stages: Stages = Stages(
            JsonReferenceDecoder(spec.declared, unknown_fields=spec.decode.unknown_fields),
            lambda: fit.apply,
            kafka_columns=spec.table.kafka_columns,
        )
        # Rows that fit nothing have the table's columns as well.
        self._none: pa.RecordBatch = pa.RecordBatch.from_arrays(
            [pa.array([], field.type) for field in fit.projection.target], schema=fit.projection.target
        )

    def take(self, records: pa.RecordBatch) -> Tried:
        """Run records through.

        Args:
            records: With value, topic, partition, offset and timestamp.
        """
        outcome = self._stages.run(records)
        rows = outcome.rows if outcome.rows.num_rows else self._none
        return Tried(rows, outcome.positions, outcome.failures, outcome.tombstones)

    def take_letters(self, letters: pa.RecordBatch) -> Tried:
        """Run letters through; one that does not hold its record fails, and says so."""
        index = letters.schema.get_field_index("masked")
        masked = letters.column(index).to_pylist() if index >= 0 else [None] * letters.num_rows
        whole = letters.column("value").is_valid().to_numpy(zero_copy_only=False).copy()
        withheld = {row for row, parts in enumerate(masked) if parts and not can_return(parts, self._declared)}
        whole[list(withheld)] = False
        if whole.all():
            return self.take(letters)
        kept = np.flatnonzero(whole)
        tried = self.take(letters.take(pa.array(kept)))
        failures = [replace(failure, row=int(kept[failure.row])) for failure in tried.failures]
        failures += [_gone(int(row), int(row) in withheld) for row in np.flatnonzero(~whole)]
        return Tried(
            tried.rows,
            kept[tried.positions],
            sorted(failures, key=lambda failure: failure.row),
            kept[tried.tombstones],
        )


def _gone(row: int, withheld: bool) -> Failure:
    if withheld:
        message = "the letter does not keep the whole value: errors.dead_letters.mask left out what a row needs"
        return Failure(row, REPLAY_STAGE, MASKED, message, None)
    message = "the letter has no value, which a record that failed has: its row was altered or damaged"
    return Failure(row, REPLAY_STAGE, UNREADABLE, message, None)
