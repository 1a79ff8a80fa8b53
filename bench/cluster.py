"""Cluster benchmark, a topic drained on a standalone cluster and in the driver alone: `python -m bench.cluster`.

One topic of four partitions is drained again and again, by turns: with tasks in the driver on one and on two cores
(`local[1]`, `local[2]`), and on a standalone cluster with one and with two executors of one core. Each drain is a
driver of its own with tables of its own, in the embedded catalog, whose folder the workers of this machine see as well.
Master and workers run all the time; the tasks of all sides are as many, and as large.

`steady` is from the first batch's commit to the last. CPU is that of the driver with its JVM and Python workers, and of
master, workers and executors where the side has them; the broker's is left out. Only ratios within one run mean
something: of each round, so that what else the machine does meets all sides.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from bench.by_turns import Pairs, pairs_of, spread
from bench.drain import SPEC, produce
from jobs.base.system.cpu import tree_cpu_seconds
from jobs.clients.kafka.metadata import KafkaLog
from jobs.clients.spark.end import end_spark
from jobs.clients.spark.session import start_session
from jobs.config.settings.loading import load_stream
from jobs.config.settings.settings import load_settings
from jobs.local.broker.broker import LocalBroker
from jobs.streaming.driver.process.drain import drain
from orchestration.cli.streams.run.measurement import Meter, run_facts
from tests.helpers.spark_cluster import CLUSTER_SECRET, SECRET_VARIABLE, SparkCluster, spark_cluster

ROOT = Path(__file__).resolve().parents[1]
SIDES = ("local[1]", "local[2]", "cluster of 1", "cluster of 2")
_WORKERS = 2
_TASKS = "2"
_EFFICIENCY_AIM, _COST_AIM = 0.85, 0.15


def main() -> None:
    """Produce once, drain by turns, print each drain and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--payments", type=int, default=4_000_000)
    parser.add_argument("--batch", type=int, default=500_000, help="max_records_per_batch")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="also write the facts of every one-off run there")
    parser.add_argument("--drain", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--pids", type=json.loads, default=[], help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.drain is not None:
        print(json.dumps(drained(given.drain, given.pids)))
        return
    facts: list[dict[str, Any]] = []
    with (
        tempfile.TemporaryDirectory(prefix="frazil-cluster-") as name,
        LocalBroker(Path(name) / "broker") as broker,
        spark_cluster(
            Path(name) / "cluster", "master", *(f"worker{number + 1}" for number in range(_WORKERS))
        ) as cluster,
    ):
        cluster.wait_for_workers(_WORKERS)
        address = broker.status().address or ""
        produce(address, given.payments)
        for number in range(given.rounds):
            for side in ordered(number):
                await_idle(cluster)
                home = deployment(Path(name) / f"{number}-{SIDES.index(side)}", side, address, cluster, given.batch)
                facts.append({"side": side, "round": number, **in_a_process(home, side, cluster)})
                print(line(facts[-1]), flush=True)
    print("\n".join(summary(facts)))
    if given.json:
        given.json.write_text(json.dumps(facts, indent=2))


def ordered(number: int) -> Sequence[str]:
    """The sides of a round: each round goes the other way round than the one before."""
    return SIDES if number % 2 == 0 else SIDES[::-1]


def deployment(home: Path, side: str, address: str, cluster: SparkCluster, batch: int) -> Path:
    """A deployment's folder, with the demo's stream."""
    (home / "streams").mkdir(parents=True)
    conf = {"spark.ui.enabled": "false", "spark.default.parallelism": _TASKS}
    if side in SIDES[:2]:
        spark: dict[str, Any] = {"master": side, "conf": conf}
    else:
        cores = side.rpartition(" ")[2]
        spark = {"master": cluster.url, "conf": {**cluster.conf, **conf, "spark.cores.max": cores}}
    (home / "frazil.yaml").write_text(yaml.safe_dump({"kafka": {"bootstrap_servers": address}, "spark": spark}))
    spec = yaml.safe_load(SPEC.read_text()) | {"trigger": "available_now"}
    spec["source"]["max_records_per_batch"] = batch
    (home / "streams" / "payments.yaml").write_text(yaml.safe_dump(spec))
    return home


def await_idle(cluster: SparkCluster) -> None:
    """Wait until the master has no application and no executor runs, so that the next one finds all cores.

    Raises:
        SystemExit: The cluster is not idle within a minute.
    """
    deadline = time.monotonic() + 60.0
    while cluster.state()["activeapps"] or cluster.executors():
        if time.monotonic() > deadline:
            raise SystemExit("the cluster did not end its executors within a minute")
        time.sleep(0.2)


def in_a_process(home: Path, side: str, cluster: SparkCluster) -> dict[str, Any]:
    """The facts of a drain by a driver of its own."""
    pids = [] if side in SIDES[:2] else [process.pid for process in cluster.processes.values()]
    command = [sys.executable, "-m", "bench.cluster", "--drain", str(home), "--pids", json.dumps(pids)]
    environment = {**os.environ, SECRET_VARIABLE: CLUSTER_SECRET}
    done = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True)
    facts = json.loads(done.stdout)
    if not facts["adds_up"] or facts["steady"] is None:
        raise SystemExit(f"{side}: the run does not add up, or was one batch: {facts['records']}")
    return {each: facts["steady"][each] for each in ("records", "seconds", "cpu_seconds", "records_per_second")}


def drained(home: Path, pids: Sequence[int]) -> dict[str, Any]:
    """Drain in this process; the processor time of others counts as well, with all that they have started.

    Args:
        home: The deployment's folder.
        pids: Ids of the cluster's processes.
    """

    def cpu() -> float:
        return sum(filter(None, (tree_cpu_seconds(), *map(tree_cpu_seconds, pids))))

    meter = Meter(cpu=cpu)
    settings = load_settings(None, home=home)
    spec = load_stream(home / "streams" / "payments.yaml")
    try:
        log = KafkaLog(settings.kafka)
        done = drain(spec, settings, log, lambda: start_session(settings, "bench.cluster"), on_progress=meter.sample)
        return run_facts(done, meter)
    finally:
        end_spark()


def line(fact: dict[str, Any]) -> str:
    """A drain in one line."""
    return (
        f"round {fact['round'] + 1}, {fact['side']:>12}: {fact['records']:,} records in {fact['seconds']:.1f} s, "
        f"{fact['records_per_second']:,}/s, {fact['cpu_seconds']:.1f} s of processor"
    )


def summary(facts: Sequence[dict[str, Any]]) -> list[str]:
    """The ratios, each the median of the rounds, with the least and the greatest."""
    found: list[str] = []
    for sides in (SIDES[:2], SIDES[2:]):
        pairs = pairs_of(facts, sides, "records_per_second")
        halves = Pairs(tuple(2 * each for each in pairs.first), pairs.second).ratios
        aim = f", aimed at {_EFFICIENCY_AIM} or more" if sides == SIDES[2:] else ""
        found.append(f"scaling, {sides[1]} over twice {sides[0]}: {spread(halves)}{aim}")
    for local, cluster in zip(SIDES[:2], SIDES[2:], strict=True):
        for figure, words in (("seconds", "time"), ("cpu_seconds", "processor time")):
            cost = pairs_of(facts, (local, cluster), figure).ratios
            found.append(f"{words}, {cluster} over {local}: {spread(cost)}, aimed at {1 + _COST_AIM} or less")
    return found


if __name__ == "__main__":
    main()
