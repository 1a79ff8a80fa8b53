"""Shops of payments: where each was made."""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

_SHOPS = pa.array(["S1", "S2", "S3"])
_CITIES = pa.array(["Lisbon", "Oslo", "Kyoto"])


def with_city(rows: pa.RecordBatch) -> tuple[pa.RecordBatch, dict[int, str]]:
    """Add the city of each shop, and refuse rows of shops that nobody knows.

    Args:
        rows: With the column `shop`; those of a block, and none when the stream's file is validated.

    Returns:
        As many rows in the same order, with the column `city`; and the reason for each row that is refused.
    """
    at = pc.index_in(rows.column("shop"), value_set=_SHOPS)
    city = _CITIES.take(at)
    unknown = pc.indices_nonzero(pc.and_(pc.is_null(at), pc.is_valid(rows.column("shop")))).to_pylist()
    return rows.append_column("city", city), dict.fromkeys(unknown, "there is no such shop")
