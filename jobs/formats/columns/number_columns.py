"""Number columns that JSON carries in another way than by default: whole numbers with a point, and numbers as text."""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from jobs.formats.columns import floats
from jobs.formats.columns.text_columns import Leaf, certain_or_one_by_one, true_at, without
from jobs.formats.columns.text_values import exact_decimal
from jobs.formats.problems import OUT_OF_RANGE, PRECISION_LOSS, WRONG_TYPE, BadValue, ValueProblem, shown
from jobs.schema.arrow_schema import arrow_type
from jobs.schema.declared import Primitive

_BITS = {"int": 31, "long": 63}
_CERTAIN = {"int": r"^-?(?:0|[1-9][0-9]{0,8})$", "long": r"^-?(?:0|[1-9][0-9]{0,17})$"}
_WHOLE = re.compile(r"-?[0-9]+")
_FLOAT = r"^(?:-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|NaN|-?Infinity)$"
_WORDS = {"NaN": np.nan, "Infinity": np.inf, "-Infinity": -np.inf}


def whole_numbers(declared: Primitive, text: pa.StringArray) -> Leaf:
    """Whole numbers of texts: of JSON numbers, which may have a point and an exponent, or of digits."""
    target = arrow_type(declared)
    if declared.encoding == "number":
        # 517.0 is 517; what else has a point or an exponent is read one by one.
        text = pc.replace_substring_regex(text, r"^(-?[0-9]+)\.0+$", r"\1")
    return certain_or_one_by_one(
        text, _CERTAIN[declared.name], target, lambda value: exact_whole(value, declared), target
    )


def exact_whole(text: str, declared: Primitive) -> int:
    """The whole number that a text is.

    Raises:
        ValueProblem: wrong_type, precision_loss where it has a fraction, or out_of_range.
    """
    if declared.encoding == "text" and not _WHOLE.fullmatch(text):
        raise ValueProblem(WRONG_TYPE, f"needs {declared}, found the text {shown(text)}")
    try:
        number = exact_decimal(text, 20, 0)
    except ValueProblem as problem:
        if problem.error_class == PRECISION_LOSS:
            message = f"needs {declared}, found {shown(text)}, which is no whole number"
            raise ValueProblem(PRECISION_LOSS, message) from None
        number = 2**64
    if not -(2 ** _BITS[declared.name]) <= number < 2 ** _BITS[declared.name]:
        raise ValueProblem(OUT_OF_RANGE, f"needs {declared}, found a number beyond its range")
    return number


def text_floats(declared: Primitive, text: pa.StringArray) -> Leaf:
    """Floats or doubles of texts: numbers as JSON writes them, also with leading zeros, NaN and the infinities."""
    matches = pc.fill_null(pc.match_substring_regex(text, _FLOAT), True)
    bad: list[BadValue] = []
    for index in true_at(pc.invert(matches)):
        message = f"needs {declared}, found the text {shown(text[index].as_py())}"
        bad.append(BadValue(index, WRONG_TYPE, message))
    if bad:
        text = pc.if_else(matches, text, pa.scalar(None, pa.string()))
    words = pc.fill_null(pc.is_in(text, pa.array(list(_WORDS))), False)
    numbers = pc.if_else(words, pa.scalar(None, pa.string()), text) if pc.any(words).as_py() else text
    array, beyond = nearest(declared, numbers)
    if numbers is not text:
        named = pa.array([_WORDS[value] for value in text.filter(words).to_pylist()], array.type)
        array = pc.replace_with_mask(array, words, named)
    return array, sorted(bad + beyond, key=lambda one: one.index)


def nearest(declared: Primitive, text: pa.StringArray) -> Leaf:
    """The floats or doubles nearest to the texts of numbers, in one rounding."""
    doubles = pc.cast(text, pa.float64())
    null = doubles.is_null().to_numpy(zero_copy_only=False)
    numbers = pc.fill_null(doubles, 0.0).to_numpy()
    if declared.name == "float":
        with np.errstate(over="ignore"):
            narrow = numbers.astype(np.float32)
        for index in np.flatnonzero(floats.halfway(numbers)):
            narrow[index] = floats.nearest_float(text[index].as_py(), float(numbers[index]))
        numbers = narrow
    infinite = np.flatnonzero(np.isinf(numbers)).tolist()
    refused = [BadValue(i, OUT_OF_RANGE, f"needs {declared}, found a number beyond its range") for i in infinite]
    array = pa.array(numbers, mask=null)
    return (without(array, infinite) if infinite else array), refused
