"""Small durable files that are replaced atomically (written beside, synced, renamed), for this user alone."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from jobs.base.system.private_files import private_folder, private_opener


def write_durably(path: Path, content: bytes, *, shared: bool = False) -> None:
    """Replace `path` by `content`: readers see the old or the new content, and the new one survives a power cut.

    Args:
        shared: Whether other users may read it, as far as the umask allows.
    """
    if shared:
        path.parent.mkdir(parents=True, exist_ok=True)
    put_in_place(staged(path, content, shared=shared), path)


def staged(path: Path, content: bytes, *, durable: bool = True, shared: bool = False) -> Path:
    """Write `content` beside `path` under a hidden name; a failure leaves nothing behind.

    Args:
        durable: Whether it survives a power cut.
        shared: Whether other users may read it.
    """
    private_folder(path.parent)
    beside = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    try:
        with open(beside, "wb", opener=None if shared else private_opener) as file:
            file.write(content)
            if durable:
                file.flush()
                os.fsync(file.fileno())
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    return beside


def put_in_place(beside: Path, path: Path, *, durable: bool = True) -> None:
    """Rename the file of `staged` to `path`. If this fails, others may have seen it under that name already."""
    try:
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
    if durable:
        _sync_folder(path.parent)


def create_durably(path: Path, content: bytes) -> bool:
    """Create `path` with `content` atomically unless it exists; return whether this call created it."""
    beside = staged(path, content)
    try:
        os.link(beside, path)
    except FileExistsError:
        return False
    finally:
        beside.unlink(missing_ok=True)
    _sync_folder(path.parent)
    return True


def remove_durably(path: Path) -> None:
    """Remove `path` if it exists, so that it stays removed after a power cut."""
    path.unlink(missing_ok=True)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    # Some file systems cannot sync a folder; the file itself is synced either way.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
