"""Exceptions for damaged JSON documents.

They are not in the store's module, so that a process that only writes documents, such as a watchdog, loads no decoder.
"""

from __future__ import annotations

import msgspec

DAMAGED: tuple[type[Exception], ...] = (msgspec.DecodeError, UnicodeDecodeError)
"""Exceptions of msgspec for a damaged document; the second one for texts that are not UTF-8."""
