"""One stream into several tables: its driver is killed between two of them, and its state is lost."""

from __future__ import annotations

import json
import re
import signal
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from jobs.commit.branch import stream_table
from jobs.commit.stamp_history import history
from jobs.verify.audit import audit
from jobs.verify.ledger_fill import fill_ledger
from tests.helpers.forked import Forked, frazil
from tests.integration.pipeline import GOOD, NULL_AMOUNT, TOMBSTONE, TRUNCATED, Coordinates, Pipeline
from tests.integration.topics import read_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

MIX = {GOOD: 120, NULL_AMOUNT: 3, TRUNCATED: 2, TOMBSTONE: 2}
ROUTES = {"even": r"p-\d*[02468]", "low": r"p-\d*[0-4]", "three": r"p-\d*3"}


def expected(one: Pipeline) -> dict[str, Counter[Coordinates]]:
    """Where each record of the topic belongs, one by one."""
    found: dict[str, Counter[Coordinates]] = {name: Counter() for name in [*ROUTES, "own", "dead"]}
    for partition, offset, value in read_topic(one.address, one.stream):
        if value is None:
            continue
        try:
            record: dict[str, Any] = json.loads(value)
        except ValueError:
            record = {"amount": None}
        names = ["dead"]
        if record["amount"] is not None:
            names = [name for name, match in ROUTES.items() if re.fullmatch(match, record["id"])] or ["own"]
        for name in names:
            found[name][(one.stream, partition, offset)] += 1
    return found


def found(one: Pipeline) -> dict[str, Counter[Coordinates]]:
    def rows(table: str) -> Counter[Coordinates]:
        names = ("_kafka_topic", "_kafka_partition", "_kafka_offset")
        scanned = stream_table(one.catalog(), one.spec(), table).scan(selected_fields=names).to_arrow()
        return Counter(zip(*(scanned.column(name).to_pylist() for name in names), strict=True))

    return {name: rows(f"{one.table_name}_{name}") for name in ROUTES} | {
        "own": rows(one.table_name),
        "dead": one.dead(),
    }


def columns(one: Pipeline, table: str) -> list[str]:
    """Those of a table, without Kafka's own; all that are required have a value in each row."""
    rows = stream_table(one.catalog(), one.spec(), f"{one.table_name}_{table}").scan().to_arrow()
    names = [name for name in rows.schema.names if not name.startswith("_kafka_")]
    assert rows.num_rows and not any(rows.column(name).null_count for name in names)
    return names


def test_every_record_is_in_its_tables_once_though_its_driver_is_killed_between_them(
    pipeline: Callable[..., Pipeline], spark: SparkSession
) -> None:
    one = pipeline()
    tables: list[dict[str, Any]] = [
        {"match": match, "table": f"{one.table_name}_{name}"} for name, match in ROUTES.items()
    ]
    tables[0]["partition_by"] = ["bucket(2, id)"]
    tables[1]["columns"], tables[2]["columns"] = ["id", "created_at"], {"drop": ["note"]}
    tables[2]["branch"] = "side"
    route = {"by": "id", "tables": tables, "unmatched": {"table": one.table_name}}
    one.write_spec(route=route, transform=[{"compute": {"landed": "now()"}}])
    one.produce(MIX)
    one.run_and_die("after_table_commit")
    assert one.folder().pending_records() and found(one) != expected(one)
    # The hardest case: what was about to be committed is known to nobody, and the tasks run again for some tables.
    one.lose_state()
    one.drain(spark)
    assert found(one) == expected(one)
    assert all(each for each in found(one).values())
    assert columns(one, "low") == ["id", "created_at"]
    assert columns(one, "three") == ["id", "amount", "created_at", "landed"]
    # Whoever ran the tasks again gave the rows the time that the coordinator's stamp keeps.
    stamp = history(one.catalog().load_table(one.table_name).metadata, one.stream).newest
    assert stamp is not None and stamp.batch_ms is not None
    for name in (one.table_name, f"{one.table_name}_even", f"{one.table_name}_three"):
        landed = stream_table(one.catalog(), one.spec(), name).scan(selected_fields=("landed",)).to_arrow()
        assert {round(each.timestamp() * 1000) for each in landed.column(0).to_pylist()} == {stamp.batch_ms}
    assert not one.catalog().load_table(f"{one.table_name}_three").scan().to_arrow().num_rows, "on the branch alone"
    settings, catalog = one.settings(), one.catalog()
    fill_ledger(catalog, settings, [one.spec()])
    audited = audit(one.spec(), settings, catalog, full=True)
    assert not audited.problems and not audited.pending, audited.problems


def test_letters_that_no_table_took_come_home_by_a_corrected_route_though_their_replay_is_killed(
    pipeline: Callable[..., Pipeline], spark: SparkSession
) -> None:
    one = pipeline()
    tables: list[dict[str, Any]] = [
        {"match": match, "table": f"{one.table_name}_{name}"} for name, match in ROUTES.items()
    ]
    tables[1]["columns"] = ["id", "created_at"]
    # Of each record with an id that ends with 1 nobody says where it belongs.
    narrow = [{**tables[0], "match": r"p-\d*[02468]"}, {**tables[1], "match": r"p-\d*[0234]"}, tables[2]]
    one.write_spec(route={"by": "id", "tables": narrow, "unmatched": "dead_letter"})
    one.produce(MIX)
    one.drain(spark)
    assert found(one) != expected(one) and all(found(one)[name] for name in ["even", "low", "three", "dead"])
    narrowed = found(one)
    correction = one.home / "patch.yaml"
    correction.write_text(yaml.safe_dump({"route": {"tables": tables, "unmatched": {"table": one.table_name}}}))
    command = ("--home", str(one.home), "replay", one.stream, "--correction", str(correction), "--reason", "unrouted")
    # The first kill leaves the batch in the stream's own table, the second what the first one left.
    for step in ("replay_between_tables", "inside_life_change"):
        killed = Forked(frazil, *command, env={"FRAZIL_STEPS": f"{step}=kill"}, folder=one.home)
        assert killed.wait() == -signal.SIGKILL, killed.said()
    last = Forked(frazil, *command, env={"FRAZIL_STEPS": ""}, folder=one.home)
    assert last.wait() == 0, last.said()
    wanted = expected(one)
    there = found(one)
    assert {name: there[name] for name in [*ROUTES, "own"]} == {name: wanted[name] for name in [*ROUTES, "own"]}
    assert there["dead"] == narrowed["dead"]
    settings, catalog = one.settings(), one.catalog()
    fill_ledger(catalog, settings, [one.spec()])
    audited = audit(one.spec(), settings, catalog, full=True)
    assert not audited.problems and not audited.pending, audited.problems
    # The stream goes on beside it.
    one.produce(MIX)
    one.drain(spark)
    fill_ledger(catalog, settings, [one.spec()])
    audited = audit(one.spec(), settings, catalog, full=True)
    assert not audited.problems and not audited.pending, audited.problems


@pytest.mark.parametrize("killed_at", ["after_new_tables", "after_table_commit"])
def test_tables_that_values_name_are_made_once_though_the_driver_is_killed_meanwhile(
    pipeline: Callable[..., Pipeline], spark: SparkSession, killed_at: str
) -> None:
    one = pipeline()
    # Amounts are missing or broken in what fails, so all that lands has an id such as p-17.
    route = {"by": "substr(id, 3, 1)", "to": f"{one.table_name}_{{value}}", "limit": 20}
    one.write_spec(route={**route, "columns": ["id", "created_at"]})
    one.produce(MIX)
    one.run_and_die(killed_at)
    made = {name for name in (f"{one.table_name}_{digit}" for digit in range(10)) if one.catalog().table_exists(name)}
    uuids = {name: one.catalog().load_table(name).metadata.table_uuid for name in made}
    assert made
    one.lose_state()
    one.drain(spark)
    wanted: dict[str, Counter[Coordinates]] = {}
    for partition, offset, value in read_topic(one.address, one.stream):
        if value is not None and value.startswith(b"{") and value.endswith(b"}"):
            record = json.loads(value)
            if record["amount"] is not None:
                name = f"{one.table_name}_{record['id'][2]}"
                wanted.setdefault(name, Counter())[(one.stream, partition, offset)] += 1
    names = ("_kafka_topic", "_kafka_partition", "_kafka_offset")
    there: dict[str, Counter[Coordinates]] = {}
    for name in wanted:
        scanned = one.catalog().load_table(name).scan(selected_fields=names).to_arrow()
        there[name] = Counter(zip(*(scanned.column(each).to_pylist() for each in names), strict=True))
    assert columns(one, min(wanted).removeprefix(f"{one.table_name}_")) == ["id", "created_at"]
    assert there == wanted and made <= set(wanted)
    assert uuids == {name: one.catalog().load_table(name).metadata.table_uuid for name in made}
    settings, catalog = one.settings(), one.catalog()
    fill_ledger(catalog, settings, [one.spec()])
    audited = audit(one.spec(), settings, catalog, full=True)
    assert not audited.problems and not audited.pending, audited.problems
    assert len(audited.tables) == 2 + len(wanted)
