"""Spark's application that tests share is out of reach of those that ask for none."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from jobs.clients.spark.end import end_spark
from tests.helpers.shared_spark import without_spark


def test_a_command_that_ends_spark_does_not_end_that_of_other_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []
    gateway = SimpleNamespace(shutdown=lambda: ended.append("shared"), proc=None)
    monkeypatch.setattr(SparkContext, "_gateway", gateway)
    monkeypatch.setattr(SparkContext, "_jvm", "jvm")
    monkeypatch.setattr(SparkContext, "_active_spark_context", "context")
    monkeypatch.setattr(SparkSession, "_instantiatedSession", "session")
    with without_spark():
        end_spark()
        assert SparkSession._instantiatedSession is None
        # One that a test starts itself ends with it.
        own = SimpleNamespace(shutdown=lambda: ended.append("own"), proc=None)
        monkeypatch.setattr(SparkContext, "_gateway", own)
    assert ended == ["own"]
    assert (SparkContext._gateway, SparkContext._jvm) == (gateway, "jvm")
    assert (SparkContext._active_spark_context, SparkSession._instantiatedSession) == ("context", "session")
