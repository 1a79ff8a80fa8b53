"""Copy of a deployment's documents from one state store to another; all are read back.

Existing documents are not overwritten, except results of maintenance and of checks. These decide nothing, and both go
on while the streams are stopped, so a later copy replaces them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from jobs.base.errors import FrazilError
from jobs.clients.state_store.store import StateStore

# Patterns of folders and extensions that cover all documents.
_PLACES = ("streams/*/", "streams/*/*/", "streams/*/*/*/", "groups/*/", "tables/*/")
_ENDINGS = ("*.json", "*.parquet", "*.yaml")
# A lease belongs to its store: a driver takes a new one there. Watchdogs, logs and scratch belong to a machine.
_LEFT = re.compile(r"(.*/)?(lease-\d+|keeper)\.json|streams/[^/]+/(logs|checkpoints)/.*")
_LEASE = re.compile(r"(.*/)?lease-\d+\.json")
_RESULTS = re.compile(r"tables/.*|streams/[^/]+/checks/.*")


@dataclass(frozen=True, slots=True)
class Copied:
    """Result of a copy.

    Attributes:
        documents: Number of documents now in the target, including those of an interrupted earlier copy.
        bytes: Size of all of them.
        leases: Number of leases that were not copied.
    """

    documents: int
    bytes: int
    leases: int


def documents_of(store: StateStore) -> list[str]:
    """Return the sorted keys of a deployment's documents, without leases and documents of one machine."""
    return [key for key in _keys(store) if not _LEFT.fullmatch(key)]


def copy_documents(source: StateStore, target: StateStore) -> Copied:
    """Copy the documents of all streams, groups and tables, and read them back.

    An interrupted copy can be continued: documents in the target have to be the same, except results.

    Args:
        source: A whole store; meanwhile only results are written there.
        target: Another whole store, which nobody uses.

    Raises:
        FrazilError: The target has other documents, a document has changed, or it does not read back as written.
        OSError: A store cannot be reached.
    """
    keys = documents_of(source)
    _refuse_others(target, frozenset(keys))
    contents = dict[str, bytes]()
    for key in keys:
        content = source.get(key)
        if content is None:
            if _RESULTS.fullmatch(key):
                continue
            raise _changed(source, key)
        contents[key] = content
        if _RESULTS.fullmatch(key):
            target.put(key, content)
        elif not target.create_if_absent(key, content) and target.get(key) != content:
            raise _used(target, key)
    for key, content in contents.items():
        if target.get(key) != content:
            raise FrazilError(
                f"{target.place(key)} is not what was written there.",
                fix="see to that store, remove the copy, and run this again",
            )
        if not _RESULTS.fullmatch(key) and source.get(key) != content:
            raise _changed(source, key)
    if _deciding(documents_of(source)) != _deciding(keys):
        raise _changed(source, "")
    leases = sum(bool(_LEASE.fullmatch(key)) for key in _keys(source))
    return Copied(len(contents), sum(map(len, contents.values())), leases)


def _deciding(keys: list[str]) -> list[str]:
    return [key for key in keys if not _RESULTS.fullmatch(key)]


def _keys(store: StateStore) -> Iterator[str]:
    yield from sorted({key for place in _PLACES for ending in _ENDINGS for key in store.keys(place + ending)})


def _refuse_others(target: StateStore, keys: frozenset[str]) -> None:
    # A lease shows that a stream has used the target. Results that the source lacks may come from an earlier copy.
    for key in _deciding(list(_keys(target))):
        if key not in keys and (_LEASE.fullmatch(key) or not _LEFT.fullmatch(key)):
            raise _used(target, key)


def _used(target: StateStore, key: str) -> FrazilError:
    return FrazilError(
        f"{target.place(key)} exists already, and is no part of this copy. Nothing is overwritten but results of "
        "maintenance and checks.",
        fix="name a store that no deployment has used: another folder, or another table",
    )


def _changed(source: StateStore, key: str) -> FrazilError:
    return FrazilError(
        f"{source.place(key)} was written or removed during the copy, so something runs which is neither maintenance "
        "nor a check.",
        fix="stop what runs (`frazil status`), remove the copy, and run this again",
    )
