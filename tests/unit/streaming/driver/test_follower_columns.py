"""Columns of tables that follow a stream's own one: what would lose a value, or keep one that is to be left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from jobs.config.stream.models import StreamSpec
from jobs.tables.commit.stamp.offsets import TopicPartition
from tests.helpers.lane_stream import OWN, LaneStream, Log, document

KEPT = {"value": "json", "schema": "infer", "unknown_fields": "keep"}
SHADOW = {"evolve": {"clash": "shadow"}}
EVENTS = TopicPartition("events", 0)


@pytest.mark.parametrize("beside_to", [False, True])
@pytest.mark.parametrize(
    ("columns", "given", "said"),
    [
        (["id", "type"], SHADOW, "does not go with evolve.clash 'shadow', whose texts may be of columns"),
        ({"drop": ["p"]}, SHADOW, "does not go with evolve.clash 'shadow', whose texts may be of columns"),
        ({"drop": ["p"]}, {"decode": KEPT}, "would keep fields in _extra that it leaves out: leave out that"),
        (["id", "_extra"], {"decode": KEPT}, "would lose what is in _extra once the main table has a column"),
        (["*"], {"decode": KEPT}, "would lose what is in _extra once the main table has a column for it"),
        (["id", "type"], {"decode": KEPT}, None),
        ({"drop": ["p", "_extra"]}, {"decode": KEPT}, None),
        (["id", "_extra"], {}, None),
        ({"drop": ["p"]}, {"decode": {"value": "json", "schema": "table"}}, None),
    ],
)
def test_which_columns_do_not_go_with_fields_that_may_be_elsewhere(
    columns: Any, given: dict[str, Any], said: str | None, beside_to: bool
) -> None:
    route: dict[str, Any] = {"by": "type", "to": "lake.{value}", "columns": columns}
    if not beside_to:
        route = {"by": "type", "tables": [{"match": "a", "table": "lake.a", "columns": columns}]}
    place = "route.columns" if beside_to else "route.tables[0].columns"
    if said is None:
        StreamSpec.model_validate(document(route, **given))
        return
    with pytest.raises(ValueError, match="validation error") as refused:
        StreamSpec.model_validate(document(route, **given))
    assert f"{place}: {said}" in str(refused.value)


@pytest.mark.parametrize("before", [False, True], ids=["new", "the own table is there without it"])
def test_what_is_kept_may_be_left_out_before_a_record_needs_its_column(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: bool
) -> None:
    route = {
        "by": "type",
        "tables": [{"match": "DEL", "table": "lake.deletes", "columns": {"drop": ["p", "_extra"]}}],
        "unmatched": {"table": OWN},
    }
    log: Log = {EVENTS: [json.dumps({"id": 1, "type": "DEL", "p": 5}).encode()]}
    if before:
        LaneStream(tmp_path / "home", {"by": "type", "to": "lake.{value}"}, log, monkeypatch)
    one = LaneStream(tmp_path / "home", route, log, monkeypatch, 2, decode=KEPT)
    one.land()
    one.produce("events", {"id": 2, "type": "DEL", "secret": 1}, {"id": 3, "type": "INS", "secret": 2})
    one.land(1)
    assert one.columns("lake.deletes") == {"id": "long", "type": "string"}
    assert one.columns(OWN)["_extra"] == "string" and one.letters() == {}
    assert {name: [each[2] for each in places] for name, places in one.placed().items()} == {
        "lake.deletes": [0, 1],
        OWN: [2],
    }
