"""Doubts about what decided of rows: columns that they did not have when routed, or had as another text. Pure.

Of tables that follow a stream's own one somebody may drop the column that decides, and they get it back as a new one:
rows from before read as null in it. The text of a float that has become a double may be another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, FloatType, NestedField, StructType

Path = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RouteDoubts:
    """Of which rows a table does not show what decided.

    Attributes:
        newer: The columns that some rows may be older than.
        wider: Those that were of the type float, and are double.
    """

    newer: tuple[Path, ...] = ()
    wider: tuple[Path, ...] = ()

    @property
    def why(self) -> str:
        """Why such rows cannot be judged, as the end of a sentence."""
        of, said = (self.wider, "was float and is double") if self.wider else (self.newer, "is newer than some rows")
        return f"the table's column {' and '.join('.'.join(each) for each in of)}, by which they are routed, {said}"

    def rows(self, rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """Mask of those of which that may be so.

        Args:
            rows: With the columns.
        """
        found = np.full(rows.num_rows, bool(self.wider))
        for path in self.newer:
            column = rows.column(path[0])
            column = column if len(path) == 1 else pc.struct_field(column, list(path[1:]))  # pyright: ignore[reportAttributeAccessIssue]
            found |= np.asarray(column.is_null())
        return found


def route_doubts(names: Iterable[str], schema: Schema, schemas: Sequence[Schema]) -> RouteDoubts:
    """The doubts about rows that were routed by columns.

    Args:
        names: Of the columns that are looked at, outermost.
        schema: The table's, as it is now.
        schemas: All that it is known to have had.
    """
    asked = set(names)
    paths = [(path, each) for column in schema.fields if column.name in asked for path, each in _within(column)]
    before = [{each.field_id: each for column in old.fields for _, each in _within(column)} for old in schemas]
    newer = tuple(path for path, each in paths if any(each.field_id not in old for old in before))
    wider = tuple(
        path
        for path, each in paths
        if isinstance(each.field_type, DoubleType)
        and any(each.field_id in old and isinstance(old[each.field_id].field_type, FloatType) for old in before)
    )
    return RouteDoubts(newer, wider)


def _within(column: NestedField, above: Path = ()) -> Iterable[tuple[Path, NestedField]]:
    path = (*above, column.name)
    yield path, column
    if isinstance(column.field_type, StructType):
        for each in column.field_type.fields:
            yield from _within(each, path)
