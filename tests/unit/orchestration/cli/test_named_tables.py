"""Commands on a stream whose values name its tables: with three of them, and with three hundred in little time."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from jobs.maintenance.plan.table_selection import chosen_tables
from jobs.proof.audit.ledger_fill import fill_ledger
from orchestration.cli.main import main
from tests.helpers.evolving_stream import SINK
from tests.helpers.routed_stream import RoutedStream

DEAD = f"{SINK}_dead"
NAMED: dict[str, Any] = {"by": "type", "to": "events.{value}"}
MANY = 300


def record(kind: str, number: int) -> dict[str, Any]:
    return {"id": f"{kind}-{number}", "type": kind, "n": number}


@pytest.fixture
def three(tmp_path: Path) -> RoutedStream:
    made = RoutedStream(tmp_path / "home", NAMED)
    made.land(*[record(kind, number) for number, kind in enumerate("abcab")], b'{"id": 1}')
    made.land(record("a", 6), batch=1)
    return made


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> RoutedStream:
    made = RoutedStream(tmp_path_factory.mktemp("many") / "home", NAMED)
    made.land(*[record(f"t{number:03}", number) for number in range(MANY)])
    fill_ledger(made.catalog, made.settings, [made.spec])
    return made


def command(stream: RoutedStream, name: str, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["--home", str(stream.home), name, *arguments])


def facts(stream: RoutedStream, name: str, *arguments: str) -> Any:
    result = command(stream, name, *arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def newest(stream: RoutedStream, table: str) -> int:
    snapshot = stream.catalog.load_table(table).current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def test_status_tells_how_many_tables_there_are_and_what_became_rows(three: RoutedStream) -> None:
    (found,) = facts(three, "status", "payments")["streams"]
    assert found["tables"] == 4, "its own, and one for each value"
    assert (found["rows"], found["landed"], found["dead"]) == (0, 6, 1)
    said = command(three, "status", "payments").stdout
    assert "6 records landed in 4 tables" in said


def test_at_and_tag_know_each_table(three: RoutedStream) -> None:
    for offset, table in enumerate(["events.a", "events.b", "events.c", "events.a", "events.b"]):
        found = facts(three, "at", "payments", "--partition", "0", "--offset", str(offset))
        assert (found["fate"], [row["table"] for row in found["rows"]]) == ("row", [table])
    found = facts(three, "at", "payments", "--snapshot", str(newest(three, "events.c")))
    assert (found["table"], found["kind"]) == ("events.c", "batch")
    made = facts(three, "tag", "payments", "quarter", "--table", "events.a")
    assert (made["table"], made["snapshot_id"]) == ("events.a", newest(three, "events.a"))
    refused = command(three, "at", "payments", "--table", "events.d", "--partition", "0", "--offset", "0")
    assert refused.exit_code == 1 and "stream payments has no table events.d" in refused.stderr


def test_maintenance_takes_each_table_and_by_the_streams_name_all(three: RoutedStream) -> None:
    assert three.spec.named_tables == (), "as its file says"
    names = [each.name for each in chosen_tables(three.settings, [three.spec], three.catalog, ["payments"])]
    assert sorted(names) == sorted([SINK, DEAD, "events.a", "events.b", "events.c"])
    (one,) = chosen_tables(three.settings, [three.spec], three.catalog, ["events.b"])
    assert (one.name, one.stream) == ("events.b", "payments")


def test_status_of_three_hundred_tables_reads_no_more_than_that_of_one(many: RoutedStream) -> None:
    command(many, "status", "payments")
    began = time.process_time()
    (found,) = facts(many, "status", "payments")["streams"]
    assert time.process_time() - began < 5
    assert (found["tables"], found["landed"]) == (MANY + 1, MANY)


def test_a_record_among_three_hundred_tables_is_found_by_the_ledger(many: RoutedStream) -> None:
    found = facts(many, "at", "payments", "--partition", "0", "--offset", "217")
    assert [row["table"] for row in found["rows"]] == ["events.t217"]
    made = facts(many, "tag", "payments", "quarter", "--table", "events.t217")
    assert made["snapshot_id"] == newest(many, "events.t217")


def test_maintenance_of_three_hundred_tables_knows_them_all(many: RoutedStream) -> None:
    names = {each.name for each in chosen_tables(many.settings, [many.spec], many.catalog, [])}
    assert {f"events.t{number:03}" for number in range(MANY)} <= names
