"""Operations of a commit as data: what becomes of a table's files, or of its schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyiceberg.catalog import Catalog
from pyiceberg.manifest import DataFile
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import SortOrder
from pyiceberg.table.update import TableUpdate


@dataclass(frozen=True, slots=True)
class Append:
    """The commit operation that adds data files to main.

    Attributes:
        files: Of the table's current partition spec; none makes an empty snapshot.
        beside: Other branches that have to stand where they were read, and the ids of their heads.
        alter: Changes of the table's columns and partitions in the same commit; only without files.
    """

    files: Sequence[DataFile] = ()
    beside: Mapping[str, int] = field(default_factory=dict)
    alter: Sequence[TableUpdate] = ()


@dataclass(frozen=True, slots=True)
class ReplaceFiles:
    """The commit operation by which data files of main's head make room for others.

    Attributes:
        added: What comes in their place, of the table's current partition spec.
    """

    removed: Sequence[DataFile]
    added: Sequence[DataFile] = ()


@dataclass(frozen=True, slots=True)
class SnapshotAgain:
    """A snapshot that a remade branch gets again.

    Attributes:
        files: What it adds, of the table's current partition spec.
    """

    files: Sequence[DataFile]
    summary: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class RemakeBranch:
    """The commit operation by which a branch begins again at main's head, with snapshots on top of that.

    Attributes:
        branch: Beside main; main's head and the branch's have to stand where they were read.
        snapshots: Oldest first, at least one.
        since: The sequence number from which on commits of frazil are known to be among these, or before them, if the
            branch's line does not say it.
    """

    branch: str
    snapshots: Sequence[SnapshotAgain]
    since: int


@dataclass(frozen=True, slots=True)
class PublishBranch:
    """The commit operation by which what was made on a branch becomes main, under a snapshot without files on top.

    Main has to stand at `base` and the branch at `merged`; the branch is removed in the same commit.

    Attributes:
        branch: Beside main, begun at main's head and written by nobody else.
        base: Main's head, from which the branch began.
        merged: The branch's head; `base` if nothing was changed there.
    """

    branch: str
    base: int
    merged: int


@dataclass(frozen=True, slots=True)
class RowDelta:
    """The commit operation that adds data files, and files of deleted positions, to a branch beside main.

    Attributes:
        branch: Has to stand at `head`; main is not asked.
        head: The branch's, of which the positions were read.
        files: Data files of the table's current partition spec.
        deletes: Files of positions in data files of `head`, of the same spec.
        replaced: Files of positions of `head`, of the same spec, that make room: `deletes` have what they tell.
    """

    branch: str
    head: int
    files: Sequence[DataFile] = ()
    deletes: Sequence[DataFile] = ()
    replaced: Sequence[DataFile] = ()


@dataclass(frozen=True, slots=True)
class ChangeSchema:
    """The commit operation by which a table gets another schema; its files and its head stay as they are.

    Where the schema stays, properties alone are set, with a snapshot without files, so that whoever read before is
    refused.

    Attributes:
        schema: The new one, with the field ids of the table's own where a column stays.
        properties: Of the table, set in the same commit.
        token: Stands in one of them, and nowhere else: it tells whether the commit landed.
        order: The sort order that the table asks its writers for from then on; None: as it is.
    """

    schema: Schema
    properties: Mapping[str, str]
    token: str
    order: SortOrder | None = None


Operation = Append | ReplaceFiles | RemakeBranch | PublishBranch | RowDelta | ChangeSchema


HIVE_LIMIT = 4_000
_HIVE = "pyiceberg.catalog.hive"


def property_limit(catalog: Catalog) -> int | None:
    """How many bytes a property of a table may have in this catalog before it is too long; None for any number."""
    return HIVE_LIMIT if any(kind.__module__ == _HIVE for kind in type(catalog).__mro__) else None
