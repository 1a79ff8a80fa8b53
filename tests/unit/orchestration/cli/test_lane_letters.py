"""Letters of a stream whose tables have columns of their own: each is masked by the names that its own table has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from pyiceberg.table.name_mapping import MappedField, NameMapping

from orchestration.cli.main import main
from tests.helpers.lane_stream import LaneStream

SECRET = "4000-1234"


def shown(home: Path) -> dict[str, dict[str, Any]]:
    """The letters by their topics."""
    result = CliRunner().invoke(main, ["--home", str(home), "letters", "shop", "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    causes = json.loads(result.stdout)["causes"]
    return {letter["topic"]: letter for cause in causes for letter in cause["shown"]}


def aliased(one: LaneStream, name: str, column: str, alias: str) -> None:
    """Lets records write a column under another name as well."""
    table = one.catalog.load_table(name)
    mapped = [
        MappedField.model_validate(
            {"field-id": each.field_id, "names": [each.name, *([alias] if each.name == column else [])]}
        )
        for each in table.schema().fields
    ]
    with table.transaction() as change:
        change.set_properties({"schema.name-mapping.default": NameMapping(mapped).model_dump_json()})


def test_a_letter_is_masked_by_the_names_of_its_own_topics_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    route = {"by": "topic", "tables": [{"match": name, "table": f"lake.{name}"} for name in ("a", "b", "c")]}
    one = LaneStream(tmp_path / "home", route, {}, monkeypatch)
    for topic in ("a", "b"):
        one.produce(topic, {"id": 1, "card": "x"})
    one.land()
    aliased(one, "lake.a", "card", "pan")
    for topic in ("a", "b", "no_table"):
        one.produce(topic, {"id": "not a number", "pan": SECRET})
    one.produce("c", b'{"pan": "%s", no JSON' % SECRET.encode())
    one.land(1)
    assert {topic: SECRET in letter["value"] for topic, letter in shown(one.home).items()} == dict.fromkeys(
        ("a", "b", "no_table", "c"), True
    )
    file = one.home / "streams" / "shop.yaml"
    spec = yaml.safe_load(file.read_text())
    spec["errors"]["dead_letters"] = {"mask": {"columns": ["card"]}}
    file.write_text(yaml.safe_dump(spec))
    found = shown(one.home)
    # What is no JSON shows nothing; the field that is called so in other tables is none that is masked.
    assert {topic: each["value"] is not None and SECRET in each["value"] for topic, each in found.items()} == {
        "a": False,
        "b": True,
        "no_table": True,
        "c": False,
    }
    assert "[masked]" in found["a"]["value"] and found["a"]["masked"] == "value"
    assert found["b"]["masked"] is None
