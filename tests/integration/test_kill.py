"""Whatever is killed, every record is in exactly one place: real processes, SIGKILL, counted by coordinates.

Kills at every step are `test_certify.py`'s: these are those that need more than a kill.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from jobs.clients.state_store.lease import Lease
from tests.helpers.forked import is_stopped
from tests.helpers.waiting import wait_for
from tests.integration.pipeline import GOOD, NULL_AMOUNT, TOMBSTONE, TRUNCATED, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

MIX = {GOOD: 300, NULL_AMOUNT: 4, TRUNCATED: 3, TOMBSTONE: 2}


def test_two_processes_at_once(pipeline: Callable[..., Pipeline]) -> None:
    one = pipeline()
    one.produce(MIX)
    processes = [one.start(), one.start()]
    outputs = [process.communicate(timeout=600)[0] for process in processes]
    codes = sorted(process.returncode for process in processes)
    assert codes == [0, 1], outputs
    refused = next(output for process, output in zip(processes, outputs, strict=True) if process.returncode)
    assert f"stream {one.stream} is run by process" in refused
    one.assert_exactly_once()


def test_slept_through_a_take_over(pipeline: Callable[..., Pipeline], spark: SparkSession) -> None:
    one = pipeline(lease_ttl="6s")
    one.produce(MIX)
    # It has just seen that the lease is its own.
    sleeper = one.start("after_lease_check=stop")
    try:
        lease = Lease(one.folder().store, one.stream, 6.0)

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
        output, _ = sleeper.communicate(timeout=600)
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
