"""Gated against direct, what a gate adds to freshness and costs in throughput: `python -m bench.gated`.

Starts a broker of its own in a temporary folder, and measures both sides by turns, in pairs of rounds, so that what
else the machine does meets both; what is told is the median of the pairs' ratios, with the least and the greatest.

Throughput: the same payments are drained by `frazil run` into a stream that writes main and into one with a gate, each
in a fresh deployment. What the publisher costs is told apart: it is another process, which delays no batch.

Freshness: a driver with a steady producer lands on main, or on its branch while the gate is published as often as
`--every` says, by the function of a Dagster run; how old main is, as status and checks say it, is sampled.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.by_turns import pairs_of, spread, turns
from bench.drain import produce
from bench.gated_deployment import SIDES, STREAM, TABLE, Side, deployment
from bench.gated_freshness import freshness
from jobs.clients.catalog.catalog import connect_catalog
from jobs.config.settings.settings import load_settings
from jobs.local.broker.broker import LocalBroker

MOST_COST = 0.03
"""Most that a gate may cost in throughput."""
_ROOT = str(Path(__file__).resolve().parents[1])


def main() -> None:
    """Measure both by turns, print each round, and what the pairs say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--payments", type=int, default=300_000, help="landed in each round; 0: no throughput")
    parser.add_argument("--rounds", type=int, default=5, help="pairs of rounds, for throughput")
    parser.add_argument("--fresh-rounds", type=int, default=2, help="pairs of rounds, for freshness; 0: none")
    parser.add_argument("--seconds", type=float, default=180.0, help="for which freshness is sampled in a round")
    parser.add_argument("--rate", type=float, default=500.0, help="payments a second, for freshness")
    parser.add_argument("--every", type=float, default=60.0, help="seconds from one publication to the next")
    parser.add_argument("--json", type=Path, help="also write the facts of every round there")
    arguments = parser.parse_args()
    facts: dict[str, list[dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory(prefix="frazil-gated-") as name, LocalBroker(Path(name) / "broker") as broker:
        folder, address = Path(name), broker.status().address or ""
        if arguments.payments and arguments.rounds:
            produce(address, arguments.payments)
            facts["throughput"] = [
                drained(folder / f"{side}-{number}", address, _side(side), number, arguments.payments)
                for number, side in turns(SIDES, arguments.rounds)
            ]
            print(throughput_lines(facts["throughput"]))
        if arguments.fresh_rounds:
            facts["freshness"] = [
                freshness(folder / f"fresh-{side}-{number}", address, _side(side), number, arguments)
                for number, side in turns(SIDES, arguments.fresh_rounds)
            ]
            print(freshness_lines(facts["freshness"]))
    if arguments.json:
        arguments.json.write_text(json.dumps(facts, indent=2))


def _side(name: str) -> Side:
    return "gated" if name == "gated" else "direct"


def frazil(home: Path, *arguments: str) -> str:
    """Run a command of frazil's; what it prints."""
    command = [sys.executable, "-m", "orchestration.cli.main", "--home", str(home), *arguments]
    path = os.pathsep.join(filter(None, [_ROOT, os.environ.get("PYTHONPATH")]))
    return subprocess.run(
        command, stdout=subprocess.PIPE, check=True, text=True, env={**os.environ, "PYTHONPATH": path}
    ).stdout


def children_cpu() -> float:
    """Processor seconds of all processes that were started here and have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def drained(home: Path, address: str, side: Side, number: int, payments: int) -> dict[str, Any]:
    """Run `frazil run`, and publish all rows once if the stream is write-audit-publish.

    Args:
        home: Folder of a new deployment.
        address: Address of the broker.
        side: The side that runs.
        number: Number of the pair.
        payments: Number of waiting payments; a batch is a sixth of them, and the steady part lacks the first batch.
    """
    deployment(home, address, side, STREAM, "available_now", max(1, payments // 6))
    facts = json.loads(frazil(home, "run", STREAM, "--json"))
    if not facts["adds_up"]:
        raise SystemExit(f"{side}: it does not add up: {facts['records']}")
    whole, steady = facts["whole"], facts["steady"]
    found = {
        "side": side,
        "round": number,
        "steady_per_cpu_second": steady["records_per_cpu_second"],
        "steady_per_second": steady["records_per_second"],
        "whole_per_cpu_second": whole["records_per_cpu_second"],
        "commit_share": facts["commit_share"],
    }
    if side == "gated":
        before, began = children_cpu(), time.monotonic()
        frazil(home, "publish", STREAM)
        found |= {"publish_seconds": time.monotonic() - began, "publish_cpu_seconds": children_cpu() - before}
    rows, expected = rows_of_main(home), facts["records"]["landed"]
    if rows != expected:
        raise SystemExit(f"{side}: main has {rows:,} rows of {expected:,}")
    print(json.dumps(found), flush=True)
    return found


def rows_of_main(home: Path) -> int:
    """Rows of the table, by the newest snapshot's own count."""
    head = connect_catalog(load_settings(None, home=home)).load_table(TABLE).current_snapshot()
    return int(head.summary.additional_properties["total-records"]) if head and head.summary else 0


def throughput_lines(facts: list[dict[str, Any]]) -> str:
    """The medians of both sides, and what the pairs say."""
    lines: list[str] = []
    for figure in ("steady_per_cpu_second", "whole_per_cpu_second", "steady_per_second"):
        pairs = pairs_of(facts, SIDES, figure)
        direct, gated = statistics.median(pairs.first), statistics.median(pairs.second)
        lines.append(f"{figure}: direct {direct:,.0f}, gated {gated:,.0f}, ratios {spread(pairs.ratios)}")
    ratios = pairs_of(facts, SIDES, "steady_per_cpu_second").ratios
    cost = 1 - statistics.median(ratios)
    lines.append(
        f"write-audit-publish costs {cost:.1%} of the steady records per CPU-second, of {MOST_COST:.0%} that it may"
    )
    own = [each for each in facts if each["side"] == "gated"]
    cpu = statistics.median(each["publish_cpu_seconds"] for each in own)
    seconds = statistics.median(each["publish_seconds"] for each in own)
    lines.append(f"the publication of all, beside it: {seconds:.1f} s, {cpu:.1f} CPU-seconds")
    return "\n".join(lines)


def freshness_lines(facts: list[dict[str, Any]]) -> str:
    """The medians of both sides, and the difference that the gate makes."""
    ages = pairs_of(facts, SIDES, "median_age")
    own = [each for each in facts if each["side"] == "gated"]
    took, cpu, rows = (
        statistics.median(each[f"publication_{name}"] for each in own) for name in ("seconds", "cpu_seconds", "rows")
    )
    return (
        f"main is {spread(ages.first, '.1f')} s old direct, {spread(ages.second, '.1f')} s with write-audit-publish: "
        f"{spread(ages.differences, '.1f')} s more\na publication of {rows:,.0f} rows takes {took:.1f} s and "
        f"{cpu:.1f} CPU-seconds"
    )


if __name__ == "__main__":
    main()
