"""Validated position: how far the rows that a stream lands in a table are checked against their contract.

It is the table property `frazil.validated.<stream>`. The same commit sets the reader's property, by which an expiry
keeps unchecked snapshots, within its ceiling.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import msgspec
from pyiceberg.catalog import Catalog
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.refs import MAIN_BRANCH

from jobs.records.schema.decoded_columns import properties_in_parts, whole_property
from jobs.tables.commit.history.lineage import ancestors
from jobs.tables.commit.protocol.compare_and_swap import compare_and_swap, conflicts_as_moved_head
from jobs.tables.commit.schema.operations import property_limit
from jobs.tables.commit.stamp.errors import CommitRefusedError
from jobs.tables.commit.stamp.offsets import Positions, by_topic, from_topics
from jobs.tables.commit.stamp.table_properties import READER_PREFIX

PREFIX = "frazil.validated."
_READER = "contract."
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class CheckSummary:
    """Summary of the check that led to a validated position.

    Attributes:
        rows: Number of checked rows.
        expectations: Number of expectations in the contract.
        failed: Number of failed expectations, by severity.
        contract: Digest of the expectations.
    """

    rows: int = 0
    expectations: int = 0
    failed: Mapping[str, int] = field(default_factory=dict)
    contract: str = ""


@dataclass(frozen=True, slots=True)
class ValidatedPosition:
    """A snapshot of a branch through which the rows of a stream are checked.

    Attributes:
        snapshot_id: The branch's head at the start of the check.
        sequence: Sequence number of that snapshot.
        positions: Positions of the stream, its replays and its queues in that snapshot, by stamp id.
        at: Start of the check.
        summary: Its result.
    """

    snapshot_id: int
    sequence: int
    positions: Mapping[str, Positions]
    at: datetime
    summary: CheckSummary = field(default_factory=CheckSummary)

    def to_json(self) -> str:
        """Compact text of the property."""
        document: dict[str, Any] = {
            "v": _FORMAT,
            "snapshot": self.snapshot_id,
            "seq": self.sequence,
            "at": round(self.at.timestamp(), 3),
            "positions": {name: by_topic(each) for name, each in self.positions.items()},
            "rows": self.summary.rows,
            "expectations": self.summary.expectations,
            "failed": {severity: count for severity, count in self.summary.failed.items() if count},
            "contract": self.summary.contract,
        }
        return msgspec.json.encode(document).decode()

    @staticmethod
    def from_json(text: str) -> ValidatedPosition:
        """The inverse of `to_json`.

        Raises:
            ValueError: The text has another format.
        """
        document = msgspec.json.decode(text)
        if not isinstance(document, dict) or document.get("v") != _FORMAT:
            raise ValueError(f"it is no validated position of format {_FORMAT}: {text[:80]}")
        summary = CheckSummary(
            document.get("rows", 0),
            document.get("expectations", 0),
            document.get("failed", {}),
            document.get("contract", ""),
        )
        return ValidatedPosition(
            document["snapshot"],
            document["seq"],
            {name: from_topics(each) for name, each in document.get("positions", {}).items()},
            datetime.fromtimestamp(document["at"], UTC),
            summary,
        )


def property_key(stream: str, branch: str = MAIN_BRANCH) -> str:
    """Name of the table property that records how far the rows of a stream on a branch are checked."""
    return f"{PREFIX}{_on_branch(stream, branch)}"


def reader_key(stream: str, branch: str = MAIN_BRANCH) -> str:
    """Name of the table property by which a stream's checks hold unchecked snapshots."""
    return f"{READER_PREFIX}{_READER}{_on_branch(stream, branch)}"


def _on_branch(stream: str, branch: str) -> str:
    return stream if branch == MAIN_BRANCH else f"{stream}@{branch}"


def validated_position(
    properties: Mapping[str, str], stream: str, branch: str = MAIN_BRANCH
) -> ValidatedPosition | None:
    """How far the rows of a stream are checked; None if they never were, or the property is unreadable.

    If it is None, the whole table is checked, which loses nothing.
    """
    try:
        text = whole_property(properties, property_key(stream, branch))
        return ValidatedPosition.from_json(text) if text else None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def record_validated(
    catalog: Catalog, table: str, stream: str, position: ValidatedPosition, branch: str = MAIN_BRANCH
) -> bool:
    """Record how far the rows of a stream are checked, in one commit of properties; never back along the branch.

    Some REST catalogs do not detect concurrent changes of properties. There, the later of two simultaneous checks may
    record the earlier position, and the rows in between are checked again.

    Returns:
        False if another check has come as far, so that nothing was recorded.

    Raises:
        CommitRefusedError: Others committed to the table during every attempt; the former position stands.
    """

    def attempt() -> bool:
        loaded = catalog.load_table(table)
        there = validated_position(loaded.metadata.properties, stream, branch)
        if there is not None and _is_as_far(loaded.metadata, there, position, branch):
            return False
        properties = {
            property_key(stream, branch): position.to_json(),
            reader_key(stream, branch): str(position.snapshot_id),
        }
        with conflicts_as_moved_head(), loaded.transaction() as change:
            change.set_properties(properties_in_parts(properties, property_limit(catalog)))
        return True

    def given_up(said: str) -> CommitRefusedError:
        return CommitRefusedError(
            f"stream {stream}: how far its rows are checked was not recorded: {said}", fix=f"frazil check {stream}"
        )

    return compare_and_swap(table, attempt, given_up)


def _is_as_far(metadata: TableMetadata, there: ValidatedPosition, position: ValidatedPosition, branch: str) -> bool:
    if there.snapshot_id == position.snapshot_id:
        # The same rows were checked again: the newer check counts.
        return there.at >= position.at
    if any(each.snapshot_id == position.snapshot_id for each in ancestors(metadata, there.snapshot_id)):
        return True
    head = metadata.refs.get(branch)
    along = {each.snapshot_id for each in ancestors(metadata, head.snapshot_id)} if head else set()
    # Somebody has moved the branch away from the recorded snapshot.
    rolled_back = there.snapshot_id not in along and position.snapshot_id in along
    return there.sequence >= position.sequence and not rolled_back
