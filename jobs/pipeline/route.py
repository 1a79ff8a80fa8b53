"""Route stage: each row to the tables that its route names, fitted to every one of them before any is written."""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.formats.decoder import Failure
from jobs.formats.problems import UNROUTED, untold
from jobs.pipeline.block import Block, RoutedRows
from jobs.pipeline.route_dispatch import Dispatch, Dispatched, grouped
from jobs.pipeline.route_naming import NO_TABLE, Naming, NamingState
from jobs.pipeline.row_steps import aligned
from jobs.pipeline.stages import WRITE, Fit, unfit, with_kafka_columns
from jobs.schema.kafka_columns import KafkaColumns
from jobs.spec.route import Route
from jobs.transform.columns import Columns
from jobs.transform.row_json import row_json
from jobs.transform.sql import compiled, evaluated, failures_of
from jobs.transform.transform import RowFailure, Rows
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
        naming: The state of the tables that values name.
        kafka: The columns that rows have of Kafka's own.
        columns: Those of the rows; needed only of a route by an expression.
        hide_values: Whether dead letters tell nothing of the row's values.
    """

    name: str = WRITE

    def __init__(
        self,
        route: Route,
        fits: Mapping[str, Fit],
        naming: NamingState | None = None,
        *,
        kafka: KafkaColumns,
        columns: Columns | None = None,
        hide_values: bool = True,
    ) -> None:
        self._route: Route = route
        self._fits: Mapping[str, Fit] = fits
        self._kafka: KafkaColumns = kafka
        self._columns: Columns | None = columns
        self._hide_values: bool = hide_values
        named = naming is not None and route.to is not None
        # What no entry takes is looked at by value, before it is unmatched.
        self._dispatch: Dispatch = Dispatch(route.model_copy(update={"unmatched": "dead_letter"}) if named else route)
        self._naming: Naming | None = Naming(route, fits, naming) if named and naming else None

    def apply(self, block: Block) -> Block:
        """The block with the rows of each table; a record that none takes has failed, or is filtered."""
        rows = with_kafka_columns(block, self._kafka)
        if not rows.num_rows:
            for name in self._route.table_names:
                self._fits[name](rows)
            return block
        values, failed = self._values(block)
        found = self._dispatch.rows_of(values)
        refused = {each.row: each for each in failed}
        tables, why, unnamed = found.tables, dict[int, str](), dict[str, np.ndarray]()
        if self._naming is not None and len(found.nowhere):
            tables, unnamed, why = self._named(self._naming, values, found, refused)
            found = found._replace(nowhere=np.array(sorted(why), np.int64))
            if (other := self._route.unmatched_table) is not None and why:
                at = found.nowhere
                tables[other] = np.union1d(tables[other], at) if other in tables else at
                found = found._replace(nowhere=np.zeros(0, np.int64))
        if refused:
            of_failed = np.array(sorted(refused), np.int64)
            tables = {name: np.setdiff1d(at, of_failed, assume_unique=True) for name, at in tables.items()}
        routed: dict[str, RoutedRows] = {}
        for name, at in tables.items():
            if not len(at):
                continue
            mine = rows if len(at) == rows.num_rows else rows.take(pa.array(at))
            try:
                routed[name] = RoutedRows(self._fits[name](mine), block.positions[at])
            except UnfitValueError as problem:
                raise unfit(problem, hide_values=self._hide_values) from None
        nowhere = np.array([each for each in found.nowhere.tolist() if each not in refused], np.int64)
        if not len(nowhere) and not refused and not unnamed:
            return block.with_rows(rows, routed=routed)
        dropped = self._route.unmatched == "drop"
        if not dropped:
            refused |= {
                row: self._unrouted(row, values[row].as_py(), why.get(row, NO_TABLE)) for row in nowhere.tolist()
            }
        waiting = [np.array(sorted(refused), np.int64), *unnamed.values()]
        gone = np.union1d(nowhere, np.concatenate(waiting))
        kept = np.setdiff1d(np.arange(rows.num_rows, dtype=np.int64), gone, assume_unique=True)
        return block.with_rows(
            rows.take(pa.array(kept)),
            kept,
            failures=[self._failure(block, refused[row]) for row in sorted(refused)],
            filtered=nowhere if dropped else np.zeros(0, np.int64),
            routed=routed,
            unnamed=unnamed,
        )

    def _named(
        self, naming: Naming, values: pa.Array, found: Dispatched, failed: Mapping[int, RowFailure]
    ) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray], dict[int, str]]:
        """What becomes of rows that no entry takes: tables' rows, those that wait for a table, and why of all others.

        Args:
            naming: Tells of each value.
            values: Of all rows.
            found: What the entries take; its tables come back with those of values.
            failed: Rows without a value that can be told.
        """
        tables, unnamed, why = dict(found.tables), dict[str, np.ndarray](), dict[int, str]()
        rows = found.nowhere
        if failed:
            rows = np.setdiff1d(rows, np.array(sorted(failed), np.int64), assume_unique=True)
        encoded = values.take(pa.array(rows)).dictionary_encode(null_encoding="encode")
        texts = encoded.dictionary.to_pylist()
        for number, at in grouped(np.arange(len(texts), dtype=np.int64), np.asarray(encoded.indices)):
            table, refused = naming.of(texts[number])
            mine = rows[at]
            if table is not None:
                tables[table] = mine
            elif refused is not None:
                why |= dict.fromkeys(mine.tolist(), refused)
            else:
                unnamed[texts[number]] = mine
        return tables, unnamed, why

    def probe(self, block: Block) -> Block:
        """No rows: a table that cannot hold even those holds no row of the stream."""
        return block.part(0, 0)

    def before(self, block: Block) -> str:
        """The first row, without the columns of Kafka's own."""
        return row_json(block.rows, 0, hidden=self._hide_values)

    def _values(self, block: Block) -> tuple[pa.Array, list[RowFailure]]:
        """What decides where each row goes, as text; and the rows of which that cannot be said."""
        if (text := self._route.expression) is not None:
            return self._evaluated(block, text)
        if (path := self._route.column) is None:
            return block.frame.part("topic"), []
        column = block.rows.column(path[0])
        if len(path) > 1:
            column = pc.struct_field(column, list(path[1:]))
        return column.cast(pa.string()), []

    def _evaluated(self, block: Block, text: str) -> tuple[pa.Array, list[RowFailure]]:
        if self._columns is None:
            raise TypeError("a route by an expression needs the columns of its rows")
        rows = Rows(self._columns, aligned(block.rows, self._columns), block.frame)
        found = evaluated(compiled(text, self._columns), rows)
        return found.values.cast(pa.string()), failures_of(found, text)

    def _unrouted(self, row: int, value: str | None, wanted: str) -> RowFailure:
        path = self._route.column
        shown = "null" if value is None else repr(value if len(value) <= _LONGEST else f"{value[:_LONGEST]}…")
        message = f"needs a value that {wanted}, found {shown}"
        return RowFailure(row, UNROUTED, message, f"$.{'.'.join(path)}" if path else None)

    def _failure(self, block: Block, failure: RowFailure) -> Failure:
        message = untold(failure.message) if self._hide_values else failure.message
        before = row_json(block.rows, failure.row, hidden=self._hide_values)
        return Failure(failure.row, STAGE, failure.error_class, message, failure.path, before)
