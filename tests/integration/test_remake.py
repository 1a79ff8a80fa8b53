"""The branch of a gated stream is remade by `frazil maintain` while its driver lands and Spark reads, all real."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from jobs.commit.reissue import last_remade
from jobs.commit.stamp_history import history
from tests.helpers.waiting import wait_for
from tests.integration.faults import compact
from tests.integration.pipeline import GOOD, TRUNCATED, Coordinates, Pipeline
from tests.integration.test_branch import told
from tests.integration.test_discard import gate, in_main
from tests.integration.test_publish import frazil
from tests.integration.test_spark_reads import with_catalog
from tests.integration.topics import read_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

_PAUSE_SECONDS = 1.0
NOT_NULL = {"expect_column_values_to_not_be_null": {"column": "amount"}}


@contextlib.contextmanager
def again_and_again(act: Callable[[], object], name: str) -> Iterator[None]:
    """Do something in a thread for the length of the block, a moment apart; what it raises is raised behind it."""
    ends, raised = threading.Event(), list[BaseException]()

    def go_on() -> None:
        try:
            while not ends.wait(_PAUSE_SECONDS):
                act()
        except BaseException as problem:
            raised.append(problem)

    thread = threading.Thread(target=go_on, name=name)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join(60)
    if raised:
        raise raised[0]


class Reader:
    """A reader that asks Spark for the records on main and on the branch, and holds each answer against the last.

    Attributes:
        reads: How often it has read both.
    """

    def __init__(self, one: Pipeline, spark: SparkSession) -> None:
        self._session, self._name = with_catalog(spark, one)
        self._seen: dict[str, set[Coordinates]] = {"main": set(), "ingest": set()}
        self.reads: int = 0

    def read(self) -> None:
        """Read both; each record is there once, and none that was there is gone."""
        for branch, seen in self._seen.items():
            query = f"SELECT _kafka_topic, _kafka_partition, _kafka_offset FROM {self._name} VERSION AS OF '{branch}'"
            found = Counter((row[0], row[1], row[2]) for row in self._session.sql(query).collect())
            assert [at for at, times in found.items() if times != 1] == [], f"doubled on {branch}"
            assert seen - found.keys() == set(), f"gone from {branch}"
            self._seen[branch] = set(found)
        self.reads += 1


def landed(one: Pipeline) -> int:
    """How many records the stream has passed, by the newest stamp on its branch."""
    newest = history(one.table().metadata, one.stream).newest
    return sum(newest.position.values()) if newest else 0


def lands_more(one: Pipeline) -> None:
    """Wait until the driver has committed another batch."""
    before = landed(one)
    wait_for(lambda: landed(one) > before, "another batch")


def test_a_remake_under_a_driver_that_lands_and_readers_that_read(
    pipeline: Callable[..., Pipeline], spark: SparkSession
) -> None:
    one = pipeline()
    remade_at_once = {"remake": {"files": 1}}
    blocks = {"contract": {"expectations": [NOT_NULL]}, "publish": {"gate": "contract"}}
    one.write_spec(trigger={"every": "8s"}, maintenance=remade_at_once, **blocks)
    one.produce({GOOD: 20, TRUNCATED: 2})
    first = one.control().start("the test begins", "tester").heartbeat
    assert first is not None
    try:
        wait_for(lambda: landed(one) == 22, "the first records")
        assert gate(one) == "published"
        reader = Reader(one, spark)
        with (
            again_and_again(lambda: one.produce({GOOD: 4, TRUNCATED: 1}), "producer"),
            again_and_again(reader.read, "reader"),
        ):
            for _ in range(2):
                lands_more(one)
                assert gate(one) == "published"
            assert compact(one, spark) > 1
            lands_more(one)
            assert gate(one, "amounts are unusual") == "held"
            lands_more(one)
            remake = "maintain", one.table_name, "--only", "remake"
            for step in ("remake_before_commit", "inside_remake"):
                assert frazil(one, *remake, step=step) == -signal.SIGKILL
                assert last_remade(one.catalog().load_table(one.table_name).metadata, "ingest") is None
            before = reader.reads
            assert frazil(one, *remake, step="remake_after_commit") == -signal.SIGKILL
            remade = last_remade(one.catalog().load_table(one.table_name).metadata, "ingest")
            assert remade is not None
            lands_more(one)
            lands_more(one)
            assert frazil(one, *remake) == 0
            wait_for(lambda: reader.reads > before + 1, "a reader to read both")
            assert gate(one, "amounts are unusual") == "still held"
            assert frazil(one, "release", one.stream, "--reason", "known") == 0
            lands_more(one)
            assert gate(one) == "published"
        produced = len(read_topic(one.address, one.stream))
        wait_for(lambda: landed(one) == produced, "all records")
        beat = one.beat()
        assert (beat.pid, beat.attempt) == (first.pid, first.attempt), "the driver went on, it was not started again"
    finally:
        one.control().stop("the test ends", "tester")
    assert gate(one) in ("published", "nothing new")
    # Stamps that main has were not all issued again, so they are not contiguous.
    one.assert_each_once()
    assert Counter(in_main(one)) == one.landed(), "main has each record of the branch, once"
    reader.read()
    facts = told(one, "audit", "--full")
    assert (facts["verdict"], facts["problems"]) == ("complete", [])
