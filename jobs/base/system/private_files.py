"""Private files and folders, for this user alone: a deployment's state holds values of the data, as bounds of columns.

What frazil writes there has mode 0600, in folders of mode 0700, whatever the umask. Tables are none of it: their files
have the modes that the umask gives, because other engines read them.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

FILE, FOLDER = 0o600, 0o700
_OTHERS = 0o077


def private_folder(folder: Path) -> Path:
    """Make a folder, and those above it that are missing, for this user alone; one that is there stays as it is."""
    missing: list[Path] = []
    at = folder
    while not at.exists() and at != at.parent:
        missing.append(at)
        at = at.parent
    for each in reversed(missing):
        with contextlib.suppress(FileExistsError):
            each.mkdir(mode=FOLDER)
    # Raises as usual where it is no folder.
    folder.mkdir(exist_ok=True)
    return folder


def private_opener(path: str, flags: int) -> int:
    """For `open(…, opener=…)`: a file that this makes is for this user alone."""
    return os.open(path, flags, FILE)


def keep_private(*folders: Path) -> None:
    """Close what an earlier version of frazil left open to others: these folders, and all that is in them.

    Where nothing is to be done it costs a look at each folder. What belongs to another user, or is the target of a
    link, is left alone.
    """
    for folder in folders:
        with contextlib.suppress(OSError):
            if _is_open(folder.lstat()):
                _close_all(folder)


def _close_all(folder: Path) -> None:
    # The folder itself at last, so that a walk that was interrupted is done again.
    with os.scandir(folder) as entries:
        for entry in entries:
            # What is removed meanwhile is nobody's concern.
            with contextlib.suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    _close_all(Path(entry.path))
                elif entry.is_file(follow_symlinks=False) and _is_open(found := entry.stat(follow_symlinks=False)):
                    Path(entry.path).chmod(stat.S_IMODE(found.st_mode) & ~_OTHERS)
    if _is_open(folder.lstat()):
        folder.chmod(FOLDER)


def _is_open(found: os.stat_result) -> bool:
    return bool(found.st_mode & _OTHERS) and found.st_uid == os.geteuid() and not stat.S_ISLNK(found.st_mode)
