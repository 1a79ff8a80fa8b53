"""Adoptable tables: existing tables that values of a stream's records name, and that are not the stream's.

No record may take over another owner's table by its content. So a stream lands nothing in such a table until an
operator has given it to the stream.
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchPropertyException, NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata

from jobs.base.errors import FrazilError
from jobs.config.stream.models import StreamSpec
from jobs.config.values.targets import value_of_table
from jobs.quality.schema_checks.alteration import (
    Alteration,
    declared_alteration,
    following_alteration,
    proposed_alteration,
)
from jobs.tables.commit.history.branch import stream_table
from jobs.tables.commit.protocol.named_tables import belongs_to
from jobs.tables.write.dry_run import check_writable

MOST = 500
"""Most tables that are checked."""


def adoptable_tables(spec: StreamSpec, catalog: Catalog, pattern: str = "*") -> dict[str, Table]:
    """Adoptable tables by name, in order; none if the stream's route names no tables by values.

    Views and tables of other formats are left out.

    Args:
        spec: The stream with its known tables.
        pattern: Pattern of full names, with `*` and `?` as in a shell.
    """
    to = spec.route.to if spec.route else None
    if to is None:
        return {}
    try:
        listed = sorted(".".join(each) for each in catalog.list_tables(to.rpartition(".")[0]))
    except NoSuchNamespaceError:
        return {}
    known = {*spec.target_names, *(spec.route.table_names if spec.route else ())}
    names = [each for each in listed if value_of_table(to, each) is not None and fnmatchcase(each, pattern)]
    found: dict[str, Table] = {}
    for name in [each for each in names if each not in known and not spec.has_late_rows(each)][:MOST]:
        try:
            table = catalog.load_table(name)
        except (NoSuchTableError, NoSuchPropertyException):
            continue
        if not belongs_to(table.metadata, spec.stream):
            found[name] = table
    return found


def adopting_alteration(
    spec: StreamSpec, catalog: Catalog, name: str
) -> tuple[StreamSpec, Callable[[TableMetadata], Alteration]]:
    """Alteration that gives a table to a stream; and the stream as it makes the table's rows.

    Args:
        spec: The stream with its known tables.
        name: Name of the table.

    Raises:
        FrazilError: The main table, whose columns it needs, does not exist.
    """
    if spec.decode.declares_all:
        return spec, lambda now: _judged(name, now, declared_alteration(spec, now, (), name, given=True))
    if not spec.tables_follow:
        lane = spec.for_table(name)
        return lane, lambda now: _judged(name, now, proposed_alteration(lane, now, (), given=True))
    try:
        own = stream_table(catalog, spec, spec.table.name).metadata
    except NoSuchTableError:
        raise FrazilError(
            f"stream {spec.stream}: table {spec.table.name}, whose columns {name} is to have, does not exist yet.",
            fix=f"frazil run {spec.stream}, which creates it",
        ) from None
    return spec, lambda now: _judged(name, now, following_alteration(spec, own, now, name, given=True))


def _judged(name: str, metadata: TableMetadata, decided: Alteration) -> Alteration:
    """The alteration, refused if frazil could not write the table."""
    try:
        check_writable(name, metadata)
    except FrazilError as problem:
        return Alteration(refused=(*decided.refused, problem.message.rstrip(".")))
    return decided
