"""Evolution benchmark, what a change of the schema costs: `python -m bench.evolve`.

One process lands batches of payments as a driver's tasks do, into real tables of a SQLite catalog, without Kafka and
without Spark: batches as ever, then one all of whose records need a change of the table (two new columns, a wider one,
or one that may be null), then batches of a table that has it. In turn with the latter, the same records land in a table
that had it from the start. Told are, of each kind of change, the seconds of each kind of batch, the median over the
rounds, and two ratios, each of neighbours in time: of the batch that changes the table to one afterwards, and of one
afterwards to one of the other table. `--format connect_json` does it with records that carry their schema.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pyarrow as pa

from bench.versus.enveloped import enveloped
from bench.versus.records import payments, schema_text
from jobs.clients.catalog.catalog import connect_catalog
from jobs.clients.kafka.metadata import LogEnds
from jobs.clients.kafka.records import FetchedBlock
from jobs.clients.state_store.stream_folder import StreamFolder
from jobs.config.settings.settings import load_settings
from jobs.config.stream.models import StreamSpec
from jobs.records.schema.iceberg_schema import iceberg_schema
from jobs.records.schema.parser import parse_schema
from jobs.streaming.driver.batch.batch import BatchRunner
from jobs.streaming.driver.batch.tasks import slice_plan, task_results
from jobs.streaming.driver.context.open_stream import OpenStream
from jobs.streaming.driver.context.results import TaskResults
from jobs.streaming.driver.opening.opening import ensure_tables
from jobs.streaming.driver.tables.new_rows import NewColumns
from jobs.streaming.task.run import run_split
from jobs.tables.commit.protocol.target import Target
from jobs.tables.commit.recovery.starting_point import StartingPoint
from jobs.tables.commit.stamp.log_state import LogState
from jobs.tables.commit.stamp.offsets import TopicPartition
from jobs.tables.commit.stamp.stamps import Stamp

_BLOCK = 10_000
_AROUND = 5


class _Case(NamedTuple):
    """Kind of schema change: columns beside a payment's before and after it, and the ends of payments' JSON."""

    name: str
    columns: str
    changed: str
    plain: Callable[[int], bytes]
    needing: Callable[[int], bytes]


_CASES = (
    _Case(
        "adds", "", ", channel string, score double", lambda n: b"}", lambda n: b',"channel":"web","score":%d.25}' % n
    ),
    _Case(
        "widens",
        ", attempts int",
        ", attempts long",
        lambda n: b',"attempts":%d}' % n,
        lambda n: b',"attempts":%d}' % (2**40 + n),
    ),
    _Case("relaxes", ", channel string not null", ", channel string", lambda n: b',"channel":"web"}', lambda n: b"}"),
)


def main() -> None:
    """Measure, and print a line for each kind of batch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=200_000, help="of each batch (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--format", choices=("json", "connect_json"), default="json", help="of the values (%(default)s)"
    )
    options = parser.parse_args()
    print(f"seconds of a batch of {options.records:,} records ({options.format}), median of {options.rounds} rounds")
    rounds: dict[str, list[_Round]] = {case.name: [] for case in _CASES}
    for _ in range(options.rounds):
        for case in _CASES:
            with tempfile.TemporaryDirectory(prefix="frazil-evolve-") as folder:
                rounds[case.name].append(_round(Path(folder), options.records, case, options.format))
    for case in _CASES:
        _print(case, rounds[case.name])


def _print(case: _Case, rounds: Sequence[_Round]) -> None:
    def seconds(label: str, of: Callable[[_Round], float]) -> str:
        return f"{label:<29}{_median(of, rounds):.2f}"

    def ratio(of: Callable[[_Round], float]) -> str:
        return f"{_median(of, rounds):.2f} ({min(map(of, rounds)):.2f} to {max(map(of, rounds)):.2f})"

    print(seconds("before", lambda one: one.before))
    to_after = ratio(lambda one: one.change / one.after)
    print(f"{seconds(f'{case.name} columns', lambda one: one.change)}  {to_after} of one afterwards")
    to_other = ratio(lambda one: one.after / one.from_the_start)
    print(f"{seconds('afterwards', lambda one: one.after)}  {to_other} of one with it from the start")
    print(seconds("with it from the start", lambda one: one.from_the_start))


class _Round(NamedTuple):
    """Seconds of a batch, the median of those of its kind.

    Attributes:
        from_the_start: Seconds for the table that had the columns from the start.
    """

    before: float
    change: float
    after: float
    from_the_start: float


def _median(of: Callable[[_Round], float], rounds: Sequence[_Round]) -> float:
    return statistics.median(map(of, rounds))


def _round(folder: Path, records: int, case: _Case, form: str) -> _Round:
    columns = schema_text("small")
    driver = _Driver(folder / "changed", columns + case.columns, form)
    other = _Driver(folder / "so-from-the-start", columns + case.changed, form)
    values = [value[:-1] for chunk in payments("small", records) for value in chunk.values]
    plain = [value + case.plain(number) for number, value in enumerate(values)]
    needing = [value + case.needing(number) for number, value in enumerate(values)]
    if form == "connect_json":
        plain = enveloped(parse_schema(columns + case.columns), plain)
        needing = enveloped(parse_schema(columns + case.changed), needing)
    before = [driver.land(plain) for _ in range(_AROUND)]
    change = driver.land(needing, runs=2)
    pairs = [(driver.land(needing), other.land(needing)) for _ in range(_AROUND)]
    # The first batch of a driver warms it up.
    after, from_the_start = (statistics.median(each) for each in zip(*pairs[1:], strict=True))
    return _Round(statistics.median(before[1:]), change, after, from_the_start)


class _Driver(BatchRunner):
    """The driver's batches of one stream, with tasks in this process.

    Args:
        home: Folder of the driver.
        columns: Columns of the table.
        form: Format of the values.
    """

    def __init__(self, home: Path, columns: str, form: str) -> None:
        home.mkdir()
        (home / "frazil.yaml").write_text("kafka: {bootstrap_servers: 'localhost:1'}\n")
        settings = load_settings(None, home=home)
        spec = StreamSpec.model_validate(
            {
                "stream": "payments",
                "source": {"topics": ["payments"]},
                "decode": {"value": form, "schema": "infer" if form == "json" else "table"},
                "evolve": {"add": "auto", "widen": "auto", "relax": "auto"},
                "table": {"name": "bench.payments"},
            }
        )
        catalog = connect_catalog(settings)
        ensure_tables(spec, catalog, lambda: NewColumns(iceberg_schema(parse_schema(columns))))
        self._source: TopicPartition = TopicPartition("payments", 0)
        self._values: Sequence[bytes] = ()
        self._runs: int = 0
        self._batches: int = 0
        targets = {name: Target(catalog, name, "payments") for name in spec.target_names}
        at = {self._source: 0}
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

    def land(self, values: Sequence[bytes], runs: int = 1) -> float:
        """Seconds of a batch of these records, whose tasks have to run this many times."""
        self._values, self._runs, frame = values, 0, cast("Any", None)
        began = time.perf_counter()
        self.run(frame, self._batches, {self._source: (self._batches + 1) * len(values)})
        seconds = time.perf_counter() - began
        assert self._runs == runs
        self._batches += 1
        return seconds

    def _run_tasks(self, frame: Any, batch: int, ranges: Any, needs: Any, survey: bool) -> TaskResults:
        self._runs += 1
        first, values = ranges[self._source].start, self._values
        blocks = (self._block(first + at, values[at : at + _BLOCK]) for at in range(0, len(values), _BLOCK))
        return task_results(
            self._stream, run_split(slice_plan(self._stream, batch, ranges, needs, survey=survey), blocks)
        )

    def _block(self, first: int, values: Sequence[bytes]) -> FetchedBlock:
        count = len(values)
        columns = [
            pa.array(values, pa.binary()),
            pa.repeat(pa.scalar(self._source.topic, pa.string()), count),
            pa.repeat(pa.scalar(0, pa.int32()), count),
            pa.array(range(first, first + count), pa.int64()),
            pa.repeat(pa.scalar(0, pa.timestamp("us", "UTC")), count),
        ]
        names = ["value", "topic", "partition", "offset", "timestamp"]
        records = pa.RecordBatch.from_arrays(columns, names=names)
        return FetchedBlock(self._source, records, lambda rows: records.take(pa.array(rows, pa.int64())))


if __name__ == "__main__":
    main()
