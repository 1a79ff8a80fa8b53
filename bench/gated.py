"""Gated against direct, what a gate adds to freshness and costs in throughput: `python -m bench.gated`.

Starts a broker of its own in a temporary folder. Throughput: the same payments are drained by turns, by `frazil run`
into a stream that writes main and into one with a gate, each in a fresh deployment; what the publisher costs is told
apart. Freshness: by turns a driver with a steady producer lands on main, or on its branch while `frazil publish`
runs again and again; how old main is, by the stamps of its newest snapshots, is sampled.
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
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import yaml

from bench.drain import SPEC, produce
from jobs.catalog import connect_catalog
from jobs.commit.publications import publication_id
from jobs.commit.stamp_history import history
from jobs.errors import FrazilError
from jobs.local_broker.broker import LocalBroker
from jobs.spec.settings import load_settings
from jobs.supervise.stream_control import StreamControl
from orchestration.cli.demo.producer import PaymentProducer, ensure_topic

STREAM, TABLE = "payments", "orders.payments"
Side = Literal["direct", "gated"]
SIDES: tuple[Side, Side] = ("direct", "gated")
_BY = ("measuring what a gate costs", "python -m bench.gated")
_SAMPLE_SECONDS = 0.5
_START_SECONDS = 300.0
_ROOT = str(Path(__file__).resolve().parents[1])


def main() -> None:
    """Measure both by turns, print each round, and the ratios of the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--payments", type=int, default=500_000, help="drained in each run; 0: throughput is not measured"
    )
    parser.add_argument("--rounds", type=int, default=3, help="of each side")
    parser.add_argument("--seconds", type=float, default=60.0, help="for which freshness is sampled in a round")
    parser.add_argument("--rate", type=float, default=500.0, help="payments a second, for freshness")
    parser.add_argument("--every", type=float, default=10.0, help="seconds from one publication to the next")
    parser.add_argument("--json", type=Path, help="also write the facts of every round there")
    arguments = parser.parse_args()
    facts: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="frazil-gated-") as name, LocalBroker(Path(name) / "broker") as broker:
        folder, address = Path(name), broker.status().address or ""
        if arguments.payments:
            produce(address, arguments.payments)
            facts["throughput"] = [
                drained(folder / f"{side}-{number}", address, side)
                for number in range(arguments.rounds)
                for side in (SIDES if number % 2 == 0 else SIDES[::-1])
            ]
            print(throughput_lines(facts["throughput"]))
        facts["freshness"] = [
            ages(folder / f"{side}-fresh-{number}", address, f"fresh-{side}-{number}", side, arguments)
            for number in range(arguments.rounds)
            for side in (SIDES if number % 2 == 0 else SIDES[::-1])
        ]
        print(freshness_lines(facts["freshness"]))
    if arguments.json:
        arguments.json.write_text(json.dumps(facts, indent=2))


def deployment(home: Path, address: str, side: Side, topic: str, trigger: Any) -> None:
    """A deployment with the demo's stream, with a gate of three expectations or without one."""
    (home / "streams").mkdir(parents=True)
    (home / "frazil.yaml").write_text(yaml.safe_dump({"kafka": {"bootstrap_servers": address}}))
    spec = yaml.safe_load(SPEC.read_text()) | {"trigger": trigger}
    spec["source"] |= {"topics": [topic], "max_records_per_batch": 100_000}
    if side == "gated":
        expectations = [
            {"expect_column_values_to_not_be_null": {"column": "id"}},
            {"expect_column_values_to_not_be_null": {"column": "payer"}},
            {"expect_column_values_to_be_between": {"column": "amount", "min_value": 0}},
        ]
        spec |= {"contract": {"expectations": expectations}, "publish": {"gate": "contract"}}
    (home / "streams" / f"{STREAM}.yaml").write_text(yaml.safe_dump(spec, sort_keys=False))


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


def drained(home: Path, address: str, side: Side) -> dict[str, Any]:
    """One `frazil run`, and of a gated stream one publication of all of it."""
    deployment(home, address, side, STREAM, "available_now")
    facts = json.loads(frazil(home, "run", STREAM, "--json"))
    if not facts["adds_up"]:
        raise SystemExit(f"{side}: it does not add up: {facts['records']}")
    whole, steady = facts["whole"], facts["steady"]
    found = {
        "side": side,
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
    """By the newest snapshot's own count."""
    head = connect_catalog(load_settings(None, home=home)).load_table(TABLE).current_snapshot()
    return int(head.summary.additional_properties["total-records"]) if head and head.summary else 0


def main_through(home: Path, side: Side) -> float | None:
    """Through when main is complete, by its newest stamp; seconds since 1970."""
    metadata = connect_catalog(load_settings(None, home=home)).load_table(TABLE).metadata
    newest = history(metadata, publication_id(STREAM) if side == "gated" else STREAM).newest
    through_ms = newest.valid_through_ms if newest else None
    return None if through_ms is None else through_ms / 1000


def ages(home: Path, address: str, topic: str, side: Side, arguments: argparse.Namespace) -> dict[str, Any]:
    """How old main is, sampled while a driver lands and, of a gated stream, a publisher publishes."""
    deployment(home, address, side, topic, {"every": "1s"})
    ensure_topic(address, topic)
    producer = PaymentProducer(address, topic, 0, 10**9, arguments.rate)
    control, sampled, took = StreamControl(home, None, STREAM), [], []
    producer.start()
    try:
        control.start(*_BY)
        with publishing(home, side, arguments.every, took):
            wait(lambda: known(home, side) is not None, f"main of the {side} stream", _START_SECONDS)
            until = time.monotonic() + arguments.seconds
            while time.monotonic() < until:
                through = known(home, side)
                if through is not None:
                    sampled.append(time.time() - through)
                time.sleep(_SAMPLE_SECONDS)
    finally:
        control.stop(*_BY)
        producer.stop()
    found = {"side": side, "median_age": statistics.median(sampled), "greatest_age": max(sampled)}
    if took:
        found |= {"publications": len(took), "publication_seconds": statistics.median(took)}
    print(json.dumps(found), flush=True)
    return found


def known(home: Path, side: Side) -> float | None:
    """As `main_through`; None while the table is not there."""
    try:
        return main_through(home, side)
    except Exception as problem:
        if type(problem).__name__ in ("NoSuchTableError", "NoSuchNamespaceError", "NoCatalogYet", "OperationalError"):
            return None
        raise


@contextmanager
def publishing(home: Path, side: Side, every: float, took: list[float]) -> Iterator[None]:
    """Publish again and again, each time by the command that users run; nothing of a direct stream."""
    ends = threading.Event()

    def publish() -> None:
        while not ends.is_set():
            began = time.monotonic()
            try:
                frazil(home, "publish", STREAM)
                took.append(time.monotonic() - began)
            except subprocess.CalledProcessError:
                # Its table is not there yet.
                ends.wait(1.0)
            ends.wait(max(0.0, every - (time.monotonic() - began)))

    thread = threading.Thread(target=publish, name="publisher")
    if side == "gated":
        thread.start()
    try:
        yield
    finally:
        ends.set()
        if thread.ident:
            thread.join()


def wait(there: Callable[[], bool], what: str, seconds: float) -> None:
    """Wait for something, with a deadline."""
    deadline = time.monotonic() + seconds
    while not there():
        if time.monotonic() > deadline:
            raise FrazilError(f"{what} was not there within {seconds:.0f} s", fix="python -m bench.gated")
        time.sleep(0.5)


def of(facts: list[dict[str, Any]], side: Side, figure: str) -> float:
    """The median of a figure over the rounds of one side."""
    return statistics.median(each[figure] for each in facts if each["side"] == side)


def throughput_lines(facts: list[dict[str, Any]]) -> str:
    """The medians of both sides, and their ratios."""
    lines = []
    for figure in ("steady_per_cpu_second", "whole_per_cpu_second", "steady_per_second"):
        direct, gated = of(facts, "direct", figure), of(facts, "gated", figure)
        lines.append(f"{figure}: direct {direct:,.0f}, gated {gated:,.0f}, ratio {gated / direct:.3f}")
    cpu, seconds = of(facts, "gated", "publish_cpu_seconds"), of(facts, "gated", "publish_seconds")
    lines.append(f"the publication of all: {seconds:.1f} s, {cpu:.1f} CPU-seconds")
    return "\n".join(lines)


def freshness_lines(facts: list[dict[str, Any]]) -> str:
    """The medians of both sides, and what the gate adds."""
    direct, gated = of(facts, "direct", "median_age"), of(facts, "gated", "median_age")
    took = of(facts, "gated", "publication_seconds")
    more = f"{gated - direct:.1f} s more; a publication takes {took:.1f} s"
    return f"main is {direct:.1f} s old direct, {gated:.1f} s gated: {more}"


if __name__ == "__main__":
    main()
