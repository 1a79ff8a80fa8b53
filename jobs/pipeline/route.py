"""Route stage: each row to the tables that its route names, fitted to every one of them before any is written."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.formats.decoder import Failure
from jobs.formats.problems import UNROUTED, ValueProblem
from jobs.pipeline.block import Block, RoutedRows
from jobs.pipeline.stages import Fit, with_kafka_columns
from jobs.schema.kafka_columns import KafkaColumns
from jobs.spec.route import Route
from jobs.write.projection import UnfitValueError

STAGE = "route"
"""The stage that refuses a record which no table takes, as dead letters call it."""

_LONGEST = 60


class FitToRoutedTables:
    """Brings rows into the columns and types of each table that they are for.

    A row that one of its tables cannot hold goes to none of them.

    Args:
        route: Says which those are.
        fits: For each target, by name, what gives its rows; raises as `TableFit.apply` does.
        kafka: The columns that rows have of Kafka's own.
    """

    name: str = "write"

    def __init__(self, route: Route, fits: Mapping[str, Fit], *, kafka: KafkaColumns) -> None:
        self._route: Route = route
        self._fits: Mapping[str, Fit] = fits
        self._kafka: KafkaColumns = kafka
        self._known: dict[str | None, tuple[str, ...]] = {}

    def apply(self, block: Block) -> Block:
        """The block with the rows of each table; a record that none takes has failed."""
        rows = with_kafka_columns(block, self._kafka)
        if not rows.num_rows:
            for name in self._route.table_names:
                self._fits[name](rows)
            return block
        tables, nowhere = self._tables_of(block)
        routed: dict[str, RoutedRows] = {}
        for name, at in tables.items():
            mine = rows if len(at) == rows.num_rows else rows.take(pa.array(at))
            try:
                routed[name] = RoutedRows(self._fits[name](mine), block.positions[at])
            except UnfitValueError as problem:
                raise ValueProblem(problem.error_class, problem.message, f"$.{problem.path}") from None
        if not nowhere:
            return block.with_rows(rows, routed=routed)
        kept = np.delete(np.arange(rows.num_rows, dtype=np.int64), list(nowhere))
        failures = [self._unrouted(row, value) for row, value in sorted(nowhere.items())]
        return block.with_rows(rows.take(pa.array(kept)), kept, failures=failures, routed=routed)

    def probe(self, block: Block) -> Block:
        """No rows: a table that cannot hold even those holds no row of the stream."""
        return block.part(0, 0)

    def _tables_of(self, block: Block) -> tuple[dict[str, np.ndarray], dict[int, str | None]]:
        """The rows of each table that has any, ascending; and those of none, with their values."""
        values = self._values(block)
        encoded = values.dictionary_encode(null_encoding="encode")
        codes, found = np.asarray(encoded.indices), dict[str, list[int]]()
        nowhere: dict[int, str | None] = {}
        for code, value in enumerate(encoded.dictionary.to_pylist()):
            destinations = self._destinations(value)
            for name in destinations:
                found.setdefault(name, []).append(code)
            if not destinations:
                nowhere |= dict.fromkeys(np.flatnonzero(codes == code).tolist(), value)
        every = len(encoded.dictionary)
        at = {
            name: np.arange(len(codes), dtype=np.int64)
            if len(mine) == every
            else np.flatnonzero(np.isin(codes, np.array(mine)))
            for name, mine in found.items()
        }
        return at, nowhere

    def _values(self, block: Block) -> pa.Array:
        path = self._route.column
        if path is None:
            topics = block.records.column("topic")
            return topics if block.is_whole else topics.take(pa.array(block.positions))
        column = block.rows.column(path[0])
        if len(path) > 1:
            column = pc.struct_field(column, list(path[1:]))  # pyright: ignore[reportAttributeAccessIssue]
        return column.cast(pa.string())

    def _destinations(self, value: str | None) -> tuple[str, ...]:
        if (known := self._known.get(value)) is None:
            # A key of many values must not fill the task.
            if len(self._known) >= 100_000:
                self._known.clear()
            known = self._known[value] = self._route.destinations(value)
        return known

    def _unrouted(self, row: int, value: str | None) -> Failure:
        path = self._route.column
        shown = "null" if value is None else repr(value if len(value) <= _LONGEST else f"{value[:_LONGEST]}…")
        message = f"needs a value that a table of the route takes, found {shown}"
        return Failure(row, STAGE, UNROUTED, message, f"$.{'.'.join(path)}" if path else None)
