"""Key changes: what the folded rows of an increment say of keys that concern rows which wait."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from jobs.mirror.fold import DELETE, FOLD_COLUMN, FROM_TARGET_COLUMN
from jobs.mirror.merge_plan import ORDER_COLUMN
from jobs.mirror.row_filter import UNJUDGED_COLUMN
from jobs.mirror.waiting_rows import KeyChange, KeyTexts, texts_of

SAID_COLUMNS = (FOLD_COLUMN, ORDER_COLUMN, FROM_TARGET_COLUMN, UNJUDGED_COLUMN)
"""Of a folded row, beside its key."""


def key_changes(folded: pa.Table, key: Sequence[str]) -> dict[KeyTexts, KeyChange]:
    """By key, what a merge does with its row.

    Args:
        folded: One row for each key, with `SAID_COLUMNS` and those of the key.
        key: Their names.
    """
    ops, orders, kept, unjudged = (folded[name].to_pylist() for name in SAID_COLUMNS)
    said = (
        KeyChange(order, None if op == DELETE else tuple(names or ()), not open_)
        for op, order, names, open_ in zip(ops, orders, kept, unjudged, strict=True)
    )
    return dict(zip(texts_of(folded, key), said, strict=True))
