"""Columns that new JSON fields may be under a former name: told only where nothing else can be meant."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from jobs.records.formats.interface.decoder_spec import DeclaredSchema, DecoderSpec
from jobs.records.formats.json.new_fields import former_column
from jobs.records.formats.json.seen_values import parsed
from jobs.records.formats.known_formats import FORMATS
from jobs.records.schema.needs import EvolutionPolicy, Path
from jobs.records.schema.parser import parse_schema

COLUMNS = (
    "id string, amount decimal(9,2), created timestamptz, flag boolean, "
    "payer struct<name string, card long>, items list<struct<sku string>>, tags map<string, struct<code int>>"
)


def former(path: str, record: Any, columns: str = COLUMNS) -> Path | None:
    return former_column(parse_schema(columns), parsed(json.dumps(record).encode()), tuple(path.split(".")))


@pytest.mark.parametrize(
    ("path", "record", "column"),
    [
        ("amount_eur", {"id": "a", "amount_eur": 1.5}, "amount"),
        ("amount_eur", {"id": "a", "amount_eur": 2**70}, "amount"),
        ("created_at", {"created_at": "2026-01-01T00:00:00Z"}, "created"),
        ("is_flag", {"is_flag": True}, "flag"),
        ("payer.full_name", {"payer": {"full_name": "x", "card": 1}}, "payer.name"),
        ("items.element.sku_code", {"items": [{}, {"sku_code": "x"}]}, "items.element.sku"),
        ("tags.value.codes", {"tags": {"a": {"codes": 1}}}, "tags.value.code"),
        ("payers", {"payers": {"name": "x"}}, "payer"),
        ("item", {"item": [1]}, "items"),
        # Other fields that are new, too, are no reason for doubt unless they are alike.
        ("amount_eur", {"amount_eur": 1, "colour": "red"}, "amount"),
    ],
)
def test_a_field_is_what_its_record_lacks(path: str, record: Any, column: str) -> None:
    assert former(path, record) == tuple(column.split("."))


@pytest.mark.parametrize(
    ("path", "record"),
    [
        # The column is there, too, also as null.
        ("amount_eur", {"amount": 1, "amount_eur": 1.5}),
        ("amount_eur", {"amount": None, "amount_eur": 1.5}),
        ("items.element.sku_code", {"items": [{"sku": "x"}, {"sku_code": "x"}]}),
        # Another kind of value, another name, another struct.
        ("amount_eur", {"amount_eur": "1.5"}),
        ("amount_eur", {"amount_eur": True}),
        ("flag_set", {"flag_set": 1}),
        ("payers", {"payers": "x"}),
        ("colour", {"colour": "red"}),
        ("payer.amount", {"id": "a", "payer": {"amount": 1}}),
        ("full_name", {"full_name": "x"}),
        # Two fields that are alike.
        ("amount_eur", {"amount_eur": 1, "amount_usd": 1}),
        ("amount_eur", {"amount_eur": None}),
        # Nothing of the kind is there.
        ("none.of_it", {"id": 1}),
        ("id.x", {"id": "text"}),
    ],
)
def test_nothing_is_guessed(path: str, record: Any) -> None:
    assert former(path, record) is None


def test_two_columns_that_are_alike_are_no_answer() -> None:
    assert former("amount_eur", {"amount_eur": 1}, "amount_usd long, amount_gbp long") is None
    assert former("amount_eur", {"amount_eur": 1, "amount_usd": 1}, "amount_usd long, amount_gbp long") == (
        "amount_gbp",
    )


@pytest.mark.parametrize("answer", ["auto", "propose", "fail"])
def test_the_need_of_a_new_field_names_it_by_either_decoder(answer: Any) -> None:
    options = {"evolve": EvolutionPolicy(add=answer)}
    values = pa.array([b'{"id":"a","amount":1}', b'{"id":"b","amount_eur":1,"new":{"x":1}}'], pa.binary())
    spec = DecoderSpec("json", DeclaredSchema("id string, amount long"), options)
    for make in (FORMATS["json"].reference, FORMATS["json"].block):
        found = {need.path: (need.row, need.former) for need in make(spec).decode(values).needs}
        assert found == {("amount_eur",): (1, ("amount",)), ("new",): (1, None)}
