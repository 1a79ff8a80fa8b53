"""Connect worker with an Iceberg sink for each of many topics, for `python -m bench.groups`."""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import replace
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.versus.connect_worker import COMMITS_LOGGED, JVM
from bench.versus.sink_config import SinkConfig, sink_properties, worker_properties
from jobs.clients.install.artifacts import resolve_jars
from jobs.config.settings.settings import Settings
from tests.helpers.connect_worker import ConnectWorker


class ConnectGroup(ConnectWorker):
    """Standalone worker with a connector of one task for each topic; runs within its block.

    Args:
        path: Folder of the deployment, whose tables exist.
        settings: Settings of the deployment.
        address: The broker.
        names: Names of the topics, which are those of the tables.
        commit_ms: The sinks' commit interval.
    """

    def __init__(self, path: Path, settings: Settings, address: str, names: list[str], commit_ms: int) -> None:
        self._deployed: Settings = settings
        self._address: str = address
        self._controls: dict[str, str] = {name: f"control-{name}" for name in names}
        connectors: dict[str, dict[str, str]] = {}
        for name, control in self._controls.items():
            # As their producers set it up: no larger fetches, which fifty consumers would keep in memory.
            sink = SinkConfig(name, tasks=1, commit_ms=commit_ms)
            connectors[name] = {**sink_properties(sink, control, settings.catalog), "iceberg.tables": f"lake.{name}"}
        plain = replace(SinkConfig("", commit_ms=commit_ms), consumer={"auto.offset.reset": "latest"})
        super().__init__(
            path / "connect",
            address,
            resolve_jars("connect"),
            settings=worker_properties(plain),
            connectors=connectors,
            options=JVM,
            log4j2=COMMITS_LOGGED,
        )

    def prepare(self) -> None:
        """Make the control topics and the files."""
        with contextlib.closing(sqlite3.connect(self._deployed.home / ".frazil" / "catalog.db")) as file:
            file.execute("PRAGMA journal_mode=WAL")
        admin = AdminClient({"bootstrap.servers": self._address, "log_level": 0})
        for future in admin.create_topics([NewTopic(topic, 1, 1) for topic in self._controls.values()]).values():
            future.result(20)
        super().prepare()
