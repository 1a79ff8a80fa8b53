"""Catalog of a command: for a look only if it exists, made by a command that writes."""

from __future__ import annotations

from pyiceberg.catalog import Catalog

from jobs.clients.catalog.catalog import NoCatalogYet, connect_catalog, quick_catalog
from jobs.config.settings.settings import Settings


def opened_catalog(settings: Settings, stream: str) -> Catalog:
    """The catalog, for a look.

    Raises:
        FrazilError: It does not exist yet, or does not answer.
    """
    try:
        return quick_catalog(settings)
    except NoCatalogYet as problem:
        raise NoCatalogYet(f"stream {stream}: {problem.message}", fix=f"frazil run {stream}") from None


def catalog_of_command(settings: Settings, stream: str, *, looks: bool) -> Catalog:
    """The catalog, for a look or for work; work makes the embedded one if it does not exist.

    Raises:
        FrazilError: It does not answer; or, for a look, does not exist yet.
    """
    return opened_catalog(settings, stream) if looks else connect_catalog(settings)
