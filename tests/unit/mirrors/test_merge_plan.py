"""The state of a mirror as it stands in a stamp."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from jobs.mirrors.model.merge_plan import (
    MOST_GENERATIONS,
    Break,
    Generation,
    MirrorState,
    PartitionState,
    TruncateFloor,
)
from jobs.tables.commit.stamp.offsets import TopicPartition

P0, P1 = TopicPartition("shop", 0), TopicPartition("shop", 1)
STATE = MirrorState(
    {
        P0: PartitionState(7, "0A", 12, (Generation(0, 0, "old"), Generation(1, 5, "new"))),
        P1: PartitionState(3, None, None, (Generation(0, 0, None),)),
    },
    {"old": 0, "new": 1, "elsewhere": 2},
    {"shop": TruncateFloor("0001.0A.1.0000000000000005")},
)

texts = st.text(max_size=3)
lineages = st.none() | texts.filter(bool)
numbers = st.integers(0, 2**40)
generations = st.builds(Generation, st.integers(0, 9), numbers, lineages)
partitions = st.builds(
    PartitionState,
    numbers,
    st.none() | texts,
    st.none() | numbers,
    st.lists(generations, min_size=1, max_size=MOST_GENERATIONS).map(tuple),
)
states = st.builds(
    MirrorState,
    st.dictionaries(st.builds(TopicPartition, texts, st.integers(0, 30)), partitions, max_size=4),
    st.dictionaries(texts.filter(bool), st.integers(0, 9), max_size=3),
    st.dictionaries(texts, st.builds(TruncateFloor, texts), max_size=2),
    removed=texts,
)


@given(states)
def test_what_a_stamp_says_is_read_as_it_was_written(state: MirrorState) -> None:
    assert MirrorState.from_json(json.loads(json.dumps(state.to_json()))) == state


def test_it_is_compact() -> None:
    assert STATE.to_json() == {
        "partitions": {"shop": {"0": [7, "0A", 12, [[0, 0, 1], [1, 5, 0]]], "1": [3, None, None, [[0, 0]]]}},
        "lineages": [["new", 1], ["old", 0], ["elsewhere", 2]],
        "floors": {"shop": ["0001.0A.1.0000000000000005"]},
    }
    assert MirrorState().to_json() == {}


def test_an_accepted_restore_begins_a_generation_where_it_is_told() -> None:
    assert STATE.accepted().breaks == {P0: (Break(7, 1),), P1: (Break(3, 1),)}
    accepted = STATE.accepted({P0: 9})
    assert accepted.breaks == {P0: (Break(9, 1),), P1: (Break(3, 1),)}
    assert accepted.partitions == STATE.partitions
    assert MirrorState.from_json(accepted.to_json()) == accepted
    assert MirrorState.from_json(json.loads(json.dumps(MirrorState().accepted({P1: 5}).to_json()))).breaks == {
        P1: (Break(5, 1),)
    }
    again = accepted.accepted({P0: 12})
    assert again.breaks == {P0: (Break(9, 1), Break(12, 2)), P1: (Break(3, 1),)}, "what is ahead goes on as it is"
    assert again.accepted({P0: 9}).breaks[P0] == (Break(9, 3), Break(12, 2))
    assert accepted.next_offsets == STATE.next_offsets
