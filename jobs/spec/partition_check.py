"""Whether partition expressions fit the declared columns, before any table is touched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jobs.schema.declared import DeclaredType, Primitive, StructType
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
_KAFKA_COLUMNS = {
    "_kafka_topic": Primitive("string"),
    "_kafka_partition": Primitive("int"),
    "_kafka_offset": Primitive("long"),
    "_kafka_timestamp": Primitive("timestamptz"),
}


def partition_problems(
    expressions: Sequence[PartitionExpr], declared: StructType, *, kafka_columns: bool
) -> Iterator[tuple[int, str]]:
    """Yields the index of each expression that cannot partition a table of these columns, with a sentence."""
    columns = dict(_leaves(declared))
    if kafka_columns:
        columns |= _KAFKA_COLUMNS
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


def _problem(expression: PartitionExpr, columns: dict[str, DeclaredType], *, kafka_columns: bool) -> str | None:
    declared = columns.get(expression.column)
    if declared is None:
        if expression.column in _KAFKA_COLUMNS and not kafka_columns:
            return (
                f"'{expression}': the column '{expression.column}' is not written, because table.kafka_columns is false"
            )
        near = suggestion(expression.column, columns)
        hint = f"did you mean '{near}'?" if near else f"known: {', '.join(columns)}"
        return f"'{expression}': no column '{expression.column}' in decode.schema; {hint}"
    if not isinstance(declared, Primitive):
        return f"'{expression}': the column '{expression.column}' is not a single value"
    sources = _SOURCES.get(expression.transform)
    if sources is not None and declared.name not in sources:
        return (
            f"'{expression}': {expression.transform} cannot take the column '{expression.column}' of type "
            f"{declared.name}; it takes {', '.join(sorted(sources))}"
        )
    return None


def _leaves(declared: StructType, prefix: str = "") -> Iterator[tuple[str, DeclaredType]]:
    for field in declared.fields:
        yield f"{prefix}{field.name}", field.type
        if isinstance(field.type, StructType):
            yield from _leaves(field.type, f"{prefix}{field.name}.")
