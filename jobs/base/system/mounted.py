"""Mounted files that each hold one secret, read anew at each use: whoever mounts them may replace what is in them.

Whoever replaces one does so at once: by renaming a new file over it, or as Kubernetes changes the link of a volume.
"""

from __future__ import annotations

import threading
from collections import deque
from pathlib import Path

from jobs.base.system.carried import local_file

_KEPT = 8
_guard = threading.Lock()
# What this process has read of each, the newest last: an answer that quotes a former secret may come after its change.
_read: dict[str, deque[str]] = {}


def mounted_text(path: str) -> str:
    """What is in the file now, without the line break at its end.

    Raises:
        OSError: It cannot be read.
        ValueError: It holds no text, or more than one line.
    """
    raw = Path(local_file(path)).read_bytes()
    try:
        text = raw.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise ValueError("is no text") from None
    if not text or "\n" in text or "\0" in text:
        raise ValueError("is empty" if not text else "holds more than one line")
    with _guard:
        seen = _read.setdefault(path, deque(maxlen=_KEPT))
        if text not in seen:
            seen.append(text)
    return text


def texts_read(path: str) -> tuple[str, ...]:
    """What this process has read of a file, the newest last, for taking it out of what is shown."""
    with _guard:
        return tuple(_read.get(path, ()))
