"""Former names of classes and properties give the steps that their present names give."""

from __future__ import annotations

from typing import Any

import pytest

from jobs.config.stream.models import StreamSpec
from jobs.records.transforms.columns import TransformProblem
from jobs.records.transforms.smt.former_names import present_properties
from jobs.records.transforms.smt.sink import CHANGES, ICEBERG, SINK
from jobs.records.transforms.smt.smt import KNOWN, Smt, known_smt
from tests.unit.records.transforms.rows import applied, columns_of, rows_of

UNWRAP = "io.debezium.transforms.ExtractNewRecordState"
HANDLING = "delete.tombstone.handling.mode"
EVENT = "before struct<id long, name string>, after struct<id long, name string>, op string"
EVENTS: list[dict[str, Any]] = [
    {"after": {"id": 1, "name": "a"}, "op": "c"},
    {"before": {"id": 1, "name": "a"}, "op": "d"},
    {"op": "t"},
]


def smt(type_: str, **properties: str) -> Smt:
    return Smt(type_, tuple((key.replace("__", "."), value) for key, value in properties.items()))


def unwrapped(properties: dict[str, str]) -> tuple[list[dict[str, Any]], list[int], list[bool]]:
    """Rows, filtered rows and which of the rows left are tombstones, of a creation, a deletion and a truncate."""
    made = applied(Smt(UNWRAP, tuple(properties.items())), rows_of(EVENT, EVENTS))
    gone = made.rows.tombstones
    return (
        made.rows.batch.to_pylist(),
        made.filtered.tolist(),
        [] if gone is None else gone.to_pylist(),
    )


@pytest.mark.parametrize("name", [each.name for each in (*SINK, *CHANGES)] + ["JsonToMapTransform"])
def test_tabulars_classes_are_those_of_apaches_sink(name: str) -> None:
    assert known_smt(f"io.tabular.iceberg.connect.transforms.{name}") is KNOWN[ICEBERG + name]


def test_a_class_that_tabular_never_had_is_refused_by_its_name() -> None:
    with pytest.raises(TransformProblem, match=r"no transform 'io\.tabular\.iceberg\.connect\.transforms\.Copi"):
        known_smt("io.tabular.iceberg.connect.transforms.CopiedValues")


@pytest.mark.parametrize("place", ["Value", "Key"])
def test_blacklist_and_whitelist_are_exclude_and_include(place: str) -> None:
    columns = columns_of("a long, b long, key struct<a long, b long>")
    more = {"key_column": "key"} if place == "Key" else {}
    for former, present in (("blacklist", "exclude"), ("whitelist", "include")):
        then, now = (smt(f"ReplaceField${place}", **{each: "a"}, **more) for each in (former, present))
        assert then.output(columns).text == now.output(columns).text != columns.text


def test_the_former_and_the_present_name_together_are_refused() -> None:
    for smt_, given in (
        ("ReplaceField$Value", {"blacklist": "a", "exclude": "b"}),
        ("ReplaceField$Key", {"whitelist": "a", "include": "b"}),
        ("ExtractNewRecordState", {"drop.tombstones": "true", HANDLING: "drop"}),
        ("ExtractNewRecordState", {"delete.handling.mode": "none", HANDLING: "drop"}),
    ):
        with pytest.raises(TransformProblem) as refused:
            present_properties(smt_, given)
        assert refused.value.place[0] in given


@pytest.mark.parametrize(
    ("former", "present"),
    [
        ({"delete.handling.mode": "drop"}, "drop"),
        ({"delete.handling.mode": "none"}, "tombstone"),
        ({"delete.handling.mode": "rewrite"}, "rewrite"),
        ({"drop.tombstones": "true"}, "drop"),
        ({"drop.tombstones": "false"}, "drop"),
        ({"delete.handling.mode": "REWRITE", "drop.tombstones": "False"}, "rewrite-with-tombstone"),
        ({"delete.handling.mode": "none", "drop.tombstones": "false"}, "tombstone"),
        ({"delete.handling.mode": "drop", "drop.tombstones": "false"}, "drop"),
        ({"delete.handling.mode": "rewrite", "drop.tombstones": "true"}, "rewrite"),
    ],
)
def test_the_two_properties_of_before_are_one_mode(former: dict[str, str], present: str) -> None:
    assert present_properties("ExtractNewRecordState", former) == {HANDLING: present}
    assert unwrapped(former) == unwrapped({HANDLING: present})


def test_a_deletion_lands_as_it_did_before() -> None:
    created = {"id": 1, "name": "a"}
    assert unwrapped({"drop.tombstones": "false"}) == ([created], [1, 2], [])
    rows, filtered, gone = unwrapped({"delete.handling.mode": "none"})
    assert (rows[0], filtered, gone) == (created, [2], [False, True])
    rows, filtered, _ = unwrapped({"delete.handling.mode": "rewrite", "drop.tombstones": "false"})
    assert rows == [created | {"__deleted": "false"}, created | {"__deleted": "true"}]
    assert filtered == [2]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"delete.handling.mode": "tombstone"}, "drop, rewrite or none, not 'tombstone'"),
        ({"drop.tombstones": "never"}, "true or false, not 'never'"),
    ],
)
def test_what_a_former_property_never_meant_is_refused(given: dict[str, str], says: str) -> None:
    with pytest.raises(TransformProblem, match=says) as refused:
        present_properties("ExtractNewRecordState", given)
    assert refused.value.place == (next(iter(given)),)


def test_other_classes_have_no_former_names() -> None:
    with pytest.raises(TransformProblem, match="MaskField\\$Value has no property 'blacklist'"):
        smt("MaskField$Value", blacklist="a").output(columns_of("a long"))


def test_a_streams_file_takes_them() -> None:
    spec = StreamSpec.model_validate(
        {
            "stream": "payments",
            "source": {"topics": ["payments"]},
            "decode": {"value": "json", "schema": EVENT},
            "transform": [
                {"smt": {"type": UNWRAP, "drop.tombstones": True, "delete.handling.mode": "rewrite"}},
                {"smt": {"type": "io.tabular.iceberg.connect.transforms.CopyValue", "source.field": "id",
                         "target.field": "copy"}},
                {"smt": {"type": "org.apache.kafka.connect.transforms.ReplaceField$Value", "blacklist": "name"}},
            ],
            "table": {"name": "orders.payments", "kafka_columns": False},
        }
    )  # fmt: skip
    assert spec.table_schema.column_names == ["id", "__deleted", "copy"]
