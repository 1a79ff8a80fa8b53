"""Unscaled decimals: numbers without their point, as big-endian two's complement, which Connect writes in base64.

Texts of four and of eight characters, which are numbers of at most six bytes, are read in bulk. All others, and texts
that are no canonical base64, are read one by one.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg import types as ice

from jobs.records.formats.columns import text_values
from jobs.records.formats.columns.text_columns import Leaf, one_by_one
from jobs.records.formats.interface.problems import (
    NULL_IN_REQUIRED,
    OUT_OF_RANGE,
    PRECISION_LOSS,
    WRONG_LENGTH,
    WRONG_TYPE,
    BadValue,
    ValueProblem,
    shown,
)
from jobs.records.schema.arrow_schema import arrow_type
from jobs.records.schema.declared import Primitive

_LONGEST_SCALED = 1024
"""Limit of bytes of an unscaled value with its own scale."""

_SHORT = 32
_LENGTHS = (4, 8)
_PAD, _OTHER = 64, 255
_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
_SEXTETS = np.full(256, _OTHER, np.uint8)
_SEXTETS[np.frombuffer(_ALPHABET, np.uint8)] = np.arange(len(_ALPHABET))
_KINDS = {"t": "a boolean", "f": "a boolean", "{": "an object", "[": "an array"}


def unscaled_tokens(declared: Primitive, tokens: Sequence[Any], *, required: bool) -> Leaf:
    """Convert JSON values to decimals: texts of unscaled values, or numbers.

    Args:
        declared: The decimal.
        tokens: Valid JSON; null stays null.
        required: Whether null is refused.
    """
    precision, scale = declared.precision or 0, declared.scale or 0
    found: list[Decimal | None] = []
    bad: list[BadValue] = []
    for index, token in enumerate(map(bytes, tokens)):
        try:
            found.append(_scaled(_exact(declared, token, precision, scale, required=required), scale))
        except ValueProblem as problem:
            found.append(None)
            bad.append(BadValue(index, problem.error_class, problem.message))
    return pa.array(found, arrow_type(declared)), bad


def _exact(declared: Primitive, token: bytes, precision: int, scale: int, *, required: bool) -> int | None:
    match chr(token[0]):
        case '"':
            return text_values.exact_unscaled(msgspec.json.decode(token), precision, scale)
        case "n" if not required:
            return None
        case "n":
            raise ValueProblem(NULL_IN_REQUIRED, f"needs {declared}, found null")
        case kind if kind in _KINDS:
            raise ValueProblem(WRONG_TYPE, f"needs {declared}, found {_KINDS[kind]}")
        case _:
            return text_values.exact_decimal(token.decode(), precision, scale)


def _scaled(number: int | None, scale: int) -> Decimal | None:
    if number is None:
        return None
    sign, digits, _ = Decimal(number).as_tuple()
    return Decimal((sign, digits, -scale))


def exact_scaled(scale: int, data: bytes, kind: ice.PrimitiveType) -> Any:
    """Convert Debezium's VariableScaleDecimal to a decimal or plain text.

    Args:
        scale: Field `scale`.
        data: Field `value`.
        kind: A decimal type, or string.

    Raises:
        ValueProblem: wrong_length, out_of_range or precision_loss; never a rounded number.
    """
    if not data:
        raise ValueProblem(WRONG_LENGTH, "needs the bytes of a decimal, found none")
    if len(data) > _LONGEST_SCALED or abs(scale) > 10_000:
        raise ValueProblem(OUT_OF_RANGE, f"needs {kind}, found a number of {len(data)} bytes and scale {scale}")
    number = int.from_bytes(data, signed=True)
    digits = tuple(map(int, str(abs(number))))
    text = format(Decimal((int(number < 0), digits, -scale)), "f")
    if not isinstance(kind, ice.DecimalType):
        return text
    if scale > kind.scale:
        number, rest = divmod(abs(number), 10 ** (scale - kind.scale))
        if rest:
            message = f"needs {kind}, found {shown(text)} with more than {kind.scale} digits after the point"
            raise ValueProblem(PRECISION_LOSS, message)
        number = -number if data[0] & 0x80 else number
    else:
        number *= 10 ** (kind.scale - scale)
    if abs(number) >= 10**kind.precision:
        message = f"needs {kind}, found {shown(text)} with too many digits before the point"
        raise ValueProblem(OUT_OF_RANGE, message)
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -kind.scale))


def unscaled_decimals(declared: Primitive, texts: pa.StringArray) -> Leaf:
    """Convert base64 texts to decimals."""
    target = arrow_type(declared)
    precision, scale = target.precision, target.scale

    def one(text: str) -> Decimal | None:
        return _scaled(text_values.exact_unscaled(text, precision, scale), scale)

    _, offsets, data = texts.buffers()
    if len(texts) <= _SHORT or texts.null_count or data is None:
        return one_by_one(texts.to_pylist(), target, one, target)
    bounds = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    whole, lengths = np.frombuffer(data, np.uint8), np.diff(bounds)
    numbers, read = np.zeros(len(texts), np.int64), np.zeros(len(texts), np.bool_)
    for length in _LENGTHS:
        where = np.flatnonzero(lengths == length)
        if len(where):
            texts_of = np.ndarray(len(whole) - length + 1, f"V{length}", whole, strides=(1,))[bounds[where]]
            numbers[where], read[where] = _numbers(_SEXTETS[texts_of.view(np.uint8).reshape(-1, length)])
    if precision < 15:
        read &= np.abs(numbers) < 10**precision
    words = np.empty((len(texts), 2), np.int64)
    words[:, 0], words[:, 1] = numbers, numbers >> 63
    array = pa.Array.from_buffers(target, len(texts), [None, pa.py_buffer(words)])
    if read.all():
        return array, []
    others = np.flatnonzero(~read)
    rest, refused = one_by_one(texts.take(pa.array(others)).to_pylist(), target, one, target)
    take = np.arange(len(texts))
    take[others] = np.arange(len(texts), len(texts) + len(others))
    bad = [BadValue(int(others[each.index]), each.error_class, each.message) for each in refused]
    return pa.concat_arrays([array, rest]).take(pa.array(take)), bad


def _numbers(sextets: npt.NDArray[np.uint8]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Return the numbers of texts with one length of at most eight characters, and the mask of canonical base64.

    Args:
        sextets: A row for each text, a column for each of its characters.
    """
    length = sextets.shape[1]
    last, before = sextets[:, -1] == _PAD, sextets[:, -2] == _PAD
    pads = last.astype(np.int64) + before
    good = (sextets[:, :-2] < _PAD).all(axis=1) & (sextets[:, -2:] <= _PAD).all(axis=1) & (last | ~before)
    word = np.zeros(len(sextets), np.int64)
    for column in range(length):
        word = (word << 6) | (sextets[:, column] & 0x3F)
    # The characters before the padding have unused bits, which are zero in the canonical form.
    good &= (word & ((1 << 8 * pads) - 1)) == 0
    unused = 64 - 8 * (length // 4 * 3 - pads)
    return ((word >> 8 * pads) << unused) >> unused, good
