"""Catalog of a command: for a look only if it exists, made by a command that writes."""

from __future__ import annotations

from pyiceberg.catalog import Catalog

from jobs.clients.catalog.catalog import NoCatalogYet, connect_catalog, quick_catalog
from jobs.config.settings.settings import Settings

SINK_CATALOG = (
    "write the connector's catalog (iceberg.catalog.*) under catalog in frazil.yaml; its table is not in this one"
)
"""Next step where the catalog does not exist, and another writer's table is looked for in it."""


def opened_catalog(settings: Settings, stream: str, *, fix: str | None = None) -> Catalog:
    """Connect to the catalog for reading.

    Args:
        fix: Next step if the catalog does not exist; None: the stream's first run makes it.

    Raises:
        FrazilError: The catalog does not exist yet, or does not answer.
    """
    try:
        return quick_catalog(settings)
    except NoCatalogYet as problem:
        raise NoCatalogYet(f"stream {stream}: {problem.message}", fix=fix or f"frazil run {stream}") from None


def catalog_of_command(settings: Settings, stream: str, *, looks: bool) -> Catalog:
    """Connect to the catalog. If the command only looks, a missing embedded catalog is not created.

    Raises:
        FrazilError: The catalog does not answer; or the command only looks, and the catalog does not exist yet.
    """
    return opened_catalog(settings, stream) if looks else connect_catalog(settings)
