"""Where the leases of a stream are kept: a few steps that a folder, an object store or a catalog can offer."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Protocol

from jobs.state.files import create_durably, write_durably
from jobs.state.observed import forget, unchanged_for
from jobs.system.private import private_folder

_NAME = re.compile(r"lease-(\d{8,})\.json")


class LeaseStore(Protocol):
    """The leases of one stream: one small document per epoch, of which the greatest epoch counts.

    Only `create` has to be atomic among writers: no lock is ever held, which a process that is stopped at the wrong
    moment would keep. An object store offers it as a conditional PUT (`If-None-Match: *`), a catalog as an insert with
    a unique key. Every operation raises OSError if the store cannot be reached; the lease may then run out.
    """

    def newest(self) -> tuple[int, bytes] | None:
        """The greatest epoch and its document, read after all that was written before; None if there is none."""
        ...

    def create(self, epoch: int, content: bytes) -> bool:
        """Write the document of an epoch durably, whole and at once, unless there is one; whether this call did it."""
        ...

    def replace(self, epoch: int, content: bytes) -> None:
        """Write the document of an epoch durably, so that a reader sees the old one or the new one."""
        ...

    def remove_below(self, epoch: int) -> None:
        """Remove the documents of lesser epochs, which count no more."""
        ...

    def unchanged_for(self, epoch: int, content: bytes) -> float:
        """Seconds for which this host has seen the document of an epoch as it is now, on a clock that does not jump."""
        ...

    def place(self, epoch: int) -> str:
        """Where a person finds the document of an epoch."""
        ...


class LeaseFolder:
    """Leases as files in a local folder: `lease-<epoch>.json`.

    Args:
        folder: The stream's state folder, made when the first lease is taken.
    """

    def __init__(self, folder: Path) -> None:
        self._folder: Path = folder

    def newest(self) -> tuple[int, bytes] | None:
        while True:
            epoch = max(self._epochs(), default=None)
            if epoch is None:
                return None
            try:
                return epoch, self._path(epoch).read_bytes()
            except FileNotFoundError:
                # A later holder has just tidied up.
                continue

    def create(self, epoch: int, content: bytes) -> bool:
        private_folder(self._folder)
        return create_durably(self._path(epoch), content)

    def replace(self, epoch: int, content: bytes) -> None:
        write_durably(self._path(epoch), content)

    def remove_below(self, epoch: int) -> None:
        for former in self._epochs():
            if former < epoch:
                self._path(former).unlink(missing_ok=True)
                forget(self._path(former))

    def unchanged_for(self, epoch: int, content: bytes) -> float:
        return unchanged_for(self._path(epoch), content)

    def place(self, epoch: int) -> str:
        return str(self._path(epoch))

    def _path(self, epoch: int) -> Path:
        return self._folder / f"lease-{epoch:08d}.json"

    def _epochs(self) -> list[int]:
        names = (_NAME.fullmatch(file.name) for file in self._folder.glob("lease-*.json"))
        return [int(name[1]) for name in names if name]
