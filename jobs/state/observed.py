"""How long this host has seen a small document unchanged, on its own clock: for what another host's clock wrote.

A host's clock may have been ahead. What it wrote then looks new until the others' clocks have come there, which may be
a year; that nobody writes it anew is seen soon. What was seen is noted beside the document, since most who look do so
once, in a process of their own.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from pathlib import Path

import msgspec

from jobs.state.files import replace_whole
from jobs.system.boot import boot_clock, boot_id

# Two hosts' clocks always differ a little, and that matters to nobody.
AHEAD_SECONDS = 5.0
# Of this process, for whoever may not write there.
_SEEN: dict[Path, _Seen] = {}


class _Seen(msgspec.Struct, frozen=True):
    """A document as it was first seen in this form, and when, on the clock of this boot."""

    boot: str
    digest: str
    at: float


def is_ahead(boot: str, written_at: float) -> bool:
    """Whether a document was written under a clock ahead of ours, by another host or before this one started anew.

    Args:
        boot: Of the kernel that it was written on.
        written_at: As it says itself, seconds since 1970.
    """
    return boot != boot_id() and written_at > time.time() + AHEAD_SECONDS


def unchanged_for(path: Path, content: bytes) -> float:
    """Seconds for which a document has been seen as it is now, by any process of this host; 0 for the first time.

    Args:
        path: Where it is.
        content: What has just been read there.
    """
    boot, now, digest = boot_id(), boot_clock(), hashlib.sha256(content).hexdigest()
    note = path.with_name(f".seen-{boot[:8]}-{path.name}")
    seen = _SEEN.get(note) or _noted(note)
    if seen is None or (seen.boot, seen.digest) != (boot, digest) or seen.at > now:
        seen = _Seen(boot, digest, now)
        with contextlib.suppress(OSError):
            replace_whole(note, msgspec.json.encode(seen))
    _SEEN[note] = seen
    return now - seen.at


def forget(path: Path) -> None:
    """Remove what was noted of a document."""
    for note in path.parent.glob(f".seen-*-{path.name}"):
        _SEEN.pop(note, None)
        with contextlib.suppress(OSError):
            note.unlink(missing_ok=True)


def _noted(note: Path) -> _Seen | None:
    with contextlib.suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(note.read_bytes(), type=_Seen)
    return None
