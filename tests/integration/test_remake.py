"""`frazil maintain` rebases the branch of a gated stream, and readers by Spark lose nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from jobs.tables.commit.history.reissue import last_remade
from tests.integration.branch_rows import told
from tests.integration.faults import compact
from tests.integration.pipeline import GOOD, TRUNCATED, Coordinates, Pipeline
from tests.integration.test_publish import frazil, gate, in_main
from tests.integration.test_spark_reads import with_catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration

NOT_NULL = {"expect_column_values_to_not_be_null": {"column": "amount"}}


class Reader:
    """A reader that asks Spark for the records on main and on the branch, and compares each answer with the last."""

    def __init__(self, one: Pipeline, spark: SparkSession) -> None:
        self._session, self._name = with_catalog(spark, one)
        self._seen: dict[str, set[Coordinates]] = {"main": set(), "ingest": set()}

    def read(self) -> None:
        """Read both; each record is there once, and none that was there is gone."""
        for branch, seen in self._seen.items():
            query = f"SELECT _kafka_topic, _kafka_partition, _kafka_offset FROM {self._name} VERSION AS OF '{branch}'"
            found = Counter((row[0], row[1], row[2]) for row in self._session.sql(query).collect())
            assert [at for at, times in found.items() if times != 1] == [], f"doubled on {branch}"
            assert seen - found.keys() == set(), f"gone from {branch}"
            self._seen[branch] = set(found)


def lands(one: Pipeline, spark: SparkSession) -> None:
    one.produce({GOOD: 4, TRUNCATED: 1})
    assert one.drain(spark).counts.read == 5


def test_a_rebased_branch_is_whole_for_readers_and_for_the_stream(
    pipeline: Callable[..., Pipeline], spark: SparkSession
) -> None:
    one = pipeline()
    blocks = {"contract": {"expectations": [NOT_NULL]}, "publish": {"gate": "contract"}}
    one.write_spec(maintenance={"remake": {"files": 1}}, **blocks)
    reader = Reader(one, spark)
    for _ in range(2):
        lands(one, spark)
        assert gate(one) == "published"
    assert compact(one, spark) > 1
    lands(one, spark)
    assert gate(one, "amounts are unusual") == "held"
    lands(one, spark)
    reader.read()
    assert frazil(one, "maintain", one.table_name, "--only", "remake") == 0
    assert last_remade(one.catalog().load_table(one.table_name).metadata, "ingest") is not None
    reader.read()
    for _ in range(2):
        lands(one, spark)
    assert gate(one, "amounts are unusual") == "still held"
    assert frazil(one, "release", one.stream, "--yes", "--reason", "known") == 0
    lands(one, spark)
    assert gate(one) == "published"
    # Stamps that main has were not all issued again, so they are not contiguous.
    one.assert_each_once()
    assert in_main(one) == one.landed(), "main has each record of the branch, once"
    reader.read()
    facts = told(one, "audit", "--full")
    assert (facts["verdict"], facts["problems"]) == ("complete", [])
