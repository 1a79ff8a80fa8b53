"""Numbers of all records of a block, from their digits to values of their types."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from jobs.formats.columns.floats import halfway
from jobs.formats.json.block_text import MOST_DIGITS, BlockText, Indices, Mask, Words
from jobs.schema.declared import Primitive

WITH_POINT = frozenset(("decimal", "float", "double"))
MOST_IN_A_WORD = 18
"""Digits; a decimal of more is converted from its text."""

_MINUS, _ZERO, _DOT = b"-0."
_EXACT_MANTISSA, _EXACT_POWER = np.uint64(2**53), 22
_POWERS = 10.0 ** np.arange(_EXACT_POWER + 1)
_TENS = np.array([10**n for n in range(19)], np.uint64)
_FIVES = np.array([5**n for n in range(19)], np.uint64)


@dataclass(slots=True)
class Numbers:
    """Numbers in JSON's grammar without an exponent.

    Attributes:
        starts: Of the digits.
        ends: Behind the last one.
        negative: Which begin with a minus sign.
        whole: The digits before the point as a number, modulo 2**64.
        digits: How many they are.
        fraction, places: The same of those after the point; 0 where there is none.
        bad: Where there is none, or one that is not read here.
    """

    text: BlockText
    starts: Indices
    ends: Indices
    negative: Mask
    whole: Words
    digits: Indices
    fraction: Words
    places: Indices
    bad: Mask

    @classmethod
    def read(cls, text: BlockText, at: Indices, *, pointed: bool) -> Numbers:
        """Reads a number from each position on; where no point is expected, it ends before one."""
        negative = text.bytes[at] == _MINUS
        starts = at + negative
        whole, digits = text.digits(starts)
        bad = (digits == 0) | (digits >= MOST_DIGITS) | ((digits > 1) & (text.bytes[starts] == _ZERO))
        ends = starts + digits
        fraction, places = np.zeros(len(at), np.uint64), np.zeros(len(at), np.int64)
        if pointed:
            where = np.flatnonzero(text.bytes[ends] == _DOT)
            if len(where) == len(at):
                fraction, places = text.digits(ends + 1)
                bad |= (places == 0) | (places >= MOST_DIGITS)
                ends += places + 1
            elif len(where):
                fraction[where], places[where] = text.digits(ends[where] + 1)
                bad[where] |= (places[where] == 0) | (places[where] >= MOST_DIGITS)
                ends[where] += places[where] + 1
        return cls(text, starts, ends, negative, whole, digits, fraction, places, bad)

    def values(self, kind: Primitive) -> tuple[npt.NDArray[Any], Mask]:
        """The numbers as the type needs them (a decimal without its point), and which of them are not for here."""
        match kind:
            case Primitive("decimal", int() as precision, int() as scale):
                return self._unscaled(precision, scale)
            case Primitive("double"):
                return self._doubles()
            case Primitive("float"):
                doubles, unfit = self._doubles()
                return doubles, unfit | self._rounded_twice(doubles)
            case _:
                beyond = np.uint64(2 ** (_bits(kind) - 1) - 1) + self.negative.astype(np.uint64)
                return self._signed(self.whole.view(np.int64)), (self.digits > 19) | (self.whole > beyond)

    def _unscaled(self, precision: int, scale: int) -> tuple[npt.NDArray[np.int64], Mask]:
        unfit = (self.whole >= _TENS[precision - scale]) | (self.digits > 19) | (self.places > scale)
        lacking = np.clip(scale - self.places, 0, MOST_IN_A_WORD)
        return self._signed((self.whole * _TENS[scale] + self.fraction * _TENS[lacking]).view(np.int64)), unfit

    def _doubles(self) -> tuple[npt.NDArray[np.float64], Mask]:
        mantissa = self.whole * _TENS[np.minimum(self.places, MOST_IN_A_WORD)] + self.fraction
        # Two numbers that doubles hold exactly, so their quotient is the double nearest to the text.
        numbers = mantissa.astype(np.float64) / _POWERS[np.minimum(self.places, _EXACT_POWER)]
        inexact = np.flatnonzero((self.digits + self.places > MOST_IN_A_WORD) | (mantissa > _EXACT_MANTISSA))
        if len(inexact):
            numbers[inexact] = self._parsed(inexact)
        # An exponent follows.
        return self._signed(numbers), (self.text.bytes[self.ends] | 0x20) == ord("e")

    def _rounded_twice(self, doubles: npt.NDArray[np.float64]) -> Mask:
        """Which doubles lie halfway between two floats and are not exactly what the text says."""
        found = halfway(doubles)
        where = np.flatnonzero(found)
        if len(where):
            # Few digits after the point, of a number that the power of five divides: the quotient has no remainder.
            places = np.minimum(self.places[where], MOST_IN_A_WORD)
            mantissa = self.whole[where] * _TENS[places] + self.fraction[where]
            short = (self.digits[where] + self.places[where] <= MOST_IN_A_WORD) & (mantissa <= _EXACT_MANTISSA)
            found[where] = ~(short & (mantissa % _FIVES[places] == 0))
        return found

    def _parsed(self, where: Indices) -> npt.NDArray[np.float64]:
        found = np.zeros(len(where))
        readable = ~self.bad[where]
        found[readable] = self.text.parsed_doubles(self.starts[where[readable]], self.ends[where[readable]])
        return found

    def _signed(self, numbers: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return np.where(self.negative, -numbers, numbers)


def _bits(kind: Primitive) -> int:
    if kind.name != "int":
        return 64
    return {"int8": 8, "int16": 16}.get(kind.encoding or "", 32)
