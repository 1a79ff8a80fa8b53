"""Rounds by turns, and what pairs of them say."""

from __future__ import annotations

import pytest

from bench.by_turns import Pairs, pairs_of, spread, turns

SIDES = ("direct", "gated")


def test_each_pair_begins_with_the_side_that_the_one_before_ended_with() -> None:
    order = list(turns(SIDES, 3))
    assert order == [(0, "direct"), (0, "gated"), (1, "gated"), (1, "direct"), (2, "direct"), (2, "gated")]


def test_pairs_are_of_the_same_round_whatever_the_order() -> None:
    values = {("direct", 0): 10, ("gated", 0): 9, ("gated", 1): 22, ("direct", 1): 20}
    facts = [{"side": side, "round": number, "rate": value} for (side, number), value in values.items()]
    pairs = pairs_of(facts, SIDES, "rate")
    assert pairs == Pairs((10.0, 20.0), (9.0, 22.0))
    assert pairs.ratios == pytest.approx((0.9, 1.1))
    assert pairs.differences == (-1.0, 2.0)


def test_a_busy_machine_is_busy_for_both_of_a_pair() -> None:
    pairs = Pairs((100.0, 50.0, 10.0), (98.0, 49.0, 9.8))
    assert pairs.ratios == pytest.approx((0.98, 0.98, 0.98))
    assert spread(pairs.ratios) == "0.980 (0.980 to 0.980)"


def test_a_round_without_its_other_is_an_error() -> None:
    with pytest.raises(KeyError):
        pairs_of([{"side": "direct", "round": 0, "rate": 1}], SIDES, "rate")


def test_spread_names_the_median_and_both_ends() -> None:
    assert spread([3.0, 1.0, 2.0], ".1f") == "2.0 (1.0 to 3.0)"
