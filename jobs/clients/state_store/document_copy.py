"""Copy of a deployment's documents from one state store to another: all are read back, and hardly one is overwritten.

Results of maintenance and of checks decide nothing, and both go on while the streams are stopped: they are copied as
they are at the time, over those of an earlier copy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from jobs.base.errors import FrazilError
from jobs.clients.state_store.store import StateStore

# Every document is so deep at most, and has one of these endings.
_PLACES = ("streams/*/", "streams/*/*/", "streams/*/*/*/", "groups/*/", "tables/*/")
_ENDINGS = ("*.json", "*.parquet", "*.yaml")
# A lease is of its store: whoever runs a stream takes one there. Keepers, logs and scratch are of a machine.
_LEFT = re.compile(r"(.*/)?(lease-\d+|keeper)\.json|streams/[^/]+/(logs|checkpoints)/.*")
_LEASE = re.compile(r"(.*/)?lease-\d+\.json")
_RESULTS = re.compile(r"tables/.*|streams/[^/]+/checks/.*")


@dataclass(frozen=True, slots=True)
class Copied:
    """What a copy came to.

    Attributes:
        documents: How many there are now, those of an earlier copy that did not come to its end included.
        bytes: Of them all.
        leases: How many leases were left.
    """

    documents: int
    bytes: int
    leases: int


def documents_of(store: StateStore) -> list[str]:
    """The keys of a deployment's documents, without leases and what is of a machine alone, in order."""
    return [key for key in _keys(store) if not _LEFT.fullmatch(key)]


def copy_documents(source: StateStore, target: StateStore) -> Copied:
    """Copy the documents of all streams, groups and tables, and see that they are there.

    A copy that was interrupted goes on: what stands there already has to be the same, but for results.

    Args:
        source: A whole store; nobody writes there meanwhile, but for results.
        target: Another whole store, which nobody uses.

    Raises:
        FrazilError: The target has something else; or a document has changed, or is not there as it was written.
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
    # A lease says that somebody has used it, whatever else is there; results that are gone may be an earlier copy's.
    for key in _deciding(list(_keys(target))):
        if key not in keys and (_LEASE.fullmatch(key) or not _LEFT.fullmatch(key)):
            raise _used(target, key)


def _used(target: StateStore, key: str) -> FrazilError:
    return FrazilError(
        f"{target.place(key)} is there already, and is no part of this copy. Nothing is overwritten but results of "
        "maintenance and checks.",
        fix="name a store that no deployment has used: another folder, or another table",
    )


def _changed(source: StateStore, key: str) -> FrazilError:
    return FrazilError(
        f"{source.place(key)} was written or removed during the copy, so something runs which is neither maintenance "
        "nor a check.",
        fix="stop what runs (`frazil status`), remove the copy, and run this again",
    )
