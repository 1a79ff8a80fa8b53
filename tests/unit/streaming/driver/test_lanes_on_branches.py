"""Tables with columns of their own on branches: each is made, claimed, evolved and completed there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table.refs import MAIN_BRANCH

from jobs.dead_letters.replay.request import ReplayRequest
from jobs.dead_letters.replay.run import replay
from jobs.proof.audit.audit import audit
from jobs.proof.audit.ledger_fill import fill_ledger
from jobs.tables.commit.history.branch import on_branch
from jobs.tables.commit.history.stamp_history import history
from jobs.tables.commit.protocol.target import Target
from tests.helpers.lane_stream import OWN, LaneStream, Log

TABLE = {"name": OWN, "branch": "ingest"}
ENTRIES: dict[str, Any] = {
    "by": "topic",
    "tables": [{"match": "a", "table": "lake.a", "branch": "side"}, {"match": "b", "table": "lake.b"}],
    "to": "lake.of_{value}",
}
BRANCHES = {OWN: "ingest", "lake.a": "side", "lake.b": "ingest", "lake.of_c": "ingest"}


def opened(
    home: Path, log: Log, monkeypatch: pytest.MonkeyPatch, epoch: int = 1, route: dict[str, Any] = ENTRIES
) -> LaneStream:
    return LaneStream(home, route, log, monkeypatch, epoch, table=TABLE)


def test_rows_stand_on_the_branches_once_and_tables_evolve_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: Log = {}
    one = opened(tmp_path / "home", log, monkeypatch)
    for topic in "abc":
        one.produce(topic, {"id": 1}, b"no JSON")
    one.land()
    for topic in "abc":
        one.produce(topic, {"id": 2, "new": "n"}, {"id": "no number"})
    one.land(1)
    after = opened(tmp_path / "home", log, monkeypatch, 2)
    after.produce("c", {"id": 3, "more": True})
    # A table of a topic whose records came later, and of a commit that did not come about.
    after.produce("d", {"id": 4})
    commit = Target.commit

    def failing(self: Target, *given: Any, **more: Any) -> Any:
        if self.name == "lake.of_d":
            raise SystemExit
        return commit(self, *given, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Target, "commit", failing)
        with pytest.raises(SystemExit):
            after.land(0)
    for each in after.stream.folder.root.rglob("pending*"):
        each.unlink()
    last = opened(tmp_path / "home", log, monkeypatch, 3)
    last.land(0)
    placed = last.placed()
    assert placed["lake.a"] == [("a", 0, 0), ("a", 0, 2)] and placed["lake.b"] == [("b", 0, 0), ("b", 0, 2)]
    assert placed["lake.of_c"] == [("c", 0, 0), ("c", 0, 2), ("c", 0, 4)] and placed["lake.of_d"] == [("d", 0, 0)]
    for name, branch in {**BRANCHES, "lake.of_d": "ingest"}.items():
        table = last.catalog.load_table(name)
        assert last.stream.spec.branch_of(name) == branch
        assert branch in table.metadata.refs and table.scan().to_arrow().num_rows == 0, name
        newest = history(on_branch(table, branch).metadata, "shop").newest
        assert newest is not None and (newest.branch or MAIN_BRANCH) == branch
    last.spec = last.stream.spec
    # Letters come home on the branch.
    with last.catalog.load_table("lake.a").update_schema() as update:
        update.rename_column("id", "number")
    assert replay(last.spec, last.settings, last.catalog, ReplayRequest()).failed_again > 0
    with last.catalog.load_table("lake.a").update_schema() as update:
        update.rename_column("number", "id")
    fill_ledger(last.catalog, last.settings, [last.spec])
    found = audit(last.stream.spec, last.settings, last.catalog, full=True)
    assert not found.problems and not found.pending, (found.problems, found.pending)


def test_letters_come_home_on_the_branch_of_their_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log: Log = {}
    route = {"by": "topic", "tables": [{"match": "a", "table": "lake.a", "branch": "side"}]}
    one = opened(tmp_path / "home", log, monkeypatch, route=route)
    one.produce("a", {"id": 1})
    one.produce("late", {"id": "x"})
    one.land()
    more = {"by": "topic", "tables": [*route["tables"], {"match": "late", "table": "lake.late", "branch": "side"}]}
    two = opened(tmp_path / "home", log, monkeypatch, 2, more)
    two.produce("late", {"id": "y"})
    two.land(0)
    assert replay(two.stream.spec, two.settings, two.catalog, ReplayRequest()).replayed == 1
    assert two.placed()["lake.late"] == [("late", 0, 0), ("late", 0, 1)]
    assert two.catalog.load_table("lake.late").scan().to_arrow().num_rows == 0
