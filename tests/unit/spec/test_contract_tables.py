"""A contract about the tables of a route: read, named, and refused with the line and what was meant."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from jobs.errors import FrazilError
from jobs.spec.generation import generation
from jobs.spec.loading import load_stream
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings

SET = {"expect_column_values_to_not_be_null": {"column": "id"}}
DOCUMENT: dict[str, Any] = {
    "stream": "events",
    "source": {"topics": ["events"]},
    "decode": {"value": "json", "schema": "id string, type string, n int"},
    "table": {"name": "ev.other"},
    "route": {
        "by": "type",
        "tables": [{"match": "INS", "table": "ev.changes"}, {"match": "OWN", "table": "ev.other"}],
        "unmatched": {"table": "ev.rest"},
    },
}


def spec(contract: dict[str, Any], **more: Any) -> StreamSpec:
    return StreamSpec.model_validate({**DOCUMENT, **more, "contract": contract})


def test_each_target_has_its_own_expectations() -> None:
    found = spec(
        {"expectations": [SET], "tables": {"ev.changes": [SET], "ev.rest": [{**SET, "name": "rest"}]}},
    )
    assert found.contract is not None
    names = {each.name: [one.name for one in found.contract.about(each)] for each in found.targets}
    assert names == {
        "ev.other": ["column_values_to_not_be_null_id"],
        "ev.other_dead": [],
        "ev.changes": ["ev_changes_column_values_to_not_be_null_id"],
        "ev.rest": ["rest"],
    }
    # Written and read again, it is the same.
    again = StreamSpec.model_validate(found.model_dump(mode="json", exclude_unset=True))
    assert again.contract == found.contract


def test_a_contract_of_tables_alone_is_one_and_changes_no_row() -> None:
    found = spec({"tables": {"ev.rest": [SET]}})
    bare = StreamSpec.model_validate(DOCUMENT)
    settings = Settings.embedded(Path("/nowhere"))
    assert found.config_hash == bare.config_hash and generation(found, settings) == generation(bare, settings)


@pytest.mark.parametrize(
    ("contract", "line", "said"),
    [
        ({"tables": {"ev.change": [SET]}}, "ev.change", "is no table of route; did you mean 'ev.changes'?"),
        ({"tables": {"x.y": [SET]}}, "x.y", "is no table of route; known: ev.changes, ev.rest"),
        ({"tables": {"ev.other": [SET]}}, "ev.other:", "the stream's own table: what is expected of it stands in "),
        ({"tables": {"ev.other_dead": [SET]}}, "ev.other_dead", "stands in contract.dead_letters"),
        (
            {"tables": {"ev.changes": [{"expect_column_values_to_not_be_null": {"column": "idd"}}]}},
            "column: idd",
            "the rows have no column 'idd'; did you mean 'id'?",
        ),
        (
            {"tables": {"ev.changes": [{"expect_column_values_to_not_be_nul": {"column": "id"}}]}},
            "expect_column_values_to_not_be_nul",
            "did you mean 'expect_column_values_to_not_be_null'?",
        ),
        (
            {"expectations": [{**SET, "name": "set"}], "tables": {"ev.changes": [SET, {**SET, "name": "SET"}]}},
            "name: SET",
            "has the name 'SET' of contract.expectations[0]",
        ),
        ({"tables": {"ev.changes": [SET, SET]}}, "column: id", "of contract.tables.ev.changes[0]"),
        ({"tables": {"ev.changes": []}}, "ev.changes", "at least 1"),
        ({"tables": {}}, "contract", "it needs expectations, tables, or dead_letters"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, contract: Any, line: str, said: str) -> None:
    file = tmp_path / "streams" / "events.yaml"
    file.parent.mkdir()
    file.write_text(yaml.safe_dump({**DOCUMENT, "contract": contract}, sort_keys=False))
    with pytest.raises(FrazilError) as error:
        load_stream(file)
    told = str(error.value)
    assert said in told, told
    number = int(told.split("events.yaml:")[1].split(":")[0].split()[0])
    text = file.read_text().splitlines()
    # Of a list entry the place is its first line.
    assert line in "\n".join(text[number - 1 : number + 2]), (number, told)


def test_without_a_route_there_are_no_further_tables() -> None:
    with pytest.raises(ValueError, match="has no route to others"):
        StreamSpec.model_validate(
            {**{key: each for key, each in DOCUMENT.items() if key != "route"}, "contract": {"tables": {"a.b": [SET]}}}
        )
