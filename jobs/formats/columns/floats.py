"""Floats: the float (32 bits) nearest to a number's text.

Rounding the nearest double once more is right except where that double lies exactly halfway between two floats: then it
no longer tells on which side of it the text was. 16777217.000000000000000000001 is 16777218, and 16777217 is 16777216.
"""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]

# A double has 29 bits of its fraction more than a float; halfway, the first of them is set and the rest is zero.
_BELOW_A_FLOAT = np.uint64(2**29 - 1)
_HALF = np.uint64(2**28)
# Below the normal floats their distance stays the same, and half of it is the double 2**-150.
_LEAST_NORMAL, _HALVES_IN_ONE = 2.0**-126, 2.0**150


def halfway(doubles: Doubles) -> npt.NDArray[np.bool_]:
    """Which doubles lie exactly halfway between two floats, the greatest float and infinity included."""
    found = (doubles.view(np.uint64) & _BELOW_A_FLOAT) == _HALF
    small = np.flatnonzero(np.abs(doubles) < _LEAST_NORMAL)
    if len(small):
        found[small] = np.abs(doubles[small]) * _HALVES_IN_ONE % 2 == 1
    return found


def nearest_float(text: str, double: float) -> np.float32:
    """The float nearest to a number, which may be infinite; of two equally near, the one whose last bit is zero.

    Args:
        text: The number, as JSON writes it.
        double: The double nearest to it, which lies halfway between two floats.
    """
    # Comparing decimals is exact, whatever the precision of the context; so is a decimal made of a double.
    number, middle = Decimal(text), Decimal(double)
    with np.errstate(over="ignore", under="ignore"):
        even = np.float32(double)
        if number == middle:
            return even
        towards = np.float32(np.inf if number > middle else -np.inf)
        # The even one is one of the two neighbours: right already, or one step away.
        return even if (float(even) > double) == (number > middle) else np.nextafter(even, towards)
