"""The newest batch of a stream with a parked table: who has it, when the file changes or the table is unparked."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.base.errors import StreamStopped
from jobs.streaming.driver.tables.previous_targets import previous_stamps
from jobs.streaming.operator.accept import Answer, record_answer
from jobs.tables.commit.recovery.recovery import half_committed
from jobs.tables.commit.stamp.target_positions import of_known_topics
from tests.helpers.evolving_stream import SINK
from tests.helpers.parking import CHANGES, DELETES, PARK, Killed, again, killed, records
from tests.helpers.routed_stream import ROUTE, RoutedStream

ELSEWHERE = "orders.elsewhere"


def parked(home: Path, table: str = DELETES) -> RoutedStream:
    """A stream of which a table is away, under another name, and has letters of two batches."""
    one = RoutedStream(home, PARK)
    one.land(*records(0))
    one.catalog.rename_table(table, ELSEWHERE)
    after = again(one, 20, PARK)
    after.land(*records(5), batch=0)
    after.land(*records(10), batch=1)
    return after


@pytest.mark.parametrize("table", [None, ELSEWHERE], ids=["taken out", "renamed"])
def test_a_file_that_names_a_parked_table_no_more_lacks_nothing_of_the_newest_batch(
    tmp_path: Path, table: str | None
) -> None:
    one = parked(tmp_path / "home")
    if table is None:
        # It is there, and refused its commits.
        one.catalog.rename_table(ELSEWHERE, DELETES)
    left = [{**each, "table": table or CHANGES} if each["table"] == DELETES else each for each in ROUTE["tables"]]
    after = again(one, 30, {**PARK, "tables": left})
    former = previous_stamps(after.spec, after.stream.targets, after.catalog)
    anchored = after.stream.anchor.newest
    place = former[DELETES]
    assert anchored is not None and place is not None and place.position == anchored.position
    stamps = {name: target.newest for name, target in after.stream.targets.items()}
    assert half_committed(of_known_topics(former | stamps, SINK), SINK) is None
    after.land(*records(15), batch=0)
    newest = after.stream.anchor.newest
    assert newest is not None and not newest.rows.get(DELETES)
    assert after.letters_for(DELETES) == [1, 2, 6, 7, 11, 12], "they wait, as they are"


def test_a_table_is_not_unparked_while_another_one_lacks_the_newest_batch(tmp_path: Path) -> None:
    one = parked(tmp_path / "home", CHANGES)
    one.catalog.rename_table(ELSEWHERE, CHANGES)

    # The coordinator has the batch, and so have the letters; the pending record names what the other table lacks.
    one.stream.targets[DELETES]._commit_once = killed  # type: ignore[assignment]
    with pytest.raises(Killed):
        one.land(*records(15), batch=2)
    assert one.letters_for(CHANGES)[-2:] == [15, 16] and one.offsets(DELETES)[-1] == 12

    def unpark() -> None:
        answer = Answer(unpark=CHANGES)
        record_answer(one.spec, one.settings, lambda: pytest.fail("no broker is asked"), answer, "ada: back")

    with pytest.raises(StreamStopped, match=f"the newest batch is not in {DELETES} yet") as refused:
        unpark()
    assert "frazil run payments" in str(refused.value.fix)
    again(one, 40, PARK)
    assert one.offsets(DELETES)[-2:] == [16, 17], "the next driver gives it the batch, by the record"
    unpark()
    assert again(one, 50, PARK).stream.folder.pending_records() == []
