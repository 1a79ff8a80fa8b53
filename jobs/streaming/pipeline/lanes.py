"""Outputs of a stream (lanes): one for each table with its own columns, with the topics whose records go there.

The topic determines a record's table before it is decoded. So an output works like a stream with one table: its records
are decoded, transformed and fitted by the columns of that table only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from jobs.records.formats.interface.decoder import Failure
from jobs.records.formats.interface.decoder_spec import ResolvedSchema
from jobs.records.formats.interface.problems import EXPRESSION_FAILED
from jobs.records.formats.record_columns import RecordColumns
from jobs.streaming.pipeline.block import Block
from jobs.streaming.pipeline.pipeline import Pipeline, fetched_parts
from jobs.streaming.pipeline.route import STAGE
from jobs.streaming.pipeline.row_steps import RowSteps
from jobs.streaming.pipeline.stages import Stage


@dataclass(frozen=True, slots=True)
class Lane:
    """Output for the records of some topics; pickled for the tasks.

    Attributes:
        topics: The topics.
        table: Table of the rows; None if they go to none.
        resolved: Columns of the values, and their decoder.
        columns: Columns of the rows that do not come from the value.
        steps: The stream's own steps between decoding and the table; None without any.
        refused: Without a table, the reason, as the message of the dead letters.
        error_class: Error class of these dead letters.
        drops: Without a table, whether the records are filtered.
        late: Table of the late rows; None if they go to the same table.
        decoded: Whether the records are decoded; False for a suspended table with unknown columns.
    """

    topics: frozenset[str]
    table: str | None
    resolved: ResolvedSchema
    columns: RecordColumns
    steps: RowSteps | None = None
    refused: str = ""
    error_class: str = ""
    drops: bool = False
    late: str | None = None
    decoded: bool = True

    @property
    def fetched(self) -> frozenset[str]:
        """Parts to fetch of a record beyond its value and coordinates."""
        asks = self.table is not None and self.decoded
        return fetched_parts(self.resolved.decoder, self.columns, self.steps) if asks else frozenset()


class NoTable:
    """Stage of records without a table: each is a dead letter, or filtered, and tombstones are dropped.

    None of the records is decoded.

    Args:
        lane: An output without a table.
    """

    name: str = STAGE

    def __init__(self, lane: Lane) -> None:
        self._lane: Lane = lane

    def apply(self, block: Block) -> Block:
        """The block without rows."""
        there = block.rows.column("value").is_valid().to_numpy(zero_copy_only=False)
        wanted, lane = np.flatnonzero(there), self._lane
        drops = lane.drops and lane.error_class != EXPRESSION_FAILED
        failures = [Failure(row, self.name, lane.error_class, lane.refused, None) for row in wanted.tolist()]
        return block.with_rows(
            block.rows.slice(0, 0),
            slice(0, 0),
            failures=[] if drops else failures,
            filtered=wanted if drops else np.zeros(0, np.int64),
            dropped=np.flatnonzero(~there),
        )

    def probe(self, block: Block) -> Block:
        """No records."""
        return block.part(0, 0)


class AsTheyAre:
    """Stage of records for a suspended table: each is kept unchanged, and tombstones are dropped."""

    name: str = STAGE

    def apply(self, block: Block) -> Block:
        """The block with the records that have a value."""
        there = block.rows.column("value").is_valid()
        kept = np.flatnonzero(there.to_numpy(zero_copy_only=False))
        dropped = np.setdiff1d(np.arange(block.rows.num_rows, dtype=np.int64), kept, assume_unique=True)
        return block.with_rows(block.rows.filter(there), kept, dropped=dropped)

    def probe(self, block: Block) -> Block:
        """No records."""
        return block.part(0, 0)


def undecoded_pipeline(table: str) -> Pipeline:
    """Pipeline of an output whose table is suspended and whose records are not decoded."""
    return Pipeline([AsTheyAre()], table)


def unrouted_pipeline(lane: Lane, coordinator: str, first: Sequence[Stage] = ()) -> Pipeline:
    """Pipeline of an output without a table.

    Args:
        lane: The output.
        coordinator: Name used as the destination of its rows, of which there are none.
        first: Stages to run before.
    """
    return Pipeline([*first, NoTable(lane)], coordinator)
