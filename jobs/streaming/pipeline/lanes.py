"""Lanes of a stream: one for each of its tables that has columns of its own, with the topics whose records go there.

Where a record goes is known by its topic, before it is decoded. So a lane is what a stream with one table is: its
records are decoded, pass the steps, and are fitted by the columns of that table alone.
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
    """The way of the records of some topics; travels to the tasks pickled.

    Attributes:
        topics: Theirs.
        table: Where their rows go; None where they go to none.
        resolved: What values become, and how.
        columns: Those of the rows that are not from the value.
        steps: The stream's own between decoding and the table; None where it has none.
        refused: Of a lane without a table, why, as the message of their letters.
        error_class: Of these.
        drops: Of a lane without a table, whether its records are filtered.
        late: Where those of their rows go that come late; None where these go to the same table.
        decoded: Whether its records are decoded; not those of a table that is parked, whose columns nobody knows.
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
        """What has to be fetched of a record beyond its value and coordinates."""
        asks = self.table is not None and self.decoded
        return fetched_parts(self.resolved.decoder, self.columns, self.steps) if asks else frozenset()


class NoTable:
    """The stage of records that no table takes: each is a dead letter, or filtered, and tombstones are dropped.

    None of them is decoded.

    Args:
        lane: Without a table.
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
    """The stage of records for a table that is parked: each is kept as it is, and tombstones are dropped."""

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
    """The pipeline of a lane whose table is parked, and whose records nobody decodes."""
    return Pipeline([AsTheyAre()], table)


def unrouted_pipeline(lane: Lane, coordinator: str, first: Sequence[Stage] = ()) -> Pipeline:
    """The pipeline of a lane without a table.

    Args:
        lane: The lane.
        coordinator: Stands for the destination of its rows, of which there are none.
        first: Stages before.
    """
    return Pipeline([*first, NoTable(lane)], coordinator)
