"""Changes of a real PostgreSQL through Debezium into changelogs, each once, and mirrors that are the source."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jobs.clients.catalog.catalog import connect_catalog
from jobs.mirrors.model.errors import RestoredSourceError
from jobs.mirrors.run.accepting import accept_new_generation
from jobs.mirrors.run.mirror_run import IncrementMerger, chosen_mirrors, run_mirror
from tests.helpers.change_topics import Change
from tests.helpers.source_rows import KEYS, Key, Row, Rows, by_key
from tests.integration.change_source import WITHOUT_KEY, ChangeSource, change_source
from tests.integration.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


class Copies:
    """Two streams over a database: one with a changelog and a mirror for each table that has a key, and one without.

    Args:
        one: Where they are written.
        spark: Lands and merges.
    """

    def __init__(self, source: ChangeSource, one: Pipeline, spark: SparkSession) -> None:
        self._source: ChangeSource = source
        self._spark: SparkSession = spark
        self._keyed: Pipeline = one
        self._bare: Pipeline = Pipeline(one.home, one.address, f"{one.stream}_bare")
        decode = {"value": "connect_json", "schema": "infer"}
        evolve = {"add": "auto", "widen": "auto"}
        self._keyed.write_spec(
            source={"topics_pattern": rf"{re.escape(source.topic(''))}({'|'.join(KEYS)})"},
            decode={**decode, "key": {"format": "connect_json", "schema": "infer", "into": "_change_key"}},
            changes="debezium",
            table={"name": "raw.changes"},
            route={"by": "regexp_replace(_topic, '^.*[.]', '')", "to": "raw.{value}"},
            mirrors=[{"table": "shop.{table}"}],
            evolve=evolve,
        )
        self._bare.write_spec(
            source={"topics": [source.topic(WITHOUT_KEY)]},
            decode=decode,
            changes="debezium",
            table={"name": f"raw.{WITHOUT_KEY}"},
            evolve=evolve,
        )

    def land(self) -> None:
        """All that is in the topics."""
        for each in (self._keyed, self._bare):
            each.drain(self._spark)

    def merge(self) -> None:
        """What the mirrors lack."""
        settings = self._keyed.settings()
        merger = IncrementMerger(settings, lambda: self._spark)
        with connect_catalog(settings) as catalog:
            for spec, mirror in chosen_mirrors(self._keyed.spec(), catalog):
                run_mirror(spec, mirror, settings, catalog, merger)

    def merge_restored(self) -> Counter[str]:
        """The same, with the answer that mirrors ask for where their source was restored; how often each did so."""
        settings = self._keyed.settings()
        merger = IncrementMerger(settings, lambda: self._spark)
        stops: Counter[str] = Counter()
        with connect_catalog(settings) as catalog:
            for spec, mirror in chosen_mirrors(self._keyed.spec(), catalog):
                while True:
                    try:
                        run_mirror(spec, mirror, settings, catalog, merger)
                        break
                    except RestoredSourceError as stop:
                        stops[mirror.table] += 1
                        accept_new_generation(spec, mirror, settings, catalog, "tester: restored", stop.breaks)
        return stops

    def mirror(self, table: str) -> Mapping[Key, Row]:
        """The rows of a table's mirror, by key."""
        rows = self._keyed.catalog().load_table(f"shop.{table}").scan().to_arrow().drop(["_change_order"])
        return by_key(rows.to_pylist(), KEYS[table])

    def assert_equal(self, rows: Rows, left: Mapping[str, Set[Key]] | None = None) -> None:
        """The mirrors are the source's tables as they were.

        Args:
            left: Keys that mirrors have beside them, by table: of what a backup does not have, nothing tells.
        """
        for table, expected in rows.tables.items():
            found = self.mirror(table)
            assert found.keys() == expected.keys() | (left or {}).get(table, frozenset()), table
            wrong = {
                (key, name): (found[key].get(name), value)
                for key, row in expected.items()
                for name, value in row.items()
                if found[key].get(name) != value
            }
            assert wrong == {}, f"mirror and source of {table}"

    def assert_every_change_once(self) -> None:
        """Each record that is a change is a row, in no dead letter, and means what it says."""
        for table in ("changes", WITHOUT_KEY):
            assert self._keyed.catalog().load_table(f"raw.{table}_dead").scan().to_arrow().num_rows == 0
        for table in (*KEYS, WITHOUT_KEY):
            changelog = self._keyed.catalog().load_table(f"raw.{table}").scan().to_arrow().to_pylist()
            rows = {(row["_kafka_partition"], row["_kafka_offset"]): row for row in changelog}
            sent = {(c.partition, c.offset): c for c in self._source.topics.changes if c.table == table}
            assert len(rows) == len(changelog)
            assert rows.keys() == sent.keys()
            assert Counter(row["_change_op"] for row in rows.values()) == Counter(c.op for c in sent.values())
            for at, change in sent.items():
                _assert_means(rows[at], change)
            _assert_in_order([rows[at] for at in sorted(rows)])


def _assert_means(row: dict[str, Any], change: Change) -> None:
    first, place = change.log_position
    assert row["_change_op"] == change.op
    assert int(row["_change_position"].split("/")[1], 16) == place
    assert first is None or int(row["_change_position"].split("/")[0], 16) == first
    if "_change_key" in row:
        assert (row["_change_key"] or None) == change.key_row
    unsent = {name for name, value in change.row.items() if "__debezium_unavailable_value" in (value, *_listed(value))}
    assert unsent <= set(row["_change_unavailable"] or ()), change
    assert all(row[name] is None for name in row["_change_unavailable"] or ())


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _assert_in_order(rows: list[dict[str, Any]]) -> None:
    """Without what was sent twice, positions of a key rise with the offsets: the text sorts as the source orders."""
    seen: set[tuple[Any, ...]] = set()
    last: dict[Any, str] = defaultdict(str)
    for row in rows:
        key = str(row.get("_change_key"))
        position = row["_change_position"]
        change = (key, row["_change_op"], position)
        if change in seen or row["_change_op"] == "r":
            continue
        seen.add(change)
        assert position >= last[row["_kafka_partition"], key], row
        last[row["_kafka_partition"], key] = position


@pytest.mark.timeout(1800)
def test_a_hostile_source(broker: str, tmp_path: Path, pipeline: Callable[..., Pipeline], spark: SparkSession) -> None:
    one = pipeline(topic=False)
    with change_source(tmp_path, broker, one.stream) as source:
        copies, work = Copies(source, one, spark), source.workload

        def assert_followed() -> None:
            source.wait_until_delivered()
            now = source.checkpoint()
            copies.land()
            copies.merge()
            copies.assert_equal(now)

        work.every_value()
        work.moved_keys()
        work.within_transactions()
        work.truncates()
        work.large_orders()
        assert_followed()
        work.other_columns()
        source.wait_until_delivered()
        source.wait_until_read("orders", 31)
        source.keep_offsets()
        source.back_up()
        work.at_random(60)
        source.wait_until_delivered()
        with source.dead():
            source.pgbench.run(10)
        work.one_key()
        assert_followed()
        repeated = sum(each.op != "r" for each in source.topics.changes) - sum(source.made.values())
        assert repeated > 50, "the worker was killed, so it repeats"
        copies.assert_every_change_once()

        source.restore()
        work.at_random(20)
        source.pgbench.run(2)
        source.wait_until_delivered()
        now = source.checkpoint()
        left = {table: copies.mirror(table).keys() - source.named(table) for table in KEYS}
        copies.land()
        assert copies.merge_restored().keys() == {f"shop.{table}" for table in KEYS}
        copies.assert_equal(now, left)
