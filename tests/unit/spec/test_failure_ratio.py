"""How many failed records a ratio allows, at its very edge."""

from __future__ import annotations

import pytest

from jobs.spec.error_handling import MOST_BY_CHANCE, exceeds_ratio


@pytest.mark.parametrize(("least", "read"), [(3, 3), (5, 10), (14, 100), (47, 580), (51, 1_000), (501, 10_000)])
def test_the_numbers_of_the_documentation(least: int, read: int) -> None:
    assert exceeds_ratio(least, read, 0.05, MOST_BY_CHANCE)
    assert not exceeds_ratio(least - 1, read, 0.05, MOST_BY_CHANCE)


def test_exactly_the_allowed_share_does_not_exceed_it() -> None:
    assert not exceeds_ratio(500, 1_000, 0.5, 20)
    assert exceeds_ratio(501, 1_000, 0.5, 20)
    assert not exceeds_ratio(0, 1_000, 0.0, 20)
