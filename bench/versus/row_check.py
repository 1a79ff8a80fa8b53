"""Row check: whether both tables have the same rows, and those that were produced."""

# PyIceberg's expressions take a column's name and a value; their types do not say so.
# pyright: reportCallIssue=false

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import LessThan, Reference
from pyiceberg.table import Table

from bench.checksum import Checksum, checksum
from bench.versus.formats import Format
from bench.versus.topic_load import Load
from jobs.base.errors import FrazilError

# Of each Kafka partition; hashing all rows would take longer than landing them.
HASHED_OFFSETS = 100_000
_OF_A_TOPIC = ["_kafka_topic", "_kafka_timestamp"]


@dataclass(frozen=True, slots=True)
class Rows:
    """Contents of a table.

    Args:
        rows: Number of rows.
        amount: The sum of their amounts.
        hashed: Over all columns of the first records of each Kafka partition; None without Kafka's columns.
        values: The same without the columns in which the topics of two formats differ.
    """

    rows: int
    amount: Decimal
    hashed: Checksum | None
    values: Checksum | None = None

    def __str__(self) -> str:
        hashed = (
            f"; of the first {HASHED_OFFSETS:,} of each partition all columns: {self.hashed}" if self.hashed else ""
        )
        return f"{self.rows:,} rows, sum of amounts {self.amount}{hashed}"


def rows_of(table: Table) -> Rows:
    """Read a table as anyone would, with PyIceberg."""
    rows, amount = 0, Decimal(0)
    for batch in table.scan(selected_fields=("amount",)).to_arrow_batch_reader():
        rows += batch.num_rows
        amount += pc.call_function("sum", [batch.column("amount")]).as_py() or 0
    if not any(field.name == "_kafka_offset" for field in table.schema().fields):
        return Rows(rows, amount, None)
    first = table.scan(row_filter=LessThan(Reference("_kafka_offset"), HASHED_OFFSETS)).to_arrow_batch_reader()
    hashed = values = Checksum()
    for batch in flat(first):
        hashed += checksum([batch])
        values += checksum([batch.drop_columns(_OF_A_TOPIC)])
    return Rows(rows, amount, hashed, values)


def flat(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    """The batches with the fields of structs as columns of their own, and lists of text as texts."""
    for batch in batches:
        table = pa.Table.from_batches([batch])
        while any(pa.types.is_struct(field.type) for field in table.schema):
            table = table.flatten()
        for place, field in enumerate(table.schema):
            if pa.types.is_list(field.type) or pa.types.is_large_list(field.type):
                texts = table.column(place).cast(pa.list_(pa.string()))
                joined = pc.call_function("binary_join", [texts, pa.scalar("\x1f")])
                table = table.set_column(place, field.name, joined)
        yield from table.to_batches()


def check_rows(load: Load, found: Sequence[Rows]) -> None:
    """Check that every table has the produced records, and that all tables have the same rows.

    Raises:
        FrazilError: A table lacks records, or differs from another one.
    """
    amount = Decimal(load.cents) / 100
    for rows in found:
        if rows.rows != load.records or rows.amount != amount:
            raise FrazilError(
                f"a table has {rows}; produced were {load.records:,} with amounts of {amount} in all",
                fix="look for what was lost or doubled",
            )
    hashes = {rows.hashed for rows in found if rows.hashed}
    if len(hashes) > 1:
        raise FrazilError(
            f"the tables' rows differ in some column: {' and '.join(map(str, hashes))}", fix="compare their rows"
        )


def check_formats(found: Mapping[Format, Sequence[Rows]]) -> None:
    """Check that the payments of every format became the same rows, at the same partitions and offsets.

    Raises:
        FrazilError: The rows of a format differ.
    """
    values = {format_: each.values for format_, rows in found.items() for each in rows if each.values}
    if len(set(values.values())) > 1:
        said = ", ".join(f"{format_} {each}" for format_, each in values.items())
        raise FrazilError(f"the rows of the formats differ in some column: {said}", fix="compare their rows")
