"""Reissue of stamped snapshots: a branch that is remade from main's head has them again, on top of that head.

A snapshot that is issued again has the stamp, and the files that main lacks, of one that was committed before, under
another id and number. Its summary says which one that was. So whoever goes by numbers, such as the ledger, takes it for
the commit that it stands for, and counts nothing twice. That the branch was remade, and how far main had it then, is a
property of the table.
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
    """What a snapshot stands for that was issued again.

    Attributes:
        snapshot: The id of the one that was committed first.
        at_ms: When it was committed, milliseconds since 1970.
        published: Whether main had its rows when the branch was remade, so that it has only the stamp.
    """

    snapshot: int
    seq: int
    at_ms: int
    published: bool = False

    def text(self) -> str:
        """As the entry of the snapshot's summary."""
        return msgspec.json.encode(self).decode()


def reissued(snapshot: Snapshot) -> Reissued | None:
    """What a snapshot stands for; None if it was not issued again."""
    text = snapshot.summary.additional_properties.get(REISSUED_KEY) if snapshot.summary else None
    return decode_json(text, Reissued) if text else None


def as_landed(snapshot: Snapshot) -> Snapshot:
    """The snapshot with id, number and time of the commit that it stands for: mostly itself."""
    first = reissued(snapshot)
    if first is None:
        return snapshot
    own = {"snapshot_id": first.snapshot, "sequence_number": first.seq, "timestamp_ms": first.at_ms}
    return snapshot.model_copy(update=own)


@dataclass(frozen=True, slots=True)
class Remade:
    """The last time that a branch was remade.

    Attributes:
        base: The id of main's head, on which the branch stands since.
        base_sequence: Its sequence number.
        first: The sequence number of the first snapshot that was issued again.
        at_ms: When, milliseconds since 1970.
        published: By stream, the sequence number through which main had the branch.
    """

    base: int
    base_sequence: int
    first: int
    last: int
    at_ms: int
    published: Mapping[str, int] = field(default_factory=dict)

    def text(self) -> str:
        """As the table property."""
        said = {
            "v": _FORMAT,
            "base": [self.base, self.base_sequence],
            "issued": [self.first, self.last],
            "at_ms": self.at_ms,
            "published": dict(self.published),
        }
        return msgspec.json.encode(said).decode()


def remade_property(branch: str) -> str:
    """The table property that says when a branch was remade last."""
    return f"frazil.remade.{branch}"


def last_remade(metadata: TableMetadata, branch: str) -> Remade | None:
    """The last time that a branch was remade; None if it never was."""
    text = metadata.properties.get(remade_property(branch))
    if not text:
        return None
    said = msgspec.json.decode(text)
    if said.get("v") != _FORMAT:
        raise FrazilError(
            f"branch {branch} was remade by another version: {remade_property(branch)} is of format {said.get('v')!r}, "
            f"not {_FORMAT}.",
            fix="use the version of frazil that did so last, or a newer one",
        )
    (base, base_sequence), (first, last) = said["base"], said["issued"]
    return Remade(base, base_sequence, first, last, said["at_ms"], said["published"])
