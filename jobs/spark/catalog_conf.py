"""Catalog configuration for Spark: PyIceberg's properties in the words of Iceberg's Java catalogs.

What the settings give under `spark.conf` as `spark.sql.catalog.<name>…` wins, key by key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from jobs.errors import FrazilError
from jobs.spec.settings import Settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CLASS = "org.apache.iceberg.spark.SparkCatalog"
# Spark and streams commit to one SQLite file at once: without these a commit of Java's fails where it had to wait.
_SQLITE = "journal_mode=WAL&busy_timeout=30000"
_RENAMED = {"s3.region": "client.region"}


def use_catalog(session: SparkSession, settings: Settings) -> None:
    """Make the catalog known to a session, under its own name.

    It is set on the running session, where no command line shows what is secret.

    Raises:
        FrazilError: Spark cannot be told of such a catalog, or a secret is not set.
    """
    prefix = f"spark.sql.catalog.{settings.catalog.name}"
    given = {
        key.removeprefix(prefix): value
        for key, value in settings.spark.revealed_conf().items()
        if key == prefix or key.startswith(f"{prefix}.")
    }
    if ".type" in given or ".catalog-impl" in given:
        conf: dict[str, str] = {"": _CLASS, ".cache-enabled": "false"}
    else:
        properties = catalog_conf(settings.catalog.name, settings.catalog.revealed())
        conf = {"": _CLASS, **{f".{key}": value for key, value in properties.items()}}
    for key, value in (conf | given).items():
        session.conf.set(f"{prefix}{key}", value)


def catalog_conf(name: str, properties: Mapping[str, str]) -> dict[str, str]:
    """The options of Iceberg's Spark catalog.

    Args:
        name: The catalog's, for messages.
        properties: PyIceberg's, with their secrets.

    Raises:
        FrazilError: Java has no such catalog.
    """
    kind = properties.get("type") or _kind_of(properties.get("uri", ""))
    passed = {_RENAMED.get(key, key): value for key, value in properties.items() if key not in ("type", "uri")}
    # A cached table would be older than what was just committed by others.
    passed["cache-enabled"] = "false"
    uri = properties.get("uri", "")
    if kind == "sql":
        return {**passed, "type": "jdbc", "jdbc.schema-version": "V1", **_jdbc(uri)}
    if kind in ("rest", "hive"):
        return {**passed, "type": kind, "uri": uri}
    if kind == "glue":
        return {**passed, "type": kind}
    raise FrazilError(
        f"catalog {name}: Spark cannot be told of a catalog of type {kind or 'unknown'}.",
        fix=f"set spark.sql.catalog.{name}.type, .uri and what else it needs in spark.conf of frazil.yaml",
    )


def _kind_of(uri: str) -> str:
    scheme = urlsplit(uri).scheme.partition("+")[0]
    if scheme in ("http", "https"):
        return "rest"
    return "hive" if scheme == "thrift" else "sql" if scheme in ("sqlite", "postgresql", "mysql") else ""


def _jdbc(uri: str) -> dict[str, str]:
    """A SQLAlchemy URI as JDBC's, with user and password apart from it."""
    parts = urlsplit(uri)
    scheme = parts.scheme.partition("+")[0]
    if scheme == "sqlite":
        # `sqlite:///` and a path, which begins with another slash if it is absolute.
        path = uri.partition("://")[2].partition("?")[0].removeprefix("/")
        return {"uri": f"jdbc:sqlite:{path}?{_SQLITE}"}
    host = parts.hostname or ""
    port = f":{parts.port}" if parts.port else ""
    query = f"?{parts.query}" if parts.query else ""
    found = {"uri": f"jdbc:{scheme}://{host}{port}{parts.path}{query}"}
    if parts.username:
        found["jdbc.user"] = unquote(parts.username)
    if parts.password:
        found["jdbc.password"] = unquote(parts.password)
    return found
