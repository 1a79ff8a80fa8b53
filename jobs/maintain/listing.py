"""The files that lie under a table's location, whoever put them there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import Table


@dataclass(frozen=True, slots=True)
class Listed:
    """A file.

    Attributes:
        path: In the style of the table's location.
        within: Relative to the location.
        size: Bytes.
        changed: When it was last written.
    """

    path: str
    within: str
    size: int
    changed: datetime

    @property
    def hidden(self) -> bool:
        """Whether a part of its name begins as those that Iceberg passes over; a partition may be called so."""
        *folders, name = self.within.split("/")
        return name.startswith(("_", ".")) or any(
            folder.startswith(".") or (folder.startswith("_") and "=" not in folder) for folder in folders
        )


def list_files(table: Table) -> Iterator[Listed]:
    """Yield every file under the location.

    Raises:
        OSError: It cannot be listed.
        ValueError: PyArrow knows no such store.
    """
    import pyarrow.fs as stores

    location = table.location().rstrip("/")
    scheme, netloc, path = PyArrowFileIO.parse_location(location, table.io.properties)
    io: Any = table.io if isinstance(table.io, PyArrowFileIO) else PyArrowFileIO(table.io.properties)
    folder = path.rstrip("/")
    selector = stores.FileSelector(folder, recursive=True, allow_not_found=True)
    for found in io.fs_by_scheme(scheme, netloc).get_file_info(selector):
        if found.type != stores.FileType.File:
            continue
        within = found.path[len(folder) :].lstrip("/")
        yield Listed(f"{location}/{within}", within, found.size or 0, found.mtime)
