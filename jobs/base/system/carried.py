"""Variables and files of a driver's machine that its tasks are given, for where a task's machine lacks them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Carried:
    """What a task on another machine is given of the driver's. Never logged, and left out of the repr.

    Attributes:
        variables: Of the environment, by name.
        files: Their contents, by the path on the driver's machine.
    """

    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    files: Mapping[str, bytes] = field(default_factory=dict, repr=False)


NOTHING = Carried()
_now: Carried = NOTHING
# Paths by content. A file of memory lasts as long as its process, and no other user can open it.
_opened: dict[bytes, str] = {}


def carry(carried: Carried) -> None:
    """Let this process find what a task brought along; what the task before it brought is forgotten."""
    global _now
    _now = carried


def variable(name: str) -> str | None:
    """A variable of the environment of this process, else the one that its task brought along."""
    return os.environ.get(name, _now.variables.get(name))


def local_file(path: str) -> str:
    """A path under which this process finds a file of the driver's machine.

    It is the same one where this machine has something there, whatever it is: a host may have a certificate of its
    own. Otherwise what the task brought along is put into memory, and never onto a disk where the system can do that.
    """
    content = _now.files.get(path)
    if content is None or Path(path).exists():
        return path
    if content not in _opened:
        _opened[content] = _in_memory(content)
    return _opened[content]


def local_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """A client's options, with those that name files (`….location`) as this process finds them."""
    return {
        key: local_file(value) if key.endswith(".location") and isinstance(value, str) else value
        for key, value in options.items()
    }


def _in_memory(content: bytes) -> str:
    if hasattr(os, "memfd_create"):
        number = os.memfd_create("frazil")
        with os.fdopen(os.dup(number), "wb") as file:
            file.write(content)
        # Opened anew under this name, it is read from its beginning.
        return f"/proc/{os.getpid()}/fd/{number}"
    number, name = tempfile.mkstemp(prefix="frazil-")
    with os.fdopen(number, "wb") as file:
        file.write(content)
    return name
