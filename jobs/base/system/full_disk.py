"""Full disk: recognised in any error, and reported with its folder."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from jobs.base.errors import FrazilError, StreamStopped

_FULL = {errno.ENOSPC, errno.EDQUOT}
# Messages of libc (Python, Arrow), the JVM and SQLite, for errors that come through Spark or a catalog's driver.
_WORDS = (os.strerror(errno.ENOSPC), os.strerror(errno.EDQUOT), "database or disk is full")


class DiskFullError(FrazilError):
    """A disk is full.

    Safe: Nothing of the batch was committed, and no record is lost.
    Next: free space in the folder that the message names; a driver then goes on by itself
    """


def is_full(problem: BaseException) -> bool:
    """Whether an error reports a full disk or an exceeded quota."""
    if isinstance(problem, OSError) and problem.errno is not None:
        return problem.errno in _FULL
    if isinstance(problem, StreamStopped):
        # Its message may quote a record, whose text may be anything.
        return False
    return any(words in str(problem) for words in _WORDS)


@contextlib.contextmanager
def full_disk_named(stream: str, folders: Callable[[], Iterable[Path]]) -> Iterator[None]:
    """Within the block, an error that reports a full disk becomes one that names the folder.

    Args:
        stream: Stream that the block works on.
        folders: Folders that the block writes to. If the error names no file, the fullest of them is named.

    Raises:
        DiskFullError: An error within the block reported a full disk.
    """
    try:
        yield
    except DiskFullError:
        raise
    except Exception as problem:
        if not is_full(problem):
            raise
        raise _error(stream, _named(problem) or _fullest(folders())) from problem


def refuse_if_full(stream: str, folder: Path) -> None:
    """Refuse to begin on a full disk: try to write a small file.

    Raises:
        DiskFullError: The disk has no room for the file.
    """
    probe = folder / f".room-{uuid.uuid4().hex[:8]}"
    try:
        probe.write_bytes(bytes(4096))
    except OSError as problem:
        if problem.errno in _FULL:
            raise _error(stream, folder) from problem
    finally:
        with contextlib.suppress(OSError):
            probe.unlink(missing_ok=True)


def _error(stream: str, folder: Path | None) -> DiskFullError:
    free = _free(folder) if folder else None
    left = f" ({free // 1024:,} KiB left)" if free is not None else ""
    return DiskFullError(
        f"stream {stream}: disk full: {folder or 'where the driver writes'}{left}. No record is lost or landed twice.",
        fix=f"free space{f' in {folder}' if folder else ''}; a driver then goes on by itself, otherwise `frazil run "
        f"{stream}`",
    )


def _named(problem: BaseException) -> Path | None:
    name = problem.filename if isinstance(problem, OSError) else None
    return Path(os.fsdecode(name)).parent if isinstance(name, (str, bytes)) else None


def _fullest(folders: Iterable[Path]) -> Path | None:
    room = {folder: free for folder in folders if (free := _free(folder)) is not None}
    return min(room, key=lambda folder: room[folder], default=None)


def _free(folder: Path) -> int | None:
    """Return the bytes that this user may still write in a folder; None if the system does not say."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return None
