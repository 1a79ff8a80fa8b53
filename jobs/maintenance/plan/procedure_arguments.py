"""Arguments of procedures: literals of Spark SQL, JVM objects, and conditions on partitions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

from jobs.config.values.partitioning import SortExpr
from jobs.maintenance.measure.health_facts import PartitionFacts, PartitionValue

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WIDTH = re.compile(r"(bucket|truncate)\[(\d+)]")


def sql_value(value: object) -> str:
    """A value as a literal of Spark SQL.

    Args:
        value: Text, a number, a boolean, an instant with its zone, or texts by name.
    """
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case datetime():
            return f"TIMESTAMP '{value.astimezone(UTC).strftime('%Y-%m-%d %H:%M:%S.%f')} UTC'"
        case dict():
            inner = ", ".join(f"{sql_value(str(key))}, {sql_value(str(item))}" for key, item in value.items())
            return f"map({inner})"
        case _:
            escaped = str(value).replace("\\", "\\\\").replace("'", "\\'")
            return f"'{escaped}'"


def procedure_call(catalog: str, table: str, procedure: str, arguments: Mapping[str, object]) -> str:
    """A `CALL` of one of Iceberg's procedures; arguments that are None are left out.

    The table's name includes the catalog. Otherwise Iceberg takes the first part for a catalog if one has that name,
    and `frazil.ledger` would be the table `ledger` of the catalog `frazil`.
    """
    given = {"table": f"{quoted(catalog)}.{quoted(table)}", **arguments}
    text = ", ".join(f"{key} => {sql_value(value)}" for key, value in given.items() if value is not None)
    return f"CALL {quoted(catalog)}.system.{procedure}({text})"


def quoted(name: str) -> str:
    """A table's full name with each part in backticks."""
    return ".".join(f"`{part.replace('`', '``')}`" for part in name.split("."))


def partition_key(jvm: Any, partition: Any) -> tuple[Any, ...]:
    """Values of a Java partition, from py4j."""
    anything = jvm.java.lang.Class.forName("java.lang.Object")
    return tuple(partition.get(index, anything) for index in range(partition.size()))


def java_strings(session: SparkSession, texts: Sequence[str]) -> Any:
    """A Java array, for a method with a variable number of texts."""
    gateway: Any = session.sparkContext._gateway
    array = gateway.new_array(gateway.jvm.java.lang.String, len(texts))
    for index, text in enumerate(texts):
        array[index] = text
    return array


def java_sort_order(jvm: Any, table: Any, sort_by: Sequence[SortExpr]) -> Any:
    """A sort order of the table's columns; by default nulls come first in ascending order."""
    builder = jvm.org.apache.iceberg.SortOrder.builderFor(table.schema())
    orders = jvm.org.apache.iceberg.NullOrder
    for each in sort_by:
        descending = each.direction == "desc"
        last = each.nulls == "last" if each.nulls else descending
        order = orders.NULLS_LAST if last else orders.NULLS_FIRST
        builder = builder.desc(each.column, order) if descending else builder.asc(each.column, order)
    return builder.build()


def with_options(action: Any, options: Mapping[str, object]) -> Any:
    """The action with Iceberg's options."""
    for key, value in options.items():
        action = action.option(key, str(value))
    return action


def partition_filter(jvm: Any, partitions: Sequence[PartitionFacts]) -> Any:
    """Expression that matches files of one of the partitions, and all files under another spec that may hold its rows.

    Raises:
        ValueError: The column of a partition field was dropped, see `PartitionFacts.dropped`.
    """
    expressions = jvm.org.apache.iceberg.expressions.Expressions
    either = None
    for partition in partitions:
        one = _of_partition(jvm, expressions, partition)
        either = one if either is None else getattr(expressions, "or")(either, one)
    return either


def _of_partition(jvm: Any, expressions: Any, partition: PartitionFacts) -> Any:
    every = expressions.alwaysTrue()
    for value in partition.values:
        if value.dropped:
            # Without the field the condition would match files of every partition.
            raise ValueError(f"the column of {value.name} was dropped, so its partitions cannot be selected")
        # A field that was dropped from the spec leaves `void` behind.
        if value.transform != "void":
            every = getattr(expressions, "and")(every, _condition(jvm, expressions, value))
    return every


def _condition(jvm: Any, expressions: Any, value: PartitionValue) -> Any:
    term = _term(expressions, value)
    if value.value is None:
        return expressions.isNull(term)
    if isinstance(value.value, float) and value.value != value.value:
        return expressions.isNaN(term)
    literal = partition_literal(value)
    return expressions.equal(term, jvm.java.nio.ByteBuffer.wrap(literal) if isinstance(literal, bytes) else literal)


def _term(expressions: Any, value: PartitionValue) -> Any:
    if value.transform == "identity":
        return value.source
    if sized := _WIDTH.fullmatch(value.transform):
        return getattr(expressions, sized[1])(value.source, int(sized[2]))
    return getattr(expressions, value.transform)(value.source)


def _instant(raw: int, *, digits: int, zoned: bool) -> str:
    """A time since 1970 in ISO 8601, with this many digits of a second."""
    seconds, fraction = divmod(raw, 10**digits)
    at = (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat()
    return f"{at}.{fraction:0{digits}}{'+00:00' if zoned else ''}"


def partition_literal(value: PartitionValue) -> Any:
    """The value in a form from which Java makes the column's type: as text if a number would be ambiguous."""
    raw, kind = value.value, value.source_type
    if value.transform == "identity" and isinstance(raw, int) and not isinstance(raw, bool):
        if kind.startswith("timestamp"):
            return _instant(raw, digits=9 if kind.endswith("_ns") else 6, zoned=kind.startswith("timestamptz"))
        if kind == "time":
            return (_EPOCH + timedelta(microseconds=raw)).time().isoformat(timespec="microseconds")
    if isinstance(raw, datetime):
        return raw.astimezone(UTC).isoformat(timespec="microseconds") if raw.tzinfo else raw.isoformat()
    if isinstance(raw, Decimal | UUID):
        return str(raw)
    if kind == "uuid" and isinstance(raw, bytes):
        return str(UUID(bytes=raw))
    return raw
