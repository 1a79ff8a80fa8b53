"""Partition limits: the numbers that have no partition value, as `truncate` would leave the range of their type.

`truncate` rounds down, so the lowest values of an int, long or decimal have no result: -9999999.99 as decimal(9,2), cut
to 50, would be -10000000.00, which no manifest can hold. Java's writers let an int wrap around. A reader that looks for
values below a limit then skips the row.
"""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import TruncateTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DecimalType, IcebergType, IntegerType, LongType

from jobs.records.formats.interface.problems import OUT_OF_RANGE
from jobs.tables.write.partitioning import column_at, path_to
from jobs.tables.write.projection import UnfitValueError


@dataclass(frozen=True, slots=True)
class PartitionLimit:
    """Range of one column's values that have a value in one partition field.

    Attributes:
        position: Position of the column in the table's schema, through structs.
        field: Partition field, as `truncate[50]`.
        least: Least value, in Arrow's storage form of the column (unscaled for a decimal).
    """

    position: tuple[int, ...]
    column: str
    field: str
    kind: IcebergType
    least: int

    def refuse_outside(self, rows: pa.RecordBatch) -> None:
        """Refuse rows if a value has no partition value.

        Raises:
            UnfitValueError: Names the limit, not the value.
        """
        lowest = pc.min_max(column_at(rows, self.position))["min"].as_py()
        if lowest is not None and lowest < self._shown(self.least):
            message = (
                f"the column `{self.column}` needs at least {self._shown(self.least)}, because {self.field} of less "
                f"has no place in {self.kind}"
            )
            raise UnfitValueError(OUT_OF_RANGE, self.column, message)

    def _shown(self, number: int) -> int | Decimal:
        if not isinstance(self.kind, DecimalType):
            return number
        # Built from digits: arithmetic would round to the 28 digits of Python's context.
        sign, digits, _ = Decimal(number).as_tuple()
        return Decimal((sign, digits, -self.kind.scale))


def partition_limits(spec: PartitionSpec, schema: Schema) -> tuple[PartitionLimit, ...]:
    """Limits of a spec's fields that have any; `schema` is the table's."""
    return tuple(limit for field in spec.fields for limit in _limits(field, schema))


def _limits(field: PartitionField, schema: Schema) -> Iterator[PartitionLimit]:
    if field.source_id not in schema.field_ids:
        return
    kind = schema.find_type(field.source_id)
    if isinstance(field.transform, TruncateTransform) and isinstance(kind, (IntegerType, LongType, DecimalType)):
        path = tuple(path_to(schema.as_struct(), field.source_id))
        column = schema.find_column_name(field.source_id) or str(field.source_id)
        # The least multiple of the width within the type.
        width = field.transform.width
        yield PartitionLimit(path, column, str(field.transform), kind, -(-_least(kind) // width) * width)


def _least(kind: IcebergType) -> int:
    if isinstance(kind, DecimalType):
        return 1 - 10**kind.precision
    return -(2**31) if isinstance(kind, IntegerType) else -(2**63)


def in_manifests(partitions: Iterable[Record], spec: PartitionSpec, schema: Schema) -> bool:
    """Whether manifests can hold these partition values: no decimal has more digits than its type."""
    digits = [
        (place, field.field_type.precision)
        for place, field in enumerate(spec.partition_type(schema).fields)
        if isinstance(field.field_type, DecimalType)
    ]
    if not digits:
        return True
    return all(
        not isinstance(value := values[place], Decimal) or len(value.as_tuple().digits) <= precision
        for values in partitions
        for place, precision in digits
    )
