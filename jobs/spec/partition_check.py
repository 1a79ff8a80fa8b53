"""Whether partition expressions fit the declared columns, before any table is touched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyiceberg.schema import Schema
from pyiceberg.types import DecimalType, IcebergType, StructType

from jobs.schema.table_schema import KAFKA_COLUMNS
from jobs.spec.partitioning import PartitionExpr
from jobs.spec.problems import suggestion

# Sources: the Iceberg table spec, "Partition Transforms"; pyiceberg.transforms `can_transform`.
_DAYS = {"date", "timestamp", "timestamptz"}
_SOURCES = {
    "year": _DAYS,
    "month": _DAYS,
    "day": _DAYS,
    "hour": _DAYS - {"date"},
    "bucket": {"int", "long", "decimal", "string", "binary"} | _DAYS,
    "truncate": {"int", "long", "decimal", "string", "binary"},
}
_TIME_TRANSFORMS = ("year", "month", "day", "hour")


def partition_problems(
    expressions: Sequence[PartitionExpr], rows: Schema, *, kafka_columns: bool
) -> Iterator[tuple[int, str]]:
    """Yields the index of each expression that cannot partition a table of these rows, with a sentence."""
    columns = dict(_leaves(rows.as_struct()))
    if kafka_columns:
        columns |= dict[str, IcebergType](KAFKA_COLUMNS)
    seen: dict[tuple[str, str], PartitionExpr] = {}
    for index, expression in enumerate(expressions):
        if problem := _problem(expression, columns, kafka_columns=kafka_columns):
            yield index, problem
            continue
        # Iceberg refuses two time transforms of one column: the finer one implies the coarser.
        kind = "time" if expression.transform in _TIME_TRANSFORMS else expression.transform
        earlier = seen.setdefault((kind, expression.column), expression)
        if earlier is not expression:
            yield index, f"'{expression}' repeats '{earlier}'; leave one of them out"


def _problem(expression: PartitionExpr, columns: dict[str, IcebergType], *, kafka_columns: bool) -> str | None:
    kind = columns.get(expression.column)
    if kind is None:
        if expression.column in dict(KAFKA_COLUMNS) and not kafka_columns:
            return (
                f"'{expression}': the column '{expression.column}' is not written, because table.kafka_columns is false"
            )
        near = suggestion(expression.column, columns)
        hint = f"did you mean '{near}'?" if near else f"known: {', '.join(columns)}"
        return f"'{expression}': no column '{expression.column}' in decode.schema; {hint}"
    if not kind.is_primitive:
        return f"'{expression}': the column '{expression.column}' is not a single value"
    sources, name = _SOURCES.get(expression.transform), "decimal" if isinstance(kind, DecimalType) else str(kind)
    if sources is not None and name not in sources:
        return (
            f"'{expression}': {expression.transform} cannot take the column '{expression.column}' of type "
            f"{name}; it takes {', '.join(sorted(sources))}"
        )
    return None


def _leaves(struct: StructType, prefix: str = "") -> Iterator[tuple[str, IcebergType]]:
    for field in struct.fields:
        yield f"{prefix}{field.name}", field.field_type
        if isinstance(field.field_type, StructType):
            yield from _leaves(field.field_type, f"{prefix}{field.name}.")
