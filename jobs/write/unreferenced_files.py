"""Deletion of data files that no snapshot references."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from pyiceberg.io import FileIO
from pyiceberg.manifest import DataFile

log = logging.getLogger(__name__)


def delete_unreferenced(io: FileIO, files: Iterable[DataFile]) -> None:
    """Delete data files; one that cannot be deleted is logged, and left to the removal of orphans.

    Args:
        io: Of the table that they were written for.
        files: Such that no snapshot names them, and none will.
    """
    for file in files:
        try:
            io.delete(file.file_path)
        except OSError as problem:
            log.warning("could not delete %s, which no snapshot references: %s", file.file_path, problem)
