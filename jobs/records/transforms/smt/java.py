"""Numbers, texts and regular expressions as Java reads and writes them."""

from __future__ import annotations

import math
import re
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.records.transforms.columns import TransformProblem

WHOLE = r"^[+-]?[0-9]+$"
"""A whole number, for `Long.parseLong`."""
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?", re.ASCII)
_HEX = re.compile(r"([+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?", re.ASCII)
_WORDS = {
    **dict.fromkeys(("NaN", "+NaN", "-NaN"), math.nan),
    **dict.fromkeys(("Infinity", "+Infinity"), math.inf),
    "-Infinity": -math.inf,
}
# Characters that Java's String.trim removes.
BLANKS = "".join(map(chr, range(33)))


def parsed_double(text: str) -> float | None:
    """Return the number that `Double.parseDouble` reads; None if it throws."""
    text = text.strip(BLANKS)
    if text in _WORDS:
        return _WORDS[text]
    if _DECIMAL.fullmatch(text):
        return float(text.rstrip("fFdD"))
    if match := _HEX.fullmatch(text):
        try:
            return float.fromhex(match.group(1))
        except OverflowError:
            return -math.inf if text.startswith("-") else math.inf
    return None


def is_infinite_word(text: str) -> bool:
    """Return whether the text spells infinity, rather than a number beyond the largest one."""
    return math.isinf(_WORDS.get(text.strip(BLANKS), 0.0))


def float_texts(array: pa.Array) -> pa.Array:
    """Return floats as `toString` writes them: a digit behind the point, an exponent from 10^7 on and below 10^-3.

    The digits are the fewest that give the number back, as in Java since release 19; older releases may write one more.
    """
    size = pc.abs(array)
    plain = pc.or_(pc.equal(array, 0), pc.and_(pc.greater_equal(size, 1e-3), pc.less(size, 1e7)))
    found = array.cast(pa.string())
    whole = pc.invert(pc.match_substring(found, "."))
    found = pc.if_else(whole, pc.binary_join_element_wise(found, ".0", ""), found)
    odd = np.flatnonzero(~pc.fill_null(plain, True).to_numpy(zero_copy_only=False))
    if not len(odd):
        return found
    mask = np.zeros(len(array), dtype=bool)
    mask[odd] = True
    single = pa.types.is_float32(array.type)
    texts = [_scientific(each, single=single) for each in array.take(pa.array(odd)).to_pylist()]
    return pc.replace_with_mask(found, pa.array(mask), pa.array(texts, pa.string()))


def _scientific(number: float, *, single: bool) -> str:
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    shortest = str(np.float32(number)) if single else repr(number)
    sign, digits, exponent = Decimal(shortest).as_tuple()
    text = "".join(map(str, digits))
    power = len(text) - 1 + int(exponent)
    rest = text[1:].rstrip("0") or "0"
    return f"{'-' if sign else ''}{text[0]}.{rest}E{power}"


def float_text(number: float) -> str:
    """Return one double as `float_texts` writes it."""
    plain = number == 0 or 1e-3 <= abs(number) < 1e7
    return repr(number) if plain else _scientific(number, single=False)


def decimal_texts(array: pa.Array) -> pa.Array:
    """Return decimals as `BigDecimal.toString` writes them: an exponent replaces more than six leading zeros."""
    if array.type.scale <= 6:
        return array.cast(pa.string())
    return pa.array([None if each is None else str(each) for each in array.to_pylist()], pa.string())


def narrowed(numbers: np.ndarray, bits: int) -> np.ndarray:
    """Return longs as Java narrows them: the lowest bits count."""
    return numbers.astype({8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}[bits])


def truncated(numbers: np.ndarray, bits: int) -> np.ndarray:
    """Return doubles as Java's whole numbers: towards zero, NaN as 0, numbers beyond the range as its end."""
    limit = 63 if bits == 64 else 31
    plain = np.where(np.isnan(numbers), 0.0, numbers)
    inside = (plain >= -(2.0**limit)) & (plain < 2.0**limit)
    whole = np.trunc(np.where(inside, plain, 0.0)).astype(np.int64)
    ends = np.where(plain > 0, np.int64(2**limit - 1), np.int64(-(2**limit)))
    return narrowed(np.where(inside, whole, ends), bits)


_NAMED = re.compile(r"\(\?<([A-Za-z][A-Za-z0-9]*)>")
_NAMED_BACK = re.compile(r"\\k<([A-Za-z][A-Za-z0-9]*)>")
# Syntax that Python does not know, or reads otherwise.
_OTHER = re.compile(r"\\[pPQEGhHRXzN]|\\0|&&|\[[^\]]*\[")
_GROUP = re.compile(r"\\(.)|\$(\d)|\$\{([A-Za-z][A-Za-z0-9]*)\}|([\\$])", re.DOTALL)


def java_pattern(text: str, key: str) -> re.Pattern[str]:
    """Return a pattern of Java for Python.

    Args:
        text: The pattern.
        key: The property with the pattern.

    Raises:
        TransformProblem: The text is no pattern, or has something that only Java knows.
    """
    if match := _OTHER.search(text):
        hint = "write the characters, such as [A-Za-z] or [0-9]"
        raise TransformProblem(f"'{match.group()}' in {key} is known to Java alone; {hint}", (key,))
    translated = _NAMED_BACK.sub(r"(?P=\1)", _NAMED.sub(r"(?P<\1>", text))
    try:
        # Java's \d, \w and \s are ASCII.
        return re.compile(translated, re.ASCII)
    except re.error as problem:
        raise TransformProblem(f"{key} '{text}' is no regular expression: {problem}", (key,)) from None


class Replacement:
    r"""The replacement of a whole match, in Java's syntax: `$1`, `${name}`, and `\` before a character.

    Args:
        text: The replacement.
        pattern: The pattern whose groups it may name.
        key: The property with the replacement.

    Raises:
        TransformProblem: The text names a group that the pattern does not have.
    """

    def __init__(self, text: str, pattern: re.Pattern[str], key: str) -> None:
        self._parts: list[str | tuple[int | str]] = []
        end = 0
        while match := _GROUP.search(text, end):
            self._parts.append(text[end : match.start()])
            end = match.end()
            escaped, number, name, alone = match.groups()
            if alone:
                raise TransformProblem(f"'{alone}' in {key} needs a group behind it, or \\ before it", (key,))
            if escaped is not None:
                self._parts.append(escaped)
            elif number is not None:
                group, end = _number(text, int(number), end, pattern.groups)
                if group > pattern.groups:
                    known = f"and the pattern has {pattern.groups}"
                    raise TransformProblem(f"{key} names the group {group}, {known}", (key,))
                self._parts.append((group,))
            else:
                if name not in pattern.groupindex:
                    known = ", ".join(pattern.groupindex) or "none"
                    raise TransformProblem(f"{key} names the group '{name}', and the pattern has {known}", (key,))
                self._parts.append((name,))
        self._parts.append(text[end:])

    def of(self, match: re.Match[str]) -> str:
        """Return the text for a match; a group that took no part is empty."""
        return "".join(each if isinstance(each, str) else match.group(each[0]) or "" for each in self._parts)


def _number(text: str, group: int, end: int, groups: int) -> tuple[int, int]:
    """Return the group's number: Java takes further digits as long as such a group exists."""
    while end < len(text) and text[end] in "0123456789" and group * 10 + int(text[end]) <= groups:
        group = group * 10 + int(text[end])
        end += 1
    return group, end
