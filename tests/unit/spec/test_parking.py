"""What a stream's file says of tables that are parked: which they are, and what does not go with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from jobs.spec.generation import generation
from jobs.spec.models import StreamSpec
from jobs.spec.settings import load_settings

OWN = "orders.payments"
A, B = {"match": "a", "table": "orders.a"}, {"match": "b", "table": "orders.b"}
PARKED, STOPS = {"on_table_error": "park"}, {"on_table_error": "stop"}


def spec(route: dict[str, Any], **more: Any) -> StreamSpec:
    document = {
        "stream": "payments",
        "source": {"topics": ["payments"]},
        "decode": {"value": "json", "schema": "id string, type string, at timestamptz"},
        "table": {"name": OWN},
    }
    return StreamSpec.model_validate({**document, "route": {"by": "type", **route}, **more})


@pytest.mark.parametrize(
    ("route", "parked"),
    [
        ({"tables": [A, B]}, set[str]()),
        ({"tables": [A, B], **PARKED}, {"orders.a", "orders.b"}),
        ({"tables": [A, {**B, **STOPS}], **PARKED}, {"orders.a"}),
        ({"tables": [A, {**B, **PARKED}]}, {"orders.b"}),
        ({"tables": [{**A, **PARKED}, {"match": "c", "table": "orders.a"}, B]}, {"orders.a"}),
        ({"tables": [A, {"match": "b", "table": OWN}], **PARKED}, {"orders.a"}),
        ({"tables": [A], "unmatched": {"table": "orders.rest"}, **PARKED}, {"orders.a", "orders.rest"}),
        ({"tables": [A], "to": "events.{value}", **PARKED}, {"orders.a", "events.x"}),
    ],
)
def test_an_entry_counts_for_its_table_and_else_the_route(route: dict[str, Any], parked: set[str]) -> None:
    made = spec(route).with_named_tables(["events.x"])
    assert {name for name in made.target_names if made.parks(name)} == parked
    assert not made.parks("orders.unknown")


def test_a_table_of_late_rows_is_no_table_of_the_route() -> None:
    late = {"column": "at", "grace": "1h", "late": {"table": "orders.late"}}
    made = spec({"tables": [A], **PARKED}, event_time=late)
    assert {name for name in made.target_names if made.parks(name)} == {"orders.a"}


@pytest.mark.parametrize(
    ("route", "more", "why"),
    [
        ({"tables": [{"match": "b", "table": OWN, **PARKED}]}, {}, "is the stream's own table"),
        (
            {"tables": [{**A, **PARKED}, {"match": "c", "table": "orders.a", **STOPS}]},
            {},
            "is stop, and an entry before says park of orders.a",
        ),
        (
            {"tables": [A], **PARKED},
            {"errors": {"dead_letters": {"mask": {"columns": ["id"]}}}},
            "cannot be park beside errors.dead_letters.mask",
        ),
        (
            {"tables": [{**A, **PARKED}]},
            {"table": {"name": OWN, "kafka_columns": False}},
            "cannot be park without the columns of topic, partition, offset and timestamp",
        ),
    ],
)
def test_what_does_not_go_with_it_is_refused(route: dict[str, Any], more: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        spec(route, **more)


def test_no_row_is_another_one_for_it_and_drivers_are_started_anew_for_it_alone(tmp_path: Path) -> None:
    plain, said = spec({"tables": [A, B]}), spec({"tables": [A, {**B, **STOPS}], **STOPS})
    parked, but = spec({"tables": [A, B], **PARKED}), spec({"tables": [A, {**B, **STOPS}], **PARKED})
    assert len({each.config_hash for each in (plain, said, parked, but)}) == 1
    (tmp_path / "frazil.yaml").write_text("kafka: {bootstrap_servers: 'localhost:1'}\n")
    settings = load_settings(None, home=tmp_path)
    generations = [generation(each, settings) for each in (plain, said, parked, but)]
    assert generations[0] == generations[1] and len(set(generations)) == 3
