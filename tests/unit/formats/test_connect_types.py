"""The logical types of Connect and Debezium: each has a carrier, and a unit where a number counts something."""

from __future__ import annotations

import pytest

from jobs.formats.connect_types import LOGICAL_TYPES, decimal_scale


@pytest.mark.parametrize("name", LOGICAL_TYPES)
def test_numbers_count_something_and_nothing_else_does(name: str) -> None:
    logical = LOGICAL_TYPES[name]
    assert (logical.unit in ("days", "ms", "us", "ns")) == (logical.carrier in ("int32", "int64"))
    assert (logical.unit == "days") == (logical.type == "date")


@pytest.mark.parametrize(
    ("scale", "expected"), [("0", 0), ("2", 2), ("38", 38), ("39", None), ("-1", None), ("x", None), ("٢", None)]
)
def test_the_scale_is_one_that_a_decimal_can_have(scale: str, expected: int | None) -> None:
    assert decimal_scale({"scale": scale}) == expected
    assert decimal_scale({}) is None
