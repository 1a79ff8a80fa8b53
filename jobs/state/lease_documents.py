"""The documents of a stream's leases: one per epoch, `lease-<epoch>.json`, of which the greatest epoch counts."""

from __future__ import annotations

import re

from jobs.state.store import StateStore

_NAME = re.compile(r"lease-(\d{8,})\.json")


class LeaseDocuments:
    """The leases of one stream in a state store.

    Args:
        store: The stream's part of the store.
    """

    def __init__(self, store: StateStore) -> None:
        self._store: StateStore = store

    def newest(self) -> tuple[int, bytes] | None:
        """The greatest epoch and its document, read after all that was written before; None if there is none."""
        while True:
            epoch = max(self._epochs(), default=None)
            if epoch is None:
                return None
            content = self._store.get(_key(epoch))
            # None: a later holder has just tidied up.
            if content is not None:
                return epoch, content

    def create(self, epoch: int, content: bytes) -> bool:
        """Write the document of an epoch unless there is one; returns whether this call did."""
        return self._store.create_if_absent(_key(epoch), content)

    def replace(self, epoch: int, content: bytes) -> None:
        """Write the document of an epoch anew."""
        self._store.put(_key(epoch), content)

    def remove_below(self, epoch: int) -> None:
        """Remove the documents of lesser epochs, which count no more."""
        for former in self._epochs():
            if former < epoch:
                self._store.delete(_key(former))

    def unchanged_for(self, epoch: int, content: bytes) -> float:
        """Seconds for which this host has seen the document of an epoch as it is now."""
        return self._store.unchanged_for(_key(epoch), content)

    def place(self, epoch: int) -> str:
        """Where a person finds the document of an epoch."""
        return self._store.place(_key(epoch))

    def _epochs(self) -> list[int]:
        names = (_NAME.fullmatch(key) for key in self._store.keys("lease-*.json"))
        return [int(name[1]) for name in names if name]


def _key(epoch: int) -> str:
    return f"lease-{epoch:08d}.json"
