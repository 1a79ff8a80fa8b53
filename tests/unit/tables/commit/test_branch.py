"""A stream that writes another branch than main: its stamps, its rows and its claims stand there, on a real catalog."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table.update import RemoveSnapshotRefUpdate

from jobs.base.errors import FrazilError
from jobs.records.schema.compatibility import still_fits
from jobs.tables.commit.history.branch import (
    branch_of,
    branches,
    described,
    on_branch,
)
from jobs.tables.commit.history.lineage import LINE_PROPERTY, line_of
from jobs.tables.commit.history.stamp_history import (
    as_written,
    history,
    history_of,
    written_branch,
)
from jobs.tables.commit.protocol.compare_and_swap import Backoff
from jobs.tables.commit.protocol.proposals import ProposalOutcome
from jobs.tables.commit.protocol.pyiceberg_commit import commit_once
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.schema.operations import Append, ChangeSchema
from jobs.tables.commit.stamp.errors import CommitRefusedError, FencedError, RolledBackError
from jobs.tables.commit.stamp.stamps import Stamp, property_key
from tests.unit.tables.commit.branch_targets import (
    Connect,
    branch_target,
    point,
    rows_on,
)
from tests.unit.tables.commit.conftest import (
    NAME,
    data_file,
    files_of,
    rows_of,
)
from tests.unit.tables.commit.test_target import (
    P0,
    first,
    land,
    prepare,
)


@pytest.fixture
def connect(catalog: SqlCatalog, new_catalog: Callable[[], SqlCatalog]) -> Connect:
    return branch_target(new_catalog)


def drop(catalog: SqlCatalog, branch: str) -> None:
    table = catalog.load_table(NAME)
    catalog.commit_table(table, (), (RemoveSnapshotRefUpdate.model_validate({"ref-name": branch}),))


def append_to_main(catalog: SqlCatalog, rows: int = 2) -> int:
    table = catalog.load_table(NAME)
    return commit_once(table, Append([data_file(table, rows)]), summary={}, properties={})


def test_main_is_the_table_itself(catalog: SqlCatalog) -> None:
    table = catalog.load_table(NAME)
    assert on_branch(table, "main") is table
    assert (branch_of(table), branch_of(on_branch(table, "ingest"))) == ("main", "ingest")
    assert described("a.b", "main") == "table a.b"
    assert described("a.b", "ingest") == "branch ingest of table a.b"


@pytest.mark.parametrize("rows_before", [0, 2])
def test_rows_land_on_the_branch_and_main_stays(catalog: SqlCatalog, connect: Connect, rows_before: int) -> None:
    if rows_before:
        append_to_main(catalog, rows_before)
    target = connect()
    target.claim(1, first(1))
    main = catalog.load_table(NAME).metadata.refs["main"].snapshot_id
    assert land(target, 1, 0, 3) is ProposalOutcome.LANDED
    assert land(target, 1, 3, 6) is ProposalOutcome.LANDED
    table = catalog.load_table(NAME)
    assert table.metadata.refs["main"].snapshot_id == main
    assert sorted(branches(table.metadata)) == ["ingest", "main"]
    assert (rows_on(catalog, "main"), rows_on(catalog, "ingest")) == (rows_before, rows_before + 6)
    newest = connect().read()
    assert newest is not None
    assert (newest.position, newest.totals.landed, newest.branch) == ({P0: 6}, 6, "ingest")
    assert Stamp.from_json(table.metadata.properties[property_key("s")]) == newest
    assert connect().snapshot_id == target.snapshot_id == table.metadata.refs["ingest"].snapshot_id


def test_stamps_on_main_have_the_form_that_they_had(catalog: SqlCatalog, connect: Connect) -> None:
    connect("main").claim(1, first(1))
    assert '"branch"' not in catalog.load_table(NAME).metadata.properties[property_key("s")]
    assert history(catalog.load_table(NAME).metadata, "s").newest is not None


def test_whoever_reads_sees_the_branch_that_was_written(catalog: SqlCatalog, connect: Connect) -> None:
    target = connect()
    target.claim(1, first(1))
    land(target, 1, 0, 3)
    metadata = catalog.load_table(NAME).metadata
    assert written_branch(metadata, "s") == "ingest"
    assert written_branch(metadata, "other") is None
    past = history(as_written(metadata, "s"), "s")
    assert past.newest is not None
    assert (past.newest.position, past.rolled_back) == ({P0: 3}, False)


def test_a_refresh_sees_the_branch_again(catalog: SqlCatalog, connect: Connect) -> None:
    target = connect()
    target.claim(1, first(1))
    table = on_branch(catalog.load_table(NAME), "ingest")
    land(target, 1, 0, 3)
    table.refresh()
    assert rows_of(table) == 3
    assert rows_of(catalog.load_table(NAME)) == 0


def test_main_may_move_meanwhile(catalog: SqlCatalog, connect: Connect) -> None:
    target = connect()
    target.claim(1, first(1))
    commit = prepare(target, 1, 0, 3)
    append_to_main(catalog)
    assert commit() is ProposalOutcome.LANDED
    # Its sequence number was taken, and nothing else was in the way.
    assert target.refusals == 1
    assert (rows_on(catalog, "main"), rows_on(catalog, "ingest")) == (2, 3)
    assert len(files_of(catalog.load_table(NAME), "*-m*.avro")) == 2, "what was refused is cleaned away"


def test_another_commit_on_the_branch_moves_the_head(catalog: SqlCatalog, connect: Connect) -> None:
    target = connect()
    target.claim(1, first(1))
    commit = prepare(target, 1, 0, 3)
    table = on_branch(catalog.load_table(NAME), "ingest")
    commit_once(table, Append([data_file(table, 2)]), summary={}, properties={})
    assert commit() is ProposalOutcome.LANDED
    assert target.refusals == 1
    assert rows_on(catalog, "ingest") == 5


def test_an_older_driver_is_fenced_on_the_branch(connect: Connect) -> None:
    target = connect()
    target.claim(1, first(1))
    commit = prepare(target, 1, 0, 3)
    connect().claim(2, first(2))
    with pytest.raises(FencedError, match=r"another driver took over \(epoch 2"):
        commit()


def test_the_limits_of_a_branch_stay(catalog: SqlCatalog, connect: Connect) -> None:
    target = connect()
    target.claim(1, first(1))
    table = catalog.load_table(NAME)
    with table.manage_snapshots() as change:
        change.create_branch(
            table.metadata.refs["ingest"].snapshot_id, "ingest", max_snapshot_age_ms=10**12, min_snapshots_to_keep=7
        )
    target.read()
    land(target, 1, 0, 3)
    ref = catalog.load_table(NAME).metadata.refs["ingest"]
    assert (ref.max_snapshot_age_ms, ref.min_snapshots_to_keep) == (10**12, 7)


def test_a_tag_of_that_name_is_refused(catalog: SqlCatalog, connect: Connect) -> None:
    snapshot = append_to_main(catalog)
    with catalog.load_table(NAME).manage_snapshots() as change:
        change.create_tag(snapshot, "ingest")
    with pytest.raises(FrazilError, match="is a tag") as refused:
        connect()
    assert "name another branch" in (refused.value.fix or "")


def test_each_branch_has_its_line(catalog: SqlCatalog, connect: Connect) -> None:
    """Streams on two branches of one table do not break each other's."""
    one, two = connect(), Target(catalog, NAME, "other")
    one.claim(1, first(1))
    other = Stamp("other", "claim", -1, 1, "c", start={P0: 0}, position={P0: 0})
    two.claim(1, lambda newest: other)
    one.read()
    land(one, 1, 0, 3)
    metadata = catalog.load_table(NAME).metadata
    on_main, on_ingest = line_of(metadata.properties), line_of(one.table.metadata.properties)
    assert on_main is not None and on_ingest is not None
    assert metadata.properties[f"{LINE_PROPERTY}.ingest"] == on_ingest.text()
    assert on_ingest.snapshot_id == metadata.refs["ingest"].snapshot_id
    assert on_main.snapshot_id == metadata.refs["main"].snapshot_id
    assert on_ingest.until > on_ingest.since == 1


def test_expired_stamps_are_shown_by_the_branch_s_line(catalog: SqlCatalog, connect: Connect) -> None:
    target = connect()
    target.claim(1, first(1))
    land(target, 1, 0, 3)
    table = on_branch(catalog.load_table(NAME), "ingest")
    commit_once(table, Append([data_file(table, 2)]), summary={}, properties={})
    head = catalog.load_table(NAME).metadata.refs["ingest"].snapshot_id
    doomed = [
        each.snapshot_id
        for each in catalog.load_table(NAME).metadata.snapshots
        if each.snapshot_id not in (head, catalog.load_table(NAME).metadata.refs["main"].snapshot_id)
    ]
    catalog.load_table(NAME).maintenance.expire_snapshots().by_ids(doomed).commit()
    past = history_of(connect().table, "s")
    assert past.newest is not None
    assert (past.newest.position, past.rolled_back) == ({P0: 3}, False)


def test_a_dropped_branch_stops_the_stream(catalog: SqlCatalog, connect: Connect) -> None:
    target = connect()
    target.claim(1, first(1))
    land(target, 1, 0, 3)
    drop(catalog, "ingest")
    with pytest.raises(
        RolledBackError, match=r"branch ingest of table .* does not have what the stream landed"
    ) as told:
        connect().read()
    assert "--rollback reland" in (told.value.fix or "")


def test_a_branch_that_was_moved_back_stops_the_stream(catalog: SqlCatalog, connect: Connect) -> None:
    target = connect()
    target.claim(1, first(1))
    land(target, 1, 0, 3)
    before = target.snapshot_id
    land(target, 1, 3, 6)
    assert before is not None
    point(catalog, "ingest", before)
    past = history_of(connect().table, "s")
    assert past.rolled_back
    assert {p: tuple(r) for p, r in past.removed.items()} == {P0: (3, 6)}


def test_a_branch_whose_rows_main_has_may_go(catalog: SqlCatalog, connect: Connect) -> None:
    """Fast-forwarded and dropped: the next start makes the branch again, from main."""
    target = connect()
    target.claim(1, first(1))
    land(target, 1, 0, 3)
    assert target.snapshot_id is not None
    point(catalog, "main", target.snapshot_id)
    drop(catalog, "ingest")
    again = connect()
    again.claim(2, first(2))
    assert land(again, 2, 3, 6) is ProposalOutcome.LANDED
    assert (rows_on(catalog, "main"), rows_on(catalog, "ingest")) == (3, 6)


def test_a_schema_is_changed_on_the_branch_s_head(catalog: SqlCatalog, connect: Connect) -> None:
    """A driver that was taken over finds its successor's claim on the branch, and alters nothing."""
    target = connect()
    target.claim(1, first(1))
    stale = on_branch(catalog.load_table(NAME), "ingest")
    fresh = on_branch(catalog.load_table(NAME), "ingest")
    change = ChangeSchema(stale.schema(), {"frazil.note": "one"}, "one")
    connect().claim(2, first(2))
    with pytest.raises(Exception, match="ingest has changed"):
        commit_once(stale, change, summary={}, properties={})
    fresh.refresh()
    commit_once(fresh, change, summary={}, properties={})
    assert still_fits(fresh.schema(), catalog.load_table(NAME).schema())


def test_a_branch_does_not_begin_with_rows(connect: Connect, catalog: SqlCatalog) -> None:
    """They would be in main as well."""
    table = on_branch(catalog.load_table(NAME), "ingest")
    with pytest.raises(ValueError, match="cannot begin"):
        commit_once(table, Append([data_file(table)]), summary={}, properties={})
    assert not catalog.load_table(NAME).metadata.snapshots


def test_two_drivers_that_make_the_branch(connect: Connect, catalog: SqlCatalog) -> None:
    """One of them makes it; the other finds its head moved, and who was there."""
    append_to_main(catalog)
    one, late = connect(), []

    def meets(*args, **kwargs) -> int:
        if not late:
            late.append(one.claim(2, first(2)))
        return commit_once(*args, **kwargs)

    two = connect(commit_once=meets, backoff=lambda: Backoff(sleep=lambda _: None))
    with pytest.raises((FencedError, CommitRefusedError)):
        two.claim(1, first(1))
    assert rows_on(catalog, "ingest") == 2
