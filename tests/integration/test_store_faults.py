"""A store that fails uploads, or says so: every record lands once, and what was given up is named by nobody.

A catalog in SQLite, with tables in S3 behind a proxy. Nothing dies but connections.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from jobs.base.errors import FrazilError
from tests.helpers.catalogs import bucket_folder, objects_properties
from tests.helpers.object_server import ObjectServer
from tests.helpers.store_proxy import Fault, store_proxy
from tests.integration.pipeline import GOOD, NULL_AMOUNT, TRUNCATED, Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.integration, pytest.mark.spark]

MIX = {GOOD: 20, NULL_AMOUNT: 1, TRUNCATED: 1}
LETTERS = MIX[NULL_AMOUNT] + MIX[TRUNCATED]
FAULTS: tuple[tuple[Fault, int, str], ...] = (
    ("503", 2, ""),
    ("half", 1, ".parquet"),
    ("done 503", 1, ".metadata.json"),
    # More than its client tries again: the batch is, or the commit.
    ("503", 5, ".parquet"),
    ("503", 5, ".metadata.json"),
)
# Uploads of manifests fail for longer than anybody tries again. The pending record of the commit is written by then.
OUTAGE = "-m0.avro"


def test_a_store_that_fails_uploads(
    pipeline: Callable[..., Pipeline], spark: SparkSession, objects: ObjectServer, tmp_path: Path
) -> None:
    with store_proxy(objects.port) as proxy:
        properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": bucket_folder()}
        store = objects_properties(objects, endpoint=proxy.endpoint)
        one = pipeline(catalog_settings={"name": "lake", "properties": properties | store})
        one.write_spec(errors={"retry": {"timeout": "1m"}})
        one.produce(MIX)
        one.drain(spark)
        for fault, times, only in FAULTS:
            one.produce(MIX)
            proxy.arm(fault, times, only)
            one.drain(spark)
            assert proxy.times == 0, f"nothing met {fault} of {only!r}"
        one.produce(MIX)
        proxy.arm("503", 100_000, OUTAGE)
        with pytest.raises((FrazilError, OSError), match="SLOW_DOWN"):
            one.drain(spark)
        proxy.times = 0
        one.drain(spark)
        one.assert_exactly_once()
        assert sum(one.dead().values()) == LETTERS * (2 + len(FAULTS))
