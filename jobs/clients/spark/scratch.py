"""Scratch folders of Spark's processes, with removal of those that killed processes left.

A JVM removes its own files when it ends, but not when it is killed. Then about 70 MB remain, mostly copies of jars.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from jobs.base.system.locks import exclusive
from jobs.base.system.private_files import private_folder

_PREFIX = "process-"
_HELD = "held"
_SWEEP_SECONDS = 10.0
# Open while this process lives: the system releases the lock with the process, however it ends.
_own: dict[Path, tuple[Path, int]] = {}


def process_folder(parent: Path) -> Path:
    """Return the folder of this process below `parent`; the first call creates it and removes those of dead processes.

    If files cannot be locked there, the result is `parent` itself, and nothing is removed.
    """
    parent = parent.absolute()
    if parent in _own:
        folder, held = _own[parent]
        if folder.exists():
            return folder
        os.close(held)
        del _own[parent]
    try:
        private_folder(parent)
        with exclusive(parent / "lock", deadline_seconds=_SWEEP_SECONDS):
            for folder in parent.glob(f"{_PREFIX}*"):
                if not _is_held(folder):
                    shutil.rmtree(folder, ignore_errors=True)
            folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
            _own[parent] = folder, _hold(folder)
    except OSError:
        return parent
    return folder


def _is_held(folder: Path) -> bool:
    try:
        os.close(_hold(folder))
    except BlockingIOError:
        return True
    return False


def _hold(folder: Path) -> int:
    file = os.open(folder / _HELD, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        raise
    return file
