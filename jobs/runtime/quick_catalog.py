"""Quick looks at the catalog, for whoever must answer within seconds and works without it."""

from __future__ import annotations

from pathlib import Path

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from jobs.errors import FrazilError, first_line
from jobs.runtime.deadline import within
from jobs.runtime.opening import connect_catalog
from jobs.spec.settings import Settings

CATALOG_SECONDS = 10.0


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
