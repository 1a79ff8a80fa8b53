"""Pytest plugin that gives each process of a run the same test files in the same order, however fast the machine is.

pytest-xdist hands out tests as processes become free, so the tests that share a process, and their order, differ from
run to run. Here the files are divided before the first test: the longest first, each to the process that has least to
do, by the seconds in `tests/seconds.json`. `--record-seconds` updates that file from the run it is given to.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler.loadscope import LoadScopeScheduling

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


def file_of(node_id: str) -> str:
    """Return the path part of a node id."""
    return node_id.split("::", 1)[0]


class FixedPartScheduling(LoadScopeScheduling):
    """Scheduler of pytest-xdist for which a whole part is one unit of work, so each process gets one."""

    def schedule(self) -> None:
        """Divide the files when all processes have collected the tests, then hand the parts out."""
        if self.collection is None and self.collection_is_completed:
            node_ids = next(iter(self.registered_collections.values()))
            seconds = json.loads(SECONDS_FILE.read_text())
            self.part_of: dict[str, int] = divide_files(map(file_of, node_ids), seconds, self.numnodes)
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        return f"part {self.part_of[file_of(nodeid)]}"


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
        earlier: dict[str, float] = json.loads(SECONDS_FILE.read_text()) if SECONDS_FILE.exists() else {}
        merged = {**earlier, **{file: round(seconds, 1) for file, seconds in self.seconds.items()}}
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
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FixedPartScheduling | None:
    """Use fixed parts unless the command line names a distribution: `load` is what a bare `-n` means."""
    return FixedPartScheduling(config, log) if config.getoption("dist") == "load" else None
