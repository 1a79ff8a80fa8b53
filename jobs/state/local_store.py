"""The state store of one machine: a file per document in a local folder, for this user alone."""

from __future__ import annotations

from pathlib import Path

from jobs.state.files import create_durably, put_in_place, remove_durably, staged
from jobs.state.store import NotWrittenError


class LocalStore:
    """Documents as files: the key is the path below a folder. It imports little, because keepers wait with it.

    A document is written beside its place, under a name that begins with a dot, and then renamed: a disk that is full
    leaves nothing of it. Modes are those of `jobs.system.private`.

    Args:
        root: The folder; made with the first document.
    """

    def __init__(self, root: Path) -> None:
        self._root: Path = root

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

    def delete(self, key: str) -> None:
        # Imported here: a keeper deletes nothing.
        from jobs.state.observed import forget

        path = self._root / key
        remove_durably(path)
        forget(path)

    def keys(self, pattern: str) -> list[str]:
        found = (path for path in self._root.glob(pattern) if not path.name.startswith("."))
        return sorted(path.relative_to(self._root).as_posix() for path in found)

    def below(self, prefix: str) -> LocalStore:
        return LocalStore(self._root / prefix)

    def written_at(self, key: str) -> float | None:
        try:
            return (self._root / key).stat().st_mtime
        except (FileNotFoundError, NotADirectoryError):
            return None

    def unchanged_for(self, key: str, content: bytes) -> float:
        # Imported here: what another host wrote is no keeper's concern until it judges.
        from jobs.state.observed import unchanged_for

        return unchanged_for(self._root / key, content)

    def place(self, key: str) -> str:
        return str(self._root / key)
