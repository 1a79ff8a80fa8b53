"""Decimals of the base64 of their unscaled value: read side by side as they are read one by one."""

from __future__ import annotations

from base64 import b64encode
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs.formats.columns.text_values import exact_unscaled
from jobs.formats.columns.unscaled import unscaled_decimals, unscaled_tokens
from jobs.formats.problems import BAD_BINARY, OUT_OF_RANGE, ValueProblem
from jobs.schema.declared import Primitive


def text(number: int, length: int | None = None) -> str:
    return b64encode(number.to_bytes(length or number.bit_length() // 8 + 1, signed=True)).decode()


@pytest.mark.parametrize("number", [0, 1, -1, 127, 128, -128, -129, 2**47 - 1, -(2**47), 2**63, 10**38 - 1, 1 - 10**38])
def test_a_number_is_itself_however_many_bytes_it_is_written_with(number: int) -> None:
    for length in range(number.bit_length() // 8 + 1, 20):
        assert exact_unscaled(text(number, length), 38, 2) == number


@pytest.mark.parametrize(
    ("value", "error_class"),
    [
        ("", BAD_BINARY),
        ("12", BAD_BINARY),
        ("AQ==\n", BAD_BINARY),
        ("AQ", BAD_BINARY),
        ("AR==", BAD_BINARY),
        ("A===", BAD_BINARY),
        ("=AAA", BAD_BINARY),
        ("A=AA", BAD_BINARY),
        ("-_8=", BAD_BINARY),
        (text(1000), OUT_OF_RANGE),
        (text(-1000), OUT_OF_RANGE),
    ],
)
def test_what_is_no_such_number_is_refused(value: str, error_class: str) -> None:
    with pytest.raises(ValueProblem) as caught:
        exact_unscaled(value, 3, 2)
    assert caught.value.error_class == error_class
    column = pa.array([text(7)] * 40 + [value], pa.string())
    array, bad = unscaled_decimals(Primitive("decimal", 3, 2, "unscaled"), column)
    assert [(one.index, one.error_class, one.message) for one in bad] == [(40, error_class, caught.value.message)]
    assert array.to_pylist() == [Decimal("0.07")] * 40 + [None]


alphabet = st.sampled_from("ABCabc019+/=-_ ")


@settings(max_examples=60)
@given(
    st.integers(0, 2**32),
    st.lists(
        st.one_of(
            st.integers(-(2**70), 2**70).map(text),
            st.binary(max_size=12).map(lambda data: b64encode(data).decode()),
            st.text(alphabet, max_size=12),
        ),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from([(3, 1), (14, 2), (15, 15), (38, 2)]),
)
def test_side_by_side_is_as_one_by_one(seed: int, odd: list[str], sizes: tuple[int, int]) -> None:
    declared = Primitive("decimal", *sizes, "unscaled")
    values = [*odd, *(text((seed * (n + 1)) % 997 - 400) for n in range(40))]
    array, bad = unscaled_decimals(declared, pa.array(["", *values], pa.string())[1:])
    expected, refused = unscaled_tokens(declared, [f'"{value}"'.encode() for value in values], required=True)
    array.validate(full=True)
    assert (array.to_pylist(), bad) == (expected.to_pylist(), refused)
