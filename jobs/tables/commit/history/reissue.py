"""Copies of stamped snapshots, made when a branch is rebased onto main's head.

A copy has the stamp of an earlier snapshot, and its files that main lacks, under a new id and sequence number. Its
summary names the original. So readers that go by numbers, such as the ledger, take it for the original and count
nothing twice. A property of the table records the rebase and how far main had the branch then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from jobs.base.errors import FrazilError
from jobs.base.system.typed_json import decode_json

REISSUED_KEY = "frazil.reissued"
_FORMAT = 1


class Reissued(msgspec.Struct, frozen=True):
    """The original of a copied snapshot.

    Attributes:
        snapshot: Id of the original.
        at_ms: Commit time of the original, milliseconds since 1970.
        published: Whether main had the rows when the branch was rebased. If so, the copy has the stamp only.
    """

    snapshot: int
    seq: int
    at_ms: int
    published: bool = False

    def text(self) -> str:
        """Entry of the snapshot's summary."""
        return msgspec.json.encode(self).decode()


def reissued(snapshot: Snapshot) -> Reissued | None:
    """Original of a snapshot; None if the snapshot is no copy."""
    text = snapshot.summary.additional_properties.get(REISSUED_KEY) if snapshot.summary else None
    return decode_json(text, Reissued) if text else None


def as_landed(snapshot: Snapshot) -> Snapshot:
    """The snapshot with id, number and time of its original; the snapshot itself if it is no copy."""
    first = reissued(snapshot)
    if first is None:
        return snapshot
    own = {"snapshot_id": first.snapshot, "sequence_number": first.seq, "timestamp_ms": first.at_ms}
    return snapshot.model_copy(update=own)


@dataclass(frozen=True, slots=True)
class Remade:
    """The last rebase of a branch.

    Attributes:
        base: Id of main's head, onto which the branch was rebased.
        base_sequence: Sequence number of that head.
        first: Sequence number of the first copied snapshot.
        at_ms: Time of the rebase, milliseconds since 1970.
        published: Sequence number through which main had the branch, by stream.
    """

    base: int
    base_sequence: int
    first: int
    last: int
    at_ms: int
    published: Mapping[str, int] = field(default_factory=dict)

    def text(self) -> str:
        """Text of the table property."""
        said = {
            "v": _FORMAT,
            "base": [self.base, self.base_sequence],
            "issued": [self.first, self.last],
            "at_ms": self.at_ms,
            "published": dict(self.published),
        }
        return msgspec.json.encode(said).decode()


def remade_property(branch: str) -> str:
    """Name of the table property that records the last rebase of a branch."""
    return f"frazil.remade.{branch}"


def last_remade(metadata: TableMetadata, branch: str) -> Remade | None:
    """The last rebase of a branch; None if it was never rebased."""
    text = metadata.properties.get(remade_property(branch))
    if not text:
        return None
    said = msgspec.json.decode(text)
    if said.get("v") != _FORMAT:
        raise FrazilError(
            f"branch {branch} was rebased by another version: {remade_property(branch)} is of format "
            f"{said.get('v')!r}, not {_FORMAT}.",
            fix="use the version of frazil that did so last, or a newer one",
        )
    (base, base_sequence), (first, last) = said["base"], said["issued"]
    return Remade(base, base_sequence, first, last, said["at_ms"], said["published"])
