"""The float that a number's text stands for, by exact arithmetic alone."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction


def nearest_float(text: str) -> float:
    """The float (32 bits) nearest to a number as JSON writes it, of two equally near the even one; may be infinite."""
    number = Decimal(text)
    sign = -1.0 if number.is_signed() else 1.0
    if not number or number.adjusted() < -60:
        return sign * 0.0
    if number.adjusted() > 60:
        return sign * float("inf")
    size = abs(Fraction(number))
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    if size < Fraction(2) ** exponent:
        exponent -= 1
    quantum = Fraction(2) ** (max(exponent, -126) - 23)
    whole = round(size / quantum) * quantum  # Python rounds a Fraction's half to even
    return sign * (float(whole) if whole < 2**128 else float("inf"))
