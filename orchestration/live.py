"""Quick looks at what is live, for commands that must answer within seconds and work without any of it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from jobs.errors import FrazilError, first_line
from jobs.runtime.deadline import within
from jobs.runtime.kafka_log import KafkaLog
from jobs.runtime.opening import connect_catalog
from jobs.spec.settings import KafkaSettings, Settings

KAFKA_SECONDS = 4.0
CATALOG_SECONDS = 10.0


def quick_kafka(settings: KafkaSettings) -> KafkaLog:
    """A connection that gives up after some seconds.

    Raises:
        FrazilError: The local broker is not running, or a secret is not set.
    """
    quick = min(settings.request_timeout, timedelta(seconds=KAFKA_SECONDS))
    return KafkaLog(settings.model_copy(update={"request_timeout": quick}))


class NoCatalogYet(FrazilError):
    """The embedded catalog's database has not been made: no stream has run."""


def quick_catalog(settings: Settings) -> Catalog:
    """The catalog, unless it has to be made first or does not answer within seconds.

    Raises:
        FrazilError: Why there is none.
    """
    uri = settings.catalog.properties.get("uri")
    if isinstance(uri, str) and uri.startswith("sqlite:///"):
        database = Path(uri.removeprefix("sqlite:///").partition("?")[0])
        if not database.exists():
            raise NoCatalogYet("no stream has run yet, so the catalog is not there")
    return within(CATALOG_SECONDS, f"catalog {settings.catalog.name}", lambda: connect_catalog(settings))


def find_table(catalog: Catalog, name: str) -> Table | None:
    """The table, or None if it does not exist.

    Raises:
        FrazilError: The catalog does not answer.
    """

    def load() -> Table | None:
        try:
            return catalog.load_table(name)
        except NoSuchTableError:
            return None

    try:
        return within(CATALOG_SECONDS, f"catalog {catalog.name}", load)
    except FrazilError:
        raise
    except Exception as problem:
        raise FrazilError(f"table {name}: {type(problem).__name__}: {first_line(problem)}") from problem
