"""FileIOs of a table's store: one that trusts configured authorities, and one that renews its credentials.

PyIceberg has no property for authorities. Relied upon, and pinned by `tests/unit/tables/write/test_renewed_file_io.py`:
`PyArrowFileIO` makes its client of S3 by `_initialize_s3_fs`, and PyArrow's `__reduce__` gives its arguments;
`fs_by_scheme` is asked for each file that is opened, and `_initialize_fs` makes a client.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from pyarrow.fs import FileSystem, S3FileSystem
from pyiceberg.io.pyarrow import PyArrowFileIO

from jobs.base.errors import FrazilError, first_line
from jobs.config.services.catalog_properties import STORE_AUTHORITIES
from jobs.tables.write.file_access import KeyAge, keys_of

log = logging.getLogger(__name__)


class StoreFileIO(PyArrowFileIO):
    """PyIceberg's FileIO, whose S3 client trusts only the authorities in the file named by ``s3.ssl.cabundle``."""

    def _initialize_s3_fs(self, netloc: str | None) -> FileSystem:
        made = super()._initialize_s3_fs(netloc)
        named = self.properties.get(STORE_AUTHORITIES)
        if not named:
            return made
        if not Path(str(named)).is_file():
            raise FrazilError(
                f"{STORE_AUTHORITIES}: {named} is no file on this machine.",
                fix=f"name a file with certificates of authorities there, on each machine of tasks; catalog.properties."
                f"{STORE_AUTHORITIES} in frazil.yaml",
            )
        options = made.__reduce__()[1][0]
        return S3FileSystem(**{**options, "tls_ca_file_path": str(named)})


PAUSE_SECONDS = 10.0
"""Pause between two attempts to renew, while the present credentials may be valid."""


class RenewedFileIO(StoreFileIO):
    """PyIceberg's FileIO, which renews its credentials halfway through their life.

    Pickled for another process it is a `StoreFileIO` with its present credentials.

    Args:
        load: Asks the catalog; returns the present properties of the table's FileIO, or None if the table was
            recreated.
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
        """Take new credentials from the catalog if it is time, or if the store has refused the present ones.

        If the catalog does not answer, the present ones stay while they may be valid.

        Returns:
            Whether the credentials are new.
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
        """Whether the catalog did not answer recently, and the credentials may still be valid."""
        return time.monotonic() < self._not_before and not self._age.ended(self.properties)

    def _client(self, scheme: str, netloc: str | None = None) -> FileSystem:
        self.renew()
        return self._clients(scheme, netloc)

    def __reduce__(self) -> tuple[type[StoreFileIO], tuple[dict[str, Any]]]:
        return StoreFileIO, (dict(self.properties),)
