"""The story's deployment: its folder, its commands as users give them, and what its tables hold."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from jobs.base.system.processes import session_members
from jobs.clients.catalog.catalog import connect_catalog
from jobs.config.settings.settings import Settings, load_settings
from jobs.streaming.supervision.control.stream_control import StreamControl
from jobs.streaming.supervision.documents.launches import read_launched_process
from jobs.streaming.supervision.processes.groups import DriverGroup
from orchestration.cli.main import main
from tests.helpers.shared_servers import SPARK_CONF
from tests.helpers.waiting import wait_for
from tests.story.records import Place, Row

ROOT = Path(__file__).resolve().parents[2]
_STREAMS = Path(__file__).with_name("streams")
_KAFKA = ("_kafka_topic", "_kafka_partition", "_kafka_offset")
_OF_KAFKA = (*_KAFKA, "_kafka_timestamp")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command answered.

    Attributes:
        status: Its exit status.
        output: Its standard output.
        shown: Both of its outputs, for messages.
    """

    status: int
    output: str
    shown: str

    @property
    def facts(self) -> Any:
        """The document that it printed with `--json`."""
        return json.loads(self.output)


class Deployment:
    """One deployment in a folder, on a real broker, with the embedded catalog.

    Args:
        home: Its folder.
        broker: Address of the broker.
    """

    def __init__(self, home: Path, broker: str) -> None:
        self.home: Path = home
        self.broker: str = broker
        self._processes: list[subprocess.Popen[str]] = []
        (home / "streams").mkdir(parents=True)
        self._settings: dict[str, Any] = {
            "kafka": {"bootstrap_servers": broker},
            "spark": {"master": "local[2]", "driver_memory": "600m", "conf": SPARK_CONF},
            "lease_ttl": "60s",
        }
        self._write_settings()

    def use_registry(self, url: str) -> None:
        """Name the schema registry in the settings."""
        self._settings["registry"] = {"url": url, "timeout": "60s", "lag": "300ms"}
        self._write_settings()

    def _write_settings(self) -> None:
        (self.home / "frazil.yaml").write_text(yaml.safe_dump(self._settings))

    def add_stream(self, stream: str) -> None:
        """Put the file of a stream into the deployment."""
        shutil.copy(_STREAMS / f"{stream}.yaml", self.home / "streams")

    @property
    def settings(self) -> Settings:
        """Settings of the deployment."""
        return load_settings(None, home=self.home)

    def frazil(self, *words: str, status: int = 0) -> Answer:
        """Give a command, in this process.

        Args:
            words: What follows `frazil --home …`.
            status: The exit status that it must have.
        """
        handlers = logging.getLogger().handlers[:]
        try:
            result = CliRunner().invoke(main, ["--home", str(self.home), *words])
        finally:
            # A command adds one that writes to its own outputs, which are closed now.
            logging.getLogger().handlers[:] = handlers
        answer = Answer(result.exit_code, result.stdout, result.output)
        assert answer.status == status, f"frazil {' '.join(words)}: exit {answer.status}, not {status}\n{answer.shown}"
        return answer

    def start_process(self, *words: str, failpoint: str) -> subprocess.Popen[str]:
        """Give a command, in a process of its own that is killed at a failpoint."""
        process = subprocess.Popen(
            [sys.executable, "-m", "orchestration.cli.main", "--home", str(self.home), *words],
            cwd=ROOT,
            env={**os.environ, "FRAZIL_STEPS": f"{failpoint}=kill", "PYTHONPATH": str(ROOT)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._processes.append(process)
        return process

    def end(self, *driven: str) -> None:
        """End whatever runs: drivers, and processes that have not met their failpoint.

        Args:
            driven: Streams that may have a driver.
        """
        for stream in driven:
            StreamControl(self.home, None, stream).stop("the story is over", "tester")
        driver = read_launched_process(DriverGroup.of(self.settings, "small").folder.store)
        if driver is not None:
            wait_for(lambda: not session_members(driver.pid), "the driver of an empty group to end", 120)
        for process in self._processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.communicate(timeout=120)

    def catalog(self) -> Catalog:
        """A connection to the catalog."""
        return connect_catalog(self.settings)

    def table(self, name: str) -> Table:
        """A table as it is now."""
        return self.catalog().load_table(name)

    def rows(self, name: str, branch: str = "main") -> dict[Place, Row]:
        """The rows of a table by the record that each came from; none of a table that does not exist.

        Raises:
            AssertionError: A record has more than one row.
        """
        try:
            table = self.table(name)
        except NoSuchTableError:
            return {}
        snapshot = table.snapshot_by_name(branch)
        if snapshot is None:
            return {}
        rows = table.scan(snapshot_id=snapshot.snapshot_id).to_arrow().to_pylist()
        return _by_place(name, [(_taken(row, _KAFKA), _without(row, _OF_KAFKA)) for row in rows])

    def dead_letters(self, name: str) -> dict[Place, Row]:
        """The dead letters of a table of them by their record, each once."""
        try:
            rows = self.table(name).scan().to_arrow().to_pylist()
        except NoSuchTableError:
            return {}
        return _by_place(name, [(_taken(row, ("topic", "partition", "offset")), row) for row in rows])

    def errors(self, name: str) -> dict[Place, str]:
        """The classes of the dead letters by their record."""
        return {place: letter["error_class"] for place, letter in self.dead_letters(name).items()}

    def status_of(self, stream: str) -> dict[str, Any]:
        """What `frazil status STREAM --json` says."""
        (facts,) = self.frazil("status", stream, "--json").facts["streams"]
        return facts


def _taken(row: Row, names: Sequence[str]) -> Place:
    topic, partition, offset = (row[name] for name in names)
    return topic, partition, offset


def _without(row: Row, names: Sequence[str]) -> Row:
    return {name: value for name, value in row.items() if name not in names}


def _by_place(name: str, rows: Sequence[tuple[Place, Row]]) -> dict[Place, Row]:
    twice = [place for place, count in Counter(place for place, _ in rows).items() if count > 1]
    assert not twice, f"{name} has {len(twice)} records more than once: {sorted(twice)[:5]}"
    return dict(rows)


def assert_rows(found: dict[Place, Row], expected: dict[Place, Row]) -> None:
    """Compare rows, and say of those that differ which records they are of."""
    missing, extra = expected.keys() - found.keys(), found.keys() - expected.keys()
    assert not missing, f"{len(missing)} records have no row: {sorted(missing)[:5]}"
    assert not extra, f"{len(extra)} rows should not be there: {sorted(extra)[:5]}"
    different = {place: (found[place], row) for place, row in expected.items() if found[place] != row}
    assert not different, f"{len(different)} rows differ, such as (found, expected): {sorted(different.items())[:2]}"
