"""Merge into an existing frazil.yaml: lines stay, what is missing is added, and edits of people are no conflict."""

from __future__ import annotations

import pytest
import yaml

from jobs.base.errors import FrazilError
from jobs.migration.files.settings_merge import merge_settings

IMPORTED = {
    "kafka": {"bootstrap_servers": ["b:9092"], "isolation": "read_uncommitted"},
    "catalog": {"name": "lake", "properties": {"type": "rest", "uri": "http://c"}},
    "spark": {"master": "local[3]"},
}


def test_an_empty_file_gets_all() -> None:
    merged = merge_settings("", IMPORTED)
    assert yaml.safe_load(merged.text) == IMPORTED
    assert (merged.added, merged.conflicts) == (("kafka", "catalog", "spark"), ())


def test_missing_sections_and_keys_are_added_and_every_line_stays() -> None:
    text = "# ours\nkafka: # the cluster\n    # two brokers\n    bootstrap_servers: [b:9092]   # one\nlease_ttl: 1m\n"
    merged = merge_settings(text, IMPORTED)
    assert merged.added == ("kafka.isolation", "catalog", "spark")
    assert merged.conflicts == ()
    assert yaml.safe_load(merged.text) == {**IMPORTED, "lease_ttl": "1m"}
    lines = merged.text.splitlines()
    assert [line for line in text.splitlines() if line not in lines] == []
    assert merge_settings(merged.text, IMPORTED).text == merged.text


@pytest.mark.parametrize(
    ("text", "conflicts"),
    [
        ("kafka:\n  isolation: read_committed\n", ("kafka.isolation",)),
        ("catalog:\n  name: other\n  properties: {type: rest, uri: 'http://c'}\n", ("catalog.name",)),
        ("catalog: {name: lake, properties: {type: rest}}\n", ("catalog.properties.uri",)),
        ("catalog: {name: lake}\n", ("catalog.properties",)),
        ("spark: {master: 'local[2]'}\n", ("spark.master",)),
        ("spark: {master: 'local[8]'}\n", ()),
        ("spark: {master: 'spark://h:7077'}\n", ()),
        ("kafka: text\n", ("kafka",)),
    ],
)
def test_a_value_that_differs_stays_and_is_a_conflict(text: str, conflicts: tuple[str, ...]) -> None:
    merged = merge_settings(text, IMPORTED)
    assert merged.conflicts == conflicts
    assert [line for line in text.splitlines() if line not in merged.text.splitlines()] == []


def test_what_a_person_changed_since_the_last_import_is_no_conflict() -> None:
    text = "kafka:\n  bootstrap_servers: [mine:9092]\ncatalog:\n  name: lake\n  properties: {type: rest, uri: 'http://c'}\n"
    merged = merge_settings(text, IMPORTED, former=IMPORTED)
    assert merged.text == text
    assert (merged.added, merged.conflicts) == ((), ())


def test_what_the_import_changed_since_the_last_one_is_a_conflict() -> None:
    former = {**IMPORTED, "kafka": {"bootstrap_servers": ["old:9092"], "isolation": "read_uncommitted"}}
    text = "kafka:\n  bootstrap_servers: [mine:9092]\n  isolation: read_uncommitted\n"
    assert merge_settings(text, {"kafka": IMPORTED["kafka"]}, former).conflicts == ("kafka.bootstrap_servers",)


@pytest.mark.parametrize("text", ["a: [", "- a\n", "text"])
def test_a_file_that_is_no_mapping_is_left_alone(text: str) -> None:
    with pytest.raises(FrazilError, match="is no YAML"):
        merge_settings(text, IMPORTED)
