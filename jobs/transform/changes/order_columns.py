"""Order columns: columns of rows by which their source orders its changes, as texts that sort so."""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from pyiceberg import types as ice

from jobs.formats.problems import BAD_ENVELOPE, NULL_IN_REQUIRED
from jobs.schema.iceberg_schema import schema_text
from jobs.transform.changes.fixed_text import Digits, joined_digits, number_digits, signed_digits
from jobs.transform.changes.positions.position import null_unless
from jobs.transform.changes.positions.postgresql import sequence_numbers
from jobs.transform.masks import Mask, mask_of
from jobs.transform.transform import RowFailure, Rows

_KINDS = (ice.IntegerType, ice.LongType, ice.DateType, ice.TimestampType, ice.TimestamptzType, ice.StringType)
_LINEAGE = "columns"


def order_problem(field: ice.NestedField) -> str | None:
    """Why changes cannot be ordered by a column; None if they can."""
    if isinstance(field.field_type, _KINDS):
        return None
    kind = schema_text(field.field_type)
    return f"the column '{field.name}' is {kind}; changes are ordered by whole numbers, dates and times"


def order_positions(
    rows: Rows, names: Sequence[str], reads: Mask
) -> tuple[pa.Array | None, pa.Array | None, list[RowFailure]]:
    """The positions of rows and their lineages, and the rows without one.

    A number or a time has 16 digits. A text is what Debezium's connector for PostgreSQL calls a sequence.

    Args:
        rows: The rows.
        names: Of the columns, the most significant first; without any there is no position.
        reads: Which rows are read for a snapshot.
    """
    if not names:
        return None, None, []
    parts: list[Digits] = []
    valid, failures = np.ones(rows.count, bool), list[RowFailure]()
    for name in names:
        values = rows.batch.column(rows.columns.index(name))
        digits, there = _digits(values, reads)
        parts += digits
        for row in np.flatnonzero(valid & ~there).tolist():
            null = not values[row].is_valid
            said = "found null" if null else 'found no text such as ["24023119","24023128"]'
            error = NULL_IN_REQUIRED if null else BAD_ENVELOPE
            failures.append(RowFailure(row, error, f"needs a value, by which changes are ordered, {said}", f"$.{name}"))
        valid &= there
    lineages = pa.repeat(pa.scalar(_LINEAGE), rows.count)
    return joined_digits(parts, valid), null_unless(lineages, valid), failures


def _digits(values: pa.Array, reads: Mask) -> tuple[list[Digits], Mask]:
    if pa.types.is_string(values.type):
        commit, place = sequence_numbers(values, reads)
        return [number_digits(commit), number_digits(place)], mask_of(place.is_valid())
    numbers = values.cast(pa.int32()) if pa.types.is_date32(values.type) else values
    return [signed_digits(numbers.cast(pa.int64()))], mask_of(values.is_valid())
