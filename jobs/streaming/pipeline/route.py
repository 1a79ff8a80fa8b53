"""Route stage: sends each row to its tables, and fits it to all of them before any is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg import types as ice

from jobs.config.stream.route import Route
from jobs.config.values.table_columns import TableColumns
from jobs.records.formats.interface.decoder import Failure
from jobs.records.formats.interface.problems import UNROUTED, untold
from jobs.records.schema.kafka_columns import KafkaColumns
from jobs.records.transforms.columns import Columns
from jobs.records.transforms.row_json import row_json
from jobs.records.transforms.sql import compiled, evaluated, failures_of
from jobs.records.transforms.transform import RowFailure, Rows
from jobs.streaming.pipeline.block import Block, Indices, RoutedRows
from jobs.streaming.pipeline.route_dispatch import Dispatch, grouped
from jobs.streaming.pipeline.route_naming import NO_TABLE, Naming, NamingState
from jobs.streaming.pipeline.row_steps import aligned
from jobs.streaming.pipeline.stages import (
    WRITE,
    Fit,
    unfit,
    with_kafka_columns,
)
from jobs.tables.write.projection import UnfitValueError


class Narrowing:
    """Removes fields of rows that a table lacks; columns outside the rows' schema stay, such as Kafka's.

    Args:
        every: Columns of the rows.
        kept: Columns that the table has.
    """

    def __init__(self, every: Columns, kept: Columns) -> None:
        self._kept: dict[str, ice.IcebergType] = {each.name: each.field_type for each in kept}
        self._gone: frozenset[str] = frozenset(every.names) - self._kept.keys()

    def apply(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows without the removed fields. Copies no values."""
        arrays, fields = list[pa.Array](), list[pa.Field]()
        for field, array in zip(rows.schema, rows.columns, strict=True):
            if field.name in self._gone:
                continue
            kind = self._kept.get(field.name)
            narrow = array if kind is None else _narrow(array, kind)
            arrays.append(narrow)
            fields.append(field if narrow is array else field.with_type(narrow.type))
        if not arrays:
            raise ValueError("a table without columns")
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def _narrow(array: pa.Array, kind: ice.IcebergType) -> pa.Array:
    if isinstance(kind, ice.StructType) and isinstance(array, pa.StructArray):
        return _narrow_struct(array, kind)
    if isinstance(kind, ice.ListType) and isinstance(array, pa.ListArray):
        return _narrow_list(array, kind)
    return array


def _narrow_list(array: pa.ListArray, kind: ice.ListType) -> pa.Array:
    # Offsets of a slice are those of the whole array.
    offsets = array.offsets.to_numpy(zero_copy_only=False)
    first, last = int(offsets[0]), int(offsets[-1])
    elements = array.values.slice(first, last - first)
    narrow = _narrow(elements, kind.element_type)
    if narrow is elements:
        return array
    return pa.ListArray.from_arrays(
        pa.array((offsets - first).astype(np.int32)),
        narrow,
        type=pa.list_(array.type.value_field.with_type(narrow.type)),
        mask=array.is_null() if array.null_count else None,
    )


def _narrow_struct(array: pa.StructArray, kind: ice.StructType) -> pa.Array:
    kept = {each.name: each.field_type for each in kind.fields}
    arrays, fields = list[pa.Array](), list[pa.Field]()
    changed = False
    for number in range(array.type.num_fields):
        field = array.type.field(number)
        if field.name not in kept:
            changed = True
            continue
        child = array.field(number)
        narrow = _narrow(child, kept[field.name])
        changed |= narrow.type != child.type
        arrays.append(narrow)
        fields.append(field.with_type(narrow.type))
    if not changed:
        return array
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=array.is_null() if array.null_count else None)


STAGE = "route"
"""Name of the stage in dead letters, for a record that no table takes."""

_LONGEST = 60
_NONE: Indices = np.zeros(0, np.int64)

LateRows: TypeAlias = Callable[[Block, pa.RecordBatch], np.ndarray]
"""Returns the late rows of a block, given the block and its rows with Kafka's columns."""


@dataclass(frozen=True, slots=True)
class Destinations:
    """The tables of a stream's rows, and the choice between them.

    Attributes:
        own: The stream's main table.
        route: Chooses the tables of timely rows; None: the main table.
        late: Table of late rows, if they have one; it overrides the route.
        which: Chooses the late rows.
    """

    own: str
    route: Route | None = None
    late: str | None = None
    which: LateRows | None = None

    def columns_of(self, table: str) -> TableColumns | None:
        """Columns of the rows that a table has; None for all."""
        return None if self.route is None or table in (self.own, self.late) else self.route.columns_of(table)

    @property
    def tables(self) -> tuple[str, ...]:
        """Every table that may get rows."""
        timely = self.route.table_names if self.route else (self.own,)
        return (*timely, self.late) if self.late else timely


class _Sent(NamedTuple):
    """Row numbers of a block: for each table, for none, dropped, and waiting for a table that a value names."""

    tables: dict[str, Indices]
    refused: dict[int, RowFailure]
    dropped: Indices
    unnamed: dict[str, Indices]


class FitToRoutedTables:
    """Converts rows to the columns and types of each of their tables.

    A row that one of its tables cannot hold goes to none of them.

    Args:
        destinations: Chooses the tables.
        fits: Function by target name that converts rows for it; raises as `TableFit.apply` does.
        naming: State of the dynamic tables.
        kafka: Kafka's columns of the rows.
        columns: Columns of the rows; needed for a route by an expression, or if tables have their own columns.
        batch_time: Time of the batch, UTC; needed only if the route's expression uses it.
        hide_values: Whether dead letters contain no values of the rows.
    """

    name: str = WRITE

    def __init__(
        self,
        destinations: Destinations,
        fits: Mapping[str, Fit],
        naming: NamingState | None = None,
        *,
        kafka: KafkaColumns,
        columns: Columns | None = None,
        batch_time: datetime | None = None,
        hide_values: bool = True,
    ) -> None:
        self._of: Destinations = destinations
        self._fits: Mapping[str, Fit] = fits
        self._narrowings: dict[str, Narrowing | None] = {}
        self._kafka: KafkaColumns = kafka
        self._columns: Columns | None = columns
        self._batch_time: datetime | None = batch_time
        self._hide_values: bool = hide_values
        route = destinations.route
        named = route is not None and naming is not None and route.to is not None
        self._dispatch: Dispatch | None = None
        self._naming: Naming | None = None
        if route is not None:
            # Rows that no entry matches are checked for dynamic tables before they count as unmatched.
            self._dispatch = Dispatch(route.model_copy(update={"unmatched": "dead_letter"}) if named else route)
            self._naming = Naming(route, fits, naming) if named and naming else None

    def apply(self, block: Block) -> Block:
        """The block with the rows of each table; a record without a table has failed, or is filtered."""
        rows = with_kafka_columns(block, self._kafka)
        if not rows.num_rows:
            for name in self._of.tables:
                self._fitted(name, rows)
            return block
        tables, refused, dropped, unnamed = self._sent(block, rows)
        routed: dict[str, RoutedRows] = {}
        for name, at in tables.items():
            if not len(at):
                continue
            whole = len(at) == rows.num_rows
            mine = rows if whole else rows.take(pa.array(at))
            try:
                routed[name] = RoutedRows(self._fitted(name, mine), block.positions if whole else block.positions[at])
            except UnfitValueError as problem:
                raise unfit(problem, hide_values=self._hide_values) from None
        if not len(dropped) and not refused and not unnamed:
            return block.with_rows(rows, routed=routed)
        gone = np.union1d(dropped, np.concatenate([_ascending(refused), *unnamed.values()]))
        kept = np.setdiff1d(np.arange(rows.num_rows, dtype=np.int64), gone, assume_unique=True)
        return block.with_rows(
            rows.take(pa.array(kept)),
            kept,
            failures=[self._failure(block, refused[row]) for row in sorted(refused)],
            filtered=dropped,
            routed=routed,
            unnamed=unnamed,
        )

    def _fitted(self, name: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows in a table's form, without columns that it lacks."""
        if name not in self._narrowings:
            self._narrowings[name] = self._narrowing(name)
        narrowing = self._narrowings[name]
        return self._fits[name](rows if narrowing is None else narrowing.apply(rows))

    def _narrowing(self, name: str) -> Narrowing | None:
        chosen = self._of.columns_of(name)
        if chosen is None:
            return None
        if self._columns is None:
            raise TypeError("a table with columns of its own needs those of its rows")
        return Narrowing(self._columns, chosen.of(self._columns))

    def _sent(self, block: Block, rows: pa.RecordBatch) -> _Sent:
        """Destinations of the rows: late ones go to their table, without the route."""
        late = _NONE if self._of.which is None else np.flatnonzero(self._of.which(block, rows)).astype(np.int64)
        sent = self._by_route(block, self._of.route, late)
        if self._of.late is not None and len(late):
            sent = sent._replace(tables=sent.tables | {self._of.late: late})
        return sent

    def _by_route(self, block: Block, route: Route | None, late: Indices) -> _Sent:
        """Destinations of the rows that are not late."""
        if route is None or self._dispatch is None:
            return _Sent({self._of.own: _without(np.arange(block.rows.num_rows, dtype=np.int64), late)}, {}, _NONE, {})
        values, failed = self._values(block, route)
        found = self._dispatch.rows_of(values)
        spared = frozenset(late.tolist())
        refused = {each.row: each for each in failed if each.row not in spared}
        gone = np.union1d(late, _ascending(refused))
        tables = {name: _without(at, gone) for name, at in found.tables.items()}
        nowhere = _without(found.nowhere, gone)
        why, unnamed = dict[int, str](), dict[str, Indices]()
        if self._naming is not None and len(nowhere):
            named, unnamed, why = self._named(self._naming, values, nowhere)
            tables |= named
            nowhere = np.array(sorted(why), np.int64)
            if (other := route.unmatched_table) is not None and why:
                tables[other] = np.union1d(tables[other], nowhere) if other in tables else nowhere
                nowhere = _NONE
        if route.unmatched == "drop":
            return _Sent(tables, refused, nowhere, unnamed)
        path = route.column
        refused |= {row: _unrouted(row, values[row].as_py(), path, why.get(row, NO_TABLE)) for row in nowhere.tolist()}
        return _Sent(tables, refused, _NONE, unnamed)

    def _named(
        self, naming: Naming, values: pa.Array, rows: Indices
    ) -> tuple[dict[str, Indices], dict[str, Indices], dict[int, str]]:
        """Fate of rows that no entry matches: rows of dynamic tables, waiting rows, and the reasons of all others."""
        tables, unnamed, why = dict[str, Indices](), dict[str, Indices](), dict[int, str]()
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
        """No rows: a table that cannot hold even these holds no row of the stream."""
        return block.part(0, 0)

    def before(self, block: Block) -> str:
        """The first row, without Kafka's columns."""
        return row_json(block.rows, 0, hidden=self._hide_values)

    def _values(self, block: Block, route: Route) -> tuple[pa.Array, list[RowFailure]]:
        """Routed value of each row, as text; and the rows for which it fails."""
        if (text := route.expression) is not None:
            return self._evaluated(block, text)
        if (path := route.column) is None:
            return block.frame.part("topic"), []
        column = block.rows.column(path[0])
        if len(path) > 1:
            column = pc.struct_field(column, list(path[1:]))
        return column.cast(pa.string()), []

    def _evaluated(self, block: Block, text: str) -> tuple[pa.Array, list[RowFailure]]:
        if self._columns is None:
            raise TypeError("a route by an expression needs the columns of its rows")
        rows = Rows(self._columns, aligned(block.rows, self._columns), block.frame.at(self._batch_time))
        found = evaluated(compiled(text, self._columns), rows)
        return found.values.cast(pa.string()), failures_of(found, text)

    def _failure(self, block: Block, failure: RowFailure) -> Failure:
        message = untold(failure.message) if self._hide_values else failure.message
        before = row_json(block.rows, failure.row, hidden=self._hide_values)
        return Failure(failure.row, STAGE, failure.error_class, message, failure.path, before)


def _unrouted(row: int, value: str | None, path: tuple[str, ...] | None, wanted: str) -> RowFailure:
    shown = "null" if value is None else repr(value if len(value) <= _LONGEST else f"{value[:_LONGEST]}…")
    message = f"needs a value that {wanted}, found {shown}"
    return RowFailure(row, UNROUTED, message, f"$.{'.'.join(path)}" if path else None)


def _ascending(rows: Mapping[int, RowFailure]) -> Indices:
    return np.array(sorted(rows), np.int64)


def _without(rows: Indices, others: Indices) -> Indices:
    """Rows without others, both ascending."""
    return np.setdiff1d(rows, others, assume_unique=True) if len(others) else rows
