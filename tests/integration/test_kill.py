"""Whatever is killed, every record is in exactly one place: real processes, SIGKILL, counted by coordinates.

Kills at every step are `test_certify.py`'s: these are those that need more than a kill. Where nothing more dies and a
recovery is to be seen to its end, it runs on the session that the tests share: it has no more to go by than a process
of its own would have.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from pyiceberg.types import StringType

from jobs.commit.errors import HalfCommittedError
from jobs.state.lease import Lease
from tests.helpers.forked import is_stopped
from tests.helpers.waiting import wait_for
from tests.integration.faults import die
from tests.integration.pipeline import GOOD, NULL_AMOUNT, SCHEMA, TOMBSTONE, TRUNCATED, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

MIX = {GOOD: 300, NULL_AMOUNT: 4, TRUNCATED: 3, TOMBSTONE: 2}


def test_spec_changed_and_pending_record_lost(
    pipeline: Callable[..., Pipeline], spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = pipeline()
    one.produce(MIX)
    die(one, spark, monkeypatch, "after_anchor_commit")
    before = one.spec_file.read_text()
    shutil.rmtree(one.folder().root)
    one.write_spec(SCHEMA + ", more string")
    with one.table().update_schema() as update:
        update.add_column("more", StringType())
    sentence = rf"(?s){one.stream}-0 \[0, .*record is lost.*configuration has changed"
    with pytest.raises(HalfCommittedError, match=sentence):
        one.drain(spark)
    one.spec_file.write_text(before)
    one.drain(spark)
    one.assert_exactly_once()


def test_checkpoint_and_state_deleted(
    pipeline: Callable[..., Pipeline], spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = pipeline()
    one.produce(MIX)
    one.run_and_die("after_anchor_commit")
    shutil.rmtree(one.folder().root / "checkpoints")
    die(one, spark, monkeypatch, "before_claim")
    one.lose_state()
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


def test_slept_through_a_take_over(pipeline: Callable[..., Pipeline], spark: SparkSession) -> None:
    one = pipeline(lease_ttl="2s")
    one.produce(MIX)
    # It has just seen that the lease is its own.
    sleeper = one.start("after_lease_check=stop")
    try:
        lease = Lease(one.folder().store, one.stream, 2.0)

        def asleep_and_expired() -> bool:
            assert sleeper.poll() is None
            record = lease.read()
            # On a busy machine its lease may run out before it sleeps, and then it is still at work in the catalog.
            return is_stopped(sleeper.pid) and record is not None and record.expired()

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
