"""A state store in memory, for tests: what slows it down, or fails, does so at the test's wish."""

from __future__ import annotations

import fnmatch
import threading
import time
from collections.abc import Callable, Iterator

from jobs.base.system.boot import boot_clock
from jobs.clients.state_store.store import StateStore


class InMemoryStore:
    """Documents of this process.

    Args:
        within: Whose documents this shares, as the part below `prefix`.

    Attributes:
        documents: The documents by their whole keys.
        before, after: By operation: called within it, before it does anything, and once others may see what it did;
            where a slow store would be held up, and one that is away would raise OSError.
        durable: The whole keys of the documents that were last written durably.
    """

    shared: bool = False

    def __init__(self, within: InMemoryStore | None = None, prefix: str = "") -> None:
        self._prefix: str = prefix
        self.documents: dict[str, bytes] = within.documents if within else {}
        self.before: dict[str, Callable[[], None]] = within.before if within else {}
        self.after: dict[str, Callable[[], None]] = within.after if within else {}
        self.durable: set[str] = within.durable if within else set()
        self._written: dict[str, float] = within._written if within else {}
        self._seen: dict[str, tuple[bytes, float]] = within._seen if within else {}
        self._lock: threading.RLock = within._lock if within else threading.RLock()

    @property
    def local(self) -> StateStore:
        return self

    def get(self, key: str) -> bytes | None:
        self._reach("get")
        return self.documents.get(self._prefix + key)

    def put(self, key: str, content: bytes, *, durable: bool = True) -> None:
        self._reach("put")
        with self._lock:
            self._write(key, content)
            (self.durable.add if durable else self.durable.discard)(self._prefix + key)
        self._told("put")

    def create_if_absent(self, key: str, content: bytes) -> bool:
        self._reach("create_if_absent")
        with self._lock:
            if self._prefix + key in self.documents:
                return False
            self._write(key, content)
            self.durable.add(self._prefix + key)
        self._told("create_if_absent")
        return True

    def replace_if_unchanged(self, key: str, former: bytes | None, content: bytes) -> bool:
        self._reach("replace_if_unchanged")
        with self._lock:
            if self.documents.get(self._prefix + key) != former:
                return False
            self._write(key, content)
            self.durable.add(self._prefix + key)
        self._told("replace_if_unchanged")
        return True

    def delete(self, key: str) -> None:
        self._reach("delete")
        with self._lock:
            for each in (self.documents, self._written, self._seen):
                each.pop(self._prefix + key, None)
        self._told("delete")

    def keys(self, pattern: str) -> list[str]:
        self._reach("keys")
        with self._lock:
            return sorted(self._matching(pattern))

    def below(self, prefix: str) -> StateStore:
        return InMemoryStore(self, f"{self._prefix}{prefix}/")

    def written_at(self, key: str) -> float | None:
        return self._written.get(self._prefix + key)

    def unchanged_for(self, key: str, content: bytes) -> float:
        now = boot_clock()
        with self._lock:
            seen, since = self._seen.setdefault(self._prefix + key, (content, now))
            if seen != content:
                since = now
                self._seen[self._prefix + key] = content, now
        return now - since

    def place(self, key: str) -> str:
        return f"memory:{self._prefix}{key}"

    def _write(self, key: str, content: bytes) -> None:
        self.documents[self._prefix + key] = content
        self._written[self._prefix + key] = time.time()

    def _matching(self, pattern: str) -> Iterator[str]:
        wanted = pattern.split("/")
        for key in self.documents:
            if key.startswith(self._prefix):
                parts = key.removeprefix(self._prefix).split("/")
                if len(parts) == len(wanted) and all(map(fnmatch.fnmatchcase, parts, wanted)):
                    yield "/".join(parts)

    def _reach(self, operation: str) -> None:
        self.before.get(operation, lambda: None)()

    def _told(self, operation: str) -> None:
        self.after.get(operation, lambda: None)()
