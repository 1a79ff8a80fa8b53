"""Age of a document: how long this host has seen it unchanged, for documents written under another clock.

If a host's clock was ahead, its document looks new until other clocks have caught up, which may take a year. That
nobody writes it any more shows soon. The observation is recorded beside the document, because most observers look once
and end.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

import msgspec

from jobs.base.system.typed_json import decode_json
from jobs.clients.state_store.documents import DAMAGED
from jobs.clients.state_store.durable_files import put_in_place, staged

# Observations of this process, if it may not write beside the document.
_SEEN: dict[Path, _Seen] = {}


class _Seen(msgspec.Struct, frozen=True):
    """First observation of a document's content, and its time on the clock of this boot."""

    boot: str
    digest: str
    at: float


def unchanged_for(path: Path, content: bytes, boot: str, now: float) -> float:
    """Return for how many seconds processes of this host have seen a document unchanged; 0 for the first time.

    Args:
        path: Path of the document, or the matching path for a document in a shared store.
        content: Content that was just read.
        boot: Identity of the running kernel.
        now: Seconds on the clock of this boot.
    """
    digest = hashlib.sha256(content).hexdigest()
    record = path.with_name(f".seen-{boot[:8]}-{path.name}")
    seen = _SEEN.get(record) or _recorded(record)
    if seen is None or (seen.boot, seen.digest) != (boot, digest) or seen.at > now:
        seen = _Seen(boot, digest, now)
        with contextlib.suppress(OSError):
            put_in_place(staged(record, msgspec.json.encode(seen), durable=False), record, durable=False)
    _SEEN[record] = seen
    return now - seen.at


def forget(path: Path) -> None:
    """Remove the record of a document's age."""
    for record in path.parent.glob(f".seen-*-{path.name}"):
        _SEEN.pop(record, None)
        with contextlib.suppress(OSError):
            record.unlink(missing_ok=True)


def _recorded(record: Path) -> _Seen | None:
    with contextlib.suppress(OSError, *DAMAGED):
        return decode_json(record.read_bytes(), _Seen)
    return None
