"""Fields that their producers renamed: it is told, never done; and one command lets them land where they belong."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.types import LongType

from jobs.base.errors import FrazilError
from jobs.config.stream.models import StreamSpec
from jobs.quality.schema_checks.alteration import Alteration, alter_table, renaming_alteration
from jobs.records.schema.column_names import unreadable_names
from jobs.records.schema.difference import parse_rename
from jobs.records.schema.schema_change import SchemaChange
from jobs.streaming.driver.tables.schema_proposals import proposals
from tests.helpers.evolving_stream import EvolvingStream

COLUMNS = "id string, amount long, payer struct<name string>"


def rename(one: EvolvingStream, *texts: str) -> None:
    """As `frazil schema apply STREAM --rename` does."""
    renames = [parse_rename(text) for text in texts]
    given = (one.table.metadata.current_schema_id, "me@here")
    alter_table(one.catalog, one.spec, lambda now: renaming_alteration(one.spec, now, renames), *given)


def test_a_new_column_is_made_and_it_is_told_what_it_looks_like(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    one = EvolvingStream(home, columns=COLUMNS)
    one.land({"id": "a", "amount": 1}, {"id": "b", "amount_eur": 2, "payer": {"full_name": "x"}})
    said = "add column amount_eur long, which looks like column amount under another name"
    (record,) = one.history
    assert set(record.changes) == {
        said,
        "add column payer.full_name string, which looks like column payer.name under another name",
    }
    assert said in caplog.text
    assert one.rows == [
        {"id": "a", "amount": 1},
        {"id": "b", "amount_eur": 2, "payer": {"name": None, "full_name": "x"}},
    ]


def test_a_column_beside_that_is_no_rename_is_added_without_a_word(home: Path) -> None:
    one = EvolvingStream(home, columns=COLUMNS)
    one.land({"id": "a", "amount": 1, "amount_eur": 1})
    assert one.history[0].changes == ("add column amount_eur long",)


def test_a_proposal_names_both_commands_and_the_rename_lets_both_names_land(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = EvolvingStream(home, columns=COLUMNS, add="propose")
    one.land({"id": "a", "amount": 1}, {"id": "b", "amount_eur": 2})
    store = one.stream.folder.store
    (found,) = proposals(store, one.table.schema())
    assert found.rename == "frazil schema apply payments --rename amount=amount_eur"
    assert found.says == "add column amount_eur long, which looks like column amount under another name"
    assert f"{found.command}; or {found.rename}" in caplog.text
    assert one.letters == {1: "schema_change_proposed"}
    ident = one.table.schema().find_field("amount").field_id
    rename(one, "amount=amount_eur", "payer.name=full_name")
    assert one.table.schema().find_field("amount_eur").field_id == ident
    assert proposals(store, one.table.schema()) == [], "what was proposed is there"
    # The driver goes on with the table as it is; records under either name land.
    one.stream.targets["orders.payments"].read()
    one.land({"id": "c", "amount_eur": 3, "payer": {"full_name": "x"}}, {"id": "d", "amount": 4}, batch=1)
    assert one.runs == 1
    assert one.rows == [
        {"id": "a", "amount_eur": 1},
        {"id": "c", "amount_eur": 3, "payer": {"full_name": "x"}},
        {"id": "d", "amount_eur": 4},
    ]


@pytest.mark.parametrize("add", ["auto", "ignore"])
def test_a_former_name_in_another_case_is_no_null(home: Path, add: str) -> None:
    one = EvolvingStream(home, columns=COLUMNS, add=add)
    rename(one, "amount=amount_eur", "payer.name=full_name")
    one.stream.targets["orders.payments"].read()
    both = {"amount": 2, "AMOUNT": 3}
    one.land({"id": "a", "Amount": 1}, {"id": "b", "payer": {"NAME": "x"}}, {"id": "c", **both}, {"id": "d"})
    refused = {"auto": {2: "schema_change_refused"}, "ignore": {}}
    assert one.letters == {0: "key_case", 1: "key_case"} | refused[add]
    assert "AMOUNT" not in one.columns


def test_a_rename_while_tasks_run_takes_no_value(home: Path) -> None:
    one = EvolvingStream(home, columns=COLUMNS)
    one.land({"id": "a", "amount": 1})
    renamed: list[int] = []

    def between() -> None:
        if not renamed:
            renamed.append(1)
            rename(one, "amount=amount_eur")

    one.between = between
    one.land({"id": "b", "amount": 2}, batch=1)
    one.land({"id": "c", "amount": 3}, {"id": "d", "amount_eur": 4}, batch=2)
    assert [row["amount_eur"] for row in one.rows] == [1, 2, 3, 4]
    assert one.columns == {"id": "string", "amount_eur": "long", "payer": one.columns["payer"]}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("_kafka_offset=position", "_kafka_offset is not from records' values"),
        ("amount=_kafka_amount", "names that start with _kafka"),
        ("amount=_extra", "_extra is not from records' values"),
        ("amount=ID", "there is a column id already"),
        ("nothing=something", "the table has no column nothing"),
    ],
)
def test_what_cannot_be_renamed_is_told(home: Path, text: str, why: str) -> None:
    one = EvolvingStream(home, columns=COLUMNS)
    with pytest.raises(FrazilError, match=why):
        renaming_alteration(one.spec, one.table.metadata, [parse_rename(text)])


@pytest.mark.parametrize(("column", "beside"), [("at_day", "at timestamptz"), ("_deleted", ""), ("_1x", "`1x` long")])
def test_a_column_with_a_name_that_engines_refuse_is_renamed_and_its_field_lands(
    home: Path, column: str, beside: str
) -> None:
    table = {"name": "orders.payments", "partition_by": ["day(at)"] if column == "at_day" else []}
    one = EvolvingStream(home, columns=f"id string, {beside}".strip(", "), more={"table": table})
    one.land({"id": "a"})
    # As an earlier release did.
    made = Alteration((SchemaChange("add", (column,), LongType()),))
    alter_table(one.catalog, one.spec, lambda _: made, one.table.metadata.current_schema_id, "me@here")
    assert [name for (name,), _ in unreadable_names(one.table.metadata)] == [column]
    rename(one, f"{column}=renamed")
    assert list(unreadable_names(one.table.metadata)) == []
    one.stream.targets["orders.payments"].read()
    one.land({"id": "b", column: 2}, batch=1)
    assert one.rows == [{"id": "a"}, {"id": "b", "renamed": 2}] and one.letters == {}
    back = renaming_alteration(one.spec, one.table.metadata, [parse_rename(f"renamed={column}")])
    assert len(back.refused) == 1


def test_a_boolean_that_gets_fields_under_its_former_name_gets_a_column_of_its_own(home: Path) -> None:
    def envelope(created: Any) -> bytes:
        inner = [{"field": "by", "type": "string"}]
        kind = {"type": "boolean"} if isinstance(created, bool) else {"type": "struct", "fields": inner}
        fields = [{"field": "id", "type": "string"}, {**kind, "field": "created", "optional": True}]
        schema = {"type": "struct", "fields": fields}
        return json.dumps({"schema": schema, "payload": {"id": "a", "created": created}}).encode()

    decode = {"value": "connect_json", "schema": "infer"}
    one = EvolvingStream(home, columns="id string, created boolean", decode=decode)
    one.land(envelope(True))
    one.land(envelope({"by": "x"}), batch=1)
    assert one.letters == {1: "wrong_type"}
    rename(one, "created=created_flag")
    one.stream.targets["orders.payments"].read()
    one.land(envelope({"by": "x"}), batch=2)
    assert one.letters == {1: "wrong_type"}
    assert one.rows == [{"id": "a", "created_flag": True}, {"id": "a", "created": {"by": "x"}}]


def test_a_column_that_the_file_names_keeps_its_name(home: Path) -> None:
    one = EvolvingStream(home, columns=COLUMNS, mask=["amount"])
    found = renaming_alteration(one.spec, one.table.metadata, [parse_rename("amount=amount_eur")])
    place = "errors.dead_letters.mask.columns in the stream's file"
    assert found.refused == (f"{place} names amount: name amount_eur beside it",)
    assert not renaming_alteration(one.spec, one.table.metadata, [parse_rename("payer.name=who")]).refused
    both = EvolvingStream(home / "both", columns=COLUMNS, mask=["payer.name", "who.name"])
    assert not renaming_alteration(both.spec, both.table.metadata, [parse_rename("payer=who")]).refused
    assert renaming_alteration(both.spec, both.table.metadata, [parse_rename("payer=whose")]).refused


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"table": {"name": "orders.payments", "partition_by": ["amount"]}}, "table.partition_by.0"),
        ({"table": {"name": "orders.payments", "sort_by": ["amount"]}}, "table.sort_by.0"),
        (
            {"contract": {"expectations": [{"expect_column_values_to_not_be_null": {"column": "amount"}}]}},
            "contract.expectations.0",
        ),
    ],
)
def test_whatever_names_a_column_in_the_file_goes_first(home: Path, more: dict[str, Any], said: str) -> None:
    one = EvolvingStream(home, columns=COLUMNS)
    spec = StreamSpec.model_validate(
        {"stream": "payments", "source": {"topics": ["payments"]}, "decode": {"value": "json", "schema": "infer"},
         "table": {"name": "orders.payments"}} | more
    )  # fmt: skip
    found = renaming_alteration(spec, one.table.metadata, [parse_rename("amount=amount_eur")])
    assert [each.partition(" ")[0].startswith(said) for each in found.refused] == [True], found.refused


def test_a_new_column_that_looks_like_one_stops_a_stream_with_that_word(home: Path) -> None:
    one = EvolvingStream(home, columns=COLUMNS, add="fail")
    with pytest.raises(FrazilError, match=r"looks like column amount under another name; evolve.add is fail"):
        one.land({"id": "a", "amount_eur": 1})


def test_a_column_of_the_table_that_came_since_is_no_proposal_any_more(home: Path) -> None:
    one = EvolvingStream(home, columns=COLUMNS, add="propose")
    one.land({"id": "b", "amount_eur": 2})
    with one.table.update_schema() as update:
        update.add_column("amount_eur", LongType())
    assert proposals(one.stream.folder.store, one.table.schema()) == []
