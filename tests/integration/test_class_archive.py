"""The archive of Spark's classes that `make setup` makes: the JVM of a session maps it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jobs.spark.class_archive import archive_option, fitting_archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration


def test_a_session_has_its_classes_from_the_archive(spark: SparkSession) -> None:
    if not archive_option():
        pytest.skip("there is no archive here, or none is wanted: make setup makes it")
    process: Any = getattr(spark.sparkContext._gateway, "proc", None)
    maps = Path(f"/proc/{process.pid}/maps")
    if not maps.exists():
        pytest.skip("this system does not tell what a process maps")
    # One that a JVM finds fault with is not mapped, or not for long.
    assert str(fitting_archive()) in maps.read_text()
