"""Checks of tables that follow a stream's own one: whether each can take the columns that it has."""

from __future__ import annotations

from collections.abc import Iterator

from pyiceberg.catalog import Catalog
from pyiceberg.table.metadata import TableMetadata

from jobs.catalog import find_table
from jobs.commit.followers import follower_names, following
from jobs.commit.named_tables import with_named_tables
from jobs.errors import FrazilError
from jobs.spec.models import StreamSpec
from jobs.stream.source_topics import parked_tables
from jobs.write.dry_run import check_writable
from jobs.write.table_remaking import is_as_made
from orchestration.cli.validate.findings import Finding


def check_followers(spec: StreamSpec, own: TableMetadata, catalog: Catalog) -> Iterator[Finding]:
    """What stands in the way of a table that follows the own one; what it only lacks, the next start gives it.

    Args:
        spec: The stream.
        own: Metadata of its own table, as it is.
        catalog: Where its tables are.
    """
    if spec.problems_with(own.schema(), own.properties):
        # It is told of the own table.
        return
    spec = with_named_tables(spec, catalog)
    parked = parked_tables(spec, catalog)
    for name in follower_names(spec):
        if name in parked:
            said = f"table {name} is parked: it gets the columns of table {spec.table.name} when it is unparked"
            yield Finding(spec.stream, "table", "unchecked", said, f"frazil accept {spec.stream} --unpark {name}")
            continue
        fix = f"correct streams/{spec.stream}.yaml, or alter table {name}"
        try:
            table = find_table(catalog, name)
        except FrazilError as problem:
            yield Finding(spec.stream, "table", "unchecked", problem.message, problem.fix or "")
            continue
        if table is None:
            said = f"table {name} is not there yet; it is made with the columns of table {spec.table.name}"
            yield Finding(spec.stream, "table", "unchecked", said)
            continue
        try:
            check_writable(name, table.metadata)
            fit = following(spec, own, table.metadata, name)
        except FrazilError as problem:
            yield Finding(spec.stream, "table", "wrong", problem.message, problem.fix or fix)
            continue
        if is_as_made(table.metadata, spec.stream):
            continue
        for each in fit.refused:
            said = f"table {name} cannot take the columns of table {spec.table.name}: {each}"
            yield Finding(spec.stream, "table", "wrong", said, fix)
        if fit.changes and not fit.refused:
            told = "; ".join(map(str, fit.changes))
            said = f"table {name} lacks columns of table {spec.table.name}; the next run adds them: {told}"
            yield Finding(spec.stream, "table", "unchecked", said)
