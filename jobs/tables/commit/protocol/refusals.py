"""Refusals of a commit by the catalog: the error that each becomes, and whether the commit can still land."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement

from jobs.base.errors import first_line
from jobs.tables.commit.history.lineage import last_sequence
from jobs.tables.commit.stamp.errors import (
    CatalogFailedError,
    CommitDeniedError,
    HeadMovedError,
    TableForbiddenError,
)

# The catalog that commits within this process and one transaction of its database.
_IN_PROCESS = "pyiceberg.catalog.sql"


def refusal(
    table: Table,
    requirements: Iterable[TableRequirement],
    problem: Exception,
    clean_up: Callable[[], None],
    *,
    after_sequence: int | None = None,
) -> Exception:
    """Error for a commit that has not landed.

    A client, a proxy or a load balancer may send a request twice, so a refusal does not show what became of the other
    copy. The manifests of a commit that may still land stay until orphan removal deletes them.

    Args:
        table: The table as the catalog has it now.
        clean_up: Deletes the commit's manifests; called only if the catalog works in this process and refused the
            commit.
        after_sequence: The table's last sequence number when the commit was made. If another branch has moved it since,
            catalogs report that as an invalid commit.
    """
    conflict = isinstance(problem, (CommitFailedException, NoSuchTableError))
    outnumbered = after_sequence is not None and last_sequence(table.metadata) != after_sequence
    if conflict or outnumbered or not _as_asserted(table.metadata, requirements):
        told = conflict or (outnumbered and isinstance(problem, ValueError))
        final = told and type(table.catalog).__module__ == _IN_PROCESS
        if final:
            clean_up()
        return HeadMovedError(str(problem), final=final)
    if is_denied(problem):
        name = ".".join(table.name())
        return CommitDeniedError(
            f"table {name}: the catalog refuses to commit to it: {type(problem).__name__}: {first_line(problem)}. "
            "Nothing of it has landed so far.",
            fix=_HIVE_FIX
            if _HIVE_POSITIONS in str(problem)
            else f"let the user that frazil has in the catalog write to {name}, or change what the catalog names; then "
            "start again",
        )
    return CatalogFailedError(f"{type(problem).__name__}: {problem}")


def missing_manifest(table: Table, missing: FileNotFoundError) -> Exception:
    """Error for a commit that was not made because a manifest of the table's head does not exist.

    After a compaction, the former head may expire while a stream without records still takes it for the head.

    Args:
        table: The table as it was read; its metadata is replaced by the catalog's current version.

    Returns:
        `HeadMovedError`, or the problem itself if the table's head is still the one that was read.
    """
    head = table.metadata.current_snapshot_id
    try:
        fresh = table.catalog.load_table(table.name())
    except NoSuchTableError as gone:
        return HeadMovedError(str(gone), final=True)
    table.metadata, table.metadata_location = fresh.metadata, fresh.metadata_location
    if table.metadata.current_snapshot_id == head:
        return missing
    return HeadMovedError(f"its former head {head} has expired: {first_line(missing)}", final=True)


def _as_asserted(metadata: TableMetadata, requirements: Iterable[TableRequirement]) -> bool:
    try:
        for requirement in requirements:
            requirement.validate(metadata)
    except CommitFailedException:
        return False
    return True


# Compared by name, so that unused catalogs need not be installed or imported. An expired token is not among them: the
# stream is reopened with a new one.
_FORBIDDEN = {("pyiceberg.exceptions", "ForbiddenError"), ("builtins", "PermissionError")}
_DENIED = _FORBIDDEN | {
    ("pyiceberg.exceptions", "BadRequestError"),
    ("pyiceberg.exceptions", "ValidationError"),
    ("pyiceberg.exceptions", "ValidationException"),
    ("builtins", "NotImplementedError"),
    ("hive_metastore.ttypes", "InvalidOperationException"),
}
# A Hive metastore compares columns by position unless configured otherwise, so it refuses a column in the middle.
_HIVE_POSITIONS = "incompatible with the existing columns"
_HIVE_FIX = (
    "set hive.metastore.disallow.incompatible.col.type.changes to false in the metastore's hive-site.xml, as Iceberg "
    "needs it, and restart the metastore; then start again"
)
# AWS clients raise one class for all errors.
_FORBIDDEN_CODES = {"AccessDenied", "AccessDeniedException"}
_DENIED_CODES = _FORBIDDEN_CODES | {"InvalidInputException", "ValidationException"}


def is_denied(problem: BaseException) -> bool:
    """Whether a catalog refused a commit for its content or its user, so that every attempt would be refused."""
    return _is_one(problem, _DENIED, _DENIED_CODES)


def is_forbidden(problem: BaseException) -> bool:
    """Whether a catalog refused because of the user, such as a table that this user may not load."""
    return _is_one(problem, _FORBIDDEN, _FORBIDDEN_CODES)


def _is_one(problem: BaseException, kinds: Collection[tuple[str, str]], codes: Collection[str]) -> bool:
    if any((kind.__module__, kind.__name__) in kinds for kind in type(problem).__mro__):
        return True
    response = getattr(problem, "response", None)
    error = response.get("Error") if isinstance(response, dict) else None
    return isinstance(error, dict) and error.get("Code") in codes


@contextlib.contextmanager
def permitted(stream: str, table: str) -> Iterator[None]:
    """Raise a sentence that names the table if the catalog forbids a request of the block."""
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
    """Whether a table of a name exists; a table that this user may not read counts as existing."""
    try:
        return catalog.table_exists(table)
    except Exception as problem:
        if is_forbidden(problem):
            return True
        raise


def is_readable(catalog: Catalog, table: str) -> bool:
    """Whether a table of a name exists and this user may read it."""
    try:
        return catalog.table_exists(table)
    except Exception as problem:
        if is_forbidden(problem):
            return False
        raise
