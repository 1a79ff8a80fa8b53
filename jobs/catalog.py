"""Catalog that the settings name: connected to, or only asked for what it can say within seconds."""

from __future__ import annotations

from pathlib import Path

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, NotInstalledError
from pyiceberg.table import Table
from pyiceberg.table.refs import MAIN_BRANCH

from jobs.commit.branch import on_branch
from jobs.errors import FrazilError, first_line
from jobs.redaction import redacted
from jobs.spec.settings import EMBEDDED_FOLDER, Settings, embedded_catalog
from jobs.system.deadline import within
from jobs.system.private_files import private_folder

CATALOG_SECONDS = 10.0
"""What a quick look waits for the catalog."""


class CatalogUnavailableError(FrazilError):
    """The catalog cannot be reached, or refuses us."""


class CatalogUnusableError(FrazilError):
    """The catalog cannot be used as it is set, whoever waits: its driver is not installed, or a setting is missing."""


class NoCatalogYet(FrazilError):
    """The embedded catalog's database has not been made: no stream has run."""


def connect_catalog(settings: Settings) -> Catalog:
    """The catalog that the settings name, with its secrets resolved here and nowhere else.

    Raises:
        CatalogUnavailableError: It cannot be reached, in the words of its driver.
        CatalogUnusableError: It never can, as it is set here.
    """
    if settings.catalog == embedded_catalog(settings.home):
        private_folder(settings.home / EMBEDDED_FOLDER)
    name, properties = settings.catalog.name, settings.catalog.revealed()
    try:
        try:
            return load_catalog(name, **properties)
        except Exception as problem:
            # Two processes have just made the tables of a SQL catalog at once; now they are there.
            if "already exists" not in str(problem):
                raise
            return load_catalog(name, **properties)
    except FrazilError:
        raise
    except Exception as problem:
        # Not chained: the cause would show what was just taken out.
        if reason := _never(problem):
            raise CatalogUnusableError(
                f"catalog {settings.catalog.name}: {redacted(settings, reason)}",
                fix="check `catalog` in frazil.yaml, then run `frazil validate`",
            ) from None
        raise CatalogUnavailableError(
            f"catalog {settings.catalog.name}: {type(problem).__name__}: {redacted(settings, str(problem))}",
            fix="check `catalog` in frazil.yaml, then run `frazil validate`",
        ) from None


def _never(problem: Exception) -> str | None:
    """Why a catalog cannot be used at all; None where it may be merely away."""
    # By name, as SQLAlchemy need not be there.
    if isinstance(problem, (ImportError, NotInstalledError)) or type(problem).__name__ == "NoSuchModuleError":
        # PyIceberg's own words name a package of its own, also where it is the database's driver that is missing.
        missing = problem.__cause__ or problem
        return f"its driver is not installed: {first_line(missing)}"
    if type(problem) is ValueError:
        # PyIceberg's word for settings that it cannot use; wrong answers have classes of their own. One of its
        # sentences quotes all properties.
        unknown = "following properties" in str(problem)
        return "properties.type is missing, and nothing else says what it is" if unknown else first_line(problem)
    return None


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


def find_table(catalog: Catalog, name: str, branch: str = MAIN_BRANCH) -> Table | None:
    """The table as a branch has it, or None if it does not exist.

    Raises:
        FrazilError: The catalog does not answer.
    """

    def load() -> Table | None:
        try:
            return on_branch(catalog.load_table(name), branch)
        except NoSuchTableError:
            return None

    try:
        return within(CATALOG_SECONDS, f"catalog {catalog.name}", load)
    except FrazilError:
        raise
    except Exception as problem:
        raise FrazilError(f"table {name}: {type(problem).__name__}: {first_line(problem)}") from problem


def existing_table(catalog: Catalog, name: str, branch: str = MAIN_BRANCH) -> Table | None:
    """A catalog's table as a branch has it; None if it is not there. What else the catalog raises is left as it is."""
    try:
        return on_branch(catalog.load_table(name), branch)
    except (NoSuchTableError, NoSuchNamespaceError):
        return None
