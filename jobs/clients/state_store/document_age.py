"""Age of a document: how long this host has seen it unchanged, for what was written under another clock.

A host's clock may have been ahead. What it wrote then looks new until the others' clocks have come there, which may be
a year; that nobody writes it anew is seen soon. What was seen is recorded beside the document, since most who look do
so once, in a process of their own.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

import msgspec

from jobs.base.system.typed_json import decode_json
from jobs.clients.state_store.documents import DAMAGED
from jobs.clients.state_store.durable_files import put_in_place, staged

# Of this process, for whoever may not write there.
_SEEN: dict[Path, _Seen] = {}


class _Seen(msgspec.Struct, frozen=True):
    """A document as it was first seen in this form, and when, on the clock of this boot."""

    boot: str
    digest: str
    at: float


def unchanged_for(path: Path, content: bytes, boot: str, now: float) -> float:
    """Seconds for which a document has been seen as it is now, by any process of this host; 0 for the first time.

    Args:
        path: Where it is.
        content: What has just been read there.
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
