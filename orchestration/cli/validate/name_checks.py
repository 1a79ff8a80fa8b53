"""Does the catalog have what `maintenance.tables` names? A typing error there leaves a table without its policy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pyiceberg.catalog import Catalog

from jobs.maintain.existing_tables import ExistingTables, mending, missing_namespace, own_tables
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from orchestration.cli.validate.finding import Finding


def check_names(specs: Sequence[StreamSpec], settings: Settings, catalog: Catalog) -> Iterator[Finding]:
    """What is named in vain, each with what is likely meant.

    Args:
        specs: All streams of the deployment, whose tables may be named before they are made.
    """
    existing, theirs = ExistingTables(catalog, settings), own_tables(settings, specs)
    told: set[str] = set()
    for name in (table.name for table in settings.maintenance.tables):
        namespace = name.rpartition(".")[0]
        if problem := existing.unlisted(namespace):
            if namespace not in told:
                told.add(namespace)
                yield Finding(None, "settings", "unchecked", f"maintenance.tables: {problem.message}", problem.fix)
        elif name.endswith(".*"):
            if missing := missing_namespace(settings, specs, existing, namespace):
                yield Finding(None, "settings", "wrong", missing.message, missing.fix)
        elif name not in existing and name not in theirs:
            sentence = f"maintenance.tables names {name}, and there is no such table in catalog {settings.catalog.name}"
            yield Finding(None, "settings", "wrong", sentence, mending(existing.nearest_table(name, theirs)))


def names_unchecked(settings: Settings) -> Finding:
    """Where no catalog can be asked."""
    named = ", ".join(table.name for table in settings.maintenance.tables)
    return Finding(None, "settings", "unchecked", f"maintenance.tables: whether there are {named} was not checked")
