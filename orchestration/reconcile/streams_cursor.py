"""Cursor of a sensor that remembers something of each stream from tick to tick."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import Generic, Self, TypeVar

import msgspec

from jobs.system.typed_json import decode_json

M = TypeVar("M")


class StreamsCursor(msgspec.Struct, Generic[M], omit_defaults=True):
    """What a sensor remembers, by stream. It is short, since Dagster keeps a copy with every tick."""

    streams: dict[str, M] = msgspec.field(default_factory=dict)

    @classmethod
    def from_cursor(cls, cursor: str | None) -> Self:
        """What a cursor holds; nothing of one that cannot be read."""
        with contextlib.suppress(msgspec.DecodeError):
            return decode_json(cursor or "{}", cls)
        return cls()

    def to_cursor(self) -> str:
        """As Dagster keeps it."""
        return msgspec.json.encode(self).decode()

    def keep_only(self, streams: Collection[str]) -> None:
        """Forget all but these streams."""
        for stream in set(self.streams) - set(streams):
            del self.streams[stream]
