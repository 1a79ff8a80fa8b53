"""Connections to the catalog in the settings, for work or for a quick look that gives up within seconds."""

from __future__ import annotations

import logging
import weakref
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    NoSuchPropertyException,
    NoSuchTableError,
    NotInstalledError,
)
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.utils.config import Config

from jobs.base.errors import FrazilError, first_line
from jobs.base.system.deadline import within
from jobs.base.system.private_files import private_folder
from jobs.config.redaction import redacted
from jobs.config.services.catalog import OWN_CLASS, CatalogSettings
from jobs.config.services.catalog_properties import STORE_AUTHORITIES
from jobs.config.settings.settings import EMBEDDED_FOLDER, Settings, embedded_catalog
from jobs.tables.commit.history.branch import on_branch

PYICEBERG_EXTRAS = ("glue", "hive", "dynamodb", "bigquery")
"""Types of catalogs whose client is an extra of PyIceberg with the same name."""

CATALOG_SECONDS = 10.0
"""How long a quick look waits for the catalog, in seconds."""

_POSTGRES_FIX = (
    "pip install 'frazil[postgres]', and begin the uri of `catalog` in frazil.yaml with postgresql+psycopg://"
)
# Errors of SQLite and PostgreSQL if two processes create a table at once.
_MADE_AT_ONCE = ("already exists", "pg_type_typname_nsp_index")


class CatalogUnavailableError(FrazilError):
    """The catalog does not answer, or refuses the client.

    Safe: Nothing of the batch was committed, and no record is lost.
    Next: check `catalog` in the settings, then `frazil validate`; a driver waits
    """


class CatalogUnusableError(FrazilError):
    """The catalog cannot be used with these settings: a package or a setting is missing.

    Safe: Nothing was changed.
    Next: install the package, or correct `catalog`; then `frazil validate`
    """


class NoCatalogYet(FrazilError):
    """The local catalog has no database, because no stream has run.

    Safe: Nothing was changed.
    Next: `frazil run S`
    """


def connect_catalog(settings: Settings) -> Catalog:
    """Connect to the catalog in the settings; its secrets are resolved here and nowhere else.

    Raises:
        CatalogUnavailableError: The catalog cannot be reached; the message quotes its driver.
        CatalogUnusableError: The catalog can never be reached with these settings.
    """
    if settings.catalog == embedded_catalog(settings.home):
        private_folder(settings.home / EMBEDDED_FOLDER)
    properties = client_properties(settings.catalog)
    try:
        try:
            return _client(settings.catalog, properties)
        except Exception as problem:
            # Two processes created the tables of a SQL catalog at once; now the tables exist.
            if not any(said in str(problem) for said in _MADE_AT_ONCE):
                raise
            return _client(settings.catalog, properties)
    except FrazilError:
        raise
    except Exception as problem:
        # Not chained: the cause would show the redacted secrets.
        if reason := _never(problem):
            raise CatalogUnusableError(
                f"catalog {settings.catalog.name}: {redacted(settings, reason)}",
                fix=_missing_package(settings.catalog, problem)
                or "check `catalog` in frazil.yaml, then run `frazil validate`",
            ) from None
        raise CatalogUnavailableError(
            f"catalog {settings.catalog.name}: {type(problem).__name__}: {redacted(settings, str(problem))}",
            fix="check `catalog` in frazil.yaml, then run `frazil validate`",
        ) from None


def client_properties(catalog: CatalogSettings) -> dict[str, Any]:
    """Return the properties for PyIceberg, including secrets."""
    properties: dict[str, Any] = catalog.revealed()
    if STORE_AUTHORITIES in properties and OWN_CLASS not in properties:
        properties["py-io-impl"] = "jobs.tables.write.renewed_file_io.StoreFileIO"
    if catalog.kind == "rest":
        return nested_tls(properties)
    if catalog.kind == "sql" and not str(properties.get("uri", "")).startswith("sqlite"):
        # Otherwise the first commit fails after a restart of the server, or after a firewall closed an idle connection.
        properties.setdefault("pool_pre_ping", "true")
    return properties


def nested_tls(properties: dict[str, str]) -> dict[str, Any]:
    """Return the properties with those of TLS, such as ``ssl.client.cert``, as PyIceberg's nested mapping."""
    flat = {key: value for key, value in properties.items() if not key.startswith("ssl.")}
    tls: dict[str, Any] = {}
    if authorities := properties.get("ssl.cabundle"):
        tls["cabundle"] = authorities
    if client := {key: properties[f"ssl.client.{key}"] for key in ("cert", "key") if f"ssl.client.{key}" in properties}:
        tls["client"] = client
    return flat | ({"ssl": tls} if tls else {})


def _client(catalog: CatalogSettings, properties: dict[str, Any]) -> Catalog:
    if catalog.kind == "rest" and OWN_CLASS not in properties:
        from jobs.clients.catalog.rest_catalog import BoundedRestCatalog

        given = Config().get_catalog_config(catalog.name) or {}
        return BoundedRestCatalog(catalog.name, **{**given, **properties})
    made = load_catalog(catalog.name, **properties)
    if catalog.kind == "hive":
        # Hive's client connects with the first request, and logs errors that it also raises.
        logging.getLogger("thrift.transport.TSocket").setLevel(logging.CRITICAL)
        _let_hive_errors_pass()
        made.namespace_exists("default")
    if engine := getattr(made, "engine", None):
        # Otherwise its connections stay open until the server closes them.
        weakref.finalize(made, engine.dispose)
    return made


def _let_hive_errors_pass() -> None:
    """Make the errors of Hive's client mutable: Python sets the traceback of an error that leaves a `with` block.

    Otherwise it raises "can't modify immutable instance" in place of the metastore's own error.
    """
    from hive_metastore import ttypes

    for error in vars(ttypes).values():
        if isinstance(error, type) and issubclass(error, Exception):
            error.__setattr__ = Exception.__setattr__


def _missing_package(catalog: CatalogSettings, problem: Exception) -> str | None:
    """Return the command that installs the package for a catalog's type, if a missing package is the problem."""
    if not _driver_is_missing(problem):
        return None
    if catalog.kind == "sql":
        postgres = str(catalog.properties.get("uri", "")).startswith("postgresql")
        return _POSTGRES_FIX if postgres else None
    if catalog.kind not in PYICEBERG_EXTRAS:
        return None
    return f"pip install 'pyiceberg[{catalog.kind}]', or check `catalog` in frazil.yaml"


def _driver_is_missing(problem: Exception) -> bool:
    # By name, because SQLAlchemy may not be installed.
    return isinstance(problem, (ImportError, NotInstalledError)) or type(problem).__name__ == "NoSuchModuleError"


def _never(problem: Exception) -> str | None:
    """Return why a catalog can never be used; None if it may be only unavailable."""
    if _driver_is_missing(problem):
        # PyIceberg's message names its own extra even if the database's driver is missing.
        missing = problem.__cause__ or problem
        return f"its driver is not installed: {first_line(missing)}"
    if (isinstance(problem, KeyError) and problem.args == ("uri",)) or str(problem).startswith("URI missing"):
        return "properties.uri is missing"
    if isinstance(problem, NoSuchPropertyException):
        return f"a property is missing: {first_line(problem)}"
    if type(problem).__name__ == "NoRegionError":
        return "properties.client.region is missing, and no other setting names the AWS region"
    if type(problem) is ValueError:
        # PyIceberg raises ValueError for settings that it cannot use. One of its messages quotes all properties, with
        # secrets.
        unknown = "following properties" in str(problem)
        return "properties.type is missing, and no other setting determines it" if unknown else first_line(problem)
    return None


def quick_catalog(settings: Settings, seconds: float | None = None) -> Catalog:
    """Return the catalog, unless it does not exist yet or does not answer within seconds.

    Args:
        seconds: Time limit; None for that of a quick look.

    Raises:
        FrazilError: The embedded catalog does not exist yet, or the catalog does not answer.
    """
    uri = settings.catalog.properties.get("uri")
    if isinstance(uri, str) and uri.startswith("sqlite:///"):
        database = Path(uri.removeprefix("sqlite:///").partition("?")[0])
        if not database.exists():
            raise NoCatalogYet("no stream has run yet, so the catalog is not there")
    limit = CATALOG_SECONDS if seconds is None else seconds
    return within(limit, f"catalog {settings.catalog.name}", lambda: connect_catalog(settings))


def find_table(catalog: Catalog, name: str, branch: str = MAIN_BRANCH, seconds: float | None = None) -> Table | None:
    """Return a table on a branch; None if the table does not exist.

    Args:
        seconds: Time limit; None for that of a quick look.

    Raises:
        FrazilError: The catalog does not answer.
    """

    def load() -> Table | None:
        try:
            return on_branch(catalog.load_table(name), branch)
        except NoSuchTableError:
            return None

    try:
        return within(CATALOG_SECONDS if seconds is None else seconds, f"catalog {catalog.name}", load)
    except FrazilError:
        raise
    except Exception as problem:
        raise FrazilError(f"table {name}: {type(problem).__name__}: {first_line(problem)}") from problem
