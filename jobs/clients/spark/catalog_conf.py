"""Catalog configuration for Spark: PyIceberg's properties translated to those of Iceberg's Java catalogs.

Keys `spark.sql.catalog.<name>…` under `spark.conf` in the settings override it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

from jobs.base.errors import FrazilError
from jobs.clients.install.artifacts import OnProgress, resolve_jars
from jobs.clients.install.coordinates import ArtifactSet
from jobs.clients.spark.trusted_authorities import AUTHORITIES, trust_authorities
from jobs.config.services.catalog import CatalogSettings, kind_of
from jobs.config.settings.settings import Settings, SparkSettings
from jobs.tables.commit.schema.operations import HIVE_LIMIT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CLASS = "org.apache.iceberg.spark.SparkCatalog"
# Spark and streams commit to one SQLite file at once. Without these options, a Java commit fails instead of waiting.
_SQLITE = "journal_mode=WAL&busy_timeout=30000"
# This FileIO chooses a client for each path, in a bucket or on a disk.
_ANY_STORE = "org.apache.iceberg.io.ResolvingFileIO"
_ROLE_CLIENTS = "org.apache.iceberg.aws.AssumeRoleAwsClientFactory"
_DELEGATION = "header.X-Iceberg-Access-Delegation"
_ROLE_SESSION = ("s3.role-session-name", "client.role-session-name")
_RENAMED = {
    "s3.region": "client.region",
    "glue.region": "client.region",
    "s3.proxy-uri": "http-client.proxy-endpoint",
    "client.access-key-id": "s3.access-key-id",
    "client.secret-access-key": "s3.secret-access-key",
    "client.session-token": "s3.session-token",
    **dict.fromkeys(_ROLE_SESSION, "client.assume-role.session-name"),
}
# Iceberg copies summaries and schemas of up to this length into the metastore. Many metastore databases refuse as much
# as Iceberg's default, 32,672, and the commit fails.
_HIVE_PROPERTY_SIZE = "hadoop.iceberg.hive.table-property-max-size"
# Properties in seconds for Python, in milliseconds for Java.
_SECONDS = {
    "s3.connect-timeout": "http-client.apache.connection-timeout-ms",
    "s3.request-timeout": "http-client.apache.socket-timeout-ms",
}
_ENCRYPTION = {"AES256": "s3", "aws:kms": "kms"}
# Parameters of PyIceberg's URI (libpq's names), and their names in PostgreSQL's JDBC driver.
_POSTGRES = {"connect_timeout": "connectTimeout", "application_name": "ApplicationName"}
# Properties that only PyIceberg reads.
_PYTHONS = ("type", "uri", "py-io-impl", "echo", "pool_pre_ping", "init_catalog_tables", "schema_version")


def use_catalog(session: SparkSession, settings: Settings) -> None:
    """Configure the catalog in a session, under its own name.

    The running session is configured, because a command line would show secrets.

    Raises:
        FrazilError: Spark has no such type of catalog, or a secret is not set.
    """
    if any(key in settings.catalog.properties for key in AUTHORITIES):
        trust_authorities(session.sparkContext._gateway, settings)
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
    """Return the options of Iceberg's Spark catalog.

    Args:
        name: Name of the catalog, for messages.
        properties: PyIceberg's properties, with secrets.

    Raises:
        FrazilError: Java has no such type of catalog.
    """
    uri = properties.get("uri", "")
    kind = properties.get("type", "").lower() or kind_of(uri)
    passed = _store_conf(properties) | {
        _RENAMED.get(key, key): value
        for key, value in properties.items()
        if key not in (*_PYTHONS, *_SECONDS, *AUTHORITIES) and not key.startswith("ssl.")
    }
    for key, theirs in _SECONDS.items():
        if key in properties:
            passed[theirs] = str(round(float(properties[key]) * 1000))
    # A cached table would miss commits of others.
    passed["cache-enabled"] = "false"
    if kind in ("sql", "hive") and "io-impl" not in properties and uses_object_store(properties):
        passed["io-impl"] = _ANY_STORE
    if kind == "sql":
        return {**passed, "type": "jdbc", "jdbc.schema-version": "V1", **_jdbc(uri)}
    if kind == "rest":
        # PyIceberg asks for credentials, too, so maintenance gets the same ones as the writers.
        return {_DELEGATION: "vended-credentials", **passed, "type": kind, "uri": uri}
    if kind == "hive":
        return {_HIVE_PROPERTY_SIZE: str(HIVE_LIMIT), **passed, "type": kind, "uri": uri}
    if kind == "glue":
        return {**passed, "type": kind}
    raise FrazilError(
        f"catalog {name}: Spark cannot be configured for a catalog of type {kind or 'unknown'}.",
        fix=f"set spark.sql.catalog.{name}.type, .uri and its other options in spark.conf of frazil.yaml",
    )


def uses_object_store(properties: Mapping[str, object]) -> bool:
    """Whether the properties show that tables' files are in an object store."""
    warehouse = urlsplit(str(properties.get("warehouse", ""))).scheme
    return warehouse not in ("", "file", "hdfs") or any(key.startswith(("s3.", "gcs.", "adls.")) for key in properties)


def _store_conf(properties: Mapping[str, str]) -> dict[str, str]:
    """Return Java's options of the object store from PyIceberg's properties; given Java options override them."""
    found: dict[str, str] = {}
    if "s3.endpoint" in properties:
        # Only AWS resolves host names that begin with the bucket's name.
        virtual = properties.get("s3.force-virtual-addressing", "false").lower() == "true"
        found["s3.path-style-access"] = "false" if virtual else "true"
        # Other stores have no regions, but the client requires one.
        found["client.region"] = "us-east-1"
    role = properties.get("s3.role-arn") or properties.get("client.role-arn")
    if role:
        region = properties.get("s3.region") or properties.get("client.region")
        found |= {"client.factory": _ROLE_CLIENTS, "client.assume-role.arn": role}
        found |= {"client.assume-role.region": region} if region else {}
    if properties.get("s3.anonymous", "false").lower() == "true":
        found["client.credentials-provider"] = "software.amazon.awssdk.auth.credentials.AnonymousCredentialsProvider"
    if encryption := properties.get("s3.server-side-encryption"):
        found["s3.sse.type"] = _ENCRYPTION.get(encryption, encryption)
    if key := properties.get("s3.sse-kms-key-id"):
        found["s3.sse.key"] = key
    return found


def _jdbc(uri: str) -> dict[str, str]:
    """Convert a SQLAlchemy URI to a JDBC URL, with user and password as separate options."""
    parts = urlsplit(uri)
    scheme = parts.scheme.partition("+")[0]
    if scheme == "sqlite":
        # `sqlite:///` is followed by a path, which begins with another slash if it is absolute.
        path = uri.partition("://")[2].partition("?")[0].removeprefix("/")
        return {"uri": f"jdbc:sqlite:{path}?{_SQLITE}"}
    # The last @ ends the credentials: SQLAlchemy accepts @ and / in a password.
    user, at, place = uri.partition("://")[2].rpartition("@")
    place, _, query = place.partition("?")
    words = [(_POSTGRES.get(key, key), value) for key, value in parse_qsl(query)] if scheme == "postgresql" else None
    query = urlencode(words, safe="/:") if words is not None else query
    found = {"uri": f"jdbc:{scheme}://{place}{f'?{query}' if query else ''}"}
    if at:
        name, colon, password = user.partition(":")
        found["jdbc.user"] = unquote(name)
        if colon:
            found["jdbc.password"] = unquote(password)
    return found


# Options with which an installation may bring these jars in its own version.
_OWN = ("spark.driver.extraClassPath", "spark.jars.packages", "spark.jars.ivySettings")
_NAMES: dict[ArtifactSet, tuple[str, ...]] = {"postgresql": ("postgresql",), "aws": ("aws-bundle", "awssdk")}
_BUCKETS = ("s3", "s3a", "s3n")
_OTHER_STORES = ("gcs.", "adls.")


def catalog_jars(catalog: CatalogSettings, spark: SparkSettings, on_progress: OnProgress | None = None) -> list[Path]:
    """Return the catalog's jars, fetched if necessary; raises the errors of `resolve_jars`."""
    return [jar for name in catalog_sets(catalog, spark) for jar in resolve_jars(name, on_progress=on_progress)]


def catalog_sets(catalog: CatalogSettings, spark: SparkSettings) -> tuple[ArtifactSet, ...]:
    """Return the sets of artifacts that the catalog's type and its tables' files need.

    A set is left out if the settings already name its jar, on the class path or among the packages.
    """
    brought = " ".join(str(value) for key, value in spark.conf.items() if key in _OWN)
    wanted: list[ArtifactSet] = []
    if catalog.kind == "sql" and str(catalog.properties.get("uri", "")).startswith("postgresql"):
        wanted.append("postgresql")
    if _on_s3(catalog):
        wanted.append("aws")
    return tuple(each for each in wanted if not any(name in brought for name in _NAMES[each]))


def _on_s3(catalog: CatalogSettings) -> bool:
    if catalog.kind == "glue" or any(key.startswith(("s3.", "client.", "glue.")) for key in catalog.properties):
        return True
    scheme = urlsplit(str(catalog.properties.get("warehouse", ""))).scheme
    # Signed requests need Amazon's client, and S3 Tables name a warehouse by its ARN.
    if scheme in (*_BUCKETS, "arn") or str(catalog.properties.get("rest.sigv4-enabled", "")).lower() == "true":
        return True
    # A REST catalog may use a name for its warehouse, and choose locations in any store.
    elsewhere = any(key.startswith(_OTHER_STORES) for key in catalog.properties)
    return catalog.kind == "rest" and scheme == "" and not elsewhere
