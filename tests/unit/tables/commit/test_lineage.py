"""Whether the head of a real table still stands on a stream's last commit, after what others did to its snapshots."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.serializers import ToOutputFile
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import AssertTableUUID, RemoveSnapshotRefUpdate

from jobs.tables.commit.history.lineage import LINE_PROPERTY, line_at_head, line_of
from jobs.tables.commit.history.stamp_history import History, history, history_of
from jobs.tables.commit.protocol.proposals import ProposalOutcome
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.recovery import accept
from jobs.tables.commit.recovery.rollback import rollback
from jobs.tables.commit.stamp.errors import RolledBackError
from jobs.tables.commit.stamp.offsets import OffsetRange
from jobs.tables.commit.stamp.stamp_fields import Decision
from jobs.tables.commit.stamp.stamps import Stamp, property_key
from jobs.tables.commit.stamp.target_positions import target_positions
from tests.unit.tables.commit.conftest import NAME, data_file
from tests.unit.tables.commit.test_stamp_history import (
    expire,
    foreign,
    head,
    position,
    roll_back,
)
from tests.unit.tables.commit.test_target import (
    P0,
    batch_stamp,
    first,
    land,
)

Expire = Callable[..., Table]


@pytest.fixture
def target(catalog: SqlCatalog) -> Target:
    made = Target(catalog, NAME, "s")
    made.claim(1, first(1))
    return made


def put(catalog: SqlCatalog, metadata: TableMetadata) -> Table:
    """Make these metadata the table's, as another engine would."""
    table = catalog.load_table(NAME)
    location = table.metadata_location.replace(".metadata.json", "-other.metadata.json")
    ToOutputFile.table_metadata(metadata, PyArrowFileIO().new_output(location))
    database = str(catalog.engine.url.database)
    with sqlite3.connect(database) as connection:
        connection.execute("UPDATE iceberg_tables SET metadata_location = ?", (location,))
    connection.close()
    return catalog.load_table(NAME)


def expire_as_java(catalog: SqlCatalog, *ids: int) -> Table:
    """As Spark's `expire_snapshots`: parents stay as they were, and the log loses all before an entry that goes."""
    table = catalog.load_table(NAME)
    metadata, log = table.metadata, []
    for entry in metadata.snapshot_log:
        log = [] if entry.snapshot_id in ids else [*log, entry]
    left = [each for each in metadata.snapshots if each.snapshot_id not in ids]
    versions = [
        *metadata.metadata_log,
        metadata.metadata_log[-1].model_copy(update={"metadata_file": table.metadata_location}),
    ]
    return put(catalog, metadata.model_copy(update={"snapshots": left, "snapshot_log": log, "metadata_log": versions}))


def all_but_head(catalog: SqlCatalog, expire_: Expire) -> Table:
    metadata = catalog.load_table(NAME).metadata
    kept = {ref.snapshot_id for ref in metadata.refs.values()}
    return expire_(catalog, *(each.snapshot_id for each in metadata.snapshots if each.snapshot_id not in kept))


def forget_versions(catalog: SqlCatalog) -> Table:
    """Older metadata files are deleted, as with `write.metadata.previous-versions-max` and many commits since."""
    table = catalog.load_table(NAME)
    for entry in table.metadata.metadata_log:
        Path(entry.metadata_file.removeprefix("file://")).unlink(missing_ok=True)
    return table


def replace_table(catalog: SqlCatalog) -> Table:
    """As `CREATE OR REPLACE TABLE … AS SELECT`: identity and properties stay, main begins without a parent."""
    table = catalog.load_table(NAME)
    uuid = AssertTableUUID(uuid=table.metadata.table_uuid)
    catalog.commit_table(table, (uuid,), (RemoveSnapshotRefUpdate.model_validate({"ref-name": "main"}),))
    return foreign(catalog)


def told(catalog: SqlCatalog) -> History:
    return history_of(catalog.load_table(NAME), "s")


def without_what_this_release_adds(catalog: SqlCatalog) -> None:
    """The table as the release before leaves it."""
    table = catalog.load_table(NAME)
    document = json.loads(table.properties[property_key("s")])
    del document["moved"]
    with table.transaction() as change:
        change.set_properties({property_key("s"): json.dumps(document)})
        change.remove_properties(LINE_PROPERTY)


expiries = pytest.mark.parametrize("expire_", [expire, expire_as_java], ids=lambda each: each.__name__)


@expiries
@pytest.mark.parametrize("forgotten", [False, True])
def test_a_rollback_that_a_foreign_commit_and_a_foreign_expiry_hide(
    catalog: SqlCatalog, target: Target, expire_: Expire, forgotten: bool
) -> None:
    land(target, 1, 0, 3)
    kept = head(target)
    land(target, 1, 3, 7)
    roll_back(catalog, kept)
    foreign(catalog)
    all_but_head(catalog, expire_)
    if forgotten:
        forget_versions(catalog)
    past = told(catalog)
    assert (past.rolled_back, past.doubt) == (True, forgotten)
    if not forgotten:
        assert past.removed == {P0: OffsetRange(3, 7)}, "the older metadata still say where it was rolled back to"
    with pytest.raises(RolledBackError, match="it is unknown whether" if forgotten else r"t-0 \[3, 7\)") as stopped:
        target.read()
    assert "--rollback keep" in str(stopped.value)
    again = rollback({NAME: past}, NAME, "reland", "c")[NAME]
    assert again.position == {P0: 0 if forgotten else 3}
    assert again.decision is not None
    assert again.decision.again == {P0: OffsetRange(0 if forgotten else 3, 7)}
    answered = rollback({NAME: past}, NAME, "keep", "c")[NAME]
    target.history()
    target.restamp(accept.signed_answer(answered, 2, "me: it is all there"))
    assert not told(catalog).rolled_back, "the answer counts"
    assert target.read() is not None


@expiries
@pytest.mark.parametrize("expired", [False, True])
@pytest.mark.parametrize("forgotten", [False, True])
def test_a_table_that_was_replaced_by_a_select(
    catalog: SqlCatalog, target: Target, expire_: Expire, expired: bool, forgotten: bool
) -> None:
    land(target, 1, 0, 3)
    replace_table(catalog)
    foreign(catalog)
    if expired:
        all_but_head(catalog, expire_)
    if forgotten:
        forget_versions(catalog)
    past = told(catalog)
    assert (past.rolled_back, past.doubt) == (True, forgotten)
    if not forgotten:
        assert past.removed == {P0: OffsetRange(0, 3)}
    with pytest.raises(RolledBackError):
        target.read()


@pytest.mark.parametrize("expired", [False, True])
def test_a_rollback_to_a_delete_over_a_reset_and_what_was_landed_again(
    catalog: SqlCatalog, target: Target, expired: bool
) -> None:
    land(target, 1, 0, 3)
    table = catalog.load_table(NAME)
    table.delete("id >= 0")
    deleted = catalog.load_table(NAME).metadata.current_snapshot_id
    assert deleted is not None
    target.read()
    assert target.newest is not None
    back = replace(
        target.newest.decided(Decision("reset", again={P0: OffsetRange(0, 3)})), start={P0: 0}, position={P0: 0}
    )
    target.restamp(accept.signed_answer(back, 1, "me: land it again"))
    reset = head(target)
    land(target, 1, 0, 3)
    landed = head(target)
    roll_back(catalog, deleted)
    if expired:
        expire(catalog, reset, landed)
    past = told(catalog)
    assert past.newest is not None and past.stamped_ancestor is not None
    assert past.newest.position == past.stamped_ancestor.position, "the positions tell nothing"
    assert (past.rolled_back, past.removed) == (True, {P0: OffsetRange(0, 3)})
    again = rollback({NAME: past}, NAME, "reland", "c")
    assert target_positions(again, NAME)[NAME] == {P0: 0}
    kept = rollback({NAME: past}, NAME, "keep", "c")
    assert target_positions(kept, NAME)[NAME] == {P0: 3}


def nothing(catalog: SqlCatalog) -> None:
    pass


def compaction(catalog: SqlCatalog) -> None:
    table = catalog.load_table(NAME)
    table.overwrite(table.scan().to_arrow())


def several_commits(catalog: SqlCatalog) -> None:
    for _ in range(3):
        foreign(catalog)


def away_and_back(catalog: SqlCatalog) -> None:
    """A rollback that was taken back."""
    table = catalog.load_table(NAME)
    present, former = table.metadata.snapshots[-1].snapshot_id, table.metadata.snapshots[0].snapshot_id
    roll_back(catalog, former)
    roll_back(catalog, present)
    foreign(catalog)


def branches(catalog: SqlCatalog) -> None:
    table = catalog.load_table(NAME)
    snapshots = table.metadata.snapshots
    table.manage_snapshots().create_branch(snapshots[0].snapshot_id, "audit").commit()
    table.append(table.scan().to_arrow(), branch="audit")
    table = catalog.load_table(NAME)
    table.manage_snapshots().create_tag(snapshots[-1].snapshot_id, "month-end").commit()
    foreign(catalog)


@expiries
@pytest.mark.parametrize("others", [compaction, foreign, several_commits, away_and_back, branches])
@pytest.mark.parametrize("claimed", [False, True])
def test_no_false_alarm(
    catalog: SqlCatalog, target: Target, expire_: Expire, others: Callable[[SqlCatalog], object], claimed: bool
) -> None:
    """Whatever others did, and then let everything expire that they may."""
    land(target, 1, 0, 3)
    if claimed:
        target.claim(2, first(2))
    others(catalog)
    all_but_head(catalog, expire_)
    past = told(catalog)
    assert (past.rolled_back, past.doubt, position(past.newest)) == (False, False, 3)
    assert target.read() is not None


def test_a_lost_claim_is_no_rollback_also_when_all_that_tells_has_expired(catalog: SqlCatalog, target: Target) -> None:
    land(target, 1, 0, 3)
    landed = head(target)
    foreign(catalog)
    target.claim(2, first(2))
    roll_back(catalog, landed)
    foreign(catalog)
    all_but_head(catalog, expire)
    past = told(catalog)
    assert (past.rolled_back, position(past.newest)) == (False, 3)
    assert past.newest is not None and past.newest.epoch == 2


def test_one_commit_and_an_expiry_by_spark_need_no_older_version(catalog: SqlCatalog, target: Target) -> None:
    land(target, 1, 0, 3)
    foreign(catalog)
    all_but_head(catalog, expire_as_java)
    forget_versions(catalog)
    assert not told(catalog).rolled_back


def land_other(busy: Target, start: int) -> None:
    stamp = replace(batch_stamp(1, start, start + 1), stream="other")
    batch = {P0: OffsetRange(start, start + 1)}
    files = [data_file(busy.table, 1)]
    assert busy.land(stamp, files, seen=busy.seen(), batch=batch, position={P0: start}) is ProposalOutcome.LANDED


def test_another_stream_that_commits_vouches_for_one_that_rests(catalog: SqlCatalog, target: Target) -> None:
    land(target, 1, 0, 3)
    busy = Target(catalog, NAME, "other")
    busy.claim(1, lambda newest: Stamp("other", "claim", -1, 1, "c", start={P0: 0}, position={P0: 0}))
    for start in range(4):
        foreign(catalog)
        land_other(busy, start)
        all_but_head(catalog, expire)
        forget_versions(catalog)
    assert not told(catalog).rolled_back
    line = line_of(catalog.load_table(NAME).properties)
    assert line is not None and busy.newest is not None
    assert (line.since, line.until) == (1, busy.newest.sequence)


def test_another_stream_does_not_vouch_for_what_was_rolled_back(catalog: SqlCatalog, target: Target) -> None:
    busy = Target(catalog, NAME, "other")
    busy.claim(1, lambda newest: Stamp("other", "claim", -1, 1, "c", start={P0: 0}, position={P0: 0}))
    kept = head(busy)
    target.read()
    land(target, 1, 0, 3)
    roll_back(catalog, kept)
    busy.read()
    for start in range(2):
        land_other(busy, start)
        all_but_head(catalog, expire)
        forget_versions(catalog)
    past = told(catalog)
    assert (past.rolled_back, past.doubt) == (True, True)


def test_the_line_is_moved_up_before_an_expiry_by_frazil(catalog: SqlCatalog, target: Target) -> None:
    land(target, 1, 0, 3)
    for _ in range(3):
        several_commits(catalog)
        table = catalog.load_table(NAME)
        line = line_at_head(table.metadata)
        assert line is not None and line.snapshot_id == table.metadata.current_snapshot_id
        with table.transaction() as change:
            change.set_properties({LINE_PROPERTY: line.text()})
        assert line_at_head(catalog.load_table(NAME).metadata) is None, "and only where it says something new"
        all_but_head(catalog, expire)
        forget_versions(catalog)
    past = told(catalog)
    assert (past.rolled_back, position(past.newest)) == (False, 3)
    roll_back_to_nothing = replace_table(catalog)
    assert line_at_head(roll_back_to_nothing.metadata) is None
    assert told(catalog).rolled_back


def test_what_cannot_be_shown_is_asked_once(catalog: SqlCatalog, target: Target) -> None:
    land(target, 1, 0, 3)
    several_commits(catalog)
    all_but_head(catalog, expire_as_java)
    forget_versions(catalog)
    past = told(catalog)
    assert (past.rolled_back, past.doubt) == (True, True)
    metadata_alone = history(catalog.load_table(NAME).metadata, "s")
    assert (metadata_alone.rolled_back, metadata_alone.doubt) == (False, True), "not asked the older versions"
    kept = rollback({NAME: past}, NAME, "keep", "c")[NAME]
    assert kept.decision == Decision("rollback_keep", since=past.newest.sequence if past.newest else None)
    assert kept.position == {P0: 3}


@pytest.mark.parametrize("stream", ["s~replay", "s~connect"])
def test_replays_and_queues_that_rest_for_months_go_on(catalog: SqlCatalog, stream: str) -> None:
    target = Target(catalog, NAME, stream)
    target.claim(1, lambda newest: Stamp(stream, "claim", -1, 1, "c", start={P0: 0}, position={P0: 0}))
    several_commits(catalog)
    all_but_head(catalog, expire_as_java)
    forget_versions(catalog)
    assert target.read() is not None


@pytest.mark.parametrize("forgotten", [False, True])
def test_stamps_of_the_release_before_are_read_and_go_on(catalog: SqlCatalog, target: Target, forgotten: bool) -> None:
    land(target, 1, 0, 3)
    without_what_this_release_adds(catalog)
    several_commits(catalog)
    all_but_head(catalog, expire_as_java)
    if forgotten:
        forget_versions(catalog)
    past = told(catalog)
    assert (past.rolled_back, position(past.newest)) == (False, 3)
    assert target.read() is not None
    claimed = target.claim(2, first(2))
    assert claimed.position == {P0: 3}
    land(target, 2, 3, 5)
    assert target.newest is not None and target.newest.moved == target.newest.sequence


def upgraded_and_resting(catalog: SqlCatalog, target: Target) -> Target:
    """The stream claims a table that the release before stamped, moves nothing there, and another one goes on."""
    land(target, 1, 0, 3)
    without_what_this_release_adds(catalog)
    foreign(catalog)
    claimed = target.claim(2, first(2))
    line = line_of(catalog.load_table(NAME).properties)
    assert line is not None and claimed.position == {P0: 3}
    assert target.newest is not None and (target.newest.moved or 0) < line.since == target.newest.sequence
    busy = Target(catalog, NAME, "s~replay")
    busy.claim(1, lambda newest: Stamp("s~replay", "claim", -1, 1, "c", start={P0: 0}, position={P0: 0}))
    return busy


@expiries
def test_a_claim_on_the_line_vouches_for_what_the_release_before_stamped(
    catalog: SqlCatalog, target: Target, expire_: Expire
) -> None:
    busy = upgraded_and_resting(catalog, target)
    for epoch in range(2, 4):
        busy.claim(epoch, lambda newest, epoch=epoch: newest.claimed(epoch) if newest else first(epoch)(None))
        all_but_head(catalog, expire_)
        forget_versions(catalog)
    past = told(catalog)
    assert (past.rolled_back, past.doubt, position(past.newest)) == (False, False, 3)
    assert target.read() is not None


@expiries
def test_a_claim_that_was_rolled_back_with_what_it_stood_on_vouches_for_nothing(
    catalog: SqlCatalog, target: Target, expire_: Expire
) -> None:
    before = head(target)
    busy = upgraded_and_resting(catalog, target)
    roll_back(catalog, before)
    for epoch in range(2, 4):
        busy.claim(epoch, lambda newest, epoch=epoch: newest.claimed(epoch) if newest else first(epoch)(None))
        all_but_head(catalog, expire_)
        forget_versions(catalog)
    past = told(catalog)
    assert (past.rolled_back, past.doubt) == (True, True)
    with pytest.raises(RolledBackError):
        target.read()


def test_a_rollback_is_seen_over_stamps_of_the_release_before(catalog: SqlCatalog, target: Target) -> None:
    land(target, 1, 0, 3)
    kept = head(target)
    land(target, 1, 3, 7)
    without_what_this_release_adds(catalog)
    roll_back(catalog, kept)
    foreign(catalog)
    all_but_head(catalog, expire_as_java)
    assert told(catalog).removed == {P0: OffsetRange(3, 7)}


def test_a_foreign_text_in_the_property_is_no_line(catalog: SqlCatalog) -> None:
    for text in ("", "1 2", "a b c", "1 2 -3"):
        assert line_of({LINE_PROPERTY: text}) is None
    assert line_of({}) is None
