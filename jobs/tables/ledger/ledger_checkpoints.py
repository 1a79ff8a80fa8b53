"""Checkpoints of the ledger: how far each table's stamps were filled in, and how far the table was audited.

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
from pyiceberg.catalog import Catalog
from pyiceberg.table.metadata import TableMetadata

from jobs.config.settings.settings import Settings
from jobs.records.schema.decoded_columns import whole_property
from jobs.tables.commit.history.lineage import ancestors
from jobs.tables.commit.protocol.compare_and_swap import compare_and_swap
from jobs.tables.commit.protocol.pyiceberg_commit import commit_once
from jobs.tables.commit.schema.operations import Append
from jobs.tables.commit.stamp.offsets import Positions, by_topic, from_topics
from jobs.tables.commit.stamp.retired_topics import Retired
from jobs.tables.commit.stamp.stamp_fields import Counts
from jobs.tables.commit.stamp.stamp_json import pack_retired, unpack_retired
from jobs.tables.ledger.ledger_table import ensure_ledger, find_ledger, ledger_crowded

FILLED_PREFIX = "frazil.ledger."
AUDITED_PREFIX = "frazil.audited."
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class FillCheckpoint:
    """State after the last stamp that the ledger has of a stream on a table.

    Attributes:
        retired: Dropped topics, in case they return; on the coordinator only.
    """

    sequence: int
    snapshot_id: int
    positions: Positions = field(default_factory=dict)
    totals: Counts = field(default_factory=Counts)
    retired: Mapping[str, Retired] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AuditCheckpoint:
    """State of the audit of a table.

    Attributes:
        sequence: Sequence number of the last commit whose ledger rows were audited.
        snapshot_id: Snapshot of the table in which rows were counted.
        complete: Whether nothing was missing or doubled.
        positions: Positions of the table.
    """

    sequence: int
    snapshot_id: int
    at: datetime
    complete: bool
    positions: Positions = field(default_factory=dict)


def fill_checkpoints_text(known: Mapping[str, FillCheckpoint], sequence: int = 0) -> str:
    """Text of the property with fill checkpoints, by table uuid.

    Retired topics and the sequence number are beside the tables, where earlier versions ignore them.

    Args:
        sequence: Sequence number of the ledger's snapshot committed with the property; 0 if it has none.
    """
    gone = {uuid: packed for uuid, each in known.items() if (packed := pack_retired(each.retired))}
    beside: dict[str, Any] = {"retired": gone} if gone else {}
    if sequence:
        beside["sequence"] = sequence
    return _text(
        {
            uuid: [
                each.sequence,
                each.snapshot_id,
                list(msgspec.structs.astuple(each.totals)),
                by_topic(each.positions),
            ]
            for uuid, each in known.items()
        },
        beside,
    )


def fill_checkpoints_of(properties: Mapping[str, str], stream: str) -> dict[str, FillCheckpoint]:
    """The inverse of `fill_checkpoints_text`; empty without the property."""
    document = _document(properties, FILLED_PREFIX + stream)
    gone = document.get("retired", {})
    return {
        uuid: FillCheckpoint(
            sequence, snapshot_id, from_topics(positions), Counts(*totals), unpack_retired(gone.get(uuid, {}))
        )
        for uuid, (sequence, snapshot_id, totals, positions) in document.get("tables", {}).items()
    }


def valid_fill_checkpoints(metadata: TableMetadata, stream: str) -> dict[str, FillCheckpoint] | None:
    """Fill checkpoints by table uuid; None if the ledger was rolled back behind them.

    A rollback moves the ledger's rows back, but not its properties.
    """
    sequence = _document(metadata.properties, FILLED_PREFIX + stream).get("sequence", 0)
    if sequence:
        numbers = [snapshot.sequence_number or 0 for snapshot in ancestors(metadata)]
        # The snapshots before an expired one have expired as well.
        if not numbers or (sequence not in numbers and numbers[-1] < sequence):
            return None
    return fill_checkpoints_of(metadata.properties, stream)


def audit_checkpoints_text(checkpoints: Mapping[str, AuditCheckpoint]) -> str:
    """Text of the property with audit checkpoints, by table uuid."""
    return _text(
        {
            uuid: [each.sequence, each.snapshot_id, each.at.timestamp(), each.complete, by_topic(each.positions)]
            for uuid, each in checkpoints.items()
        }
    )


def audit_checkpoints_of(properties: Mapping[str, str], stream: str) -> dict[str, AuditCheckpoint]:
    """The inverse of `audit_checkpoints_text`; empty without the property."""
    return {
        uuid: AuditCheckpoint(sequence, snapshot_id, datetime.fromtimestamp(at, UTC), complete, from_topics(positions))
        for uuid, (sequence, snapshot_id, at, complete, positions) in _document(properties, AUDITED_PREFIX + stream)
        .get("tables", {})
        .items()
    }


def _text(tables: dict[str, Any], beside: Mapping[str, Any] = MappingProxyType({})) -> str:
    return msgspec.json.encode({"v": _FORMAT, "tables": tables, **beside}).decode()


def _document(properties: Mapping[str, str], key: str) -> dict[str, Any]:
    text = whole_property(properties, key)
    if not text:
        return {}
    document = msgspec.json.decode(text)
    if document["v"] != _FORMAT:
        raise ValueError(f"{key} has format {document['v']!r}, not {_FORMAT}: it was written by another version")
    return document


def audit_checkpoints(catalog: Catalog, settings: Settings, stream: str) -> dict[str, AuditCheckpoint]:
    """Audit checkpoint of each table of a stream, by uuid."""
    ledger = find_ledger(catalog, settings)
    return audit_checkpoints_of(ledger.metadata.properties, stream) if ledger else {}


def record_audited(
    catalog: Catalog, settings: Settings, stream: str, checkpoints: Mapping[str, AuditCheckpoint]
) -> None:
    """Write audit checkpoints, by table uuid; one that is behind the existing checkpoint is left out.

    Raises:
        CommitRefusedError: Others committed to the ledger during every attempt; the checkpoints did not change.
    """

    def attempt() -> None:
        ledger = ensure_ledger(catalog, settings)
        there = audit_checkpoints_of(ledger.metadata.properties, stream)
        newer = {
            key: checkpoint
            for key, checkpoint in checkpoints.items()
            if key not in there or there[key].sequence <= checkpoint.sequence
        }
        if any(there.get(key) != checkpoint for key, checkpoint in newer.items()):
            properties = {AUDITED_PREFIX + stream: audit_checkpoints_text({**there, **newer})}
            commit_once(ledger, Append(), summary={}, properties=properties)

    compare_and_swap(settings.ledger.table, attempt, ledger_crowded)
