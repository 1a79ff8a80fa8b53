"""Tables that have followed their records: their stream goes on where somebody turned them back, or its offsets."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any, Literal

import pytest

from jobs.dead_letters.replay.request import ReplayRequest
from jobs.dead_letters.replay.result import ReplayResult
from jobs.dead_letters.replay.run import replay
from jobs.proof.audit.audit import audit
from jobs.proof.audit.ledger_fill import fill_ledger
from jobs.tables.commit.history.stamp_history import history
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.recovery.rollback import rollback
from jobs.tables.commit.stamp.errors import RolledBackError
from tests.helpers.evolving_stream import SINK, EvolvingStream

COLUMNS = "id string not null, n int, s struct<m int not null>"
BEFORE: tuple[dict[str, Any], ...] = ({"id": "a", "n": 1, "s": {"m": 1}}, {"id": "b"})
CHANGES: tuple[dict[str, Any], ...] = (
    {"id": "c", "n": 2**40, "colour": "red"},
    {"id": "d", "s": {"m": None, "new": {"deep": 1.5}}},
)
AFTER: tuple[dict[str, Any], ...] = ({"id": "e", "n": 2**41, "colour": "blue", "s": {"m": 2, "new": {"deep": 2.5}}},)


def landed(home: Path) -> tuple[EvolvingStream, int]:
    """A stream whose table has changed since its first batch, and that batch's snapshot."""
    one = EvolvingStream(home, columns=COLUMNS)
    one.land(*BEFORE)
    first = one.table.metadata.current_snapshot_id
    one.land(*CHANGES, batch=1)
    assert first is not None
    return one, first


def answered(one: EvolvingStream, answer: Literal["keep", "reland"]) -> None:
    """As an operator's answer is stamped."""
    targets = {name: Target(one.catalog, name, one.spec.stream) for name in one.spec.target_names}
    for target in targets.values():
        with contextlib.suppress(RolledBackError):
            target.read()
    past = {name: history(target.table.metadata, one.spec.stream) for name, target in targets.items()}
    assert past[SINK].rolled_back
    for name, stamp in rollback(past, SINK, answer, one.spec.config_hash).items():
        targets[name].restamp(stamp)


@pytest.mark.parametrize("answer", ["reland", "keep"])
def test_a_table_that_was_turned_back_to_before_a_change_keeps_its_columns(
    tmp_path: Path, answer: Literal["keep", "reland"]
) -> None:
    one, first = landed(tmp_path / "home")
    whole, schema_id = one.rows, one.table.metadata.current_schema_id
    one.table.manage_snapshots().rollback_to_snapshot(first).commit()
    # Iceberg turns back the rows and not the columns: a snapshot's schema is what it was written with, no more.
    assert one.table.metadata.current_schema_id == schema_id
    assert one.rows == whole[:2]
    answered(one, answer)
    after = EvolvingStream(tmp_path / "home", columns=COLUMNS, epoch=2)
    after.log = one.log
    after.land(*AFTER, batch=2)
    assert after.runs == 1, "no change is made anew"
    assert after.rows == [*(whole if answer == "reland" else whole[:2]), *AFTER]
    assert after.table.metadata.current_schema_id == schema_id
    assert len(after.history) == len(one.history)
    after.land({"id": "f", "more": True}, batch=3)
    assert (after.runs, after.rows[-1]) == (2, {"id": "f", "more": True})
    assert after.letters == {}


def test_a_ledger_adds_up_over_changes_of_the_schema(tmp_path: Path) -> None:
    one, _ = landed(tmp_path / "home")
    one.land(*AFTER, {"id": 5}, batch=2)
    fill_ledger(one.catalog, one.settings, [one.spec])
    for full in (False, True):
        found = audit(one.spec, one.settings, one.catalog, full=full)
        assert found.problems == []
        assert found.read == 6
    one.land({"id": "g", "later": [1]}, batch=3)
    assert audit(one.spec, one.settings, one.catalog).problems == []


def test_letters_come_back_once_the_change_that_they_need_is_made(tmp_path: Path) -> None:
    """By a stream that may change the table, as by a person: nothing that landed before is touched."""
    one = EvolvingStream(tmp_path / "home", columns="id string, n int", add="propose", widen="propose")
    documents = [{"id": "a", "n": 1}, {"id": "b", "x": {"y": 1}}, {"id": "c", "n": 2**40}, {"id": "d", "z": True}]
    one.land(*documents)
    assert one.letters == dict.fromkeys((1, 2, 3), "schema_change_proposed")

    def again() -> ReplayResult:
        return replay(one.spec, one.settings, one.catalog, ReplayRequest(by="tester"))

    tried = again()
    assert (tried.replayed, tried.failed_again) == (0, 3)
    other = EvolvingStream(tmp_path / "home", "other")
    other.land({"id": "o", "n": 2**41, "x": {"y": 2, "new": "t"}})
    tried = again()
    assert (tried.replayed, tried.failed_again) == (2, 1), "the third one's column is not there"
    assert one.rows == [documents[0], {"id": "b", "x": {"y": 1, "new": None}}, documents[2]]
    other.land({"id": "p", "z": False}, batch=1)
    assert (again().replayed, again().replayed) == (1, 0)
    assert one.rows[-1] == documents[3]
    fill_ledger(one.catalog, one.settings, [one.spec])
    assert audit(one.spec, one.settings, one.catalog, full=True).problems == []
