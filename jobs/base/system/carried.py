"""Environment variables and files that a driver sends along with its tasks, for machines that lack them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Carried:
    """Variables and files of the driver for a task on another machine. Never logged, and left out of the repr.

    Attributes:
        variables: Environment variables by name.
        files: Contents of files, by the path on the driver's machine.
    """

    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)


NOTHING = Carried()
_now: Carried = NOTHING
# Paths by content. A file in memory lasts as long as its process, and no other user can open it.
_opened: dict[bytes, str] = {}


def carry(carried: Carried) -> None:
    """Let this process find what its task carries, instead of what the previous task carried."""
    global _now
    _now = carried


def variable(name: str) -> str | None:
    """Return an environment variable of this process, else the one that its task carries."""
    return os.environ.get(name, _now.variables.get(name))


def local_file(path: str) -> str:
    """Return a path under which this process finds a file of the driver's machine.

    If the path exists on this machine, it is returned unchanged: a host may have a certificate of its own. Otherwise
    the carried content goes into a file in memory; only systems without such files get a temporary file on disk.
    """
    content = _now.files.get(path)
    if content is None or Path(path).exists():
        return path
    if content not in _opened:
        _opened[content] = _in_memory(content)
    return _opened[content]


def local_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a client's options; those that name files (`….location`) get paths that this process finds."""
    return {
        key: local_file(value) if key.endswith(".location") and isinstance(value, str) else value
        for key, value in options.items()
    }


def _in_memory(content: bytes) -> str:
    if hasattr(os, "memfd_create"):
        number = os.memfd_create("frazil")
        with os.fdopen(os.dup(number), "wb") as file:
            file.write(content)
        # Whoever opens this path reads the file from its beginning.
        return f"/proc/{os.getpid()}/fd/{number}"
    number, name = tempfile.mkstemp(prefix="frazil-")
    with os.fdopen(number, "wb") as file:
        file.write(content)
    return name
