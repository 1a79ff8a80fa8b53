"""The mirror's table, as it follows from the columns of its changelog."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StructType

from jobs.errors import FrazilError
from jobs.mirror.mirror_table import mirror_key
from jobs.spec.loading import load_stream
from tests.unit.mirror.mirror_world import COLUMNS


def key_of(home: Path, changelog: Schema, **mirror: Any) -> tuple[str, ...]:
    document = {
        "stream": "customers",
        "source": {"topics": ["customers"]},
        "decode": {
            "value": "connect_json",
            "schema": "infer",
            "key": {"format": "connect_json", "schema": "infer", "into": "_change_key"},
        },
        "changes": {"envelope": "debezium"},
        "table": {"name": "shop.customers_changes"},
        "mirrors": [{"table": "shop.customers", **mirror}],
    }
    file = home / "streams" / "customers.yaml"
    file.parent.mkdir(exist_ok=True)
    file.write_text(yaml.safe_dump(document))
    spec = load_stream(file)
    return mirror_key(spec, spec.mirrors[0], changelog)


def test_the_key_is_that_of_the_records(tmp_path: Path) -> None:
    assert key_of(tmp_path, COLUMNS) == key_of(tmp_path, COLUMNS, key=["id"]) == ("id",)
    two = StructType(NestedField(31, "id", LongType()), NestedField(32, "name", LongType()))
    several = Schema(*(f.model_copy(update={"field_type": two}) if f.field_id == 10 else f for f in COLUMNS.fields))
    assert key_of(tmp_path, several, key=["name", "id"]) == ("name", "id")
    for key in (["id"], ["name"]):
        with pytest.raises(FrazilError, match=rf"is {key[0]}, and the records of .* have the key id, name"):
            key_of(tmp_path, several, key=key)
    # An update of the name would leave the row of the former one for ever.
    with pytest.raises(FrazilError, match=r"is name, and the records of changelog shop.customers_changes have the key"):
        key_of(tmp_path, COLUMNS, key=["name"])
    with pytest.raises(FrazilError, match="is id, name, and the records"):
        key_of(tmp_path, COLUMNS, key=["id", "name"])


def test_without_keys_of_records_the_file_says_it(tmp_path: Path) -> None:
    bare = Schema(*(each for each in COLUMNS.fields if each.name not in ("_change_key", "_change_old_key")))
    assert key_of(tmp_path, bare, key=["name"]) == ("name",)
    with pytest.raises(FrazilError, match="has no column _change_key"):
        key_of(tmp_path, bare)
    with pytest.raises(FrazilError, match="names column nobody"):
        key_of(tmp_path, bare, key=["nobody"])
