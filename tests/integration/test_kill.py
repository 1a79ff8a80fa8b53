"""Whatever is killed, every record is in exactly one place: real processes, SIGKILL, counted by coordinates.

What dies is always a process with a JVM of its own. Where nothing more dies and a recovery is to be seen to its end, it
runs on the session that the tests share: it has no more to go by than a process of its own would have.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from pyiceberg.types import StringType

from jobs.runtime.lease import Lease
from tests.integration.pipeline import (
    GOOD,
    NULL_AMOUNT,
    SCHEMA,
    TOMBSTONE,
    TRUNCATED,
    Pipeline,
    wait_for,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

MIX = {GOOD: 300, NULL_AMOUNT: 4, TRUNCATED: 3, TOMBSTONE: 2}


def test_killed_at_every_step(pipeline: Callable[..., Pipeline]) -> None:
    one = pipeline()
    one.produce(MIX)
    # Each start recovers from the kill before and dies of the next one.
    one.run_and_die("before_claim")
    one.run_and_die("after_claims")
    one.run_and_die("after_tasks")
    one.run_and_die("before_commit")
    # The record of the last start is committed from its pending note; more records make the next batch.
    one.produce(MIX)
    one.run_and_die("after_anchor_commit")
    assert sum(one.landed().values()) == 600
    assert sum(one.dead().values()) == 7, "the second batch's dead letters are still pending"
    one.produce(MIX)
    one.run_and_die("after_commits")
    one.produce(MIX)
    one.run_and_die("before_spark_notes")
    one.produce(MIX)
    one.run()
    one.assert_exactly_once()
    assert sum(one.landed().values()) == 1500
    assert one.folder().pending_records() == []


def test_spec_changed_between_table_and_dead_letters(pipeline: Callable[..., Pipeline], spark: SparkSession) -> None:
    one = pipeline()
    one.produce(MIX)
    one.run_and_die("after_anchor_commit")
    assert sum(one.dead().values()) == 0
    # Under the new spec the records without an amount would land.
    one.write_spec(SCHEMA.replace("amount decimal(12,2) not null", "amount decimal(12,2)"))
    table = one.table()
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.make_column_optional("amount")
    one.drain(spark)
    one.assert_exactly_once()
    assert sum(one.dead().values()) == 7, "decided under the old configuration, and committed from its record"
    one.produce(MIX)
    one.drain(spark)
    one.assert_exactly_once()
    assert sum(one.dead().values()) == 7 + 3, "the new configuration takes records without an amount"


def test_spec_changed_and_pending_record_lost(pipeline: Callable[..., Pipeline], spark: SparkSession) -> None:
    one = pipeline()
    one.produce(MIX)
    one.run_and_die("after_anchor_commit")
    before = one.spec_file.read_text()
    shutil.rmtree(one.folder().root)
    one.write_spec(SCHEMA + ", more string")
    with one.table().update_schema() as update:
        update.add_column("more", StringType())
    output = one.run(expect=1)
    assert "pending record is lost" in output
    assert "the configuration has changed since" in output
    assert f"{one.stream}-0 [0, " in output
    one.spec_file.write_text(before)
    one.drain(spark)
    one.assert_exactly_once()


def test_checkpoint_and_state_deleted(pipeline: Callable[..., Pipeline], spark: SparkSession) -> None:
    one = pipeline()
    one.produce(MIX)
    one.run_and_die("after_anchor_commit")
    shutil.rmtree(one.folder().root / "checkpoints")
    one.run_and_die("before_claim")
    shutil.rmtree(one.settings().state)
    one.produce(MIX)
    one.drain(spark)
    one.assert_exactly_once()
    assert sum(one.landed().values()) == 600


def test_two_processes_at_once(pipeline: Callable[..., Pipeline]) -> None:
    one = pipeline()
    one.produce(MIX)
    processes = [one.start(), one.start()]
    outputs = [process.communicate(timeout=150)[0] for process in processes]
    codes = sorted(process.returncode for process in processes)
    assert codes == [0, 1], outputs
    refused = next(output for process, output in zip(processes, outputs, strict=True) if process.returncode)
    assert f"stream {one.stream} is run by process" in refused
    one.assert_exactly_once()


@pytest.mark.parametrize("step", ["before_commit", "after_lease_check"])
def test_slept_through_a_take_over(pipeline: Callable[..., Pipeline], spark: SparkSession, step: str) -> None:
    one = pipeline(lease_ttl="2s")
    one.produce(MIX)
    sleeper = one.start(f"{step}=stop")
    try:
        lease = Lease(one.folder().root, one.stream, 2.0)

        def asleep_and_expired() -> bool:
            assert sleeper.poll() is None
            record = lease.read()
            return record is not None and bool(one.folder().pending_records()) and record.expired()

        wait_for(asleep_and_expired, "the sleeper's lease to expire")
        one.produce(MIX)
        one.drain(spark)
        one.assert_exactly_once()
        sleeper.send_signal(signal.SIGCONT)
        output, _ = sleeper.communicate(timeout=60)
        assert sleeper.returncode == 1, output
        assert "another driver took over" in output
    finally:
        if sleeper.poll() is None:
            sleeper.send_signal(signal.SIGCONT)
            sleeper.kill()
            sleeper.wait()
    one.drain(spark)
    one.assert_exactly_once()
    assert sum(one.landed().values()) == 600
