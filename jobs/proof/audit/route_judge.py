"""Route judge: which rows of a table one configuration's route sends there, by the values that they have in it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FloatType, IcebergType, IntegerType, NestedField, StructType

from jobs.base.errors import FrazilError
from jobs.config.stream.models import StreamSpec
from jobs.config.stream.route import Route
from jobs.config.values.targets import value_of_table
from jobs.records.expressions.expression import FRAME_PARTS
from jobs.records.transforms.columns import Columns, TransformProblem
from jobs.records.transforms.frame import Frame
from jobs.records.transforms.sql import compiled, evaluated
from jobs.records.transforms.transform import Rows, StepProblem
from jobs.streaming.pipeline.route_dispatch import Dispatch, Dispatched, grouped
from jobs.streaming.pipeline.route_naming import Naming, naming_state
from jobs.streaming.pipeline.row_steps import aligned, row_steps_of

Mask = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.int64]

LATER_NAMED = "their values name tables now, and may have had none when they landed"
_OTHER_TOPIC = "a transform may have given their records another topic than the rows keep"


@dataclass(frozen=True, slots=True)
class Unprovable:
    """Why rows of a configuration cannot be judged, as the end of a sentence."""

    why: str


@dataclass(frozen=True, slots=True)
class RouteVerdict:
    """What a route says of some rows.

    Attributes:
        here: Which of them belong in the table.
        perhaps: Which of the others may belong in it: their values may have had no table when they landed.
        destinations: The tables that a row belongs in, of its index; None if that is not known.
    """

    here: Mask
    perhaps: Mask
    destinations: Callable[[int], tuple[str, ...] | None]


@dataclass(frozen=True, slots=True)
class RouteJudge:
    """Says which rows of a table belong there.

    Attributes:
        table: Its name.
        needs: The columns of the table that it looks at, beside the coordinates.
        values: Of rows with those, gives what decides, as text, and the rows for which it cannot; None where all
            rows belong in `always`.
        dispatch: Names the tables of each value, of those that the file names.
        always: Of all rows; None if it is not known, but that it is not this table.
        naming: Names the tables of other values, of a route whose values name tables.
        unmatched: Where rows go that no entry takes, and whose value names no table; of such a route.
    """

    table: str
    needs: frozenset[str] = frozenset()
    values: Callable[[pa.RecordBatch], tuple[pa.Array, list[int]]] | None = None
    dispatch: Dispatch | None = None
    always: tuple[str, ...] | None = None
    naming: Naming | None = None
    unmatched: str | None = None

    def verdict(self, rows: pa.RecordBatch) -> RouteVerdict:
        """What it says of rows that have what it needs.

        Raises:
            pa.ArrowInvalid: The table's values do not fit the columns that the route was written for.
        """
        none = np.zeros(rows.num_rows, bool)
        if self.values is None or self.dispatch is None:
            belongs = np.full(rows.num_rows, self.table in (self.always or ()))
            return RouteVerdict(belongs, none, lambda row: self.always)
        values, failed = self.values(rows)
        found = self.dispatch.rows_of(values)
        tables, named = self._with_named(found, values) if self.naming else (found.tables, np.zeros(0, np.int64))
        here, perhaps = none.copy(), none
        here[tables.get(self.table, np.zeros(0, np.int64))] = True
        here[failed] = False
        if self.table == self.unmatched:
            perhaps[named] = True

        def destinations(row: int) -> tuple[str, ...]:
            return () if row in failed else tuple(name for name, rows in tables.items() if row in rows)

        return RouteVerdict(here, perhaps, destinations)

    def _with_named(self, found: Dispatched, values: pa.Array) -> tuple[dict[str, Indices], Indices]:
        """The rows of each table, those of values that name one among them, and which rows the latter are.

        Args:
            found: What the entries of the route say.
            values: What decides, as text, of all rows.
        """
        assert self.naming is not None, "values name tables"
        parts: dict[str, list[Indices]] = {name: [rows] for name, rows in found.tables.items()}
        named: list[Indices] = [np.zeros(0, np.int64)]
        encoded = values.take(pa.array(found.nowhere)).dictionary_encode(null_encoding="encode")
        texts = encoded.dictionary.to_pylist()
        for number, at in grouped(np.arange(len(texts), dtype=np.int64), np.asarray(encoded.indices)):
            rows, table = found.nowhere[at], self.naming.of(texts[number]).table
            if table is not None:
                named.append(rows)
            if (table or self.unmatched) is not None:
                parts.setdefault(table or self.unmatched or "", []).append(rows)
        return {name: np.unique(np.concatenate(each)) for name, each in parts.items()}, np.concatenate(named)


def route_judge(
    spec: StreamSpec,
    table: str,
    schema: Schema,
    former: Sequence[Schema],
    tables: Collection[str],
    *,
    dependent: bool = False,
) -> RouteJudge | Unprovable:
    """The judge of the rows that a configuration has landed in a table.

    Args:
        schema: Of the table as it is now.
        former: All schemas that the table is known to have had.
        tables: Names of the stream's tables that there are.
        dependent: Whether the table's columns follow those of the main table.
    """
    if (timely := spec.late_rows_of(table)) is not None:
        # Which rows are late say the stamps. Of those in one table for all the route was not asked.
        if not spec.own_columns:
            return RouteJudge(table, always=(table,))
        return route_judge(spec, timely, schema, former, tables, dependent=dependent)
    route = spec.route
    if route is None:
        return RouteJudge(table, always=(spec.table.name,))
    found = _by_expression(spec, route, table, schema) if route.expression else _by_part(spec, route, table, schema)
    if isinstance(found, RouteJudge) and dependent:
        found = _doubt(found.needs, schema, former) or found
    if isinstance(found, Unprovable):
        # Wherever the rows belong, that is not here, if neither the file nor a value names the table.
        return found if table in route.table_names or _may_be_named(spec, table) else RouteJudge(table)
    # What had a table when its record came is not asked: what has one now is taken for it.
    state = naming_state(spec, {}, decided=True)
    if state is None:
        return found
    return replace(found, naming=Naming(route, tables, state), unmatched=route.unmatched_table)


def _may_be_named(spec: StreamSpec, table: str) -> bool:
    """Whether a value may name a table: none of those that the stream's file names has rows by its name."""
    if spec.route is None or spec.route.to is None:
        return False
    given = {spec.table.name, spec.dead_letter_table, *spec.route.table_names}
    if table in given or spec.has_late_rows(table):
        return False
    return value_of_table(spec.route.to, table) is not None


def _doubt(names: Collection[str], schema: Schema, former: Sequence[Schema]) -> Unprovable | None:
    """Why rows of a dependent table may not show what decided when they landed; None if they do.

    A column that was dropped comes back as a new one, in which older rows are null. The text of a float that became a
    double may be another.
    """
    columns = [found for column in schema.fields if column.name in names for found in _within(column)]
    for old in former:
        types = {each.field_id: each.field_type for column in old.fields for _, each in _within(column)}
        for path, field in columns:
            before = types.get(field.field_id)
            if before is None:
                return Unprovable(f"the table's column {path}, by which they are routed, is newer than some rows")
            if isinstance(field.field_type, DoubleType) and isinstance(before, FloatType):
                return Unprovable(f"the table's column {path}, by which they are routed, was float and is double")
    return None


def _within(column: NestedField, above: str = "") -> Iterator[tuple[str, NestedField]]:
    path = f"{above}{column.name}"
    yield path, column
    if isinstance(column.field_type, StructType):
        for each in column.field_type.fields:
            yield from _within(each, f"{path}.")


def _by_part(spec: StreamSpec, route: Route, table: str, schema: Schema) -> RouteJudge | Unprovable:
    """Of a route by a column, or by the topic."""
    path = route.column
    if path is None:
        if _changes_topics(spec):
            return Unprovable(_OTHER_TOPIC)
        path = (spec.kafka_columns.topic or "topic",)
    if not _has(schema, path):
        return Unprovable(f"the table has no column {'.'.join(path)}, by which they are routed")

    def values(rows: pa.RecordBatch) -> tuple[pa.Array, list[int]]:
        column = rows.column(path[0])
        column = column if len(path) == 1 else pc.struct_field(column, list(path[1:]))  # pyright: ignore[reportAttributeAccessIssue]
        column = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        return column.cast(pa.string()), []

    return RouteJudge(table, frozenset({path[0]}), values, _dispatch(route))


def _by_expression(spec: StreamSpec, route: Route, table: str, schema: Schema) -> RouteJudge | Unprovable:
    """Of a route by a header, or by an SQL expression over the row and its record."""
    text = route.expression or ""
    try:
        columns = _columns_of(spec, schema)
        if compiled(text, columns).needs_batch_time:
            return Unprovable("they are routed by the time of their batch, which rows do not keep")
        asked = set(compiled(text, columns).columns)
    except (FrazilError, StepProblem, TransformProblem):
        if spec.tables_follow:
            return Unprovable("the table does not have the columns of the expression by which they are routed")
        return Unprovable("this version does not read the expression by which they are routed")
    fields = [each for each in columns.fields if each.name in asked]
    parts = {name: FRAME_PARTS[name] for name in asked - {each.name for each in fields}}
    kept = {part: getattr(spec.kafka_columns, part) for part in parts.values()}
    if "topic" in kept and _changes_topics(spec):
        return Unprovable(_OTHER_TOPIC)
    if lost := sorted(part for part, name in kept.items() if name is None or not _has(schema, (name,))):
        return Unprovable(f"the table does not keep what they are routed by: the record's {' and '.join(lost)}")
    if gone := [each.name for each in fields if not _has(schema, (each.name,))]:
        return Unprovable(f"the table has no column {gone[0]}, by which they are routed")
    # Rows without a column would be none.
    read = Columns.of(fields or [NestedField(1, "row", IntegerType(), required=False)])
    expression = compiled(text, read)

    def values(rows: pa.RecordBatch) -> tuple[pa.Array, list[int]]:
        arrays = [rows.column(each.name) for each in fields] or [pa.nulls(rows.num_rows, pa.int32())]
        batch = aligned(pa.RecordBatch.from_arrays(arrays, names=list(read.names)), read)
        record = [rows.column(name) for name in kept.values()]
        frame = Frame(pa.RecordBatch.from_arrays(record, names=list(kept)))
        found = evaluated(expression, Rows(read, batch, frame))
        return found.values.cast(pa.string()), [each.row for each in found.failures]

    return RouteJudge(table, frozenset({*(each.name for each in fields), *kept.values()}), values, _dispatch(route))


def _columns_of(spec: StreamSpec, schema: Schema) -> Columns:
    """The columns that an expression may ask of rows of a table; none where it is of the topic alone."""
    if spec.own_columns:
        return Columns(())
    if spec.tables_follow:
        kafka = spec.kafka_columns.names
        return Columns.of([each for each in schema.fields if each.name not in kafka])
    steps = row_steps_of(spec)
    return steps.columns if steps else Columns.of(spec.resolved.schema)


def _dispatch(route: Route) -> Dispatch:
    """What the entries say; where values name tables, what no entry takes is looked at before it is unmatched."""
    return Dispatch(route if route.to is None else route.model_copy(update={"unmatched": "dead_letter"}))


def _changes_topics(spec: StreamSpec) -> bool:
    """Whether a step may give a record another topic than the one that its row keeps: only Connect's may."""
    return any(step.smt is not None for step in spec.transform)


def _has(schema: Schema, path: tuple[str, ...]) -> bool:
    kind: IcebergType = schema.as_struct()
    for name in path:
        fields = {each.name: each.field_type for each in kind.fields} if isinstance(kind, StructType) else {}
        if name not in fields:
            return False
        kind = fields[name]
    return True
