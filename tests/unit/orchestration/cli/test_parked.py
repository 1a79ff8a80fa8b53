"""A table that is parked, as the commands tell of it: status, at, accept, replay and audit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from orchestration.cli.main import main
from tests.helpers.evolving_stream import SINK
from tests.helpers.routed_stream import ROUTE, RoutedStream

CHANGES, DELETES = "orders.changes", "orders.deletes"
PARK: dict[str, Any] = {**ROUTE, "on_table_error": "park"}
KINDS = ["INS", "UPD", "DEL", "OWN", "other"]
DOCUMENTS: list[dict[str, Any]] = [{"id": f"a{n}", "type": kind, "n": n} for n, kind in enumerate(KINDS)]


@pytest.fixture
def stream(tmp_path: Path) -> RoutedStream:
    """A stream that has landed five records, one of whose tables was dropped, and that has landed five more."""
    made = RoutedStream(tmp_path / "home", PARK)
    made.land(*DOCUMENTS)
    made.catalog.drop_table(DELETES)
    after = RoutedStream(made.home, PARK, epoch=20)
    after.log = list(made.log)
    after.land(*DOCUMENTS, batch=0)
    return after


def command(stream: RoutedStream, name: str, *arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["--home", str(stream.home), name, "payments", *arguments])
    assert result.exit_code == code, result.output
    return result


def test_status_names_it_with_since_when_and_its_letters(stream: RoutedStream) -> None:
    (told,) = json.loads(command(stream, "status", "--json").stdout)["streams"]
    assert told["parked"].keys() == {DELETES}
    assert told["parked"][DELETES]["dead_letters"] == 4 and told["parked"][DELETES]["since"].startswith("20")
    assert f"suspended: {DELETES}" in command(stream, "status").output
    said = CliRunner().invoke(main, ["--home", str(stream.home), "status"]).output
    assert (
        f"! payments: table {DELETES} is suspended since" in said
        and f"frazil accept payments --unpark {DELETES}" in said
    )


@pytest.mark.parametrize(
    ("offset", "fate", "sentence", "tables"),
    [
        (6, "row", f"is a row of {CHANGES}", [CHANGES]),
        (7, "parked", "is in no table yet: it is a dead letter for a table that is or was suspended", []),
        (5, "row", f"is a row of {CHANGES}", [CHANGES]),
    ],
)
def test_at_tells_a_record_that_is_parked(
    stream: RoutedStream, offset: int, fate: str, sentence: str, tables: list[str]
) -> None:
    place = ["--partition", "0", "--offset", str(offset)]
    told = json.loads(command(stream, "at", *place, "--json").stdout)
    assert told["fate"] == fate and [row["table"] for row in told["rows"]] == tables
    waits = [(each["target"], each["state"]) for each in told["parked"]]
    assert waits == ([] if offset == 5 else [(DELETES, "new")]) and not told["pending_tables"]
    output = command(stream, "at", *place).output
    assert f"offset {offset} {sentence}" in output
    assert (f"a dead letter for table {DELETES}; new" in output) == (offset != 5)


def test_it_is_unparked_and_replayed_and_the_audit_is_complete(stream: RoutedStream) -> None:
    before = json.loads(command(stream, "audit", "--full", "--json").stdout)
    assert before["verdict"] == "complete"
    assert any(
        f"table {DELETES} is suspended since" in note and "4 dead letters wait" in note for note in before["notes"]
    )
    said = command(stream, "accept", "--unpark", DELETES, "--reason", "it is wanted again", "--yes").output
    assert f"Recorded on {SINK}, {DELETES}." in said
    assert said.endswith("Next: frazil run payments, then frazil replay payments, which brings its dead letters back\n")
    command(stream, "replay")
    assert stream.offsets(DELETES) == [1, 2, 6, 7]
    after = json.loads(command(stream, "audit", "--full", "--json").stdout)
    assert after["verdict"] == "complete" and not after["problems"]
    told = json.loads(command(stream, "at", "--partition", "0", "--offset", "7", "--json").stdout)
    assert [(each["target"], each["state"]) for each in told["parked"]] == [(DELETES, "replayed")]


@pytest.mark.parametrize("fault", ["doubled", "missing", "a letter gone"])
def test_the_audit_finds_what_is_wrong_with_what_came_home(stream: RoutedStream, fault: str) -> None:
    command(stream, "accept", "--unpark", DELETES, "--reason", "it is wanted again", "--yes")
    command(stream, "replay")
    table = stream.catalog.load_table(DELETES)
    if fault == "doubled":
        table.append(table.scan(row_filter="_kafka_offset = 6").to_arrow())
    elif fault == "missing":
        table.delete("_kafka_offset = 7")
    else:
        stream.catalog.load_table(f"{SINK}_dead").delete("offset = 6")
    told = json.loads(command(stream, "audit", "--full", "--json", code=1).stdout)
    kinds = {"doubled": "doubled", "missing": "missing", "a letter gone": "dead_letters"}
    (problem,) = [each for each in told["problems"] if each["kind"] == kinds[fault]]
    assert problem["records"] == 1
