"""Lists without elements as null: Debezium leaves a field out whose list in JSON is empty."""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from jobs.transform.columns import Columns
from jobs.transform.transform import Applied, Rows, Transform


@dataclass(frozen=True, slots=True)
class EmptyListsAsNull(Transform):
    """Optional lists of some columns that are empty are null, within structs and lists as well.

    Attributes:
        columns: Names of columns that there are.
    """

    name: ClassVar[str] = "empty_lists_as_null"
    columns: tuple[str, ...]

    def output(self, columns: Columns) -> Columns:
        """The same columns."""
        return columns

    def apply(self, rows: Rows) -> Applied:
        """Values that are no lists stay."""
        arrays = [
            _without_empty(array, field) if field.name in self.columns else array
            for array, field in zip(rows.batch.columns, rows.columns.arrow, strict=True)
        ]
        return Applied(rows.with_batch(rows.columns, arrays))


def _without_empty(array: pa.Array, field: pa.Field) -> pa.Array:
    kind = field.type
    if pa.types.is_struct(kind):
        children = [_without_empty(pc.struct_field(array, [at]), each) for at, each in enumerate(kind)]
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null())
    if not pa.types.is_list(kind):
        return array
    mask = array.is_null()
    if field.nullable:
        mask = pc.or_(mask, pc.fill_null(pc.equal(pc.list_value_length(array), 0), True))
    # Of null lists no element is left.
    offsets = pc.fill_null(pc.list_value_length(array), 0)
    ends = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(offsets).cast(pa.int32())])
    values = _without_empty(array.flatten(), kind.value_field)
    return pa.ListArray.from_arrays(ends, values, type=kind, mask=mask)
