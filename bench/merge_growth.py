"""Growth of merges: how long one takes as its mirror grows: `python -m bench.merge_growth --rows 1000000 10000000`.

A mirror of each size is written by Spark, ascending keys within each bucket as changes bring them. Then it gets
increments of changes, by turns spread evenly over all keys, and among the `--recent` newest ones of which a tenth are
new. Seconds are of the merge alone, as it is made for a user; `--by spark` has Spark make each of them, in a JVM with
the settings of a merge. Each kind warms up once.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from bench.merge import ROW, merge_keys
from jobs.clients.spark.session import start_session
from jobs.config.settings.settings import Settings
from jobs.mirrors.fold.merge_sql import table_path
from jobs.mirrors.fold.merging_session import merging_session
from tests.helpers.mirror_world import MirrorWorld

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_KINDS = ("spread", "recent")


def main() -> None:
    """Make each mirror, merge into it by turns, and print seconds and how they grow."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--changes", type=int, default=10_000)
    parser.add_argument("--recent", type=int, default=50_000, help="among how many of the newest keys")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--buckets", type=int, default=8)
    parser.add_argument("--by", choices=["either", "spark", "process"], default="either", help="what merges")
    parser.add_argument("--property", nargs=2, action="append", default=[], help="of the mirror's table")
    given = parser.parse_args()
    found: dict[int, dict[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="frazil-growth-") as folder:
        settings = Settings.embedded(Path(folder) / "spark")
        session = start_session(settings, "frazil merge benchmark", work="sql")
        for rows in given.rows:
            world = MirrorWorld(
                Path(folder) / str(rows), session, ROW, ["id"], buckets=given.buckets, properties=dict(given.property)
            )
            _fill(session, world, rows)
            files = list(world.mirror.scan().plan_files())
            size = sum(each.file.file_size_in_bytes for each in files)
            print(f"{rows:,} rows: {len(files)} files of {size / 1e6:,.0f} MB", flush=True)
            found[rows] = _took(world, rows, given)
    first, last = min(found), max(found)
    for kind in _KINDS:
        print(f"{kind}: {found[last][kind] / found[first][kind]:.2f} × from {first:,} to {last:,} rows")


def _fill(session: SparkSession, world: MirrorWorld, rows: int) -> None:
    """The mirror as changes in the order of their keys leave it."""
    text = "concat_ws('-', '{0}', id, repeat('x', 20))"
    names = ("name", "mail", "note")
    columns = {name: text.format(name) for name in names} | {
        "id": "id",
        "city": "concat('city ', id % 500)",
        "amount": "cast(id % 1000 AS decimal(12, 2))",
        "at": "TIMESTAMP'2026-03-01 12:00:00'",
        "n": "cast(id % 7 AS int)",
        "_change_order": "concat_ws('.', '0000', concat(lpad(lower(hex(id)), 16, '0'), '/', lpad(lower(hex(id)), 16, "
        "'0')), '0', lpad(lower(hex(id)), 16, '0'))",
    }
    own = merging_session(session, world.settings)
    own.conf.set("spark.sql.shuffle.partitions", "8")
    chosen = ", ".join(f"{columns[field.name]} AS {field.name}" for field in world.mirror.schema().fields)
    own.sql(f"INSERT INTO {table_path(world.settings, world.mirror)} SELECT {chosen} FROM range({rows}) ORDER BY id")


def _took(world: MirrorWorld, rows: int, given: argparse.Namespace) -> dict[str, float]:
    random = np.random.default_rng(1)
    seconds: dict[str, list[float]] = {kind: [] for kind in _KINDS}
    offset = count = rows
    for _ in range(given.runs + 1):
        for kind in _KINDS:
            if kind == "spread":
                keys = random.choice(np.arange(rows), given.changes, replace=False)
            else:
                new = given.changes // 10
                old = random.choice(np.arange(count - given.recent, count), given.changes - new, replace=False)
                keys = np.concatenate([old, np.arange(count, count + new)])
                count += new
            seconds[kind].append(merge_keys(world, keys, "u", offset, given.by))
            offset += given.changes
    # The first of each warms up.
    kept = {kind: each[1:] for kind, each in seconds.items()}
    print(json.dumps({kind: [round(each, 2) for each in took] for kind, took in kept.items()}), flush=True)
    return {kind: statistics.median(took) for kind, took in kept.items()}


if __name__ == "__main__":
    main()
