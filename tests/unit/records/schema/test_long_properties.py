"""Properties in parts: any text and limit, and stamps of many partitions in a catalog that holds 4,000 characters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table.update import SetPropertiesUpdate

from jobs.maintenance.run.snapshot_expiry import refuse_unless_stamps_are_kept
from jobs.maintenance.run.snapshot_holds import streams_of
from jobs.records.schema.decoded_columns import PART_PREFIX, properties_in_parts, whole_property
from jobs.tables.commit.history.stamp_history import greatest_epoch, history
from jobs.tables.commit.protocol.proposals import ProposalOutcome
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.schema.operations import HIVE_LIMIT, property_limit
from jobs.tables.commit.stamp.offsets import OffsetRange, TopicPartition
from jobs.tables.commit.stamp.retired_topics import Retired
from jobs.tables.commit.stamp.stamp_fields import Counts
from jobs.tables.commit.stamp.stamps import Stamp, property_key
from jobs.tables.ledger.ledger_checkpoints import (
    FILLED_PREFIX,
    fill_checkpoints_of,
    fill_checkpoints_text,
)
from jobs.tables.ledger.stamp_conversion import FillCheckpoint
from tests.unit.tables.commit.conftest import (
    NAME,
    SCHEMA,
    data_file,
    rows_of,
)

TOPIC = "payments.settlements.v1"


class Hive(SqlCatalog):
    """Refuses as Hive's metastore does what its column for parameters cannot hold."""

    def commit_table(self, table: Any, requirements: Any, updates: Any) -> Any:
        for update in updates:
            if isinstance(update, SetPropertiesUpdate):
                for key, value in update.updates.items():
                    assert len(value.encode()) <= 4_000 and len(key) <= 256, f"value too long for {key}"
        return super().commit_table(table, requirements, updates)


Hive.__module__ = "pyiceberg.catalog.hive"


@pytest.fixture
def hive(tmp_path: Path) -> Iterator[Hive]:
    made = Hive("test", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/warehouse")
    made.create_namespace("orders")
    made.create_table(NAME, SCHEMA, properties={"format-version": "2"})
    yield made
    made.close()


@given(st.text(max_size=300), st.integers(20, 200), st.dictionaries(st.text(min_size=1, max_size=9), st.text()))
def test_any_text_comes_back_and_no_part_is_too_long(text: str, limit: int, others: dict[str, str]) -> None:
    cut = properties_in_parts({**others, "name": text}, limit)
    assert all(len(value.encode()) <= limit for value in cut.values())
    # Parts of a longer text that was there before are still there, and do not count.
    before = {f"{PART_PREFIX}{number}.name": "left behind" for number in range(2, 400)}
    if not text.startswith("~"):
        assert whole_property({**before, **cut}, "name") == text
    assert properties_in_parts({"name": text}, None) == {"name": text}


def test_what_fits_is_set_as_it_always_was(hive: Hive) -> None:
    other = SqlCatalog("other", uri="sqlite:///:memory:")
    assert (property_limit(hive), property_limit(other)) == (HIVE_LIMIT, None)
    other.close()
    assert properties_in_parts({"a": "x" * 4_000}, HIVE_LIMIT) == {"a": "x" * 4_000}
    assert set(properties_in_parts({"a": "x" * 4_001}, HIVE_LIMIT)) == {"a", f"{PART_PREFIX}2.a"}
    assert whole_property({"a": "{}"}, "a") == "{}" and whole_property({}, "a") is None


def test_a_part_that_somebody_removed_is_named() -> None:
    cut = properties_in_parts({"a": "x" * 9_000}, HIVE_LIMIT)
    del cut[f"{PART_PREFIX}3.a"]
    with pytest.raises(ValueError, match=r"property frazil\.part\.3\.a is missing, a part of a"):
        whole_property(cut, "a")


def positions(count: int, at: int) -> dict[TopicPartition, int]:
    return {TopicPartition(TOPIC, number): at + 1_013 * number for number in range(count)}


def land(target: Target, count: int, start: int, end: int) -> None:
    first, last = positions(count, start), positions(count, end)
    stamp = Stamp("s", "batch", 0, 1, "c", first, last, rows={NAME: 3}, counts=Counts(3, 3))
    batch = {partition: OffsetRange(at, last[partition]) for partition, at in first.items()}
    files = [data_file(target.table)]
    assert target.land(stamp, files, seen=target.seen(), batch=batch, position=first) is ProposalOutcome.LANDED


@pytest.mark.parametrize("count", [10, 200, 600])
def test_a_stream_of_many_partitions_lands_in_hive_and_is_read_by_all(hive: Hive, count: int) -> None:
    target = Target(hive, NAME, "s")
    at = positions(count, 123_456_789)
    target.claim(1, lambda newest: Stamp("s", "claim", -1, 1, "c", at, at))
    land(target, count, 123_456_789, 123_466_789)
    metadata = hive.load_table(NAME).metadata
    assert (len(metadata.properties[property_key("s")]) > 1_000) is (count > 10)
    assert any(key.startswith(PART_PREFIX) for key in metadata.properties) is (count > 100)
    newest = history(metadata, "s").newest
    assert newest is not None and newest.position == positions(count, 123_466_789)
    assert Target(hive, NAME, "s").read() == newest
    assert (streams_of(metadata), greatest_epoch(metadata, "s")) == (["s"], 1)
    refuse_unless_stamps_are_kept(metadata, NAME)
    assert rows_of(hive.load_table(NAME)) == 3


def test_a_stamp_that_becomes_short_again_and_one_of_the_release_before(hive: Hive) -> None:
    target = Target(hive, NAME, "s")
    before = Stamp("s", "claim", -1, 1, "c", positions(300, 10), positions(300, 10), sequence=1)
    # As the release before has set it, in a schema of Hive that holds it.
    table = hive.load_table(NAME)
    SqlCatalog.commit_table(hive, table, (), (SetPropertiesUpdate(updates={property_key("s"): before.to_json()}),))
    assert history(hive.load_table(NAME).metadata, "s").newest == before
    few = positions(2, 10)
    for epoch, at in ((2, positions(300, 10)), (3, few)):
        target.history()
        made = replace(before, kind="accept", epoch=epoch, start=at, position=at)
        target.restamp(made)
        newest = history(hive.load_table(NAME).metadata, "s").newest
        assert newest is not None and (newest.epoch, newest.position) == (epoch, at)


def test_the_ledgers_marks_are_cut_as_well() -> None:
    known = {"uuid": FillCheckpoint(7, 8, positions(400, 10), Counts(1, 1), {"gone": Retired("id", 5, {0: 3, 7: 1})})}
    cut = properties_in_parts({FILLED_PREFIX + "s": fill_checkpoints_text(known)}, HIVE_LIMIT)
    assert len(cut) > 1
    assert fill_checkpoints_of(cut, "s") == known
