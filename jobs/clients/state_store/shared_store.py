"""Shared state store: documents that several machines read and write, on a service with conditional writes.

`Documents` is the interface to a service; the protocol of writes is here. Each write carries a nonce and the tag of the
document that it replaces, so a write that arrives late overwrites nothing. A refused write is read back: if a client or
a proxy sent it twice, the second one is refused because the first one succeeded.
"""

from __future__ import annotations

import errno
import os
import random
import re
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeVar

from jobs.base.system.boot import boot_clock, boot_id
from jobs.clients.state_store.document_age import forget, unchanged_for
from jobs.clients.state_store.local_store import LocalStore
from jobs.clients.state_store.store import NotWrittenError

# How long a write is tried again. A lease that cannot be renewed may expire meanwhile, which its holder notices.
RETRY_SECONDS = 8.0
# How long a read is tried again while the service is busy.
READ_SECONDS = 2.0
_SLOW_SECONDS, _SILENCE_SECONDS = 1.0, 2.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_READ_KEPT = 64

Result = TypeVar("Result")
Expected = str | None | Literal[True]
"""What a write may replace: the document with this tag, no document (None), or any (True)."""


@dataclass(frozen=True, slots=True)
class Version:
    """A document in a service.

    Attributes:
        tag: Tag of the content, which every change changes.
        nonce: Nonce of the write that made it; empty if it had none.
    """

    content: bytes
    tag: str
    nonce: str


class BusyStoreError(OSError):
    """The service did not carry out the request and should be asked again: it is overloaded, or found a conflict.

    A `SharedStore` asks again. In the end it raises EIO, as for a service that does not answer: waiting helps.
    """


class Documents(Protocol):
    """Documents of one service, by complete keys. All methods raise OSError if the service does not answer.

    EACCES is permanent; other errors may be temporary.
    """

    def read(self, key: str) -> Version | None:
        """Return the present document; None if there is none."""
        ...

    def write(self, key: str, content: bytes, nonce: str, expected: Expected) -> bool:
        """Write the document once, if `expected` matches; return whether it did.

        Raises:
            NotWrittenError, BusyStoreError: The document was not written, and will not be.
            OSError: The document may have been written, or may still be.
        """
        ...

    def remove(self, key: str) -> None:
        """Remove the document if it exists."""
        ...

    def keys(self, pattern: str) -> list[str]:
        """Return the complete keys that match, in any order; `*` stands for any characters except slashes."""
        ...

    def written_at(self, key: str) -> float | None:
        """Return when the document was last written, in seconds since 1970 on the service's clock; None if missing."""
        ...

    def place(self, key: str) -> str:
        """Return the document's address, for people."""
        ...


@dataclass(slots=True)
class _Silence:
    """Outages of a service that a process has seen.

    Attributes:
        until: Time before which the service is not asked, on the monotonic clock.
        failed: Whether the last request failed.
        heard_since: When the last outage ended, on the boot clock; None if there was none.
    """

    until: float = 0.0
    failed: bool = False
    heard_since: float | None = None


class SharedStore:
    """Documents of a deployment on a service; see `StateStore`.

    Args:
        documents: Documents of the service.
        root: Folder of this machine for observations of documents, and for documents of this machine alone.
        prefix: Prefix of the keys; empty, or ends with a slash.
        clock: The boot clock.
        silence: Outages of the service, shared by all parts of a store.
    """

    shared: bool = True

    def __init__(
        self,
        documents: Documents,
        root: Path,
        prefix: str = "",
        clock: Callable[[], float] = boot_clock,
        silence: _Silence | None = None,
    ) -> None:
        self._documents: Documents = documents
        self._root: Path = root
        self._prefix: str = prefix
        self._clock: Callable[[], float] = clock
        self._silence: _Silence = silence or _Silence()
        # When the last reads of documents began: the content is at least that old.
        self._begun: OrderedDict[str, tuple[bytes, float]] = OrderedDict()

    @property
    def local(self) -> LocalStore:
        return LocalStore(self._root, self._clock)

    def get(self, key: str) -> bytes | None:
        begun = self._clock()
        found = self._read(lambda: self._documents.read(self._prefix + key))
        if found is None:
            return None
        self._begun[key] = found.content, begun
        while len(self._begun) > _READ_KEPT:
            self._begun.popitem(last=False)
        return found.content

    def put(self, key: str, content: bytes, *, durable: bool = True) -> None:
        if not durable:
            # Not tried again: the document is rewritten within seconds.
            try:
                self._documents.write(self._prefix + key, content, _nonce(), True)
            except OSError as problem:
                if problem.errno != errno.EAGAIN:
                    raise
                raise NotWrittenError.of(_in_the_end(problem)) from problem
            return
        self._write(key, content, lambda found: found)

    def create_if_absent(self, key: str, content: bytes) -> bool:
        return self.replace_if_unchanged(key, None, content)

    def replace_if_unchanged(self, key: str, former: bytes | None, content: bytes) -> bool:
        def same(found: Version | None) -> Version | Literal[False] | None:
            return found if (found.content if found is not None else None) == former else False

        return self._write(key, content, same)

    def delete(self, key: str) -> None:
        self._read(lambda: self._documents.remove(self._prefix + key))
        self._begun.pop(key, None)
        forget(self._root / key)

    def keys(self, pattern: str) -> list[str]:
        found = self._read(lambda: self._documents.keys(self._prefix + pattern))
        return sorted(key.removeprefix(self._prefix) for key in found if not key.rpartition("/")[2].startswith("."))

    def below(self, prefix: str) -> SharedStore:
        return SharedStore(self._documents, self._root / prefix, f"{self._prefix}{prefix}/", self._clock, self._silence)

    def written_at(self, key: str) -> float | None:
        return self._read(lambda: self._documents.written_at(self._prefix + key))

    def unchanged_for(self, key: str, content: bytes) -> float:
        now = self._clock()
        read, begun = self._begun.get(key, (None, now))
        # A slow answer may show the state at the beginning of the read.
        late = now - begun if read == content else 0.0
        age = unchanged_for(self._root / key, content, boot_id(), now) - late
        # During an outage nobody could write the document either.
        heard = self._silence.heard_since
        return max(0.0, age if heard is None else min(age, now - heard))

    def place(self, key: str) -> str:
        return self._documents.place(self._prefix + key)

    def prove(self, proof: Callable[[Documents, str], None]) -> None:
        """Run a proof on the service, below this store's prefix."""
        try:
            proof(self._documents, self._prefix)
        except OSError as problem:
            raise _in_the_end(problem) from problem

    def _write(
        self, key: str, content: bytes, allowed: Callable[[Version | None], Version | Literal[False] | None]
    ) -> bool:
        """Write a document if `allowed` accepts the present one; return whether this call wrote it."""
        nonce, whole = _nonce(), self._prefix + key
        deadline, pause, unclear = time.monotonic() + RETRY_SECONDS, _FIRST_PAUSE, False
        while True:
            sent = False
            try:
                found = self._documents.read(whole)
                if found is not None and found.nonce == nonce:
                    return True
                base = allowed(found)
                if base is False:
                    return False
                sent = True
                if self._documents.write(whole, content, nonce, base.tag if base is not None else None):
                    return True
                # Another write was first, or a former attempt of this one succeeded: read back.
                problem: OSError = BusyStoreError(errno.EAGAIN, f"{self.place(key)} is written by others all the time")
            except (NotWrittenError, BusyStoreError) as known:
                problem = known
            except OSError as unknown:
                problem, unclear = unknown, unclear or sent
            if time.monotonic() >= deadline or problem.errno == errno.EACCES:
                last = _in_the_end(problem)
                if unclear:
                    sentence = f"{last.strerror or last} (it may have been written nevertheless)"
                    raise OSError(last.errno, sentence) from problem
                raise NotWrittenError.of(last) from problem
            time.sleep(pause * random.random())
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _read(self, ask: Callable[[], Result]) -> Result:
        """Send a read to the service, again while it is busy; right after an outage it is not asked at all."""
        if self._silence.until > time.monotonic():
            raise OSError(errno.EIO, f"{self.place('')} did not answer a moment ago")
        begun = time.monotonic()
        while True:
            try:
                answer = ask()
                if self._silence.failed:
                    self._silence.failed, self._silence.heard_since = False, self._clock()
                return answer
            except BusyStoreError as problem:
                if time.monotonic() - begun > READ_SECONDS:
                    raise _in_the_end(problem) from problem
                time.sleep(_FIRST_PAUSE * (1 + random.random()))
            except OSError as problem:
                self._silence.failed = True
                # A reader of many documents must not wait for each of them.
                if (now := time.monotonic()) - begun > _SLOW_SECONDS:
                    self._silence.until = now + _SILENCE_SECONDS
                raise _in_the_end(problem) from problem


def matcher(pattern: str) -> re.Pattern[str]:
    """Return the regular expression of a pattern of keys."""
    return re.compile("[^/]*".join(map(re.escape, pattern.split("*"))))


def _in_the_end(problem: OSError) -> OSError:
    """Return the final error: EAGAIN becomes EIO, because an exhausted machine raises EAGAIN as well."""
    return problem if problem.errno != errno.EAGAIN else OSError(errno.EIO, problem.strerror)


def _nonce() -> str:
    return os.urandom(12).hex()
