"""Tables that the catalog does not let a stream's user load, on real tables: they are parked, or stop the stream."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import ForbiddenError, ServiceUnavailableError

from jobs.proof.audit.audit import audit
from jobs.proof.audit.ledger_fill import fill_ledger
from jobs.streaming.driver.tables.parked_tables import reopened_where_unable
from jobs.streaming.operator.accept import Answer, record_answer
from jobs.tables.commit.history.stamp_history import history
from jobs.tables.commit.stamp.errors import TableForbiddenError, TableUnableError
from tests.helpers.evolving_stream import SINK
from tests.helpers.parking import (
    CHANGES,
    DEAD,
    DELETES,
    PARK,
    again,
    audited,
    landed,
    records,
    replayed,
    rows_of,
    unpark,
)
from tests.helpers.routed_stream import ROUTE, RoutedStream

Refuse = Callable[..., None]


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Refuse:
    """Makes a catalog refuse to load tables; whoever had loaded one before commits to it no more."""
    load, commit = SqlCatalog.load_table, SqlCatalog.commit_table

    def refuse(*tables: str, problem: type[Exception] = ForbiddenError) -> None:
        def refused(name: Any) -> None:
            if (told := name if isinstance(name, str) else ".".join(name)) in tables:
                raise problem(f"user frazil has no role for {told}")

        def load_table(self: SqlCatalog, identifier: Any) -> Any:
            refused(identifier)
            return load(self, identifier)

        def commit_table(self: SqlCatalog, table: Any, *given: Any) -> Any:
            refused(table.name())
            return commit(self, table, *given)

        monkeypatch.setattr(SqlCatalog, "load_table", load_table)
        monkeypatch.setattr(SqlCatalog, "commit_table", commit_table)

    return refuse


def test_a_table_that_may_not_be_loaded_is_parked_and_comes_home(tmp_path: Path, refuse: Refuse) -> None:
    one = RoutedStream(tmp_path / "home", PARK)
    one.land(*records(0))
    refuse(DELETES)
    after = again(one, 20)
    newest = history(after.table.metadata, "payments").newest
    assert newest is not None and set(newest.parked) == {DELETES}
    assert newest.note is None or "does not let the table be read: ForbiddenError: user frazil" in newest.note
    after.land(*records(5), batch=0)
    assert after.letters_for(DELETES) == [1, 2, 6, 7], "nobody may ask whether it has the batch before"
    fill_ledger(after.catalog, after.settings, [after.spec])
    found = audit(after.spec, after.settings, after.catalog, full=True)
    assert [(each.table, each.kind) for each in found.problems] == [(DELETES, "not_counted")]
    assert "may not be read" in found.problems[0].sentence
    assert replayed(after).replayed == 0
    third = again(after, 30)
    third.land(*records(10), batch=0)
    with pytest.raises(TableForbiddenError, match=f"does not let table {DELETES} be read: ForbiddenError") as told:
        unpark(third, DELETES)
    assert told.value.fix is not None and f"read and write {DELETES}" in told.value.fix
    refuse()
    unpark(third, DELETES)
    fourth = again(third, 60)
    fourth.land(*records(15), batch=0)
    assert replayed(fourth).replayed == 4
    assert rows_of(fourth) == {name: at for name, at in landed(*range(20)).items() if name != DEAD}
    audited(fourth)


def test_a_table_that_may_not_be_loaded_any_more_is_parked_by_the_next_opening(tmp_path: Path, refuse: Refuse) -> None:
    one = RoutedStream(tmp_path / "home", PARK)
    one.land(*records(0))
    refuse(DELETES)
    with pytest.raises(TableUnableError, match=f"{DELETES} takes no commits"), reopened_where_unable(one.stream):
        one.land(*records(5), batch=1)
    assert one.offsets(CHANGES) == [0, 1, 5, 6] and one.offsets(SINK) == [3, 8]
    after = again(one, 20)
    after.land(batch=0)
    assert after.letters_for(DELETES) == [6, 7]
    refuse()
    audited(after)


def test_a_catalog_that_is_away_parks_nothing(tmp_path: Path, refuse: Refuse) -> None:
    one = RoutedStream(tmp_path / "home", PARK)
    one.land(*records(0))
    refuse(DELETES, problem=ServiceUnavailableError)
    with pytest.raises(ServiceUnavailableError):
        again(one, 20)
    refuse()
    newest = history(one.table.metadata, "payments").newest
    assert newest is not None and not newest.parked


@pytest.mark.parametrize("table", [DELETES, SINK, DEAD])
def test_a_table_that_is_not_to_be_parked_stops_the_stream_and_is_named(
    tmp_path: Path, refuse: Refuse, table: str
) -> None:
    route = ROUTE if table == DELETES else PARK
    one = RoutedStream(tmp_path / "home", route)
    one.land(*records(0))
    refuse(table)
    with pytest.raises((TableForbiddenError, ForbiddenError), match=table):
        again(one, 20, route)


def test_an_answer_about_another_table_is_given_while_one_may_not_be_loaded(tmp_path: Path, refuse: Refuse) -> None:
    one = RoutedStream(tmp_path / "home", PARK)
    one.land(*records(0))
    refuse(DELETES)
    after = again(one, 20)
    after.land(batch=0)
    snapshot = after.catalog.load_table(SINK).current_snapshot()
    assert snapshot is not None
    after.land(*records(5), batch=1)
    table = after.catalog.load_table(SINK)
    table.manage_snapshots().set_current_snapshot(snapshot_id=snapshot.snapshot_id).commit()
    record_answer(after.spec, after.settings, lambda: pytest.fail("none"), Answer(rollback="reland"), "ada: why")
    third = again(after, 40)
    third.land(batch=0)
    assert third.offsets(SINK) == [3, 8] and third.letters_for(DELETES) == [1, 2, 6, 7]
