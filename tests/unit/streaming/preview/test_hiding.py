"""What a preview does not show: masked fields under every name, and what steps have made of them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from jobs.config.values.mask import Mask
from jobs.records.schema.kafka_columns import KAFKA_COLUMNS
from jobs.records.schema.name_matching import NameRule
from jobs.streaming.preview.run import joint_mask
from jobs.streaming.preview.values import (
    Hiding,
    decoded_hiding,
    kind_of,
    landed_hiding,
)
from orchestration.cli.stream_files.preview.output import preview_facts
from tests.unit.streaming.preview.previews import (
    block_of,
    previewed,
    record,
    spec_of,
)

SECRET = "4111-0000"
MASK = {"dead_letters": {"mask": {"columns": ["card"], "headers": ["auth"], "key": True}}}


@pytest.mark.parametrize(
    ("path", "row", "shown"),
    [
        (("card",), {"card": "x", "id": "a"}, {"card": "[masked]", "id": "a"}),
        (("card",), {"Card": "x"}, {"Card": "[masked]"}),
        (("card",), {"card": None}, {"card": "[masked]"}),
        (("p", "card"), {"p": {"card": "x", "n": 1}}, {"p": {"card": "[masked]", "n": 1}}),
        (("p", "card"), {"p": None}, {"p": None}),
        (("p", "card"), {"p": [{"card": "x"}, None]}, {"p": [{"card": "[masked]"}, None]}),
        (("p", "card"), {"p": '{"card": "x"}'}, {"p": "[masked]"}),
        (("p", "card"), {"p": [("card", "x")]}, {"p": "[masked]"}),
        (("p", "card"), {"p": []}, {"p": []}),
    ],
)
def test_a_path_is_hidden_wherever_it_leads(path: tuple[str, ...], row: Any, shown: Any) -> None:
    assert Hiding((path,)).shown(row) == shown


def test_what_steps_have_made_shows_its_kind_only() -> None:
    hiding = Hiding((("card",),), frozenset({"made"}))
    assert hiding.shown({"made": 5, "other": None}) == {"made": "(int)", "other": None}
    assert (kind_of(None), kind_of("x")) == (None, "(str)")
    assert [hiding.hides(name) for name in ("card", "CARD", "made", "id")] == [True, True, True, False]


def test_columns_of_masked_fields_are_found_by_every_name() -> None:
    rows = spec_of().declared_rows
    columns = spec_of(
        decode={
            "key": {"format": "string", "into": "the_key"},
            "headers": {"who": {"type": "string", "header": "auth"}},
        },
        table={"kafka_columns": {"headers": "all_headers"}},
    ).record_columns
    renamed = NameRule(aliases=((("card",), ("pan",)),))
    hidden = decoded_hiding(Mask(columns=("pan",), headers=("auth",), key=True), rows, columns, renamed)
    for name in ("card", "pan", "card_text", "_extra", "the_key", "who", "all_headers"):
        assert hidden.hides(name), name
    assert not hidden.hides("id")
    assert decoded_hiding(Mask(), rows, columns, renamed).masked == ()


def test_behind_steps_only_what_stayed_the_same_is_shown() -> None:
    before = Hiding((("card",),))
    rows: list[tuple[Any, Any]] = [
        ({"id": "a", "card": SECRET, "n": 1}, {"id": "a", "c": SECRET, "n": 1, "_kafka_offset": 7}),
        ({"id": "b", "card": SECRET, "n": 1}, {"id": "b", "c": SECRET, "n": 2, "_kafka_offset": 8}),
    ]
    assert landed_hiding(before, rows, KAFKA_COLUMNS, transformed=True).derived == {"c", "n"}
    assert landed_hiding(before, rows, KAFKA_COLUMNS, transformed=False) == before
    assert landed_hiding(Hiding(), rows, KAFKA_COLUMNS, transformed=True) == Hiding()


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"transform": [{"rename": {"card": "pan"}}, {"compute": {"copy": "upper(pan)"}}]},
        {"transform": [{"set": {"who": {"from": "header:auth"}, "key": {"from": "key"}}}]},
        {"transform": [{"rename": {"card": "id2"}}, {"cast": {"id2": "int"}}]},
        {"route": {"by": "card", "tables": [{"match": "never", "table": "orders.never"}]}},
        {
            "transform": [{"rename": {"card": "pan"}}],
            "route": {"by": "pan", "tables": [{"match": "never", "table": "orders.never"}]},
        },
        {"rules": [{"name": "never", "expect": "card = 'other'"}]},
        {"table": {"partition_by": ["card"]}},
        {"transform": [{"rename": {"card": "pan"}}], "table": {"partition_by": ["truncate(4, pan)"]}},
        {"table": {"kafka_columns": {"key": "raw_key", "headers": "raw_headers"}}},
    ],
)
def test_nothing_masked_is_in_the_facts_of_a_preview(more: Any) -> None:
    spec = spec_of(errors=MASK, **more)
    block = block_of(
        [{"id": "a", "card": SECRET, "kind": "x"}, {"card": SECRET}, SECRET.encode()],
        headers=[("auth", SECRET.encode())],
    )
    found = previewed(spec, block)
    facts = json.dumps(preview_facts(found, "file", {}, 100))
    assert SECRET not in facts and "4111" not in facts
    assert "NDExMS0wMDAw" not in facts, "in Base64"
    assert "k0" not in facts and "azA=" not in facts, "the key"
    decoded = record(found, 0).decoded
    assert decoded is not None and decoded["card"] == SECRET, "the difference of two needs it"


def test_unmasked_columns_are_shown_beside_masked_ones() -> None:
    spec = spec_of(errors=MASK, transform=[{"rename": {"card": "pan"}}])
    (row, *_) = preview_facts(previewed(spec, [{"id": "a", "card": SECRET}]), "file", {}, 5)["rows"]
    assert row["before"] == {"id": "a", "kind": None, "amount": None, "card": "[masked]"}
    after = row["after"]["orders.payments"]
    assert (after["id"], after["pan"], after["_kafka_offset"]) == ("a", "(str)", 0)


def test_what_one_of_two_files_masks_is_hidden_for_both() -> None:
    first = spec_of(errors={"dead_letters": {"mask": {"columns": ["card"]}}})
    second = spec_of(errors={"dead_letters": {"mask": {"columns": ["card", "id"], "headers": ["h"], "key": True}}})
    assert joint_mask([first, second]) == Mask(columns=("card", "id"), headers=("h",), key=True)
    assert joint_mask([spec_of()]) == Mask()
