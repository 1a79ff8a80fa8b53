"""Month of a stream's table under frazil's maintenance, in minutes: `python -m bench.month`.

Twice the demo's table with 4 MB of payments a minute, in two files a commit: with one commit a minute, and with one
every ten seconds. Each simulated hour the product measures the table, plans by the default policy, and the plan is
carried out. The same without maintenance, for as long as it takes to 1,440 commits, is the contrast.

Real: the catalog (SQLite), the stream's commits with their stamps, manifests, manifest lists and snapshots, PyIceberg,
the product's measuring, planning and cutting of snapshots; and of each hour the last commits, which are timed, with the
metadata files that they read and write. Simulated: the clock; the data files, of which only the descriptions exist; the
metadata files between the timed commits; and what Spark does, see `bench/simulated_maintenance.py`.

Writes the plot of docs/explanation/maintenance.md. Status 1 if something does not stay flat.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import astuple, dataclass, fields
from datetime import UTC, datetime, timedelta
from multiprocessing import get_context
from pathlib import Path

from bench.simulated_maintenance import Maintenance
from bench.time_lapse import TimeLapse
from jobs.config.services.maintenance_policy import Policy
from jobs.maintenance.measure.health_measurement import measure_health
from jobs.maintenance.measure.health_score import score

PLOT = Path(__file__).resolve().parents[1] / "docs" / "images" / "maintenance-month.png"
TASKS, BYTES_PER_MINUTE = 2, 4 * 1024**2
HOUR = timedelta(hours=1)
FLAT = {"snapshots": 1.1, "manifests": 1.25, "metadata_bytes": 1.1, "commit_ms": 1.5}
"""Most that each figure's median of the last day may be, as a multiple of that of the second day."""
_CONTRAST_COMMITS = 1440


@dataclass(frozen=True, slots=True)
class Case:
    """A table to simulate.

    Args:
        trigger: Seconds from one commit to the next.
        hours: Length of the period.
        maintained: Whether frazil maintains it.
        timed: Commits of each hour that are timed.
    """

    trigger: int
    hours: int
    maintained: bool
    timed: int

    @property
    def name(self) -> str:
        """The period's name in print."""
        every = "a minute" if self.trigger == 60 else f"every {self.trigger} s"
        return f"one commit {every}, {'maintained' if self.maintained else 'without maintenance'}"


@dataclass(frozen=True, slots=True)
class Hour:
    """A table at the end of an hour, right before its maintenance: when there is most of everything.

    Attributes:
        hour: Number of the hour, from 1.
        commit_ms: Median of the timed commits.
        score: Health score of the table.
        rewritten_bytes: Bytes that compaction would have rewritten since the beginning.
    """

    trigger: int
    maintained: bool
    hour: int
    snapshots: int
    manifests: int
    metadata_bytes: int
    data_files: int
    commit_ms: float
    score: int
    rewritten_bytes: int


def main() -> None:
    """Simulate all cases, two at a time; print, write and draw what came of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--days", type=float, default=30, help="of one commit a minute")
    parser.add_argument("--fast-days", type=float, default=5, help="of one commit every ten seconds")
    parser.add_argument("--timed", type=int, default=3, help="commits of each hour that are timed")
    parser.add_argument("--jobs", type=int, default=2, help="cases simulated at the same time")
    parser.add_argument("--plot", type=Path, default=PLOT)
    parser.add_argument("--csv", type=Path, help="also write every hour there")
    parser.add_argument("--from", dest="source", type=Path, metavar="CSV", help="simulate nothing, and draw this file")
    arguments = parser.parse_args()
    if arguments.source is not None:
        hours = read(arguments.source)
    else:
        hours = all_of(cases(arguments.days, arguments.fast_days, arguments.timed), arguments.jobs)
    if arguments.csv is not None:
        write(arguments.csv, hours)
    from bench.plots import plot_month

    plot_month(hours, arguments.plot)
    problems = [problem for case in by_case(hours) for problem in told(case)]
    for problem in problems:
        print(f"does not hold: {problem}", file=sys.stderr)
    sys.exit(bool(problems))


def cases(days: float, fast_days: float, timed: int) -> list[Case]:
    """The four tables, those that take longest first."""
    return [
        Case(trigger, hours, maintained=maintained, timed=timed)
        for maintained in (True, False)
        for trigger, whole in ((60, days), (10, fast_days))
        for hours in [round(24 * whole) if maintained else _CONTRAST_COMMITS * trigger // 3600]
    ]


def all_of(chosen: Sequence[Case], jobs: int) -> list[Hour]:
    """Simulate cases, and return all their hours."""
    began = time.monotonic()
    hours: list[Hour] = []
    with (
        tempfile.TemporaryDirectory(prefix="frazil-month-") as folder,
        ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool,
    ):
        running = {pool.submit(simulate, Path(folder) / str(n), case): case for n, case in enumerate(chosen)}
        for future in as_completed(running):
            hours += future.result()
            print(f"{running[future].name}: simulated after {time.monotonic() - began:.0f} s", file=sys.stderr)
    return sorted(hours, key=lambda each: (not each.maintained, -each.trigger, each.hour))


def simulate(folder: Path, case: Case) -> list[Hour]:
    """Simulate a table hour by hour."""
    # In the past: PyIceberg dates no snapshot before another one, and the clock of this host goes on meanwhile.
    begin = (datetime.now(UTC) - case.hours * HOUR).replace(hour=0, minute=0, second=0, microsecond=0) - 24 * HOUR
    lapse = TimeLapse(folder, begin, timedelta(seconds=case.trigger), TASKS, BYTES_PER_MINUTE)
    maintenance = Maintenance(lapse, Policy())
    per_hour = 3600 // case.trigger
    hours: list[Hour] = []
    for hour in range(1, case.hours + 1):
        with lapse.collecting():
            for _ in range(per_hour - case.timed):
                lapse.commit()
        times = lapse.timed(case.timed)
        facts = measure_health(lapse.table, Policy(), lapse.now)
        hours.append(
            Hour(
                case.trigger,
                case.maintained,
                hour,
                facts.snapshots,
                facts.manifests,
                facts.metadata_bytes,
                facts.data_files,
                round(statistics.median(times), 2),
                score(facts, Policy()).total,
                maintenance.rewritten,
            )
        )
        if case.maintained:
            maintenance.run()
        if not hour % 24:
            print(f"{case.name}: day {hour // 24}", file=sys.stderr, flush=True)
    lapse.close()
    return hours


def by_case(hours: Iterable[Hour]) -> list[list[Hour]]:
    """The hours of each table."""
    found: dict[tuple[int, bool], list[Hour]] = {}
    for hour in hours:
        found.setdefault((hour.trigger, hour.maintained), []).append(hour)
    return list(found.values())


def told(hours: Sequence[Hour]) -> list[str]:
    """Print what became of a table, and give what did not stay flat."""
    first = hours[0]
    case = Case(first.trigger, len(hours), first.maintained, 0)
    days = len(hours) / 24
    print(f"{case.name}, {len(hours) * 3600 // case.trigger:,} commits in {days:.4g} days")
    early, late = (hours[24:48], hours[-24:]) if days >= 3 else (hours[: len(hours) // 2], hours[-1:])
    problems: list[str] = []
    for figure in ("snapshots", "manifests", "metadata_bytes", "commit_ms", "data_files", "score"):
        then, now = (statistics.median(getattr(hour, figure) for hour in part) for part in (early, late))
        most = max(getattr(hour, figure) for hour in hours)
        print(f"  {figure}: {then:,.0f} at first, {now:,.0f} at last, {most:,.0f} at most")
        if case.maintained and days >= 3 and now > FLAT.get(figure, float("inf")) * then:
            problems.append(f"{case.name}: {figure} rose from {then:,.0f} to {now:,.0f}")
    if case.maintained:
        written = len(hours) * 60 * BYTES_PER_MINUTE
        print(f"  rewritten: each byte {hours[-1].rewritten_bytes / written:.1f} times")
    return problems


def write(path: Path, hours: Iterable[Hour]) -> None:
    """Write hours as CSV, a line for each."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([field.name for field in fields(Hour)])
        writer.writerows(astuple(hour) for hour in hours)


def read(path: Path) -> list[Hour]:
    """Read the hours that `write` has written."""
    with path.open(newline="") as file:
        return [
            Hour(**{k: v == "True" if k == "maintained" else float(v) if "." in v else int(v) for k, v in row.items()})  # type: ignore[arg-type]
            for row in csv.DictReader(file)
        ]


if __name__ == "__main__":
    main()
