"""Local state store of one machine: a file for each document in a folder, for this user alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from jobs.base.system.boot import boot_clock, boot_id
from jobs.clients.state_store.durable_files import (
    create_durably,
    put_in_place,
    remove_durably,
    staged,
)
from jobs.clients.state_store.store import NotWrittenError


class LocalStore:
    """Documents as files: the key is the path below a folder. It imports little, because watchdogs wait with it.

    A document is first written under a name that begins with a dot, and then renamed, so a full disk leaves no part of
    it. Modes are those of `jobs.base.system.private_files`.

    Args:
        root: The folder, which the first document creates.
        clock: The boot clock.
    """

    shared: bool = False

    def __init__(self, root: Path, clock: Callable[[], float] = boot_clock) -> None:
        self._root: Path = root
        self._clock: Callable[[], float] = clock

    @property
    def local(self) -> LocalStore:
        return self

    def get(self, key: str) -> bytes | None:
        try:
            return (self._root / key).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def put(self, key: str, content: bytes, *, durable: bool = True) -> None:
        path = self._root / key
        try:
            beside = staged(path, content, durable=durable)
        except OSError as problem:
            raise NotWrittenError.of(problem) from problem
        put_in_place(beside, path, durable=durable)

    def create_if_absent(self, key: str, content: bytes) -> bool:
        return create_durably(self._root / key, content)

    def replace_if_unchanged(self, key: str, former: bytes | None, content: bytes) -> bool:
        if self.get(key) != former:
            return False
        if former is None:
            return self.create_if_absent(key, content)
        self.put(key, content)
        return True

    def delete(self, key: str) -> None:
        # Imported here: a watchdog deletes nothing.
        from jobs.clients.state_store.document_age import forget

        path = self._root / key
        remove_durably(path)
        forget(path)

    def keys(self, pattern: str) -> list[str]:
        found = (path for path in self._root.glob(pattern) if not path.name.startswith("."))
        return sorted(path.relative_to(self._root).as_posix() for path in found)

    def below(self, prefix: str) -> LocalStore:
        return LocalStore(self._root / prefix, self._clock)

    def written_at(self, key: str) -> float | None:
        try:
            return (self._root / key).stat().st_mtime
        except (FileNotFoundError, NotADirectoryError):
            return None

    def unchanged_for(self, key: str, content: bytes) -> float:
        # Imported here: a watchdog needs it only when it decides.
        from jobs.clients.state_store.document_age import unchanged_for

        return unchanged_for(self._root / key, content, boot_id(), self._clock())

    def place(self, key: str) -> str:
        return str(self._root / key)
