"""Route judge: which rows of a table one configuration's route sends there, by their values in the table."""

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
    """Reason why rows of a configuration cannot be judged, the end of a sentence."""

    why: str


@dataclass(frozen=True, slots=True)
class RouteVerdict:
    """Verdict of a route on some rows.

    Attributes:
        here: Which rows belong in the table.
        perhaps: Which other rows may belong in it: their values may have had no table when they landed.
        destinations: Returns the tables of the row with an index; None if unknown.
    """

    here: Mask
    perhaps: Mask
    destinations: Callable[[int], tuple[str, ...] | None]


@dataclass(frozen=True, slots=True)
class RouteJudge:
    """Decides which rows of a table belong there.

    Attributes:
        table: Name of the table.
        needs: Columns of the table that it reads, beside the coordinates.
        values: Returns the routed values of rows, as text, and the rows for which that fails; None if all rows belong
            in `always`.
        dispatch: Returns the tables of each value by the file.
        always: Tables of all rows; None if unknown, but not this table.
        naming: Tables of other values, if values name tables.
        unmatched: Tables of rows that no entry matches and whose value names no table, for such a route.
    """

    table: str
    needs: frozenset[str] = frozenset()
    values: Callable[[pa.RecordBatch], tuple[pa.Array, list[int]]] | None = None
    dispatch: Dispatch | None = None
    always: tuple[str, ...] | None = None
    naming: Naming | None = None
    unmatched: str | None = None

    def verdict(self, rows: pa.RecordBatch) -> RouteVerdict:
        """Verdict on rows with the needed columns.

        Raises:
            pa.ArrowInvalid: The table's values do not fit the columns of the route.
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
        """Rows of each table, dynamic ones included, and which rows belong to dynamic tables.

        Args:
            found: Result of the route's entries.
            values: Routed values of all rows, as text.
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
    """Judge of the rows that a configuration has landed in a table.

    Args:
        schema: Present schema of the table.
        former: All known former schemas of the table.
        tables: Names of the stream's existing tables.
        dependent: Whether the table's columns follow those of the main table.
    """
    if (timely := spec.late_rows_of(table)) is not None:
        # Only stamps show which rows are late. A single table for late rows is outside of the route.
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
        # If neither the file nor a value names the table, the rows belong elsewhere.
        return found if table in route.table_names or _may_be_named(spec, table) else RouteJudge(table)
    # It is unknown which values had a table when a record came; present tables are assumed.
    state = naming_state(spec, {}, decided=True)
    if state is None:
        return found
    return replace(found, naming=Naming(route, tables, state), unmatched=route.unmatched_table)


def _may_be_named(spec: StreamSpec, table: str) -> bool:
    """Whether a value may name a table; tables that the stream's file names get no rows by their name."""
    if spec.route is None or spec.route.to is None:
        return False
    given = {spec.table.name, spec.dead_letter_table, *spec.route.table_names}
    if table in given or spec.has_late_rows(table):
        return False
    return value_of_table(spec.route.to, table) is not None


def _doubt(names: Collection[str], schema: Schema, former: Sequence[Schema]) -> Unprovable | None:
    """Reason why rows of a dependent table may not show what decided when they landed; None if they do.

    A dropped column comes back as a new one, in which older rows are null. A float that became a double may have
    another text.
    """
    columns = [found for column in schema.fields if column.name in names for found in _within(column)]
    for old in former:
        types = {each.field_id: each.field_type for column in old.fields for _, each in _within(column)}
        for path, field in columns:
            before = types.get(field.field_id)
            if before is None:
                return Unprovable(f"the table's column {path}, which the route needs, is newer than some rows")
            if isinstance(field.field_type, DoubleType) and isinstance(before, FloatType):
                return Unprovable(f"the table's column {path}, which the route needs, was float and is double")
    return None


def _within(column: NestedField, above: str = "") -> Iterator[tuple[str, NestedField]]:
    path = f"{above}{column.name}"
    yield path, column
    if isinstance(column.field_type, StructType):
        for each in column.field_type.fields:
            yield from _within(each, f"{path}.")


def _by_part(spec: StreamSpec, route: Route, table: str, schema: Schema) -> RouteJudge | Unprovable:
    """Judge of a route by a column, or by the topic."""
    path = route.column
    if path is None:
        if _changes_topics(spec):
            return Unprovable(_OTHER_TOPIC)
        path = (spec.kafka_columns.topic or "topic",)
    if not _has(schema, path):
        return Unprovable(f"the table has no column {'.'.join(path)}, which the route needs")

    def values(rows: pa.RecordBatch) -> tuple[pa.Array, list[int]]:
        column = rows.column(path[0])
        column = column if len(path) == 1 else pc.struct_field(column, list(path[1:]))  # pyright: ignore[reportAttributeAccessIssue]
        column = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        return column.cast(pa.string()), []

    return RouteJudge(table, frozenset({path[0]}), values, _dispatch(route))


def _by_expression(spec: StreamSpec, route: Route, table: str, schema: Schema) -> RouteJudge | Unprovable:
    """Judge of a route by a header, or by an SQL expression over the row and its record."""
    text = route.expression or ""
    try:
        columns = _columns_of(spec, schema)
        if compiled(text, columns).needs_batch_time:
            return Unprovable("the route needs the time of the batch, which rows do not keep")
        asked = set(compiled(text, columns).columns)
    except (FrazilError, StepProblem, TransformProblem):
        if spec.tables_follow:
            return Unprovable("the table does not have the columns of the route's expression")
        return Unprovable("this version does not read the route's expression")
    fields = [each for each in columns.fields if each.name in asked]
    parts = {name: FRAME_PARTS[name] for name in asked - {each.name for each in fields}}
    kept = {part: getattr(spec.kafka_columns, part) for part in parts.values()}
    if "topic" in kept and _changes_topics(spec):
        return Unprovable(_OTHER_TOPIC)
    if lost := sorted(part for part, name in kept.items() if name is None or not _has(schema, (name,))):
        return Unprovable(f"the table does not keep what the route needs: the record's {' and '.join(lost)}")
    if gone := [each.name for each in fields if not _has(schema, (each.name,))]:
        return Unprovable(f"the table has no column {gone[0]}, which the route needs")
    # Arrow counts no rows without a column.
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
    """Columns that an expression over a table's rows may use; none if it uses the topic only."""
    if spec.own_columns:
        return Columns(())
    if spec.tables_follow:
        kafka = spec.kafka_columns.names
        return Columns.of([each for each in schema.fields if each.name not in kafka])
    steps = row_steps_of(spec)
    return steps.columns if steps else Columns.of(spec.resolved.schema)


def _dispatch(route: Route) -> Dispatch:
    """Dispatch by the entries; if values name tables, rows without an entry are checked before they are unmatched."""
    return Dispatch(route if route.to is None else route.model_copy(update={"unmatched": "dead_letter"}))


def _changes_topics(spec: StreamSpec) -> bool:
    """Whether a step may change a record's topic from the one in its row: only Connect's steps may."""
    return any(step.smt is not None for step in spec.transform)


def _has(schema: Schema, path: tuple[str, ...]) -> bool:
    kind: IcebergType = schema.as_struct()
    for name in path:
        fields = {each.name: each.field_type for each in kind.fields} if isinstance(kind, StructType) else {}
        if name not in fields:
            return False
        kind = fields[name]
    return True
