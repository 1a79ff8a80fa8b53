"""Commit operations as data: changes of a table's files or schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder
from pyiceberg.table.update import TableUpdate

from jobs.tables.write.table_creation import is_hive


@dataclass(frozen=True, slots=True)
class Append:
    """The commit operation that adds data files to main.

    Attributes:
        files: Data files of the table's current partition spec; without any, the snapshot is empty.
        beside: Ids of the heads of other branches, which must not have moved.
        alter: Changes of the table's columns and partitions in the same commit; only without files.
    """

    files: Sequence[DataFile] = ()
    beside: Mapping[str, int] = field(default_factory=dict)
    alter: Sequence[TableUpdate] = ()


@dataclass(frozen=True, slots=True)
class ReplaceFiles:
    """The commit operation that replaces data files of main's head.

    Attributes:
        added: New data files, of the table's current partition spec.
    """

    removed: Sequence[DataFile]
    added: Sequence[DataFile] = ()


@dataclass(frozen=True, slots=True)
class SnapshotAgain:
    """Copy of a snapshot for a rebased branch.

    Attributes:
        files: Data files that it adds, of the table's current partition spec.
    """

    files: Sequence[DataFile]
    summary: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RemakeBranch:
    """The commit operation that rebases a branch onto main's head, with copies of its snapshots on top.

    Attributes:
        branch: Branch beside main; both heads must be where they were read.
        snapshots: Oldest first, at least one.
        since: Sequence number from which frazil's commits are known to be ancestors of these or among them, if the
            branch's line does not record it.
    """

    branch: str
    snapshots: Sequence[SnapshotAgain]
    since: int


@dataclass(frozen=True, slots=True)
class PublishBranch:
    """The commit operation that makes a branch's head main's, under a snapshot without files on top.

    Main has to stand at `base` and the branch at `merged`; the branch is removed in the same commit.

    Attributes:
        branch: Branch beside main that began at main's head and has no other writer.
        base: Main's head, from which the branch began.
        merged: The branch's head; `base` if nothing was changed there.
    """

    branch: str
    base: int
    merged: int


@dataclass(frozen=True, slots=True)
class RowDelta:
    """The commit operation that adds data files and position delete files to a branch beside main.

    Attributes:
        branch: Branch whose head must be `head`; main is not checked.
        head: The branch's head, in whose files the positions count.
        files: Data files of the table's current partition spec.
        deletes: Position delete files for data files of `head`, of the same spec.
        replaced: Position delete files of `head`, of the same spec, that `deletes` contain and replace.
    """

    branch: str
    head: int
    files: Sequence[DataFile] = ()
    deletes: Sequence[DataFile] = ()
    replaced: Sequence[DataFile] = ()


@dataclass(frozen=True, slots=True)
class ChangeSchema:
    """The commit operation that gives a table another schema; its files and its head stay.

    If the schema stays, only properties are set, with a snapshot without files, so that commits on the former state are
    refused.

    Attributes:
        schema: New schema, in which unchanged columns keep their field ids.
        properties: Table properties, set in the same commit.
        token: Text that is in one of these properties and nowhere else: it shows whether the commit landed.
        order: New sort order of the table; None: unchanged.
    """

    schema: Schema
    properties: Mapping[str, str]
    token: str
    order: SortOrder | None = None


Operation = Append | ReplaceFiles | RemakeBranch | PublishBranch | RowDelta | ChangeSchema


HIVE_LIMIT = 4_000


def property_limit(catalog: Catalog) -> int | None:
    """Most bytes that a property of a table may have in this catalog; None for any number."""
    return HIVE_LIMIT if is_hive(catalog) else None
