"""Tables of a route that are dropped are parked: the others go on, and every record is once in each of its tables."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from jobs.dead_letters.replay.request import ReplayRequest
from jobs.dead_letters.replay.run import replay
from jobs.proof.audit.audit import audit
from jobs.proof.audit.ledger_fill import fill_ledger
from jobs.tables.commit.history.stamp_history import history
from jobs.tables.commit.stamp.stamps import Stamp
from tests.helpers.topics import read_topic
from tests.helpers.waiting import wait_for
from tests.integration.faults import DriverHere
from tests.integration.pipeline import GOOD, NULL_AMOUNT, TOMBSTONE, Coordinates, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration
MIX = {GOOD: 60, NULL_AMOUNT: 3, TOMBSTONE: 2}
# By the first digit of a payment's number, which goes to two tables if it is 3.
DIGITS = {"a": "123", "b": "345", "c": "67"}


def named(one: Pipeline, which: str) -> str:
    return f"{one.table_name}_{which}"


def route(one: Pipeline) -> dict[str, Any]:
    tables = [{"match": list(digits), "table": named(one, which)} for which, digits in DIGITS.items()]
    return {
        "by": "substr(id, 3, 1)",
        "tables": tables,
        "unmatched": {"table": one.table_name},
        "on_table_error": "park",
    }


def expected(one: Pipeline) -> dict[str, Counter[Coordinates]]:
    """Where each record of the topic belongs, one by one."""
    wanted: dict[str, Counter[Coordinates]] = {}
    for partition, offset, value in read_topic(one.address, one.stream):
        if value is None or (record := json.loads(value))["amount"] is None:
            continue
        names = [named(one, which) for which, digits in DIGITS.items() if record["id"][2] in digits]
        for name in names or [one.table_name]:
            wanted.setdefault(name, Counter())[(one.stream, partition, offset)] += 1
    return wanted


def found(one: Pipeline) -> dict[str, Counter[Coordinates]]:
    columns, there = ("_kafka_topic", "_kafka_partition", "_kafka_offset"), dict[str, Counter[Coordinates]]()
    for name in (one.table_name, *(named(one, which) for which in DIGITS)):
        if one.catalog().table_exists(name):
            scanned = one.catalog().load_table(name).scan(selected_fields=columns).to_arrow()
            there[name] = Counter(zip(*(scanned.column(each).to_pylist() for each in columns), strict=True))
    return there


def letters(one: Pipeline, table: str) -> Counter[Coordinates]:
    """The records that wait, or have waited, for a table."""
    rows = one.dead_table().scan().to_arrow().to_pylist()
    return Counter((each["topic"], each["partition"], each["offset"]) for each in rows if each["target"] == table)


def newest(one: Pipeline) -> Stamp:
    stamp = history(one.table().metadata, one.stream).newest
    assert stamp is not None
    return stamp


def come_home(one: Pipeline) -> None:
    replay(one.spec(), one.settings(), one.catalog(), ReplayRequest())


def assert_audited(one: Pipeline) -> None:
    settings, catalog = one.settings(), one.catalog()
    fill_ledger(catalog, settings, [one.spec()])
    audited = audit(one.spec(), settings, catalog, full=True)
    assert not audited.problems and not audited.pending, (audited.problems, audited.pending)


def test_a_table_that_is_dropped_under_a_driver_is_parked_and_comes_home(
    pipeline: Callable[..., Pipeline], spark: SparkSession
) -> None:
    one = pipeline()
    one.write_spec(route=route(one), trigger={"every": "1s"})
    one.produce(MIX)
    gone = named(one, "a")
    with DriverHere(one, spark) as driver:
        one.wait_until_landed()
        wait_for(lambda: found(one) == expected(one), "the other tables to have the batch", 30.0)
        had = found(one)[gone]
        one.catalog().drop_table(gone)
        one.produce(MIX)
        wait_for(lambda: gone in newest(one).parked, "the table to be parked", 60.0)
        one.wait_until_landed()
        one.produce(MIX)
        one.wait_until_landed()
    driver.end()
    wanted = expected(one)
    assert found(one) == {name: each for name, each in wanted.items() if name != gone}, "no other lacks anything"
    # Nobody can say whether it had the batch before, whose records are letters, too.
    waiting = letters(one, gone)
    assert waiting >= wanted[gone] - had and max(waiting.values()) == 1
    one.accept(unpark=gone)
    come_home(one)
    there = found(one)
    assert there.pop(gone) == waiting, "each once, and what it had is gone with it"
    wanted.pop(gone)
    assert there == wanted
    with DriverHere(one, spark) as driver:
        one.produce(MIX)
        one.wait_until_landed()
        wait_for(lambda: found(one)[gone] - waiting == expected(one)[gone] - waiting - had, "the rows of it", 30.0)
    driver.end()
    assert letters(one, gone) == waiting, "it is a target again"
    assert_audited(one)
