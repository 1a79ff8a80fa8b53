"""Mounted files that each hold one secret. They are read at each use, because their content may be replaced.

A replacement has to be atomic: a new file renamed over the old one, or the link of a volume that Kubernetes changes.
"""

from __future__ import annotations

import threading
from collections import deque
from pathlib import Path

from jobs.base.system.carried import local_file

_KEPT = 8
_guard = threading.Lock()
# Secrets read from each file, the newest last: an answer that quotes a former secret may come after its change.
_read: dict[str, deque[str]] = {}


def mounted_text(path: str) -> str:
    """Return the file's present content, without the line break at its end.

    Raises:
        OSError: The file cannot be read.
        ValueError: The file holds no text, or more than one line.
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
    """Return the secrets that this process has read from a file, the newest last, for redaction."""
    with _guard:
        return tuple(_read.get(path, ()))
