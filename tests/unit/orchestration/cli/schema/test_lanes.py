"""`frazil schema` and `frazil validate` of a stream each of whose tables has columns of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import LongType

from tests.helpers.command import frazil as run
from tests.helpers.lane_stream import LaneStream

TABLES = [{"match": each, "table": f"lake.{each}"} for each in "ab"]


@pytest.fixture
def one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LaneStream:
    route: dict[str, Any] = {"by": "topic", "tables": TABLES}
    made = LaneStream(tmp_path / "home", route, {}, monkeypatch, evolve={"add": "propose"})
    made.produce("a", {"id": 1}, {"id": 2, "more": 1})
    made.produce("b", {"id": "x"}, {"id": "y", "more": "m"})
    made.land()
    made.produce("a", {"id": 3, "later": 1})
    made.produce("b", {"id": "z", "later": "l"})
    made.land(1)
    return made


def test_each_table_is_asked_by_itself(one: LaneStream, tmp_path: Path) -> None:
    unnamed = run(one, "schema", "diff", "shop")
    assert unnamed.exit_code == 2
    assert "each table of shop has columns of its own: name one, as in --table lake.a, lake.b" in unnamed.output
    shown = run(one, "schema", "diff", "shop", "--table", "lake.b", "--json")
    assert shown.exit_code == 0, shown.output
    proposed = json.loads(shown.stdout)["proposals"]
    assert [each["says"] for each in proposed] == ["add column later string"]
    # The proposal says which table it is of.
    made = run(one, "schema", "apply", "shop", "--proposal", proposed[0]["id"], "--yes")
    assert made.exit_code == 0, made.output
    assert one.columns("lake.b") == {"id": "string", "more": "string", "later": "string"}
    assert one.columns("lake.a") == {"id": "long", "more": "long"}
    renamed = run(one, "schema", "apply", "shop", "--table", "lake.a", "--rename", "more=less", "--yes")
    assert renamed.exit_code == 0, renamed.output
    assert one.columns("lake.a") == {"id": "long", "less": "long"}
    records = tmp_path / "records.jsonl"
    records.write_text('{"id": "text"}\n')
    checked = run(one, "schema", "check", "shop", "--against", str(records), "--table", "lake.a")
    assert checked.exit_code == 1 and "wrong_type" in checked.output
    assert run(one, "schema", "check", "shop", "--against", str(records), "--table", "lake.b").exit_code == 0


def test_validate_tells_of_each_table(one: LaneStream) -> None:
    said = run(one, "validate", "shop").output
    assert "table lake.stream has the stream's stamps, and gets no rows" in said
    one.catalog.drop_table("lake.b")
    assert "table lake.b does not exist yet" in run(one, "validate", "shop").output


def test_a_table_that_goes_without_columns_is_asked_about_those_that_are_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = [{"match": "b", "table": "lake.b", "columns": {"drop": ["secret"]}}]
    route: dict[str, Any] = {"by": "topic", "tables": tables}
    one = LaneStream(tmp_path / "home", route, {}, monkeypatch, evolve={"add": "propose"})
    one.produce("b", {"id": "x"})
    one.land()
    one.produce("b", {"id": "y", "secret": "s"}, {"id": "w", "secret": "s", "later": 1})
    one.land(1)
    shown = run(one, "schema", "diff", "shop", "--table", "lake.b", "--json")
    assert shown.exit_code == 0, shown.output
    proposed = {each["says"]: each["id"] for each in json.loads(shown.stdout)["proposals"]}
    # Nobody is asked for what the table goes without.
    assert set(proposed) == {"add column later long"}
    for each in proposed.values():
        made = run(one, "schema", "apply", "shop", "--proposal", each, "--yes")
        assert made.exit_code == 0, made.output
    assert one.columns("lake.b") == {"id": "string", "later": "long"}
    assert "wrong" not in run(one, "validate", "shop").output
    after = LaneStream(tmp_path / "home", route, one.log, monkeypatch, 2, evolve={"add": "propose"})
    after.produce("b", {"id": "z", "secret": "s", "later": 2})
    after.land(0)
    rows = after.catalog.load_table("lake.b").scan().to_arrow().to_pylist()
    assert {row["id"]: row["later"] for row in rows} == {"x": None, "y": None, "z": 2}
    records = tmp_path / "records.jsonl"
    records.write_text('{"id": "text", "secret": "t"}\n{"id": "text", "secret": 1}\n')
    checked = run(one, "schema", "check", "shop", "--against", str(records), "--table", "lake.b")
    assert "wrong_type" in checked.output


def test_validate_tells_which_table_lacks_the_column_of_the_event_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = LaneStream(tmp_path / "home", {"by": "topic", "tables": TABLES}, {}, monkeypatch)
    one.produce("a", {"id": 1})
    one.land()
    LaneStream(tmp_path / "home", {"by": "topic", "tables": TABLES}, {}, monkeypatch, 2)
    file = one.home / "streams" / "shop.yaml"
    file.write_text(file.read_text() + "event_time: {column: at}\n")
    said = run(one, "validate", "shop").output
    assert "table lake.a: event_time.column: 'at' is no column of the rows" in said


def test_the_table_of_late_rows_follows_what_is_applied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decode = {"value": {"format": "json", "infer": {"times": True}}, "schema": "infer"}
    more: dict[str, Any] = {"evolve": {"add": "propose"}, "event_time": {"column": "at", "late": "table"}}
    one = LaneStream(tmp_path / "home", {"by": "topic", "tables": TABLES}, {}, monkeypatch, decode=decode, **more)
    one.produce("a", {"id": 1, "at": "2026-03-01T12:00:00Z"})
    one.produce("b", {"id": "x", "at": "2026-03-01T12:00:00Z"})
    one.land()
    one.produce("b", {"id": "z", "at": "2026-03-01T11:00:00Z", "later": "l"}, {"id": "y", "at": "2026-03-01T11:00:00Z"})
    one.land(1)
    unnamed = run(one, "schema", "diff", "shop")
    assert "name one, as in --table lake.a, lake.b" in unnamed.output and "_late" not in unnamed.output
    proposed = json.loads(run(one, "schema", "diff", "shop", "--table", "lake.b", "--json").stdout)["proposals"]
    made = run(one, "schema", "apply", "shop", "--proposal", proposed[0]["id"], "--yes")
    assert made.exit_code == 0, made.output
    assert one.columns("lake.b") == one.columns("lake.b_late") and "later" in one.columns("lake.b")
    with one.catalog.load_table("lake.b_late").update_schema() as change:
        change.delete_column("later")
        change.add_column("LATER", LongType())
    told = run(one, "validate", "shop").output
    assert "lake.b_late" in told and "lake.a_late" not in told
