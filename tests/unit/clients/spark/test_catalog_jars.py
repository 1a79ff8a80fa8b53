"""Which jars a session for SQL has beside those of every session."""

from __future__ import annotations

from pathlib import Path

import pytest

from jobs.clients.spark import catalog_conf, session
from jobs.clients.spark.catalog_conf import catalog_sets
from jobs.clients.spark.session import Workload, spark_conf
from jobs.config.services.catalog import CatalogSettings
from jobs.config.settings.settings import Settings, SparkSettings

PG = "postgresql+psycopg://frazil@db:5432/lake"


@pytest.mark.parametrize(
    ("properties", "conf", "sets"),
    [
        ({"type": "sql", "uri": "sqlite:////c.db", "warehouse": "file:///w"}, {}, ()),
        ({"type": "sql", "uri": PG, "warehouse": "file:///w"}, {}, ("postgresql",)),
        ({"uri": PG, "warehouse": "s3://b/w"}, {}, ("postgresql", "aws")),
        ({"uri": PG, "s3.endpoint": "http://s"}, {"spark.jars.packages": "org.postgresql:postgresql:42"}, ("aws",)),
        ({"uri": PG}, {"spark.driver.extraClassPath": "/opt/postgresql-42.jar"}, ()),
        ({"type": "rest", "uri": "https://c"}, {}, ("aws",)),
        ({"type": "rest", "uri": "https://c", "warehouse": "prod"}, {}, ("aws",)),
        ({"type": "rest", "uri": "https://c", "warehouse": "file:///w"}, {}, ()),
        ({"type": "rest", "uri": "https://c", "warehouse": "gs://b"}, {}, ()),
        ({"type": "rest", "uri": "https://c", "adls.account-name": "a"}, {}, ()),
        ({"type": "glue"}, {}, ("aws",)),
        ({"uri": "https://c", "warehouse": "arn:aws:s3tables:eu-central-1:123456789012:bucket/b"}, {}, ("aws",)),
        ({"uri": "https://c", "warehouse": "file:///w", "rest.sigv4-enabled": "true"}, {}, ("aws",)),
        ({"type": "hive", "uri": "thrift://h", "warehouse": "hdfs://n/w"}, {}, ()),
        ({"type": "sql", "uri": "mysql://db/lake", "warehouse": "s3a://b"}, {}, ("aws",)),
    ],
)
def test_a_catalog_says_which_clients_it_needs(
    properties: dict[str, str], conf: dict[str, str], sets: tuple[str, ...]
) -> None:
    catalog = CatalogSettings.model_validate({"properties": properties})
    assert catalog_sets(catalog, SparkSettings.model_validate({"conf": conf})) == sets


@pytest.mark.parametrize(("work", "jars"), [("sql", "spark.jar,postgresql.jar"), ("batches", "spark.jar")])
def test_only_a_session_for_sql_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: Workload, jars: str
) -> None:
    """A driver, which must start also where nothing can be fetched, commits in Python."""
    monkeypatch.setattr(session, "resolve_jars", lambda name: [Path(f"{name}.jar")])
    monkeypatch.setattr(catalog_conf, "resolve_jars", lambda name, on_progress=None: [Path(f"{name}.jar")])
    monkeypatch.setattr(session, "class_path_jars", list)
    catalog = CatalogSettings.model_validate({"properties": {"uri": PG}})
    settings = Settings.embedded(tmp_path).model_copy(update={"catalog": catalog})
    assert spark_conf(settings, "test", work=work)["spark.jars"] == jars
