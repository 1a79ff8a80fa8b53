"""Evolution benchmark, what a change of the schema costs: `python -m bench.evolve`.

One process lands batches of payments as a driver's tasks do, into a real table of a SQLite catalog, without Kafka and
without Spark: batches as ever, then one whose records have two new fields, then batches with these as columns. Told are
the seconds of each kind, the median over the rounds, and what the batch that changes the table costs beside one before.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from bench.versus.records import payments, schema_text
from jobs.catalog import connect_catalog
from jobs.commit.log_state import LogState
from jobs.commit.offsets import TopicPartition
from jobs.commit.stamps import Stamp
from jobs.commit.starting_point import StartingPoint
from jobs.commit.target import Target
from jobs.kafka.metadata import LogEnds
from jobs.kafka.records import FetchedBlock
from jobs.schema.iceberg_schema import iceberg_schema
from jobs.schema.parser import parse_schema
from jobs.spec.models import StreamSpec
from jobs.spec.settings import load_settings
from jobs.state.stream_folder import StreamFolder
from jobs.stream.batch import BatchRunner
from jobs.stream.open_stream import OpenStream
from jobs.stream.opening import ensure_tables
from jobs.stream.results import TaskResults
from jobs.stream.tasks import slice_plan, task_results
from jobs.task.run import run_split

_BLOCK = 10_000
_AROUND = 5


def main() -> None:
    """Measure, and print a line for each kind of batch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=200_000, help="of each batch (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    before, change, after = list[float](), list[float](), list[float]()
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory(prefix="frazil-evolve-") as folder:
            seconds, runs = _round(Path(folder), options.records)
        assert runs == [1] * _AROUND + [2] + [1] * _AROUND, runs
        # The first batch of a process warms it up.
        before.append(statistics.median(seconds[1:_AROUND]))
        change.append(seconds[_AROUND])
        after.append(statistics.median(seconds[_AROUND + 1 :]))
    print(f"seconds of a batch of {options.records:,} records, median of {options.rounds} rounds")
    print(f"before            {statistics.median(before):.2f}")
    ratios = [one / other for one, other in zip(change, after, strict=True)]
    print(f"changes the table {statistics.median(change):.2f}  {statistics.median(ratios):.2f} of one afterwards")
    print(f"afterwards        {statistics.median(after):.2f}")


def _round(folder: Path, records: int) -> tuple[list[float], list[int]]:
    """Seconds, and runs of the tasks, of batches before, of the one that changes the table, and of those after it."""
    driver = _Driver(folder)
    plain = [value for chunk in payments("small", records) for value in chunk.values]
    wider = [b'%s,"channel":"web","score":%d.25}' % (value[:-1], number) for number, value in enumerate(plain)]
    seconds, runs = list[float](), list[int]()
    for number in range(2 * _AROUND + 1):
        driver.values, driver.runs = wider if number >= _AROUND else plain, 0
        began = time.perf_counter()
        frame: Any = None
        driver.run(frame, number, {driver.source: (number + 1) * records})
        seconds.append(time.perf_counter() - began)
        runs.append(driver.runs)
    return seconds, runs


class _Driver(BatchRunner):
    """The driver's batches of one stream, with tasks in this process.

    Attributes:
        values: Of the batch at hand.
        runs: How often its tasks ran.
    """

    def __init__(self, home: Path) -> None:
        (home / "frazil.yaml").write_text("kafka: {bootstrap_servers: 'localhost:1'}\n")
        settings = load_settings(None, home=home)
        spec = StreamSpec.model_validate(
            {
                "stream": "payments",
                "source": {"topics": ["payments"]},
                "decode": {"value": "json", "schema": "infer"},
                "table": {"name": "bench.payments"},
            }
        )
        catalog = connect_catalog(settings)
        ensure_tables(spec, catalog, lambda: iceberg_schema(parse_schema(schema_text("small"))))
        self.source: TopicPartition = TopicPartition("payments", 0)
        self.values: Sequence[bytes] = ()
        self.runs: int = 0
        targets = {name: Target(catalog, name, "payments") for name in spec.target_names}
        at = {self.source: 0}
        for target in targets.values():
            target.claim(1, lambda newest: Stamp("payments", "claim", -1, 1, "c", start=at, position=at))
        lease: Any = SimpleNamespace(verify=lambda: None, lost=None)
        folder = StreamFolder.at(home / "state")
        folder.root.mkdir()
        given = ("payments", spec.config_hash, lease, targets, "", 1)
        stream = OpenStream(*given, spec=spec, settings=settings, folder=folder, log=LogState({}, {}, {}))
        stream.positions = {name: dict(at) for name in targets}
        stream.begin = StartingPoint(at)
        kafka: Any = SimpleNamespace(
            ends=lambda partitions: LogEnds({}, {}, {}), departures=lambda marks: {}, identities=lambda topics: {}
        )
        super().__init__(stream, kafka)

    def _run_tasks(self, frame: Any, batch: int, ranges: Any, needs: Any) -> TaskResults:
        self.runs += 1
        first = ranges[self.source].start
        blocks = (self._block(first + at, self.values[at : at + _BLOCK]) for at in range(0, len(self.values), _BLOCK))
        return task_results(self._stream, run_split(slice_plan(self._stream, batch, ranges, needs), blocks))

    def _block(self, first: int, values: Sequence[bytes]) -> FetchedBlock:
        count = len(values)
        columns = [
            pa.array(values, pa.binary()),
            pa.repeat(pa.scalar(self.source.topic, pa.string()), count),
            pa.repeat(pa.scalar(0, pa.int32()), count),
            pa.array(range(first, first + count), pa.int64()),
            pa.repeat(pa.scalar(0, pa.timestamp("us", "UTC")), count),
        ]
        names = ["value", "topic", "partition", "offset", "timestamp"]
        records = pa.RecordBatch.from_arrays(columns, names=names)
        return FetchedBlock(self.source, records, lambda rows: records.take(pa.array(rows, pa.int64())))


if __name__ == "__main__":
    main()
