"""Partition filter: a condition for the files of some partitions and no others, as Iceberg's Java expressions.

A condition on a partition's transform, `bucket(16, payer) = 3`, is what SQL's `where` cannot say.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

from jobs.maintain.health_facts import PartitionFacts, PartitionValue

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WIDTH = re.compile(r"(bucket|truncate)\[(\d+)]")


def partition_filter(jvm: Any, partitions: Sequence[PartitionFacts]) -> Any:
    """Holds for files of one of the partitions; of files under another partition spec, for all that may hold its rows.

    Args:
        jvm: py4j's view.
        partitions: At least one.

    Raises:
        ValueError: The column of a partition field is gone, see `PartitionFacts.dropped`.
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
            # Without it the condition would hold for files of every partition.
            raise ValueError(f"the column of {value.name} was dropped, so nothing tells its partitions apart")
        # `void` is left behind by a field that was dropped from the spec.
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
    """As ISO 8601, of so many digits of a second since 1970."""
    seconds, fraction = divmod(raw, 10**digits)
    at = (_EPOCH + timedelta(seconds=seconds)).replace(tzinfo=None).isoformat()
    return f"{at}.{fraction:0{digits}}{'+00:00' if zoned else ''}"


def partition_literal(value: PartitionValue) -> Any:
    """The value as Java can make the column's type of it: as text where a number would be taken for another type."""
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
