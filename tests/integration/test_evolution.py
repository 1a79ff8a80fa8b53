"""A stream that infers its table and evolves it: real broker and Spark, killed at each step of a change of schema."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.types import IntegerType, StringType

from jobs.commit.schema_history import schema_history
from jobs.errors import FrazilError
from jobs.stream.first_records import RecordsAwaitedError
from tests.integration.pipeline import Pipeline
from tests.integration.topics import idempotent_producer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

JSON = {"format": "json", "infer": {"times": True}}


def produce(one: Pipeline, documents: Sequence[Any]) -> None:
    """Produce documents, in turn over the partitions."""
    producer = idempotent_producer(one.address, one.stream)
    for number, document in enumerate(documents):
        producer.produce(one.stream, value=json.dumps(document).encode(), partition=number % one.partitions)
    assert producer.flush(30) == 0


def record(number: int, **more: Any) -> dict[str, Any]:
    return {"id": f"p-{number}", "created_at": "2026-11-01T10:00:00Z", "n": number, **more}


def columns(one: Pipeline) -> dict[str, str]:
    return {each.name: str(each.field_type) for each in one.table().schema().fields if each.name[:6] != "_kafka"}


def infers(one: Pipeline, **changes: Any) -> Pipeline:
    one.write_spec(decode={"value": JSON, "schema": "infer"}, **changes)
    return one


def test_a_table_is_made_of_the_first_records_and_killed_drivers_leave_it_to_the_next(
    pipeline: Callable[..., Pipeline], spark: SparkSession
) -> None:
    one = infers(pipeline())
    with pytest.raises(RecordsAwaitedError, match="hold no record yet that says which columns"):
        one.drain(spark)
    produce(one, [record(n, nothing=None) for n in range(300)])
    one.drain(spark)
    assert columns(one) == {"id": "string", "created_at": "timestamptz", "n": "long"}
    # Two new fields, one of them within a new struct, and a driver that dies before and after the table has them.
    produce(one, [record(n, at={"shop": "a"}) if n % 2 else record(n, size=n / 2) for n in range(300)])
    one.run_and_die("before_schema_commit")
    assert len(columns(one)) == 3
    one.run_and_die("after_schema_commit")
    assert columns(one)["size"] == "double"
    assert str(one.table().schema().find_field("at.shop").field_type) == "string"
    assert len(one.landed()) == 300, "nothing of the batch is committed"
    one.drain(spark)
    one.assert_exactly_once()
    rows = one.table().scan().to_arrow()
    assert rows.column("size").null_count == rows.num_rows - 150
    assert len(schema_history(one.table().properties)) == 1


def test_a_wider_and_an_optional_column_come_with_the_batch_whose_records_all_need_them(
    pipeline: Callable[..., Pipeline], spark: SparkSession
) -> None:
    """The first run of its tasks is a survey, which leaves their records undecided; a killed driver commits none."""
    one = infers(pipeline())
    produce(one, [record(n, rate=1) for n in range(300)])
    one.drain(spark)
    with one.table().transaction() as change, change.update_schema(allow_incompatible_changes=True) as schema:
        schema.add_column("size", IntegerType())
        schema.add_column("shop", StringType(), required=True, default_value="-")
    produce(one, [record(n, size=2**40 + n) for n in range(6_000)])
    one.run_and_die("before_schema_commit")
    one.run_and_die("after_schema_commit")
    assert len(one.landed()) == 300, "nothing of the batch is committed"
    one.drain(spark)
    one.assert_exactly_once()
    assert columns(one)["size"] == "long" and not one.table().schema().find_field("shop").required
    assert one.dead() == {} and sum(one.table().scan().to_arrow().column("size").drop_null().to_pylist()) == sum(
        2**40 + n for n in range(6_000)
    )


def test_columns_that_the_file_names_have_to_be_in_the_first_records(
    pipeline: Callable[..., Pipeline], spark: SparkSession
) -> None:
    one = infers(pipeline(), table={"name": "tests.elsewhere", "partition_by": ["day(created_at)", "shop"]})
    produce(one, [record(1)])
    with pytest.raises(FrazilError, match="shop"):
        one.drain(spark)
