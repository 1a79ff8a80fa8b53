"""Small documents as JSON, whatever they say: what is raised of one that is damaged.

Apart from the store, so that whoever only writes one, as the keeper of a driver does, loads no decoder.
"""

from __future__ import annotations

import msgspec

DAMAGED: tuple[type[Exception], ...] = (msgspec.DecodeError, UnicodeDecodeError)
"""What msgspec raises of a document that is damaged; the second of texts in it that are not UTF-8."""
