"""Files and folders that others than their owner may read."""

from __future__ import annotations

from pathlib import Path


def open_to_others(folder: Path, *, but: tuple[str, ...] = ()) -> list[str]:
    """The folder itself and what is in it, as paths with their modes, if its group or others may do anything with it.

    Args:
        but: Names of folders whose content is left out; they themselves are not.
    """
    found: list[str] = []
    for path in (folder, *sorted(folder.rglob("*"))):
        if any(name in but for name in path.relative_to(folder).parts[:-1]) or path.is_symlink():
            continue
        try:
            mode = path.stat().st_mode
        except FileNotFoundError:
            # Written beside its place, and moved there since.
            continue
        if mode & 0o077:
            found.append(f"{path.relative_to(folder)} {mode & 0o777:o}")
    return found
