"""Watch of the mounted files that hold a stream's secrets: whether one holds another secret than when it was opened."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable

from jobs.spec.models import StreamSpec
from jobs.spec.secrets import secrets_in
from jobs.spec.settings import Settings, secret_references
from jobs.supervise.control_request import ControlReader
from jobs.system.mounted import mounted_text

LOOK_SECONDS = 5.0


def secret_files(spec: StreamSpec, settings: Settings) -> tuple[str, ...]:
    """The mounted files whose secrets a stream uses, each once."""
    secrets = (*secret_references(settings, sources=False), *secrets_in(spec))
    return tuple(dict.fromkeys(path for secret in secrets for path in secret.files))


class SecretWatch:
    """Compares digests under a key of its own: it keeps no secret, and nothing that could be compared elsewhere.

    Args:
        files: To be watched.
        clock: Seconds.
    """

    def __init__(self, files: Iterable[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._key: bytes = os.urandom(16)
        self._clock: Callable[[], float] = clock
        self._digests: dict[str, bytes | None] = {path: self._digest(path) for path in files}
        self._changed: bool = False
        self._looked: float = clock()

    def changed(self, *, now: bool = False) -> bool:
        """Whether a file holds another secret. One that cannot be read just now has not changed.

        Args:
            now: Look at once; without it the files are read every five seconds.
        """
        if not self._changed and self._digests and (now or self._clock() - self._looked >= LOOK_SECONDS):
            self._looked = self._clock()
            found = {path: self._digest(path) for path in self._digests}
            self._changed = any(each is not None and each != self._digests[path] for path, each in found.items())
        return self._changed

    def wait(self, control: ControlReader, seconds: float) -> None:
        """Wait for another secret, for so long, unless an operator asks for something."""
        deadline = self._clock() + seconds
        while control.now() == "run" and self._clock() < deadline and not self.changed(now=True):
            control.wait_while("run", 1.0)

    def __bool__(self) -> bool:
        """Whether there is anything to watch."""
        return bool(self._digests)

    def _digest(self, path: str) -> bytes | None:
        try:
            return hashlib.blake2b(mounted_text(path).encode(), key=self._key).digest()
        except (OSError, ValueError):
            return None
