from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jobs.clients.kafka.metadata import LogEnds
from jobs.clients.kafka.open_transactions import OpenTransactions, find_hanging
from jobs.tables.commit.stamp.offsets import TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def ends(*of: tuple[int, int]) -> LogEnds:
    """Of each partition: the end of what is decided, and of all."""
    latest = {TopicPartition("t", number): each[0] for number, each in enumerate(of)}
    return LogEnds(latest, {TopicPartition("t", number): each[1] for number, each in enumerate(of)}, {})


def test_an_end_that_stands_still_is_told_once() -> None:
    seen = OpenTransactions()
    seen.observe(ends((5, 9), (7, 7)), 100.0)
    assert seen.oldest() == 100.0
    assert seen.hanging(150.0, 60.0) == []
    seen.observe(ends((5, 30), (7, 8)), 160.0)
    assert seen.since == {P0: 100.0, P1: 160.0}
    assert seen.hanging(160.0, 60.0) == [P0]
    assert seen.hanging(170.0, 60.0) == []
    assert seen.hanging(220.0, 60.0) == [P1]


def test_one_that_moves_or_is_reached_begins_anew() -> None:
    seen = OpenTransactions()
    seen.observe(ends((5, 9)), 100.0)
    assert seen.hanging(160.0, 60.0) == [P0]
    seen.observe(ends((6, 9)), 170.0)
    assert (seen.oldest(), seen.hanging(200.0, 60.0), seen.hanging(230.0, 60.0)) == (170.0, [], [P0])
    seen.observe(ends((9, 9)), 240.0)
    assert (seen.oldest(), seen.since, seen.hanging(999.0, 60.0)) == (None, {}, [])
    seen.observe(ends((9, 12)), 250.0)
    assert seen.oldest() == 250.0


offsets = st.integers(0, 3)


@given(st.lists(st.lists(st.tuples(offsets, offsets).map(lambda p: (p[0], sum(p))), min_size=2, max_size=2)))
def test_the_oldest_is_the_last_look_at_which_it_did_not_stand_there(looks: list[list[tuple[int, int]]]) -> None:
    seen = OpenTransactions()
    for now, each in enumerate(looks):
        seen.observe(ends(*each), float(now))
        for number in range(2):
            (at, high), since = each[number], seen.since.get(TopicPartition("t", number))
            assert (since is None) == (at == high)
            if since is not None:
                run = [look[number] for look in looks[int(since) : now + 1]]
                assert all(before[0] == at and before[1] > at for before in run)
                earlier = looks[int(since) - 1][number] if since else None
                assert earlier is None or earlier[0] != at or earlier[0] == earlier[1]


def test_the_command_names_the_place() -> None:
    assert find_hanging(P1, "broker:9092") == (
        "kafka-transactions.sh --bootstrap-server broker:9092 find-hanging --topic t --partition 1"
    )
