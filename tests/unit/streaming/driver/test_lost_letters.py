"""Letters of a parked table that are gone with the dead letters: the audit and an operator's answers tell of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.proof.audit.audit import audit
from jobs.proof.audit.audit_result import StreamAudit
from jobs.proof.audit.ledger_fill import fill_ledger
from jobs.streaming.operator.accept import Answer, record_answer
from jobs.tables.commit.history.stamp_history import history
from tests.helpers.evolving_stream import SINK
from tests.helpers.parking import DEAD, DELETES, again, audited, dropped, head, records, replayed, roll_back
from tests.helpers.routed_stream import RoutedStream

GONE = f"dead letters with rows of suspended table {DELETES} are missing: their table was dropped, or rolled back"


def answered(one: RoutedStream, answer: Answer) -> list[str]:
    """Gives an operator's answer; what it tells."""
    told = list[str]()
    record_answer(one.spec, one.settings, lambda: pytest.fail("none is asked"), answer, "ada: why", told.append)
    return told


def found(one: RoutedStream) -> StreamAudit:
    fill_ledger(one.catalog, one.settings, [one.spec])
    return audit(one.spec, one.settings, one.catalog, full=True)


def lost(one: RoutedStream) -> list[tuple[int, str]]:
    return [(each.records, each.sentence) for each in found(one).problems if "are missing" in each.sentence]


def parked(home: Path) -> RoutedStream:
    """A stream of which four letters hold the rows of a table that was dropped."""
    after = again(dropped(home), 20)
    after.land(*records(5), batch=0)
    newest = after.stream.anchor.newest
    assert newest is not None and newest.held == {DELETES: 4} and after.letters_for(DELETES) == [1, 2, 6, 7]
    return after


def test_dead_letters_that_are_dropped_take_the_letters_of_a_parked_table_along(tmp_path: Path) -> None:
    one = parked(tmp_path / "home")
    assert lost(one) == []
    one.catalog.drop_table(DEAD)
    (said,) = answered(one, Answer(recreated_table=DEAD))
    assert said.startswith(f"4 of the 4 {GONE}") and "`frazil reset-offsets payments --to …`, to before 20" in said
    after = again(one, 40)
    assert lost(after) == [(4, said)]
    after.land(*records(10), batch=0)
    assert after.letters_for(DELETES) == [6, 7, 11, 12], "those of the newest batch are made again"
    ((count, sentence),) = lost(after)
    assert count == 2 and sentence.startswith(f"2 of the 6 {GONE}")
    # Another driver, and another batch, do not forget them.
    third = again(after, 60)
    third.land(*records(15), batch=0)
    assert [count for count, _ in lost(third)] == [2]
    (said,) = answered(third, Answer(unpark=DELETES))
    assert said.startswith(f"2 of the 8 {GONE}")
    newest = history(third.table.metadata, "payments").newest
    assert newest is not None and newest.note == "ada: why (2 of its dead letters were missing)" and not newest.held
    last = again(third, 80)
    replayed(last)
    assert last.offsets(DELETES) == [6, 7, 11, 12, 16, 17] and lost(last) == []


def test_dead_letters_that_are_rolled_back_and_left_so_are_told(tmp_path: Path) -> None:
    one = again(dropped(tmp_path / "home"), 20)
    one.land(batch=0)
    before = head(one, DEAD)
    one.land(*records(5), batch=1)
    roll_back(one, DEAD, before)
    assert answered(one, Answer(rollback="keep")) == []
    after = again(one, 40)
    after.land(*records(10), batch=0)
    told = found(after)
    assert not [each for each in told.problems if each.kind != "not_counted"]
    (note,) = [each for each in told.notes if "are missing" in each]
    assert note.startswith(f"2 of the 6 {GONE}") and note.endswith("An operator has answered to leave them out")
    (said,) = answered(after, Answer(unpark=DELETES))
    assert said.startswith(f"2 of the 6 {GONE}")


def test_dead_letters_that_are_landed_again_lack_none(tmp_path: Path) -> None:
    one = again(dropped(tmp_path / "home"), 20)
    one.land(batch=0)
    before = head(one, DEAD)
    one.land(*records(5), batch=1)
    roll_back(one, DEAD, before)
    answered(one, Answer(rollback="reland"))
    after = again(one, 40)
    after.land(*records(10), batch=0)
    assert lost(after) == [] and not [each for each in found(after).notes if "are gone" in each]
    assert answered(after, Answer(unpark=DELETES)) == []


def test_a_table_that_is_parked_twice_lacks_no_letters(tmp_path: Path) -> None:
    one = parked(tmp_path / "home")
    assert answered(one, Answer(unpark=DELETES)) == []
    after = again(one, 40)
    replayed(after)
    after = again(after, 60)
    after.land(*records(10), batch=0)
    after.catalog.drop_table(DELETES)
    third = again(after, 80)
    third.land(*records(15), batch=0)
    newest = third.stream.anchor.newest
    assert newest is not None and newest.held == {DELETES: len(third.letters_for(DELETES))}
    audited(third, gone=DELETES)
    assert third.offsets(SINK) == [3, 8, 13, 18]
