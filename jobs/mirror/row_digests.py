"""Row digests: what a source and its mirror say of rows alike, as expressions of PostgreSQL's SQL and of Spark's.

Keys are spread over leaves by a hash of their texts, and leaves over the buckets of a check. Of each leaf both sides
tell how many rows it has, and the sum of their digests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jobs.increment.offset_ranges import quoted_name
from jobs.mirror.compared_columns import ComparedColumn, postgresql_item, spark_item
from jobs.mirror.consistency import BUCKETS

LEAVES = BUCKETS * 1024
_HEX = 15


@dataclass(frozen=True, slots=True)
class RowDigests:
    """Expressions over the columns of one side.

    Attributes:
        key_texts: The text of each column of the key.
        leaf: The number of the leaf, a whole number.
        row: The digest of the row, a whole number below 2 to the power of 60.
        columns: The digests of the other columns in their order, one text with commas between.
    """

    key_texts: tuple[str, ...]
    leaf: str
    row: str
    columns: str


def postgresql_digests(key: Sequence[ComparedColumn], columns: Sequence[ComparedColumn]) -> RowDigests:
    """Of the source's columns.

    Args:
        key: The columns of the key.
        columns: All others.
    """

    def joined(parts: Sequence[str], between: str = " || ") -> str:
        # No part is null. A function takes 100 arguments at the most, so `concat` would not do.
        return f"({between.join(parts)})" if parts else "''"

    def hashed(text: str) -> str:
        return f"md5(convert_to({text}, 'UTF8'))"

    def number(text: str) -> str:
        return f"('x' || substr({hashed(text)}, 1, {_HEX}))::bit({_HEX * 4})::bigint"

    keys = [postgresql_item(each.kind, source_name(each.name)) for each in key]
    items = [postgresql_item(each.kind, source_name(each.name)) for each in columns]
    return RowDigests(
        tuple(each.kind.postgresql(source_name(each.name)) for each in key),
        f"mod({number(joined(keys))}, {LEAVES})",
        number(joined([*keys, *items])),
        joined([f"substr({hashed(each)}, 1, 16)" for each in items], " || ',' || "),
    )


def spark_digests(key: Sequence[ComparedColumn], columns: Sequence[ComparedColumn]) -> RowDigests:
    """The same of the mirror's columns."""

    def joined(parts: Sequence[str]) -> str:
        return f"concat({', '.join(parts)})" if parts else "''"

    def number(text: str) -> str:
        return f"CAST(conv(substr(md5({text}), 1, {_HEX}), 16, 10) AS BIGINT)"

    keys = [spark_item(each.kind, quoted_name(each.name)) for each in key]
    items = [spark_item(each.kind, quoted_name(each.name)) for each in columns]
    return RowDigests(
        tuple(each.kind.spark(quoted_name(each.name)) for each in key),
        f"mod({number(joined(keys))}, {LEAVES})",
        number(joined([*keys, *items])),
        f"concat_ws(',', {', '.join(f'substr(md5({each}), 1, 16)' for each in items)})" if items else "''",
    )


def source_name(name: str) -> str:
    """A name as PostgreSQL reads it, whatever it has in it."""
    return '"' + name.replace('"', '""') + '"'
