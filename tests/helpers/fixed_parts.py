"""Pytest plugin that divides the test files of a run over its processes, by the seconds in `tests/seconds.json`.

`--dist load`, which is what a bare `-n` means, gives each process the same files in the same order in each run, however
fast the machine is: the files are divided before the first test, the longest first, each to the process that has least
to do. `--dist loadfile` hands the files out as processes become free, the longest first: no process waits for another
one on a machine whose load differs from that of the recorded run. `--record-seconds` updates the file from the run it
is given to.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler.loadfile import LoadFileScheduling
from xdist.scheduler.loadscope import LoadScopeScheduling
from xdist.workermanage import WorkerController

SECONDS_FILE = Path(__file__).resolve().parents[1] / "seconds.json"
# An unlisted file counts as this. Files with real parts take far longer, so each has an entry.
DEFAULT_SECONDS = 1.0
REAL_PARTS = "tests/integration/"


def divide_files(files: Iterable[str], seconds: Mapping[str, float], parts: int) -> dict[str, int]:
    """Return the part, 0 to `parts` - 1, of each file, such that all parts take about as long."""
    part_of: dict[str, int] = {}
    totals = [0.0] * parts
    for file in sorted(set(files), key=lambda name: (-seconds.get(name, DEFAULT_SECONDS), name)):
        part = totals.index(min(totals))
        part_of[file] = part
        totals[part] += seconds.get(file, DEFAULT_SECONDS)
    return part_of


def longest_file(files: Iterable[str], seconds: Mapping[str, float]) -> str:
    """Return the file that takes longest, of equals the first by name."""
    return min(files, key=lambda file: (-seconds.get(file, DEFAULT_SECONDS), file))


def recorded_seconds() -> dict[str, float]:
    """Return the seconds of `tests/seconds.json`, by the file's path."""
    return json.loads(SECONDS_FILE.read_text()) if SECONDS_FILE.exists() else {}


def file_of(node_id: str) -> str:
    """Return the path part of a node id."""
    return node_id.split("::", 1)[0]


class FixedPartScheduling(LoadScopeScheduling):
    """Scheduler of pytest-xdist for which a whole part is one unit of work, so each process gets one."""

    def schedule(self) -> None:
        """Divide the files when all processes have collected the tests, then hand the parts out."""
        if self.collection is None and self.collection_is_completed:
            node_ids = next(iter(self.registered_collections.values()))
            self.part_of: dict[str, int] = divide_files(map(file_of, node_ids), recorded_seconds(), self.numnodes)
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        return f"part {self.part_of[file_of(nodeid)]}"


class LongestFirstScheduling(LoadFileScheduling):
    """Scheduler of pytest-xdist that gives a process that becomes free the longest file that is left."""

    def __init__(self, config: pytest.Config, log: Any = None) -> None:
        super().__init__(config, log)
        self.seconds: Mapping[str, float] = recorded_seconds()

    def _assign_work_unit(self, node: WorkerController) -> None:
        self.workqueue.move_to_end(longest_file(self.workqueue, self.seconds), last=False)
        super()._assign_work_unit(node)


class SecondsRecorder:
    """Pytest plugin that adds up the seconds of each file's tests and writes them down at the end."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count set-up, call and teardown of a test."""
        self.seconds[file_of(report.nodeid)] += report.duration

    def pytest_sessionfinish(self) -> None:
        """Replace the entries of the files that ran, and drop those of files that no longer exist."""
        root = SECONDS_FILE.parents[1]
        merged = {**recorded_seconds(), **{file: round(seconds, 1) for file, seconds in self.seconds.items()}}
        lasting = {file: merged[file] for file in sorted(merged) if (root / file).exists()}
        listed = {
            file: seconds
            for file, seconds in lasting.items()
            if file.startswith(REAL_PARTS) or abs(seconds - DEFAULT_SECONDS) > 0.5
        }
        SECONDS_FILE.write_text(json.dumps(listed, indent=0) + "\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--record-seconds`."""
    parser.addoption("--record-seconds", action="store_true", help="write tests/seconds.json from this run")


def pytest_configure(config: pytest.Config) -> None:
    """Record seconds in the process that gets all reports."""
    if config.getoption("record_seconds") and not hasattr(config, "workerinput"):
        config.pluginmanager.register(SecondsRecorder(), "seconds-recorder")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FixedPartScheduling | LongestFirstScheduling | None:
    """Choose the scheduler of the two distributions that this plugin knows; pytest-xdist has the others."""
    match config.getoption("dist"):
        case "load":
            return FixedPartScheduling(config, log)
        case "loadfile":
            return LongestFirstScheduling(config, log)
        case _:
            return None
