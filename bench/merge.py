"""Merge benchmark, what a merge into a mirror costs, in ways that take turns: `python -m bench.merge`.

A mirror of a million rows gets increments of changes, spread over all keys or among the newest ones, in one JVM
with the settings of a merge. Each way sets properties of the table or settings of Spark; what is compared are the
ratios of one run.
"""

# pyarrow.compute makes its functions when it is imported, so a type checker sees none of them.
# pyright: reportAttributeAccessIssue=false

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from jobs.clients.spark.session import start_session
from jobs.config.settings.settings import Settings
from jobs.mirrors.fold.merging_session import merging_session
from jobs.records.schema.arrow_schema import rows_arrow_schema
from tests.helpers.mirror_world import BEGIN, By, MirrorWorld

ROW = "id long, name string, mail string, city string, note string, amount decimal(12,2), at timestamptz, n int"


@dataclass(frozen=True, slots=True)
class Way:
    """Settings of a merge.

    Args:
        properties: Properties of the mirror's table.
        conf: Configuration of Spark's session.
    """

    properties: Mapping[str, str] = field(default_factory=dict)
    conf: Mapping[str, str] = field(default_factory=dict)


_JOIN_WITHIN_BUCKETS = {
    "spark.sql.sources.v2.bucketing.enabled": "true",
    "spark.sql.sources.v2.bucketing.shuffle.enabled": "true",
    "spark.sql.sources.v2.bucketing.pushPartValues.enabled": "true",
    "spark.sql.iceberg.planning.preserve-data-grouping": "true",
    "spark.sql.requireAllClusterKeysForCoPartition": "false",
}
_HASH_JOIN = {"spark.sql.join.preferSortMergeJoin": "false"}
WAYS = {
    "as it is": Way(),
    "hash join": Way(conf=_HASH_JOIN),
    "join within buckets": Way(conf=_JOIN_WITHIN_BUCKETS),
    "hash join within buckets": Way(conf=_JOIN_WITHIN_BUCKETS | _HASH_JOIN),
    "deletes by partition": Way({"write.delete.granularity": "partition"}),
}


def main() -> None:
    """Make the mirror, let the ways take turns, and print what each took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--buckets", type=int, default=8)
    parser.add_argument("--ways", nargs="*", choices=[*WAYS], default=[*WAYS])
    parser.add_argument("--plan", action="store_true", help="print Spark's plan of one merge, and end")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="frazil-merge-") as folder:
        settings = Settings.embedded(Path(folder) / "spark")
        session = start_session(settings, "frazil merge benchmark", work="sql")
        world = MirrorWorld(Path(folder) / "home", session, ROW, ["id"], buckets=arguments.buckets)
        random = np.random.default_rng(1)
        offset = 0
        print(f"{arguments.rows:,} rows: {merge_keys(world, np.arange(arguments.rows), 'r', offset):.1f} s")
        offset += arguments.rows
        if arguments.plan:
            _show_plan(merging_session(session, world.settings))
            merge_keys(world, random.choice(np.arange(arguments.rows), arguments.changes, replace=False), "u", offset)
            return
        for spread, least in (("spread", 0), ("newest", int(arguments.rows * 0.98))):
            took: dict[str, list[float]] = {way: [] for way in arguments.ways}
            for _ in range(arguments.runs + 1):
                for name in arguments.ways:
                    keys = random.choice(np.arange(least, arguments.rows), arguments.changes, replace=False)
                    with _way(world, session, WAYS[name]):
                        took[name].append(merge_keys(world, keys, "u", offset))
                    offset += arguments.changes
            for name, seconds in took.items():
                # The first of each warms up.
                kept = seconds[1:]
                print(f"{spread:8} {name:26} {statistics.median(kept):6.2f} s  {[round(each, 2) for each in kept]}")
        table = world.mirror
        files = list(table.scan().plan_files())
        print(f"{len(files)} data files, {sum(len(each.delete_files) for each in files)} deletes of them")


def _show_plan(own: SparkSession) -> None:
    run = own.sql

    def explained(text: str) -> object:
        if text.startswith("MERGE"):
            print(run(f"EXPLAIN {text}").collect()[0][0])
        return run(text)

    own.sql = explained  # pyright: ignore[reportAttributeAccessIssue]


@contextmanager
def _way(world: MirrorWorld, session: SparkSession, way: Way) -> Iterator[None]:
    own = merging_session(session, world.settings)
    before = {key: own.conf.get(key, None) for key in way.conf}
    with world.mirror.transaction() as change:
        change.set_properties(dict(way.properties) or {"bench": "none"})
    for key, value in way.conf.items():
        own.conf.set(key, value)
    try:
        yield
    finally:
        for key, value in before.items():
            own.conf.unset(key) if value is None else own.conf.set(key, value)
        with world.mirror.transaction() as change:
            change.remove_properties(*way.properties or ["bench"])


def merge_keys(world: MirrorWorld, keys: np.ndarray, op: str, offset: int, by: By = "spark") -> float:
    """Seconds that a merge of a change of each key takes.

    Args:
        by: The process that merges.
    """
    count = len(keys)
    place = np.arange(offset, offset + count)
    wanted = rows_arrow_schema(world.changelog.schema())
    text = pa.array(keys).cast(pa.string())
    values = {
        "id": pa.array(keys, pa.int64()),
        **{name: pc.binary_join_element_wise(name, text, "x" * 20, "-") for name in ("name", "mail", "note")},
        "city": pa.array([f"city {n % 500}" for n in keys.tolist()]),
        "amount": pa.array(keys % 1000).cast(pa.decimal128(21, 2)).cast(pa.decimal128(12, 2)),
        "at": pa.array([BEGIN] * count),
        "n": pa.array(keys % 7, pa.int32()),
        "_change_op": pa.array([op] * count),
        "_change_at": pa.array([BEGIN] * count),
        "_change_position": pa.array([f"{n:016x}/{n:016x}" for n in place.tolist()]),
        "_change_lineage": pa.array(["db"] * count),
        "_kafka_topic": pa.array(["shop"] * count),
        "_kafka_partition": pa.array(np.zeros(count, np.int32)),
        "_kafka_offset": pa.array(place),
        "_kafka_timestamp": pa.array([BEGIN] * count),
    }
    columns = [
        values[each.name].cast(each.type) if each.name in values else pa.nulls(count, each.type) for each in wanted
    ]
    world.land_rows(pa.table(columns, schema=wanted))
    began = time.monotonic()
    world.merged(by=by)
    return time.monotonic() - began


if __name__ == "__main__":
    main()
