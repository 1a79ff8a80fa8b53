"""Access to a stream's tables: what is said where the catalog does not let this user load one.

A catalog that is away says nothing of a table, nor does one that does not take this user's token any more.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from pyiceberg.catalog import Catalog

from jobs.commit.errors import TableForbiddenError
from jobs.commit.refusals import is_forbidden
from jobs.errors import first_line


@contextlib.contextmanager
def permitted(stream: str, table: str) -> Iterator[None]:
    """Tell, of what is asked of a catalog about one table within the block, that it may not be asked.

    Args:
        stream: The stream's id.
        table: The table's name.

    Raises:
        TableForbiddenError: The catalog refuses that to this user.
    """
    try:
        yield
    except Exception as problem:
        if not is_forbidden(problem):
            raise
        raise TableForbiddenError(
            f"stream {stream}: the catalog does not let table {table} be read: {type(problem).__name__}: "
            f"{first_line(problem)}.",
            fix=f"let the user that frazil has in the catalog read and write {table}; then start again",
            table=table,
        ) from problem


def is_there(catalog: Catalog, table: str) -> bool:
    """Whether there is a table of a name; one that this user may not read is not gone."""
    try:
        return catalog.table_exists(table)
    except Exception as problem:
        if is_forbidden(problem):
            return True
        raise


def is_readable(catalog: Catalog, table: str) -> bool:
    """Whether there is a table of a name that this user may read."""
    try:
        return catalog.table_exists(table)
    except Exception as problem:
        if is_forbidden(problem):
            return False
        raise
