"""Shared state store: documents that several machines read and write, over a service with conditional writes.

What differs between services is small: `Documents`. What a write means is decided here, once. Each write carries a
nonce and the tag of what it replaces, so one that arrives late, after others have written, overwrites nothing; and one
that is refused is read back, since a client or a proxy that has sent it twice is refused for its own success.
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

# A write is tried again for so long; a lease that cannot be renewed runs out meanwhile, which its holder notices.
RETRY_SECONDS = 8.0
# And a read that the service is too busy for.
READ_SECONDS = 2.0
_SLOW_SECONDS, _SILENCE_SECONDS = 1.0, 2.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
_READ_KEPT = 64

Result = TypeVar("Result")
Expected = str | None | Literal[True]
"""What a write replaces: the document with this tag; none; or, if True, whatever is there."""


@dataclass(frozen=True, slots=True)
class Version:
    """A document as a service has it.

    Attributes:
        tag: Another one for every other content.
        nonce: Of the write that made it; empty if it had none.
    """

    content: bytes
    tag: str
    nonce: str


class BusyStoreError(OSError):
    """The service has not done what was asked, and wants to be asked again: it is overloaded, or has met a conflict.

    A `SharedStore` asks again. What is left of it then is EIO, as of a service that does not answer: waiting helps.
    """


class Documents(Protocol):
    """Documents of one service, by whole keys. Everything raises OSError if the service cannot be asked.

    EACCES is for good; anything else may pass.
    """

    def read(self, key: str) -> Version | None:
        """The document as it is now; None if there is none."""
        ...

    def write(self, key: str, content: bytes, nonce: str, expected: Expected) -> bool:
        """Write it once, if what is there is what is expected; returns whether it was.

        Raises:
            NotWrittenError, BusyStoreError: It was not written, and will not be.
            OSError: It may have been written, or may be yet.
        """
        ...

    def remove(self, key: str) -> None:
        """Remove it, if it is there."""
        ...

    def keys(self, pattern: str) -> list[str]:
        """The whole keys that match, in any order; `*` stands for any characters but a slash."""
        ...

    def written_at(self, key: str) -> float | None:
        """When it was last written, seconds since 1970 on the service's clock; None if it is not there."""
        ...

    def place(self, key: str) -> str:
        """Where a person finds it."""
        ...


@dataclass(slots=True)
class _Silence:
    """What a process knows of times at which a service did not answer.

    Attributes:
        until: It is not asked before; on the monotonic clock.
        failed: Its newest answer was none.
        heard_since: Since when it has answered each time, after the last time it had not; on the boot clock.
    """

    until: float = 0.0
    failed: bool = False
    heard_since: float | None = None


class SharedStore:
    """Documents of a deployment on a service; see `StateStore`.

    Args:
        documents: Of the service.
        root: The folder of this machine for what it has seen of the documents, and for what is of this machine alone.
        prefix: Of the keys; empty, or ends with a slash.
        clock: The boot clock.
        silence: Of the service, shared by all parts of a store.
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
        # When the last reads of documents were begun: what was read is not younger than that.
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
            # Written anew in seconds, and of no use by then.
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
        # An answer that took long tells of the time when it was asked for at the earliest.
        late = now - begun if read == content else 0.0
        age = unchanged_for(self._root / key, content, boot_id(), now) - late
        # While nobody could read it, nobody could write it either.
        heard = self._silence.heard_since
        return max(0.0, age if heard is None else min(age, now - heard))

    def place(self, key: str) -> str:
        return self._documents.place(self._prefix + key)

    def prove(self, proof: Callable[[Documents, str], None]) -> None:
        """Let the service be tried below this store's prefix."""
        try:
            proof(self._documents, self._prefix)
        except OSError as problem:
            raise _in_the_end(problem) from problem

    def _write(
        self, key: str, content: bytes, allowed: Callable[[Version | None], Version | Literal[False] | None]
    ) -> bool:
        """Write a document over what is there, if that is allowed; returns whether this call did."""
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
                # Somebody else was quicker, or a former attempt of this one is through: that is read back.
                problem: OSError = BusyStoreError(errno.EAGAIN, f"{self.place(key)} is written by others all the time")
            except (NotWrittenError, BusyStoreError) as known:
                problem = known
            except OSError as unknown:
                problem, unclear = unknown, unclear or sent
            if time.monotonic() >= deadline or problem.errno == errno.EACCES:
                last = _in_the_end(problem)
                if unclear:
                    sentence = f"{last.strerror or last} (it may have been written all the same)"
                    raise OSError(last.errno, sentence) from problem
                raise NotWrittenError.of(last) from problem
            time.sleep(pause * random.random())
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _read(self, ask: Callable[[], Result]) -> Result:
        """Ask the service something, and again if it wants that; nothing soon after it did not answer."""
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
                # Whoever looks at many documents of many streams is not to wait for each of them.
                if (now := time.monotonic()) - begun > _SLOW_SECONDS:
                    self._silence.until = now + _SILENCE_SECONDS
                raise _in_the_end(problem) from problem


def matcher(pattern: str) -> re.Pattern[str]:
    """A pattern of keys as a regular expression."""
    return re.compile("[^/]*".join(map(re.escape, pattern.split("*"))))


def _in_the_end(problem: OSError) -> OSError:
    """What is told of a problem when the service is not asked again: EAGAIN says of it what a full machine says too."""
    return problem if problem.errno != errno.EAGAIN else OSError(errno.EIO, problem.strerror)


def _nonce() -> str:
    return os.urandom(12).hex()
