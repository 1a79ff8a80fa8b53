"""`frazil schema diff` and `apply` of a stream with several tables: each by its own commit, and finished if stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from pyiceberg.types import LongType

from jobs.base.errors import FrazilError
from jobs.quality.schema_checks.alteration import alter_table
from orchestration.cli.main import main
from orchestration.cli.stream_files.schema import tables
from tests.helpers.evolving_stream import SINK
from tests.helpers.routed_stream import COLUMNS, ROUTE, RoutedStream

TABLES = [SINK, "orders.changes", "orders.deletes"]
RECORDS = [{"id": f"a{at}", "type": kind, "n": at} for at, kind in enumerate(["INS", "UPD", "OWN"])]


@pytest.fixture
def one(tmp_path: Path) -> RoutedStream:
    """A stream all of whose tables have rows, and whose file declares more than they have."""
    stream = RoutedStream(tmp_path / "home", ROUTE)
    stream.land(*RECORDS)
    declare(stream, COLUMNS.replace("n int", "n bigint, note string"))
    return stream


def declare(one: RoutedStream, schema: str) -> None:
    file = one.home / "streams" / "payments.yaml"
    document = yaml.safe_load(file.read_text())
    document["decode"]["schema"] = schema
    file.write_text(yaml.safe_dump(document))


def typed(one: RoutedStream, *words: str, answer: str = "") -> Result:
    return CliRunner().invoke(main, ["--home", str(one.home), "schema", *words], input=answer)


def altered(one: RoutedStream) -> list[str]:
    """The tables that have what the file declares."""
    found = {name: one.catalog.load_table(name).schema() for name in TABLES}
    return [
        name
        for name, schema in found.items()
        if "note" in schema.column_names and isinstance(schema.find_type("n"), LongType)
    ]


def test_every_table_is_shown_and_changed_by_one_question(one: RoutedStream) -> None:
    different = typed(one, "diff", "payments")
    assert different.exit_code == 1
    assert all(f"against table {name} " in different.output for name in TABLES), different.output
    assert typed(one, "apply", "payments", answer="n\n").exit_code == 1 and altered(one) == []
    made = typed(one, "apply", "payments", answer="y\n")
    assert made.exit_code == 0, made.output
    assert altered(one) == TABLES
    assert [line for line in made.output.splitlines() if line.startswith("Done")] == [
        f"Done: table {name} has schema 1." for name in TABLES
    ]
    same = typed(one, "diff", "payments")
    assert same.exit_code == 0, same.output
    assert "nothing to change" in typed(one, "apply", "payments", "--yes").output
    # The stream starts with the file, and what was there before stands.
    more = yaml.safe_load((one.home / "streams" / "payments.yaml").read_text())
    after = RoutedStream(one.home, ROUTE, epoch=2, decode=more["decode"])
    after.log = one.log
    after.land({"id": "b", "type": "UPD", "n": 2**40, "note": "new"}, batch=1)
    assert after.placed() == {SINK: [2], "orders.changes": [0, 1, 3], "orders.deletes": [1, 3]}


def test_what_stops_between_two_tables_is_finished_by_the_same_command(
    one: RoutedStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopping(*given: Any, table: str) -> Any:
        if table == "orders.deletes":
            raise FrazilError("the catalog refuses.")
        return alter_table(*given, table=table)

    with monkeypatch.context() as patched:
        patched.setattr(tables, "alter_table", stopping)
        stopped = typed(one, "apply", "payments", "--yes")
    assert stopped.exit_code == 1
    assert "the catalog refuses. Changed before it: orders.payments, orders.changes." in stopped.output
    assert altered(one) == TABLES[:2]
    facts = json.loads(typed(one, "diff", "payments", "--json").stdout)
    assert not facts["fits"] and [(each["table"], each["fits"]) for each in facts["tables"]] == [
        ("orders.changes", True),
        ("orders.deletes", False),
    ]
    told = json.loads(typed(one, "apply", "payments", "--json", "--yes").stdout)
    assert (told["done"], [each["table"] for each in told["tables"]]) == (True, ["orders.deletes"])
    assert altered(one) == TABLES


def test_a_rename_that_some_tables_have_already_is_made_in_the_others(one: RoutedStream) -> None:
    declare(one, COLUMNS.replace("n int", "number int"))
    with one.catalog.load_table(SINK).update_schema() as change:
        change.rename_column("n", "number")
    made = typed(one, "apply", "payments", "--rename", "n=number", "--yes")
    assert made.exit_code == 0, made.output
    for name in TABLES:
        names = one.catalog.load_table(name).schema().column_names
        assert "number" in names and "n" not in names


def test_no_table_is_changed_where_one_cannot_be(one: RoutedStream) -> None:
    declare(one, COLUMNS.replace("n int", "n string"))
    before = {name: one.catalog.load_table(name).metadata_location for name in TABLES}
    refused = typed(one, "apply", "payments", "--yes")
    assert refused.exit_code == 1 and "Nothing was changed" in refused.output
    assert {name: one.catalog.load_table(name).metadata_location for name in TABLES} == before


def test_tables_that_values_name_are_among_them(tmp_path: Path) -> None:
    one = RoutedStream(tmp_path / "home", {"by": "type", "to": "orders.of_{value}"})
    one.land(*RECORDS)
    declare(one, COLUMNS + ", note string")
    made = typed(one, "apply", "payments", "--yes")
    assert made.exit_code == 0, made.output
    for name in ("orders.of_INS", "orders.of_UPD", "orders.of_OWN"):
        assert "note" in one.catalog.load_table(name).schema().column_names


def test_a_table_gets_the_columns_that_it_is_to_have_and_no_others(tmp_path: Path) -> None:
    tables = [
        {"match": "INS|UPD", "table": "orders.changes", "columns": ["id", "note"]},
        {"match": ["UPD"], "table": "orders.deletes", "columns": {"drop": ["note", "n"]}},
    ]
    route = {"by": "type", "tables": tables, "unmatched": {"table": SINK}}
    wide = COLUMNS + ", note string"
    one = RoutedStream(tmp_path / "home", route, decode={"value": "json", "schema": wide})
    one.land(*RECORDS)
    assert one.placed() == {SINK: [2], "orders.changes": [0, 1], "orders.deletes": [1]}
    assert typed(one, "diff", "payments").exit_code == 0
    declare(one, wide.replace("note string", "remark string, more string"))
    different = typed(one, "diff", "payments")
    assert different.exit_code == 1 and "route.tables[0].columns[1]" in different.output, different.output
    file = one.home / "streams" / "payments.yaml"
    document = yaml.safe_load(file.read_text())
    document["route"]["tables"][0]["columns"] = ["id", "remark"]
    document["route"]["tables"][1]["columns"] = {"drop": ["remark", "more", "n"]}
    file.write_text(yaml.safe_dump(document))
    made = typed(one, "apply", "payments", "--rename", "note=remark", "--yes")
    assert made.exit_code == 0, made.output
    names = {
        name: [each for each in one.catalog.load_table(name).schema().column_names if not each.startswith("_kafka")]
        for name in TABLES
    }
    assert {*names[SINK]} == {"id", "type", "n", "remark", "more"}
    assert names["orders.changes"] == ["id", "remark"] and names["orders.deletes"] == ["id", "type"]
    assert typed(one, "diff", "payments").exit_code == 0
