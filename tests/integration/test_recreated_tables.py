"""Tables that values name are dropped: the driver begins them anew by itself, killed meanwhile, or while it runs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from jobs.commit.errors import TargetRecreatedError
from jobs.commit.offsets import Positions, TopicPartition
from jobs.commit.stamp_history import history, stamps_along_main
from jobs.stream.gone_tables import NOTE
from jobs.verify.audit import audit
from jobs.verify.ledger_fill import fill_ledger
from tests.helpers.waiting import wait_for
from tests.integration.pipeline import GOOD, NULL_AMOUNT, TOMBSTONE, Coordinates, Pipeline
from tests.integration.topics import read_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration
MIX = {GOOD: 60, NULL_AMOUNT: 3, TOMBSTONE: 2}


def named(one: Pipeline, digit: str) -> str:
    return f"{one.table_name}_{digit}"


def route(one: Pipeline, **more: Any) -> dict[str, Any]:
    return {"by": "substr(id, 3, 1)", "to": f"{one.table_name}_{{value}}", "limit": 20, "recreate": True, **more}


def expected(one: Pipeline, since: dict[str, Positions]) -> dict[str, Counter[Coordinates]]:
    """Where each record of the topic belongs, one by one; of a table that was begun anew, from a position on."""
    wanted: dict[str, Counter[Coordinates]] = {}
    for partition, offset, value in read_topic(one.address, one.stream):
        if value is None or (record := json.loads(value))["amount"] is None:
            continue
        name = named(one, record["id"][2])
        if offset >= since.get(name, {}).get(TopicPartition(one.stream, partition), 0):
            wanted.setdefault(name, Counter())[(one.stream, partition, offset)] += 1
    return wanted


def found(one: Pipeline) -> dict[str, Counter[Coordinates]]:
    columns, there = ("_kafka_topic", "_kafka_partition", "_kafka_offset"), dict[str, Counter[Coordinates]]()
    for name in (named(one, str(digit)) for digit in range(10)):
        if one.catalog().table_exists(name):
            scanned = one.catalog().load_table(name).scan(selected_fields=columns).to_arrow()
            there[name] = Counter(zip(*(scanned.column(each).to_pylist() for each in columns), strict=True))
    return there


def begun_anew(one: Pipeline) -> list[Positions]:
    """Where the coordinator stood when it said that tables are begun anew."""
    stamps = [stamp for _, stamp in stamps_along_main(one.table().metadata, one.stream)]
    return [stamp.position for stamp in stamps if stamp.kind == "accept" and stamp.note == NOTE]


def assert_audited(one: Pipeline) -> None:
    settings, catalog = one.settings(), one.catalog()
    fill_ledger(catalog, settings, [one.spec()])
    audited = audit(one.spec(), settings, catalog, full=True)
    assert not audited.problems and not audited.pending, audited.problems


@pytest.mark.parametrize("killed_at", ["before_dropped_tables", "after_dropped_tables"])
def test_a_dropped_table_is_begun_anew_though_the_driver_is_killed_meanwhile(
    pipeline: Callable[..., Pipeline], spark: SparkSession, killed_at: str
) -> None:
    one = pipeline()
    one.write_spec(route=route(one, recreate=False))
    one.produce(MIX)
    one.drain(spark)
    newest = history(one.table().metadata, one.stream).newest
    assert newest is not None
    one.catalog().drop_table(named(one, "1"))
    one.produce(MIX)
    one.lose_state()
    # Also without the lease, which remembers the tables, it is told, and none is made in its place.
    with pytest.raises(TargetRecreatedError, match=f"{named(one, '1')} is gone"):
        one.drain(spark)
    assert not one.catalog().table_exists(named(one, "1"))
    one.write_spec(route=route(one))
    one.run_and_die(killed_at)
    assert len(begun_anew(one)) == (killed_at == "after_dropped_tables")
    one.lose_state()
    one.drain(spark)
    assert begun_anew(one) == [newest.position], "it is said once"
    assert found(one) == expected(one, {named(one, "1"): newest.position})
    assert named(one, "1") in found(one)
    assert_audited(one)


@pytest.mark.timeout(240)
def test_a_table_that_is_dropped_under_a_driver_costs_no_other_a_record(pipeline: Callable[..., Pipeline]) -> None:
    one = pipeline()
    one.write_spec(route=route(one), trigger={"every": "1s"})
    one.produce(MIX)
    started = one.control().start("the test begins", "tester").heartbeat
    assert started is not None
    try:
        one.wait_until_landed()
        one.catalog().drop_table(named(one, "1"))
        one.produce(MIX)
        one.wait_until_landed()
        wait_for(lambda: bool(begun_anew(one)), "the table to be begun anew", 60.0)
        one.produce(MIX)
        one.wait_until_landed()
        beat = one.beat()
        assert (beat.pid, beat.attempt) == (started.pid, started.attempt), "the driver has opened the stream again"
    finally:
        one.control().stop("the test ends", "tester")
    (since,) = begun_anew(one)
    assert found(one) == expected(one, {named(one, "1"): since})
    assert_audited(one)
