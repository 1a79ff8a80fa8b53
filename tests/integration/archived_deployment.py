"""Deployment that an earlier release made: unpacked where it was made, and run by the code that is checked out."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from jobs.base.system.locks import exclusive
from jobs.clients.catalog.catalog import connect_catalog
from jobs.clients.kafka.metadata import KafkaLog
from jobs.local.broker.broker import LocalBroker
from jobs.streaming.driver.process.drain import drain
from orchestration.cli.main import main
from resources.deployment import Deployment
from tests.integration.deployment_maker import ARCHIVE, EXPECTED
from tests.integration.pipeline import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Fields whose values depend on the time of the question.
_MOVING = {"silent_seconds", "lag_seconds", "complete_through", "seconds"}
# Parts of sentences that this release words in another way.
_REWORDED = {"holds what the stream declares": "fits the stream's columns"}


@dataclass(frozen=True, slots=True)
class ArchivedDeployment:
    """A deployment in its archive, or unpacked.

    Attributes:
        folder: Folder of the archive and of the expected documents.
        home: Folder where the deployment was made. Its tables name their files by absolute paths.
        lock: File that a process locks while it has a deployment in `home`.
    """

    folder: Path
    home: Path
    lock: Path

    @contextlib.contextmanager
    def unpacked(self) -> Iterator[Path]:
        """Unpack the deployment and start its broker; yields its home and removes it at the end."""
        broker = LocalBroker(self.home / ".frazil/broker", detached=True)
        try:
            with exclusive(self.lock, deadline_seconds=600):
                # A test run that was killed leaves its deployment.
                self._remove(broker)
                self.home.mkdir(mode=0o700)
                try:
                    with tarfile.open(self.folder / ARCHIVE) as archive:
                        # Python 3.11.3 and earlier know no filters.
                        archive.extraction_filter = getattr(tarfile, "tar_filter", None)
                        archive.extractall(self.home)
                    with broker:
                        yield self.home
                finally:
                    self._remove(broker)
        except (PermissionError, FileExistsError, TimeoutError) as problem:
            pytest.fail(f"the deployment needs the folder {self.home} and the file {self.lock}: {problem}")

    def _remove(self, broker: LocalBroker) -> None:
        if self.home.exists():
            broker.stop()
            shutil.rmtree(self.home)

    def expected(self) -> dict[str, Any]:
        """Documents that the release reported of the deployment, and where its records stand."""
        return json.loads((self.folder / EXPECTED).read_text())

    def frazil(self, *arguments: str, expect: int | None = 0) -> Result:
        """Run a command in this process.

        Args:
            expect: Exit status of the command; None for any.
        """
        result = CliRunner().invoke(main, ["--home", str(self.home), *arguments])
        assert expect is None or result.exit_code == expect, result.output
        return result

    def facts(self, *arguments: str, expect: int | None = 0) -> Any:
        """Document that a command prints with `--json`."""
        return json.loads(self.frazil(*arguments, "--json", expect=expect).stdout)

    def facts_of_process(self, *arguments: str) -> Any:
        """Document of a command that runs in a process of its own, such as one that ends its Spark session."""
        command = [sys.executable, "-m", "orchestration.cli.main", "--home", str(self.home), *arguments, "--json"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def rows(self, table: str, *columns: str, branch: str = "main") -> list[tuple[Any, ...]]:
        """Rows of a table.

        Args:
            columns: Names of the columns; all if none is given.
        """
        with connect_catalog(Deployment.at(self.home).settings()) as catalog:
            loaded = catalog.load_table(table)
            head = loaded.metadata.refs[branch].snapshot_id
            records = loaded.scan(selected_fields=columns or ("*",), snapshot_id=head).to_arrow().to_pylist()
        return [tuple(record[name] for name in columns or record) for record in records]

    def columns_of(self, table: str) -> list[str]:
        """Names of a table's columns."""
        with connect_catalog(Deployment.at(self.home).settings()) as catalog:
            return [field.name for field in catalog.load_table(table).schema().fields]

    def data_files(self, table: str) -> set[str]:
        """Paths of the data files of a table's newest snapshot."""
        with connect_catalog(Deployment.at(self.home).settings()) as catalog:
            return {task.file.file_path for task in catalog.load_table(table).scan().plan_files()}

    def run_stream(self, stream: str, spark: SparkSession) -> tuple[int, int, int]:
        """Land in this process what the stream's topics hold; returns records read, landed and dead."""
        deployment = Deployment.at(self.home)
        settings = deployment.settings()
        counts = drain(deployment.stream(stream), settings, KafkaLog(settings.kafka), lambda: spark).counts
        return counts.read, counts.landed, counts.dead


def differences(before: Any, now: Any, place: str = "$") -> Iterator[str]:
    """Values of a document that have changed and keys that it lacks now; new keys are no difference."""
    if isinstance(before, dict) and isinstance(now, dict):
        yield from (f"{place}.{key} is gone" for key in before.keys() - now.keys())
        for key in before.keys() & now.keys() - _MOVING:
            yield from differences(before[key], now[key], f"{place}.{key}")
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for index, (element, other) in enumerate(zip(before, now, strict=True)):
            yield from differences(element, other, f"{place}[{index}]")
    elif _as_worded_now(before) != now:
        yield f"{place}: {before!r} is {now!r}"


def _as_worded_now(value: Any) -> Any:
    if isinstance(value, str):
        for old, new in _REWORDED.items():
            value = value.replace(old, new)
    return value


def key_paths(document: Any, place: str = "$") -> set[str]:
    """Paths of all keys of a document; the elements of a list have one path."""
    if isinstance(document, dict):
        nested = (key_paths(value, f"{place}.{key}") for key, value in document.items())
        return {f"{place}.{key}" for key in document}.union(*nested)
    if isinstance(document, list):
        return set[str]().union(*(key_paths(element, f"{place}[]") for element in document))
    return set()
