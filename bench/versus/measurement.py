"""Measurement of a run, and its figures: the same rules for both sides, from the table and from /proc."""

from __future__ import annotations

import itertools
import statistics
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from bench.versus.formats import Format

Side: TypeAlias = Literal["frazil", "connect", "connect-bare"]

# The first commits pay for a cold start; records had stopped flowing before a last commit that is smaller than this.
WARM_SHARE = 0.25
FULL_SHARE = 0.95


@dataclass(frozen=True, slots=True)
class Commit:
    """A snapshot that added records.

    Args:
        at: Time of the commit, in seconds since 1970.
        records: Number of records that it added.
        files: Data files that it added.
        file_bytes: Size of these files in bytes.
    """

    at: float
    records: int
    files: int
    file_bytes: int


@dataclass(frozen=True, slots=True)
class Reading:
    """Resources that the processes had used by a moment.

    Args:
        at: Time of the reading, in seconds since 1970.
        cpu: CPU-seconds of the pipeline's process and all below it, children that ended included.
        broker_cpu: CPU-seconds of the broker.
        memory: Bytes of the pipeline's processes; shared pages count once (PSS). None if not measured this time.
    """

    at: float
    cpu: float
    broker_cpu: float
    memory: int | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a run, between two moments.

    Args:
        records: Committed in it.
        value_bytes: Size of the records' values.
        seconds: Wall time.
        cpu: CPU-seconds of the pipeline.
        broker_cpu: CPU-seconds of the broker.
    """

    records: int
    value_bytes: float
    seconds: float
    cpu: float
    broker_cpu: float

    @property
    def figures(self) -> dict[str, float]:
        """Figures for the comparison."""
        return {
            "records_per_second": self.records / self.seconds,
            "records_per_cpu_second": self.records / self.cpu,
            "mb_per_second": self.value_bytes / self.seconds / 1e6,
            "mb_per_cpu_second": self.value_bytes / self.cpu / 1e6,
            "cpu_seconds": self.cpu,
            "broker_cpu_seconds": self.broker_cpu,
            "seconds": self.seconds,
        }


@dataclass(frozen=True, slots=True)
class Run:
    """Run of one side, from the start of its process to its last commit.

    Args:
        side: The side that ran.
        round: Number of the round; runs of one round are neighbours in time.
        began: Start of its process, in seconds since 1970.
        commits: The commits, in order.
        readings: The readings, in order; the first at `began`.
        value_bytes: Size of all records' values.
        commit_seconds: Time in commits, as the side itself reports it; None without a report.
        facts: Other facts that the side reports.
        format: Format of the records.
    """

    side: Side
    round: int
    began: float
    commits: tuple[Commit, ...]
    readings: tuple[Reading, ...]
    value_bytes: int
    commit_seconds: float | None
    facts: dict[str, Any]
    format: Format = "json"

    @property
    def records(self) -> int:
        """Number of committed records."""
        return sum(commit.records for commit in self.commits)

    @property
    def whole(self) -> Part:
        """Seconds from the start of the process to the last commit."""
        return self._between(self.began, self.commits[-1].at, self.records)

    @property
    def steady(self) -> Part | None:
        """While it was warm and records flowed; None if there is no such stretch."""
        stretch = steady_stretch(self.commits)
        if stretch is None:
            return None
        first, last = stretch
        records = sum(commit.records for commit in self.commits[first + 1 : last + 1])
        return self._between(self.commits[first].at, self.commits[last].at, records)

    @property
    def peak_memory(self) -> int:
        """The most bytes that its processes had at once, of the moments looked at."""
        return max((reading.memory or 0 for reading in self.readings), default=0)

    @property
    def figures(self) -> dict[str, dict[str, float] | None]:
        """Figures for the comparison: of the whole run, of the steady part, and others."""
        whole = self.whole
        return {
            "whole": whole.figures,
            "steady": self.steady.figures if self.steady else None,
            "other": {
                "peak_memory_mb": self.peak_memory / 1e6,
                "commits": len(self.commits),
                "seconds_between_commits": seconds_between(self.commits),
                "files": sum(commit.files for commit in self.commits),
                "file_mb": sum(commit.file_bytes for commit in self.commits) / 1e6,
                **({} if self.commit_seconds is None else {"commit_seconds": self.commit_seconds}),
                **({} if self.commit_seconds is None else {"commit_share": self.commit_seconds / whole.seconds}),
            },
        }

    def _between(self, begin: float, end: float, records: int) -> Part:
        cpu = interpolated(self.readings, end, "cpu") - interpolated(self.readings, begin, "cpu")
        broker = interpolated(self.readings, end, "broker_cpu") - interpolated(self.readings, begin, "broker_cpu")
        return Part(records, self.value_bytes * records / self.records, end - begin, cpu, broker)


def steady_stretch(commits: Sequence[Commit]) -> tuple[int, int] | None:
    """The commits between which a side was warm and busy.

    It begins with the commit that completes the first quarter of the records, at least the second one. It ends with the
    last commit; with the one before if the last is smaller than the others, as then records had stopped flowing.

    Returns:
        The places of the two commits; None if nothing lies between them.
    """
    total = sum(commit.records for commit in commits)
    done, first = 0, None
    for place, commit in enumerate(commits):
        done += commit.records
        if place >= 1 and done >= WARM_SHARE * total:
            first = place
            break
    if first is None:
        return None
    last = len(commits) - 1
    if commits[last].records < FULL_SHARE * statistics.median(commit.records for commit in commits[1:last] or commits):
        last -= 1
    return (first, last) if last > first else None


def interpolated(readings: Sequence[Reading], at: float, what: Literal["cpu", "broker_cpu"]) -> float:
    """The usage up to a moment, on the line between the readings before and after it."""
    after = bisect_left(readings, at, key=lambda reading: reading.at)
    if after == 0:
        return getattr(readings[0], what)
    if after == len(readings):
        return getattr(readings[-1], what)
    left, right = readings[after - 1], readings[after]
    share = (at - left.at) / (right.at - left.at)
    low, high = getattr(left, what), getattr(right, what)
    return low + share * (high - low)


def seconds_between(commits: Sequence[Commit]) -> float:
    """The median time from a commit to the next; 0 where there is but one."""
    times = [commit.at for commit in commits]
    return statistics.median([b - a for a, b in itertools.pairwise(times)] or [0.0])


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure over several runs."""

    least: float
    median: float
    most: float

    @staticmethod
    def of(values: Iterable[float]) -> Spread:
        """The spread of at least one value."""
        found = sorted(values)
        return Spread(found[0], statistics.median(found), found[-1])


def ratios(runs: Sequence[Run], part: Literal["whole", "steady"], figure: str, over: Side) -> Spread | None:
    """Frazil's figure over the other side's, each round by itself: its two runs are neighbours in time.

    Returns:
        The spread over the rounds in which both have the figure; None if there is none.
    """
    return ratio_of(
        [run for run in runs if run.side == "frazil"], [run for run in runs if run.side == over], part, figure
    )


def ratio_of(
    ours: Sequence[Run], theirs: Sequence[Run], part: Literal["whole", "steady"], figure: str
) -> Spread | None:
    """A figure of runs over that of other runs, each round by itself; none has more than one run in a round.

    Returns:
        As `ratios`.
    """
    mine, others = ({run.round: (run.figures[part] or {}).get(figure) for run in side} for side in (ours, theirs))
    found = [value / other for number, value in mine.items() if value and (other := others.get(number))]
    return Spread.of(found) if found else None
