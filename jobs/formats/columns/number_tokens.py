"""Number tokens: JSON values as they were written, of which those that are numbers become a column of their texts."""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from jobs.formats.problems import NULL_IN_REQUIRED, WRONG_TYPE, BadValue
from jobs.schema.declared import Primitive

_KINDS = {
    "n": "null",
    '"': "a string",
    "t": "a boolean",
    "f": "a boolean",
    "{": "an object",
    "[": "an array",
}


def number_texts(
    declared: Primitive, tokens: Sequence[Any], *, required: bool
) -> tuple[pa.StringArray, list[BadValue]]:
    """The texts of those tokens that are numbers, null for the others; and which of these are refused.

    Args:
        tokens: Valid JSON values, as the parser has already proved.
    """
    if not tokens:
        return pa.array([], pa.string()), []
    text = joined(tokens)
    bad: list[BadValue] = []
    initial = initials(text)
    number = ((initial >= ord("0")) & (initial <= ord("9"))) | (initial == ord("-"))
    if not number.all():
        for index in np.flatnonzero(~number):
            kind = chr(initial[index])
            if kind == "n" and not required:
                continue
            error_class = NULL_IN_REQUIRED if kind == "n" else WRONG_TYPE
            bad.append(BadValue(int(index), error_class, f"needs {declared}, found {_KINDS[kind]}"))
        text = pc.if_else(pa.array(number), text, pa.scalar(None, pa.string()))
    return text, bad


def joined(tokens: Sequence[Any]) -> pa.StringArray:
    """A string column of buffers; joining them costs half of what a bytes object for each would."""
    offsets = np.zeros(len(tokens) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, tokens), np.int32, len(tokens)), out=offsets[1:])
    return pa.StringArray.from_buffers(len(tokens), pa.py_buffer(offsets), pa.py_buffer(b"".join(tokens)))


def initials(text: pa.StringArray) -> npt.NDArray[np.uint8]:
    """The first byte of each text of a column without offset, none of them empty."""
    _, offsets, data = text.buffers()
    starts = np.frombuffer(offsets, np.int32)[: len(text)]
    return np.frombuffer(data, np.uint8)[starts]
