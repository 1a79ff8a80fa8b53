"""Whatever bytes come: each record is exactly one of row, dead letter and tombstone, and nothing ever raises.

The rows are committed and read back: whatever a commit would refuse is a dead letter.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.table import Table

from jobs.config.stream.models import StreamSpec
from jobs.tables.commit.protocol.pyiceberg_commit import commit_once
from jobs.tables.commit.schema.operations import Append
from tests.helpers.tasks import TaskWorld, records, stream_spec

SCHEMA = (
    "s string, b binary, i int, l long, f float, d double, dec decimal(38,10), narrow decimal(4,2), day date, "
    "at timestamp as epoch_ms, atz timestamptz, flag boolean, tags list<string not null>, m map<string, decimal(9,2)>, "
    "nested struct<a string not null, when timestamptz as epoch_us>"
)
COLUMNS = ["s", "b", "i", "l", "f", "d", "dec", "narrow", "day", "at", "atz", "flag", "tags", "m", "nested"]
PARTITIONS = [
    [],
    ["s", "flag"],
    ["bucket(7, s)", "bucket(7, b)", "bucket(3, l)", "bucket(3, dec)", "bucket(5, atz)", "bucket(5, day)"],
    ["truncate(3, s)", "truncate(3, b)", "truncate(10, i)", "truncate(10, l)", "truncate(50, dec)"],
    ["year(day)", "month(at)", "hour(atz)", "day(nested.when)"],
    ["i", "l", "dec", "day", "at", "atz", "b"],
    ["truncate(2147483647, i)", "truncate(2147483647, dec)", "day(_kafka_timestamp)", "_kafka_offset"],
]


def _extremes() -> list[Any]:
    big = [2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 2**64, 10**40, -(10**40), 253_402_300_799_999, -62_135_596_800_000]
    texts = [
        "",
        "\x00",
        "\ud800",
        "😀" * 40,
        "0001-01-01",
        "9999-12-31",
        "0000-01-01",
        "2024-02-29",
        "/../a=b%2F",
        "x" * 5000,
    ]
    times = ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "0001-01-01T00:00:00+23:59", "2024-02-30T00:00:00Z"]
    numbers = [
        0,
        -0.0,
        1e308,
        1e-400,
        1.5,
        "99999999999999999999999999999.9999999999",
        "-99999999999999999999999999999",
    ]
    return [*big, *texts, *times, *numbers, None, True, [], {}, ["a", None], {"k": 1.25}, {"a": "x", "when": 2**62}]


EXTREMES = _extremes()
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20) | st.sampled_from(EXTREMES)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)  # fmt: skip
OBJECTS = st.dictionaries(st.sampled_from(COLUMNS), JSON, max_size=6).map(lambda value: json.dumps(value).encode())
VALUES = st.none() | st.binary(max_size=30) | JSON.map(lambda value: json.dumps(value).encode()) | OBJECTS


def spec_of(partition_by: list[str]) -> StreamSpec:
    return stream_spec(SCHEMA, partition_by=partition_by)


@pytest.fixture(scope="module", params=PARTITIONS, ids=lambda each: ", ".join(each) or "unpartitioned")
def world(request: pytest.FixtureRequest) -> Iterator[TaskWorld]:
    with tempfile.TemporaryDirectory() as folder:
        made = TaskWorld(Path(folder), spec_of(request.param))
        yield made
        made.close()


def check(world: TaskWorld, values: list[bytes | None]) -> int:
    """Returns how many landed."""
    made = world.run(records(values))
    table = world.anchor
    before = _total(table)
    commit_once(table, Append(made.files), summary={}, properties={})
    assert _total(table) - before == len(made.rows)
    assert len(list(table.scan().plan_files())) >= len(made.files)
    counts = made.counts
    tombstones = {offset for offset, value in enumerate(values) if value is None}
    assert sorted([*made.offsets, *made.letters, *tombstones]) == list(range(len(values)))
    assert made.letter_count == len(made.letters) == counts.dead
    assert (counts.read, counts.landed, counts.tombstones) == (len(values), len(made.rows), len(tombstones))
    assert not any(tally.unexpected for tally in made.tallies)
    assert all(letter["value"] == values[offset] for offset, letter in made.letters.items())
    return len(made.rows)


def _total(table: Table) -> int:
    head = table.current_snapshot()
    return int(head.summary["total-records"] or 0) if head and head.summary else 0


@settings(max_examples=8)
@given(st.lists(VALUES, min_size=1, max_size=12))
def test_any_bytes(world: TaskWorld, values: list[bytes | None]) -> None:
    check(world, values)


def test_every_extreme_in_every_column(world: TaskWorld) -> None:
    values: list[bytes | None] = [json.dumps({column: extreme}).encode() for column in COLUMNS for extreme in EXTREMES]
    # Truncated downwards, the second has one digit more than its type holds, and so have the lowest numbers.
    values += [b'{"dec": %s9999999999999999999999999999.9999999999}' % sign for sign in (b"", b"-")]
    values += [b'{"i": -2147483648}', b'{"l": -9223372036854775808}', b'{"narrow": -99.99}']
    assert check(world, values) > 90
