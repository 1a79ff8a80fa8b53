"""FileIO with keys that a catalog hands out, which takes others from it before they end.

Whoever holds a table for longer than its keys live, such as an audit that reads for hours, reads and writes on with it.
Relied upon, and pinned by `tests/unit/write/test_renewed_file_io.py`: `PyArrowFileIO` asks its `fs_by_scheme` for each
file that it opens, and makes a client of its properties by `_initialize_fs`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from pyarrow.fs import FileSystem

from jobs.errors import first_line
from jobs.write.file_access import KeyAge, keys_of
from jobs.write.store_file_io import StoreFileIO

log = logging.getLogger(__name__)

PAUSE_SECONDS = 10.0
"""Between two attempts at renewal, for as long as the present keys may hold."""


class RenewedFileIO(StoreFileIO):
    """PyIceberg's FileIO, with other keys in the middle of the life of the present ones.

    Sent to another process it is a `StoreFileIO`, with the keys that it has.

    Args:
        properties: As of `PyArrowFileIO`.
        load: Asks the catalog; gives the properties of the table's FileIO as they are now, or None if another table
            has its name.
    """

    def __init__(self, properties: Mapping[str, Any], load: Callable[[], Mapping[str, Any] | None]) -> None:
        super().__init__(dict(properties))
        self._load: Callable[[], Mapping[str, Any] | None] = load
        self._age: KeyAge = KeyAge()
        self._not_before: float = 0.0
        self._guard: threading.Lock = threading.Lock()
        self._clients: Callable[[str, str | None], FileSystem] = lru_cache(self._initialize_fs)
        self.fs_by_scheme = self._client

    def renew(self, *, refused: bool = False) -> bool:
        """Take other keys from the catalog if it is time, or if the store has refused those that are here.

        A catalog that does not answer leaves them as they are, for as long as they may still hold.

        Returns:
            Whether there are others now.
        """
        with self._guard:
            if refused:
                self._age.refused()
            elif not self._age.due(self.properties) or self._waits():
                return False
            before = keys_of(self.properties)
            try:
                fresh = self._load()
            except Exception as problem:
                if refused or self._age.ended(self.properties):
                    raise
                log.warning("keys of a table's files are not renewed yet: %s", first_line(problem))
                self._not_before = time.monotonic() + PAUSE_SECONDS
                return False
            if fresh is not None:
                self.properties = dict(fresh)
                self._clients = lru_cache(self._initialize_fs)
            self._age.renewed()
            return keys_of(self.properties) != before

    def _waits(self) -> bool:
        """Whether the catalog did not answer just now, and the keys may still hold."""
        return time.monotonic() < self._not_before and not self._age.ended(self.properties)

    def _client(self, scheme: str, netloc: str | None = None) -> FileSystem:
        self.renew()
        return self._clients(scheme, netloc)

    def __reduce__(self) -> tuple[type[StoreFileIO], tuple[dict[str, Any]]]:
        return StoreFileIO, (dict(self.properties),)
