"""Fields that no declared column takes, of a stream with steps: they pass beside the columns, as they were sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from jobs.base.errors import FrazilError
from jobs.config.stream.models import StreamSpec
from jobs.maintenance.backfill.promotion import promotion
from jobs.streaming.driver.opening.opening import ensure_tables
from tests.helpers.evolving_stream import SINK
from tests.helpers.routed_stream import RoutedStream

DECODE = {"value": "json", "schema": "id string not null, p struct<at string>", "unknown_fields": "keep"}
STEPS: list[Any] = ["flatten", {"rename": {"p_at": "at"}}, {"where": "id <> 'x'"}]


def test_what_is_kept_is_of_the_record_before_the_steps(tmp_path: Path) -> None:
    one = RoutedStream(tmp_path / "home", decode=DECODE, transform=STEPS)
    assert list(one.columns) == ["id", "at", "_extra"]
    one.land(
        {"id": "a", "p": {"at": "now", "b": [1.25]}, "c": None}, {"id": "b", "p": {"at": "then"}}, {"id": "x", "y": 1}
    )
    assert one.rows == [
        {"id": "a", "at": "now", "_extra": '{"c":null,"p":{"b":[1.25]}}'},
        {"id": "b", "at": "then"},
    ]


def test_steps_may_read_what_is_kept(tmp_path: Path) -> None:
    steps = [*STEPS, {"compute": {"has_more": "_extra is not null"}}]
    one = RoutedStream(tmp_path / "home", decode=DECODE, transform=steps)
    one.land({"id": "a", "y": 1}, {"id": "b"})
    assert [each["has_more"] for each in one.rows] == [True, False]


@pytest.mark.parametrize(
    "steps",
    [
        [{"drop": ["_extra"]}],
        [{"keep": ["id"]}],
        [{"extract": {"column": "p"}}],
        [{"hoist": {"into": "all"}}],
        [{"rename": {"_extra": "rest"}}],
        [{"smt": {"type": "ExtractField$Value", "field": "p"}}],
    ],
)
def test_steps_that_lose_what_is_kept_are_refused(steps: list[Any]) -> None:
    document = {
        "stream": "payments",
        "source": {"topics": ["payments"]},
        "decode": DECODE,
        "transform": steps,
        "table": {"name": SINK},
    }
    with pytest.raises(ValidationError, match="behind the steps there is no text column _extra"):
        StreamSpec.model_validate(document)


def test_extract_can_keep_it(tmp_path: Path) -> None:
    steps = [{"extract": {"column": "p", "keep": ["id", "_extra"]}}]
    one = RoutedStream(tmp_path / "home", decode=DECODE, transform=steps)
    one.land({"id": "a", "p": {"at": "now", "b": 1}})
    assert one.rows == [{"id": "a", "at": "now", "_extra": '{"p":{"b":1}}'}]


def test_rules_go_with_it_as_well(tmp_path: Path) -> None:
    one = RoutedStream(tmp_path / "home", decode=DECODE, rules=[{"name": "short", "expect": "length(id) < 3"}])
    one.land({"id": "a", "y": 1}, {"id": "long", "y": 2})
    assert one.rows == [{"id": "a", "_extra": '{"y":1}'}] and one.letters == {1: "rule_violated"}


def test_a_table_of_before_is_altered_by_schema_apply(tmp_path: Path) -> None:
    one = RoutedStream(tmp_path / "home", decode=DECODE | {"unknown_fields": "ignore"}, transform=STEPS)
    one.land({"id": "a"})
    spec = StreamSpec.model_validate(one.spec.model_dump(exclude_defaults=True) | {"decode": DECODE})
    with pytest.raises(
        FrazilError, match=r"Column _extra is declared, but the table has no such column.*\n?.*schema apply"
    ):
        ensure_tables(spec, one.catalog)


def test_no_kept_field_is_promoted_past_the_steps(tmp_path: Path) -> None:
    one = RoutedStream(tmp_path / "home", decode=DECODE, transform=STEPS)
    with pytest.raises(FrazilError, match="what is kept in _extra is of the record before them"):
        promotion(one.spec, one.table.schema(), ("y",), None)
