"""Mirrors of a database under TPC-B, beside `foreachBatch` with MERGE: `python -m bench.mirror`.

PostgreSQL runs pgbench, Debezium brings the changes of one of its tables to a topic, and by turns each side keeps a
table equal to it: frazil by a changelog and a mirror merged `--every` so many seconds, the other by a stream of Spark
whose batches of the same interval are deduplicated by `row_number` and merged into main. Each round has a deployment of
its own, first takes up all that the topic has by then, which is the catch-up, and then follows pgbench for `--seconds`.

A mirror's lag is from the commit of a probe in PostgreSQL to that of the first snapshot of main which has it. CPU is
that of the side's processes. Bytes of change are those of keys and values without the schemas that come with each
record; bytes written are all files of the side's tables, those of frazil's changelog among them, which the other side
does not have. Only ratios of one run mean something.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from bench.by_turns import pairs_of, spread, turns
from bench.mirror_sides import SIDES, Mirror, Side, Ways, maintain, running
from bench.mirror_source import PgbenchSource, pgbench_source
from bench.versus.measurement import interpolated
from bench.versus.process_usage import UsageSampler
from jobs.base.errors import FrazilError
from jobs.local.broker.broker import LocalBroker

_MAINTAINED_EVERY = 60.0


def main() -> None:
    """Run the rounds, print each and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=int, default=1, help="pgbench's: 100,000 accounts each")
    parser.add_argument("--table", choices=["accounts", "tellers", "branches"], default="accounts")
    parser.add_argument("--seconds", type=int, default=120, help="of pgbench in each round")
    parser.add_argument("--rate", type=int, default=300, help="transactions a second, each of which changes a row")
    parser.add_argument("--every", type=int, default=30, help="seconds between merges")
    parser.add_argument("--land", type=int, default=5, help="seconds between batches of frazil's changelog")
    parser.add_argument("--buckets", type=int, default=2, help="of both tables' partitions")
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=1, help="pairs")
    parser.add_argument("--first", choices=SIDES, default=SIDES[0], help="whose turn is first")
    parser.add_argument("--mode", choices=["merge-on-read", "copy-on-write"], default="merge-on-read", help="of MERGE")
    parser.add_argument("--json", type=Path, help="also write the facts of every round there")
    given = parser.parse_args()
    facts: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="frazil-mirror-") as name, LocalBroker(Path(name) / "broker") as broker:
        status = broker.status()
        assert status.address is not None and status.pid is not None
        folder = Path(name)
        with pgbench_source(folder / "connect", status.address, given.scale, given.table, given.partitions) as source:
            _say(f"{sum(source.end().values()):,} rows of the first snapshot")
            former, latter = SIDES
            sides: tuple[Side, Side] = (former, latter) if given.first == former else (latter, former)
            order: Iterator[tuple[int, Side]] = turns(sides, given.rounds)
            for number, side in order:
                home = folder / f"{number}-{SIDES.index(side)}"
                facts.append({"side": side, "round": number, **_round(side, home, source, status.pid, given)})
                print(json.dumps(facts[-1]), flush=True)
                if given.json:
                    given.json.write_text(json.dumps(facts, indent=2))
    print("\n".join(summary(facts)))


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _round(side: Side, home: Path, source: PgbenchSource, broker: int, given: argparse.Namespace) -> dict[str, Any]:
    first = source.probe()
    began = time.time()
    with running(side, home, source, Ways(given.every, given.land, given.mode, given.buckets)) as mirror:
        with UsageSampler(mirror.pid, broker) as usage:
            mirror.wait_for_probe(first)
            caught, whole = time.time(), sum(source.end().values())
            _say(f"{side} has caught up; pgbench works for {given.seconds} s")
            written = mirror.written()
            with _maintained(side, home, given) as maintenance:
                transactions = source.run(given.seconds, given.rate)
            last = source.probe()
            mirror.wait_for_probe(last)
            done = time.time()
            _equal(mirror, source, given.every)
        changes = sum(source.end().values()) - whole
        lags = mirror.lags(first + 1)
        readings = usage.readings
        catch_up = interpolated(readings, caught, "cpu")
        cpu = interpolated(readings, done, "cpu") - catch_up
        return {
            "transactions": transactions,
            "catch_up_changes": whole,
            "catch_up_seconds": round(caught - began, 1),
            "catch_up_cpu": round(catch_up, 1),
            "catch_up_per_cpu_second": round(whole / catch_up),
            "changes": changes,
            "cpu": round(cpu, 1),
            "changes_per_cpu_second": round(changes / cpu, 1),
            "maintenance_cpu": [round(each, 1) for each in maintenance],
            "lag_median": round(float(np.percentile(lags, 50)), 1),
            "lag_p99": round(float(np.percentile(lags, 99)), 1),
            "amplification": round((mirror.written() - written) / (changes * source.bytes_of_change()), 2),
            "memory_mb": round(max(each.memory or 0 for each in readings) / 1e6),
            "deletes": _thinned(mirror.deletes()),
        }


@contextmanager
def _maintained(side: Side, home: Path, given: argparse.Namespace) -> Iterator[list[float]]:
    """Maintenance of frazil's mirror meanwhile, each minute; the CPU-seconds of each time."""
    took: list[float] = []
    ending = threading.Event()

    def work() -> None:
        while not ending.wait(_MAINTAINED_EVERY):
            took.append(maintain(home, given.table))

    thread = threading.Thread(target=work, name="maintenance", daemon=True)
    if side == "frazil":
        thread.start()
    try:
        yield took
    finally:
        ending.set()
        if side == "frazil":
            thread.join()


def _equal(mirror: Mirror, source: PgbenchSource, every: int) -> None:
    """Wait until a mirror has the source's rows: as many, with the same sum of balances.

    Raises:
        FrazilError: Mirror and source still differ after several merges.
    """
    deadline = time.monotonic() + 4 * every + 60
    while (found := mirror.totals()) != (wanted := source.totals()):
        if time.monotonic() > deadline:
            raise FrazilError(f"the mirror has {found} (rows, sum), the source {wanted}", fix="look for the difference")
        time.sleep(2)


def _thinned(deletes: list[tuple[float, int, int]], most: int = 12) -> list[tuple[float, int, int]]:
    """Thin points out to at most `most`, including the last one."""
    step = -(-len(deletes) // most)
    return deletes[::-1][::step][::-1]


def summary(facts: list[dict[str, Any]]) -> list[str]:
    """A line for each figure: both sides by rounds, and the ratios of pairs."""
    lines: list[str] = []
    for figure, unit in (
        ("catch_up_per_cpu_second", "changes per CPU-second in the catch-up"),
        ("changes_per_cpu_second", "changes per CPU-second behind pgbench"),
        ("lag_median", "s, the median lag"),
        ("lag_p99", "s, the lag of 99 %"),
        ("amplification", "bytes written per byte of change"),
    ):
        pairs = pairs_of(facts, SIDES, figure)
        first, second = (spread(each, ".2f") for each in (pairs.first, pairs.second))
        lines.append(f"{unit}: {SIDES[0]} {first}, {SIDES[1]} {second}; {spread(pairs.ratios, '.2f')} ×")
    for side in SIDES:
        last = [each for each in facts if each["side"] == side][-1]
        shown = ", ".join(f"{at:.0f} s: {files} of {size / 1e3:.0f} KB" for at, files, size in last["deletes"])
        lines.append(f"delete files of {side}: {shown}")
    return lines


if __name__ == "__main__":
    main()
