"""Letters of parked tables, as an audit holds them behind a rollback."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.stream.test_parked_answers import answered, head, roll_back
from tests.unit.stream.test_parked_tables import (
    DEAD,
    DELETES,
    Answer,
    again,
    audited,
    dropped,
    records,
)


@pytest.mark.parametrize("answer", ["reland", "keep"])
def test_letters_that_a_rollback_took_out_are_not_asked_for(tmp_path: Path, answer: str) -> None:
    after = again(dropped(tmp_path / "home"), 20)
    after.land(batch=0)
    before = head(after, DEAD)
    after.land(*records(5), batch=1)
    assert after.letters_for(DELETES) == [1, 2, 6, 7]
    roll_back(after, DEAD, before)
    answered(after, Answer(rollback=answer))
    third = again(after, 40)
    third.land(*records(10), batch=0)
    came = [6, 7] if answer == "reland" else []
    assert third.letters_for(DELETES) == [1, 2, *came, 11, 12]
    audited(third, gone=DELETES)
