"""Connect worker with an Iceberg sink for each of many topics, for `python -m bench.groups`."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench.versus.connect_worker import CONNECT_MAIN, JVM, LOG4J2, written
from bench.versus.sink_config import SinkConfig, sink_properties, worker_properties
from jobs.install.artifacts import resolve_jars
from jobs.install.preflight import check_java
from jobs.local_broker.config import HOST, free_ports
from jobs.spec.settings import Settings
from jobs.system.processes import start_time, stop_process

_GRACE_SECONDS = 30.0


class ConnectGroup:
    """One standalone worker with a connector of one task for each topic; runs for the length of its block.

    Args:
        path: The deployment's folder, whose tables are there.
        settings: Of the deployment.
        address: The broker.
        names: Of the topics, which are those of the tables.
        commit_ms: The sinks' commit interval.
    """

    def __init__(self, path: Path, settings: Settings, address: str, names: list[str], commit_ms: int) -> None:
        self._folder: Path = path / "connect"
        self._settings: Settings = settings
        self._address: str = address
        self._names: list[str] = names
        self._commit_ms: int = commit_ms
        self._process: subprocess.Popen[bytes] | None = None
        self._started: str | None = None

    @property
    def pid(self) -> int:
        """The JVM."""
        assert self._process is not None
        return self._process.pid

    def __enter__(self) -> Self:
        jars = os.pathsep.join(map(str, resolve_jars("connect")))
        with contextlib.closing(sqlite3.connect(self._settings.home / ".frazil" / "catalog.db")) as file:
            file.execute("PRAGMA journal_mode=WAL")
        self._folder.mkdir()
        rest = f"http://{HOST}:{free_ports(secure=False).plain}"
        admin = AdminClient({"bootstrap.servers": self._address, "log_level": 0})
        controls = {name: f"control-{name}" for name in self._names}
        for future in admin.create_topics([NewTopic(topic, 1, 1) for topic in controls.values()]).values():
            future.result(20)
        files: list[str] = []
        for name in self._names:
            # As their producers set it up: no larger fetches, which fifty consumers would keep in memory.
            sink = SinkConfig(name, tasks=1, commit_ms=self._commit_ms)
            properties = sink_properties(sink, name, controls[name], self._settings.catalog)
            written(self._folder / f"{name}.properties", {**properties, "iceberg.tables": f"lake.{name}"})
            files.append(f"{name}.properties")
        plain = replace(SinkConfig("", commit_ms=self._commit_ms), consumer={"auto.offset.reset": "latest"})
        written(self._folder / "worker.properties", worker_properties(plain, self._address, rest))
        (self._folder / "log4j2.properties").write_text(LOG4J2)
        options = [*JVM, "-Dlog4j2.configurationFile=log4j2.properties"]
        with (self._folder / "connect.out").open("wb") as output:
            self._process = subprocess.Popen(
                [str(check_java().executable), *options, "-cp", jars, CONNECT_MAIN, "worker.properties", *files],
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        self._started = start_time(self._process.pid)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        stop_process(self._process.pid, self._started, _GRACE_SECONDS)
        self._process.wait()
