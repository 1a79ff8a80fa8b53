"""What stands in a record leaves a task in data files only: not in counts, messages, logs or metadata."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import msgspec
import pytest

from jobs.commit.errors import ToleranceError
from jobs.stream.tolerance import check_tolerance
from tests.helpers.tasks import TaskWorld, records, stream_spec

MARKER = "hunter2"
SCHEMA = (
    "id string not null, amount decimal(6,2), text decimal(6,2) as text, at timestamptz, day date, b binary, f float, "
    "ms timestamp as epoch_ms, n int"
)
VALUES = [
    MARKER.encode(),
    f'{{"id": "{MARKER}"'.encode(),
    f'"{MARKER}"'.encode(),
    f'{{"id": "{MARKER}", "amount": "{MARKER}"}}'.encode(),
    b'{"id": "a", "text": "%s"}' % MARKER.encode(),
    b'{"id": "a", "at": "%s"}' % MARKER.encode(),
    b'{"id": "a", "day": "%s"}' % MARKER.encode(),
    b'{"id": "a", "b": "%s!"}' % MARKER.encode(),
    b'{"id": "%s", "n": 1.5}' % MARKER.encode(),
    b'{"id": "%s\xff"}' % MARKER.encode(),
]
# What is needed, told without what was found.
NEEDED = ("needs decimal(6,2), found a string", "needs one valid JSON object", "needs int, found a number")
NUMBER = 987654321
NUMBERS = [
    b'{"id": "a", "amount": %d}' % NUMBER,
    b'{"id": "a", "ms": %d000000000}' % NUMBER,
    b'{"id": "a", "f": %de200}' % NUMBER,
    b'{"id": "a", "n": %d000}' % NUMBER,
]


@pytest.mark.parametrize(
    "errors",
    [
        {"tolerance": "none"},
        {"stop_above": {"count": 1}},
        {"stop_above": {"ratio": 0.01, "min_records": 1}},
        {"stop_above": {"window": {"of": "1h", "count": 1}}},
    ],
    ids=json.dumps,
)
def test_values_are_told_to_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture, errors: dict[str, object]) -> None:
    caplog.set_level(logging.DEBUG)
    world = TaskWorld(tmp_path, stream_spec(SCHEMA, errors=errors))
    made = world.run(records([*VALUES, *NUMBERS]))
    assert sorted(made.letters) == list(range(len(VALUES) + len(NUMBERS)))
    # The letters themselves may quote; that there is something to quote keeps this test honest.
    assert any(MARKER in letter["message"] for letter in made.letters.values())
    with pytest.raises(ToleranceError) as stop:
        check_tolerance(world.spec, made.counts, made.tallies)
    told = str(stop.value) + repr(stop.value) + msgspec.json.encode(made.tallies).decode() + caplog.text
    assert MARKER not in told
    assert str(NUMBER) not in told
    assert "offset 0: malformed_json in decode_value: needs one valid JSON object" in told
    assert all(needed in told for needed in NEEDED)
    world.close()
