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
