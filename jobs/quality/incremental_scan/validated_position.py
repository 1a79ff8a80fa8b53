"""Validated position: how far the rows that a stream lands in a table are checked against their contract.

It is the table property `frazil.validated.<stream>`. Beside it, in the same commit, stands the reader's property by
which an expiry of snapshots keeps what has not been checked yet, for as long as its ceiling says.
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
    """What the check came to that led to a validated position; for those who only ask how it went.

    Attributes:
        rows: Looked at.
        expectations: Of the contract.
        failed: Expectations that failed, by severity.
        contract: A digest of the expectations.
    """

    rows: int = 0
    expectations: int = 0
    failed: Mapping[str, int] = field(default_factory=dict)
    contract: str = ""


@dataclass(frozen=True, slots=True)
class ValidatedPosition:
    """A snapshot of a branch through which the rows of a stream are checked.

    Attributes:
        snapshot_id: The branch's head when the check began.
        sequence: Iceberg's sequence number of it.
        positions: Where the stream, its replays and its queues stood in that snapshot, by the id that they stamp with.
        at: When the check began.
        summary: What it came to.
    """

    snapshot_id: int
    sequence: int
    positions: Mapping[str, Positions]
    at: datetime
    summary: CheckSummary = field(default_factory=CheckSummary)

    def to_json(self) -> str:
        """The compact text of the property."""
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
            ValueError: The text is no position of a format that this version reads.
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
    """The table property that says how far the rows of a stream on a branch are checked."""
    return f"{PREFIX}{_on_branch(stream, branch)}"


def reader_key(stream: str, branch: str = MAIN_BRANCH) -> str:
    """The table property by which the checks of a stream hold the snapshots that they have not looked at."""
    return f"{READER_PREFIX}{_READER}{_on_branch(stream, branch)}"


def _on_branch(stream: str, branch: str) -> str:
    return stream if branch == MAIN_BRANCH else f"{stream}@{branch}"


def validated_position(
    properties: Mapping[str, str], stream: str, branch: str = MAIN_BRANCH
) -> ValidatedPosition | None:
    """How far the rows of a stream are checked; None if they never were, or nobody can read what the property says.

    Then all of the table is checked, which loses nothing.
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

    Where the catalog does not tell two changes of properties apart, as some REST catalogs do not, the later of two
    checks at the same time may record the earlier position. What lies between is then checked once more.

    Returns:
        False if another check has come as far, and nothing was recorded.

    Raises:
        CommitRefusedError: Others committed to the table each time; what was recorded before stands.
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
        # The same rows again: what the newer check says of them counts.
        return there.at >= position.at
    if any(each.snapshot_id == position.snapshot_id for each in ancestors(metadata, there.snapshot_id)):
        return True
    head = metadata.refs.get(branch)
    along = {each.snapshot_id for each in ancestors(metadata, head.snapshot_id)} if head else set()
    # Somebody has moved the branch away from what was recorded.
    rolled_back = there.snapshot_id not in along and position.snapshot_id in along
    return there.sequence >= position.sequence and not rolled_back
