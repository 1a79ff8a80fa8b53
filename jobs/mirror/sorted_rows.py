"""Rows sorted by columns, whatever these are called."""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc


def sorted_rows(rows: pa.Table, names: Sequence[str]) -> pa.Table:
    """The rows in ascending order of some columns, nulls last.

    `pa.Table.sort_by` reads a name that begins with a dot as a path into a struct, so the columns are sorted by
    under other names.
    """
    by = pa.Table.from_arrays([rows[name] for name in names], names=[str(number) for number in range(len(names))])
    return rows.take(pc.sort_indices(by, sort_keys=[(name, "ascending") for name in by.column_names]))
