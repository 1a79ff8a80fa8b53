"""Jars that Spark needs for the settings' catalog, beyond those that every session has: drivers, and clients of stores.

They are fetched when a session for SQL is first started with such a catalog, and checked like all others. Sessions that
only plan batches do without: Python commits there, and writes the files.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from jobs.install.artifacts import OnProgress, resolve_jars
from jobs.install.coordinates import ArtifactSet
from jobs.spec.catalog import CatalogSettings
from jobs.spec.settings import SparkSettings

# What an installation may have brought by itself, in its own version.
_OWN = ("spark.driver.extraClassPath", "spark.jars.packages", "spark.jars.ivySettings")
_NAMES: dict[ArtifactSet, tuple[str, ...]] = {"postgresql": ("postgresql",), "aws": ("aws-bundle", "awssdk")}
_BUCKETS = ("s3", "s3a", "s3n")
_OTHER_STORES = ("gcs.", "adls.")


def catalog_jars(catalog: CatalogSettings, spark: SparkSettings, on_progress: OnProgress | None = None) -> list[Path]:
    """The jars, fetched if this machine does not have them yet; raises as `resolve_jars` does."""
    return [jar for name in catalog_sets(catalog, spark) for jar in resolve_jars(name, on_progress=on_progress)]


def catalog_sets(catalog: CatalogSettings, spark: SparkSettings) -> tuple[ArtifactSet, ...]:
    """The sets of artifacts that the catalog's type and its tables' files ask for.

    A set whose jar the settings name themselves, on the class path or among the packages, is left out.
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
    if scheme in _BUCKETS:
        return True
    # A REST catalog may know its warehouse by a name, and hand out places of its own choice.
    elsewhere = any(key.startswith(_OTHER_STORES) for key in catalog.properties)
    return catalog.kind == "rest" and scheme == "" and not elsewhere
