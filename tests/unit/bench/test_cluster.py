"""What the cluster benchmark says of its drains."""

from __future__ import annotations

from typing import Any

from bench.cluster import SIDES, ordered, summary


def drains(rates: tuple[float, ...], busy: float, number: int) -> list[dict[str, Any]]:
    """Of one round, on a machine that is so many times slower than it could be."""
    return [
        {
            "side": side,
            "round": number,
            "records_per_second": rate / busy,
            "seconds": busy * 1000 / rate,
            "cpu_seconds": 10.0 + at,
        }
        for at, (side, rate) in enumerate(zip(SIDES, rates, strict=True))
    ]


def test_ratios_are_of_rounds_so_that_a_busy_machine_is_busy_for_all() -> None:
    facts = drains((100.0, 180.0, 90.0, 171.0), 1.0, 0) + drains((100.0, 180.0, 90.0, 171.0), 7.0, 1)
    scaling, of_cluster, time, processor, *_ = summary(facts)
    assert scaling == "scaling, local[2] over twice local[1]: 0.900 (0.900 to 0.900)"
    assert of_cluster.startswith("scaling, cluster of 2 over twice cluster of 1: 0.950 (0.950 to 0.950), aimed at 0.85")
    assert time.startswith("time, cluster of 1 over local[1]: 1.111 (1.111 to 1.111), aimed at 1.15 or less")
    assert processor.startswith("processor time, cluster of 1 over local[1]: 1.200")


def test_each_round_goes_the_other_way() -> None:
    assert list(ordered(0)) == list(ordered(1))[::-1] == list(SIDES)
