from __future__ import annotations

import pytest

from bench.latency_records import Arrival, Latency, MissingRecordsError, latencies


def test_the_least_value_that_so_many_do_not_exceed() -> None:
    values = [float(n) for n in range(100, 0, -1)]
    assert Latency.of(values) == Latency(records=100, p50=50.0, p99=99.0, max=100.0)
    assert Latency.of([3.0, 1.0, 2.0]) == Latency(3, 2.0, 3.0, 3.0)
    assert Latency.of([0.5]) == Latency(1, 0.5, 0.5, 0.5)


def test_each_record_is_joined_with_the_snapshot_that_brought_it() -> None:
    sent = {(0, 7): 100.0, (1, 7): 100.5, (0, 8): 102.0}
    arrivals = [
        Arrival(committed=101.0, seen=101.25, records=[(0, 6), (0, 7), (1, 7)]),
        Arrival(committed=104.0, seen=104.5, records=[(0, 8), (0, 9)]),
    ]
    assert latencies(sent, arrivals) == ([1.0, 0.5, 2.0], [1.25, 0.75, 2.5])


def test_a_lost_and_a_doubled_record_are_no_figures() -> None:
    first = Arrival(1.0, 1.0, [(0, 0), (0, 1)])
    with pytest.raises(MissingRecordsError, match=r"1 of 2 records have not arrived, such as \(0, 2\)"):
        latencies({(0, 1): 0.0, (0, 2): 0.0}, [first])
    with pytest.raises(MissingRecordsError, match="partition 0, offset 1 has arrived twice"):
        latencies({(0, 0): 0.0}, [first, Arrival(2.0, 2.0, [(0, 1)])])
