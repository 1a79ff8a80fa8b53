"""What the ledger remembers beside its rows: how far each table was filled in, and how far it was audited.

Both are properties of the ledger table, one per stream, by table uuid: `frazil.ledger.<stream>` and
`frazil.audited.<stream>`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import msgspec

from jobs.commit.long_properties import whole
from jobs.commit.offsets import Positions, TopicPartition
from jobs.commit.retired import pack_retired, unpack_retired
from jobs.commit.stamp_parts import Counts
from jobs.verify.ledger_reading import Known

FILLED_PREFIX = "frazil.ledger."
AUDITED_PREFIX = "frazil.audited."
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class AuditMark:
    """How far a table was audited.

    Attributes:
        sequence: The sequence number of the last commit on it whose rows of the ledger were audited.
        snapshot_id: The table's snapshot that its rows were counted in.
        complete: Whether nothing was missing or doubled.
        positions: Where the table stood.
    """

    sequence: int
    snapshot_id: int
    at: datetime
    complete: bool
    positions: Positions = field(default_factory=dict)


def known_text(known: Mapping[str, Known]) -> str:
    """The property of what was filled in, by table uuid.

    Retired topics stand beside the tables, where earlier versions pass over them.
    """
    gone = {uuid: packed for uuid, each in known.items() if (packed := pack_retired(each.retired))}
    return _text(
        {
            uuid: [each.sequence, each.snapshot_id, list(msgspec.structs.astuple(each.totals)), _packed(each.positions)]
            for uuid, each in known.items()
        },
        {"retired": gone} if gone else {},
    )


def known_of(properties: Mapping[str, str], stream: str) -> dict[str, Known]:
    """The inverse of `known_text`; empty without the property."""
    document = _document(properties, FILLED_PREFIX + stream)
    gone = document.get("retired", {})
    return {
        uuid: Known(sequence, snapshot_id, _unpacked(positions), Counts(*totals), unpack_retired(gone.get(uuid, {})))
        for uuid, (sequence, snapshot_id, totals, positions) in document.get("tables", {}).items()
    }


def marks_text(marks: Mapping[str, AuditMark]) -> str:
    """The property of what was audited, by table uuid."""
    return _text(
        {
            uuid: [each.sequence, each.snapshot_id, each.at.timestamp(), each.complete, _packed(each.positions)]
            for uuid, each in marks.items()
        }
    )


def marks_of(properties: Mapping[str, str], stream: str) -> dict[str, AuditMark]:
    """The inverse of `marks_text`; empty without the property."""
    return {
        uuid: AuditMark(sequence, snapshot_id, datetime.fromtimestamp(at, UTC), complete, _unpacked(positions))
        for uuid, (sequence, snapshot_id, at, complete, positions) in _document(properties, AUDITED_PREFIX + stream)
        .get("tables", {})
        .items()
    }


def _text(tables: dict[str, Any], beside: Mapping[str, Any] = MappingProxyType({})) -> str:
    return msgspec.json.encode({"v": _FORMAT, "tables": tables, **beside}).decode()


def _document(properties: Mapping[str, str], key: str) -> dict[str, Any]:
    text = whole(properties, key)
    if not text:
        return {}
    document = msgspec.json.decode(text)
    if document["v"] != _FORMAT:
        raise ValueError(f"{key} has format {document['v']!r}, not {_FORMAT}: it was written by another version")
    return document


def _packed(positions: Positions) -> dict[str, dict[str, int]]:
    topics: dict[str, dict[str, int]] = {}
    for partition, at in sorted(positions.items()):
        topics.setdefault(partition.topic, {})[str(partition.partition)] = at
    return topics


def _unpacked(topics: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, int(n)): at for topic, entries in topics.items() for n, at in entries.items()}
