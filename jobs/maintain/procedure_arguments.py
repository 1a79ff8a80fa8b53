"""Procedure arguments: Python's values as literals of Spark's SQL and as objects of the JVM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from jobs.spec.partitioning import SortExpr

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def sql_value(value: object) -> str:
    """A value as a literal of Spark's SQL.

    Args:
        value: Text, a number, a truth value, an instant with its zone, or texts by name.
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

    The table is named with its catalog: without it Iceberg takes the first part of the name for a catalog, if one is
    called so, and `frazil.ledger` would be the table `ledger` of the catalog `frazil`.

    Args:
        catalog: One part.
        table: `namespace.table`.
    """
    given = {"table": f"{quoted(catalog)}.{quoted(table)}", **arguments}
    text = ", ".join(f"{key} => {sql_value(value)}" for key, value in given.items() if value is not None)
    return f"CALL {quoted(catalog)}.system.{procedure}({text})"


def quoted(name: str) -> str:
    """A table's full name with each part in backticks."""
    return ".".join(f"`{part.replace('`', '``')}`" for part in name.split("."))


def partition_key(jvm: Any, partition: Any) -> tuple[Any, ...]:
    """The values of a partition of Java's, as py4j gives them."""
    anything = jvm.java.lang.Class.forName("java.lang.Object")
    return tuple(partition.get(index, anything) for index in range(partition.size()))


def java_strings(session: SparkSession, texts: Sequence[str]) -> Any:
    """An array of Java's, which is what a method with any number of texts takes."""
    gateway: Any = session.sparkContext._gateway
    array = gateway.new_array(gateway.jvm.java.lang.String, len(texts))
    for index, text in enumerate(texts):
        array[index] = text
    return array


def java_sort_order(jvm: Any, table: Any, sort_by: Sequence[SortExpr]) -> Any:
    """A sort order of the table's columns; nulls first where it ascends, if nothing is said."""
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
