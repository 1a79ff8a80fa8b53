from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.spec.units import format_duration, parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"), [("60s", 60), ("5m", 300), ("2h", 7200), ("1d", 86400), ("250ms", 0.25), (" 90 s ", 90)]
)
def test_reads_a_number_with_its_unit(text: str, seconds: float) -> None:
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (60, "needs a unit; write 60s, 60m, 60h or 60d"),
        ("60", "must be a whole number with a unit"),
        ("1.5h", "must be a whole number with a unit"),
        ("1w", "must be a whole number with a unit"),
        ("-5m", "must be a whole number with a unit"),
        ("0s", "must be longer than zero"),
        ("", "must be a whole number with a unit"),
        (True, "must be a whole number with a unit"),
        (None, "must be a whole number with a unit"),
        (["5m"], "must be a whole number with a unit"),
        ("٥m", "must be a whole number with a unit"),
    ],
)
def test_refuses_everything_else(value: object, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        parse_duration(value)


@given(st.integers(1, 10**9 - 1), st.sampled_from(["ms", "s", "m", "h"]))
def test_what_is_written_reads_back(number: int, unit: str) -> None:
    duration = parse_duration(f"{number}{unit}")
    assert parse_duration(format_duration(duration)) == duration
