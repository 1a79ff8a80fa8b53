"""Records that failed for a table which is parked before their batch is finished: one letter each, and no row."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.transforms import TruncateTransform

from jobs.base.errors import StreamStopped
from jobs.tables.dead_letter_table.parked_letters import TABLE_PARKED
from tests.helpers.evolving_stream import SINK
from tests.helpers.parking import CHANGES, DEAD, DELETES, PARK, Killed, again, audited, replayed, unpark
from tests.helpers.parking import killed as kill
from tests.helpers.routed_stream import ROUTE, RoutedStream

LEAST = -(2**31)
"""Cut to fifties it has no place in 32 bits."""
CUT: dict[str, Any] = {
    **PARK,
    "tables": [
        {**each, "partition_by": ["truncate(50, n)"]} if each["table"] == DELETES else each for each in ROUTE["tables"]
    ],
}
BEFORE = [{"id": f"a{at}", "type": kind, "n": at} for at, kind in enumerate(["INS", "UPD", "DEL", "OWN"])]
# The second goes to both tables, and the one of them cannot hold it; the last one decodes to nothing.
BATCH = [
    {"id": "b4", "type": "UPD", "n": 4},
    {"id": "b5", "type": "UPD", "n": LEAST},
    {"id": "b6", "type": "DEL", "n": 6},
    {"id": "b7", "type": "INS", "n": LEAST},
    b"none",
]


def killed(one: RoutedStream, *tables: str, lost: bool) -> None:
    """The driver is killed at its first commit to one of the tables; whether its pending record is lost as well."""

    for name in tables:
        one.stream.targets[name]._commit_once = kill  # type: ignore[assignment]
    with pytest.raises(Killed):
        one.land(*BATCH, batch=1)
    if lost:
        one.stream.folder.store.delete(one.stream.folder.pending(one.stream.epoch))


def letters(one: RoutedStream) -> Counter[tuple[int, bool]]:
    """The letters by offset, and whether they wait for a table."""
    rows = one.catalog.load_table(DEAD).scan().to_arrow().to_pylist()
    return Counter((each["offset"], each["error_class"] == TABLE_PARKED) for each in rows)


def assert_failed_once(one: RoutedStream, waiting: list[int]) -> None:
    """The record that its table could not hold is a letter, and in no table; no other has one that is not its own."""
    assert letters(one) == Counter([(5, False), (8, False), *((at, True) for at in waiting)])
    assert one.offsets(CHANGES) == [0, 1, 4, 7] and one.offsets(SINK) == [3]


@pytest.mark.parametrize("lost", [False, True], ids=["recorded", "its record is lost"])
@pytest.mark.parametrize("lacking", [(DELETES,), (CHANGES, DELETES)], ids=["it lacks the batch", "another one, too"])
def test_a_record_that_is_a_letter_is_nothing_else(tmp_path: Path, lacking: tuple[str, ...], lost: bool) -> None:
    one = RoutedStream(tmp_path / "home", CUT)
    one.land(*BEFORE)
    killed(one, *lacking, lost=lost)
    one.catalog.rename_table(DELETES, "orders.elsewhere")
    after = again(one, 20, CUT)
    after.land(batch=0)
    assert_failed_once(after, [4, 6])
    audited(after, gone=DELETES)
    after.catalog.rename_table("orders.elsewhere", DELETES)
    unpark(after, DELETES)
    third = again(after, 30, CUT)
    replayed(third)
    assert third.offsets(DELETES) == [1, 2, 4, 6]
    assert_failed_once(third, [4, 6])
    audited(third)


@pytest.mark.parametrize("gone", [True, False], ids=["gone", "it takes no commits"])
def test_records_fail_by_the_columns_of_the_table_where_nobody_has_their_letters(
    tmp_path: Path, gone: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = RoutedStream(tmp_path / "home", CUT)
    one.land(*BEFORE)
    killed(one, DEAD, CHANGES, DELETES, lost=True)
    assert letters(one) == {}
    if gone:
        one.catalog.drop_table(DELETES)
    else:
        one.catalog.rename_table(DELETES, "orders.elsewhere")
    after = again(one, 20, CUT)
    if not gone:
        # It is parked, and there.
        after.catalog.rename_table("orders.elsewhere", DELETES)
    after.land(batch=0)
    assert_failed_once(after, [4, 6])


def test_where_nobody_knows_what_failed_the_stream_asks_for_the_columns(tmp_path: Path) -> None:
    one = RoutedStream(tmp_path / "home", PARK)
    one.land(*BEFORE)
    with one.catalog.load_table(DELETES).update_spec() as update:
        update.add_field("n", TruncateTransform(50))
    one = again(one, 10, PARK)
    killed(one, DEAD, CHANGES, DELETES, lost=True)
    altered = one.catalog.load_table(DELETES)
    schema, spec = altered.schema(), altered.spec()
    one.catalog.drop_table(DELETES)
    after = again(one, 20, PARK)
    with pytest.raises(
        StreamStopped, match=f"that table {SINK} has passed, 1 had failed and would not fail now: {DELETES} was"
    ) as stopped:
        after.land(batch=0)
    assert (
        stopped.value.fix is not None
        and f"restore {DELETES}, or create it with its former columns" in stopped.value.fix
    )
    assert letters(after) == {} and after.offsets(CHANGES) == [0, 1]
    after.catalog.create_table(DELETES, schema, partition_spec=spec)
    third = again(after, 30, PARK)
    third.land(batch=0)
    assert_failed_once(third, [4, 6])


def test_records_of_later_batches_wait_whatever_the_table_could_hold(tmp_path: Path) -> None:
    one = RoutedStream(tmp_path / "home", CUT)
    one.land(*BEFORE)
    one.catalog.rename_table(DELETES, "orders.elsewhere")
    after = again(one, 20, CUT)
    after.land(*BATCH, batch=0)
    assert after.offsets(CHANGES) == [0, 1, 4, 5, 7]
    assert letters(after) == Counter([(8, False), *((at, True) for at in (1, 2, 4, 5, 6))])
    audited(after, gone=DELETES)
