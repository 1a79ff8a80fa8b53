"""A service behind a shared state store, in memory: answers late, twice, or not at all, as a test says."""

from __future__ import annotations

import errno
import itertools
import time
from collections.abc import Callable

from jobs.clients.state_store.shared_store import (
    BusyStoreError,
    Expected,
    Version,
    matcher,
)
from jobs.clients.state_store.store import NotWrittenError


class LateService:
    """Documents of this process, with conditions kept, and requests treated as a test says.

    Attributes:
        plans: Outcomes of the next writes: `twice`: it is sent again, and the second answer counts;
            `lost`: it is carried out, and no answer comes; `dropped`: neither; `late`: it is carried out with
            `deliver`, and no answer comes; `busy` and `refused`: it is answered so.
        late: Writes that are on their way.
    """

    def __init__(self) -> None:
        self.documents: dict[str, Version] = {}
        self.plans: list[str] = []
        self.late: list[Callable[[], bool]] = []
        self.reads: int = 0
        self.silent: Callable[[], None] = lambda: None
        self._tags: itertools.count[int] = itertools.count()

    def read(self, key: str) -> Version | None:
        self.reads += 1
        self.silent()
        return self.documents.get(key)

    def write(self, key: str, content: bytes, nonce: str, expected: Expected) -> bool:
        def carry_out() -> bool:
            found = self.documents.get(key)
            if expected is not True and (found.tag if found is not None else None) != expected:
                return False
            self.documents[key] = Version(content, str(next(self._tags)), nonce)
            return True

        plan = self.plans.pop(0) if self.plans else ""
        if plan == "busy":
            raise BusyStoreError(errno.EAGAIN, "busy")
        if plan == "unsent":
            raise NotWrittenError(errno.EIO, "no connection")
        if plan == "refused":
            raise PermissionError(errno.EACCES, "refused")
        if plan == "late":
            self.late.append(carry_out)
        if plan == "lost":
            carry_out()
        if plan in ("late", "lost", "dropped"):
            raise OSError(errno.EIO, "no answer")
        if plan == "twice":
            carry_out()
        return carry_out()

    def deliver(self) -> None:
        """Carry out what is on its way."""
        while self.late:
            self.late.pop(0)()

    def remove(self, key: str) -> None:
        self.documents.pop(key, None)

    def keys(self, pattern: str) -> list[str]:
        return [key for key in self.documents if matcher(pattern).fullmatch(key)]

    def written_at(self, key: str) -> float | None:
        return time.time() if key in self.documents else None

    def place(self, key: str) -> str:
        return f"service:{key}"
