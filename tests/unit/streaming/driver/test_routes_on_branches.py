"""Routes whose tables are written on branches: every record once, whoever is killed, and audited on the branches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pyiceberg.table.refs import MAIN_BRANCH

from jobs.base.errors import FrazilError
from jobs.base.failpoints import step
from jobs.proof.lookup.stream_tables import load_stream_tables
from jobs.quality.publishing.publishing import publish
from jobs.streaming.driver.batch import batch_commit
from jobs.streaming.operator.accept import Answer, record_answer
from jobs.tables.commit.history.branch import on_branch
from jobs.tables.commit.history.stamp_history import history
from jobs.tables.commit.stamp.errors import RolledBackError
from jobs.tables.commit.stamp.stamps import property_key
from orchestration.cli.main import main
from tests.helpers.evolving_stream import SINK
from tests.helpers.routed_stream import ROUTE, RoutedStream
from tests.helpers.stories import Killed, audited

KINDS = ["INS", "UPD", "DEL", "OWN"]
RECORDS: list[dict[str, Any]] = [{"id": f"a{at}", "type": KINDS[at % 4], "n": at} for at in range(12)]
BRANCH: dict[str, Any] = {"table": {"name": SINK, "branch": "ingest"}}
NAMED = {"by": "type", "to": "orders.of_{value}"}


def side(branch: str = "side", table: int = 0) -> dict[str, Any]:
    """The route with a branch of one of its tables."""
    tables = [{**each, "branch": branch} if at == table else each for at, each in enumerate(ROUTE["tables"])]
    return {**ROUTE, "tables": tables}


def on_main(one: RoutedStream, table: str) -> int:
    """How many rows a table's main has."""
    return one.catalog.load_table(table).scan().to_arrow().num_rows


@pytest.mark.parametrize(
    ("route", "more", "branches"),
    [
        (ROUTE, BRANCH, ["ingest", "ingest", "ingest"]),
        (side(), {}, ["main", "side", "main"]),
        (side("main"), BRANCH, ["ingest", "main", "ingest"]),
        (NAMED, BRANCH, ["ingest"] * 5),
    ],
)
def test_rows_stand_on_the_branches_once_and_nowhere_else(
    tmp_path: Path, route: dict[str, Any], more: dict[str, Any], branches: list[str]
) -> None:
    one = RoutedStream(tmp_path / "home", route, **more)
    one.land(*RECORDS[:6])
    one.land(*RECORDS[6:], b"{", batch=1)
    expected = one.placed()
    if route is not NAMED:
        one.log[-1] = None
        assert {name: rows for name, rows in expected.items() if not name.endswith("_dead")} == one.expected()
    spec = one.stream.spec
    rows = [each for each in spec.targets if each.role == "rows"]
    assert [each.branch for each in rows] == branches
    for each in rows:
        table = one.catalog.load_table(each.name)
        assert each.branch in table.metadata.refs
        assert on_main(one, each.name) == (len(expected.get(each.name, ())) if each.branch == MAIN_BRANCH else 0)
        newest = history(on_branch(table, each.branch).metadata, "payments").newest
        assert newest is not None and (newest.branch or MAIN_BRANCH) == each.branch
    # Whoever opens the stream next finds them all, and nothing to do.
    two = RoutedStream(one.home, route, epoch=2, **more)
    two.log = one.log
    assert two.placed() == expected and two.stream.positions[SINK] == {two.at: 13}
    two.spec = two.stream.spec
    audited(two)
    tables = load_stream_tables(two.spec, two.settings, two.catalog)
    assert tables.sink.branch == branches[0]


@pytest.mark.parametrize("route", [ROUTE, NAMED, side()], ids=["file", "values", "one"])
@pytest.mark.parametrize("record", [True, False], ids=["record", "lost"])
def test_a_driver_that_is_killed_between_two_branches_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, route: dict[str, Any], record: bool
) -> None:
    one = RoutedStream(tmp_path / "home", route, **BRANCH)
    one.land(*RECORDS[:5])
    died = _killed_at("after_table_commit", monkeypatch)
    with pytest.raises(Killed):
        one.land(*RECORDS[5:], {"id": "z", "type": "new", "n": 1}, batch=1)
    assert died
    monkeypatch.undo()
    folder = one.stream.folder
    assert folder.pending_records()
    if not record:
        for each in folder.pending_records():
            folder.store.delete(each)
    two = RoutedStream(one.home, route, epoch=2, **BRANCH)
    two.log = one.log
    two.land(batch=1)
    wanted = {name: rows for name, rows in two.placed().items() if not name.endswith("_dead")}
    every = [offset for rows in wanted.values() for offset in rows]
    assert set(every) == set(range(13 if route is NAMED else 12))
    assert all(len(rows) == len(set(rows)) for rows in wanted.values())
    two.spec = two.stream.spec
    audited(two)


def _killed_at(name: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    died: list[str] = []

    def dying(at: str) -> None:
        if at == name:
            died.append(at)
            raise Killed
        step(at)

    monkeypatch.setattr(batch_commit, "step", dying)
    return died


def test_another_branch_of_one_table_is_taken_if_it_has_what_was_landed_and_refused_if_not(tmp_path: Path) -> None:
    one = RoutedStream(tmp_path / "home", side("a"))
    one.land(*RECORDS)
    with pytest.raises(RolledBackError, match=r"branch b of table orders\.changes does not have"):
        RoutedStream(one.home, side("b"), epoch=2)
    table = one.catalog.load_table("orders.changes")
    table.manage_snapshots().create_branch(table.metadata.refs["a"].snapshot_id, "b").commit()
    two = RoutedStream(one.home, side("b"), epoch=3)
    two.log = one.log
    assert two.placed() == one.placed()
    two.land({"id": "b", "type": "INS", "n": 7}, batch=1)
    assert two.offsets("orders.changes")[-1] == 12
    assert one.offsets("orders.changes") == [at for at in two.offsets("orders.changes") if at < 12], "as it was left"
    stamp = two.catalog.load_table("orders.changes").properties[property_key("payments")]
    assert '"branch":"b"' in stamp
    audited(two)


def test_a_branch_that_was_moved_back_under_one_table_stops_the_stream(tmp_path: Path) -> None:
    one = RoutedStream(tmp_path / "home", side())
    one.land(*RECORDS[:4])
    first = one.catalog.load_table("orders.changes").metadata.refs["side"].snapshot_id
    one.land(*RECORDS[4:], batch=1)
    table = one.catalog.load_table("orders.changes")
    table.manage_snapshots().remove_branch("side").commit()
    table.refresh().manage_snapshots().create_branch(first, "side").commit()
    with pytest.raises(RolledBackError, match=r"branch side of table orders\.changes"):
        RoutedStream(one.home, side(), epoch=2)
    unused: Any = lambda: None  # noqa: E731
    record_answer(one.spec, one.settings, unused, Answer(rollback="reland"), "ada: a slip")
    two = RoutedStream(one.home, side(), epoch=9)
    two.log = one.log
    two.land(batch=0)
    assert two.placed() == two.expected()
    audited(two)


def test_branches_of_several_tables_are_not_published_together(tmp_path: Path) -> None:
    one = RoutedStream(tmp_path / "home", ROUTE, **BRANCH)
    one.land(*RECORDS)
    with pytest.raises(FrazilError, match="has a route") as refused:
        publish(one.spec, one.settings, one.catalog, "somebody")
    assert "fast_forward" in str(refused.value)


def test_a_record_is_found_on_the_branch_of_each_of_its_tables(tmp_path: Path) -> None:
    one = RoutedStream(tmp_path / "home", ROUTE, **BRANCH)
    one.land(*RECORDS)
    command = ("--home", str(one.home), "at", "payments", "--partition", "0")
    told = CliRunner().invoke(main, [*command, "--offset", "1", "--json"])
    assert told.exit_code == 0, told.output
    assert json.loads(told.stdout)
    assert all(f'"{word}"' in told.stdout for word in ("orders.changes", "orders.deletes", "ingest")), told.stdout
    own = CliRunner().invoke(main, [*command, "--offset", "3"])
    assert own.exit_code == 0 and "frazil publish" not in own.output
