"""A JVM that has ended is given to no later table: both holders of a session start another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster_pyspark
import pytest

from orchestration.cli.maintain import command as command
from resources import spark as resource
from resources.deployment import Deployment
from resources.deployment_resource import DeploymentResource
from tests.unit.orchestration.deployments import deployment_in


class Jvms:
    """Stands for PySpark: sessions are numbers, of which the newest may be dead."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
        self.started: int = 0
        self.gone: bool = False
        monkeypatch.setattr(module, "jvm_is_gone", lambda: self.gone)
        monkeypatch.setattr(module, "end_spark", self.end)
        monkeypatch.setattr(module, "preflight", lambda: None)

    def end(self) -> None:
        self.gone = False

    def start(self) -> int:
        # It cannot start before the dead one was put away.
        assert not self.gone
        self.started += 1
        return self.started


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jvms = Jvms(monkeypatch, command)
    monkeypatch.setattr(command._Spark, "_started", lambda _: jvms.start())
    session = command._Spark(Deployment.at(deployment_in(tmp_path)).prepared_settings())
    assert [session(), session()] == [1, 1]
    jvms.gone = True
    assert [session(), session()] == [2, 2]


def test_the_resource(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jvms = Jvms(monkeypatch, resource)

    class Lazy:
        def __init__(self, spark_config: object) -> None:
            self.spark_session: int = jvms.start()

    monkeypatch.setattr(dagster_pyspark, "LazyPySparkResource", Lazy)
    monkeypatch.setattr(resource, "spark_conf", lambda *_, **__: {})
    monkeypatch.setattr(resource, "apply_secrets", lambda *_: None)
    monkeypatch.setattr(resource, "prepare_environment", lambda _: None)
    spark = resource.SparkResource(deployment=DeploymentResource.of(Deployment.at(deployment_in(tmp_path))))
    assert [spark.get_session(), spark.get_session()] == [1, 1]
    jvms.gone = True
    assert [spark.get_session(), spark.get_session()] == [2, 2]
