"""Whether Spark's JVM is gone, told without one."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from jobs.clients.spark.end import end_spark, jvm_is_gone


def test_no_jvm_is_not_one_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_gateway", None)
    assert not jvm_is_gone()


def test_a_jvm_that_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(proc=process))
    assert not jvm_is_gone()
    process.kill()
    process.wait()
    assert jvm_is_gone()
    if process.stdin is not None:
        process.stdin.close()


def test_nothing_is_left_for_the_next_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark's own `stop` fails halfway where nobody answers, and the next session was given the dead context."""
    stopped: list[str] = []

    def refused() -> None:
        raise ConnectionRefusedError(111, "Connection refused")

    server = SimpleNamespace(shutdown=lambda: stopped.append("accumulators"))
    monkeypatch.setattr(SparkContext, "_active_spark_context", SimpleNamespace(_accumulatorServer=server))
    monkeypatch.setattr(SparkContext, "_gateway", SimpleNamespace(shutdown=refused, proc=None))
    monkeypatch.setattr(SparkContext, "_jvm", object())
    monkeypatch.setattr(SparkSession, "_instantiatedSession", SimpleNamespace(stop=refused))
    monkeypatch.setattr(SparkSession, "_activeSession", object())
    end_spark()
    left = (SparkSession._instantiatedSession, SparkSession._activeSession, SparkContext._active_spark_context)
    assert left == (None, None, None)
    assert (SparkContext._gateway, SparkContext._jvm, stopped) == (None, None, ["accumulators"])
