"""A driver that is told to land at once, whose batches are bounded by bytes, with options and an administrator."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from jobs.commit.stamp_history import stamps_along_main
from jobs.errors import FrazilError
from tests.helpers.database_server import DatabaseServer
from tests.helpers.services import database_state
from tests.integration.driver_group import driver_group
from tests.integration.pipeline import GOOD, ROOT, TRUNCATED, Pipeline
from tests.integration.topics import idempotent_producer

pytestmark = pytest.mark.integration


@pytest.mark.timeout(240)
def test_what_is_there_lands_at_once_in_batches_of_about_so_many_bytes(pipeline: Callable[..., Pipeline]) -> None:
    made = pipeline()
    settings_file = made.home / "frazil.yaml"
    settings = yaml.safe_load(settings_file.read_text())
    settings["kafka"] |= {
        "admin": {"security": {"protocol": "PLAINTEXT"}},
        "options": {"client.id": "lake", "socket.keepalive.enable": True, "reconnect.backoff.max.ms": 2000},
    }
    settings_file.write_text(yaml.safe_dump(settings))
    options = {"client.rack": "a", "fetch.min.bytes": 1024, "request.timeout.ms": 20_000}
    source = {"topics": [made.stream], "max_bytes_per_batch": "4MB", "group": f"g-{made.stream}", "options": options}
    made.write_spec(trigger={"every": "10m"}, source=source)
    made.produce({GOOD: 30})
    made.control().start("the test begins", "tester")
    try:
        # Of records that nobody has seen four fit; then another query begins, which takes them all.
        made.wait_until_landed()
        assert reads(made)[0] <= 4
        # From here on there is a pause of ten minutes.
        made.produce({GOOD: 20, TRUNCATED: 1})
        told = json.loads(flushed(made))
        assert (told["read"], told["landed"], told["dead"]) == (21, 20, 1)
        assert "21 records in" in told["sentence"]
        assert made.control().flush("nothing is there", "tester").facts["read"] == 0

        # A jump in size is met by the batch after it.
        produce_large(made, 8)
        assert made.control().flush("large ones", "tester").facts["read"] == 8
        before = len(reads(made))
        produce_large(made, 12)
        done = made.control().flush("more of them", "tester").facts
        assert done["dead"] == 0
        # The query that took over with the new bound may have read some of them before it heard of the flush.
        assert sum(after := reads(made)[before:]) == 12
        assert max(after) <= 4
        made.assert_exactly_once()
    finally:
        made.control().stop("the test ends", "tester")


@pytest.mark.timeout(240)
def test_streams_of_a_group_whose_state_machines_share_land_each_by_itself(
    tmp_path: Path, broker: str, database: DatabaseServer
) -> None:
    """The request, and what has become of it, go through the store; the process is the group's."""
    shared = database_state(database).model_dump(mode="json", exclude_none=True) | {"folder": str(tmp_path / "state")}
    with driver_group(tmp_path, broker, {"state": shared}) as made:
        paused, waits, other = made.streams
        for each in (paused, other):
            each.write_spec(trigger={"every": "10m"})
        waits.write_spec(
            trigger={"every": "1s"},
            source={"topics": [waits.stream], "min_records_per_batch": 10_000, "max_delay": "10m"},
        )
        for each in made.streams:
            each.produce({GOOD: 3})
        made.start()
        # The first batch of a query waits for nothing.
        for each in made.streams:
            each.wait_until_landed()
        for each in made.streams:
            each.produce({GOOD: 20, TRUNCATED: 1})
        for each in (paused, waits):
            told = json.loads(flushed(each))
            assert (told["read"], told["landed"], told["dead"]) == (21, 20, 1)
            assert each.control().flush("nothing is there", "tester").facts["read"] == 0
            each.assert_exactly_once()
        assert len(other.landed()) == 3, "a flush is of one stream"
        assert {each.beat().pid for each in made.streams} == {made.process().pid}
        assert {each.beat().attempt for each in made.streams} == {1}
        other.control().drain_driver("a test", "tester")
        with pytest.raises(FrazilError, match="has no driver that could land what is there"):
            other.control().flush("a test", "tester")


def reads(made: Pipeline) -> list[int]:
    """Records of each batch that read any, the oldest first."""
    stamps = [stamp for _, stamp in reversed(stamps_along_main(made.table().metadata, made.stream))]
    totals = [0, *(stamp.totals.read for stamp in stamps)]
    return [each for before, now in itertools.pairwise(totals) if (each := now - before)]


def produce_large(made: Pipeline, count: int) -> None:
    producer = idempotent_producer(made.address, made.stream)
    for _ in range(count):
        made.numbers += 1
        row = {"id": f"p-{made.numbers}", "amount": 1, "created_at": "2026-11-01T10:00:00Z", "note": "x" * 950_000}
        producer.produce(made.stream, value=json.dumps(row).encode(), partition=made.numbers % made.partitions)
    assert producer.flush(30) == 0


def flushed(made: Pipeline) -> str:
    """What the command prints."""
    command = [sys.executable, "-m", "orchestration.cli.main", "--home", str(made.home), "flush", made.stream, "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout
