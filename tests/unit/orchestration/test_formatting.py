"""Numbers and pictures for people say neither more nor less than is so."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestration.formatting import bar, percentage, sparkline

SHARES = st.lists(st.none() | st.just(0.0) | st.floats(1e-9, 1.0), max_size=40)


def test_a_sparkline_rises_to_the_greatest() -> None:
    assert sparkline([0.0, 0.001, 0.5, None, 1.0]) == "▁▂▅?█"
    assert sparkline([0.0, 0.0]) == "▁▁"
    assert sparkline([0.002, 0.004]) == "▅█"
    assert sparkline([]) == ""


@given(SHARES)
def test_a_sparkline_never_hides_a_failure_nor_makes_one(told: list[float | None]) -> None:
    drawn = sparkline(told)
    assert len(drawn) == len(told)
    for share, character in zip(told, drawn, strict=True):
        assert (character == "?") == (share is None)
        assert (character == "▁") == (share == 0.0)
    known = sorted((share, character) for share, character in zip(told, drawn, strict=True) if share is not None)
    assert [character for _, character in known] == sorted(character for _, character in known)


def test_bars() -> None:
    assert bar(0.0, 0.5, 4) == "" and bar(0.1, 0.0, 4) == ""
    assert bar(0.5, 0.5, 4) == "████" and bar(0.25, 0.5, 4) == "██" and bar(0.28125, 0.5, 4) == "██▎"
    assert bar(1e-9, 1.0, 4) == "▏"


@pytest.mark.parametrize(
    ("share", "text"),
    [(None, "–"), (0.0, "0.00%"), (1e-6, "<0.01%"), (0.3333, "33.33%"), (0.999999, ">99.99%"), (1.0, "100.00%")],
)
def test_percentages(share: float | None, text: str) -> None:
    assert percentage(share) == text
