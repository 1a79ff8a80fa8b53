"""Files and folders that only this user can read: a deployment's state holds values of the data, such as bounds.

State files have mode 0600, in folders of mode 0700, whatever the umask is. Files of tables have the modes that the
umask gives, because other engines read them.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

FILE, FOLDER = 0o600, 0o700
_OTHERS = 0o077


def private_folder(folder: Path) -> Path:
    """Make a folder and its missing parents for this user alone; existing folders keep their mode."""
    missing: list[Path] = []
    at = folder
    while not at.exists() and at != at.parent:
        missing.append(at)
        at = at.parent
    for each in reversed(missing):
        with contextlib.suppress(FileExistsError):
            each.mkdir(mode=FOLDER)
    # Raises FileExistsError if the path is no folder.
    folder.mkdir(exist_ok=True)
    return folder


def private_opener(path: str, flags: int) -> int:
    """Opener for `open(…, opener=…)` that creates files for this user alone."""
    return os.open(path, flags, FILE)


def keep_private(*folders: Path) -> None:
    """Close folders and everything in them to other users, because earlier versions of frazil left them open.

    A folder that is closed already is not walked. Files of other users and targets of links are left alone.
    """
    for folder in folders:
        with contextlib.suppress(OSError):
            if _is_open(folder.lstat()):
                _close_all(folder)


def _close_all(folder: Path) -> None:
    # The folder is closed last, so that an interrupted walk is done again.
    with os.scandir(folder) as entries:
        for entry in entries:
            # An entry may be removed meanwhile.
            with contextlib.suppress(OSError):
                if entry.is_dir(follow_symlinks=False):
                    _close_all(Path(entry.path))
                elif entry.is_file(follow_symlinks=False) and _is_open(found := entry.stat(follow_symlinks=False)):
                    Path(entry.path).chmod(stat.S_IMODE(found.st_mode) & ~_OTHERS)
    if _is_open(folder.lstat()):
        folder.chmod(FOLDER)


def _is_open(found: os.stat_result) -> bool:
    return bool(found.st_mode & _OTHERS) and found.st_uid == os.geteuid() and not stat.S_ISLNK(found.st_mode)
