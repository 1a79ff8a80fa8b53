"""Changes that expire: what goes of a changelog, what holds it, and what its mirrors are made of from then on."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFile
from pyiceberg.types import LongType

from jobs.clients.state_store.mirror_problem import note_problem
from jobs.mirrors.model.changelog_increment import refuse_incomplete
from jobs.mirrors.model.errors import ExpiredChangesError
from jobs.mirrors.model.mirror_stamp import mirror_id
from jobs.tables.commit.history.stamp_history import history_of
from jobs.tables.commit.protocol.pyiceberg_commit import commit_once
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.schema.operations import ReplaceFiles
from jobs.tables.commit.stamp.expired_changes import FORGOTTEN, expired_changes
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.commit.stamp.stamps import Stamp
from jobs.tables.dead_letter_table.table import DEAD_LETTER_SCHEMA
from tests.unit.mirrors.expiry import LATER, maintained, said
from tests.unit.mirrors.mirror_world import (
    AT,
    CHANGELOG,
    MIRROR,
    Change,
    MirrorWorld,
)
from tests.unit.mirrors.plain_merger import P0, copy_on_write

OLD = TopicPartition("old", 0)


@pytest.fixture
def world(tmp_path: Path) -> MirrorWorld:
    made = MirrorWorld(tmp_path)
    made.write(changes={"envelope": "debezium", "keep": "30d"})
    return made


def test_changes_that_the_mirror_has_go_and_it_goes_on(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"), Change(2, "bob"))
    world.land(Change(1, None), Change(3, "cid"))
    assert f"Mirror {MIRROR} has not merged the changes" in said(maintained(world))
    world.merge()
    world.at = LATER - timedelta(days=1)
    world.land(Change(2, "bert"))

    assert "4 changes from before 2026-11-11 in 2 data files" in said(maintained(world, dry_run=True))
    (gone,) = maintained(world).done
    assert (gone.files_before, gone.files_after, gone.detail["expired_changes"]) == (3, 1, 4)
    assert world.changelog().scan().count() == 1
    known = expired_changes(world.changelog().metadata.properties, CHANGELOG)
    assert known is not None and (known.rows, known.offsets) == (4, {P0: 4})
    # Exactly once goes on: the stream stands where it stood, and its next batch lands behind that.
    past = history_of(world.changelog(), "customers")
    assert past.newest is not None and not past.rolled_back and past.newest.position == {P0: 5}
    world.land(Change(4, "dan"))
    assert "No data file has only changes" in said(maintained(world))
    refuse_incomplete(world.spec, world.mirror, world.changelog())
    world.merge()
    assert world.rows() == world.source() == {2: "bert", 3: "cid", 4: "dan"}


def test_where_changes_have_expired_a_mirror_is_made_of_what_is_left_only_by_an_operators_word(
    world: MirrorWorld,
) -> None:
    world.land(Change(1, "ann"), Change(2, "bob"))
    world.merge()
    world.at = LATER
    world.land(Change(3, "cid"))
    maintained(world)
    with pytest.raises(ExpiredChangesError, match=r"2 of its changes, from before 2026-11-11"):
        world.merge(how="anew")
    world.merge()
    assert world.rows() == world.source()
    world.merge(how="incomplete")
    assert world.rows() == {3: "cid"}
    # A new snapshot of the source brings all rows back.
    world.land(Change(1, "ann"), Change(2, "bob"))
    world.merge()
    assert world.rows() == world.source()
    # Another mirror, of which nothing was made yet.
    world.write(mirrors=[{"table": "shop.others"}])
    with pytest.raises(ExpiredChangesError, match=r"mirror shop\.others cannot be made"):
        world.merge()


def test_a_row_whose_deletion_has_expired_does_not_come_back_from_a_file_with_younger_changes(
    world: MirrorWorld,
) -> None:
    world.land(Change(1, "ann"))
    world.land(Change(1, None))
    world.at = LATER - timedelta(days=1)
    world.land(Change(2, "bob"))
    first, _, younger = files_by_offset(world)
    compact(world, first, younger)
    world.land(Change(5, "eve"))
    world.merge()
    assert maintained(world).done[0].detail["expired_changes"] == 1
    offsets = world.changelog().scan().to_arrow()["_kafka_offset"].to_pylist()
    assert sorted(offsets) == [0, 2, 3]
    world.merge(how="incomplete")
    assert world.rows() == world.source() == {2: "bob", 5: "eve"}


def test_changes_stay_for_letters_and_for_younger_ones(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"))
    world.land(Change(2, "bob"))
    world.merge()
    world.at = LATER - timedelta(days=1)
    world.land(Change(5, "eve"))
    letters = world.catalog().create_table(world.spec.dead_letter_table, DEAD_LETTER_SCHEMA)
    letters.append(pa.Table.from_pylist([letter(1, "new"), letter(0, "dismissed")], letters.schema().as_arrow()))
    # The first goes; the second is behind a letter that may come back.
    result = maintained(world)
    waits = "changes that a mirror lacks, or that are behind a waiting dead letter, at offsets from 1 on"
    assert f"1 older ones stay in files with others, or for {waits} (2026-11-01 00:01)" in said(result)
    assert result.done[0].detail["expired_changes"] == 1
    assert "No data file has only changes" in said(maintained(world))
    letters.overwrite(pa.Table.from_pylist([letter(1, "replayed")], letters.schema().as_arrow()))
    assert maintained(world).done[0].detail["expired_changes"] == 1
    world.merge()
    assert world.rows() == world.source()


def test_changes_stay_for_a_week_behind_what_the_stream_has_not_read(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"))
    world.at = AT + timedelta(days=5)
    # It reads a backlog: all that is a day older than its last record has come.
    world.valid_through_ms = through = int((AT + timedelta(days=8)).timestamp() * 1000)
    world.land(Change(2, "bob"))
    world.merge()
    result = maintained(world)
    assert result.done[0].detail["expired_changes"] == 1
    assert "a week before the time through which the stream is complete (2026-11-02 00:00)" in said(result)
    world.valid_through_ms = through + timedelta(days=5) // timedelta(milliseconds=1)
    world.land(Change(3, "cid"))
    world.merge()
    assert maintained(world).done[0].detail["expired_changes"] == 2


def test_changes_stay_as_long_as_it_is_not_known_through_when_the_stream_is_complete(world: MirrorWorld) -> None:
    # It reads a backlog, of whose end it knows nothing.
    world.valid_through_ms = None
    world.land(Change(1, "ann"), Change(1, None))
    world.merge()
    assert "does not know through when it is complete" in said(maintained(world))
    assert world.changelog().scan().count() == 2


def test_changes_stay_for_a_week_before_what_a_mirror_has_not_merged(world: MirrorWorld) -> None:
    """A merge of it looks for deletions of the week before."""
    world.land(Change(1, "ann"), Change(1, None))
    world.merge()
    world.at = AT + timedelta(days=5)
    world.land(Change(2, "bob"))
    world.at = LATER
    assert "a week before changes that a mirror has not merged (2026-10-30 00:02)" in said(maintained(world))
    world.merge()
    assert maintained(world).done[0].detail["expired_changes"] == 3


def test_changes_stay_while_a_batch_is_not_committed_everywhere(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"))
    world.merge()
    pending = world.settings.state / "streams" / "customers" / "pending-0.json"
    pending.parent.mkdir(parents=True, exist_ok=True)
    pending.write_text(json.dumps({"targets": {CHANGELOG: {"uuid": "u", "files": []}}}))
    # Clocks say nothing of which was first, the batch or the merge.
    for written in (0, LATER.timestamp() + 10 * 365 * 86_400):
        os.utime(pending, (written, written))
        assert "is not committed to all of its tables" in said(maintained(world))
    pending.unlink()
    assert maintained(world).done[0].detail["expired_changes"] == 1


def test_changes_stay_while_somebody_else_has_changed_the_mirror(world: MirrorWorld) -> None:
    rebuild = f"frazil mirror rebuild customers --table {MIRROR}"
    world.land(Change(1, "ann"), Change(2, "bob"))
    world.merge()
    with copy_on_write():
        world.table().delete("id = 1")
    refused = said(maintained(world))
    assert "Somebody else has changed rows of mirror" in refused and rebuild in refused
    # The next merge brings nothing back.
    world.at = LATER - timedelta(days=1)
    world.land(Change(3, "cid"))
    world.merge()
    assert "Somebody else has changed rows of mirror" in said(maintained(world))
    assert world.changelog().scan().count() == 3
    world.merge(how="anew")
    assert world.rows() == world.source()
    assert maintained(world).done[0].detail["expired_changes"] == 2


def test_changes_stay_while_rows_of_a_mirror_lack_values(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"))
    world.merge()
    mirror = Target(world.catalog(), MIRROR, mirror_id("customers", MIRROR))
    newest = mirror.read()
    assert newest is not None
    waiting = {**newest.mirror, "state": {**newest.mirror["state"], "waiting": [[1, "token"]]}}
    mirror.restamp(replace(newest, mirror=waiting))
    refused = said(maintained(world))
    assert f"1 rows of mirror {MIRROR} lack values" in refused
    assert f"frazil mirror rebuild customers --table {MIRROR}" in refused


def test_changes_stay_while_a_mirror_stops(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"))
    world.merge()
    note_problem(world.settings, "customers", MIRROR, "The source was restored.", "frazil mirror accept customers")
    refused = said(maintained(world))
    assert "all changes stay: The source was restored. Next: frazil mirror accept customers" in refused
    # A later merge was made, by a process that removed no note.
    world.land(Change(2, "bob"))
    world.merge()
    assert maintained(world).done[0].detail["expired_changes"] == 2


def test_a_row_of_a_topic_that_was_retired_does_not_come_back(world: MirrorWorld) -> None:
    # The table's rows came in another topic, which was read to its end; the deletion comes in its successor.
    world.topics = {"customers": "id-2"}
    retired_topic(world, "ann", "bob")
    world.land(Change(2, "cid"), Change(3, "dan"), Change(0, None))
    world.merge()
    (gone,) = maintained(world).done
    assert gone.detail["expired_changes"] == 3
    known = expired_changes(world.changelog().metadata.properties, CHANGELOG)
    assert known is not None and known.offsets == {P0: 3, OLD: 2}
    # No other topic of that name is taken for it.
    assert known.topics == {"customers": "id-2", "old": FORGOTTEN} and known.replaced({"old": "id-1"}) == ["old"]


def test_changes_stay_where_nothing_would_tell_another_topic_of_a_retired_ones_name(world: MirrorWorld) -> None:
    retired_topic(world, "ann")
    world.land(Change(1, "bob"))
    world.merge()
    assert "does not read topic old any more" in said(maintained(world))


def test_changes_stay_where_another_stream_lands_in_the_changelog(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"))
    other = Target(world.catalog(), CHANGELOG, "others")
    other.claim(1, lambda newest: Stamp("others", "claim", -1, 1, "c", start={OLD: 0}, position={OLD: 0}))
    world.merge()
    assert "Streams customers and others land in shop.customers_changes" in said(maintained(world))


def test_a_letter_of_a_year_that_python_does_not_know_does_not_stop_what_expires(world: MirrorWorld) -> None:
    world.land(Change(1, "ann"))
    world.merge()
    none = {"write.metadata.metrics.column.timestamp": "none"}
    letters = world.catalog().create_table(world.spec.dead_letter_table, DEAD_LETTER_SCHEMA, properties=none)
    kinds = letters.schema().as_arrow()
    rows = pa.Table.from_pylist([letter(5, "dismissed"), letter(6, "new")], kinds)
    far = pa.array([2**60, 2**60], pa.int64()).cast(kinds.field("timestamp").type)
    letters.append(rows.set_column(rows.schema.get_field_index("timestamp"), kinds.field("timestamp"), far))
    assert maintained(world).done[0].detail["expired_changes"] == 1


def files_by_offset(world: MirrorWorld) -> list[DataFile]:
    """The changelog's data files in the order of their first offsets."""
    table = world.changelog()
    field = table.schema().find_field("_kafka_offset").field_id
    files = [task.file for task in table.scan().plan_files()]
    return sorted(files, key=lambda file: from_bytes(LongType(), file.lower_bounds[field]))


def compact(world: MirrorWorld, *files: DataFile) -> None:
    """Somebody writes some of the changelog's files as one."""
    table = world.changelog()
    tables = [pq.read_table(file.file_path.removeprefix("file://")) for file in files]
    rows = pa.concat_tables(tables).cast(table.schema().as_arrow()).to_pylist()
    commit_once(table, ReplaceFiles(files, world.data_files(table, rows)), summary={}, properties={})


def retired_topic(world: MirrorWorld, *names: str) -> None:
    """Changes are there of a topic that the stream does not read any more: a row with each of the names."""
    world.land()
    rows = [
        {
            "id": n,
            "name": name,
            "_change_op": "c",
            "_kafka_topic": OLD.topic,
            "_kafka_partition": OLD.partition,
            "_kafka_offset": n,
            "_kafka_timestamp": AT - timedelta(days=1),
        }
        for n, name in enumerate(names)
    ]
    table = world.changelog()
    with table.transaction() as change, change.update_snapshot().fast_append() as append:
        for file in world.data_files(table, rows):
            append.append_data_file(file)


def letter(offset: int, state: str) -> dict[str, Any]:
    return {
        "stream": "customers", "topic": "customers", "partition": 0, "offset": offset, "stage": "decode",
        "error_class": "not_json", "first_seen": AT, "state": state,
    }  # fmt: skip
