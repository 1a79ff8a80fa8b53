"""Command `frazil register`: registers an existing table, of a Hadoop-style warehouse or of another catalog."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.io import load_file_io

from jobs.base.errors import FrazilError
from jobs.clients.catalog.catalog import NoCatalogYet, client_properties, connect_catalog, quick_catalog
from jobs.clients.catalog.translate import translate_errors
from jobs.config.settings.settings import Settings
from jobs.migration.registration import FoundTable, find_table_metadata, register_found
from orchestration.cli.common.consent import consent, show_plan
from orchestration.cli.common.options import dry_run_option, json_option, yes_option
from orchestration.cli.common.terminal import print_json
from orchestration.formatting import thousands
from resources.deployment import Deployment

_NAME = re.compile(r"[^.\s]+(\.[^.\s]+)+")
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:")


@click.command()
@click.argument("table")
@click.argument("location")
@dry_run_option()
@yes_option()
@json_option()
@click.pass_obj
def register(deployment: Deployment, table: str, location: str, dry_run: bool, yes: bool, as_json: bool) -> None:
    """Register another catalog's table as TABLE, such as lake.payments, in the catalog of frazil.yaml.

    LOCATION is the table's folder in a Hadoop-style warehouse, or the newest metadata file of the other catalog. No
    file is copied or changed. First stop all writers that use the other catalog: each catalog would drop the other's
    commits.
    """
    if _NAME.fullmatch(table) is None:
        raise FrazilError(f"{table} is no name of a table.", fix="give namespace and name, such as lake.payments")
    settings = deployment.settings()
    place = location if _SCHEME.match(location) else Path(location).expanduser().absolute().as_uri()
    with translate_errors(settings, table):
        io = load_file_io(client_properties(settings.catalog), place)
        found = find_table_metadata(io, place)
        if dry_run:
            _refuse_taken(_catalog_or_none(settings), table, found)
            _show(
                settings, table, found, "would be registered. Nothing was changed.", registered=False, as_json=as_json
            )
            return
        show_plan([_sentence(settings, table, found, "is to be registered.")], as_json=as_json)
        consent("Does nothing write it through the other catalog any more? Register it?", yes=yes)
        _, new = register_found(connect_catalog(settings), table, found)
    said = "is registered." if new else "was registered already."
    _show(settings, table, found, said, registered=True, as_json=as_json)


def _catalog_or_none(settings: Settings) -> Catalog | None:
    try:
        return quick_catalog(settings)
    except NoCatalogYet:
        return None


def _refuse_taken(catalog: Catalog | None, table: str, found: FoundTable) -> None:
    """Refuse the name of another table before anything is changed.

    Raises:
        FrazilError: The catalog has another table with the name.
    """
    if catalog is None:
        return
    try:
        known = catalog.load_table(table)
    except NoSuchTableError:
        return
    if known.metadata.table_uuid != found.metadata.table_uuid:
        raise FrazilError(f"{table} is another table, at {known.location()}.", fix="give another name")


def _sentence(settings: Settings, table: str, found: FoundTable, end: str) -> str:
    metadata = found.metadata
    rows = "an unknown number of" if found.rows is None else thousands(found.rows)
    return (
        f"{metadata.location}: {rows} rows, {len(metadata.snapshots):,} snapshots, format {metadata.format_version}, "
        f"last changed {found.updated:%Y-%m-%d %H:%M:%SZ}. As {table} of catalog {settings.catalog.name} it {end}"
    )


def _show(settings: Settings, table: str, found: FoundTable, end: str, *, registered: bool, as_json: bool) -> None:
    if not as_json:
        click.echo(_sentence(settings, table, found, end))
        return
    metadata = found.metadata
    facts: dict[str, Any] = {
        "table": table,
        "catalog": settings.catalog.name,
        "metadata_location": found.metadata_location,
        "location": metadata.location,
        "uuid": str(metadata.table_uuid),
        "format_version": metadata.format_version,
        "rows": found.rows,
        "snapshots": len(metadata.snapshots),
        "last_changed": found.updated.isoformat(),
        "registered": registered,
    }
    print_json(facts)
