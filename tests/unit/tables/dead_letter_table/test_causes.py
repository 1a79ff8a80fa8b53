"""What failed records have in common: counted in the task, without a value."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.records.formats.interface.problems import shown, without_value
from jobs.streaming.task.tally import MOST_CAUSES
from tests.helpers.tasks import TaskWorld, records, stream_spec

SECRET = "4711, found 'x': needs int, found null"


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("needs int, found a string", "needs int, found a string"),
        ("needs string, found no such key", "needs string, found no such key"),
        ("needs a JSON object, found nothing", "needs a JSON object, found nothing"),
        (f"needs date such as 2026-01-31, found {shown(SECRET)}", "needs date such as 2026-01-31"),
        (f"needs decimal(6,2), found {shown(SECRET)} with more than 2 digits after the point", "needs decimal(6,2)"),
        ("needs float (32 bits), found 9.87e+200", "needs float (32 bits)"),
        ("needs UTF-8, found 0x61 at byte 3 (invalid start byte)", "needs UTF-8"),
        ("needs one valid JSON object: invalid character (byte 5)", "needs one valid JSON object"),
        ("is not declared, and this stream refuses keys that are not declared",) * 2,
        ("the column `n` is required and a row has none",) * 2,
        ("the column `n` does not fit int: Integer value 4711 not in range", "the column `n` does not fit int"),
        (f"org.apache.kafka.connect.errors.DataException: {SECRET}", None),
        (SECRET, None),
        ("", None),
    ],
)
def test_what_may_be_told_of_a_message(message: str, told: str | None) -> None:
    assert without_value(message) == told


def test_the_same_mistake_at_other_places_is_one_cause(tmp_path: Path) -> None:
    world = TaskWorld(tmp_path, stream_spec("id string not null, items list<struct<n int>>"))
    values = [b'{"id": "a", "items": [%s {"n": "x%d"}]}' % (b'{"n": 1},' * (i % 3), i) for i in range(30)]
    made = world.run(records([*values, b'{"items": []}', b'{"id": "a"}', b"{"]))
    (tally,) = made.tallies
    assert [(cause.count, cause.example.offset, cause.example.needs) for cause in tally.causes.values()] == [
        (30, 0, "needs int, found a string"),
        (1, 30, "needs string, found no such key"),
        (1, 32, "needs one complete JSON object, but the text ends before it does"),
    ]
    world.close()


def test_causes_without_end_do_not_make_a_tally_without_end(tmp_path: Path) -> None:
    world = TaskWorld(tmp_path, stream_spec("id string not null", unknown_fields="fail"))
    made = world.run(records([b'{"id": "a", "key-%d-%s": 1}' % (i, b"y" * 500) for i in range(3 * MOST_CAUSES)]))
    (tally,) = made.tallies
    assert tally.reasons == {"unknown_field": 3 * MOST_CAUSES}
    assert len(tally.causes) == MOST_CAUSES
    assert max(map(len, tally.causes)) < 400
    world.close()
