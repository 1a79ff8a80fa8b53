"""Columns of JSON values as text: any value, in its canonical text or as it was sent."""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.formats.columns.number_tokens import initials, joined
from jobs.formats.columns.text_columns import Leaf
from jobs.formats.json.canonical import canonical
from jobs.formats.problems import NULL_IN_REQUIRED, TOO_DEEP, BadValue
from jobs.schema.declared import Primitive


def json_values(declared: Primitive, tokens: Sequence[Any], *, required: bool) -> Leaf:
    """Texts of JSON values; null is null.

    Args:
        tokens: Valid JSON values as they were written, without white space around them.
        required: Whether null is refused.
    """
    if not tokens:
        return pa.array([], pa.string()), []
    text = joined(tokens)
    null = initials(text) == ord("n")
    bad: list[BadValue] = []
    if required:
        bad = [BadValue(i, NULL_IN_REQUIRED, f"needs {declared}, found null") for i in np.flatnonzero(null).tolist()]
    if declared.encoding == "sent":
        array = pc.if_else(pa.array(null), pa.scalar(None, pa.string()), text) if null.any() else text
        return array, bad
    found: list[str | None] = []
    for index, token in enumerate(tokens):
        try:
            found.append(None if null[index] else canonical(bytes(token)).decode())
        except RecursionError:
            found.append(None)
            bad.append(BadValue(index, TOO_DEEP, "needs JSON that is nested less deep"))
    return pa.array(found, pa.string()), sorted(bad, key=lambda one: one.index)
