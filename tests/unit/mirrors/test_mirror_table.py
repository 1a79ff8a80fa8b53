"""The mirror's table, as it follows from the columns of its changelog."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    FixedType,
    IntegerType,
    LongType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import connect_catalog
from jobs.config.settings.loading import load_stream
from jobs.config.settings.settings import Settings
from jobs.config.stream.models import StreamSpec
from jobs.mirrors.merge.mirror_table import ensure_mirror, mirror_key
from tests.unit.mirrors.mirror_world import COLUMNS


def stream_of(home: Path, **mirror: Any) -> StreamSpec:
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
    return load_stream(file)


def key_of(home: Path, changelog: Schema, **mirror: Any) -> tuple[str, ...]:
    spec = stream_of(home, **mirror)
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


def test_the_partition_field_has_the_name_of_no_column(tmp_path: Path) -> None:
    key_of(tmp_path, COLUMNS)
    spec = load_stream(tmp_path / "streams" / "customers.yaml")
    changelog = Schema(*COLUMNS.fields, NestedField(900, "id_bucket", LongType()))
    with connect_catalog(Settings.embedded(tmp_path)) as catalog:
        table = ensure_mirror(spec, spec.mirrors[0], catalog, changelog)
    assert [each.name for each in table.spec().fields] == ["id_bucket_"]


def test_without_keys_of_records_the_file_says_it(tmp_path: Path) -> None:
    bare = Schema(*(each for each in COLUMNS.fields if each.name not in ("_change_key", "_change_old_key")))
    assert key_of(tmp_path, bare, key=["name"]) == ("name",)
    with pytest.raises(FrazilError, match="has no column _change_key"):
        key_of(tmp_path, bare)
    with pytest.raises(FrazilError, match="names column nobody"):
        key_of(tmp_path, bare, key=["nobody"])


KEY_TYPES = [
    *(IntegerType(), LongType(), DecimalType(9, 2), DateType(), TimeType(), TimestampType(), TimestamptzType()),
    *(StringType(), UUIDType(), FixedType(4), BinaryType()),
]


@pytest.mark.parametrize(
    ("key", "partitions"),
    [
        *(([kind], "k0") for kind in KEY_TYPES),
        ([BooleanType(), LongType(), StringType()], "k1"),
        ([BooleanType(), BooleanType()], None),
    ],
    ids=str,
)
def test_a_table_has_buckets_of_the_first_column_that_can_have_them(
    tmp_path: Path, key: list[PrimitiveType], partitions: str | None
) -> None:
    columns = [NestedField(100 + n, f"k{n}", kind, required=False) for n, kind in enumerate(key)]
    struct = StructType(*(NestedField(200 + n, f"k{n}", kind) for n, kind in enumerate(key)))
    beside = [f.model_copy(update={"field_type": struct}) if f.field_id == 10 else f for f in COLUMNS.fields]
    spec, catalog = stream_of(tmp_path), InMemoryCatalog("c", warehouse=str(tmp_path))
    catalog.create_namespace("shop")
    table = ensure_mirror(spec, spec.mirrors[0], catalog, Schema(*columns, *beside))
    found = [(table.schema().find_column_name(each.source_id), str(each.transform)) for each in table.spec().fields]
    assert found == ([] if partitions is None else [(partitions, "bucket[8]")])
