"""Catalogs of tests on the services that tests share, as the settings name them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jobs.clients.spark.catalog_conf import catalog_jars
from jobs.config.settings.settings import Settings
from tests.helpers.database_server import DATABASE, USER, DatabaseServer
from tests.helpers.hive_server import HiveServer
from tests.helpers.object_server import BUCKET, KEY, ObjectServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_numbers = itertools.count()


def _name() -> str:
    """A name for one catalog, unique in its database."""
    return f"lake_{os.getpid()}_{next(_numbers)}"


def database_catalog(server: DatabaseServer, warehouse: str | Path, **more: str) -> dict[str, Any]:
    """A catalog of its own in PostgreSQL.

    Args:
        warehouse: A folder, or a URI.
        more: Further properties, with `_` for the dots and hyphens that a name cannot have here.
    """
    properties = {
        "type": "sql",
        "uri": f"postgresql+psycopg://{USER}@127.0.0.1:{server.port}/{DATABASE}",
        "password": "${env:FRAZIL_TEST_PASSWORD}",
        "warehouse": warehouse.as_uri() if isinstance(warehouse, Path) else warehouse,
    }
    return {"name": _name(), "properties": properties | more}


def objects_properties(server: ObjectServer, *, endpoint: str | None = None) -> dict[str, str]:
    """Settings for access to files in S3; `endpoint`: that of a proxy before the server."""
    return {
        "s3.endpoint": endpoint or server.endpoint,
        "s3.region": "us-east-1",
        "s3.access-key-id": KEY,
        "s3.secret-access-key": "${env:FRAZIL_TEST_S3_SECRET}",
    }


def rest_settings(uri: str, objects: ObjectServer, *, endpoint: str | None = None, **more: str) -> dict[str, Any]:
    """A REST catalog that hands out the keys of its tables' files, and has to be told no more than where S3 is."""
    store = {"s3.endpoint": endpoint or objects.endpoint, "s3.region": "us-east-1"}
    return {"name": _name(), "properties": {"type": "rest", "uri": uri, **store, **more}}


def hive_catalog(server: HiveServer, warehouse: str | None = None) -> dict[str, Any]:
    """A Hive catalog; its namespaces are shared by all catalogs of the server.

    Args:
        warehouse: URI; None for the server's folder.
    """
    place = warehouse or server.warehouse.as_uri()
    properties = {"type": "hive", "uri": server.uri, "warehouse": place, "hive.hive2-compatible": "true"}
    return {"name": _name(), "properties": properties}


def bucket_folder() -> str:
    """A warehouse of its own in S3."""
    return f"s3://{BUCKET}/{_name()}"


def with_jars(session: SparkSession, settings: Settings) -> SparkSession:
    """The session that tests share, whose JVM also finds what a session for SQL would have been started with."""
    jvm: Any = session._jvm
    loader = jvm.java.lang.Class.forName(
        "org.apache.iceberg.spark.SparkCatalog", False, jvm.java.lang.Thread.currentThread().getContextClassLoader()
    ).getClassLoader()
    have = {Path(url.getPath()).name for url in loader.getURLs()}
    for jar in catalog_jars(settings.catalog, settings.spark):
        if jar.name not in have:
            loader.addURL(jvm.java.io.File(str(jar)).toURI().toURL())
        if jar.name.startswith("postgresql-"):
            # DriverManager looks for drivers once, maybe before this jar was added. The class registers itself.
            jvm.java.lang.Class.forName("org.postgresql.Driver", True, loader)
    return session


def properties_of(catalog: Mapping[str, Any]) -> dict[str, str]:
    """The properties of a catalog's settings."""
    return dict(catalog["properties"])
