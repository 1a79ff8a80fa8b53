"""Records as each connector documents them, through a stream's whole pipeline."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest

from tests.unit.transform.changes.streams import DATA, fates, key_of, landed, stream

CONNECTORS = sorted(each.stem for each in DATA.glob("*.json"))


def cases(connector: str) -> dict[str, Any]:
    return json.loads((DATA / f"{connector}.json").read_text())


def plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


@pytest.mark.parametrize("connector", CONNECTORS)
@pytest.mark.parametrize("reference", [False, True], ids=["block", "reference"])
def test_each_record_becomes_what_the_connector_means(connector: str, reference: bool) -> None:
    said = cases(connector)
    key = key_of(said["key"]) if "key" in said else None
    found = fates(landed(stream(said["schema"], said["changes"], key), said["records"], reference=reference))
    for each, fate in zip(said["records"], found, strict=True):
        if "row" in each:
            assert isinstance(fate, dict), f"{each['what']}: {fate}"
            shown = {name: plain(fate[name]) for name in each["row"]}
            assert shown == each["row"], each["what"]
        else:
            assert isinstance(fate, str), f"{each['what']}: {fate}"
            assert fate.startswith(each["fate"]), each["what"]


def test_a_lineage_need_not_name_the_server_that_wrote() -> None:
    """As a mirror asks for where several servers write to one binlog."""
    schema = (
        "after struct<id: int>, op string, ts_ms long, "
        "source struct<connector: string, file: string, pos: long, server_id: long>"
    )
    source = {"connector": "mysql", "file": "b.000001", "pos": 4}
    values = [{"after": {"id": 1}, "op": "c", "source": {**source, "server_id": each}} for each in (0, 1, 223344)]
    step = {"compute": {"_change_lineage": "regexp_replace(_change_lineage, '/[0-9]*$', '')"}}
    found = fates(landed(stream(schema, "debezium", transform=[step]), [{"value": each} for each in values]))
    assert [row["_change_lineage"] for row in found] == ["mysql//b"] * 3
