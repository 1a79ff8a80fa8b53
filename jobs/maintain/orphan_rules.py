"""Orphan rules: why files that nothing refers to are not deleted all the same."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import timedelta

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError
from pyiceberg.table import Table

from jobs.errors import FrazilError
from jobs.maintain.table_files import ListedFile, store_of, without_store
from jobs.spec.maintenance_policy import Orphans

FLOOR = timedelta(days=3)
# Of a few files a share says nothing: a crash or two leave as many in a small table.
_FEW = 20
_PATH_PROPERTIES = ("write.data.path", "write.metadata.path", "write.folder-storage.path", "write.object-storage.path")
_METADATA = re.compile(r"(.+)/metadata/[^/]+\.metadata\.json(\.gz)?")
# Spark's checkpoints number the files of these folders; Flink's number the folders.
_CHECKPOINT = re.compile(r"(?:(.+)/)?(?:(?:offsets|commits)/\d+|sources/\d+/\d+|(?:state/.+)\.(?:delta|snapshot))")
_FLINK = re.compile(r"(?:(.+)/)?chk-\d+/.+")


class OrphansRefusedError(FrazilError):
    """Nothing was deleted, since something may need what lies there."""


@dataclass(frozen=True, slots=True)
class OrphanScan:
    """What lies under a table's location.

    Attributes:
        listed: All files.
        named: Those of them that the metadata name.
        orphans: Those that nothing names and that are old enough.
    """

    listed: int
    named: int
    orphans: tuple[ListedFile, ...]

    @property
    def bytes(self) -> int:
        """Of the orphans."""
        return sum(file.size for file in self.orphans)


def foreign_content(files: Iterable[ListedFile]) -> str | None:
    """A table or a checkpoint among the files of a table; None if there is none."""
    for file in files:
        if other := _METADATA.fullmatch(file.within):
            return f"another table ({other[1]})"
        if checkpoint := _CHECKPOINT.fullmatch(file.within) or _FLINK.fullmatch(file.within):
            return f"a checkpoint ({checkpoint[1] or file.within})"
    return None


def refuse_two_names(name: str, location: str, names: Iterable[str]) -> None:
    """See that files within the location are named in its own style: else one of them passes for an orphan.

    Raises:
        OrphansRefusedError: One is not.
    """
    own, folder = _folder(location)
    for path in names:
        if store_of(path) != own and without_store(path).startswith(folder):
            raise OrphansRefusedError(
                f"table {name}: its metadata name {path}, and its location is {location}: with two styles of one place "
                "a file that is needed would pass for an orphan. Nothing was deleted.",
                fix="write one style of `warehouse` and of table locations everywhere, and let the old files expire",
            )


def refuse_unknown_place(name: str, location: str, names: Iterable[str], found: OrphanScan) -> None:
    """See that the files that the metadata name are among those listed: else every one of them passes for an orphan.

    A table may keep all its files elsewhere, by `write.data.path`; then nothing of it is to be found at its location.

    Args:
        names: Those of the metadata, see `without_store`.

    Raises:
        OrphansRefusedError: Not one of them is there.
    """
    _, folder = _folder(location)
    if found.named or not (found.orphans or any(path.startswith(folder) for path in names)):
        return
    raise OrphansRefusedError(
        f"table {name}: of the {found.listed:,} files that are listed at {location}, its metadata name not one, so the "
        "store calls them by other names, or keeps them elsewhere. Nothing was deleted.",
        fix=f"see what lies there; set orphans.enabled: false for {name} if the store lists files under other paths",
    )


def refuse_too_many(name: str, found: OrphanScan, policy: Orphans) -> None:
    """See that it is no more than a crash or a clumsy job leaves.

    Raises:
        OrphansRefusedError: It is.
    """
    count, share = len(found.orphans), len(found.orphans) / found.listed
    what = None
    if count > policy.max_files:
        what = f"more than orphans.max_files ({policy.max_files:,})"
    elif count > _FEW and share > policy.max_share:
        what = f"more than orphans.max_share ({policy.max_share:.0%})"
    if what is None:
        return
    some = ", ".join(file.within for file in found.orphans[:3])
    raise OrphansRefusedError(
        f"table {name}: {count:,} of {found.listed:,} files ({share:.0%}) would be deleted, {what}. Nothing was "
        f"deleted. Some of them: {some}.",
        fix="see whether they are garbage; if so, raise the limit for this table once",
    )


def other_locations(catalog: Catalog, name: str) -> dict[str, str]:
    """Every place that other tables of the catalog call theirs, with the table's name.

    Raises:
        OrphansRefusedError: One of them cannot be loaded, so nobody knows where it lies.
    """
    found: dict[str, str] = {}
    for identifier in _tables(catalog, ()):
        other = ".".join(identifier)
        if other == name:
            continue
        try:
            table = catalog.load_table(identifier)
        except (NoSuchTableError, NoSuchNamespaceError):
            continue
        except Exception as problem:
            raise OrphansRefusedError(
                f"table {other} cannot be loaded ({type(problem).__name__}), so nobody knows whether it lies within "
                f"{name}. Nothing was deleted.",
                fix=f"restore or drop {other}",
            ) from None
        found[table.location()] = other
        found |= {table.properties[key]: other for key in _PATH_PROPERTIES if key in table.properties}
    return found


def _tables(catalog: Catalog, namespace: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    for inner in catalog.list_namespaces(namespace) if namespace else catalog.list_namespaces():
        if len(inner) <= len(namespace):
            continue
        yield from catalog.list_tables(inner)
        yield from _tables(catalog, inner)


def refuse_neighbours(name: str, table: Table, others: dict[str, str]) -> None:
    """See that no other table lies within this one, nor this one within another.

    Raises:
        OrphansRefusedError: One does.
    """
    own = _folder(table.location())
    for location, other in others.items():
        theirs = _folder(location)
        if own[0] != theirs[0] or not (own[1].startswith(theirs[1]) or theirs[1].startswith(own[1])):
            continue
        inner, outer = (name, other) if own[1].startswith(theirs[1]) else (other, name)
        raise OrphansRefusedError(
            f"table {name}: {inner} lies within {outer} ({location}), so files of one would pass for orphans of the "
            "other. Nothing was deleted.",
            fix=f"move one of the two elsewhere, or set orphans.enabled: false for {name}",
        )


def _folder(location: str) -> tuple[tuple[str, str], str]:
    return store_of(location), f"{without_store(location).rstrip('/')}/"
