"""Steps and rules on columns that a registry says: real registry, broker and Spark, killed as the table changes."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.pipeline import Pipeline
from tests.integration.test_writer_schemas import Producer, use_registry

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

FIRST: dict[str, Any] = {
    "type": "record",
    "name": "Payment",
    "fields": [{"name": "id", "type": "string"}, {"name": "n", "type": "int"}],
}
SECOND: dict[str, Any] = FIRST | {
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "n", "type": "long"},
        {"name": "note", "type": ["null", "string"], "default": None},
    ]
}


@pytest.fixture
def one(broker: str, registry: str, tmp_path: Path) -> Pipeline:
    made = Pipeline(tmp_path, broker, f"steps_{uuid.uuid4().hex[:8]}")
    use_registry(made, registry)
    made.write_spec(
        decode={"value": "avro", "schema": "registry"},
        transform=[
            {"compute": {"twice": "n * 2", "label": "concat(id, '!')"}},
            {"smt": {"type": "InsertField$Value", "partition.field": "from_partition"}},
            {"where": "n <> 13"},
        ],
        rules=[{"name": "positive", "expect": "n > 0"}],
        table={"name": made.table_name},
    )
    made.create_topic()
    return made


@pytest.fixture
def producer(one: Pipeline, registry: str) -> Iterator[Producer]:
    made = Producer(one, registry)
    yield made
    made.client.close()


def columns(one: Pipeline) -> dict[str, str]:
    return {each.name: str(each.field_type) for each in one.table().schema().fields if each.name[:6] != "_kafka"}


def rows(one: Pipeline) -> dict[str, tuple[Any, ...]]:
    found = one.table().scan().to_arrow().to_pylist()
    assert len({(each["_kafka_partition"], each["_kafka_offset"]) for each in found}) == len(found)
    assert all(each["from_partition"] == each["_kafka_partition"] for each in found)
    return {each["id"]: (each["n"], each["twice"], each["label"], each.get("note")) for each in found}


def test_a_writer_schema_gains_a_field_and_a_wider_one_under_steps_and_a_rule(
    one: Pipeline, producer: Producer, spark: SparkSession
) -> None:
    first = producer.register(FIRST)
    producer.send([producer.encoded(FIRST, first, id=f"a{n}", n=n) for n in range(1, 31)])
    counts = one.drain(spark).counts
    assert (counts.landed, counts.filtered, counts.dead) == (29, 1, 0)
    assert columns(one) == {"id": "string", "n": "int", "twice": "int", "label": "string", "from_partition": "int"}
    # A subject of its own, as the registry would refuse the wider type in this one's place.
    second = producer.client.register(f"{one.stream}-next", "AVRO", json.dumps(SECOND))
    wide = 2**40
    producer.send(
        [
            *(producer.encoded(SECOND, second, id=f"b{n}", n=wide + n, note="new") for n in range(30)),
            producer.encoded(FIRST, first, id="c", n=7),
            producer.encoded(SECOND, second, id="d", n=-1, note=None),
            producer.encoded(SECOND, second, id="e", n=13, note=None),
        ]
    )
    one.run_and_die("before_schema_commit")
    assert columns(one)["twice"] == "int"
    one.run_and_die("after_schema_commit")
    assert (columns(one)["n"], columns(one)["twice"], columns(one)["note"]) == ("long", "long", "string")
    assert len(rows(one)) == 29, "nothing of the batch is committed"
    one.drain(spark)
    found = rows(one)
    assert len(found) == 60
    assert found["b29"] == (wide + 29, 2 * (wide + 29), "b29!", "new") and found["c"] == (7, 14, "c!", None)
    assert [each["error_class"] for each in one.dead_table().scan().to_arrow().to_pylist()] == ["rule_violated"]
