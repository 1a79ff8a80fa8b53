"""The catalog as Spark is told of it."""

from __future__ import annotations

import pytest

from jobs.errors import FrazilError
from jobs.spark.catalog_conf import catalog_conf


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (
            {"type": "sql", "uri": "sqlite:////data/catalog.db?timeout=30", "warehouse": "file:///w"},
            {"type": "jdbc", "uri": "jdbc:sqlite:/data/catalog.db?journal_mode=WAL&busy_timeout=30000"},
        ),
        (
            {"type": "sql", "uri": "postgresql+psycopg2://me:p%40ss@db:5433/lake?sslmode=require"},
            {"uri": "jdbc:postgresql://db:5433/lake?sslmode=require", "jdbc.user": "me", "jdbc.password": "p@ss"},
        ),
        ({"uri": "https://catalog/api", "token": "t"}, {"type": "rest", "uri": "https://catalog/api", "token": "t"}),
        ({"type": "rest", "uri": "http://c", "s3.region": "eu"}, {"type": "rest", "client.region": "eu"}),
        ({"type": "glue", "warehouse": "s3://w"}, {"type": "glue", "warehouse": "s3://w"}),
    ],
)
def test_the_catalog_in_the_words_of_java(properties: dict[str, str], expected: dict[str, str]) -> None:
    found = catalog_conf("lake", properties)
    assert {key: found.get(key) for key in expected} == expected
    assert found["cache-enabled"] == "false"


def test_a_catalog_that_java_does_not_have() -> None:
    with pytest.raises(FrazilError, match="cannot be told of a catalog of type dynamodb") as told:
        catalog_conf("lake", {"type": "dynamodb"})
    assert "spark.sql.catalog.lake.type" in (told.value.fix or "")
