"""Outputs of a replay (lanes): the dead letters of each topic, by the columns of the table of its records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from jobs.config.stream.models import StreamSpec
from jobs.dead_letters.replay.routing import (
    ELSEWHERE,
    NO_TABLE,
    PARKED_NOW,
    RowTables,
    refuse_unfit,
)
from jobs.records.formats.interface.decoder import Failure
from jobs.records.formats.interface.problems import UNROUTED
from jobs.records.schema.decoded_columns import decoded_digest
from jobs.records.schema.name_matching import NAME_MAPPING
from jobs.streaming.pipeline.block import Indices
from jobs.streaming.pipeline.pipeline import DROPPED_NOW, Pipeline
from jobs.streaming.pipeline.route import STAGE
from jobs.streaming.pipeline.route_naming import naming_state
from jobs.streaming.pipeline.row_steps import FILTERED
from jobs.streaming.pipeline.topic_tables import TopicTable, topic_tables
from jobs.tables.dead_letter_table.parked_letters import PARKED_STAGE, TABLE_PARKED


class LaneRows(NamedTuple):
    """Rows for one table, and the dead letter of each, ascending."""

    table: str
    rows: pa.RecordBatch
    letters: Indices


class LaneOutcome(NamedTuple):
    """Fate of records.

    Attributes:
        rows: Their rows, by table.
        failures: Failures by index, ascending.
        dropped: Indices of tombstones.
        unknown_fields: Records by the path of a field without a column.
    """

    rows: list[LaneRows]
    failures: list[Failure]
    dropped: Indices
    unknown_fields: Counter[str]


class ReplayLanes:
    """Takes dead letters, or records of a queue, through the pipelines of their topics' tables.

    Args:
        spec: The stream, corrected or not, whose tables each have their own columns.
        tables: Returns its tables of rows.
        make: Makes a table's pipeline, from the stream in its form for the table.
    """

    def __init__(self, spec: StreamSpec, tables: RowTables, make: Callable[[StreamSpec, Table], Pipeline]) -> None:
        self._spec: StreamSpec = spec
        self._tables: RowTables = tables
        self._make: Callable[[StreamSpec, Table], Pipeline] = make
        self._there: frozenset[str] = frozenset(each.name for each in spec.targets if each.role == "rows")
        self._known: dict[str, tuple[tuple[Schema, PartitionSpec, str | None, str | None], Pipeline]] = {}

    def outcome(
        self,
        letters: pa.RecordBatch,
        *,
        tombstones: bool = False,
        only: str | None = None,
        parked: Collection[str] = (),
    ) -> LaneOutcome:
        """Fate of dead letters.

        Args:
            letters: Dead letters or records.
            tombstones: Whether records without a value and without a table are dropped.
            only: The table that all of them wait for: records that no longer go there have failed.
            parked: Tables that take no rows: their records stay unchanged.

        Raises:
            FrazilError: A table cannot be read, or cannot hold its rows; or a topic would go to two tables.
        """
        topics = letters.column("topic").to_pylist()
        found = topic_tables(self._spec, topics, self._there, naming_state(self._spec, {}, decided=False))
        made: list[LaneRows] = []
        failures: list[Failure] = []
        empty = np.asarray(letters.column("value").is_null()) if tombstones else np.zeros(letters.num_rows, bool)
        dropped: list[Indices] = []
        by_table: dict[str, list[int]] = {}
        unknown = Counter[str]()
        for row, topic in enumerate(topics):
            here = found[topic]
            if here.table is not None and here.table in parked:
                why = PARKED_NOW.format(tables=here.table)
                failures.append(Failure(row, PARKED_STAGE, TABLE_PARKED, why, None))
            elif only is not None and here.table != only:
                failures.append(Failure(row, STAGE, UNROUTED, ELSEWHERE.format(table=only), None))
            elif here.table in self._there:
                by_table.setdefault(here.table, []).append(row)
            elif empty[row]:
                dropped.append(np.array([row], np.int64))
            else:
                failures.append(self._failure(row, here))
        for name, rows in by_table.items():
            those = np.array(rows, np.int64)
            block = self._pipeline(name).run(letters.take(pa.array(those)))
            unknown.update(block.unknown_fields)
            made.append(LaneRows(name, block.rows, those[block.positions]))
            failures += [failure.at(int(those[failure.row])) for failure in block.failures]
            dropped.append(those[block.dropped])
        gone = np.sort(np.concatenate([np.zeros(0, np.int64), *dropped]))
        return LaneOutcome(made, sorted(failures, key=lambda each: each.row), gone, unknown)

    def _failure(self, row: int, found: TopicTable) -> Failure:
        if found.table is not None:
            return Failure(row, STAGE, UNROUTED, NO_TABLE, None)
        route = self._spec.route
        if route is not None and route.unmatched == "drop" and found.error_class == UNROUTED:
            return Failure(row, STAGE, FILTERED, DROPPED_NOW, None)
        return Failure(row, STAGE, found.error_class, found.refused, None)

    def _pipeline(self, name: str) -> Pipeline:
        """Pipeline of a table, as its decoder learns; a new one if the table's columns or partitions change."""
        table = self._tables.table(name)
        decoded = decoded_digest(table.properties, self._spec.stream)
        now = table.schema(), table.spec(), table.properties.get(NAME_MAPPING), decoded
        if name not in self._known or self._known[name][0] != now:
            refuse_unfit(self._spec, table)
            self._known[name] = now, self._make(self._spec.for_table(name), table)
        return self._known[name][1]
