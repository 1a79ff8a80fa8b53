"""Watch of a stream's registry: some known schemas are compared with it now and then, beside the batches."""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator

from jobs.errors import FrazilError
from jobs.registry.known_schemas import RegistryRemadeError
from jobs.stream.writer_schemas import WriterSchemas
from jobs.system.threads import background_thread

log = logging.getLogger(__name__)

HOUR = 3600.0
_AGAIN_SECONDS = 60.0


class RegistryWatch:
    """Compares in a thread of its own, so that a registry that is slow or away delays nothing.

    One that was made anew is looked at twice, a minute apart: a registry that has just been started may not have read
    all of its own schemas yet. What is found then is kept in `WriterSchemas.remade`; whoever lands records ends there.

    Args:
        schemas: Of the stream.
        every: Seconds from one comparison to the next; the first is as long after the opening, which compares itself.
        again: Seconds until it is looked at once more.
    """

    def __init__(self, schemas: WriterSchemas, every: float = HOUR, again: float = _AGAIN_SECONDS) -> None:
        self._schemas: WriterSchemas = schemas
        self._every: float = every
        self._again: float = again
        self._stop: threading.Event = threading.Event()
        self._thread: threading.Thread = background_thread(self._watch, "registry")

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def end(self) -> None:
        """Watch no longer; not waited for, since it may be in the middle of a question to a registry that is away."""
        self._stop.set()

    def _watch(self) -> None:
        pause = self._every
        suspected = False
        while not self._stop.wait(pause):
            found = self._compared()
            if found is not None and suspected:
                log.error("%s", found.message)
                self._schemas.remade = found
                return
            if found is not None:
                log.warning("looked at again in %.0f s: %s", self._again, found.message)
            suspected, pause = found is not None, self._again if found is not None else self._every

    def _compared(self) -> RegistryRemadeError | None:
        try:
            self._schemas.compare()
        except RegistryRemadeError as problem:
            return problem
        except (FrazilError, OSError) as problem:
            log.warning("known schemas are not compared with the registry: %s", type(problem).__name__)
        except Exception:
            # Whatever it is, it is no reason to end a stream that lands records.
            log.warning("the comparison with the registry goes on after", exc_info=True)
        return None


@contextlib.contextmanager
def registry_watch(schemas: WriterSchemas | None) -> Iterator[None]:
    """The registry of a stream is watched within the block, if its records need one."""
    watch = RegistryWatch(schemas) if schemas is not None else None
    if watch is not None:
        watch.start()
    try:
        yield
    finally:
        if watch is not None:
            watch.end()
