"""Lanes of a queue: Kafka Connect's dead letters by the columns of the table that their original topic goes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import pyarrow as pa
from pyiceberg.table import Table

from jobs.formats.decoder import Failure
from jobs.formats.writer_schema import SchemaLookup
from jobs.pipeline.block import Indices, RoutedRows
from jobs.pipeline.pipeline import Pipeline
from jobs.replay.connect.records import QueueRecords
from jobs.replay.lanes import ReplayLanes
from jobs.replay.pipeline import record_pipeline
from jobs.replay.routing import routed_to, without_table
from jobs.replay.row_tables import GivenTables
from jobs.spec.models import StreamSpec


@dataclass(frozen=True, slots=True)
class Processed:
    """What the pipeline makes of fetched records, which are named by their places.

    Attributes:
        rows: By table, those for it and whose they are.
        failures: Of those that become none.
        dropped: The tombstones.
        unknown_fields: Records by the path of a field that no column takes.
    """

    rows: Mapping[str, RoutedRows]
    failures: list[Failure]
    dropped: Indices
    unknown_fields: Mapping[str, int]

    @property
    def landing(self) -> Indices:
        """The records that become rows, ascending."""
        return np.unique(np.concatenate([np.zeros(0, np.int64), *(each.positions for each in self.rows.values())]))


class QueueRows:
    """Makes rows of a queue's records, by the tables as they are for the length of a batch.

    Args:
        spec: The stream, corrected or not.
        tables: All of its tables, by name.
        schemas: Finds the writer schemas of records that name theirs.
        batch_time: What now() is in the stream's expressions; without it the time of this call.
    """

    def __init__(
        self,
        spec: StreamSpec,
        tables: Mapping[str, Table],
        schemas: SchemaLookup | None = None,
        batch_time: datetime | None = None,
    ) -> None:
        self._own: str = spec.table.name
        self._routed: bool = spec.route is not None
        given = GivenTables(tables)

        def of_lane(one: StreamSpec, table: Table) -> Pipeline:
            return record_pipeline(one, table, schemas, batch_time=batch_time)

        self._lanes: ReplayLanes | None = ReplayLanes(spec, given, of_lane) if spec.own_columns else None
        self._pipeline: Pipeline | None = None
        if self._lanes is None:
            routed = routed_to(spec, given) if self._routed else None
            self._pipeline = record_pipeline(spec, tables[self._own], schemas, routed=routed, batch_time=batch_time)

    def of(self, fetched: QueueRecords) -> Processed:
        """What becomes of records.

        Raises:
            FrazilError: A table cannot hold its rows, or a topic would go to two.
        """
        if self._pipeline is None:
            return self._by_topic(fetched)
        block = self._pipeline.run(fetched.records)
        rows = block.routed if self._routed else {self._own: RoutedRows(block.rows, block.positions)}
        return Processed(rows, [*block.failures, *without_table(block)], block.dropped, block.unknown_fields)

    def _by_topic(self, fetched: QueueRecords) -> Processed:
        """Records by the topics that their headers name; those that name none are looked at by nobody."""
        assert self._lanes is not None
        told = np.flatnonzero(~fetched.lacking)
        found = self._lanes.outcome(fetched.records.take(pa.array(told)), tombstones=True)
        empty = np.asarray(fetched.records.column("value").is_null()) & fetched.lacking
        return Processed(
            {each.table: RoutedRows(each.rows, told[each.letters]) for each in found.rows},
            [each.at(int(told[each.row])) for each in found.failures],
            np.sort(np.concatenate([told[found.dropped], np.flatnonzero(empty)])),
            found.unknown_fields,
        )
