"""What tests of faults have in common: deaths without a process, disks that fill up, tables that others rewrite."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pytest

from jobs.base import failpoints as steps
from jobs.streaming.driver.process.heartbeat_thread import HeartbeatThread
from jobs.streaming.driver.process.runner import StreamRunner
from jobs.streaming.supervision.documents.control_request import ControlReader
from tests.helpers.waiting import wait_for
from tests.integration.pipeline import Pipeline
from tests.integration.test_spark_reads import with_catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Died(Exception):
    """The driver got no further than this step; what it leaves behind is what a killed one leaves."""


class ArmedStep:
    """Does something at one step, once, where the real thing sends a signal; `test_kill.py` sends it."""

    def __init__(self, name: str, action: Callable[[], object]) -> None:
        assert name in steps.STEPS
        self._name: str = name
        self._action: Callable[[], object] = action
        # Seconds since 1970; None before the step is passed.
        self.passed_at: float | None = None

    def get(self, name: str) -> None:
        if name == self._name and self.passed_at is None:
            self.passed_at = time.time()
            self._action()


@contextlib.contextmanager
def at_step(monkeypatch: pytest.MonkeyPatch, name: str, action: Callable[[], object]) -> Iterator[ArmedStep]:
    """Within the block something happens when a driver of this process first passes the step, which has to come."""
    armed = ArmedStep(name, action)
    with monkeypatch.context() as patch:
        patch.setattr(steps, "_ARMED", armed)
        yield armed
    assert armed.passed_at is not None, f"nobody passed {name}"


def die(one: Pipeline, spark: SparkSession, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Drain until the named step."""

    def end() -> None:
        raise Died(name)

    with at_step(monkeypatch, name, end), pytest.raises(Died):
        one.drain(spark)


def once(action: Callable[[], object]) -> Callable[[object], None]:
    """After the first batch, and not again."""
    left = [action]
    return lambda progress: left.pop()() if left else None  # type: ignore[func-returns-value]


def compact(one: Pipeline, spark: SparkSession) -> int:
    """Let Spark rewrite all data files of the stream's table into one, and give their number before."""
    session, _ = with_catalog(spark, one)
    procedures, options = f"{one.settings().catalog.name}.system", "map('rewrite-all', 'true')"
    call = f"CALL {procedures}.rewrite_data_files(table => '{one.table_name}', options => {options})"
    return int(session.sql(call).collect()[0]["rewritten_data_files_count"])


def expire_all_but_the_head(one: Pipeline, *names: str) -> None:
    """Expire every snapshot of the tables but the newest."""
    for name in names:
        table = one.catalog().load_table(name)
        old = [s.snapshot_id for s in table.snapshots() if s.snapshot_id != table.metadata.current_snapshot_id]
        table.maintenance.expire_snapshots().by_ids(old).commit()


@contextlib.contextmanager
def small_disk(folder: Path, kib: int) -> Iterator[SmallDisk]:
    """A disk of its own, of so many KiB, on `folder`, with what was in there; skips where none may be mounted."""
    folder.mkdir(parents=True, exist_ok=True)
    aside = folder.with_name(folder.name + ".aside")
    for sudo in ((), ("sudo", "-n")):
        command = [*sudo, "mount", "-t", "tmpfs", "-o", f"size={kib}k,mode=1777", "frazil-test", str(folder)]
        with contextlib.suppress(FileNotFoundError):
            shutil.copytree(folder, aside, dirs_exist_ok=True)
            if subprocess.run(command, capture_output=True, check=False).returncode == 0:
                break
    else:
        pytest.skip("nobody here may mount a small disk")
    try:
        shutil.copytree(aside, folder, dirs_exist_ok=True)
        yield SmallDisk(folder)
    finally:
        subprocess.run([*sudo, "umount", "-l", str(folder)], capture_output=True, check=True)


class SmallDisk:
    """A mounted disk that can be filled, and given room again."""

    def __init__(self, folder: Path) -> None:
        self.folder: Path = folder
        self._filler: Path = folder / "filler"

    def fill(self) -> None:
        """Leave nothing."""
        # Others write at the same moment, so what was free may be less by then: full is full.
        with contextlib.suppress(OSError), self._filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(65536))

    def make_room(self) -> None:
        """Remove what filled it."""
        self._filler.unlink()


class DriverHere:
    """A driver in a thread of this process, on the session that the tests share."""

    def __init__(self, one: Pipeline, spark: SparkSession) -> None:
        self.heartbeat: HeartbeatThread = HeartbeatThread(
            one.folder().store, one.stream, "test", 1, one.folder().root / "driver.log"
        )
        self.problem: BaseException | None = None
        self._control: ControlReader = ControlReader(one.folder().store, 1)
        self._runner: StreamRunner = StreamRunner(
            one.spec(), one.settings(), self.heartbeat, self._control, lambda: spark
        )
        self._thread: threading.Thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self.heartbeat.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._control.signalled = True
        self._thread.join(300)
        self.heartbeat.__exit__(*exc)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._runner.run()
        except BaseException as problem:
            self.problem = problem

    def end(self) -> None:
        """Raise what ended it, if anything did."""
        if self.problem is not None:
            raise self.problem

    def retries_after(self, words: str, seconds: float = 60.0, *, step: ArmedStep | None = None) -> None:
        """Wait until the heartbeat says that the driver tries again after an error with these words.

        Where a step is given, only an error since the driver passed it counts.
        """

        def said() -> bool:
            assert self.problem is None, self.problem
            beat = self.heartbeat.current()
            if beat.state != "retrying" or beat.error is None or words not in beat.error.message:
                return False
            return step is None or (step.passed_at is not None and beat.error.at >= step.passed_at)

        wait_for(said, f"a retry after {words!r}; it is {self.heartbeat.current()}", seconds)

    def has_landed(self, rows: int, seconds: float = 60.0) -> None:
        """Wait until this driver has landed so many rows."""
        wait_for(
            lambda: self.heartbeat.current().work.landed == rows or self.problem is not None, f"{rows} rows", seconds
        )
        assert self.problem is None, self.problem
