"""Archives among the JVM artifacts: unpacked once, beside themselves, for all processes."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

from jobs.system.locks import exclusive

_LOCK_DEADLINE_SECONDS = 300.0


def unpacked(archive: Path) -> Path:
    """The folder with what is in an archive of a set that was fetched and checked.

    Args:
        archive: As `resolve_jars` gives it; a set has one at most.

    Returns:
        `unpacked`, beside it.
    """
    folder = archive.parent / "unpacked"
    if not folder.exists():
        with exclusive(archive.parent / ".unpacking.lock", deadline_seconds=_LOCK_DEADLINE_SECONDS):
            if not folder.exists():
                _unpack(archive, folder)
    return folder


def _unpack(archive: Path, folder: Path) -> None:
    # The folder gets its name only when all is in it.
    partial = folder.with_name(".unpacking")
    shutil.rmtree(partial, ignore_errors=True)
    with tarfile.open(archive) as file:
        file.extractall(partial, filter="data")
    partial.rename(folder)
