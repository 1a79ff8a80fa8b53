"""Record of a takeover: a table property that names the sink from which a stream has its position."""

from __future__ import annotations

import contextlib

import msgspec
from pyiceberg.table.metadata import TableMetadata

from jobs.base.system.typed_json import decode_json
from jobs.clients.state_store.documents import DAMAGED
from jobs.migration.takeover.sink import Generation, Sink

_PREFIX = "frazil.takeover."


class TakeoverRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The sink from which a stream has its position.

    Attributes:
        connector, generation, member_group, offset_group, event_group, control_topic: As in `Sink`.
        at: Seconds since 1970.
        by: Who took over, and why.
        handed_back: When the sink got the position back, seconds since 1970; None if it did not.
    """

    connector: str
    generation: Generation
    member_group: str
    offset_group: str
    event_group: str
    control_topic: str
    at: float
    by: str
    handed_back: float | None = None

    @staticmethod
    def of(sink: Sink, at: float, by: str) -> TakeoverRecord:
        """The record of a takeover from a sink."""
        groups = (sink.member_group, sink.offset_group, sink.event_group)
        return TakeoverRecord(sink.name, sink.generation, *groups, sink.control_topic, at, by)

    @property
    def sink(self) -> Sink:
        """The sink, as far as the hand-back needs it."""
        groups = (self.member_group, self.offset_group, self.event_group)
        return Sink(self.connector, self.generation, *groups, self.control_topic)

    def properties(self, stream: str) -> dict[str, str]:
        """As properties of the stream's coordinator table."""
        return {f"{_PREFIX}{stream}": msgspec.json.encode(self).decode()}


def takeover_record(metadata: TableMetadata, stream: str) -> TakeoverRecord | None:
    """Record of a stream's takeover on its coordinator table; None if there is none."""
    with contextlib.suppress(*DAMAGED):
        return decode_json(metadata.properties.get(f"{_PREFIX}{stream}", ""), TakeoverRecord)
    return None
