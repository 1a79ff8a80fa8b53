"""Ranges of offsets as sets, and as conditions that say the same to PyIceberg and to Spark."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from jobs.quality.incremental_scan.offset_ranges import (
    merged_ranges,
    quoted_name,
    quoted_text,
    ranges_condition,
    ranges_sql,
)
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition

PLACES = [TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)]
RANGES = st.lists(
    st.tuples(st.sampled_from(PLACES), st.builds(OffsetRange, st.integers(0, 30), st.integers(0, 30))), max_size=12
)
COLUMNS = ("topic", "partition", "offset")


@given(RANGES)
def test_merged_ranges_are_the_same_offsets_once(ranges: list[tuple[TopicPartition, OffsetRange]]) -> None:
    merged = merged_ranges(ranges)
    for place in PLACES:
        spans = merged.get(place, ())
        wanted = {offset for partition, each in ranges if partition == place for offset in range(*each)}
        listed = [offset for each in spans for offset in range(*each)]
        assert listed == sorted(wanted)
        assert all(one.end < other.start for one, other in pairwise(spans))
        assert all(each.end > each.start for each in spans)
    assert merged_ranges((p, each) for p, spans in merged.items() for each in spans) == merged


def test_conditions() -> None:
    ranges = merged_ranges([(PLACES[0], OffsetRange(3, 5)), (TopicPartition("it's", 2), OffsetRange(0, 1))])
    assert ranges_sql(COLUMNS, ranges) == (
        "(`topic` = 'a' AND `partition` = 0 AND `offset` >= 3 AND `offset` < 5) OR "
        "(`topic` = 'it\\'s' AND `partition` = 2 AND `offset` >= 0 AND `offset` < 1)"
    )
    assert ranges_sql(COLUMNS, {}) == "false"
    assert str(ranges_condition(COLUMNS, {})) == "AlwaysFalse()"
    assert str(ranges_condition(COLUMNS, ranges)).count("GreaterThanOrEqual") == 2
    assert quoted_name("a`b") == "`a``b`" and quoted_text("a\\b") == "'a\\\\b'"
