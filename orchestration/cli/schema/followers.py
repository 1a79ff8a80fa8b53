"""Tables that follow a stream's own one, as `frazil schema` compares and changes them: what they lack of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from jobs.catalog import NoCatalogYet, find_table, quick_catalog
from jobs.commit.followers import follower_names, following
from jobs.commit.named_tables import with_named_tables
from jobs.errors import FrazilError
from jobs.schema.evolution import Fitting
from jobs.schema_contract.declared import schema_name
from jobs.spec.models import StreamSpec
from jobs.spec.settings import Settings
from jobs.stream.follower_tables import ensure_follower
from jobs.stream.source_topics import parked_tables
from jobs.write.table_remaking import is_as_made


def followers_of(spec: StreamSpec, settings: Settings) -> dict[str, Table]:
    """The tables with rows that follow a stream's own one, by name; none of another stream, and none that is parked.

    A parked one takes no change, and gets what it lacks when it is unparked.

    Raises:
        FrazilError: The catalog does not answer within seconds.
    """
    if not spec.tables_follow:
        return {}
    try:
        catalog = quick_catalog(settings)
        spec = with_named_tables(spec, catalog)
        parked = parked_tables(spec, catalog)
        names = [name for name in follower_names(spec) if name not in parked]
        found = {name: find_table(catalog, name, spec.branch_of(name)) for name in names}
    except NoCatalogYet:
        return {}
    return {
        name: table
        for name, table in found.items()
        if table is not None and not is_as_made(table.metadata, spec.stream)
    }


def behind_own(spec: StreamSpec, own: TableMetadata, followers: Mapping[str, Table]) -> dict[str, Fitting]:
    """What each follower lacks of the own table's columns, or cannot take of them; those alone that lack something."""
    found = {name: following(spec, own, table.metadata, name) for name, table in followers.items()}
    return {name: fit for name, fit in found.items() if fit.changes or fit.refused}


def refuse_behind(spec: StreamSpec, behind: Mapping[str, Fitting]) -> None:
    """Refuse a change of the own table that another one cannot follow.

    Raises:
        FrazilError: With the table.
    """
    if unfit := next((name for name, fit in behind.items() if fit.refused), None):
        raise FrazilError(
            f"stream {spec.stream}: table {unfit}, which has the columns of table {spec.table.name}, cannot take them: "
            f"{'; '.join(each.rstrip('.') for each in behind[unfit].refused)}. Nothing was changed.",
            fix=f"alter table {unfit} so that it can, or name another one in streams/{spec.stream}.yaml",
        )


def print_behind(spec: StreamSpec, behind: Mapping[str, Fitting], followers: Mapping[str, Table]) -> None:
    """Print what each follower is to get."""
    for name, fit in behind.items():
        click.echo(f"{spec.stream}: table {name} ({schema_name(followers[name].metadata)}) is to follow:")
        for each in fit.changes:
            click.echo(f"  {each}")


def follow_own(catalog: Catalog, spec: StreamSpec, own: TableMetadata, names: Mapping[str, Fitting]) -> dict[str, int]:
    """Give followers what they lack of the own table as it is now, one commit each; what is done already stays.

    Returns:
        The id of each table's schema.
    """
    spec = with_named_tables(spec, catalog)
    return {name: ensure_follower(spec, catalog, own, name).metadata.current_schema_id for name in names}


def behind_facts(behind: Mapping[str, Fitting], followers: Mapping[str, Table]) -> list[dict[str, Any]]:
    """The same as facts, one for each follower."""
    return [
        {
            "table": name,
            "schema_id": table.metadata.current_schema_id,
            "fits": not (name in behind and behind[name].refused),
            "lacks": list(map(str, behind[name].changes)) if name in behind else [],
            "refused": list(behind[name].refused) if name in behind else [],
        }
        for name, table in followers.items()
    ]


def refuse_renames(spec: StreamSpec) -> None:
    """Refuse another name for a column that several tables have: a driver that meets it in one would add it to others.

    Raises:
        FrazilError: The tables of the stream follow its own one.
    """
    if spec.tables_follow:
        raise FrazilError(
            f"stream {spec.stream}: a column of table {spec.table.name} is one of all its tables of rows, and no "
            "commit gives it another name in all of them at once. A record that has the former name gets a column of "
            "that name again, beside the renamed one.",
            fix="have the producers write the new name first, and land all that has the former one; then stop the "
            "stream and rename the column in each of its tables with Spark, with PyIceberg where Spark loads none, or "
            "leave it as it is",
        )


def refuse_backfill_of_several(spec: StreamSpec) -> None:
    """Refuse to fill a promoted column: a backfill fills the rows of one table, and the field is kept in all of them.

    Raises:
        FrazilError: The tables of the stream follow its own one.
    """
    if spec.tables_follow:
        raise FrazilError(
            f"stream {spec.stream} has several tables of the same columns, and a backfill fills the rows of one.",
            fix="promote without --backfill: earlier rows keep the field, and are read with coalesce",
        )
