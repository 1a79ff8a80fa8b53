"""Lines of fixed width: as many characters for each column as the stream's file says."""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def decode(
    values: pa.BinaryArray, schema: pa.Schema, *, widths: Sequence[int]
) -> tuple[pa.RecordBatch, dict[int, str]]:
    """Cut lines into columns, and refuse those of another length.

    Args:
        values: Of a block, none of them null; and no values when the stream's file is validated.
        schema: The columns that the file declares.
        widths: Characters of each column.

    Returns:
        As many rows in the same order, in the columns of the schema; and the reason for each value that is refused.
    """
    lines = values.cast(pa.string())
    wrong = pc.not_equal(pc.utf8_length(lines), sum(widths))
    lines = pc.if_else(wrong, pc.utf8_rpad("", width=sum(widths)), lines)
    arrays: list[pa.Array] = []
    start = 0
    for field, width in zip(schema, widths, strict=True):
        text = pc.utf8_trim(pc.utf8_slice_codeunits(lines, start, start + width), characters=" ")
        arrays.append(pc.if_else(pc.equal(text, ""), None, text).cast(field.type))
        start += width
    reasons = dict.fromkeys(np.flatnonzero(wrong.to_numpy(zero_copy_only=False)).tolist(), "it has another length")
    return pa.RecordBatch.from_arrays(arrays, schema=schema), reasons
